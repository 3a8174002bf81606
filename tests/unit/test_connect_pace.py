"""The pace of new connections, against simulated limits, and limits that are named as such."""

from __future__ import annotations

import heapq
import math
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kafka import errors as kafka_errors
from syrupy.assertion import SnapshotAssertion

from jobs.engine.network.connections import (
    BrokerConnectError,
    Connector,
    count_open_to,
    refusals_of,
)
from jobs.engine.network.pacing import SETBACKS_MAX, WINDOW_MAX, Attempt, ConnectPacer
from jobs.engine.network.refusals import NoAnswerError, Refused, is_closed_early
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import PATIENCE_S

ROUND_TRIP_S = 0.005


class Broker:
    """A broker that takes a connection by its limits.

    Args:
        most: largest number of connections; more are closed.
        rate: new connections a second, after a burst of ten seconds' worth.
        closes: whether connections beyond the rate are closed; otherwise they wait.
    """

    def __init__(self, most: float = math.inf, rate: float = math.inf, closes: bool = True) -> None:
        self.most, self.rate, self.closes = most, rate, closes
        self.open, self.attempts, self.in_flight_max = 0, 0, 0
        self._free_s = -10.0

    def take(self, now_s: float) -> tuple[bool, float]:
        """Whether the broker takes a connection, and the time at which the client knows [s]."""
        self.attempts += 1
        answer_s = now_s + ROUND_TRIP_S
        if self.open >= self.most:
            return False, answer_s
        slot_s = max(self._free_s, now_s - 10.0) + 1.0 / self.rate
        if self.closes and slot_s > now_s:
            return False, answer_s
        self._free_s = slot_s
        self.open += 1
        return True, max(answer_s, slot_s)


def open_at(broker: Broker, count: int, seed: int = 1) -> tuple[ConnectPacer, float]:
    """Open connections to a broker; return the pacer and the elapsed time [s]."""
    pacer = ConnectPacer(random.Random(seed))
    pacer.add((f"producer-{i}", 1) for i in range(count))
    now_s, running = 0.0, list[tuple[float, int, Attempt, bool]]()
    while pacer.left and not (pacer.has_given_up and not running):
        for attempt in pacer.due(now_s, WINDOW_MAX):
            taken, known_s = broker.take(now_s)
            heapq.heappush(running, (known_s, broker.attempts, attempt, taken))
        broker.in_flight_max = max(broker.in_flight_max, len(running))
        next_s = pacer.next_s()
        if running and running[0][0] <= next_s:
            now_s, _, attempt, taken = heapq.heappop(running)
            (pacer.opened if taken else pacer.refused)(attempt, now_s)
        else:
            assert math.isfinite(next_s), "nothing is left to wait for"
            now_s = max(now_s, next_s)
    return pacer, now_s


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "waits"])
@pytest.mark.parametrize("rate", [2.0, 20.0, 100.0])
def test_the_pace_follows_a_limit_on_the_rate(rate: float, closes: bool) -> None:
    broker, count = Broker(rate=rate, closes=closes), int(25 * rate)
    pacer, took_s = open_at(broker, count)
    assert pacer.took == count
    assert took_s < 18.0, "of at least 15 s after the burst"
    assert broker.attempts < 3 * count


def test_the_connections_in_flight_are_few_at_a_slow_broker_and_many_without_a_limit() -> None:
    broker = Broker(rate=2.0, closes=False)
    pacer, _ = open_at(broker, 60)
    assert pacer.window < 8
    assert broker.in_flight_max < 30 + 2
    broker = Broker()
    pacer, took_s = open_at(broker, 1_000)
    assert (pacer.took, broker.attempts) == (1_000, 1_000)
    assert took_s < 2 * 1_000 / WINDOW_MAX * ROUND_TRIP_S
    assert broker.in_flight_max == WINDOW_MAX


def test_a_limit_on_the_number_ends_in_seconds_and_few_attempts() -> None:
    broker = Broker(most=40)
    pacer, took_s = open_at(broker, 100)
    assert (pacer.took, pacer.left, pacer.has_given_up) == (40, 60, True)
    assert pacer.setbacks == SETBACKS_MAX
    assert 3.0 < took_s < 15.0
    assert broker.attempts < 140
    again_s, other_s = (open_at(Broker(most=40), 100, seed)[1] for seed in (1, 2))
    assert again_s == took_s != other_s, "jitter comes from the given random generator"
    pacer, none_s = open_at(Broker(most=0), 100)
    assert (pacer.took, pacer.has_given_up) == (0, True)
    assert none_s < 1.0


@contextmanager
def limited(most: int) -> Iterator[tuple[SimulatedCluster, tuple[str, int]]]:
    """A broker that closes connections beyond a total number, and its address."""
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        cluster.connections_max = most
        yield cluster, ("127.0.0.1", cluster.ports[1])


def without_chance(text: str, port: int) -> str:
    """A message without its port, and without the words of the system for a closed connection."""
    return re.sub(r"\(.*?\)", "(CAUSE)", text.replace(str(port), "PORT"))


def test_a_limit_on_connections_is_named_with_their_number(
    snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.engine.network.pacing.PAUSE_MAX_S", 0.05)
    wanted = [(f"producer-{i}", 1) for i in range(20)]
    with limited(12) as (_, at), pytest.raises(BrokerConnectError) as refused:
        Connector({1: at}, {}, PATIENCE_S).open(wanted)
    assert without_chance(str(refused.value), at[1]) == snapshot


def test_connections_that_close_make_room_for_others() -> None:
    wanted = [(f"producer-{i}", 1) for i in range(5)]
    with limited(5) as (cluster, at), ExitStack() as stack:
        cluster.on_refusal = stack.enter_context(socket.create_connection(at)).close
        opened = Connector({1: at}, {}, PATIENCE_S).open(wanted)
        for transport in opened.values():
            stack.callback(transport.close)
    assert len(opened) == 5
    assert cluster.closed >= 1


def test_a_probe_that_is_closed_names_more_causes_than_the_protocol(
    snapshot: SnapshotAssertion,
) -> None:
    with limited(3) as (_, at), ExitStack() as stack:
        late = refusals_of({1: at}, {}, -1.0)[1]
        for _ in range(3):
            stack.enter_context(socket.create_connection(at))
        found = refusals_of({1: at}, {}, PATIENCE_S)
    assert without_chance(found[1], at[1]) == snapshot
    assert "opened no connection within" in late or "no answer" in late


def test_only_refusals_that_a_limit_explains_are_repeated() -> None:
    login = kafka_errors.SaslAuthenticationFailedError
    assert is_closed_early(kafka_errors.KafkaConnectionError("socket disconnected"))
    assert is_closed_early(ConnectionResetError("reset"))
    assert is_closed_early(login("[4f3a]: Too many connects"))
    assert not is_closed_early(login("Invalid username or password"))
    assert not is_closed_early(kafka_errors.KafkaTimeoutError("x"))
    assert not is_closed_early(None)


def test_brokers_that_leave_connections_waiting_have_limits_of_their_own(
    snapshot: SnapshotAssertion,
) -> None:
    found = Refused(took=30, left=10, open_from_here=None, passed_s=200.0)
    silent = found.explain(NoAnswerError("no answer in time"))
    slow = found.explain(RuntimeError("the time for all is over"))
    assert [silent, slow] == snapshot
    none = Refused(took=0, left=10, open_from_here=0, passed_s=1.0)
    assert none.explain(ConnectionResetError()) is None


def test_open_connections_are_counted_in_the_tables_of_the_kernel(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    rows = [
        "   0: 0100007F:C001 0100007F:2384 01 00000000:00000000",
        "   1: 0100007F:C002 0100007F:2384 08 00000000:00000000",  # closed by the peer
        "   2: 0100007F:C003 0100007F:2385 01 00000000:00000000",  # another port
        "   3: 0000000000000000FFFF00000100007F:C004 0000000000000000FFFF00000100007F:2384 01 0",
        "   4: 00000000000000000000000001000000:C5 00000000000000000000000001000000:2384 01 0",
    ]
    table.write_text("\n".join(["  sl  local_address rem_address   st", *rows]), encoding="ascii")
    assert count_open_to({("127.0.0.1", 9092)}, [table]) == 2
    assert count_open_to({("127.0.0.1", 9092), ("::1", 9092)}, [table]) == 3
    assert count_open_to({("127.0.0.1", 9092)}, [tmp_path / "none"]) is None
