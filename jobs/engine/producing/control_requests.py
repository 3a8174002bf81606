"""Requests of producers other than produce requests: for leaders, for producer ids, and to the
coordinators of transactions.

These requests are rare, so kafka-python's own codecs encode and decode them.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kafka.errors import for_code
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
)

from jobs.engine.network.connections import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    Api,
    broker_words,
)
from jobs.engine.network.links import Address
from jobs.engine.network.transport import Buffer, FrameReader, Transport, answer_of
from jobs.engine.producing.transactions import (
    CoordinatorRequest,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
)
from jobs.engine.task.plan import Partitions
from metrics.common.errors import RedlineError
from metrics.traffic.clients import TRANSACTION_TIMEOUT_MS

_NOT_ATTEMPTED = 55
_RECEIVE_BYTES = 65_536
_POLL_S = 0.05


class ProducerIdError(RedlineError):
    """A producer got no producer id from a broker."""


def _framed(kind: Any, api: Api, client_id: str, correlation_id: int, **fields: Any) -> bytes:
    request = kind(version=api.version, **fields)
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def _decoded(kind: Any, api: Api, frame: Buffer) -> Any:
    return kind.decode(bytes(frame), version=api.version, header=True)


def metadata_request(topics: Sequence[str], client_id: str, correlation_id: int) -> bytes:
    """Encode a request for the leaders of the partitions of these topics."""
    named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    fields = {"topics": named, "allow_auto_topic_creation": False}
    return _framed(MetadataRequest, METADATA, client_id, correlation_id, **fields)


def leaders_in(frame: Buffer) -> dict[tuple[str, int], int]:
    """(Topic, partition) → broker id of its leader, for the partitions that have one."""
    with answer_of("leaders", frame):
        return {
            (topic.name, partition.partition_index): partition.leader_id
            for topic in _decoded(MetadataResponse, METADATA, frame).topics
            for partition in topic.partitions
            if partition.error_code == 0 and partition.leader_id >= 0
        }


@dataclass(frozen=True)
class TransactionalId:
    """A producer with transactions, as its coordinator knows it.

    Attributes:
        name: its `transactional.id`.
        timeout_ms: age at which brokers abort a transaction [ms].
        client_id: its `client.id`.
    """

    name: str
    timeout_ms: int
    client_id: str


def init_request(
    client_id: str, correlation_id: int, transactional: TransactionalId | None = None
) -> bytes:
    """Encode a request for a producer id, and with transactions for its next epoch."""
    name, timeout_ms = None, TRANSACTION_TIMEOUT_MS
    if transactional is not None:
        name, timeout_ms = transactional.name, transactional.timeout_ms
    fields = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    return _framed(InitProducerIdRequest, INIT_PRODUCER_ID, client_id, correlation_id, **fields)


def init_answer(frame: Buffer) -> tuple[int, int, int]:
    """Error code, producer id and epoch of an answer to `init_request`."""
    with answer_of("a producer id", frame):
        response = _decoded(InitProducerIdResponse, INIT_PRODUCER_ID, frame)
        return response.error_code, response.producer_id, response.producer_epoch


def coordinator_request(
    request: CoordinatorRequest,
    transactional: TransactionalId,
    producer: tuple[int, int],
    partitions: Partitions,
    correlation_id: int,
) -> bytes:
    """Encode a request to the coordinator of a producer's transactions, or one to find it.

    Args:
        producer: producer id and epoch.
        partitions: the partitions of all topics, for their names.
    """
    name, client_id = transactional.name, transactional.client_id
    if isinstance(request, FindCoordinator):
        return find_request(transactional, correlation_id)
    if isinstance(request, RenewEpoch):
        return init_request(client_id, correlation_id, transactional)
    if isinstance(request, EndTransaction):
        return _framed(
            EndTxnRequest,
            END_TXN,
            client_id,
            correlation_id,
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=request.is_commit,
        )
    by_topic: dict[str, list[int]] = {}
    for number in request.partitions:
        topic, partition = partitions.of(number)
        by_topic.setdefault(topic, []).append(partition)
    return _framed(
        AddPartitionsToTxnRequest,
        ADD_PARTITIONS_TO_TXN,
        client_id,
        correlation_id,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=each)
            for topic, each in by_topic.items()
        ],
    )


def coordinator_answer(frame: Buffer, request: CoordinatorRequest) -> tuple[int, tuple[int, int]]:
    """Error code, and the broker id of a coordinator, or producer id and epoch, as requested.

    Raises:
        AnswerFormatError: the frame is not such an answer.
    """
    with answer_of("a transaction", frame):
        if isinstance(request, FindCoordinator):
            code, broker, _address = find_answer(frame)
            return code, (broker, -1)
        if isinstance(request, RenewEpoch):
            code, producer_id, epoch = init_answer(frame)
            return code, (producer_id, epoch)
        if isinstance(request, EndTransaction):
            return _decoded(EndTxnResponse, END_TXN, frame).error_code, (-1, -1)
        codes = [
            each.partition_error_code
            for topic in _decoded(
                AddPartitionsToTxnResponse, ADD_PARTITIONS_TO_TXN, frame
            ).results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
        # The code "not attempted" does not state the cause, so any other code goes before it.
        wrong = sorted(filter(None, codes), key=lambda code: code == _NOT_ATTEMPTED)
        return wrong[0] if wrong else 0, (-1, -1)


def find_request(transactional: TransactionalId, correlation_id: int) -> bytes:
    """Encode a request for the broker that coordinates the transactions of this producer."""
    fields = {"key": transactional.name, "key_type": CoordinatorType.TRANSACTION.value}
    client_id = transactional.client_id
    return _framed(FindCoordinatorRequest, FIND_COORDINATOR, client_id, correlation_id, **fields)


def find_answer(frame: Buffer) -> tuple[int, int, Address]:
    """Error code, broker id and its (host, port) in an answer to `find_request`."""
    with answer_of("a coordinator", frame):
        response = _decoded(FindCoordinatorResponse, FIND_COORDINATOR, frame)
        return response.error_code, response.node_id, (response.host, response.port)


def request_producer_ids(
    transports: Mapping[str, Transport], timeout_s: float, client_id_of: Callable[[str], str] = str
) -> dict[str, int]:
    """Request a producer id for each producer's name, over the connection of that producer.

    A broker hands out ids from blocks that it gets from the controller, and answers "loading" while
    it waits for the next block; the request is then sent again.

    Raises:
        ProducerIdError: a broker refused, closed, or did not answer within `timeout_s`.
    """
    preparation = _Preparation(
        "producer id",
        "brokers that hand them out; check the controller, or set producer.enable_idempotence to "
        "false to do without",
        "the right to Write (IdempotentWrite before Kafka 2.8); grant it to the cluster's user",
    )
    deadline_s = time.monotonic() + timeout_s
    requests = {each: init_request(client_id_of(each), 0) for each in transports}
    ids = preparation.request_until_answered(transports, requests, init_answer, deadline_s)
    return {name: producer_id for name, (_, producer_id, _epoch) in ids.items()}


@dataclass(frozen=True)
class Registered:
    """A transactional id as its coordinator registered it.

    Attributes:
        coordinator: broker id of the coordinator.
    """

    coordinator: int
    producer_id: int
    epoch: int


def register_transactional(
    transports: Mapping[tuple[str, int], Transport],
    transactional: Sequence[TransactionalId],
    timeout_s: float,
) -> dict[str, Registered]:
    """Request a producer id and a new epoch for each transactional id from its coordinator.

    The coordinator aborts an open transaction of the id. It answers when no transaction is ending
    any more, so all of their markers are in the logs by then. A coordinator on a broker without a
    connection, as it joined later, is searched again.

    Args:
        transports: (transactional id, broker id) → a connection without requests in flight.

    Raises:
        ProducerIdError: a broker refused, closed, or did not answer within `timeout_s`.
    """
    preparation = _Preparation(
        "coordinator for their transactions",
        "the topic __transaction_state to have leaders (transaction.state.log.replication.factor "
        "up to the number of brokers)",
        "the rights to Describe and Write on transactional ids, and a transaction timeout up to "
        "the brokers' transaction.max.timeout.ms",
    )
    deadline_s = time.monotonic() + timeout_s
    brokers = sorted({broker for _, broker in transports})
    found: dict[str, Registered] = {}
    missing = {each.name: each for each in transactional}
    while missing:
        ways = {
            name: transports[name, brokers[index % len(brokers)]]
            for index, name in enumerate(missing)
        }
        requests = {name: find_request(each, 0) for name, each in missing.items()}
        at = preparation.request_until_answered(ways, requests, find_answer, deadline_s)
        ways = {}
        for name, (_, broker, address) in at.items():
            if (name, broker) in transports:
                ways[name] = transports[name, broker]
            else:
                preparation = replace(
                    preparation,
                    remedy=f"it on one of the brokers {brokers}, with which the load began, and "
                    f"{broker_words(broker, address)} has it; repeat the load, which then begins "
                    "with that broker",
                )
        requests = {name: init_request(each.client_id, 0, each) for name, each in missing.items()}
        answers = preparation.request_once(ways, requests, init_answer, deadline_s)
        for name, (_, producer_id, epoch) in answers.items():
            found[name] = Registered(at[name][1], producer_id, epoch)
            del missing[name]
        if missing:
            preparation.check_time(deadline_s, len(missing))
            time.sleep(_POLL_S)
    return found


Answer = TypeVar("Answer", bound=tuple[Any, ...])
"""An answer as a tuple that begins with the error code."""


@dataclass(frozen=True)
class _Preparation:
    """Requests for something that producers need before they begin, each over its own connection.

    Attributes:
        thing: what the producers need.
        remedy: what is expected, and what to do, when it does not arrive in time.
        right: what is expected, and what to do, when it is refused.
    """

    thing: str
    remedy: str
    right: str

    def request_until_answered(
        self,
        transports: Mapping[str, Transport],
        requests: Mapping[str, bytes],
        read: Callable[[memoryview], Answer],
        deadline_s: float,
    ) -> dict[str, Answer]:
        """Repeat `request_once` until all requests have succeeded."""
        answers: dict[str, Answer] = {}
        while len(answers) < len(transports):
            missing = [each for each in transports if each not in answers]
            asked = {each: transports[each] for each in missing}
            answers.update(self.request_once(asked, requests, read, deadline_s))
            if len(answers) < len(transports):
                self.check_time(deadline_s, len(transports) - len(answers))
                time.sleep(_POLL_S)
        return answers

    def request_once(
        self,
        transports: Mapping[str, Transport],
        requests: Mapping[str, bytes],
        read: Callable[[memoryview], Answer],
        deadline_s: float,
    ) -> dict[str, Answer]:
        """Send over all connections, and return the answers without a retriable error."""
        answers: dict[str, Answer] = {}
        open_answers = set(transports)
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        try:
            with selectors.DefaultSelector() as selector:
                for name, transport in transports.items():
                    transport.send([requests[name]])
                    selector.register(transport, selectors.EVENT_READ, (name, FrameReader()))
                while open_answers:
                    self.check_time(deadline_s, len(open_answers))
                    for key, _ in selector.select(_POLL_S):
                        name, reader = key.data
                        size = transports[name].receive_into(buffer)
                        if size == 0:
                            raise ConnectionError
                        for frame in reader.feed(buffer[:size]) if size else ():
                            answer = read(frame)
                            open_answers.discard(name)
                            if answer[0] == 0:
                                answers[name] = answer
                            elif not for_code(answer[0]).retriable:
                                raise self._refused(answer[0])
        except OSError as error:
            raise ProducerIdError(
                f"a broker closed the connection instead of sending a {self.thing}; expected an "
                "answer; see the brokers' logs"
            ) from error
        return answers

    def _refused(self, code: int) -> ProducerIdError:
        return ProducerIdError(
            f"a broker refused a {self.thing} with {for_code(code).__name__}; expected {self.right}"
        )

    def check_time(self, deadline_s: float, missing: int) -> None:
        """Check that the deadline has not passed.

        Raises:
            ProducerIdError: the deadline has passed.
        """
        if time.monotonic() > deadline_s:
            raise ProducerIdError(
                f"{missing} producers got no {self.thing} in time; expected {self.remedy}"
            )
