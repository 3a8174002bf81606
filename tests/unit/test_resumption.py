"""Runs continue where they stopped: the recorded trials lead to the same decisions."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.cli import redline
from jobs.config import load, load_cluster, load_goal, load_recorded
from jobs.runs.resumption import (
    config_text,
    differences,
    other_cluster,
    other_series,
    replay,
    resumed_trials,
)
from metrics.columns import row_of
from metrics.common.errors import ConfigError
from metrics.tables.rows import trial_from
from metrics.tables.schema import SCHEMAS, RunRow
from metrics.tables.store import TableStore
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from search.limits import Limits
from search.line import FinishedPoint, Line, ProducerRate
from search.lines import run_lines
from search.model import Decision, Measure, Observation, Verdict
from tests.support.evidence import START_S
from tests.support.rows import traffic, trial

GOAL = "default"
SIZES = (100, 1_000, 10_000)
ONE_LIMITS = {100: 41, 1_000: 57, 10_000: 66}
LINE = Line(SIZES, ProducerRate(bytes_per_s=250_000.0), Limits(128, 1_000, 0.05, 3), brokers=3)


@dataclass
class Cluster:
    """A measurer that keeps its trials, and knows the last decision, which asked for the next."""

    message_bytes: int
    trials: list[Trial]
    heard: list[Decision]

    def used(self, load: int) -> dict[str, float]:
        """Goal → the used part of its limit."""
        raise NotImplementedError

    def measure(self, load: int) -> dict[str, Observation]:
        judgements = {
            goal: Judgement(
                Verdict.OVERLOADED if each > 1 else Verdict.SUSTAINED,
                (),
                {"request_handler_idle": min(1.25, each), "achieved": 0.0},
            )
            for goal, each in self.used(load).items()
        }
        pattern = traffic(load, self.message_bytes, load=load)
        pattern = replace(pattern, point_message_bytes=self.message_bytes)
        number, last = len(self.trials) + 1, self.heard[-1]
        made = trial(number, pattern=pattern, judgements=judgements, finished_at_s=START_S + 10)
        made = replace(made, checks=isinstance(last, Measure) and last.checks)
        self.trials.append(made)
        return {goal: made.observation(goal) for goal in judgements}

    def hold(self, load: int) -> dict[str, Observation]:
        return self.measure(load)


class OneGoal(Cluster):
    """Handlers whose idle fraction falls with load, with a little noise.

    Their limit is multiplied by `factor` after a number of trials.
    """

    factor, changes_after = 1.0, 0

    def used(self, load: int) -> dict[str, float]:
        made = len(self.trials)
        noise = random.Random(f"{self.message_bytes}/{load}/{made}").gauss(1.0, 0.02)
        limit = ONE_LIMITS[self.message_bytes] * (self.factor if made >= self.changes_after else 1)
        return {GOAL: load / limit * noise}


class TwoGoals(Cluster):
    """The cluster judged by a strict and by a tolerant goal."""

    def used(self, load: int) -> dict[str, float]:
        return {"strict": load / (40.5 + self.message_bytes / 500), "tolerant": load / 75.5}


ONE, BOTH = {GOAL: LINE}, {"strict": LINE, "tolerant": LINE}


def _measure(lines: dict[str, Line], trials: list[Trial]) -> dict[str, list[FinishedPoint]]:
    """Continue a run that has made these trials, and append the others."""
    kind, heard = OneGoal if len(lines) == 1 else TwoGoals, list[Decision]()
    return run_lines(
        lines,
        lambda message_bytes: kind(message_bytes, trials, heard),
        lambda decision, _: heard.append(decision),
        *replay(lines, trials),
    )


@pytest.mark.computes
@pytest.mark.parametrize("lines", [ONE, BOTH], ids=["one goal", "two goals"])
def test_a_run_cut_after_any_trial_has_the_same_end_and_repeats_no_trial(
    lines: dict[str, Line],
) -> None:
    whole: list[Trial] = []
    points = _measure(lines, whole)
    assert all(len(found) == len(SIZES) for found in points.values())
    assert [each.number for each in whole] == list(range(1, len(whole) + 1))
    for cut in range(len(whole) + 1):
        trials = whole[:cut]
        assert _measure(lines, trials) == points
        assert trials == whole


@pytest.mark.computes
def test_a_changed_limit_stays_changed_after_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneGoal, "factor", 0.6)
    monkeypatch.setattr(OneGoal, "changes_after", 9)
    whole: list[Trial] = []
    points = _measure(ONE, whole)
    assert any(point.result.changed for point in points[GOAL])
    assert any(each.checks for each in whole)
    for point in points[GOAL]:
        limit = 0.6 * ONE_LIMITS[point.message_bytes]
        assert point.result.bracket.sustained == pytest.approx(limit, rel=0.1)
    for cut in range(0, len(whole) + 1, 2):
        trials = whole[:cut]
        assert _measure(ONE, trials) == points
        assert trials == whole


def test_trials_of_the_table_are_replayed_as_those_that_were_made(
    snapshot: SnapshotAssertion,
) -> None:
    trials: list[Trial] = []
    _measure(ONE, trials)
    rows = pa.Table.from_pylist([row_of(each) for each in trials[:-1]], schema=SCHEMAS["trials"])
    back = [trial_from(row) for row in rows.to_pylist()]
    assert replay(ONE, back) == replay(ONE, trials[:-1])
    with pytest.raises(ConfigError, match="--resume") as refused:
        replay({GOAL: replace(LINE, sizes=(100,))}, trials)
    assert str(refused.value) == snapshot


def test_differences_name_file_and_key() -> None:
    then = {"goal": {"search.resolution": 0.05, "name": "default"}}
    now = {"goal": {"search.resolution": 0.1, "name": "default"}}
    assert differences(then, now) == ["goal.search.resolution was 0.05 and is 0.1"]
    assert differences(then, then) == []
    raised = {"goal": {**then["goal"], "guards.np_max": 9, "search.budget.trials": 5}}
    assert differences(then, {**then, **raised}) == []


def test_a_run_continues_with_its_own_cluster_only() -> None:
    then = {"cluster.id": "a", "cluster.brokers": "3", "broker.version": "4.1.2"}
    assert other_cluster(then, then | {"driver.cores": "8"}) == []
    assert other_cluster(then, then | {"cluster.id": "b"}) == ["cluster.id was a and is b"]
    assert other_cluster(then, then | {"cluster.id": "b"}, is_new=True) == []
    now = {"cluster.brokers": "2", "broker.version": "4.2.0", "broker.1.version": "4.2.0"}
    assert other_cluster(then, now, is_new=True) == [
        "broker.version was 4.1.2 and is 4.2.0",
        "cluster.brokers was 3 and is 2",
    ]
    assert other_cluster({}, then) == []


def test_a_run_continues_with_the_series_that_it_began_with(snapshot: SnapshotAssertion) -> None:
    config, then = config_text(load("testbed", "quick", GOAL)), {"series.bytes_in": "b_total"}
    row = RunRow("r", "started", 0.0, "c", "w", "g", config=config, environment=then)
    store = cast("TableStore", SimpleNamespace(run_rows=lambda _: [row], trials_of=lambda _: []))
    assert resumed_trials(store, "r", config, then) == []
    assert resumed_trials(store, "r", config, then | {"series.bytes_out": "o"}) == []
    assert resumed_trials(store, "r", config, {}) == []
    with pytest.raises(ConfigError, match="bytes_in was b_total and is b_count") as error:
        resumed_trials(store, "r", config, {"series.bytes_in": "b_count"})
    assert str(error.value) == snapshot
    gone = {"series.messages_in": "m_total"}
    assert other_series(then | gone, gone) == ["bytes_in was b_total and is not shown"]
    one_moved = {"series.1.bytes_in": "b_total", "series.2.bytes_in": "b_count"}
    assert other_series(then, one_moved) == ["bytes_in was b_total and is b_total and b_count"]
    assert other_series(one_moved, one_moved) == []


@pytest.mark.parametrize("cluster", ["testbed", "example"])
@pytest.mark.parametrize("workload", ["demo", "100B-to-100kB"])
@pytest.mark.parametrize("goal", ["default", "strict,tolerant"])
def test_the_recorded_configuration_is_that_of_the_run(
    cluster: str, workload: str, goal: str
) -> None:
    changes = [
        "goal.search.budget.trials=7",
        "workload.payload.kind=mixed",
        "workload.payload.compressibility=0.5",
        "workload.topic.config.retention.bytes=1000000000",
    ]
    own: list[str] = []
    if cluster == "example":
        own = ["cluster.jmx={endpoints: {1: a:9999, 2: b:9999}}"]
        own += ["cluster.planted_handler_ms={1: 5.0}"]
    else:
        changes += ["workload.topic.replication_factor=2"]
        changes += ["workload.topic.config.min.insync.replicas=1"]
    config = load(cluster, workload, goal, changes + own)
    recorded = json.loads(config_text(config))
    assert load_recorded(recorded, overrides=own) == config
    more = load_recorded(recorded, overrides=[*own, "goal.search.budget.trials=9"])
    assert more.goal.search.budget.trials == 9
    assert not differences(recorded, json.loads(config_text(more)))
    assert load_recorded(recorded, goal="default", overrides=own).goals == (load_goal("default"),)


def test_a_run_that_the_folder_does_not_have_is_refused_before_any_file_is_made(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(
        redline, ["find-limit", "--resume", "20261122-210000-ab12", "--out", str(out)]
    )
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).replace(str(out), "OUT") == snapshot
    assert list(tmp_path.iterdir()) == []


HOSTILE = (
    {"bootstrap_servers": ["${HOME_OF_KAFKA}.evil.example:9092"]},
    {"security.protocol": "SASL_PLAINTEXT", "security.sasl_mechanism": "PLAIN",
     "security.username_from": "env:USER", "security.password_from": "file:/etc/hostname"},
    {"security.oauth_token_url": "https://evil.example/token"},
    {"client_properties": "/tmp/evil.properties"},
    {"security.cafile": "/tmp/evil.pem", "security.check_hostname": False},
    {"metrics.prometheus.server": "https://evil.example", "metrics.prometheus.token_from": "env:T"},
    {"metrics.extension.source": "evil", "metrics.extension.options": {"key": "env:AWS_SECRET"}},
    {"testbed.properties": {"metric.reporters": "evil.Reporter"}},
    {"testbed.profile": "/tmp/evil.yaml"},
)  # fmt: skip


@pytest.mark.parametrize("name", ["example", "testbed"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_record_does_not_decide_where_secrets_go(name: str, hostile: dict[str, Any]) -> None:
    """Tables are shared; the connection and its secrets come from the reader's own file."""
    recorded = json.loads(config_text(load(name, "demo", "default")))
    recorded["cluster"] |= hostile
    assert load_recorded(recorded).cluster == load_cluster(name)


def test_an_unknown_key_or_cluster_in_a_record_is_named() -> None:
    recorded = json.loads(config_text(load("example", "demo", "default")))
    recorded["cluster"]["name"] = "../evil"
    with pytest.raises(ConfigError, match="name the file with --cluster"):
        load_recorded(recorded)
    assert load_recorded(recorded, cluster="example").cluster == load_cluster("example")
    recorded["workload"]["producer.gone"] = 1
    with pytest.raises(ConfigError, match=r"the workload that the run recorded: producer"):
        load_recorded(recorded, cluster="example")
