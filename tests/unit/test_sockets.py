"""Events of sockets gather for a moment, and are handled together."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest

from jobs.engine.network import sockets
from jobs.engine.network.sockets import Channel, Sockets
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.loop import GATHER_S
from tests.support.scripted_broker import Answer
from tests.support.wire_loops import run_loop


class WholeChannel(Channel):
    """A channel whose bytes are all parsed."""

    is_parsed_whole = True


class Notes:
    """An owner that notes the events of its channels."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        self.events.append(bytes(data))

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


@pytest.mark.parametrize(
    ("timeout_s", "gather_s", "expected"),
    [
        (0.01, 0.0, [("select", 0.01)]),
        (0.0108, 0.0005, [("sleep", 0.0005), ("select", 0.01)]),
        (0.0003, 0.0005, [("sleep", 0.0005), ("select", 0.0)]),
        (0.0, 0.0005, [("select", 0.0)]),
    ],
)
def test_events_gather_unless_work_is_due(
    timeout_s: float, gather_s: float, expected: list[tuple[str, float]]
) -> None:
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


def test_batches_leave_within_the_time_in_which_they_gather() -> None:
    loop, broker = run_loop(lambda _: Answer(delay_s=0.0015))
    lateness = loop.account.lateness.histogram
    assert 100 < lateness.quantile(50) <= lateness.quantile(100) < (GATHER_S + 0.0002) * 1e6
    assert loop.account.counts.acked_total == broker.records
