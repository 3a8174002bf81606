"""Events of sockets gather for a moment, and are handled together."""

from __future__ import annotations

import select
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest

from jobs.engine.network import transport as sockets
from jobs.engine.network.transport import Channel, PlainTransport, Sockets, TlsTransport
from jobs.engine.producing.loop import GATHER_S
from tests.support.processes import PATIENCE_S
from tests.support.scripted_broker import Answer
from tests.support.tls_pair import tls_over
from tests.support.wire_loops import run_loop


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
