"""Transports and their sockets: every byte, in order, and events that are handled together."""

from __future__ import annotations

import random
import select
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from unittest import mock

import pytest

from jobs.engine.network import sockets
from jobs.engine.network.sockets import Channel, Sockets
from jobs.engine.network.transport import (
    TLS_RECORD_BYTES,
    Buffer,
    PlainTransport,
    TlsTransport,
    Transport,
    joined,
)
from jobs.engine.producing.loop import GATHER_S
from jobs.engine.producing.producer import Connection
from tests.support.processes import PATIENCE_S
from tests.support.scripted_broker import Answer
from tests.support.tls_pair import tls_over
from tests.support.wire_loops import run_loop

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
    """Buffers, cut as the engine cuts its list of buffers."""
    return [whole[at : at + 40_000] for at in range(0, len(whole), 40_000)]


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
    with selectors.DefaultSelector() as selector:
        selector.register(transport, selectors.EVENT_WRITE)
        while taken < len(wanted):
            assert selector.select(PATIENCE_S), "the peer takes nothing"
            taken += transport.send(cut(wanted[taken:]))
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
        assert transport.receive_into(buffer) is None, "no byte, and the connection is open"
        peer.close()
        assert selector.select(PATIENCE_S)
        assert transport.receive_into(buffer) == 0


def test_a_buffer_smaller_than_a_record_is_refused() -> None:
    near, far = socket.socketpair()
    with near, far, pytest.raises(ValueError, match=r"100 bytes; .* 16384"):
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


class WholeChannel(Channel):
    """A channel whose bytes are all parsed."""

    is_parsed_whole = True


class Notes:
    """An owner that notes the events of its channels, and when the last bytes arrived."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.arrived_s = 0.0

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        self.events.append(bytes(data))
        self.arrived_s = now

    def handle_flushed(self, channel: Channel, now: float) -> None:
        self.events.append("flushed")

    def handle_lost(self, channel: Channel, error: str, now: float) -> None:
        self.events.append(error)

    def handle_woken(self) -> None:
        self.events.append("woken")


@contextmanager
def _noted_waits() -> Iterator[list[tuple[str, float]]]:
    """The waits of the sockets that are created here, which end at once."""
    waits: list[tuple[str, float]] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            assert timeout is not None
            waits.append(("select", round(timeout, 6)))
            return super().select(0)

    with (
        mock.patch.object(sockets, "selectors", SimpleNamespace(DefaultSelector=Selector)),
        mock.patch.object(sockets, "sleep", lambda seconds: waits.append(("sleep", seconds))),
    ):
        yield waits


def test_events_gather_unless_work_is_due() -> None:
    for timeout_s, gather_s, expected in (
        (0.01, 0.0, [("select", 0.01)]),
        (0.0108, 0.0005, [("sleep", 0.0005), ("select", 0.01)]),
        (0.0003, 0.0005, [("sleep", 0.0005), ("select", 0.0)]),
        (0.0, 0.0005, [("select", 0.0)]),
    ):
        with _noted_waits() as waits:
            own = Sockets(Notes(), time.monotonic, 100)
            own.wait(timeout_s, gather_s)
            own.close()
        assert waits == expected


def test_a_channel_without_skippable_bytes_is_read_once_in_a_turn() -> None:
    notes = Notes()
    with _noted_waits():
        own = Sockets(notes, time.monotonic, 4)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    own.add(WholeChannel(), PlainTransport(ours))
    theirs.sendall(b"seven b")
    own.wait(0.0)
    assert notes.events == [b"seve"], "other channels wait for the rest"
    own.wait(0.0)
    own.wait(0.0)
    theirs.close()
    own.wait(0.0)
    assert notes.events == [b"seve", b"n b", "ConnectionClosed"]
    own.close()


def test_a_request_that_takes_the_rest_along_leaves_room_for_batches() -> None:
    own, connection = Sockets(Notes(), time.monotonic, 100), Connection(1, mock.Mock(), 1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        own.add(connection, PlainTransport(ours))
        while connection.has_room:
            own.send(connection, [bytes(10_000)])
        assert connection.unwritten
        with suppress(BlockingIOError):
            while theirs.recv(1 << 20):
                continue
        own.send(connection, [b"control request"])
        assert connection.has_room
    own.close()


def _arrival(clock_is_off_by_s: float = 0.0) -> tuple[float, float, float, float]:
    """Times: a first look, when bytes had arrived, their arrival as noted, and the second look."""
    notes = Notes()
    own = Sockets(notes, time.monotonic, 100)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    transport = PlainTransport(ours)
    own.add(WholeChannel(), transport)
    assert own.are_stamped
    buffer, stamp_s = memoryview(bytearray(1)), 0.0
    while not stamp_s:  # the kernel begins to stamp shortly after the first socket asks for it
        theirs.sendall(b"x")
        assert select.select([ours], [], [], PATIENCE_S)[0]
        _, stamp_s = transport.receive_stamped(buffer)
    looked_s = time.monotonic()
    own.wait(0.0)
    theirs.sendall(b"answer")
    assert select.select([ours], [], [], PATIENCE_S)[0]
    had_arrived_s = time.monotonic()
    time.sleep(0.01)
    again_s = time.monotonic()
    set_clock = mock.Mock(side_effect=lambda: time.time() + clock_is_off_by_s)
    with mock.patch.object(sockets, "time", set_clock):
        own.wait(0.0)
    own.close()
    theirs.close()
    ours.close()
    assert notes.events == [b"answer"]
    return looked_s, had_arrived_s, notes.arrived_s, again_s


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux notes it")
def test_bytes_count_from_their_arrival_and_not_from_the_look_at_them() -> None:
    looked_s, had_arrived_s, arrived_s, again_s = _arrival()
    assert looked_s <= arrived_s <= had_arrived_s < again_s
    looked_s, had_arrived_s, arrived_s, _ = _arrival(3_600.0)
    assert looked_s <= arrived_s <= had_arrived_s, "although the clock was set"
    _, _, arrived_s, again_s = _arrival(-3_600.0)
    assert again_s <= arrived_s < again_s + PATIENCE_S, "the time of the look"


def test_a_kernel_that_notes_no_arrivals_is_no_error() -> None:
    refusing = mock.Mock(spec=socket.socket)
    refusing.setsockopt.side_effect = OSError("Protocol not available")
    assert not PlainTransport(refusing).stamp_arrivals()


def test_tls_notes_no_arrivals() -> None:
    ours, theirs = tls_over(*socket.socketpair())
    ours.setblocking(False)
    own = Sockets(notes := Notes(), time.monotonic, 20_000)
    own.add(WholeChannel(), TlsTransport(ours))
    assert not own.are_stamped
    theirs.sendall(b"answer")
    while not notes.events:
        own.wait(PATIENCE_S)
    own.close()
    ours.close()
    theirs.close()
    assert notes.events == [b"answer"]


def test_batches_leave_within_the_time_in_which_they_gather() -> None:
    loop, broker = run_loop(lambda _: Answer(delay_s=0.0015))
    lateness = loop.account.lateness.histogram
    assert 100 < lateness.quantile(50) <= lateness.quantile(100) < (GATHER_S + 0.0002) * 1e6
    assert loop.account.counts.acked_total == broker.records
