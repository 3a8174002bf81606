"""Reopening of lost connections: brokers beside each other, one connection of each that is down."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Reopener
from jobs.engine.network.transport import Transport
from metrics.common.errors import RedlineError
from tests.support.processes import PATIENCE_S, becomes

SILENT, SOUND = 1, 2


class Opened:
    """A transport as a reopener uses it."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class Brokers:
    """An opener whose connections to `SILENT` get no answer before `ended`, and then fail.

    Attributes:
        calls: connections of each call.
        failures: calls that still fail.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.calls: list[Sequence[Key]] = []
        self.failures = 0
        self.transport = Opened()

    def open(self, wanted: Sequence[Key]) -> Mapping[Key, Transport]:
        self.calls.append(list(wanted))
        if wanted[0][1] == SILENT:
            self.ended.wait()
        self.failures -= 1
        if self.failures >= 0:
            raise RedlineError("refused")
        return dict.fromkeys(wanted, self.transport)  # type: ignore[arg-type]


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    made = Brokers()
    yield made
    made.ended.set()


def taken(reopener: Reopener) -> list[Key]:
    """The next connections that are open."""
    select.select([reopener.fileno()], [], [], PATIENCE_S)
    return [key for key, _ in reopener.take()]


def test_a_silent_broker_delays_no_other(brokers: Brokers) -> None:
    with closing(Reopener(brokers.open)) as reopener:
        reopener.request(("producer", SILENT))
        assert becomes(lambda: bool(brokers.calls))
        reopener.request(("producer", SOUND))
        assert taken(reopener) == [("producer", SOUND)]


def test_a_broker_that_is_down_is_tried_with_one_connection(brokers: Brokers) -> None:
    wanted = [(f"producer-{number}", SILENT) for number in range(3)]
    brokers.failures = 3
    with closing(Reopener(brokers.open)) as reopener:
        reopener.request(wanted[0])
        assert becomes(lambda: bool(brokers.calls))
        for key in (*wanted, wanted[0]):
            reopener.request(key)
        brokers.ended.set()
        found: list[Key] = []  # the two that wait may come with the first one, or after it
        while len(found) < len(wanted):
            found += taken(reopener)
        assert found == wanted
    assert brokers.calls == [wanted[:1]] * 4 + [wanted[1:]]


def test_a_connection_that_opens_after_the_end_is_closed(brokers: Brokers) -> None:
    with closing(Reopener(brokers.open)) as reopener:
        reopener.request(("producer", SILENT))
        assert becomes(lambda: bool(brokers.calls))
    brokers.ended.set()
    assert brokers.transport.closed.wait(PATIENCE_S)
