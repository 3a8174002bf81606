"""Transactions of producers that a library runs, by the library's own calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.engine.clients.library import LibraryProducer, Record, Settled
from jobs.engine.producing.transactions import TransactionError


class TransactionalLibrary(LibraryProducer, Protocol):
    """A `LibraryProducer` with transactions."""

    @property
    def transactions(self) -> TransactionCalls:
        """The transaction calls of its producer."""
        ...


class TransactionCalls:
    """A library's calls for transactions, which have the names of Kafka's own producer.

    Args:
        producer: the library's producer.
        error: the error that its calls raise.
        words: gives the text of such an error.
    """

    def __init__(
        self, producer: Any, error: type[Exception], words: Callable[[Exception], str] = str
    ) -> None:
        self._producer = producer
        self._error = error
        self._words = words

    def begin(self) -> None:
        """Begin a transaction; does not block.

        Raises:
            TransactionError: the library refuses; the other calls raise it, too.
        """
        self._call(self._producer.begin_transaction)

    def commit(self) -> None:
        """Wait for the acknowledgement of all records of the transaction, and commit it; blocks."""
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction; blocks."""
        self._call(self._producer.abort_transaction)

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._error as error:
            raise TransactionError(self._words(error)) from error


@dataclass(frozen=True)
class TransactionEnd:
    """A transaction that is over.

    Attributes:
        partitions: numbers of the partitions that it wrote to.
        records: number of records that the library took for it.
        is_commit: False for an aborted one.
        commit_s: duration of the commit [s].
    """

    partitions: frozenset[int]
    records: int
    is_commit: bool
    commit_s: float


class CommittingProducer:
    """A library's producer that commits transactions by their age; a `LibraryProducer`.

    A commit blocks until it is answered, so a thread of its own calls it, and the other producers
    of the task keep their schedule. During a commit this producer takes no record, and due records
    wait.

    Args:
        duration_s: age at which a transaction is committed [s].

    Attributes:
        ends: ends of transactions that the caller has not taken yet.
    """

    def __init__(
        self,
        library: TransactionalLibrary,
        duration_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._duration_s = duration_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._ending: Future[TransactionEnd] | None = None
        self._began_s: float | None = None
        self._partitions: set[int] = set()
        self._records = 0
        self.ends: list[TransactionEnd] = []

    @property
    def is_committing(self) -> bool:
        """True until a commit that is under way is answered."""
        return self._ending is not None

    @property
    def throttle_ms(self) -> int:
        """Sum of throttle times; see `LibraryProducer.throttle_ms`."""
        return self._library.throttle_ms

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record; False during a commit, too. See `LibraryProducer.offer`."""
        self._commit_if_old()
        if self._ending is not None:
            return False
        if self._began_s is None:
            self._library.transactions.begin()
            self._began_s = self._clock()
        if not self._library.offer(partition, record, timestamp_ms, settled):
            return False
        self._partitions.add(partition)
        self._records += 1
        return True

    def serve(self) -> None:
        """Serve callbacks and commits; see `LibraryProducer.serve`.

        Raises:
            TransactionError: the library could neither commit nor abort.
        """
        self._library.serve()
        if self._ending is not None and self._ending.done():
            ending, self._ending = self._ending, None
            self.ends.append(ending.result())
        self._commit_if_old()

    def end(self) -> None:
        """Commit the open transaction, which also sends the queued records."""
        if self._began_s is not None:
            self._commit()

    def close(self) -> None:
        """Close at once; see `LibraryProducer.close`."""
        self._library.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _commit_if_old(self) -> None:
        if self._began_s is not None and self._clock() >= self._began_s + self._duration_s:
            self._commit()

    def _commit(self) -> None:
        partitions, records = frozenset(self._partitions), self._records
        self._began_s, self._records = None, 0
        self._partitions.clear()
        self._ending = self._thread.submit(self._run_commit, partitions, records)

    def _run_commit(self, partitions: frozenset[int], records: int) -> TransactionEnd:
        """Commit or abort; runs on the thread."""
        since_s = self._clock()
        try:
            self._library.transactions.commit()
        except TransactionError as error:
            self._abort(error)
            return TransactionEnd(partitions, records, False, self._clock() - since_s)
        return TransactionEnd(partitions, records, True, self._clock() - since_s)

    def _abort(self, why: TransactionError) -> None:
        try:
            self._library.transactions.abort()
        except TransactionError as error:
            raise TransactionError(
                f"a transaction could not be committed ({why}) nor aborted ({error}); expected a "
                "transaction that is not older than brokers allow, and the right to Write on the "
                "transactional id; see the brokers' logs"
            ) from error
