"""TLS and plain transports: every byte, in order, for any size that the socket takes."""

from __future__ import annotations

import random
import selectors
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from jobs.engine.network.transport import (
    TLS_RECORD_BYTES,
    Buffer,
    PlainTransport,
    TlsTransport,
    Transport,
    joined,
)
from tests.support.processes import PATIENCE_S
from tests.support.tls_pair import tls_over

Pair = tuple[Transport, socket.socket]


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The tested end, non-blocking, and the peer's, blocking."""
    near, far = socket.socketpair()
    far.settimeout(PATIENCE_S)
    if request.param == "tls":
        near, far = tls_over(near, far)
    near.setblocking(False)
    transport: Transport = (
        TlsTransport(near) if isinstance(near, ssl.SSLSocket) else PlainTransport(near)
    )
    yield transport, far
    transport.close()
    far.close()


def cut(whole: bytes) -> list[Buffer]:
    """The rest of the buffers, cut as the engine cuts its list of buffers."""
    return [whole[at : at + 40_000] for at in range(0, len(whole), 40_000)]


def send_all(transport: Transport, buffers: list[Buffer]) -> int:
    """Send as the engine does, until all is taken; returns the calls that took some."""
    whole, sent, calls = b"".join(buffers), 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(transport, selectors.EVENT_WRITE)
        while sent < len(whole):
            assert selector.select(PATIENCE_S), "the peer takes nothing"
            sent += transport.send(cut(whole[sent:]))
            calls += 1
    return calls


def test_bytes_that_a_slow_peer_does_not_take_are_sent_later_and_only_once(pair: Pair) -> None:
    transport, peer = pair
    wanted = random.Random(1).randbytes(3_000_000)
    received = bytearray()

    def read_slowly() -> None:
        while len(received) < len(wanted):
            received.extend(peer.recv(30_000))

    taken = transport.send(cut(wanted))
    assert taken < len(wanted), "the socket took all at once, so this test checks nothing"
    reader = threading.Thread(target=read_slowly)
    reader.start()
    send_all(transport, [wanted[taken:]])
    reader.join(PATIENCE_S)
    assert bytes(received) == wanted


def test_everything_that_arrived_is_seen_through_a_selector(pair: Pair) -> None:
    transport, peer = pair
    wanted = random.Random(2).randbytes(5 * TLS_RECORD_BYTES + 17)
    peer.sendall(wanted)
    buffer, received = memoryview(bytearray(2 * TLS_RECORD_BYTES)), b""
    with selectors.DefaultSelector() as selector:
        selector.register(transport, selectors.EVENT_READ)
        while len(received) < len(wanted):
            assert selector.select(PATIENCE_S), f"{len(received)} bytes and then no event"
            received += buffer[: transport.receive_into(buffer) or 0]
        assert received == wanted
        assert transport.receive_into(buffer) is None, (
            "no byte is there, and the connection is open"
        )
        peer.close()
        assert selector.select(PATIENCE_S)
        assert transport.receive_into(buffer) == 0


def test_a_buffer_smaller_than_a_record_is_refused() -> None:
    near, far = socket.socketpair()
    with near, far, pytest.raises(ValueError, match=r"100 bytes .* 16384"):
        TlsTransport(near).receive_into(memoryview(bytearray(100)))


@pytest.mark.parametrize("seed", range(20))
def test_joining_keeps_every_byte_and_bounds_every_copy(seed: int) -> None:
    rng = random.Random(seed)
    buffers: list[Buffer] = [
        rng.randbytes(rng.choice((0, 1, 61, 1_000, 20_000, 200_000)))
        for _ in range(rng.randrange(1, 60))
    ]
    parts = joined(buffers)
    assert b"".join(parts) == b"".join(buffers)
    own = [part for part in parts if not any(part is each for each in buffers)]
    assert all(len(part) <= 8 * TLS_RECORD_BYTES for part in own)
    assert len(parts) <= 2 * len(b"".join(buffers)) / (8 * TLS_RECORD_BYTES) + 2
