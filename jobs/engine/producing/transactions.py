"""The transactions of one producer, one after the other, and what their coordinator is asked.

As in Kafka's producer, a partition is added to the transaction before the first batch goes there,
and a transaction is committed once all of its batches are acknowledged; its marker in the log of
each of these partitions is written by the brokers after that. The commit begins as soon as the
transaction is old enough, with what is due by then, lingered or not; what becomes due while it is
under way waits in the accumulator and goes into the next transaction, so the schedule goes on.

A batch that fails for good takes its transaction with it: what of it was not sent fails too, it is
aborted, and the producer asks for a further epoch, in which sequences begin anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kafka.errors import for_code

from jobs.engine.producing.batch import Batch
from metrics.common.errors import RedlineError

ABORTED = "TransactionAbortedError"
"""Error name of records that were not sent, as another batch of their transaction had failed."""

FIRST_ADD_BACKOFF_S = 0.02
"""Kafka's producer asks so soon again while the transaction before is still being completed [s]."""

LOG_RECORDS_OF_AN_END = 2
"""That the coordinator writes of an end: that it is prepared, and that it is complete."""

COORDINATOR_NOT_AVAILABLE = 15
_CONCURRENT_TRANSACTIONS = 51
_NOT_HERE = frozenset({COORDINATOR_NOT_AVAILABLE, 16})  # and not the coordinator


class TransactionError(RedlineError):
    """A coordinator refused what a producer with transactions asked for."""


@dataclass(frozen=True)
class FindCoordinator:
    """Which broker coordinates this producer's transactions."""


@dataclass(frozen=True)
class AddPartitions:
    """Take these partitions into the transaction."""

    partitions: tuple[int, ...]


@dataclass(frozen=True)
class EndTransaction:
    """Commit or abort."""

    is_commit: bool


@dataclass(frozen=True)
class RenewEpoch:
    """Give the next epoch."""


CoordinatorRequest = FindCoordinator | AddPartitions | EndTransaction | RenewEpoch


class Transactions:
    """Where one producer is in its transactions. Times are of the engine's clock [s].

    Args:
        coordinator: broker id.
        duration_s: how old a transaction gets before it is committed.

    Attributes:
        coordinator: None while it has to be found again.
        partitions: that the coordinator has in the open transaction.
        wanted: to be added, as batches wait for it.
        began_s: when its first partition was asked for; None where none is open.
        unsettled: batches of it that are neither acknowledged nor failed.
        acked_records: of it.
        is_ending: no more batches join it.
        ending_since_s: when that began.
        is_failed: it is to be aborted, and the next epoch to be asked for.
        request_in_flight: what the coordinator is to answer; None where it owes nothing.
        failures: answers in a row that said to ask again.
        not_before_s: nothing is asked earlier.
        scheduled_s: when to look next.
        pending: full batches for the next transaction, in order.
        open_batch_waits: the producer's open batch is ready and waits for the next one too.
    """

    __slots__ = (
        "_duration_s",
        "acked_records",
        "began_s",
        "coordinator",
        "ending_since_s",
        "failures",
        "is_ending",
        "is_failed",
        "not_before_s",
        "open_batch_waits",
        "partitions",
        "pending",
        "request_in_flight",
        "scheduled_s",
        "unsettled",
        "wanted",
    )

    def __init__(self, coordinator: int, duration_s: float) -> None:
        self.coordinator: int | None = coordinator
        self._duration_s = duration_s
        self.pending: deque[Batch] = deque()
        self.open_batch_waits = False
        self.request_in_flight: CoordinatorRequest | None = None
        self.failures = 0
        self.not_before_s = self.scheduled_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self.partitions: set[int] = set()
        self.wanted: set[int] = set()
        self.began_s: float | None = None
        self.unsettled = self.acked_records = 0
        self.is_ending = self.is_failed = False
        self.ending_since_s = 0.0

    @property
    def is_open(self) -> bool:
        """True from the first request to add a partition to the answer that ends all of it."""
        return self.began_s is not None or self.is_ending or self.request_in_flight is not None

    @property
    def ends_s(self) -> float | None:
        """When the open transaction is old enough to be committed; None without one."""
        return None if self.began_s is None else self.began_s + self._duration_s

    def admits(self, partition: int) -> bool:
        """True when batches for this partition may be sent now."""
        return partition in self.partitions

    def add_wanted(self, partition: int, now: float) -> None:
        """Batches wait for this partition to be a part of the transaction."""
        self.wanted.add(partition)
        if self.began_s is None:
            self.began_s = now

    def end(self, now: float) -> None:
        """No more batches join."""
        if not self.is_ending:
            self.is_ending, self.ending_since_s = True, now

    def next_request(self) -> CoordinatorRequest | None:
        """What the coordinator is to be asked now; None while there is nothing."""
        request = self._next_step()
        return request if request is None or self.coordinator is not None else FindCoordinator()

    def _next_step(self) -> CoordinatorRequest | None:
        missing = self.wanted - self.partitions
        if missing:
            return AddPartitions(tuple(sorted(missing)))
        if not self.is_ending or self.unsettled:
            return None
        if self.partitions:
            return EndTransaction(not self.is_failed)
        return RenewEpoch() if self.is_failed else None

    @property
    def is_over(self) -> bool:
        """True when all of it is settled, and the coordinator has nothing to end."""
        waits = (
            self.unsettled
            or self.partitions
            or self.is_failed
            or self.request_in_flight is not None
        )
        return self.is_ending and not waits

    def fail_request(self, code: int, backoff_s: float, now: float) -> None:
        """The coordinator answered with an error: ask again later.

        Raises:
            TransactionError: it will not say anything else.
        """
        request, self.request_in_flight = self.request_in_flight, None
        error = for_code(code)
        if code in _NOT_HERE:
            self.coordinator = None
        elif not error.retriable:
            raise TransactionError(
                f"a coordinator refused to {_describe(request)}, with {error.__name__}; expected a "
                "transaction that is not older than brokers allow, and the right to Write on the "
                "transactional id; see the brokers' logs"
            )
        is_first_add = isinstance(request, AddPartitions) and not self.partitions
        if code == _CONCURRENT_TRANSACTIONS and is_first_add:
            backoff_s = min(backoff_s, FIRST_ADD_BACKOFF_S)
        self.failures += 1
        self.not_before_s = now + backoff_s

    def lose_request(self, backoff_s: float, now: float) -> None:
        """The connection is gone, and with it the answer: ask again, whoever coordinates then."""
        self.request_in_flight = self.coordinator = None
        self.failures += 1
        self.not_before_s = now + backoff_s

    def take_added(self) -> tuple[int, ...]:
        """The partitions that the coordinator has taken in; they are a part from now on."""
        request, self.request_in_flight = self.request_in_flight, None
        assert isinstance(request, AddPartitions), "it was asked for"
        self.failures = 0
        self.partitions.update(request.partitions)
        return request.partitions

    def finish(self) -> None:
        """The coordinator has ended the transaction."""
        self.request_in_flight = None
        self.failures = 0
        self.partitions.clear()
        self.wanted.clear()

    def set_coordinator(self, coordinator: int) -> None:
        """The coordinator is known again."""
        self.request_in_flight = None
        self.coordinator = coordinator

    def renew(self) -> None:
        """The next epoch was given."""
        self.request_in_flight = None
        self.failures = 0
        self.is_failed = False

    def begin(self) -> deque[Batch]:
        """The next transaction may begin; returns what waited for it."""
        waited, self.pending = self.pending, deque()
        self._begin()
        return waited


def _describe(request: CoordinatorRequest | None) -> str:
    if isinstance(request, AddPartitions):
        return "add partitions to a transaction"
    if isinstance(request, EndTransaction):
        return "commit a transaction" if request.is_commit else "abort a transaction"
    return "give an epoch" if isinstance(request, RenewEpoch) else "be found"
