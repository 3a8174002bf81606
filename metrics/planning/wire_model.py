"""Bytes on the network for each message of a traffic pattern: a model, and no measurement.

A message is more than its payload on the network: a record has lengths and deltas, a batch
a header, a request and its answer theirs; every replica and every consumer group fetches it
again. So "8 bytes more per message" can be read as megabits per second.

Sizes follow Kafka's protocol (https://kafka.apache.org/protocol.html): produce requests of
version 7, as the generator sends them, and fetch requests of version 17 in incremental fetch
sessions, as followers of Kafka 3.9 and later send them. Other versions differ by a few bytes
a request. A test compares the model with what real brokers count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.producer import ProducerPattern
from metrics.traffic.record_format import BATCH_HEADER_BYTES, record_bytes

FOLLOWER_CLIENT_ID_BYTES = len("broker-1-fetcher-0")
CONSUMER_CLIENT_ID_BYTES = 24

_PARTITION_OF_PRODUCE = 8  # index, size of the batch
_PARTITION_OF_ANSWER = 30  # index, error, base offset, append time, log start offset
_TOPIC_ID = 18  # of a fetch: id, number of partitions, tags
_PARTITION_OF_FETCH = 33  # index, epochs, fetch and log start offset, size limit, tags
_PARTITION_OF_FETCHED = 36  # index, error, offsets, aborted transactions, replica, tags
_REPLICA_STATE = 15  # a follower names itself and its epoch


@dataclass(frozen=True)
class Framing:
    """What TCP, IP and the link add; Kafka's own counters do not see it.

    Attributes:
        mtu_bytes: largest IP packet of the link [B]; 1,500 on Ethernet.
        link_bytes: of the link for each packet [B]; 38 on Ethernet, with preamble, check
            sum and gap, and 14 as a shaper or an interface's counter sees it.
        segments_per_ack: data segments that one pure acknowledgement answers.
    """

    mtu_bytes: int = 1_500
    link_bytes: int = 38
    segments_per_ack: float = 2.0

    TCP_IP_BYTES = 52
    """IPv4 and TCP with time stamps [B]."""

    def segments(self, size: float) -> float:
        """Packets that carry so many bytes of one message of the protocol.

        Not rounded up: the next message fills the last packet when the stream is busy, and
        a model with steps would price 8 bytes more at nothing or at a whole packet.
        """
        return max(1.0, size / (self.mtu_bytes - self.TCP_IP_BYTES))

    @property
    def header_bytes(self) -> int:
        """Of each packet [B]."""
        return self.TCP_IP_BYTES + self.link_bytes


@dataclass(frozen=True)
class Assumptions:
    """What a traffic pattern does not say of its way over the network.

    Attributes:
        compressed_share: size of the compressed over that of the plain records [ratio].
        topic_bytes, client_id_bytes: lengths of the names [B].
        batches_per_request: batches that travel in one produce request.
        batches_per_fetch: batches that one fetch of a follower or consumer returns; 1 while
            brokers are at ease, more when they are busy.
    """

    compressed_share: float = 1.0
    topic_bytes: int = 32
    client_id_bytes: int = 32
    batches_per_request: float = 1.0
    batches_per_fetch: float = 1.0


def batch_bytes(producer: ProducerPattern, compressed_share: float = 1.0) -> float:
    """Size of a batch, header included [B]."""
    records = sum(
        record_bytes(index, producer.message_bytes, producer.rate_records_per_s, producer.payload)
        for index in range(producer.records_per_batch)
    )
    return BATCH_HEADER_BYTES + records * compressed_share


@dataclass(frozen=True)
class WireBytes:
    """Bytes on the network for each message, by flow and summed over all copies [B].

    Attributes:
        produce_requests, produce_answers: between producers and leaders.
        follower_requests, follower_answers: between followers and leaders.
        consumer_requests, consumer_answers: between consumers and leaders.
    """

    produce_requests: float
    produce_answers: float
    follower_requests: float
    follower_answers: float
    consumer_requests: float
    consumer_answers: float

    @property
    def served_in(self) -> float:
        """What reaches the listeners of all brokers, as their sockets count it [B]."""
        return self.produce_requests + self.follower_requests + self.consumer_requests

    @property
    def served_out(self) -> float:
        """What leaves the listeners of all brokers [B]."""
        return self.produce_answers + self.follower_answers + self.consumer_answers

    @property
    def brokers_in(self) -> float:
        """What reaches the interfaces of all brokers: they are followers too [B]."""
        return self.served_in + self.follower_answers

    @property
    def brokers_out(self) -> float:
        """What leaves the interfaces of all brokers [B]."""
        return self.served_out + self.follower_requests

    def mbit_per_s(self, messages_per_s: float) -> tuple[float, float]:
        """Into and out of all brokers' interfaces together at this rate [Mbit/s]."""
        scale = messages_per_s * 8 / 1e6
        return self.brokers_in * scale, self.brokers_out * scale


def wire_bytes(
    pattern: TrafficPattern, framing: Framing | None = None, given: Assumptions = Assumptions()
) -> WireBytes:
    """The bytes of one message on its ways, with the headers of the network if asked."""
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
    """Both directions of one request and its answer, for each of the messages in it."""
    if framing is None:
        return request / messages, answer / messages
    ahead = framing.segments(request)
    back = framing.segments(answer) if answer else 0.0
    # Whoever answers acknowledges with the answer; what is left over takes packets of its own.
    acks_back = max(0.0, ahead / framing.segments_per_ack - back)
    acks_ahead = max(0.0, back / framing.segments_per_ack - ahead)
    header = framing.header_bytes
    return (
        (request + (ahead + acks_ahead) * header) / messages,
        (answer + (back + acks_back) * header) / messages,
    )


def describe(patterns: Iterable[TrafficPattern], framing: Framing = Framing()) -> str:
    """What a plan says of the network: load for each MB/s of payload, and the price of 8 B."""
    told = []
    for pattern in patterns:
        now, more = wire_bytes(pattern, framing), wire_bytes(_longer(pattern, 8), framing)
        ahead, back = now.mbit_per_s(1e6 / pattern.message_bytes)
        growth = (more.brokers_in + more.brokers_out) / (now.brokers_in + now.brokers_out) - 1
        told.append(
            f"{pattern.message_bytes:,} B: {ahead:.1f} in and {back:.1f} out "
            f"(8 B more per message: {growth:+.2%})"
        )
    return f"Mbit/s on all brokers' interfaces for each MB/s of payload: {'; '.join(told)}"


def _longer(pattern: TrafficPattern, by_bytes: int) -> TrafficPattern:
    longer = replace(pattern.producer, message_bytes=pattern.message_bytes + by_bytes)
    return replace(pattern, producer=longer)
