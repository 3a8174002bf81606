"""Names of brokers' hosts: one look-up for all connections, within a deadline."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.engine.network.connections import BrokerConnectError, Connector
from tests.support.processes import PATIENCE_S

LOOPBACK = socket.getaddrinfo("127.0.0.1", 9, socket.AF_UNSPEC, socket.SOCK_STREAM)


class NameService:
    """A name service that knows `known`, never answers for `silent`, and counts look-ups."""

    def __init__(self) -> None:
        self.lookups: Counter[str] = Counter()
        self.ended = threading.Event()

    def getaddrinfo(self, host: str, *_rest: Any) -> list[Any]:
        self.lookups[host] += 1
        if host == "known":
            return LOOPBACK
        if host == "silent":
            self.ended.wait()
        raise socket.gaierror(-2, "Name or service not known")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameService]:
    service = NameService()
    monkeypatch.setattr(socket, "getaddrinfo", service.getaddrinfo)
    yield service
    service.ended.set()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("unknown", "broker 1 at unknown:9092: the name of the broker's host cannot be resolved"),
        ("silent", "no answer from the name service"),
        ("known", "the broker accepts no connection"),
    ],
)
def test_many_connections_share_one_look_up_and_fail_with_the_reason(
    names: NameService, host: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        at = (*LOOPBACK[0][:4], held.getsockname())
        monkeypatch.setattr("tests.unit.test_names.LOOPBACK", [at])
        wanted = [(f"producer-{number}", 1) for number in range(100)]
        timeout_s = 0.5 if host == "silent" else PATIENCE_S  # the others have their answers at once
        with pytest.raises(BrokerConnectError, match=reason):
            Connector({1: (host, 9092)}, {}, timeout_s).open(wanted)
    assert names.lookups == {host: 1}
