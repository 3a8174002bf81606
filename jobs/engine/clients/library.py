"""The interface of client libraries in both of their roles, and their options.

Transactions of producers that a library runs, by the library's own calls.
"""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.engine.producing.transactions import TransactionError
from metrics.common.bounds import kafka_properties
from metrics.common.errors import ConfigError, RedlineError

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""

Settled = Callable[[str | None], None]
"""A callback, called once per accepted record from any thread: None when acknowledged, else the
error's name."""

NEVER_SENT = "never sent"
"""Argument of `Settled` for a record that left the queue without being sent."""

Read = tuple[int, int, int, int]
"""A record that was read: its partition's number, offset, size of key and value [B], and create
time [ms since the epoch]."""


class LibraryError(ConfigError):
    """A library that is missing, or that refuses what the plan requires."""


class ReadError(RedlineError):
    """An error that ended a library's consumer."""


class LibraryProducer(Protocol):
    """One producer of a library, with connections and threads of its own."""

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record without waiting; False when there is no room for it now.

        Args:
            partition: number of its partition (`jobs.engine.task.plan`).
        """
        ...

    def serve(self) -> None:
        """Call `settled` for the outcomes that are known, in a library that needs polling."""
        ...

    def end(self) -> None:
        """Stop sending queued records, as far as the library supports it."""
        ...

    def close(self) -> None:
        """Close at once, without waiting for answers."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""
        ...


class LibraryConsumer(Protocol):
    """One consumer of a library; all calls come from one thread."""

    def open(self) -> None:
        """Subscribe; polling joins the group."""
        ...

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived, after a wait of at most so long for the first [s]."""
        ...

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment, partition → offset to begin at; None without a new one.

        No record of these partitions is polled before `begin`.
        """
        ...

    def begin(self) -> None:
        """Begin to poll the partitions that are assigned now and later."""
        ...

    def high_watermark(self, partition: int) -> int | None:
        """End of a partition as the library last learned it; None before that."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""
        ...

    def close(self) -> None:
        """Commit, and leave the group."""
        ...


def kafka_options(
    options: Any, *, without: Collection[str] = (), known: Collection[str] | None = None
) -> dict[str, Any]:
    """The options that a library takes unchanged: Kafka's property → value.

    Args:
        options: options of producers or consumers.
        without: properties that the library has by another name, or that its caller implements.
        known: properties that the library lists; None where it refuses unknown ones itself.

    Raises:
        LibraryError: the library lacks an option that is not at its default.
    """
    given = {}
    defaults = {item.name: item.default for item in dataclasses.fields(options)}
    for option, name in kafka_properties(type(options)).items():
        value = getattr(options, option)
        if name in without or value is None:
            continue
        if known is None or name in known:
            given[name] = value
        elif value != defaults[option]:
            raise LibraryError(
                f"the client {options.client} has no {name}, and {option} is {value}; expected "
                f"{defaults[option]}, as without it; leave {option} out, or choose another client"
            )
    return given


def missing_package(client: str, package: str) -> LibraryError:
    """The error for a library that is not installed here."""
    return LibraryError(
        f"the client {client} needs the package {package}, which {socket.gethostname()} lacks; "
        f"expected it on every executor; install it there (pip install {package}), or set "
        "producer.client and consumers.client to wire"
    )


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
