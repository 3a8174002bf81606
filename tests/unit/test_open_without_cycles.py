"""Opened and refused connections leave no cycles, as loads run without Python's collector."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer import ProduceRequest

from jobs.engine.network.apis import PRODUCE
from jobs.engine.network.connections import Connector
from metrics.common.errors import RedlineError
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import becomes


@contextmanager
def broker(kind: str) -> Iterator[int]:
    """The port of a broker of this kind."""
    if kind in ("refusing", "silent"):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            if kind == "silent":
                bound.listen()
            yield bound.getsockname()[1]
        return
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        if kind == "closing":
            cluster.connections_max = 0
        elif kind == "too old":
            cluster.offered[ProduceRequest] = 5
        yield cluster.ports[1]


def held() -> int:
    """Number of objects that the opening of a connection makes, and that still exist."""
    kinds = (NetworkSelector, KafkaConnection, Future, RedlineError)
    return sum(isinstance(each, kinds) for each in gc.get_objects())


@pytest.mark.parametrize("kind", ["refusing", "silent", "closing", "too old", "sound"])
def test_nothing_of_an_opening_is_left(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.engine.network.pacing.PAUSE_MIN_S", 0.01)
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps what is logged
    try:
        before = held()
        with broker(kind) as port, suppress(RedlineError):
            brokers = {1: ("127.0.0.1", port)}
            opened = Connector(brokers, {}, 0.3, apis=[PRODUCE]).open([("producer", 1)])
            assert kind == "sound"
            opened["producer", 1].close()
        # Threads of other tests may still end an opening of theirs.
        assert becomes(lambda: held() <= before, 10.0)
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
