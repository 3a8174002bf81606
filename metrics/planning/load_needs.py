"""A model of the bytes on the network for each message of a traffic pattern.

On the network a message is larger than its payload: records have lengths and deltas; batches,
requests and answers have headers; each replica and each consumer group fetches the message again.
With the model, "8 more bytes per message" can be expressed in megabits per second.

Sizes follow Kafka's protocol (https://kafka.apache.org/protocol.html): produce requests of
version 7, as the generator sends them, and fetch requests of version 17 in incremental fetch
sessions, as followers of Kafka 3.9 and later send them. Other versions differ by a few bytes per
request. A test compares the model with the counters of real brokers.

The CPU time of the engine's producers, from the size of their batches.

A produce request costs about the same whatever it holds, and its bytes cost the time that the
kernel needs to copy them. Both figures are measured by `make bench` (docs/evidence/benchmarks.md).

The share of Spark's slots that each part of a load gets, by the CPU time that it costs.

A model of the disk space that a load needs in the brokers' log dirs. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from metrics.traffic.clients import ProducerPattern
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.traffic.payload import BATCH_HEADER_BYTES, record_bytes

FOLLOWER_CLIENT_ID_BYTES = len("broker-1-fetcher-0")
CONSUMER_CLIENT_ID_BYTES = 24

_PARTITION_OF_PRODUCE = 8  # index, size of the batch
_PARTITION_OF_ANSWER = 30  # index, error, base offset, append time, log start offset
_TOPIC_ID = 18  # topic of a fetch: id, number of partitions, tags
_PARTITION_OF_FETCH = 33  # index, epochs, fetch and log start offset, size limit, tags
_PARTITION_OF_FETCHED = 36  # index, error, offsets, aborted transactions, replica, tags
_REPLICA_STATE = 15  # a follower's id and epoch


@dataclass(frozen=True)
class Framing:
    """The bytes of TCP, IP and the link, which Kafka's own counters exclude.

    Attributes:
        mtu_bytes: largest IP packet of the link [B]; 1,500 on Ethernet.
        link_bytes: bytes of the link layer for each packet [B]; 38 on Ethernet, with preamble,
            checksum and gap, and 14 in the counters of shapers and interfaces.
        segments_per_ack: number of data segments per pure acknowledgement.
    """

    mtu_bytes: int = 1_500
    link_bytes: int = 38
    segments_per_ack: float = 2.0

    TCP_IP_BYTES = 52
    """Bytes of the headers of IPv4 and TCP with timestamps [B]."""

    def segments(self, size: float) -> float:
        """The number of packets for one message of the protocol; a fraction, at least 1.

        In a busy stream the next message fills the last packet. A rounded number would also
        count 8 more bytes as either nothing or a whole packet.
        """
        return max(1.0, size / (self.mtu_bytes - self.TCP_IP_BYTES))

    @property
    def header_bytes(self) -> int:
        """The bytes of all headers of a packet [B]."""
        return self.TCP_IP_BYTES + self.link_bytes


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about the network traffic that a traffic pattern does not determine.

    Attributes:
        compressed_share: size of compressed records, divided by their plain size [ratio].
        topic_bytes, client_id_bytes: lengths of the names [B].
        batches_per_request: number of batches in one produce request.
        batches_per_fetch: number of batches in the answer to one fetch of a follower or consumer;
            1 at low load, more on busy brokers.
    """

    compressed_share: float = 1.0
    topic_bytes: int = 32
    client_id_bytes: int = 32
    batches_per_request: float = 1.0
    batches_per_fetch: float = 1.0


def batch_bytes(producer: ProducerPattern, compressed_share: float = 1.0) -> float:
    """The size of a batch with its header [B]."""
    records = sum(
        record_bytes(index, producer.message_bytes, producer.rate_records_per_s, producer.payload)
        for index in range(producer.records_per_batch)
    )
    return BATCH_HEADER_BYTES + records * compressed_share


def stored_bytes(producer: ProducerPattern) -> float:
    """The mean bytes of a record in a log, with its share of the batch's header [B]."""
    return batch_bytes(producer) / producer.records_per_batch


@dataclass(frozen=True)
class WireBytes:
    """The bytes on the network for each message, by flow and summed over all copies [B].

    Attributes:
        produce_requests, produce_answers: bytes between producers and leaders.
        follower_requests, follower_answers: bytes between followers and leaders.
        consumer_requests, consumer_answers: bytes between consumers and leaders.
    """

    produce_requests: float
    produce_answers: float
    follower_requests: float
    follower_answers: float
    consumer_requests: float
    consumer_answers: float

    @property
    def served_in(self) -> float:
        """The bytes that the listeners of all brokers receive [B]."""
        return self.produce_requests + self.follower_requests + self.consumer_requests

    @property
    def served_out(self) -> float:
        """The bytes that the listeners of all brokers send [B]."""
        return self.produce_answers + self.follower_answers + self.consumer_answers

    @property
    def brokers_in(self) -> float:
        """The bytes that the interfaces of all brokers receive, also as followers [B]."""
        return self.served_in + self.follower_answers

    @property
    def brokers_out(self) -> float:
        """The bytes that the interfaces of all brokers send, also as followers [B]."""
        return self.served_out + self.follower_requests

    def mbit_per_s(self, messages_per_s: float) -> tuple[float, float]:
        """(received, sent) by the interfaces of all brokers together at this rate [Mbit/s]."""
        scale = messages_per_s * 8 / 1e6
        return self.brokers_in * scale, self.brokers_out * scale


def wire_bytes(
    pattern: TrafficPattern, framing: Framing | None = None, given: Assumptions = Assumptions()
) -> WireBytes:
    """The bytes of one message in all flows, with the headers of the network if given."""
    messages = float(pattern.producer.records_per_batch)
    batch = batch_bytes(pattern.producer, given.compressed_share)
    per_request = given.batches_per_request
    request = 32.0 + given.client_id_bytes + given.topic_bytes
    request += per_request * (_PARTITION_OF_PRODUCE + batch)
    answer = 22.0 + given.topic_bytes + per_request * _PARTITION_OF_ANSWER
    answer *= pattern.producer.options.acks != "0"
    produced = _exchange(request, answer, messages * per_request, framing)

    def fetched(named_bytes: int) -> tuple[float, float]:
        batches = given.batches_per_fetch
        request = 40 + named_bytes + _TOPIC_ID + batches * _PARTITION_OF_FETCH
        length = max(1, math.ceil((int(batch) + 1).bit_length() / 7))
        answer = 21 + _TOPIC_ID + batches * (_PARTITION_OF_FETCHED + length + batch)
        return _exchange(request, answer, messages * batches, framing)

    followers, groups = pattern.topic.replication_factor - 1, pattern.consumers.groups
    return WireBytes(
        *produced,
        *(size * followers for size in fetched(FOLLOWER_CLIENT_ID_BYTES + _REPLICA_STATE)),
        *(size * groups for size in fetched(CONSUMER_CLIENT_ID_BYTES)),
    )


def _exchange(
    request: float, answer: float, messages: float, framing: Framing | None
) -> tuple[float, float]:
    """The bytes per message of a request and of its answer."""
    if framing is None:
        return request / messages, answer / messages
    ahead = framing.segments(request)
    back = framing.segments(answer) if answer else 0.0
    # An answer also acknowledges; further acknowledgements need packets of their own.
    acks_back = max(0.0, ahead / framing.segments_per_ack - back)
    acks_ahead = max(0.0, back / framing.segments_per_ack - ahead)
    header = framing.header_bytes
    return (
        (request + (ahead + acks_ahead) * header) / messages,
        (answer + (back + acks_back) * header) / messages,
    )


def describe(patterns: Iterable[TrafficPattern], framing: Framing = Framing()) -> str:
    """A sentence about the network load per MB/s of payload, and the cost of 8 more bytes."""
    texts = []
    for pattern in patterns:
        producer = replace(pattern.producer, message_bytes=pattern.message_bytes + 8)
        longer = replace(pattern, producer=producer)
        now, more = wire_bytes(pattern, framing), wire_bytes(longer, framing)
        ahead, back = now.mbit_per_s(1e6 / pattern.message_bytes)
        growth = (more.brokers_in + more.brokers_out) / (now.brokers_in + now.brokers_out) - 1
        texts.append(
            f"{pattern.message_bytes:,} B: {ahead:.1f} in and {back:.1f} out "
            f"(8 B more per message: {growth:+.2%})"
        )
    return f"Mbit/s on all brokers' interfaces for each MB/s of payload: {'; '.join(texts)}"


REQUEST_S = 110e-6
"""CPU time of a produce request with one batch, and of its answer [CPU-s], on slow cores."""

BYTES_PER_S = 2e9
"""Payload that producers with large batches move in a second of CPU time [B/CPU-s]."""


@dataclass(frozen=True)
class ExecutorCpu:
    """The CPU time that producers need at a load.

    Attributes:
        cores: CPU time per second.
        requests_per_s: produce requests per second, each with one batch.
        records: records in a batch while the brokers keep up.
    """

    cores: float
    requests_per_s: float
    records: int

    def __str__(self) -> str:
        """A sentence for the plan of a run."""
        noun = "record" if self.records == 1 else "records"
        return (
            f"producers need about {self.cores:.1f} cores of the executors at that load, without "
            f"TLS: {self.requests_per_s:,.0f} requests a second with batches of {self.records:,} "
            f"{noun}"
        )


def executor_cpu(patterns: Iterable[ProducerPattern], bytes_per_s: float) -> ExecutorCpu | None:
    """The CPU time of a payload rate, by the pattern whose batches are the smallest.

    Args:
        patterns: the producers of each message size.
        bytes_per_s: payload of all producers together [B/s].

    Returns:
        None for closed loops, whose batches depend on the brokers.
    """
    sizes = {
        each.records_per_batch * each.message_bytes: each.records_per_batch
        for each in patterns
        if not each.closed_loop
    }
    if not sizes:
        return None
    smallest = min(sizes)
    requests_per_s = bytes_per_s / smallest
    cores = requests_per_s * REQUEST_S + bytes_per_s / BYTES_PER_S
    return ExecutorCpu(cores, requests_per_s, sizes[smallest])


@dataclass(frozen=True)
class SlotShare:
    """The tasks of one part of a load.

    Attributes:
        tasks: tasks with producers.
        consumer_tasks: tasks with members of consumer groups.
    """

    tasks: int
    consumer_tasks: int


def slots_needed(pattern: TrafficPattern) -> int:
    """The lowest number of slots for a load: each part has its own tasks."""
    return sum(map(_least, pattern.loads))


def share_slots(pattern: TrafficPattern, slots: int, *, reads: bool = True) -> list[SlotShare]:
    """The tasks of each part, in the order of the parts; a single part gets all slots.

    Args:
        slots: number of tasks that can run at the same time, at least `slots_needed`.
        reads: whether the consumer groups run, too.
    """
    loads = pattern.loads
    given = [slots] if len(loads) == 1 else [_least(each) for each in loads]
    costs = [cores_of(each) for each in loads]
    for _ in range(slots - sum(given)):
        wanting = [
            (cost / own, -index)
            for index, (cost, own) in enumerate(zip(costs, given, strict=True))
            if own < loads[index].producers + loads[index].consumers.members_total
        ]
        if not wanting:
            break
        given[-max(wanting)[1]] += 1
    return [_share(each, own, reads) for each, own in zip(loads, given, strict=True)]


def cores_of(part: TrafficPattern) -> float:
    """The CPU time of the clients of a part per second [cores]; 1 where it is not known."""
    bytes_per_s = part.mb_per_s * 1e6
    needed = executor_cpu((part.producer,), bytes_per_s)
    if needed is None:
        return 1.0
    return needed.cores + part.consumers.groups * bytes_per_s / BYTES_PER_S


def _least(part: TrafficPattern) -> int:
    return 2 if part.consumers.groups else 1


def _share(part: TrafficPattern, slots: int, reads: bool) -> SlotShare:
    consumers = part.consumers.tasks(slots) if reads else 0
    return SlotShare(min(part.producers, slots - consumers), consumers)


@dataclass(frozen=True)
class LogCleaning:
    """The brokers' settings for the deletion of old segments, with Kafka's defaults.

    Attributes:
        check_s: interval of the checks of retention (log.retention.check.interval.ms) [s].
        delay_s: time from a check to the deletion of files (log.segment.delete.delay.ms) [s].
        segment_bytes: size of the active segment, which is never deleted (log.segment.bytes) [B].
    """

    NAMES: ClassVar[Sequence[str]] = (
        "log.retention.check.interval.ms",
        "log.segment.delete.delay.ms",
        "log.segment.bytes",
    )
    check_s: float = 300.0
    delay_s: float = 60.0
    segment_bytes: int = 1_073_741_824

    @classmethod
    def of(cls, brokers: Iterable[Mapping[str, str | None]]) -> LogCleaning:
        """Read the properties of all brokers; the slowest value of each counts.

        A missing property has Kafka's default.
        """
        defaults = dict(
            zip(cls.NAMES, (cls.check_s * 1e3, cls.delay_s * 1e3, cls.segment_bytes), strict=True)
        )
        values = [
            [float(each.get(name) or value) for name, value in defaults.items()] for each in brokers
        ]
        if not values:
            return cls()
        check_ms, delay_ms, segment = map(max, zip(*values, strict=True))
        return cls(check_ms / 1e3, delay_ms / 1e3, int(segment))

    def late_s(self, topic: TopicOptions) -> float:
        """The longest time for which expired records of a topic stay on the disk [s]."""
        delay_ms = topic.properties.get("file.delete.delay.ms", self.delay_s * 1e3)
        return self.check_s + float(delay_ms) / 1e3


def peak_log_bytes(
    pattern: TrafficPattern, cleaning: LogCleaning = LogCleaning(), held_bytes: float = 0.0
) -> float:
    """The maximum number of bytes that a load adds to all log dirs together, with replicas [B].

    Compression is ignored, as its ratio is not known in advance. Retention reduces the result only
    by records that are older than the time that Kafka needs to delete them.

    Args:
        cleaning: the brokers' settings for deletion.
        held_bytes: bytes that the topics contain already [B].
    """
    if pattern.parts:
        own = [peak_log_bytes(each, cleaning) for each in pattern.parts]
        most = sum(_log_bytes_max(each, cleaning) for each in pattern.parts)
        return min(sum(own), max(0.0, most - held_bytes))
    written = pattern.planned_records * replicated_bytes(pattern)
    return min(written, max(0.0, _log_bytes_max(pattern, cleaning) - held_bytes))


def replicated_bytes(pattern: TrafficPattern) -> float:
    """The bytes of a record in all replicas [B]."""
    return stored_bytes(pattern.producer) * pattern.topic.replication_factor


def _log_bytes_max(pattern: TrafficPattern, cleaning: LogCleaning) -> float:
    """The bytes that the logs hold at most before the brokers delete what is old [B]."""
    topic = pattern.topic
    late_records = pattern.records_per_s * pattern.peak_share * cleaning.late_s(topic)
    retained = retained_bytes(topic, pattern.brokers, cleaning)
    return retained + late_records * replicated_bytes(pattern)


def retained_bytes(
    topic: TopicOptions, brokers: int, cleaning: LogCleaning = LogCleaning()
) -> float:
    """The bytes of a workload's topics that retention keeps, with replicas [B].

    Infinite without `retention.bytes`.
    """
    retention = int(topic.properties.get("retention.bytes", "-1"))
    if retention < 0:
        return math.inf
    segment = int(topic.properties.get("segment.bytes", cleaning.segment_bytes))
    return float(logs_of(topic, brokers) * (retention + segment))


def logs_of(topic: TopicOptions, brokers: int) -> int:
    """The number of replicas of all partitions of a workload's topics."""
    return brokers * topic.partitions_per_broker * topic.count * topic.replication_factor
