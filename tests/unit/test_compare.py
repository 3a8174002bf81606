"""`redline compare` without brokers: its sides, its plan, its sentences and its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click.testing
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.compare import compare
from jobs.console.events import Level, Notice, RecordingReporter
from jobs.features.compare.answer import (
    CaseComparer,
    ComparedSize,
    ComparisonAnswer,
    Effort,
    SideFacts,
    answer_of,
    caveats_of_sides,
    outcome_with,
    write_answer,
)
from jobs.features.compare.body import (
    ComparisonRun,
    bound_table,
    differences_table,
    effects_table,
    sentence,
    sentences,
)
from jobs.features.compare.sides import (
    SideSetup,
    load_sides,
    needed_bytes,
    require_memory,
    settings_of,
    share_brokers,
)
from jobs.runs.context_factory import RunOrder
from jobs.runs.estimate import TimeBudget
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome
from jobs.setup.preflight import Machine
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.effects import Conclusion, Side
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.frozen import lost_keys
from tests.support.rows import trial
from tests.support.two_sides import TwoSides

ENVIRONMENT = {"broker.version": "4.1.2", "broker.config.num.io.threads": "2"}


def facts(**environment: str) -> dict[Side, SideFacts]:
    a = SideFacts("num.io.threads=2", "id-a", "testbed", 1, ENVIRONMENT)
    changed = {**ENVIRONMENT, "broker.config.num.io.threads": "1", **environment}
    return {Side.A: a, Side.B: replace(a, run_id="id-b", environment=changed)}


def answer(a: float, b: float, pairs: int = 4) -> ComparisonAnswer:
    case = ComparedSize(1_000)
    sides = TwoSides({Side.A: a, Side.B: b}, noise=0.01)
    CaseComparer(sides, Effort(pairs, 3), 128.0, 10_000.0).measure(case)
    return answer_of(facts(), [case], 0.05)


def test_values_of_settings_may_contain_commas() -> None:
    assert settings_of("kafka=3.9.2") == {"kafka": "3.9.2"}
    assert settings_of("a.b=1,2, c.d=x") == {"a.b": "1,2", "c.d": "x"}
    assert settings_of("testbed") is None
    for wrong in ("=1", "a.b=", "a.b=1,a.b=2"):
        with pytest.raises(ConfigError, match="expected settings such as"):
            settings_of(wrong)


def setups(a: str, b: str, *overrides: str, cluster: str = "testbed") -> dict[Side, SideSetup]:
    return load_sides({Side.A: a, Side.B: b}, cluster, "1kB", "default", overrides)


def test_settings_change_the_testbed_of_one_side(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("testbed:\n  profile: default\n  brokers: 2\n")
    a, b = setups(str(file), "num.io.threads=2", "cluster.testbed.brokers=2").values()
    for setup, properties in ((a, {}), (b, {"num.io.threads": "2"})):
        testbed = setup.config.cluster.testbed
        assert testbed is not None and setup.config.workload.trial.early_end_error_rate == 0
        assert (testbed.brokers, dict(testbed.properties)) == (2, properties)


def test_wrong_sides_are_refused_before_anything_is_started() -> None:
    along = ("goal.search.axis=partitions", "goal.search.load_cap=1000", "workload.np=4")
    for sides, overrides, words in (
        (("kafka=2.7.0", "kafka=4.1.2"), (), "kafka_version"),
        (("testbed", "testbed"), along, "axis np"),
        (("foo", "testbed"), (), "--a foo is neither a setting nor a cluster; expected"),
        (("producer.acks=1", "producer.acks=all"), (),
         r"--a sets producer\.acks.*mean workload\.producer\.acks"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            setups(*sides, *overrides)
    with pytest.raises(ConfigError, match="not a testbed"):
        setups("kafka=3.9.2", "kafka=4.1.2", cluster="example")


def test_testbeds_that_do_not_fit_beside_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:    4000000 kB\n")
    small = Machine({}, proc=tmp_path, cgroup=tmp_path)
    with pytest.raises(ConfigError, match=r"4\.1 GB of memory.*need 8\.6 GB.*brokers=1"):
        require_memory(setups("testbed", "testbed"), small)


def test_a_dry_run_shows_the_plan_and_starts_nothing() -> None:
    options = ["--a", "kafka=3.9.2", "--b", "kafka=4.3.1", "--dry-run", "--pairs", "6"]
    done = click.testing.CliRunner().invoke(compare, options)
    assert done.exit_code == 0
    parts = ("A is kafka=3.9.2", "B is kafka=4.3.1", "6 pairs", "21 trials", "with all replicas")
    assert [part for part in parts if part not in done.output] == []


def test_a_loss_is_reported_with_its_cause() -> None:
    found = answer(10.0, 8.0)
    (case,) = found.cases
    assert case.conclusion is Conclusion.REGRESSION
    assert "regression: B takes 2" in sentence(case, 0.05)
    assert case.cause is not None and case.cause.slower == "B"
    row = effects_table(found).rows[0]
    assert row[:4] == ("1 kB", "capacity [MB/s/broker]", "10.0", "8.00")
    assert row[-1] == "4"
    assert len(bound_table(found).rows) == 4
    table = differences_table(found.differences)
    assert table is not None and table.rows == (("num.io.threads", "2", "1"),)
    (gain,) = answer(8.0, 10.0).cases
    assert gain.conclusion is Conclusion.IMPROVEMENT
    assert gain.cause is not None and gain.cause.slower == "A"


def test_an_answer_without_a_difference_is_a_sentence(snapshot: SnapshotAssertion) -> None:
    (none,), (few,) = answer(10.0, 10.0).cases, answer(10.0, 5.0, pairs=2).cases
    assert (none.conclusion, none.cause) == (Conclusion.NONE_SEEN, None)
    assert few.conclusion is Conclusion.NO_ANSWER
    assert [sentence(each, 0.05) for each in (none, few)] == snapshot


def test_the_file_holds_the_whole_answer(tmp_path: Path) -> None:
    found, file = answer(10.0, 8.0), tmp_path / "compare.json"
    write_answer(found, {"compare_id": "id", "status": "done"}, file)
    document = json.loads(file.read_text())
    assert not lost_keys("compare.json", document)
    assert document["compare_id"] == "id"
    assert (document["a"]["run_id"], document["b"]["run_id"]) == ("id-a", "id-b")
    (case,) = document["cases"]
    assert case["conclusion"] == "regression"
    assert case["capacity"]["measure"] == "capacity_mb_per_s_per_broker"
    assert case["capacity"]["effect"]["ratio"] == pytest.approx(0.8, abs=0.03)
    assert len(case["capacity"]["pairs"]) == len(case["trials"]["saturated"]) == 4
    assert case["bound"]["b"]["resource"] == "disk"
    assert case["cause"]["slower"] == "B"
    assert document["differences"] == [{"name": "broker.config.num.io.threads", "a": "2", "b": "1"}]
    # An end before both sides were open.
    write_answer(ComparisonAnswer({Side.A: facts()[Side.A]}, (), (), 0.05), {}, file)
    document = json.loads(file.read_text())
    assert (document["a"]["label"], document["b"]) == ("num.io.threads=2", None)


def test_both_sides_are_named_by_release_and_place_of_metadata() -> None:
    found = answer(10.0, 8.0)
    old = {"broker.version": "3.6.2", "broker.config.zookeeper.connect": "127.0.0.1:2181"}
    new = {"broker.version": "4.1.2", "broker.config.process.roles": "broker"}
    for a, b, words in (
        (old, new, "A is Kafka 3.6.2 with ZooKeeper; B is Kafka 4.1.2 with KRaft"),
        (new, new, "both sides are Kafka 4.1.2 with KRaft"),
        ({}, new, "A is of unknown release; B is Kafka 4.1.2 with KRaft"),
    ):
        sides = {
            side: replace(found.sides[side], environment=environment)
            for side, environment in ((Side.A, a), (Side.B, b))
        }
        *_, last = sentences(replace(found, sides=sides))
        assert last == words


def test_answer_page_and_file_show_a_caveat_of_either_side(tmp_path: Path) -> None:
    elections, uneven = "elections do not show", "leaders uneven: 14 at most, 10 on average"
    both = {Side.A: (elections,), Side.B: (elections, uneven)}
    assert caveats_of_sides(both) == [elections, f"B: {uneven}"]
    assert caveats_of_sides({Side.A: (uneven,)}) == [uneven]
    body = ComparisonRun(setups("num.io.threads=2", "num.io.threads=1"), Effort(4, 3), 0.05)
    reporter = RecordingReporter()
    order = RunOrder(tmp_path, reporter=reporter, run_id="id")
    order.folder.mkdir()
    contexts: dict[str, Any] = {
        side: SimpleNamespace(
            run_id=f"id-{side}", brokers=1, environment=ENVIRONMENT, all_caveats=caveats
        )
        for side, caveats in (("a", ()), ("b", (uneven,)))
    }
    run = RunState(order, contexts)
    body.fail(run, KeyboardInterrupt())
    body.conclude(run, RunOutcome())
    document = json.loads((order.folder / "compare.json").read_text())
    assert document["caveat"].endswith(f"; B: {uneven}")
    assert document["b"]["caveats"] == [uneven]
    assert f"B: {uneven}" in (order.folder / "compare.html").read_text(encoding="utf-8")
    notices = [event for event in reporter.events if isinstance(event, Notice)]
    warnings = [event.text for event in notices if event.level is Level.WARNING]
    assert warnings == [f"caveat: B: {uneven}"]


def test_the_exit_code_is_that_of_the_answer() -> None:
    for b, pairs, code in ((8.0, 4, 4), (10.0, 4, 0), (12.0, 4, 0), (10.0, 2, 3)):
        outcome = outcome_with(answer(10.0, b, pairs))
        assert outcome.exit_code == code
        assert (outcome.error is None) == (code != 3)


def test_sides_that_differ_in_the_workload_alone_load_the_same_brokers() -> None:
    keys = ("workload.producer.acks=1", "workload.producer.acks=all")
    alike = setups(*keys)
    assert [each.config.workload.producer.acks for each in alike.values()] == ["1", "all"]
    first, second = (each.settings for each in alike.values())
    assert {key for key in first if first[key] != second[key]} == {"workload.producer.acks"}
    assert share_brokers(alike) and share_brokers(setups(*keys, cluster="example"))
    assert not share_brokers(setups("num.io.threads=1", "num.io.threads=2"))
    same = setups("testbed", "testbed")
    assert not share_brokers(same), "the method against itself"
    assert needed_bytes(alike) < needed_bytes(same)
    # The only thing that differs is the cause.
    case = ComparedSize(1_000)
    sides = TwoSides({Side.A: 10.0, Side.B: 8.0}, noise=0.01)
    CaseComparer(sides, Effort(4, 3), 128.0, 1e4).measure(case)
    a, b = (
        SideFacts(
            label, f"id-{label}", "testbed", 1, ENVIRONMENT, {"workload.producer.acks": label}
        )
        for label in ("1", "all")
    )
    (found,) = answer_of({Side.A: a, Side.B: b}, [case], 0.05).cases
    assert found.cause is not None
    assert "workload.producer.acks is all on B and 1 on A" in found.cause.text
    assert "nothing else that was compared differs" in found.cause.text


@pytest.mark.parametrize(
    "setting",
    [
        "workload.message_bytes=[100]",
        "goal.search.axis=rate",
        "workload.producer.rate_bytes_per_s=9",
    ],
)
def test_keys_that_choose_the_load_must_be_the_same_on_both_sides(
    setting: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as error:
        setups("kafka=4.1.2", setting)
    assert str(error.value) == snapshot


def test_an_invalid_trial_is_repeated_as_often_as_the_goal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def hold(*given: Any) -> Trial:
        made.append(given[-1])
        invalid = replace(trial().judgement, verdict=Verdict.INVALID)
        return trial(judgements={"default": invalid})

    sides = setups("num.io.threads=2", "num.io.threads=1", "goal.search.invalid_repeats_max=4")
    body = ComparisonRun(sides, Effort(4, 3), 0.05)
    monkeypatch.setattr(body, "_hold", hold)
    monkeypatch.setattr(body, "_highest_load", lambda *_: (100.0, "goal.search.load_cap"))
    order = RunOrder(tmp_path, reporter=RecordingReporter(), run_id="id")
    run = RunState(order, {"a": SimpleNamespace(brokers=3)})  # type: ignore[dict-item]
    (turn,) = next(body.schedule())
    with pytest.raises(NoConclusionError, match="no load saturates side A"):
        body.measure_turn(run, turn, TimeBudget(None))
    assert len(made) == 1 + 4
