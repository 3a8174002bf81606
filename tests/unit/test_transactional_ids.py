"""Transactional ids are registered with the broker that coordinates them, before any load."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.control_requests import (
    ProducerIdError,
    Registered,
    TransactionalId,
    register_transactional,
)

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
NOT_ALLOWED, TIMEOUT_TOO_LARGE = 53, 50
ANSWERED_S = 5.0
FIND, INIT = FindCoordinatorRequest.API_KEY, InitProducerIdRequest.API_KEY

Answer = tuple[int, tuple[int, ...]]
"""(API key of the request, answer): (error, broker) for a search, and (error, producer id,
epoch) for an id."""


def found(broker: int, error: int = 0) -> Answer:
    return FIND, (error, broker)


def given(producer_id: int, epoch: int = 0, error: int = 0) -> Answer:
    return INIT, (error, producer_id, epoch)


class Broker:
    """A broker that follows a script over one connection, and may disconnect at its end.

    Attributes:
        requests: (transactional id, its timeout [ms] or None) of each request.
    """

    def __init__(self, script: Sequence[Answer], hangs_up: bool = False) -> None:
        self.requests: list[tuple[str, int | None]] = []
        self._script = script
        self._hangs_up = hangs_up
        client, self._own = socket.socketpair()
        client.setblocking(False)
        self._client = client
        self.transport = PlainTransport(client)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(ANSWERED_S)

    def close(self) -> None:
        self._client.close()
        self.join()
        self._own.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the client has given up
            for api_key, answer in self._script:
                size = int.from_bytes(self._own.recv(4, socket.MSG_WAITALL), "big")
                frame = self._own.recv(size, socket.MSG_WAITALL)
                if not frame:
                    return
                self._own.sendall(self._answer(api_key, answer, frame))
            if self._hangs_up:
                self._own.shutdown(socket.SHUT_RDWR)

    def _answer(self, api_key: int, answer: tuple[int, ...], frame: bytes) -> bytes:
        assert int.from_bytes(frame[:2], "big") == api_key, "requests in this order"
        response: Any
        if api_key == FIND:
            search = FindCoordinatorRequest.decode(frame, version=1, header=True)
            assert search.key_type == 1, "of a transaction"
            self.requests.append((search.key, None))
            response = FindCoordinatorResponse(
                throttle_time_ms=0, error_code=answer[0], error_message=None,
                node_id=answer[1], host="h", port=1, version=1,
            )  # fmt: skip
            response.with_header(correlation_id=search.header.correlation_id)
        else:
            wanted = InitProducerIdRequest.decode(frame, version=1, header=True)
            self.requests.append((wanted.transactional_id, wanted.transaction_timeout_ms))
            response = InitProducerIdResponse(
                throttle_time_ms=0, error_code=answer[0], producer_id=answer[1],
                producer_epoch=answer[2], version=1,
            )  # fmt: skip
            response.with_header(correlation_id=wanted.header.correlation_id)
        return bytes(response.encode(framed=True, header=True))


@contextmanager
def cluster(scripts: Mapping[tuple[str, int], Sequence[Answer]]) -> Iterator[dict[Any, Broker]]:
    """A connection for each (transactional id, broker id), and the broker at its other end."""
    with ExitStack() as stack:
        brokers = {}
        for way, script in scripts.items():
            brokers[way] = Broker(script)
            stack.callback(brokers[way].close)
        yield brokers


def registered(
    brokers: dict[Any, Broker], *names: str, timeout_s: float = ANSWERED_S
) -> dict[str, Registered]:
    transports = {way: broker.transport for way, broker in brokers.items()}
    ids = [TransactionalId(name, 60_000 + number, name) for number, name in enumerate(names)]
    return register_transactional(transports, ids, timeout_s)


def test_each_id_is_registered_with_its_own_coordinator() -> None:
    # The first id uses broker 1, and the second broker 2, to share the requests.
    scripts = {
        ("a", 1): [found(2)],
        ("a", 2): [given(11, 3)],
        ("b", 1): [],
        ("b", 2): [found(2), given(12)],
    }
    with cluster(scripts) as brokers:
        assert registered(brokers, "a", "b") == {
            "a": Registered(2, 11, 3),
            "b": Registered(2, 12, 0),
        }
        assert brokers["a", 1].requests == [("a", None)]
        assert brokers["a", 2].requests == [("a", 60_000)]
        assert brokers["b", 2].requests == [("b", None), ("b", 60_001)]


@pytest.mark.parametrize("error", [LOADING, NOT_COORDINATOR, CONCURRENT])
def test_requests_to_a_coordinator_that_is_not_ready_are_repeated(error: int) -> None:
    scripts = {
        ("a", 1): [found(-1, NOT_AVAILABLE), found(2), found(1), given(5, 1)],
        ("a", 2): [given(-1, -1, error)],
    }
    with cluster(scripts) as brokers:
        assert registered(brokers, "a") == {"a": Registered(1, 5, 1)}
        assert len(brokers["a", 1].requests) == 4, (
            "requests until it is found, and until its new place is found"
        )


@pytest.mark.parametrize(
    "script",
    [[found(-1, NOT_ALLOWED)], [found(1), given(-1, -1, NOT_ALLOWED)],
     [found(1), given(-1, -1, TIMEOUT_TOO_LARGE)]],
)  # fmt: skip
def test_a_refused_coordinator_names_the_missing_rights(script: Sequence[Answer]) -> None:
    wanted = r"refused a coordinator.*the rights to Describe and Write on transactional ids"
    with cluster({("a", 1): script}) as brokers, pytest.raises(ProducerIdError, match=wanted):
        registered(brokers, "a")


def test_an_endless_search_and_a_closed_connection_are_errors() -> None:
    wanted = "1 producers got no coordinator.*__transaction_state to have leaders"
    never = [found(-1, NOT_AVAILABLE)] * 100
    with cluster({("a", 1): never}) as brokers, pytest.raises(ProducerIdError, match=wanted):
        registered(brokers, "a", timeout_s=0.2)
    scripts: tuple[list[Answer], ...] = ([], [found(1)])
    for before in scripts:
        broker = Broker(before, hangs_up=True)
        if not before:
            broker.join()  # the connection is closed before the write
        try:
            with pytest.raises(ProducerIdError, match="closed the connection"):
                registered({("a", 1): broker}, "a")
        finally:
            broker.close()
