"""The counts of producers, for each task and for all tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import column
from metrics.trial.adding import FIRST, LARGEST

Errors = dict[str, int]
"""Name of Kafka's error → records."""


def _errors() -> dict[int, Errors]:
    return defaultdict(Counter)


@dataclass
class ProducerAccounts:
    """Records by the number of the producer; producer n writes to topic n modulo the topics.

    Attributes:
        offered: records due by the schedule.
        sent: records handed to a socket, each counted once.
        acked: records acknowledged.
        failed: records that ended in an error, by the name of Kafka's error; like the following,
            only of producers with such records.
        retried: records sent again, counted each time.
        duplicates: highest number of records in the logs beyond the acknowledged and the failed.
    """

    offered: dict[int, int] = field(default_factory=Counter)
    sent: dict[int, int] = field(default_factory=Counter)
    acked: dict[int, int] = field(default_factory=Counter)
    failed: dict[int, Errors] = field(default_factory=_errors)
    retried: dict[int, int] = field(default_factory=Counter)
    duplicates: dict[int, int] = field(default_factory=Counter)


@dataclass
class BrokerAccount:
    """The producers' account for one broker and the partitions that it leads, in the window.

    Attributes:
        requests: produce requests handed to a socket.
        silent_s: longest time of any task without an answer although requests waited for one [s].
        waiting_connections: connections with unacknowledged records at the window's end.
        missing_records: records due and not acknowledged at the window's end.
    """

    requests: int = 0
    silent_s: Annotated[float, LARGEST] = 0.0
    waiting_connections: int = 0
    missing_records: int = 0


@dataclass
class Counts:
    """Counts of producers: of the running engine, of a task at its end, or of all tasks of a trial.

    The whole trial is warm-up, window and drain. Bytes are payload: keys and values.

    Attributes:
        offered_records: records due by the schedule inside the window.
        sent_records: records handed to a socket inside the window, each counted once.
        acked_records: records acknowledged inside the window.
        failed_records: records that ended in an error inside the window.
        offered_bytes: payload of the offered records.
        acked_bytes: payload of the acknowledged records.
        unsent_own_records: records due and unsent at the window's end although their connection
            had room, so that the generator held them up and not the brokers.
        log_bytes: size of the record batches acknowledged over the whole trial, as brokers
            count them; None where a client library does not report it.
        acked_by_partition: partition, numbered through all topics → records acknowledged over
            the whole trial.
        sent_by_partition: partition → records handed to a socket over the whole trial, each
            counted once.
        errors_by_partition: partition → name of Kafka's error → records that ended in it over
            the whole trial.
        retried_by_partition: partition → records sent again over the whole trial, counted each
            time.
        retry_errors: name of Kafka's error → records that were sent again because of it.
        duplicates_by_partition: partition → highest number of records in its log beyond the
            acknowledged and the failed, because an answer was lost and they were sent again.
        by_producer: the account of each producer over the whole trial.
        by_broker: broker id → the account for it; empty where a client library does not report it.
        control_records_by_partition: partition → records that ended our transactions in its log,
            commits and aborts, over the whole trial.
        transactions_committed: transactions whose commit was answered inside the window.
        transactions_aborted: transactions aborted over the whole trial, with those still open at
            the end of the drain.
        aborted_records: acknowledged records of aborted transactions over the whole trial, which
            consumers of committed records do not read.
        commit_s: time of the commits inside the window, summed over producers; a commit waits for
            the answers to all batches of its transaction and then for its own [s].
        transaction_log_records: records of our transactions in the brokers' own log of
            transactions over the whole trial.
        throttle_ms: throttle time that produce responses reported over the whole trial, summed.
        loop_busy: highest busy share of any task's event loop in the window [ratio].
        last_acked_s: time at which the last record was acknowledged, after the window's start [s];
            None without acknowledged records.
        cpu_s: CPU time of all tasks with producers inside the window [CPU-s].
        compression_ratio: size of the batches' records before over after compression, as
            encoded before the trial [ratio]; None when no task took part.
    """

    offered_records: int = 0
    sent_records: int = 0
    acked_records: int = 0
    failed_records: int = 0
    offered_bytes: int = 0
    acked_bytes: int = 0
    unsent_own_records: int = 0
    log_bytes: int | None = None
    acked_by_partition: dict[int, int] = field(default_factory=Counter)
    sent_by_partition: dict[int, int] = field(default_factory=Counter)
    errors_by_partition: dict[int, Errors] = field(default_factory=_errors)
    retried_by_partition: dict[int, int] = field(default_factory=Counter)
    retry_errors: dict[str, int] = field(default_factory=Counter)
    duplicates_by_partition: dict[int, int] = field(default_factory=Counter)
    by_producer: ProducerAccounts = field(default_factory=ProducerAccounts)
    by_broker: dict[int, BrokerAccount] = field(default_factory=dict)
    control_records_by_partition: dict[int, int] = field(default_factory=Counter)
    transactions_committed: int = 0
    transactions_aborted: int = 0
    aborted_records: int = 0
    commit_s: float = 0.0
    transaction_log_records: int = 0
    throttle_ms: int = 0
    loop_busy: Annotated[float, LARGEST] = 0.0
    last_acked_s: Annotated[float | None, LARGEST] = None
    cpu_s: float = 0.0
    compression_ratio: Annotated[float | None, FIRST] = None

    @property
    @column
    def produce_requests(self) -> int | None:
        """Produce requests handed to a socket inside the window; None where a client library does
        not report them.
        """
        sent = [each.requests for each in self.by_broker.values()]
        return sum(sent) if sent else None

    @property
    @column
    def records_per_request(self) -> float | None:
        """Mean size of a produce request in the window; it grows while requests wait [records]."""
        return self.sent_records / self.produce_requests if self.produce_requests else None

    @property
    @column
    def commit_mean_ms(self) -> float | None:
        """Mean time of a commit inside the window [ms]; None without commits."""
        commits = self.transactions_committed
        return 1000.0 * self.commit_s / commits if commits else None

    @property
    def control_records(self) -> int:
        """Records that ended our transactions in all logs, over the whole trial."""
        return sum(self.control_records_by_partition.values())

    @property
    @column
    def acked_total(self) -> int:
        """Records acknowledged over the whole trial."""
        return sum(self.acked_by_partition.values())

    @property
    @column
    def failed_by_partition(self) -> dict[int, int]:
        """Partition → records that ended in an error over the whole trial."""
        return {p: sum(errors.values()) for p, errors in self.errors_by_partition.items()}

    @property
    @column
    def failed_total(self) -> int:
        """Records that ended in an error over the whole trial."""
        return sum(self.failed_by_partition.values())

    @property
    @column
    def errors(self) -> dict[str, int]:
        """Name of Kafka's error → records that ended in it over the whole trial."""
        return dict(sum(map(Counter, self.errors_by_partition.values()), Counter()))

    @property
    @column
    def retried_records(self) -> int:
        """Records sent again over the whole trial, counted each time."""
        return sum(self.retried_by_partition.values())

    @property
    @column
    def duplicates_at_most(self) -> int:
        """Highest number of records in the logs beyond the acknowledged and the failed."""
        return sum(self.duplicates_by_partition.values())
