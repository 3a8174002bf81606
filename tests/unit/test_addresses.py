"""Connections to a host with many addresses: in turn and side by side, as RFC 8305 describes it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka.net.selector import NetworkSelector

from jobs.engine.network import links
from jobs.engine.network.connections import Connector
from jobs.engine.network.links import Resolved, _begin, alternate_families, dial
from jobs.engine.network.refusals import NoAnswerError, NotReachedError
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import PATIENCE_S

V4, V6 = socket.AF_INET, socket.AF_INET6


def found_at(host: str, port: int, family: int = V4) -> tuple[Any, ...]:
    """An address as `socket.getaddrinfo` returns it."""
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))


class Hosts:
    """Addresses on loopback: of a listener, of a dead zone, and of a port that nothing serves."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def bound(self, host: str, backlog: int | None = None) -> tuple[Any, ...]:
        sock = self.stack.enter_context(socket.socket())
        sock.bind((host, 0))
        if backlog is not None:
            sock.listen(backlog)
        return found_at(*sock.getsockname())

    def dropping(self, host: str) -> tuple[Any, ...]:
        """An address that drops new connections, as its queue of one is full."""
        found = self.bound(host, backlog=0)
        self.stack.enter_context(socket.create_connection(found[4]))
        return found


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(stack)


def dialled(*found: Any, timeout_s: float = PATIENCE_S) -> socket.socket:
    """The connection to the first of these addresses that answers."""
    with closing(NetworkSelector()) as net:
        deadline_s = time.monotonic() + timeout_s
        future = net.call_soon_with_future(dial, net, Resolved(found), [], deadline_s)
        net.poll(future=future)
        if future.exception is not None:
            raise future.exception
        assert isinstance(future.value, socket.socket)
        return future.value


def test_a_dead_address_of_a_name_delays_a_connection_by_a_quarter_of_a_second(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        addresses = [hosts.dropping("127.0.0.2"), found_at("127.0.0.1", cluster.ports[1])]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
        opened = Connector({1: ("balanced", 9092)}, {}, 10.0).open([("producer", 1)])
        with closing(opened["producer", 1]) as transport:
            assert transport.sock.getpeername() == addresses[1][4]


def test_an_address_that_refuses_makes_room_for_the_next_at_once(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ATTEMPT_DELAY_S", PATIENCE_S)
    unroutable = found_at("240.0.0.1", 9, family=9_999)  # a family that no system has
    listening = hosts.bound("127.0.0.1", backlog=8)
    with dialled(unroutable, hosts.bound("127.0.0.2"), listening) as sock:
        assert sock.getpeername() == listening[4]


def test_attempts_run_side_by_side_and_the_slower_ones_are_closed(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ATTEMPT_DELAY_S", 0.0)
    listening = hosts.bound("127.0.0.1", backlog=8)
    silent = [hosts.dropping(f"127.0.0.{last}") for last in (2, 3)]
    begun: list[socket.socket] = []

    def begin(found: Any, options: Any) -> socket.socket:
        begun.append(_begin(found, options))
        return begun[-1]

    monkeypatch.setattr(links, "_begin", begin)
    with dialled(*silent, listening) as sock:
        assert [each.fileno() >= 0 for each in begun] == [False, False, True]
        assert sock is begun[-1]


def test_the_error_names_the_addresses_with_their_reasons(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ATTEMPT_DELAY_S", 0.0)
    refusing = [hosts.bound(f"127.0.0.{last}") for last in (2, 3)]
    with pytest.raises(NotReachedError, match=r"^Connection refused at 127.0.0.2, 127.0.0.3$"):
        dialled(*refusing)
    text = "Connection refused at 127.0.0.2, 127.0.0.3; no answer in time at 127.0.0.4"
    with pytest.raises(NoAnswerError, match=f"^{re.escape(text)}$"):
        dialled(hosts.dropping("127.0.0.4"), *refusing, timeout_s=0.3)


def test_the_order_keeps_that_of_the_system_and_alternates_families() -> None:
    found = [found_at(host, 9, V6) for host in ("::1", "::2", "::3")]
    found[2:2] = [found_at("10.0.0.1", 9)]
    order = [each[4][0] for each in alternate_families(found)]
    assert order == ["::1", "10.0.0.1", "::2", "::3"]
