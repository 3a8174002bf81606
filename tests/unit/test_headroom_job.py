"""`redline headroom`: production watched, or read from a server, and the errors of its job."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.config import load_cluster
from jobs.features.headroom import estimate
from jobs.features.headroom.estimate import Production
from jobs.headroom import headroom
from metrics.columns import row_of
from metrics.common.errors import ConfigError, HeadroomError, NoConclusionError
from metrics.features.headroom.growth import DAY_S, NoForecastLibraryError
from metrics.features.headroom.limits import Today, today_of
from metrics.judging.thresholds import Indicators
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.hosts.host_sample import NoHosts
from metrics.sources.http_access import ScrapeError
from metrics.sources.sample import BrokerSample
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.source import NodeInfo
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import HeadroomRow
from metrics.tables.schema import RunRow
from tests.support.commands import ROOT
from tests.support.evidence import START_S, busy_samples
from tests.support.headroom import boundary, headroom_row, today_at, trials_at

OPENED: Any = SimpleNamespace(info=SimpleNamespace(cluster_id="c", hosts={1: "a", 2: "b"}))
NODE = NodeInfo(1, "4.1", frozenset({Role.BROKER}), {})
HOUR_S = 3_600.0


def production(source: Any) -> Production:
    return Production(OPENED, source, NoHosts())


# --- samples ------------------------------------------------------------------


def test_a_minute_of_samples_is_a_window_and_its_parts() -> None:
    samples = busy_samples(62, idle=0.7)
    today = today_of("jmx", samples, (), [1], {}, (START_S, START_S + 60, 1.0))
    (window,) = today.whole.brokers
    assert window.handler_idle == pytest.approx(0.7)
    assert [each.brokers[0].handler_idle for each in today.parts] == pytest.approx([0.7] * 6)
    assert today.bytes_in_per_s == pytest.approx(500_000)
    few = today_of("jmx", busy_samples(7), (), [1], {}, (START_S, START_S + 5, 1.0))
    assert few.parts == ()


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


def test_brokers_are_watched_until_a_sample_after_the_window() -> None:
    source: Any = Source()
    today = production(source).watched(0.2, waiting(10, source), 0.02)
    assert today.source == "driver-jvm"
    assert today.whole.brokers[0].bytes_in_per_s
    assert today.machines == {1: "a", 2: "b"}
    source = Source("connection refused")
    with pytest.raises(NoConclusionError, match=r"broker 1 has no .*refused.*--window"):
        production(source).watched(0.2, waiting(3, source), 0.02)


# --- a server's past ----------------------------------------------------------


class Server(PrometheusServerSource):
    """The past of two brokers, whose handlers are busiest at some step."""

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
    def busiest(busy: list[float], **options: Any) -> Today | None:
        return production(Server(busy, **options)).busiest_of_past(START_S, 86_400.0)

    today = busiest([0.1, 0.2, 0.5, 0.2, 0.1, 0.0])
    assert today is not None
    assert today.whole.brokers[0].handler_idle == pytest.approx(0.5)
    assert today.end_s - today.start_s == 300.0
    assert len(today.parts) == 3
    assert "busiest 5 min in the last 24 h 00 min" in today.note
    with_hole = busiest([0.1, 0.2, 0.5, 0.2, 0.1, 0.0], hole=2)
    assert with_hole is not None
    assert with_hole.whole.brokers[0].handler_idle == pytest.approx(0.8)
    assert busiest([]) is None
    with pytest.raises(NoConclusionError, match="it is down"):
        busiest([], fails=True)


# --- history ------------------------------------------------------------------


def answer_at(load: float) -> Any:
    return estimate._answer(estimate._KnownLimit("default", Indicators()), today_at(load), None)


def test_a_missing_library_leaves_the_date_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NoForecastLibraryError

    monkeypatch.setattr(estimate, "growth_of", missing)
    assert estimate.continued([], answer_at(25.0), START_S) == (None, estimate.NO_LIBRARY)
    assert "kafka-redline[forecast]" in estimate.NO_LIBRARY


def test_the_past_of_a_server_is_the_use_of_what_gives_out_first_in_each_hour() -> None:
    """The use of the handlers over their limit of 80 %, without what they use at rest."""
    answer = answer_at(25.0)
    answer = replace(answer, rows=(replace(answer.first, at_rest=0.1),))
    rest, limit = answer.first.at_rest, answer.first.limit
    assert answer.first.resource == "request handlers"

    def past(source: Any, answer: Any = answer) -> list[tuple[float, float]]:
        return estimate.of_source(production(source), answer, today_at(25.0), Indicators())

    found = past(Server([0.2, 0.4, 0.0]))
    expected = [(busy - rest) / (limit - rest) for busy in (0.2, 0.4)]
    assert [use for _, use in found] == pytest.approx(expected)
    assert found[1][0] - found[0][0] == HOUR_S
    in_bytes = replace(answer, rows=(replace(answer.first, unit="B/s"),))
    assert past(Server([0.2, 0.4, 0.0]), in_bytes) == past(Source()) == []


# --- errors -------------------------------------------------------------------


def test_a_cluster_is_required_and_a_testbed_that_each_run_starts_has_no_traffic() -> None:
    done = CliRunner().invoke(headroom, [])
    assert (done.exit_code, "--cluster" in done.output) == (2, True)
    with pytest.raises(ConfigError, match=r"cluster testbed is a testbed.*--cluster"):
        CliRunner().invoke(
            headroom, ["--cluster", "testbed"], standalone_mode=False, catch_exceptions=False
        )


def test_brokers_without_metrics_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text("bootstrap_servers: [h:9092]\nmetrics: {client_only: true}\n")
    blind = replace(NODE, lacks=(HANDLER_IDLE_NS,))
    source = SimpleNamespace(nodes={1: blind}, close=lambda: None)
    monkeypatch.setattr(estimate, "open_metrics", lambda *_: source)
    with ExitStack() as stack, pytest.raises(ConfigError, match=r"prod has no metrics"):
        estimate._open_sources(load_cluster(str(file)), OPENED, SimpleNamespace(), stack)  # type: ignore[arg-type]


def test_the_limits_of_the_goal_are_those_of_the_run() -> None:
    settings = {
        "goal": {"name": "first", "indicators.request_handler_idle_min": 0.3},
        "goal second": {"indicators.request_handler_idle_min": 0.4, "search.method": "guided"},
    }
    assert estimate.indicators_of(settings, "first").request_handler_idle_min == 0.3
    assert estimate.indicators_of(settings, "second").request_handler_idle_min == 0.4
    assert estimate.indicators_of({}, "first") == Indicators()


@pytest.mark.parametrize(
    ("then", "name", "is_same"),
    [("c", "other", True), ("d", "p", False), ("", "p", True), ("", "other", False)],
)
def test_a_run_of_other_brokers_is_refused(then: str, name: str, is_same: bool) -> None:
    run: Any = SimpleNamespace(run_id="run-1", environment={"cluster.id": then}, cluster=name)
    cluster: Any = SimpleNamespace(name="p")
    text = r"run run-1 measured the cluster .*omit --run"
    with nullcontext() if is_same else pytest.raises(ConfigError, match=text):
        estimate.require_same_cluster(run, cluster, OPENED)


# --- the whole job ------------------------------------------------------------


class Store:
    """Tables in memory: rows of one run, and what is appended."""

    def __init__(self, *_: object) -> None:
        self.appended: list[HeadroomRow] = []

    def open(self) -> Store:
        return self

    def headroom(self, cluster_id: str) -> list[HeadroomRow]:
        found = [row for row in self.appended if row.is_first and row.cluster_id == cluster_id]
        return sorted(found, key=lambda row: row.at_s)

    def append_headroom(self, rows: list[HeadroomRow]) -> None:
        self.appended += rows

    def settle(self) -> None: ...

    def close(self) -> None: ...


RUN = RunRow(
    "run-1", "finished", START_S, "prod", "demo", "default", 2,
    config='{"goal": {"indicators.request_handler_idle_min": 0.2}}',
    environment={"cluster.id": "c"},
)  # fmt: skip


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """The tables of a run whose limit is 100 producers, and production at 25 of them."""
    kept = Store()
    point = BoundaryRow("run-1", START_S, "prod", "demo", boundary())
    rows = ([row_of(RUN)], [row_of(point)], trials_at(40, 80, 100, 105))
    parts: dict[str, Any] = {
        "open_spark": lambda _: SimpleNamespace(),
        "TableStore": lambda *_: kept,
        "read_rows": lambda *_: rows,
        "open_cluster": lambda *_: OPENED,
        "require_sources": lambda *_: None,
        "_open_sources": lambda *_: production(Source()),
    }
    monkeypatch.setattr(Production, "watched", lambda *_: today_at(25.0, 20.0))
    for name, part in parts.items():
        monkeypatch.setattr(estimate, name, part)
    (tmp_path / "out" / "tables").mkdir(parents=True)
    (tmp_path / "prod.yaml").write_text("bootstrap_servers: [h:9092]\njmx: {port: 9999}\n")
    return kept


def answered(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """The output of the job, and its answer for programs."""
    file = folder / "headroom.json"
    places = [f"--cluster={folder}/prod.yaml", f"--out={folder}/out", f"--json={file}"]
    given = [*places, *options]
    done = CliRunner().invoke(headroom, given, standalone_mode=False, catch_exceptions=False)
    return done.output, json.loads(file.read_text())


def test_the_answer_is_shown_appended_and_written(store: Store, tmp_path: Path) -> None:
    text, document = answered(tmp_path, "--run=run-1")
    for part in (
        "4.0 times today's traffic",
        "the first exhausted resource is broker 1's request handlers",
        "assumption: ",
        "no date: the history of this cluster has 1 day;",
    ):
        assert part in text
    assert document["times"] == pytest.approx(4.0, rel=0.03)
    assert document["times_low"] < 4.0 < document["times_high"]
    assert (document["run_id"], document["is_estimate"]) == ("run-1", False)
    assert document["growth"] is None
    assert len(store.appended) == len(document["rows"])
    first = store.appended[0]
    assert first.is_first and not any(row.is_first for row in store.appended[1:])
    assert (first.headroom.broker_id, first.cluster, first.cluster_id) == (1, "prod", "c")
    assert {row.headroom_id for row in store.appended} == {document["headroom_id"]}
    page = (ROOT / "docs" / "headroom.md").read_text(encoding="utf-8")
    programs = page.partition("## For programs")[2]
    stated = {"headroom_id", "at", "cluster", "cluster_id", "run_id", "goal", "source", "window_s"}
    named = {key for key in document if f"`{key}`" in programs}
    assert document.keys() - named == {*stated, "level"}, "keys that the page lacks"


def test_runs_without_an_answer_for_the_goal_are_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"has the goals default, and --goal is strict"):
        answered(tmp_path, "--run=run-1", "--goal=strict")
    point = BoundaryRow("run-1", START_S, "prod", "demo", boundary(gave_up="the budget is spent"))
    monkeypatch.setattr(estimate, "read_rows", lambda *_: ([row_of(RUN)], [row_of(point)], []))
    with pytest.raises(NoConclusionError, match="run-1 has no closed bracket"):
        answered(tmp_path, "--run=run-1")
    assert store.appended == []


def test_too_little_headroom_is_exit_code_4_after_the_append(store: Store, tmp_path: Path) -> None:
    with pytest.raises(HeadroomError, match="at least 5 times") as error:
        answered(tmp_path, "--run=run-1", "--fail-below=5")
    assert error.value.exit_code == 4
    assert store.appended
    assert json.loads((tmp_path / "headroom.json").read_text())["is_enough"] is False
    _, document = answered(tmp_path, "--run=run-1", "--fail-below=3.5")
    assert document["is_enough"] is True
    store.appended.clear()
    text, document = answered(tmp_path)
    assert "estimated from thresholds, without a run: " in text
    assert document["is_estimate"] and document["run_id"] is None
    assert store.appended and all(row.is_estimate for row in store.appended)


def test_a_history_of_calls_has_a_date(store: Store, tmp_path: Path) -> None:
    for day in range(20):
        use = 0.25 * 1.05 ** (day - 20)
        at_s = START_S + 60 + (day - 20) * DAY_S
        kinds = {False: 1 / use, True: 2.0}  # estimates are of another kind, and do not count
        store.appended += [
            headroom_row("run-1", at_s=at_s, cluster_id="c", times=times, is_estimate=kind)
            for kind, times in kinds.items()
        ]
    text, document = answered(tmp_path, "--run=run-1")
    assert "with a probability of 50 %, and before" in text
    assert document["growth"]["per_day"] == pytest.approx(0.05, rel=0.05)
    assert document["growth"]["days"] == pytest.approx(28, abs=4)
    first = store.headroom("c")[-1]
    assert first.full_at_s == pytest.approx(first.at_s + document["growth"]["days"] * DAY_S)
    assert first.growth_per_day == pytest.approx(0.05, rel=0.05)


def test_an_idle_cluster_is_exit_code_3(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Production, "watched", lambda *_: today_at(0.0, 0.0))
    with pytest.raises(NoConclusionError, match=r"idle: .*--window") as error:
        answered(tmp_path, "--run=run-1")
    assert error.value.exit_code == 3
    assert store.appended == []


def test_missing_tables_are_named_before_spark_starts(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/tables does not exist.*--tables"):
        answered(tmp_path, "--run=run-1", f"--out={tmp_path}/none")


def test_a_past_that_cannot_be_read_leaves_todays_answer(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise NoConclusionError("the history of the brokers cannot be read: it is down")

    monkeypatch.setattr(estimate, "of_source", fails)
    text, document = answered(tmp_path, "--run=run-1")
    assert "cannot be read: it is down" in text + capfd.readouterr().err
    assert document["times"] == pytest.approx(4.0, rel=0.03)
    assert "the history of this cluster has 1 day" in text
