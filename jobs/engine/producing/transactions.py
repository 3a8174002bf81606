"""Transactions of one producer, one after the other, and the requests to their coordinator.

As in Kafka's producer, a partition is added to the transaction before the first batch goes there,
and a transaction is committed once all of its batches are acknowledged; after that, brokers write
its marker into the log of each of these partitions. The commit begins as soon as the transaction is
old enough, with the records that are due by then, lingered or not. Records that become due during
the commit wait in the accumulator for the next transaction, so the schedule continues.

A batch that fails for good aborts its transaction: the unsent records of the transaction fail, too,
and the producer asks for its next epoch, in which sequences begin anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kafka.errors import for_code

from jobs.engine.producing.batch import Batch
from jobs.engine.producing.protocol import (
    AddPartitions,
    CoordinatorRequest,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
)
from metrics.common.errors import RedlineError

ABORTED = "TransactionAbortedError"
"""Error name of records that were not sent, as another batch of their transaction had failed."""

FIRST_ADD_BACKOFF_S = 0.02
"""Back-off of Kafka's producer while the transaction before is still being completed [s]."""

LOG_RECORDS_OF_AN_END = 2
"""Records that the coordinator writes for the end of a transaction: prepared, and complete."""

_CONCURRENT_TRANSACTIONS = 51
_NOT_HERE = frozenset({15, 16})  # COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR


class TransactionError(RedlineError):
    """A coordinator refused a request of a producer with transactions."""


@dataclass(slots=True, eq=False)
class Transactions:
    """State of one producer's transactions. Times are of the engine's clock [s].

    Attributes:
        duration_s: age at which a transaction is committed.
        coordinator: broker id of the coordinator; None while it has to be found.
        partitions: partitions that the coordinator has added to the open transaction.
        wanted: partitions that batches wait for, added or not.
        began_s: when its first partition was wanted; None without an open transaction.
        unsettled: number of its batches that are neither acknowledged nor failed.
        acked_records: number of its acknowledged records.
        is_ending: whether it takes no more batches.
        ending_since_s: when it began to end.
        is_failed: whether it is aborted, and the next epoch requested.
        request_in_flight: request that the coordinator has not answered yet; None without one.
        failures: number of failed requests in a row.
        not_before_s: earliest time of the next request.
        scheduled_s: when the delivery looks at it next.
        pending: full batches for the next transaction, in order.
    """

    duration_s: float
    coordinator: int | None = None
    partitions: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)
    began_s: float | None = None
    unsettled: int = 0
    acked_records: int = 0
    is_ending: bool = False
    ending_since_s: float = 0.0
    is_failed: bool = False
    request_in_flight: CoordinatorRequest | None = None
    failures: int = 0
    not_before_s: float = 0.0
    scheduled_s: float = 0.0
    pending: deque[Batch] = field(default_factory=deque)

    @property
    def is_open(self) -> bool:
        """True from the first wanted partition to the answer to the transaction's last request."""
        return self.began_s is not None or self.is_ending or self.request_in_flight is not None

    @property
    def ends_s(self) -> float | None:
        """Time of the open transaction's commit; None without an open transaction."""
        return None if self.began_s is None else self.began_s + self.duration_s

    def admits(self, partition: int) -> bool:
        """True when batches for this partition may be sent now."""
        return partition in self.partitions

    def add_wanted(self, partition: int, now: float) -> None:
        """Add a partition that batches wait for to those wanted in the transaction."""
        self.wanted.add(partition)
        if self.began_s is None:
            self.began_s = now

    def end(self, now: float) -> None:
        """Begin to end the transaction, which takes no more batches."""
        if not self.is_ending:
            self.is_ending, self.ending_since_s = True, now

    def next_request(self) -> CoordinatorRequest | None:
        """The next request to the coordinator; None while there is none to send."""
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
        """True when all batches are settled, and the coordinator has nothing to end."""
        waits = (
            self.unsettled
            or self.partitions
            or self.is_failed
            or self.request_in_flight is not None
        )
        return self.is_ending and not waits

    def fail_request(self, code: int, backoff_s: float, now: float) -> None:
        """Handle an error of the coordinator; the request is sent again later.

        Raises:
            TransactionError: a retry cannot succeed.
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
        """Handle a connection lost before the answer; the coordinator is looked up again."""
        self.request_in_flight = self.coordinator = None
        self.failures += 1
        self.not_before_s = now + backoff_s

    def take_added(self) -> tuple[int, ...]:
        """Take and return the partitions that the coordinator has added to the transaction."""
        request, self.request_in_flight = self.request_in_flight, None
        assert isinstance(request, AddPartitions), "a request to add partitions was in flight"
        self.failures = 0
        self.partitions.update(request.partitions)
        return request.partitions

    def finish(self) -> None:
        """Finish the transaction, which the coordinator has ended."""
        self.request_in_flight = None
        self.failures = 0
        self.partitions.clear()
        self.wanted.clear()

    def set_coordinator(self, coordinator: int) -> None:
        """Set the coordinator, which is known again."""
        self.request_in_flight = None
        self.coordinator = coordinator

    def renew(self) -> None:
        """Take note of the next epoch, after which the transaction has no failure."""
        self.request_in_flight = None
        self.failures = 0
        self.is_failed = False

    def begin(self) -> deque[Batch]:
        """Begin the next transaction; returns the batches that waited for it."""
        waited, self.pending = self.pending, deque()
        self.partitions, self.wanted, self.began_s = set(), set(), None
        self.unsettled = self.acked_records = 0
        self.is_ending = self.is_failed = False
        return waited


def _describe(request: CoordinatorRequest | None) -> str:
    if isinstance(request, AddPartitions):
        return "add partitions to a transaction"
    if isinstance(request, EndTransaction):
        return "commit a transaction" if request.is_commit else "abort a transaction"
    return "give an epoch" if isinstance(request, RenewEpoch) else "be found"
