"""The traffic that one trial offers, as plain frozen data that crosses to the executors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.engine.consumers.pattern import ConsumerPattern
from jobs.engine.driver_line import ControlAddress
from jobs.engine.partitions import Partitions
from jobs.engine.payload import Payload

BATCH_HEADER_BYTES = 61
"""Size of a record batch header, format v2 [B]."""


def varint_bytes(value: int) -> int:
    """Bytes that Kafka's zig-zag varint takes for a value ≥ 0."""
    zigzag, size = value << 1, 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


def record_bytes(
    index: int, message_bytes: int, rate_records_per_s: float, payload: Payload | None = None
) -> int:
    """Size of record `index` of a batch [B].

    Attributes, timestamp delta, offset delta, key, value, headers, and in front of them the
    length of it all (https://kafka.apache.org/documentation/#record).

    Args:
        message_bytes: key and value [B].
        payload: what it holds besides a value; nothing by default.
    """
    held = payload or Payload()
    deltas = varint_bytes(int(index * 1000.0 / rate_records_per_s)) + varint_bytes(index)
    value_bytes = message_bytes - held.key_bytes
    keyed = varint_bytes(held.key_bytes) + held.key_bytes if held.key_bytes else 1
    body = 1 + deltas + keyed + varint_bytes(value_bytes) + value_bytes
    body += varint_bytes(held.headers) + sum(
        varint_bytes(size) + size
        for i in range(held.headers)
        for size in (len(f"h{i}"), held.header_bytes)
    )
    return varint_bytes(body) + body


@functools.lru_cache(maxsize=64)
def _records_that_fit(
    batch_size: int, message_bytes: int, rate_records_per_s: float, payload: Payload
) -> int:
    size, records = BATCH_HEADER_BYTES, 0
    while True:
        size += record_bytes(records, message_bytes, rate_records_per_s, payload)
        if size > batch_size:
            return max(1, records)
        records += 1


@dataclass(frozen=True)
class ProducerPattern:
    """What each of np identical producers does; names follow Kafka's producer options.

    Attributes:
        message_bytes: mean size of a record's key and value [B].
        rate_records_per_s: records that one producer offers [1/s], fixed, open loop.
        acks: 0, 1, or -1 for all in-sync replicas.
        linger_ms: how long an unfilled batch waits for more records [ms].
        batch_size: upper bound of a record batch, one record excepted [B].
        max_in_flight: unacknowledged requests per connection.
        buffer_memory: full batches that may wait for a slow broker [B]; beyond that the
            producer blocks, as a real one does, and falls behind its schedule.
        max_request_size: upper bound of a produce request, one batch excepted [B].
        request_timeout_ms: an unanswered request fails after this time [ms].
        retries: how often a batch is sent again, within `delivery_timeout_ms`.
        retry_backoff_ms, retry_backoff_max_ms: wait before the first retry, doubled for each
            further one up to the second (KIP-580) [ms].
        delivery_timeout_ms: a batch fails so long after its first record was due [ms].
        enable_idempotence: every batch carries producer id, epoch and sequence, so that the
            broker drops what it has already.
        send_buffer_bytes, receive_buffer_bytes: of the sockets; -1 leaves them to the
            kernel's tuning [B].
        arrivals: "fixed" for evenly spaced records; "poisson"; or "bursts" of
            `burst_on_s` with pauses of `burst_off_s` [s], at the same mean rate.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        payload: what the records hold.
        payload_seed: seed of the random payload, of the partitioner and of arrivals.
        pool_bytes: encoded records kept per task to send from [B].
    """

    message_bytes: int
    rate_records_per_s: float
    acks: int = 1
    linger_ms: float = 5.0
    batch_size: int = 16_384
    max_in_flight: int = 5
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    request_timeout_ms: int = 30_000
    retries: int = 2_147_483_647
    retry_backoff_ms: float = 100.0
    retry_backoff_max_ms: float = 1_000.0
    delivery_timeout_ms: int = 120_000
    enable_idempotence: bool = False
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    arrivals: str = "fixed"
    burst_on_s: float = 1.0
    burst_off_s: float = 1.0
    compression: str = "none"
    payload: Payload = field(default_factory=Payload)
    payload_seed: int = 1
    pool_bytes: int = 8_388_608

    @property
    def records_per_full_batch(self) -> int:
        """Records of the mean size that fit into `batch_size` uncompressed, at least one."""
        return _records_that_fit(
            self.batch_size, self.message_bytes, self.rate_records_per_s, self.payload
        )

    @property
    def lingered_records(self) -> int:
        """Records due in `linger_ms`, with the one that opens the batch."""
        return int(self.rate_records_per_s * self.linger_ms / 1000.0) + 1

    @property
    def records_per_batch(self) -> int:
        """Records in a batch while the brokers keep up, of the mean size and uncompressed.

        The first record opens a batch, which is sent when it is full or when `linger_ms`
        is over, whichever comes first.
        """
        return min(self.records_per_full_batch, self.lingered_records)

    @property
    def record_interval_s(self) -> float:
        """Time between two records of one producer, where they follow each other [s]."""
        interval_s = 1.0 / self.rate_records_per_s
        if self.arrivals != "bursts":
            return interval_s
        return interval_s * self.burst_on_s / (self.burst_on_s + self.burst_off_s)

    @property
    def batch_interval_s(self) -> float:
        """Time between two batches of one producer while the brokers keep up [s]."""
        return self.records_per_batch / self.rate_records_per_s


@dataclass(frozen=True)
class TrialPlan:
    """What every task of one barrier stage is told.

    Attributes:
        trial_id: names the trial in client ids.
        np: producers in all tasks together.
        tasks: tasks with producers; task i hosts the producers i, i + tasks, i + 2·tasks, …
        topics: what is written to; producer i writes to topic i modulo their number.
        leaders: broker id that leads partition 0, 1, 2, …, numbered through all topics
            (`jobs.engine.partitions`), as partitions are everywhere here.
        brokers: broker id → (host, port).
        client: which producer client sends, as `producer.client` of a workload.
        client_options: connection options of kafka-python (security and the like).
        control: where the driver listens to the tasks; None when it does not.
        consumers: the consumer groups that read along; None when there are none.
        consumer_tasks: tasks that host them, after the producers' tasks.
        end_offsets: partition → end offset before the load, where there are consumers.
        warmup_s, measure_s: seconds before and inside the measured window.
        ramp_up_s: how long the rate grows evenly from 0, within `warmup_s` [s].
        drain_timeout_s: how long to wait for the last acknowledgements [s].
        start_lead_s: from the agreement of the tasks to the first record [s]; barrier
            calls poll once a second, so tasks leave them up to a second apart.
    """

    trial_id: str
    topics: tuple[str, ...]
    pattern: ProducerPattern
    np: int
    tasks: int
    leaders: tuple[int, ...]
    brokers: Mapping[int, tuple[str, int]]
    warmup_s: float
    measure_s: float
    ramp_up_s: float = 0.0
    drain_timeout_s: float = 10.0
    connect_timeout_s: float = 20.0
    start_lead_s: float = 1.5
    client: str = "wire"
    client_options: Mapping[str, object] = field(default_factory=dict)
    control: ControlAddress | None = None
    consumers: ConsumerPattern | None = None
    consumer_tasks: int = 0
    end_offsets: Mapping[int, int] = field(default_factory=dict)

    @functools.cached_property
    def partitions(self) -> Partitions:
        """The topics' partitions and their numbers."""
        return Partitions(self.topics, len(self.leaders) // len(self.topics))

    def producers_of(self, task: int) -> range:
        """The producers that this task hosts."""
        return range(task, self.np, self.tasks)
