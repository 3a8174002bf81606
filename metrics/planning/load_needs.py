"""The network traffic, CPU time, Spark slots and disk space that a load needs.

Network: a message needs more bytes on the network than its payload has. Each record contains
lengths and deltas. Batches, requests and responses have headers. Each follower and each consumer
group also fetches the message. Sizes follow Kafka's protocol
(https://kafka.apache.org/protocol.html): the generator sends produce requests of version 7, and
followers of Kafka 3.9 and later send fetch requests of version 17 in incremental fetch sessions.
Requests of other protocol versions differ by a few bytes. A test compares the model with the
counters of real brokers.

CPU: a produce request needs a fixed CPU time, plus CPU time in proportion to its bytes, because the
kernel copies the bytes. `make bench` measures the CPU time per request and the CPU time per byte
(docs/evidence/benchmarks.md).

Slots: each part of a load gets Spark slots in proportion to its CPU time.

Disk: a load needs space for all its replicas in the brokers' log dirs.
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
    """The bytes of TCP, IP and the link layer, which Kafka's own counters exclude.

    Attributes:
        mtu_bytes: largest IP packet of the link [B]; 1,500 on Ethernet.
        link_bytes: bytes of the link layer for each packet [B]: 38 on Ethernet, including preamble,
            checksum and gap; shapers and the counters of interfaces count only 14 of these 38
            bytes.
        segments_per_ack: number of data segments per pure acknowledgement.
    """

    mtu_bytes: int = 1_500
    link_bytes: int = 38
    segments_per_ack: float = 2.0

    TCP_IP_BYTES = 52
    """Bytes of the headers of IPv4 and TCP with timestamps [B]."""

    def segments(self, size: float) -> float:
        """The mean number of packets for one request or response, at least 1.

        The number need not be whole: on a busy connection, the last packet of a request also
        carries the start of the next request.
        """
        return max(1.0, size / (self.mtu_bytes - self.TCP_IP_BYTES))


@dataclass(frozen=True)
class Assumptions:
    """Properties of the network traffic that are assumed, because the traffic pattern does not
    determine them.

    Records are not compressed, and each produce request and each fetch response has one batch. On
    busy brokers, a fetch response has more batches.

    Attributes:
        topic_bytes, client_id_bytes: lengths of the topic name and the client id [B].
    """

    topic_bytes: int = 32
    client_id_bytes: int = 32


def batch_bytes(producer: ProducerPattern) -> int:
    """The size of an uncompressed batch, including its header [B]."""
    return BATCH_HEADER_BYTES + sum(
        record_bytes(index, producer.message_bytes, producer.rate_records_per_s, producer.payload)
        for index in range(producer.records_per_batch)
    )


def stored_bytes(producer: ProducerPattern) -> float:
    """The mean size of a record in a log, including its share of the batch's header [B]."""
    return batch_bytes(producer) / producer.records_per_batch


@dataclass(frozen=True)
class WireBytes:
    """The bytes on the network for each message [B]. Each attribute is the total over all copies of
    the message.

    Attributes:
        produce_requests, produce_answers: requests and responses of producers [B].
        follower_requests, follower_answers: requests and responses of followers [B].
        consumer_requests, consumer_answers: requests and responses of consumers [B].
    """

    produce_requests: float
    produce_answers: float
    follower_requests: float
    follower_answers: float
    consumer_requests: float
    consumer_answers: float

    @property
    def served_in(self) -> float:
        """The number of bytes that the listeners of all brokers receive for one message [B]."""
        return self.produce_requests + self.follower_requests + self.consumer_requests

    @property
    def served_out(self) -> float:
        """The number of bytes that the listeners of all brokers send for one message [B]."""
        return self.produce_answers + self.follower_answers + self.consumer_answers

    @property
    def brokers_in(self) -> float:
        """The number of bytes that the network interfaces of all brokers receive for one message
        [B]. The traffic of followers is included.
        """
        return self.served_in + self.follower_answers

    @property
    def brokers_out(self) -> float:
        """The number of bytes that the network interfaces of all brokers send for one message [B].
        The traffic of followers is included.
        """
        return self.served_out + self.follower_requests

    def mbit_per_s(self, messages_per_s: float) -> tuple[float, float]:
        """The traffic of all brokers' interfaces at this message rate, as (received, sent)
        [Mbit/s].
        """
        scale = messages_per_s * 8 / 1e6
        return self.brokers_in * scale, self.brokers_out * scale


def wire_bytes(
    pattern: TrafficPattern, framing: Framing | None = None, given: Assumptions = Assumptions()
) -> WireBytes:
    """The bytes of one message in each flow, such as the requests of followers.

    Network headers are included if `framing` is given.
    """
    messages = float(pattern.producer.records_per_batch)
    batch = batch_bytes(pattern.producer)
    request = 32.0 + given.client_id_bytes + given.topic_bytes + _PARTITION_OF_PRODUCE + batch
    answer = 22.0 + given.topic_bytes + _PARTITION_OF_ANSWER
    answer *= pattern.producer.options.acks != "0"
    produced = _exchange(request, answer, messages, framing)

    def fetched(named_bytes: int) -> tuple[float, float]:
        request = 40 + named_bytes + _TOPIC_ID + _PARTITION_OF_FETCH
        length = max(1, math.ceil((batch + 1).bit_length() / 7))
        answer = 21 + _TOPIC_ID + _PARTITION_OF_FETCHED + length + batch
        return _exchange(request, answer, messages, framing)

    followers, groups = pattern.topic.replication_factor - 1, pattern.consumers.groups
    return WireBytes(
        *produced,
        *(size * followers for size in fetched(FOLLOWER_CLIENT_ID_BYTES + _REPLICA_STATE)),
        *(size * groups for size in fetched(CONSUMER_CLIENT_ID_BYTES)),
    )


def _exchange(
    request: float, answer: float, messages: float, framing: Framing | None
) -> tuple[float, float]:
    """The bytes of a request per message, and the bytes of its response per message [B]."""
    if framing is None:
        return request / messages, answer / messages
    ahead = framing.segments(request)
    back = framing.segments(answer) if answer else 0.0
    # A response also acknowledges segments. Other acknowledgements are separate packets.
    acks_back = max(0.0, ahead / framing.segments_per_ack - back)
    acks_ahead = max(0.0, back / framing.segments_per_ack - ahead)
    header = framing.TCP_IP_BYTES + framing.link_bytes
    return (
        (request + (ahead + acks_ahead) * header) / messages,
        (answer + (back + acks_back) * header) / messages,
    )


def describe(patterns: Iterable[TrafficPattern], framing: Framing = Framing()) -> str:
    """A sentence about the network traffic for each MB/s of payload, and about the additional
    traffic if each message has 8 more bytes.
    """
    texts = []
    for pattern in patterns:
        producer = replace(pattern.producer, message_bytes=pattern.message_bytes + 8)
        longer = replace(pattern, producer=producer)
        now, more = wire_bytes(pattern, framing), wire_bytes(longer, framing)
        ahead, back = now.mbit_per_s(1e6 / pattern.message_bytes)
        growth = (more.brokers_in + more.brokers_out) / (now.brokers_in + now.brokers_out) - 1
        texts.append(
            f"{pattern.message_bytes:,} B: {ahead:.1f} in and {back:.1f} out "
            f"({growth:+.2%} with 8 B more per message)"
        )
    return f"Mbit/s on all brokers' interfaces for each MB/s of payload: {'; '.join(texts)}"


REQUEST_S = 110e-6
"""CPU time that a producer on a slow core needs for one produce request with one batch, including
the response [CPU-s]."""

BYTES_PER_S = 2e9
"""Payload that producers with large batches send for each second of CPU time [B/CPU-s]."""


@dataclass(frozen=True)
class ExecutorCpu:
    """The CPU time that producers need at a load.

    Attributes:
        cores: CPU time per second [cores].
        requests_per_s: rate of produce requests; each request has one batch [1/s].
        records: number of records in a batch, if the brokers keep up with the load.
    """

    cores: float
    requests_per_s: float
    records: int

    def __str__(self) -> str:
        """The needed CPU time as a sentence for the plan of a run."""
        noun = "record" if self.records == 1 else "records"
        return (
            f"producers need about {self.cores:.1f} cores of the executors at that load, without "
            f"TLS: {self.requests_per_s:,.0f} requests a second with batches of {self.records:,} "
            f"{noun}"
        )


def executor_cpu(patterns: Iterable[ProducerPattern], bytes_per_s: float) -> ExecutorCpu | None:
    """The CPU time that producers need for a payload rate. The computation uses the pattern with
    the smallest batches.

    Args:
        patterns: the traffic patterns of all producers, such as one for each part of a mix.
        bytes_per_s: total payload rate of all producers [B/s].

    Returns:
        The CPU time; None if all patterns are closed loops, because the brokers then determine the
        size of batches.
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
    """The Spark tasks of one part of a load.

    Attributes:
        tasks: number of tasks with producers.
        consumer_tasks: number of tasks with members of consumer groups.
    """

    tasks: int
    consumer_tasks: int


def slots_needed(pattern: TrafficPattern) -> int:
    """The minimum number of slots for a load. Each part of the load has its own tasks."""
    return sum(map(_least, pattern.loads))


def share_slots(pattern: TrafficPattern, slots: int, *, reads: bool = True) -> list[SlotShare]:
    """The tasks of each part of a load, in the order of the parts.

    A single part gets all slots. Several parts share the slots in proportion to their CPU time.

    Args:
        pattern: the load.
        slots: number of tasks that can run at the same time, at least `slots_needed`.
        reads: True if the load also has consumer groups.
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
    """The CPU time that all clients of a part need per second [cores]; 1 if it is not known."""
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
    """The brokers' settings for the deletion of old log segments, with Kafka's defaults.

    Attributes:
        check_s: interval of the checks of retention (log.retention.check.interval.ms) [s].
        delay_s: time from a check of retention to the deletion of files
            (log.segment.delete.delay.ms) [s].
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
        """The settings with which records are deleted latest: for each setting, the highest value
        of any broker.

        Args:
            brokers: the properties of each broker; a missing property has Kafka's default.
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
        """The maximum time from the expiry of a topic's records to the deletion of these records
        [s].
        """
        delay_ms = topic.properties.get("file.delete.delay.ms", self.delay_s * 1e3)
        return self.check_s + float(delay_ms) / 1e3


def peak_log_bytes(
    pattern: TrafficPattern, cleaning: LogCleaning = LogCleaning(), held_bytes: float = 0.0
) -> float:
    """The maximum volume that a load adds, summed over all log dirs and replicas [B].

    Compression is ignored, because its ratio is not known in advance. Retention limits the volume,
    but records that have expired need space until Kafka deletes them.

    Args:
        pattern: the load.
        cleaning: the brokers' settings for the deletion of segments.
        held_bytes: volume that the topics contain before the load [B].
    """
    if pattern.parts:
        own = [peak_log_bytes(each, cleaning) for each in pattern.parts]
        most = sum(_log_bytes_max(each, cleaning) for each in pattern.parts)
        return min(sum(own), max(0.0, most - held_bytes))
    written = pattern.planned_records * replicated_bytes(pattern)
    return min(written, max(0.0, _log_bytes_max(pattern, cleaning) - held_bytes))


def replicated_bytes(pattern: TrafficPattern) -> float:
    """The size of a record, summed over all its replicas [B]."""
    return stored_bytes(pattern.producer) * pattern.topic.replication_factor


def _log_bytes_max(pattern: TrafficPattern, cleaning: LogCleaning) -> float:
    """The maximum volume of the logs before brokers delete expired records [B]."""
    topic = pattern.topic
    late_records = pattern.records_per_s * pattern.peak_share * cleaning.late_s(topic)
    retained = retained_bytes(topic, pattern.brokers, cleaning)
    return retained + late_records * replicated_bytes(pattern)


def retained_bytes(
    topic: TopicOptions, brokers: int, cleaning: LogCleaning = LogCleaning()
) -> float:
    """The volume of a workload's topics that retention keeps, summed over all replicas [B].

    The volume is infinite without `retention.bytes`.
    """
    retention = int(topic.properties.get("retention.bytes", "-1"))
    if retention < 0:
        return math.inf
    segment = int(topic.properties.get("segment.bytes", cleaning.segment_bytes))
    return float(logs_of(topic, brokers) * (retention + segment))


def logs_of(topic: TopicOptions, brokers: int) -> int:
    """The total number of replicas in a workload's topics, over all partitions."""
    return brokers * topic.partitions_per_broker * topic.count * topic.replication_factor
