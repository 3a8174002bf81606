"""What a producer asks brokers besides taking its records: leaders, and its producer id.

These requests are rare, so kafka-python's own codecs write and read them, in versions that
every broker from Kafka 2.1 to 4.x speaks.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence

from kafka.errors import for_code
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from jobs.engine.network.frames import Buffer, FrameReader
from jobs.engine.network.transport import Transport
from search.errors import RedlineError

_METADATA_VERSION = 4
_INIT_VERSION = 1
_RECEIVE_BYTES = 65_536
_POLL_S = 0.05


class ProducerIdError(RedlineError):
    """A broker gave no producer id."""


def metadata_request(topics: Sequence[str], client_id: str, correlation_id: int) -> bytes:
    """Ask who leads the partitions of these topics."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        version=_METADATA_VERSION,
    )
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def leaders_in(frame: Buffer) -> dict[tuple[str, int], int]:
    """(Topic, partition) → broker id of its leader, of the partitions that have one."""
    response = MetadataResponse.decode(bytes(frame), version=_METADATA_VERSION, header=True)
    return {
        (topic.name, partition.partition_index): partition.leader_id
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == 0 and partition.leader_id >= 0
    }


def init_request(client_id: str, correlation_id: int) -> bytes:
    """Ask for a producer id."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, version=_INIT_VERSION
    )
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def init_answer(frame: Buffer) -> tuple[int, int]:
    """Error code, and producer id."""
    response = InitProducerIdResponse.decode(bytes(frame), version=_INIT_VERSION, header=True)
    return response.error_code, response.producer_id


def ask_producer_ids(transports: Mapping[str, Transport], timeout_s: float) -> dict[str, int]:
    """A producer id for each client id, asked over a connection of its own.

    A broker hands out ids from blocks that it gets of the controller, and says "loading"
    while it waits for the next block; so it is asked again.

    Raises:
        ProducerIdError: a broker refused, closed, or did not answer within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    ids: dict[str, int] = {}
    while len(ids) < len(transports):
        missing = [client_id for client_id in transports if client_id not in ids]
        ids.update(_ask_once({each: transports[each] for each in missing}, deadline_s))
        if len(ids) < len(transports):
            _check_time(deadline_s, len(transports) - len(ids))
            time.sleep(_POLL_S)
    return ids


def _check_time(deadline_s: float, missing: int) -> None:
    if time.monotonic() > deadline_s:
        raise ProducerIdError(
            f"{missing} producers got no producer id in time; expected the brokers to hand them "
            "out: is the controller well? set producer.enable_idempotence to false to do without"
        )


def _ask_once(transports: Mapping[str, Transport], deadline_s: float) -> dict[str, int]:
    """Ask over all connections, and take one answer of each; without those still loading."""
    ids: dict[str, int] = {}
    open_answers = set(transports)
    with selectors.DefaultSelector() as selector:
        for client_id, transport in transports.items():
            transport.send([init_request(client_id, 0)])
            selector.register(transport, selectors.EVENT_READ, (client_id, FrameReader()))
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        while open_answers:
            _check_time(deadline_s, len(open_answers))
            for key, _ in selector.select(_POLL_S):
                client_id, reader = key.data
                for code, producer_id in _answers(transports[client_id], reader, buffer):
                    open_answers.discard(client_id)
                    if code == 0:
                        ids[client_id] = producer_id
                    elif not for_code(code).retriable:
                        raise ProducerIdError(
                            f"a broker refused a producer id with {for_code(code).__name__}; "
                            "expected the right to write (IdempotentWrite before Kafka 2.8)"
                        )
    return ids


def _answers(
    transport: Transport, reader: FrameReader, buffer: memoryview
) -> Sequence[tuple[int, int]]:
    size = transport.receive_into(buffer)
    if size == 0:
        raise ProducerIdError("a broker closed the connection instead of giving a producer id")
    return [init_answer(frame) for frame in reader.feed(buffer[:size])] if size else []
