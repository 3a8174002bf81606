"""Requests and responses of producers in the encoding of Kafka's protocol.

A produce request refers to its payload, so the payload is not copied. The encoder of kafka-python
encodes the first fields of produce requests once per connection. Each send only patches and appends
fields of fixed width. Produce requests have version 7, because the fields of version 7 have a fixed
width, and every broker from Kafka 2.1 to 4.x accepts version 7. Versions above 7 changed the
framing, the answers to refused batches, the names of topics and the first batch of a transaction.
Whichever version a produce request has, a broker appends its records in the same way.

All other requests are rare: requests for leaders, requests for producer ids, and requests to
coordinators of transactions. Therefore kafka-python's codecs encode these requests and decode their
responses.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
)

from jobs.engine.network.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Api,
)
from jobs.engine.network.transport import Buffer, answer_of, unreadable
from jobs.engine.task.plan import Partitions
from metrics.traffic.clients import TRANSACTION_TIMEOUT_MS

_NOT_ATTEMPTED = 55

_FRAME_AND_CORRELATION = struct.Struct(">ihhi")
_COUNT_AND_HEAD = struct.Struct(">iii")
_COUNT = struct.Struct(">i")
_PARTITION_HEAD = struct.Struct(">ii")
_RESULT_HEAD = struct.Struct(">iih")
_PARTITION_RESULT = struct.Struct(">ihqqq")
_ONLY_RESULT = struct.Struct(">iihqqqi")
_NAME_LENGTH = struct.Struct(">h")


class ProduceEncoder:
    """Encodes produce requests for one topic and one client id as buffers for scatter-gather.

    Args:
        first: the number that partition 0 of the topic has in the task. Each partition of all
            topics has its own number in the task (see `Partitions`).
        transactional_id: id of a producer with transactions; None without transactions.
    """

    def __init__(
        self,
        topic: str,
        client_id: str,
        acks: int,
        timeout_ms: int,
        first: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.first = first
        self.client_id = client_id
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[])],
            version=PRODUCE.most,
        )
        request.with_header(correlation_id=0, client_id=client_id)
        head = bytes(request.encode(framed=True, header=True))
        self._middle = head[_FRAME_AND_CORRELATION.size : -_COUNT.size]
        self._fixed_bytes = len(head) - 4

    def encode(
        self, correlation_id: int, batches: Sequence[tuple[int, bytes, memoryview]]
    ) -> list[Buffer]:
        """Encode one request.

        Args:
            correlation_id: id that the broker returns with its response.
            batches: (number of the partition, batch header, records), one batch per partition.
        """
        size, first = self._fixed_bytes, self.first
        if len(batches) == 1:  # the usual case
            ((partition, header, records),) = batches
            batch_bytes = len(header) + len(records)
            head = _FRAME_AND_CORRELATION.pack(
                size + _PARTITION_HEAD.size + batch_bytes,
                PRODUCE.key,
                PRODUCE.most,
                correlation_id,
            )
            middle = _COUNT_AND_HEAD.pack(1, partition - first, batch_bytes)
            return [b"".join((head, self._middle, middle, header)), records]
        buffers: list[Buffer] = [b""]
        for partition, header, records in batches:
            batch_bytes = len(header) + len(records)
            size += _PARTITION_HEAD.size + batch_bytes
            buffers.append(_PARTITION_HEAD.pack(partition - first, batch_bytes) + header)
            buffers.append(records)
        buffers[0] = (
            _FRAME_AND_CORRELATION.pack(size, PRODUCE.key, PRODUCE.most, correlation_id)
            + self._middle
            + _COUNT.pack(len(batches))
        )
        return buffers


def decode_produce_response(frame: Buffer, first: int = 0) -> tuple[dict[int, int], int]:
    """Decode a response of version 7, without its size field.

    Args:
        first: the number that partition 0 of the topic has in the task; the response has only one
            topic. Each partition of all topics has its own number in the task (see `Partitions`).

    Returns:
        The pair (number of each partition → Kafka's error code, throttle time). The error code 0
        means success. The throttle time is the time for which a quota throttled the client [ms].

    Raises:
        AnswerFormatError: the frame is not a produce response.
    """
    try:
        _correlation_id, topics, name_length = _RESULT_HEAD.unpack_from(frame, 0)
        at = _RESULT_HEAD.size + name_length
        if topics == 1 and len(frame) == at + _ONLY_RESULT.size:
            _one, partition, error, _, _, _, throttle_ms = _ONLY_RESULT.unpack_from(frame, at)
            return {first + partition: error}, throttle_ms
        return _results(frame, topics, first)
    except (struct.error, ValueError) as error:
        raise unreadable("records", frame, error) from error


def _results(frame: Buffer, topics: int, first: int) -> tuple[dict[int, int], int]:
    """The results of a response for several partitions; see `decode_produce_response`."""
    position, errors = 8, {}
    for _ in range(topics):
        (name_length,) = _NAME_LENGTH.unpack_from(frame, position)
        if name_length < 0:  # it would move the parser backwards without end
            raise ValueError(f"a topic's name has {name_length} bytes")
        position += _NAME_LENGTH.size + name_length
        (partitions,) = _COUNT.unpack_from(frame, position)
        position += _COUNT.size
        for _ in range(partitions):
            partition, error, *_offsets = _PARTITION_RESULT.unpack_from(frame, position)
            errors[first + partition] = error
            position += _PARTITION_RESULT.size
    (throttle_ms,) = _COUNT.unpack_from(frame, position)
    return errors, throttle_ms


@dataclass(frozen=True)
class FindLeaders:
    """The request for the leaders of all partitions."""


@dataclass(frozen=True)
class FindCoordinator:
    """The request for the coordinator of a producer's transactions."""


@dataclass(frozen=True)
class AddPartitions:
    """The request to add partitions to the open transaction."""

    partitions: tuple[int, ...]


@dataclass(frozen=True)
class EndTransaction:
    """The request to commit or abort the open transaction."""

    is_commit: bool


@dataclass(frozen=True)
class InitProducerId:
    """The request for a producer id, or for the next epoch of a producer with transactions."""


CoordinatorRequest = FindCoordinator | AddPartitions | EndTransaction | InitProducerId
ControlRequest = FindLeaders | CoordinatorRequest
"""Type of all requests that producers send, except produce requests."""


@dataclass(frozen=True)
class Sender:
    """The ids by which brokers identify a producer.

    Attributes:
        client_id: the producer's `client.id`.
        transactional_id: the producer's `transactional.id`; None without transactions.
        timeout_ms: age at which brokers abort a transaction [ms].
        producer_id, epoch: id and epoch that brokers assigned; -1 before that.
    """

    client_id: str
    transactional_id: str | None = None
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    producer_id: int = -1
    epoch: int = -1


_CODECS: Mapping[type[ControlRequest], tuple[Api, Any, Any, str]] = {
    FindLeaders: (METADATA, MetadataRequest, MetadataResponse, "leaders"),
    FindCoordinator: (
        FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, "a coordinator"
    ),
    InitProducerId: (
        INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, "a producer id"
    ),
    AddPartitions: (
        ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
        "a transaction",
    ),
    EndTransaction: (END_TXN, EndTxnRequest, EndTxnResponse, "a transaction"),
}  # fmt: skip


def encode_request(
    request: ControlRequest,
    sender: Sender,
    partitions: Partitions,
    correlation_id: int,
    versions: Mapping[int, int],
) -> bytes:
    """Encode a request that carries no records.

    Args:
        partitions: the partitions of all topics. A partition has one number in the whole task. From
            this number `partitions` finds the topic, and the partition's number in the topic.
        versions: API key → version of the request; the lowest version by default.
    """
    api, kind, _answer, _what = _CODECS[type(request)]
    fields = _fields_of(request, sender, partitions)
    encoded = kind(version=versions.get(api.key, api.least), **fields)
    encoded.with_header(correlation_id=correlation_id, client_id=sender.client_id)
    return bytes(encoded.encode(framed=True, header=True))


def _fields_of(request: ControlRequest, sender: Sender, partitions: Partitions) -> dict[str, Any]:
    if isinstance(request, FindLeaders):
        topics = [MetadataRequest.MetadataRequestTopic(name=each) for each in partitions.topics]
        return {"topics": topics, "allow_auto_topic_creation": False}
    name, producer_id, epoch = sender.transactional_id, sender.producer_id, sender.epoch
    if isinstance(request, FindCoordinator):
        return {"key": name, "key_type": CoordinatorType.TRANSACTION.value}
    if isinstance(request, InitProducerId):
        return {"transactional_id": name, "transaction_timeout_ms": sender.timeout_ms}
    if isinstance(request, EndTransaction):
        return {
            "transactional_id": name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": request.is_commit,
        }
    by_topic: dict[str, list[int]] = {}
    for number in request.partitions:
        topic, partition = partitions.of(number)
        by_topic.setdefault(topic, []).append(partition)
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [added(name=t, partitions=each) for t, each in by_topic.items()],
    }


def decode_answer(
    frame: Buffer, request: ControlRequest, partitions: Partitions, versions: Mapping[int, int]
) -> tuple[int, Any]:
    """Error code and content of the response to a request.

    Returns:
        The error code, and the content of the response. The content of a response to `FindLeaders`
        is the map partition → broker id of its leader. Partitions that have no leader are left out.
        The content of a response to `FindCoordinator` is (broker id, address). The content of a
        response to `InitProducerId` is (producer id, epoch).

    Raises:
        AnswerFormatError: the frame is not a response to this request.
    """
    api, _request, kind, what = _CODECS[type(request)]
    with answer_of(what, frame):
        found = kind.decode(bytes(frame), version=versions.get(api.key, api.least), header=True)
        if isinstance(request, FindLeaders):
            numbered = {
                partitions.number(topic.name, each.partition_index): each.leader_id
                for topic in found.topics
                for each in topic.partitions
                if each.error_code == 0 and each.leader_id >= 0
            }
            numbered.pop(None, None)
            return 0, numbered
        if isinstance(request, FindCoordinator):
            return found.error_code, (found.node_id, (found.host, found.port))
        if isinstance(request, InitProducerId):
            return found.error_code, (found.producer_id, found.producer_epoch)
        if isinstance(request, EndTransaction):
            return found.error_code, None
        codes = [
            each.partition_error_code
            for topic in found.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
    # "Not attempted" does not name the cause, so any other error code is preferred.
    wrong = sorted(filter(None, codes), key=lambda code: code == _NOT_ATTEMPTED)
    return wrong[0] if wrong else 0, None
