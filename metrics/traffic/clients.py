"""Options of producers and of consumer groups, and values that are derived from these options.

Partitions can be skewed by Zipf's law: the partition with rank k gets a share that is proportional
to 1 / k^exponent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from metrics.columns import NO_COLUMN, Column, Flat, column
from metrics.common.bounds import OURS, Checked, Kafka, Number, Whole
from metrics.common.extensions import CLIENTS, ExtensibleName
from metrics.traffic.payload import Payload, records_that_fit

NAMES = ("wire", "kafka-python", "librdkafka")
"""Names of the engine's own client and of client libraries."""
ClientName = Annotated[str, ExtensibleName(NAMES, CLIENTS)]
"""The name of a client that sends or reads records."""


EXPONENT_MAX = 5.0
_ROUNDS = 50


def zipf_weights(count: int, exponent: float) -> list[float]:
    """The relative weights of `count` partitions, heaviest first."""
    return [rank**-exponent for rank in range(1, count + 1)]


def largest_over_mean(count: int, exponent: float) -> float:
    """The share of the heaviest partition, divided by the mean share [ratio]."""
    return count / sum(zipf_weights(count, exponent))


def exponent_of(count: int, largest: float) -> float:
    """The exponent at which the heaviest partition has `largest` times the mean share.

    The exponent is 0 if all shares are equal. The exponent is at most `EXPONENT_MAX`.
    """
    low, high = 0.0, EXPONENT_MAX
    if count < 2 or largest <= 1.0:
        return low
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_over_mean(count, middle) < largest else (low, middle)
    return high


IDEMPOTENT_IN_FLIGHT_MAX = 5
"""Brokers remember the latest batches of each producer in each partition. This is the number of
these batches.
"""

LZ4_FAST_LEVEL = 9
"""Kafka's default level of lz4, at which Kafka's producer uses the fast compressor."""

TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default of `transaction.timeout.ms`."""

TRANSACTION_TIMEOUT_MS_MAX = 900_000
"""Kafka's default of `transaction.max.timeout.ms`, the longest timeout that brokers accept."""

LINGER_MS_MAX = 60_000
BATCH_SIZE_MAX = 16_777_216

_INT_MAX = 2_147_483_647
_SPELLINGS = {0: "0", 1: "1", -1: "all", "0": "0", "1": "1", "-1": "all", "all": "all"}


class AcksText(Checked):
    """The values 0, 1 and all; YAML's numbers 0 and 1, and Kafka's -1 for all, are also
    accepted.
    """

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return "0, 1 or all"

    def accepts(self, value: Any) -> bool:
        """True for each accepted spelling of the values 0, 1 and all."""
        is_plain = isinstance(value, (int, str)) and not isinstance(value, bool)
        return is_plain and value in _SPELLINGS

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema with all accepted spellings of the value."""
        return {**super().for_editors(), "type": ["string", "integer"], "enum": list(_SPELLINGS)}

    def _check(self, value: Any) -> Any:
        return _SPELLINGS[super()._check(value)]


@dataclass(frozen=True)
class ProducerOptions:
    """Options of a producer, with Kafka's names and underscores in place of dots.

    Attributes:
        client: the client that sends. `wire` is the engine's own client, which encodes batches
            before the trial. Client libraries such as `librdkafka` need 5 to 100 times the CPU time
            of `wire` (docs/evidence/benchmarks.md).
        rate: `unlimited` for a closed loop, in which each producer sends as fast as brokers
            acknowledge (docs/traffic.md#closed-loop). Exactly one of `rate`, `rate_bytes_per_s` and
            `rate_records_per_s` is set.
        rate_bytes_per_s: payload rate that a producer offers [B/s].
        rate_records_per_s: rate of records that a producer offers [1/s].
        acks: number of acknowledgements that a producer waits for: 0, 1 or all; -1 means all.
        linger_ms: time that a batch waits for more records if it is not full.
        batch_size: maximum size of a batch with several records; only a batch with a single record
            can be larger [B].
        max_in_flight: highest number of unacknowledged requests per connection.
        buffer_memory: total size of full batches that can wait for a slow broker [B]. If the
            waiting batches reach this size, the producer blocks, like Kafka's producer, and falls
            behind its schedule.
        max_request_size: maximum size of a produce request with several batches; only a request
            with a single batch can be larger [B].
        request_timeout_ms: time after which an unanswered request counts as lost and its connection
            is closed.
        retries: highest number of retries of a batch after retriable errors. Retries also end after
            `delivery_timeout_ms`.
        retry_backoff_ms: wait before the first retry. The wait doubles with each further retry and
            has 20 % jitter (KIP-580).
        retry_backoff_max_ms: longest wait before a retry.
        delivery_timeout_ms: time from the due time of a batch's first record until the batch fails.
            At the latest, a batch fails at the end of the trial's drain.
        enable_idempotence: true if brokers drop repeated batches, which they detect by producer id,
            epoch and sequence number. `enable_idempotence` requires `acks` all and `max_in_flight`
            up to 5. Kafka's producer enables idempotence by default if `acks` is all.
        transaction_duration_ms: age at which a transaction is committed, as in Kafka's
            ProducerPerformance. Without `transaction_duration_ms`, producers use no transactions.
            `transaction_duration_ms` requires the client wire, `enable_idempotence`, and the rights
            to Describe and Write on the transactional ids of the run
            (docs/traffic.md#transactions).
        send_buffer_bytes: size of each socket's send buffer; with -1, the kernel chooses the size.
            The default of `send.buffer.bytes` in Kafka's producer is 131072.
        receive_buffer_bytes: size of each socket's receive buffer; with -1, the kernel chooses the
            size. The default of `receive.buffer.bytes` in Kafka's producer is 32768.
        compression: codec of the batches.
        compression_gzip_level: level of gzip; -1 is zlib's default level, 6.
        compression_lz4_level: level of lz4. Level 9 means the fast compressor, as in Kafka's
            producer. Every level except 9 means the high compressor, whose lowest level is 3 and
            whose highest level is 12.
        compression_zstd_level: level of zstd. Levels below 0 are faster than level 1, and compress
            less.
        arrivals: due times of records at a given mean rate: "fixed", with equal gaps; "poisson",
            with independent random gaps; or "bursts".
        burst_on_s: length of a burst.
        burst_off_s: pause after a burst.
        partitioner_ignore_keys: true if messages with keys also go to the sticky partition.
            `partitioner_ignore_keys` must be true if messages have keys.
        sticky_partition: choice of the next sticky partition: "random", as in Kafka's default
            partitioner; "round_robin", so that all partitions get equal numbers of batches; or
            "keys". With "keys", each record goes to a random partition, and a request contains one
            batch for each partition that the broker leads. "keys" requires the client `wire`, and
            cannot be used with transactions.
        partition_skew: exponent of Zipf's law for random partitions [ratio]. The probability of
            partition n of a topic is proportional to 1/(n + 1)^exponent. With the exponent 0, all
            probabilities are equal. With 30 partitions and exponent 1, the busiest partition gets
            7.5 times the mean number of records.
    """

    client: Annotated[ClientName, OURS] = "wire"
    rate: Annotated[Literal["unlimited"] | None, OURS, NO_COLUMN] = None
    rate_bytes_per_s: Annotated[
        Annotated[float, Number(0, 10_000_000_000, "bytes per second", above=True)] | None,
        OURS,
        NO_COLUMN,
    ] = None
    rate_records_per_s: Annotated[
        Annotated[float, Number(0, 100_000_000, "records per second", above=True)] | None,
        OURS,
        NO_COLUMN,
    ] = None
    acks: Annotated[Literal["0", "1", "all"], AcksText()] = "1"
    linger_ms: Annotated[float, Number(0, LINGER_MS_MAX, "milliseconds")] = 5.0
    batch_size: Annotated[int, Whole(0, BATCH_SIZE_MAX, "bytes"), Column("batch_size_bytes")] = (
        16_384
    )
    max_in_flight: Annotated[
        int, Whole(1, 1_000, "requests"), Kafka("max.in.flight.requests.per.connection")
    ] = 5
    buffer_memory: Annotated[
        int, Whole(1_024, 10_000_000_000, "bytes"), Column("buffer_memory_bytes")
    ] = 33_554_432
    max_request_size: Annotated[
        int, Whole(1_024, 100_000_000, "bytes"), Column("max_request_bytes")
    ] = 1_048_576
    request_timeout_ms: Annotated[int, Whole(100, 600_000, "milliseconds")] = 30_000
    retries: Annotated[int, Whole(0, _INT_MAX, "retries")] = _INT_MAX
    retry_backoff_ms: Annotated[float, Number(1, 60_000, "milliseconds")] = 100.0
    retry_backoff_max_ms: Annotated[float, Number(1, 60_000, "milliseconds")] = 1_000.0
    delivery_timeout_ms: Annotated[int, Whole(100, 3_600_000, "milliseconds")] = 120_000
    enable_idempotence: bool = False
    transaction_duration_ms: Annotated[
        Annotated[float, Number(1, 600_000, "milliseconds")] | None, OURS
    ] = None
    send_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    receive_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], Kafka("compression.type")
    ] = "none"
    compression_gzip_level: Annotated[int, Whole(1, 9, also=-1)] = -1
    compression_lz4_level: Annotated[int, Whole(1, 17)] = LZ4_FAST_LEVEL
    compression_zstd_level: Annotated[int, Whole(-131_072, 22)] = 3
    arrivals: Annotated[Literal["fixed", "poisson", "bursts"], OURS] = "fixed"
    burst_on_s: Annotated[float, Number(0.001, 3_600, "seconds"), OURS] = 1.0
    burst_off_s: Annotated[float, Number(0.001, 3_600, "seconds"), OURS] = 1.0
    partitioner_ignore_keys: bool = False
    sticky_partition: Annotated[Literal["random", "round_robin", "keys"], OURS] = "random"
    partition_skew: Annotated[float, Number(0, EXPONENT_MAX), OURS] = 0.0

    @property
    def acks_code(self) -> int:
        """The value of `acks` in Kafka's protocol: 0, 1, or -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None if the codec has no levels."""
        level: int | None = getattr(self, f"compression_{self.compression}_level", None)
        return level

    @property
    def has_transactions(self) -> bool:
        """True if producers send in transactions."""
        return self.transaction_duration_ms is not None

    @property
    def transaction_timeout_ms(self) -> int:
        """Time after which brokers abort a transaction [ms].

        The time includes `delivery_timeout_ms`, because batches can wait this long in an overload.
        """
        least_ms = int(self.transaction_duration_ms or 0) + self.delivery_timeout_ms
        return max(TRANSACTION_TIMEOUT_MS, least_ms)

    def records_per_s(self, message_bytes: int) -> float:
        """Rate of records that a producer offers at a message size [1/s]; infinite in a closed
        loop.
        """
        if self.rate is not None:
            return math.inf
        if self.rate_records_per_s is not None:
            return self.rate_records_per_s
        assert self.rate_bytes_per_s is not None, "require_consistent accepts exactly one rate"
        return self.rate_bytes_per_s / message_bytes

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: the message has the given and the expected values, and the remedy.
        """
        self._require_one_rate()
        self._require_possible_idempotence()
        self._require_possible_transactions()
        self._require_possible_keys()
        if self.partition_skew and self.sticky_partition == "round_robin":
            raise ValueError(
                f"partition_skew is {self.partition_skew:g} and sticky_partition "
                f"{self.sticky_partition}; expected sticky_partition random, because round_robin "
                "gives all partitions equal shares; set sticky_partition to random, or remove "
                "partition_skew"
            )
        least_ms = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least_ms:
            raise ValueError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}; expected at least the "
                f"sum of linger_ms and request_timeout_ms, {least_ms:g}, as in Kafka's producer; "
                "raise delivery_timeout_ms, or lower linger_ms or request_timeout_ms"
            )

    def _require_one_rate(self) -> None:
        rates = {
            "rate_bytes_per_s": self.rate_bytes_per_s,
            "rate_records_per_s": self.rate_records_per_s,
            "rate": self.rate,
        }
        given = [name for name, rate in rates.items() if rate]
        if len(given) != 1:
            have = f"{' and '.join(given)} are given" if given else "no rate is given"
            raise ValueError(
                f"{have}; expected exactly one of rate_bytes_per_s, rate_records_per_s and rate; "
                "set one, and remove the others or set them to null"
            )

    def _require_possible_keys(self) -> None:
        if self.sticky_partition != "keys":
            return
        self._require_wire("sticky_partition", "keys", "chooses a partition for each record")
        if self.has_transactions:
            raise ValueError(
                f"sticky_partition is keys and transaction_duration_ms "
                f"{self.transaction_duration_ms:g}; expected sticky_partition random or "
                "round_robin, because a transaction adds its partitions batch by batch; change "
                "sticky_partition, or remove transaction_duration_ms"
            )

    def _require_wire(self, option: str, value: str, ability: str) -> None:
        if self.client != "wire":
            raise ValueError(
                f"{option} is {value} and client {self.client}; expected client wire, because only "
                f"this client {ability}; set client to wire, or remove {option}"
            )

    def _require_possible_idempotence(self) -> None:
        wrong = []
        if self.acks != "all":
            wrong.append(f"acks {self.acks}")
        if self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            wrong.append(f"max_in_flight {self.max_in_flight}")
        if self.retries == 0:
            wrong.append("retries 0")
        if self.enable_idempotence and wrong:
            raise ValueError(
                f"enable_idempotence is true with {' and '.join(wrong)}; expected acks all, "
                f"max_in_flight up to {IDEMPOTENT_IN_FLIGHT_MAX} and retries above 0, so that "
                "brokers can detect a repeated batch; change these options, or remove "
                "enable_idempotence"
            )

    def _require_possible_transactions(self) -> None:
        duration_ms = self.transaction_duration_ms
        if duration_ms is None:
            return
        self._require_wire("transaction_duration_ms", f"{duration_ms:g}", "commits transactions")
        if not self.enable_idempotence:
            raise ValueError(
                f"transaction_duration_ms is {duration_ms:g} and enable_idempotence false, with "
                f"acks {self.acks}; expected enable_idempotence true and acks all, which Kafka's "
                "transactions require; set both, or remove transaction_duration_ms"
            )
        if self.transaction_timeout_ms > TRANSACTION_TIMEOUT_MS_MAX:
            raise ValueError(
                f"transaction_duration_ms is {duration_ms:g} and delivery_timeout_ms "
                f"{self.delivery_timeout_ms}; expected a sum of at most "
                f"{TRANSACTION_TIMEOUT_MS_MAX}, because brokers abort longer transactions "
                "(transaction.max.timeout.ms); lower one of the two values"
            )


@dataclass(frozen=True)
class ProducerPattern:
    """The traffic of each of the identical producers.

    Attributes:
        message_bytes: mean bytes per message, key and value [B].
        rate_records_per_s: fixed rate of each producer; null for a closed loop in tables, and
            infinite for a closed loop in Python.
        options: options of each producer.
        payload: content of the records.
        part: in a mix, the name of the producers' part; empty if the traffic is not a mix.
    """

    message_bytes: Annotated[int, Column("bpm")]
    rate_records_per_s: float = math.inf
    options: Annotated[ProducerOptions, Flat()] = field(default_factory=ProducerOptions)
    payload: Annotated[Payload, Flat("payload_")] = field(default_factory=Payload)
    part: Annotated[str, NO_COLUMN] = ""

    @property
    def seed(self) -> str:
        """Seed of the producers' random choices. The parts of a mix have different seeds."""
        return f"{self.payload.seed}/{self.part}" if self.part else str(self.payload.seed)

    @column
    def closed_loop(self) -> bool:
        """True for a closed loop, in which producers have no rate and send as fast as brokers
        acknowledge. In a closed loop, latencies exclude the wait before the send.
        """
        return self.rate_records_per_s == math.inf

    @property
    def records_per_full_batch(self) -> int:
        """Number of records of mean size in a full uncompressed batch, at least one."""
        return records_that_fit(
            self.options.batch_size, self.message_bytes, self.rate_records_per_s, self.payload
        )

    @property
    def lingered_records(self) -> int:
        """Number of records that are due within `linger_ms`, including the first record of the
        batch.
        """
        if self.closed_loop:
            return _INT_MAX  # more than fit into a batch
        return int(self.rate_records_per_s * self.options.linger_ms / 1000.0) + 1

    @property
    def records_per_batch(self) -> int:
        """Number of records of mean size in an uncompressed batch, if the brokers keep up with the
        load.

        A batch is sent when it is full, or `linger_ms` after its first record.
        """
        return min(self.records_per_full_batch, self.lingered_records)

    @property
    def record_interval_s(self) -> float:
        """Time between two records of one producer [s]; with bursts, the time inside a burst."""
        interval_s, options = 1.0 / self.rate_records_per_s, self.options
        if options.arrivals != "bursts":
            return interval_s
        return interval_s * options.burst_on_s / (options.burst_on_s + options.burst_off_s)

    @property
    def batch_interval_s(self) -> float:
        """Time between two batches of one producer, if the brokers keep up with the load [s]."""
        return self.records_per_batch / self.rate_records_per_s


GROUPS_MAX = 100


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of consumer groups, with Kafka's names. Each group reads all topics.

    Attributes:
        groups: number of groups that read the topics during the load; each group reads all records.
        members: number of members of each group. The members are spread over the tasks. If a topic
            has fewer partitions than a group has members, each member reads partitions of only some
            topics. In this case, the assignor is round robin instead of range.
        client: "wire" reads batch headers; "kafka-python" and "librdkafka" decode records.
        start: the position where groups begin: "latest", "earliest" or "backlog". With "latest",
            groups begin at the end offsets before the load. With "backlog", groups begin
            `backlog_records` records before these end offsets.
        backlog_records: number of records of a backlog, summed over all partitions. Missing records
            are written before the trial, at the rate of the trial's producers.
        fetch_min_bytes: amount of data that a broker collects before it sends a response.
        fetch_max_wait_ms: longest time for which a broker waits for `fetch_min_bytes`.
        fetch_max_bytes: maximum size of a response with several batches; only a response with a
            single batch can be larger.
        max_partition_fetch_bytes: maximum size of one partition's data in a response.
        send_buffer_bytes: size of each socket's send buffer; with -1, the kernel chooses the size.
            The default of `send.buffer.bytes` in Kafka's consumer is 131072.
        receive_buffer_bytes: size of each socket's receive buffer; with -1, the kernel chooses the
            size. The default of `receive.buffer.bytes` in Kafka's consumer is 65536.
        check_crcs: true to verify the CRC of each batch. To verify the CRCs, the consumer reads
            every byte.
        auto_commit_interval_ms: time between two commits of a member's offsets.
    """

    groups: Annotated[int, Whole(0, GROUPS_MAX, "groups"), OURS] = 0
    members: Annotated[int, Whole(1, 1_000_000, "members"), OURS] = 1
    client: Annotated[ClientName, OURS] = "wire"
    start: Annotated[Literal["latest", "earliest", "backlog"], OURS] = "latest"
    backlog_records: Annotated[int, Whole(0, 1_000_000_000_000, "messages"), OURS] = 0
    fetch_min_bytes: Annotated[int, Whole(0, 1_000_000_000, "bytes")] = 1
    fetch_max_wait_ms: Annotated[int, Whole(0, 60_000, "milliseconds")] = 500
    fetch_max_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 52_428_800
    max_partition_fetch_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 1_048_576
    send_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    receive_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    check_crcs: bool = False
    auto_commit_interval_ms: Annotated[int, Whole(100, 3_600_000, "milliseconds")] = 5_000

    @property
    def members_total(self) -> int:
        """Total number of members in all groups."""
        return self.groups * self.members

    def members_of(self, task: int, tasks: int) -> list[tuple[int, int]]:
        """The members that one consumer task hosts, as (group, member).

        Args:
            task: index of the consumer task, from 0.
            tasks: number of consumer tasks, over which the members of each group are spread.
        """
        hosted = range(task, self.members_total, tasks)
        return [(index // self.members, index % self.members) for index in hosted]

    def commits_per_s(self, partitions: int) -> float:
        """Highest rate of offset commits of all groups [1/s]. Brokers count commits as messages."""
        return self.groups * partitions * 1000.0 / self.auto_commit_interval_ms

    def tasks(self, slots: int) -> int:
        """The number of slots for tasks with members of consumer groups. Producers get all slots
        that remain.

        Each group reads as many bytes as all producers send. So the slots are divided in proportion
        to bytes. Producers get at least one slot, and consumers get at least one slot. The result
        is 0 if there are no groups or fewer than two slots.
        """
        if self.groups == 0 or slots < 2:
            return 0
        fair = round(slots * self.groups / (self.groups + 1))
        return max(1, min(fair, slots - 1, self.members_total))

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: the message has the given and the expected values, and the remedy.
        """
        if (self.start == "backlog") != (self.backlog_records > 0):
            raise ValueError(
                f"start is {self.start} and backlog_records {self.backlog_records}; expected "
                "backlog_records above 0 if start is backlog, and otherwise 0; change start or "
                "backlog_records"
            )
