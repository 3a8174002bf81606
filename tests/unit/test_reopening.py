"""Reopening of lost connections: brokers beside each other, on one thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from jobs.engine.network.connections import Connector
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Reopener
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import PATIENCE_S

SOUND, SILENT, DOWN = 1, 2, 3


class Places:
    """A sound broker, one that never answers, and a port that nothing serves at first."""

    def __init__(self, stack: ExitStack) -> None:
        self.cluster = stack.enter_context(SimulatedCluster(1, {0: (1,)}))
        self._silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.bound = stack.enter_context(socket.socket())
        self.bound.bind(("127.0.0.1", 0))
        ports = {
            SOUND: self.cluster.ports[1],
            SILENT: self._silent.getsockname()[1],
            DOWN: self.bound.getsockname()[1],
        }
        self.woken = threading.Event()
        brokers = {broker: ("127.0.0.1", port) for broker, port in ports.items()}
        self.reopener = Reopener(Connector(brokers, {}, PATIENCE_S), self.woken.set)
        stack.enter_context(closing(self.reopener))

    def taken(self) -> list[Key]:
        """The next connections that are open."""
        assert self.woken.wait(PATIENCE_S)
        self.woken.clear()
        opened = self.reopener.take()
        for _, transport in opened:
            transport.close()
        return [key for key, _ in opened]


@pytest.fixture
def places() -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(stack)


def test_brokers_that_are_silent_or_down_delay_no_other(places: Places) -> None:
    before = threading.active_count()
    for broker in (SILENT, DOWN, SOUND):
        places.reopener.request(("producer", broker))
    places.reopener.request(("producer", SOUND))
    assert places.taken() == [("producer", SOUND)], "once"
    assert threading.active_count() <= before + 1, "one thread for all"
    places.reopener.request(("producer", SOUND))
    assert places.taken() == [("producer", SOUND)], "lost once more"


def test_connections_to_a_broker_that_comes_back_are_opened(places: Places) -> None:
    wanted = [(f"producer-{number}", SOUND) for number in range(12)]
    places.cluster.connections_max = 0
    refused = threading.Event()
    places.cluster.on_refusal = refused.set
    for key in wanted:
        places.reopener.request(key)
    assert refused.wait(PATIENCE_S)
    places.cluster.connections_max = 100
    found: list[Key] = []
    while len(found) < len(wanted):
        found += places.taken()
    assert sorted(found) == sorted(wanted)
    assert places.reopener.take() == []


def test_nothing_is_opened_after_the_end(places: Places) -> None:
    places.reopener.request(("producer", SILENT))
    places.reopener.close()
    places.reopener.request(("producer", SOUND))
    places.reopener._thread.join(PATIENCE_S)
    assert not places.reopener._thread.is_alive() and not places.woken.is_set()
