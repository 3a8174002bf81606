"""Produce requests and responses on the wire, without a copy of the payload.

kafka-python's own encoder makes the head of the request, once per connection; each send patches and
appends fixed-width fields only. Version 7 is used because all its fields have a fixed width, and
every broker from Kafka 2.1 to 4.x accepts it. A broker does the same work for it as for later
versions, which only changed the framing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafka.protocol.producer import ProduceRequest

from jobs.engine.network.frames import PRODUCE_VERSION, Buffer, unreadable

_FRAME_AND_CORRELATION = struct.Struct(">ihhi")
_COUNT_AND_HEAD = struct.Struct(">iii")
_COUNT = struct.Struct(">i")
_PARTITION_HEAD = struct.Struct(">ii")
_RESULT_HEAD = struct.Struct(">iih")
_PARTITION_RESULT = struct.Struct(">ihqqq")
_ONLY_RESULT = struct.Struct(">iihqqqi")
_NAME_LENGTH = struct.Struct(">h")
_PRODUCE_API_KEY = 0


class ProduceEncoder:
    """Encoder of produce requests for one topic and client id, as scatter-gather buffers.

    Args:
        first: the number of the topic's partition 0.
        transactional_id: the id of a producer with transactions; None without.
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
            version=PRODUCE_VERSION,
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
            correlation_id: returned by the broker with its response.
            batches: (number of the partition, batch header, records), one per partition.
        """
        size, first = self._fixed_bytes, self.first
        if len(batches) == 1:  # as almost always
            ((partition, header, records),) = batches
            batch_bytes = len(header) + len(records)
            head = _FRAME_AND_CORRELATION.pack(
                size + _PARTITION_HEAD.size + batch_bytes,
                _PRODUCE_API_KEY,
                PRODUCE_VERSION,
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
            _FRAME_AND_CORRELATION.pack(size, _PRODUCE_API_KEY, PRODUCE_VERSION, correlation_id)
            + self._middle
            + _COUNT.pack(len(batches))
        )
        return buffers


def decode_produce_response(frame: Buffer, first: int = 0) -> tuple[dict[int, int], int]:
    """Decode a version 7 response, without its size field.

    Args:
        first: the number of partition 0 of its topic, as a request is for one topic.

    Returns:
        The number of each partition → Kafka error code, 0 for success; and how long a quota held
        the client back [ms].

    Raises:
        AnswerFormatError: the frame is not such a response.
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
        if name_length < 0:  # it would make the parser go backwards for ever
            raise ValueError(f"a topic's name of {name_length} bytes")
        position += _NAME_LENGTH.size + name_length
        (partitions,) = _COUNT.unpack_from(frame, position)
        position += _COUNT.size
        for _ in range(partitions):
            partition, error, *_offsets = _PARTITION_RESULT.unpack_from(frame, position)
            errors[first + partition] = error
            position += _PARTITION_RESULT.size
    (throttle_ms,) = _COUNT.unpack_from(frame, position)
    return errors, throttle_ms
