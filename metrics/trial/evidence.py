"""What a trial leaves behind: broker samples, exact windows, the client's account, reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from metrics.trial.by_producer import ByProducer
from metrics.trial.consumption import GroupWindow
from metrics.trial.tallies import Errors


@dataclass(frozen=True)
class ClientWindow:
    """The generator's account of the measured window, all tasks merged.

    Records and bytes are whole counts over the window [start_s, end_s); bytes are
    payload (keys and values). Latencies count from the intended send time [ms].

    Attributes:
        start_s, end_s: the measured window [s since the epoch].
        np: producers.
        offered_records: records that the schedule asked for inside the window.
        sent_records: records handed to a socket inside the window.
        acked_records: records acknowledged inside the window.
        failed_records: records that ended in an error inside the window.
        offered_bytes, acked_bytes: payload of offered and acknowledged records [B].
        unsent_own_records: records due and unsent at the window's end although their
            connection had room, so held up by the generator and not by the brokers.
        lateness_p99_ms: how late sends left that no broker had blocked.
        loop_busy: highest share of any task's window spent outside of waiting [ratio].
        latency_p50_ms, latency_p95_ms, latency_p99_ms, latency_p999_ms, latency_max_ms: from
            the intended send time to the acknowledgement [ms].
        acked_total: records acknowledged over the whole trial, warm-up and drain included.
        failed_total: records failed over the whole trial.
        acked_by_partition: partition, numbered through all topics → records acknowledged over
            the whole trial.
        errors: Kafka error name → records.
        failed_by_partition: partition → records that ended in an error.
        retried_records: records sent again, each time, over the whole trial.
        retry_errors: Kafka error name → records that were sent again because of it.
        duplicates_at_most: records that the logs may hold beyond the acknowledged and the
            failed, because an answer was lost and they were sent again.
        duplicates_by_partition: the same by partition.
        errors_by_partition: partition → Kafka error name → records.
        sent_by_partition: partition → records handed to a socket, each once.
        retried_by_partition: partition → records sent again, each time.
        by_producer: the account of each producer.
        producer_share_min, producer_share_p50, producer_share_max: of the single producers,
            acknowledged inside the window over due inside it [ratio].
        producer_worst: index of the producer that is farthest from 1.
        task_errors: why tasks could not take part or did not finish, a sentence each.
        throttle_ms: throttle time that produce responses reported, summed [ms].
        cpu_s: CPU time of all tasks with producers inside the window [CPU-s].
        groups: what each consumer group read, and how far it was behind.
        consumer_loop_busy: as `loop_busy`, of the tasks with consumers [ratio].
        compression_ratio: size of the batches' records before over after compression, as
            they were encoded before the trial [ratio]; None when no task took part.

    Quantiles are NaN where nothing was recorded.
    """

    start_s: float
    end_s: float
    np: int
    offered_records: int
    sent_records: int
    acked_records: int
    failed_records: int
    offered_bytes: int
    acked_bytes: int
    unsent_own_records: int
    lateness_p99_ms: float
    loop_busy: float
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_max_ms: float
    acked_total: int
    failed_total: int
    acked_by_partition: Mapping[int, int]
    errors: Mapping[str, int]
    task_errors: tuple[str, ...] = ()
    throttle_ms: int = 0
    cpu_s: float = 0.0
    latency_p999_ms: float = math.nan
    groups: tuple[GroupWindow, ...] = ()
    consumer_loop_busy: float = 0.0
    failed_by_partition: Mapping[int, int] = field(default_factory=dict)
    retried_records: int = 0
    retry_errors: Mapping[str, int] = field(default_factory=dict)
    duplicates_at_most: int = 0
    duplicates_by_partition: Mapping[int, int] = field(default_factory=dict)
    producer_share_min: float | None = None
    producer_share_p50: float | None = None
    producer_share_max: float | None = None
    producer_worst: int | None = None
    compression_ratio: float | None = None
    errors_by_partition: Mapping[int, Errors] = field(default_factory=dict)
    sent_by_partition: Mapping[int, int] = field(default_factory=dict)
    retried_by_partition: Mapping[int, int] = field(default_factory=dict)
    by_producer: ByProducer = field(default_factory=ByProducer)

    @property
    def duration_s(self) -> float:
        """Length of the measured window [s]."""
        return self.end_s - self.start_s
