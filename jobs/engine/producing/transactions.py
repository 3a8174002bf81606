"""The transactions of one producer, one after the other, and the requests to the coordinator.

As in Kafka's producer, a partition is added to the transaction before the first batch is sent to
it. A transaction is committed when all its batches are acknowledged. When a transaction is
committed, brokers write a marker into the log of each partition of the transaction. The commit
begins when the transaction has reached its duration. The transaction includes all records that are
due when the commit begins, whether or not `linger_ms` is over. The schedule continues during the
commit: records that become due then wait in the accumulator for the next transaction.

A batch that fails for good aborts its transaction. The unsent records of the transaction fail, too.
The producer then requests its next epoch, in which the sequences start again at 0.
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
    InitProducerId,
)
from metrics.common.errors import RedlineError

ABORTED = "TransactionAbortedError"
"""Error name of unsent records whose transaction was aborted because another batch failed."""

FIRST_ADD_BACKOFF_S = 0.02
"""Back-off of Kafka's producer while the previous transaction is still being completed [s]."""

LOG_RECORDS_OF_AN_END = 2
"""Number of records that the coordinator writes to its log at the end of a transaction: two states,
"prepared" and "complete"."""

_CONCURRENT_TRANSACTIONS = 51
_NOT_HERE = frozenset({15, 16})  # COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR


class TransactionError(RedlineError):
    """A coordinator refused a request of a producer with transactions."""


@dataclass(slots=True, eq=False)
class Transactions:
    """State of one producer's transactions. Times are on the engine's clock [s].

    Attributes:
        duration_s: age at which a transaction is committed [s].
        coordinator: broker id of the coordinator; None while it is unknown.
        partitions: partitions that the coordinator has added to the open transaction, so that
            batches for these partitions may be sent.
        wanted: partitions for which batches wait, including partitions that the coordinator has not
            added yet.
        began_s: time at which the first batch of the open transaction began to wait; None without
            an open transaction.
        unsettled: number of the transaction's batches without an outcome.
        acked_records: number of the transaction's acknowledged records.
        is_ending: whether the transaction accepts no more batches.
        ending_since_s: time at which the end of the transaction began.
        is_failed: whether the producer aborts the transaction, because a batch failed. After the
            abort, the producer requests the next epoch.
        request_in_flight: the unanswered request to the coordinator; None if there is none.
        failures: number of consecutive failed requests.
        not_before_s: earliest time of the next request.
        scheduled_s: time at which `Delivery` next handles the transactions.
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
        """Whether a transaction is open. A transaction opens when its first batch waits. A
        transaction ends with the coordinator's response to the transaction's last request.
        """
        return self.began_s is not None or self.is_ending or self.request_in_flight is not None

    @property
    def ends_s(self) -> float | None:
        """Time at which the open transaction is committed; None without an open transaction."""
        return None if self.began_s is None else self.began_s + self.duration_s

    def end(self, now: float) -> None:
        """Accept no more batches; the transaction ends when all of its batches have outcomes."""
        if not self.is_ending:
            self.is_ending, self.ending_since_s = True, now

    def next_request(self) -> CoordinatorRequest | None:
        """The next request to the coordinator; None if no request is needed now."""
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
        return InitProducerId() if self.is_failed else None

    @property
    def is_over(self) -> bool:
        """Whether all batches have their outcome, and the coordinator has nothing to end."""
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
                "transaction below the brokers' maximum age, and the right to Write on the "
                "transactional id; see the brokers' logs"
            )
        is_first_add = isinstance(request, AddPartitions) and not self.partitions
        if code == _CONCURRENT_TRANSACTIONS and is_first_add:
            backoff_s = min(backoff_s, FIRST_ADD_BACKOFF_S)
        self.failures += 1
        self.not_before_s = now + backoff_s

    def lose_request(self, backoff_s: float, now: float) -> None:
        """Handle a request that was lost with its connection; look the coordinator up again."""
        self.request_in_flight = self.coordinator = None
        self.failures += 1
        self.not_before_s = now + backoff_s

    def complete_request(self) -> None:
        """Handle the success of the request in flight."""
        if not isinstance(self.request_in_flight, FindCoordinator):
            self.failures = 0
        self.request_in_flight = None

    def begin(self) -> deque[Batch]:
        """Begin the next transaction; return the batches that waited for it."""
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
    return "give an epoch" if isinstance(request, InitProducerId) else "be found"
