"""Opened and refused connections leave no cycles, as loads run without Python's collector."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer import ProduceRequest

from jobs.engine.network.connections import PRODUCE, open_connections
from metrics.common.errors import RedlineError
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import becomes


@contextmanager
def refusing(_monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextmanager
def silent(_monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr("jobs.engine.network.pacing.PAUSE_MIN_S", 0.01)
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        cluster.connections_max = 0
        yield cluster.ports[1]


@contextmanager
def sound(_monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        yield cluster.ports[1]


@contextmanager
def too_old(_monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        cluster.offered[ProduceRequest] = 5
        yield cluster.ports[1]


def held() -> int:
    """Number of objects that the opening of a connection makes, and that still exist."""
    kinds = (NetworkSelector, KafkaConnection, Future, RedlineError)
    return sum(isinstance(each, kinds) for each in gc.get_objects())


@pytest.mark.parametrize("broker", [refusing, silent, closing, too_old, sound])
def test_nothing_of_an_opening_is_left(
    broker: Callable[[pytest.MonkeyPatch], AbstractContextManager[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps what is logged
    try:
        before = held()
        with broker(monkeypatch) as port, suppress(RedlineError):
            brokers = {1: ("127.0.0.1", port)}
            opened = open_connections([("producer", 1)], brokers, {}, 0.3, apis=[PRODUCE])
            assert broker is sound
            opened["producer", 1].close()
        # Threads of other tests may still end an opening of theirs.
        assert becomes(lambda: held() <= before, 10.0)
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
