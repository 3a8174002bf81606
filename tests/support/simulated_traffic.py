"""Logs of partitions that simulated producers wrote, and a cluster in memory that serves them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from jobs.cluster.admin import (
    AdminError,
    Broker,
    ClusterInfo,
    DescribedTopic,
    KafkaAdmin,
    Partition,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
END_S = 1_790_000_000.0
"""Time at which simulated logs end [s since the epoch]."""

BROKERS = 3
"""Number of brokers; partition n has its leader at broker n modulo this."""

Message = tuple[bytes | None, bytes, Sequence[tuple[str, bytes]]]


@dataclass(frozen=True)
class Batch:
    """One encoded batch.

    Attributes:
        base, records: its first offset, and its number of records.
        first_ms, max_ms: times of its first and last record.
    """

    base: int
    records: int
    first_ms: int
    max_ms: int
    data: bytes


def encoded(
    base: int,
    times_ms: Sequence[int],
    messages: Sequence[Message],
    codec: str = "none",
    producer_id: int = -1,
    is_transactional: bool = False,
) -> Batch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        batch_size=2**31 - 1,
    )
    for index, (at_ms, (key, value, headers)) in enumerate(zip(times_ms, messages, strict=True)):
        builder.append(index, at_ms, key, value, list(headers))
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")  # as a broker assigns it; the CRC does not cover it
    return Batch(base, len(messages), times_ms[0], max(times_ms), bytes(data))


def marker(base: int, at_ms: int, producer_id: int) -> Batch:
    made = encoded(base, [at_ms], [(b"\0\0\0\1", b"\0\0\0\0\0\0", ())], producer_id=producer_id)
    data = bytearray(made.data)
    data[22] |= 0x30
    return Batch(base, 1, at_ms, at_ms, bytes(data))


@dataclass
class PartitionOfLog:
    batches: list[Batch] = field(default_factory=list)
    first_offset: int = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        if not self.batches:
            return self.first_offset
        return self.batches[-1].base + self.batches[-1].records

    def add(self, make: Callable[[int], Batch]) -> None:
        """Append the batch that is made for a base offset."""
        self.batches.append(make(self.end_offset))

    def offset_at(self, time_ms: int) -> tuple[int, int]:
        """The first offset at or after a time, with its time; -1 for none."""
        tops, top = [], 0
        for each in self.batches:
            top = max(top, each.max_ms)
            tops.append(top)
        index = bisect_left(tops, time_ms)
        if index == len(self.batches):
            return -1, -1
        batch = self.batches[index]
        return batch.base, max(time_ms, batch.first_ms)

    def read(self, offset: int, size: int, has_one: bool) -> bytes:
        """The batches from an offset on, as a broker answers."""
        found = b""
        for each in self.batches:
            if each.base + each.records <= offset:
                continue
            if len(found) + len(each.data) > size and (found or not has_one):
                return found + each.data[: max(0, size - len(found))] if found else b""
            found += each.data
        return found


@dataclass(frozen=True)
class Kind:
    """A kind of traffic.

    Attributes:
        producers: number of producers, each at `rate_per_s`.
        linger_s: time for which a batch waits.
        is_keyed: whether each record goes to a partition of its own choice.
        weights: weight of each partition in the choice; empty for equal ones.
    """

    producers: int
    rate_per_s: float
    linger_s: float = 0.05
    value_bytes: int = 1_000
    batch_records: int = 1_000_000
    codec: str = "none"
    is_keyed: bool = False
    has_ids: bool = False
    is_random: bool = False
    keys: int = 0
    headers: int = 0
    is_transactional: bool = False
    secret: bytes = b""
    weights: tuple[float, ...] = ()

    def choose(self, partitions: int, rng: random.Random) -> int:
        if not self.weights:
            return rng.randrange(partitions)
        return rng.choices(range(partitions), self.weights)[0]


def written(
    kind: Kind, partitions: int, seconds: float, seed: int = 1
) -> dict[int, PartitionOfLog]:
    """The logs that producers of a kind write until `END_S`."""
    rng = random.Random(seed)
    logs = {number: PartitionOfLog() for number in range(partitions)}
    for _, partition, times, producer in sorted(sent_batches(kind, partitions, seconds, rng)):
        messages = [_message(kind, rng) for _ in times]
        number = 1_000 + producer if kind.has_ids else -1
        logs[partition].add(
            lambda base, t=times, m=messages, n=number: encoded(  # type: ignore[misc]
                base, t, m, kind.codec, n, kind.is_transactional
            )
        )
    return logs


def sent_batches(
    kind: Kind, partitions: int, seconds: float, rng: random.Random
) -> list[tuple[int, int, list[int], int]]:
    """The batches that producers of a kind send until `END_S`.

    Returns:
        For each batch, the time at which it is sent, which is that of its request [ms since the
        epoch], its partition, the times of its records, and the number of its producer.
    """
    sent: list[tuple[int, int, list[int], int]] = []
    for producer in range(kind.producers):
        open_batches: dict[int, list[int]] = {}
        sticky = kind.choose(partitions, rng)
        at_s = END_S - seconds + rng.random() / kind.rate_per_s
        while at_s < END_S:
            oldest: dict[int, float] = {}
            for partition, times in open_batches.items():
                broker = partition % BROKERS
                oldest[broker] = min(oldest.get(broker, times[0]), times[0])
            for partition, times in list(open_batches.items()):
                ready_ms = oldest[partition % BROKERS] + kind.linger_s * 1e3
                if at_s * 1e3 >= ready_ms:  # and with it all batches for its broker
                    sent.append((int(ready_ms), partition, times, producer))
                    del open_batches[partition]
                    sticky = kind.choose(partitions, rng)
            partition = kind.choose(partitions, rng) if kind.is_keyed else sticky
            times = open_batches.setdefault(partition, [])
            times.append(int(at_s * 1e3))
            if len(times) >= kind.batch_records:
                sent.append((times[-1], partition, times, producer))
                del open_batches[partition]
                sticky = kind.choose(partitions, rng)
            gap_s = rng.expovariate(kind.rate_per_s) if kind.is_random else 1 / kind.rate_per_s
            at_s += gap_s
        for partition, times in open_batches.items():
            sent.append((int(END_S * 1e3), partition, times, producer))
    return sent


def _message(kind: Kind, rng: random.Random) -> Message:
    key = b"key-%06d" % rng.randrange(kind.keys) if kind.keys else None
    half = kind.value_bytes // 2 if kind.codec != "none" else kind.value_bytes
    value = kind.secret + rng.randbytes(max(0, half - len(kind.secret)))
    value += b"x" * (kind.value_bytes - len(value))
    return key, value, [(f"h{n}", kind.secret + b"abc") for n in range(kind.headers)]


class ServedCluster(KafkaAdmin):
    """An admin client of brokers in memory, which serve logs and offsets by time.

    Attributes:
        logs: topic → partition → its log.
        refused: topics that this user may not read.
        hidden: topics that this user may not look up offsets of.
        hidden_configs: topics whose properties this user may not read.
        moved_ms: times between which leaders answer that they moved [ms since the epoch].
        configs: topic → its properties.
        refused_groups: groups that this user may not describe.
        committed: group → topic → its members, and how far behind it is.
    """

    def __init__(
        self, logs: Mapping[str, dict[int, PartitionOfLog]], brokers: int = BROKERS
    ) -> None:
        self.logs = dict(logs)
        self.brokers = brokers
        self.refused: set[str] = set()
        self.hidden: set[str] = set()
        self.hidden_configs: set[str] = set()
        self.moved_ms = (0, 0)
        self.throttle_ms = 0
        self.configs: dict[str, dict[str, str | None]] = {}
        self.refused_groups: set[str] = set()
        self.committed: dict[str, dict[str, tuple[int, int]]] = {}
        self.requests: list[str] = []
        self.looked_up = 0
        self.fetched_bytes = 0
        self.before_fetch: Callable[[], None] = lambda: None
        self.before_request: Callable[[str], None] = lambda _: None
        self.client: Any = SimpleNamespace(
            _manager=SimpleNamespace(run=self._run, send=None),
            list_group_offsets=self._offsets_of,
            describe_groups=self._groups,
        )
        self._timeout_ms = 1_000

    def describe_cluster(self) -> ClusterInfo:
        known = tuple(Broker(each, "localhost", 9_000 + each) for each in range(self.brokers))
        return ClusterInfo("served", known, (), (4, 1))

    def describe_topics(
        self,
        what: str = "look at all topics",
        names: Sequence[str] | None = None,
        broker_id: int | None = None,
        timeout_ms: int = 0,
    ) -> list[DescribedTopic]:
        def partition(number: int) -> Partition:
            leader = number % self.brokers
            return Partition(leader, (leader, (number + 1) % self.brokers))

        return [
            DescribedTopic(name, {n: partition(n) for n in own}, name.startswith("__"))
            for name, own in self.logs.items()
        ]

    def groups(self) -> dict[str, str]:
        return dict.fromkeys(self.committed, "Stable")

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        return {"replica.lag.time.max.ms": "30000"}

    def _run(self, _send: object, request: Any, broker: int, _timeout_ms: int) -> Any:
        self.requests.append(type(request).__name__)
        self.before_request(type(request).__name__)
        if isinstance(request, ListOffsetsRequest):
            return self._answer_offsets(request)
        if isinstance(request, FetchRequest):
            return self._answer_fetch(request, broker)
        if isinstance(request, DescribeConfigsRequest):
            return self._answer_configs(request)
        raise AssertionError(f"{type(request).__name__} changes the cluster, or is not known")

    def _answer_configs(self, request: Any) -> Any:
        usual = {"min.insync.replicas": "1", "cleanup.policy": "delete"}
        results = []
        for each in request.resources:
            own = self.configs.get(each.resource_name, usual)
            is_refused = each.resource_name in self.hidden_configs
            code = kafka_errors.TopicAuthorizationFailedError.errno if is_refused else 0
            shown = [
                SimpleNamespace(name=name, value=value)
                for name, value in own.items()
                if name in each.configuration_keys and not is_refused
            ]
            results.append(
                SimpleNamespace(resource_name=each.resource_name, error_code=code, configs=shown)
            )
        return SimpleNamespace(results=results)

    def _answer_offsets(self, request: Any) -> Any:
        answered = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                self.looked_up += 1
                log = self.logs[topic.name][each.partition_index]
                found = {-1: (log.end_offset, -1), -2: (log.first_offset, -1)}
                offset, at_ms = found.get(each.timestamp) or log.offset_at(each.timestamp)
                error = 0
                if topic.name in self.hidden:
                    error = kafka_errors.TopicAuthorizationFailedError.errno
                elif self.moved_ms[0] <= each.timestamp < self.moved_ms[1]:
                    error = kafka_errors.NotLeaderForPartitionError.errno
                parts.append(SimpleNamespace(
                    partition_index=each.partition_index, offset=offset, timestamp=at_ms,
                    error_code=error,
                ))  # fmt: skip
            answered.append(SimpleNamespace(name=topic.name, partitions=parts))
        return SimpleNamespace(topics=answered)

    def _answer_fetch(self, request: Any, broker: int) -> Any:
        self.before_fetch()
        answered, room, is_first = [], request.max_bytes, True
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                assert each.partition % self.brokers == broker
                log = self.logs[topic.topic][each.partition]
                size = min(room, each.partition_max_bytes)
                data = log.read(each.fetch_offset, size, is_first)
                is_first, room = is_first and not data, max(0, room - len(data))
                error = kafka_errors.TopicAuthorizationFailedError.errno
                is_refused = topic.topic in self.refused
                self.fetched_bytes += len(data)
                parts.append(SimpleNamespace(
                    partition_index=each.partition, error_code=error if is_refused else 0,
                    records=b"" if is_refused else data, log_start_offset=log.first_offset,
                ))  # fmt: skip
            answered.append(SimpleNamespace(topic=topic.topic, partitions=parts))
        return SimpleNamespace(throttle_time_ms=self.throttle_ms, error_code=0, responses=answered)

    def _offsets_of(self, groups: Sequence[str]) -> Any:
        self.requests.append("OffsetFetchRequest")
        if self.refused_groups & set(groups):
            raise kafka_errors.GroupAuthorizationFailedError
        return {
            group: {
                TopicPartition(topic, number): SimpleNamespace(offset=log.end_offset - behind)
                for topic, (_, behind) in self.committed[group].items()
                for number, log in self.logs[topic].items()
            }
            for group in groups
        }

    def _groups(self, names: Sequence[str]) -> Any:
        return {
            name: {"error": None,
                   "members": [{}] * max(each[0] for each in self.committed[name].values())}
            for name in names
        }  # fmt: skip


def refuses(cause: str) -> Callable[..., Any]:
    """A method that raises an error of Kafka by its name."""

    def refuse(*_: object, **__: object) -> Any:
        raise AdminError(f"could not do it ({cause})", cause)

    return refuse
