"""`redline headroom`: production watched, or read from a server, and the errors of its job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.config import load_cluster
from jobs.headroom import headroom
from jobs.runs.headroom import body, history
from jobs.runs.headroom.production import busiest_of_past, past_use, watched
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.headroom.growth import NoForecastLibraryError
from metrics.headroom.today import Today, today_of
from metrics.judging.thresholds import Indicators
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.hosts.source import NoHosts
from metrics.sources.sample import BrokerSample
from metrics.sources.scraper import ScrapeError
from metrics.sources.source import NodeInfo
from tests.support.evidence import START_S, busy_samples
from tests.support.headroom import today_at

OPENED: Any = SimpleNamespace(info=SimpleNamespace(cluster_id="c", hosts={1: "a", 2: "b"}))
NODE = NodeInfo(1, "4.1", frozenset({Role.BROKER}), {})
HOUR_S = 3_600.0


def run_headroom(*options: str) -> None:
    CliRunner().invoke(headroom, options, standalone_mode=False, catch_exceptions=False)


# --- samples ------------------------------------------------------------------


def test_a_minute_of_samples_is_a_window_and_its_parts() -> None:
    samples = busy_samples(62, idle=0.7)
    today = today_of("jmx", samples, (), [1], {}, (START_S, START_S + 60, 1.0))
    (window,) = today.whole.brokers
    assert window.handler_idle == pytest.approx(0.7)
    assert [each.brokers[0].handler_idle for each in today.parts] == pytest.approx([0.7] * 6)
    assert today.bytes_in_per_s == pytest.approx(500_000)


def test_few_samples_are_one_part() -> None:
    today = today_of("jmx", busy_samples(7), (), [1], {}, (START_S, START_S + 5, 1.0))
    assert today.parts == ()


class Source:
    """A source of one broker whose counters grow with each poll, or that fails."""

    name = "driver-jvm"

    def __init__(self, error: str | None = None) -> None:
        self.nodes: Mapping[int, NodeInfo] = {1: replace(NODE, interval_s=0.02)}
        self._error = error
        self._polls = 0

    def sample_all(self) -> list[BrokerSample]:
        import time

        self._polls += 1
        if self._error:
            return [BrokerSample(1, time.time(), {}, self._error)]
        values = {HANDLER_IDLE_NS: 1e7 * self._polls, "bytes_in": 1e6 * self._polls}
        return [BrokerSample(1, time.time(), values)]


def waiting(polls: int, source: Source) -> Any:
    """A wait that ends after some polls of a source."""

    def wait(_: float) -> None:
        for _ in range(2_000):
            if source._polls > polls:
                return
            threading.Event().wait(0.005)
        raise AssertionError("no polls")

    return wait


def test_brokers_are_watched_until_a_sample_after_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.runs.headroom.production.SAMPLE_INTERVAL_S", 0.02)
    source: Any = Source()
    today = watched(OPENED, source, NoHosts(), 0.2, None, waiting(10, source))
    assert today.source == "driver-jvm"
    assert today.whole.brokers[0].bytes_in_per_s
    assert today.machines == {1: "a", 2: "b"}


def test_a_broker_that_does_not_answer_is_no_conclusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.runs.headroom.production.SAMPLE_INTERVAL_S", 0.02)
    source: Any = Source("connection refused")
    with pytest.raises(NoConclusionError, match=r"broker 1 shows no .*refused.*--window"):
        watched(OPENED, source, NoHosts(), 0.2, None, waiting(3, source))


# --- a server's past ----------------------------------------------------------


class Server:
    """The past of two brokers, whose handlers are busiest at some step."""

    name = "prometheus-server"

    def __init__(self, busy: list[float], *, hole: int | None = None, fails: bool = False) -> None:
        self.nodes = {n: replace(NODE, node_id=n, interval_s=15.0) for n in (1, 2)}
        self._busy, self._hole, self._fails = busy, hole, fails

    def past_samples(self, from_s: float, to_s: float, step_s: float) -> list[BrokerSample]:
        if self._fails:
            raise ScrapeError("it is down")
        found, idle_ns, taken = [], 0.0, 0.0
        for step, busy in enumerate(self._busy):
            if step != self._hole:
                values = {HANDLER_IDLE_NS: idle_ns, "bytes_in": taken, "messages_in": taken / 100}
                at_s = to_s - (len(self._busy) - step) * step_s
                found += [BrokerSample(broker, at_s, values) for broker in (1, 2)]
            idle_ns += (1 - busy) * 1e9 * step_s
            taken += busy * 1e6 * step_s
        return found


def test_the_busiest_part_of_the_past_counts() -> None:
    server: Any = Server([0.1, 0.2, 0.5, 0.2, 0.1, 0.0])
    today = busiest_of_past(OPENED, server, START_S, 86_400.0, None)
    assert today is not None
    assert today.whole.brokers[0].handler_idle == pytest.approx(0.5)
    assert today.end_s - today.start_s == 300.0
    assert len(today.parts) == 3
    assert "busiest 5 min of the last 24 h 00 min" in today.note


def test_a_hole_in_the_past_is_left_out() -> None:
    server: Any = Server([0.1, 0.2, 0.5, 0.2, 0.1, 0.0], hole=2)
    today = busiest_of_past(OPENED, server, START_S, 86_400.0, None)
    assert today is not None
    assert today.whole.brokers[0].handler_idle == pytest.approx(0.8)


def test_a_server_without_counts_has_no_past() -> None:
    assert busiest_of_past(OPENED, Server([]), START_S, 86_400.0, None) is None  # type: ignore[arg-type]


def test_a_server_that_does_not_answer_is_no_conclusion() -> None:
    with pytest.raises(NoConclusionError, match="it is down"):
        busiest_of_past(OPENED, Server([], fails=True), START_S, 86_400.0, None)  # type: ignore[arg-type]


def test_the_use_of_the_past_is_that_of_each_hour() -> None:
    server: Any = Server([0.1, 0.2, 0.4, 0.0])

    def share_of(today: Today) -> float | None:
        return 1 - (today.whole.brokers[0].handler_idle or 0)

    found = past_use(server, START_S, share_of, {}, None)
    assert [use for _, use in found] == pytest.approx([0.1, 0.2, 0.4])
    assert found[1][0] - found[0][0] == HOUR_S


# --- history ------------------------------------------------------------------


def answer_at(load: float) -> Any:
    return body._answer(body._KnownLimit("default", Indicators()), today_at(load), None)


def test_a_missing_library_leaves_the_date_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NoForecastLibraryError

    monkeypatch.setattr(history, "growth_of", missing)
    assert history.continued([], answer_at(25.0), START_S) == (None, history.NO_LIBRARY)
    assert "kafka-redline[forecast]" in history.NO_LIBRARY


def test_a_history_has_calls_of_the_same_kind() -> None:
    order = body.HeadroomOrder("prod", (), Path("out"))
    rows = body.rows_of(answer_at(25.0), today_at(25.0), None, order, "default", ("p", OPENED))
    assert [use for _, use in history.of_tables(rows[:1], is_estimate=True)] == pytest.approx(
        [1 / (rows[0].times or 0)]
    )
    assert history.of_tables(rows[:1], is_estimate=False) == []


def test_only_a_server_has_the_use_of_the_past() -> None:
    found = history.of_source(
        Source(), OPENED, answer_at(25.0), today_at(25.0), Indicators(), None  # type: ignore[arg-type]
    )  # fmt: skip
    assert found == []


# --- errors -------------------------------------------------------------------


def test_a_testbed_that_each_run_starts_has_no_traffic() -> None:
    with pytest.raises(ConfigError, match=r"cluster testbed is a testbed.*--cluster"):
        run_headroom("--cluster", "testbed")


def test_a_cluster_is_required() -> None:
    done = CliRunner().invoke(headroom, [])
    assert done.exit_code == 2
    assert "--cluster" in done.output


def test_brokers_without_metrics_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text("bootstrap_servers: [h:9092]\nmetrics: {client_only: true}\n")
    blind = replace(NODE, lacks=(HANDLER_IDLE_NS,))
    source = SimpleNamespace(nodes={1: blind}, close=lambda: None)
    monkeypatch.setattr(body, "open_metrics", lambda *_: source)
    with ExitStack() as stack, pytest.raises(ConfigError, match=r"prod shows no metrics"):
        body._open_sources(load_cluster(str(file)), OPENED, SimpleNamespace(), stack)  # type: ignore[arg-type]


def test_the_limits_of_the_goal_are_those_of_the_run() -> None:
    settings = {
        "goal": {"name": "first", "indicators.request_handler_idle_min": 0.3},
        "goal second": {"indicators.request_handler_idle_min": 0.4, "search.method": "guided"},
    }
    assert body.indicators_of(settings, "first").request_handler_idle_min == 0.3
    assert body.indicators_of(settings, "second").request_handler_idle_min == 0.4
    assert body.indicators_of({}, "first") == Indicators()


@pytest.mark.parametrize(
    ("then", "name", "is_same"),
    [("c", "other", True), ("d", "p", False), ("", "p", True), ("", "other", False)],
)
def test_a_run_of_other_brokers_is_refused(then: str, name: str, is_same: bool) -> None:
    known = body._KnownLimit("default", Indicators(), (), {"cluster.id": then}, name)
    cluster: Any = SimpleNamespace(name="p")
    if is_same:
        body._require_same_cluster("run-1", known, cluster, OPENED)
        return
    with pytest.raises(ConfigError, match=r"run run-1 measured the cluster .*omit --run"):
        body._require_same_cluster("run-1", known, cluster, OPENED)
