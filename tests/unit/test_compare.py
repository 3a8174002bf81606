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
from jobs.runs.options import RunOptions
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


@pytest.mark.parametrize("wrong", ["=1", "a.b=", "a.b=1,a.b=2"])
def test_malformed_settings_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="expected settings such as"):
        settings_of(wrong)


def sides(a: str, b: str, *overrides: str, cluster: str = "testbed") -> dict[Side, str]:
    made = load_sides({Side.A: a, Side.B: b}, cluster, "1kB", "default", overrides)
    found = {}
    for side, setup in made.items():
        testbed = setup.config.cluster.testbed
        assert testbed is not None
        assert setup.config.workload.trial.early_end_error_rate == 0
        found[side] = f"{testbed.kafka_version} {testbed.brokers} {dict(testbed.properties)}"
    return found


def test_settings_change_the_testbed_of_one_side() -> None:
    found = sides("kafka=3.9.2", "num.io.threads=2", "cluster.testbed.brokers=2")
    assert found == {Side.A: "3.9.2 2 {}", Side.B: "4.1.2 2 {'num.io.threads': '2'}"}


def test_a_side_may_be_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("testbed:\n  profile: default\n  brokers: 2\n")
    assert sides(str(file), "testbed")[Side.A] == "4.1.2 2 {}"


def test_settings_need_a_testbed() -> None:
    with pytest.raises(ConfigError, match="no testbed"):
        sides("kafka=3.9.2", "kafka=4.1.2", cluster="example")


def test_a_wrong_setting_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ConfigError, match="kafka_version"):
        sides("kafka=2.7.0", "kafka=4.1.2")


def test_another_axis_is_refused() -> None:
    along = ("goal.search.axis=partitions", "goal.search.load_cap=1000", "workload.np=4")
    with pytest.raises(ConfigError, match="axis np"):
        sides("testbed", "testbed", *along)


def test_testbeds_that_do_not_fit_beside_each_other_are_refused(tmp_path: Path) -> None:
    made = load_sides({Side.A: "testbed", Side.B: "testbed"}, "testbed", "1kB", "default", ())
    (tmp_path / "meminfo").write_text("MemAvailable:    4000000 kB\n")
    small = Machine({}, proc=tmp_path, cgroup=tmp_path)
    with pytest.raises(ConfigError, match=r"4\.1 GB of memory.*need 8\.6 GB.*brokers=1"):
        require_memory(made, small)


def test_a_dry_run_shows_the_plan_and_starts_nothing() -> None:
    options = ["--a", "kafka=3.9.2", "--b", "kafka=4.3.1", "--dry-run", "--pairs", "6"]
    done = click.testing.CliRunner().invoke(compare, options)
    assert done.exit_code == 0
    for part in (
        "A is kafka=3.9.2",
        "B is kafka=4.3.1",
        "6 pairs",
        "21 trials",
        "written with all replicas",
    ):
        assert part in done.output


def test_a_loss_is_reported_with_its_cause() -> None:
    found = answer(10.0, 8.0)
    (case,) = found.cases
    assert case.conclusion is Conclusion.REGRESSION
    assert "regression: B takes 2" in sentence(case, 0.05)
    assert case.cause is not None
    assert case.cause.slower == "B"
    row = effects_table(found).rows[0]
    assert row[:4] == ("1 kB", "capacity [MB/s/broker]", "10.0", "8.00")
    assert row[-1] == "4"
    assert len(bound_table(found).rows) == 4
    table = differences_table(found.differences)
    assert table is not None
    assert table.rows == (("num.io.threads", "2", "1"),)


def test_a_gain_is_explained_by_the_limiting_resource_of_a() -> None:
    found = answer(8.0, 10.0)
    assert found.cases[0].conclusion is Conclusion.IMPROVEMENT
    assert found.cases[0].cause is not None
    assert found.cases[0].cause.slower == "A"


def test_no_difference_states_the_smallest_visible_loss(snapshot: SnapshotAssertion) -> None:
    (case,) = answer(10.0, 10.0).cases
    assert case.conclusion is Conclusion.NONE_SEEN
    assert case.cause is None
    assert sentence(case, 0.05) == snapshot


def test_too_few_pairs_are_reported(snapshot: SnapshotAssertion) -> None:
    found = answer(10.0, 5.0, pairs=2)
    assert [each.conclusion for each in found.cases] == [Conclusion.NO_ANSWER]
    text = sentence(found.cases[0], 0.05)
    assert "2 pairs" in text and "3 are needed" in text
    assert text == snapshot


def test_the_file_holds_the_whole_answer(tmp_path: Path) -> None:
    found = answer(10.0, 8.0)
    write_answer(found, {"compare_id": "id", "status": "done"}, tmp_path / "compare.json")
    document = json.loads((tmp_path / "compare.json").read_text())
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


def test_both_sides_are_named_by_release_and_place_of_metadata() -> None:
    found = answer(10.0, 8.0)
    old = {"broker.version": "3.6.2", "broker.config.zookeeper.connect": "127.0.0.1:2181"}
    new = {"broker.version": "4.1.2", "broker.config.process.roles": "broker"}
    sides = found.sides
    upgrade = {
        Side.A: replace(sides[Side.A], environment=old),
        Side.B: replace(sides[Side.B], environment=new),
    }
    *_, last = sentences(replace(found, sides=upgrade))
    assert last == "A is Kafka 3.6.2 with ZooKeeper; B is Kafka 4.1.2 with KRaft"
    *_, last = sentences(replace(found, sides=dict.fromkeys(Side, upgrade[Side.B])))
    assert last == "both sides are Kafka 4.1.2 with KRaft"
    unknown = {**upgrade, Side.A: replace(sides[Side.A], environment={})}
    *_, last = sentences(replace(found, sides=unknown))
    assert last == "A is of unknown release; B is Kafka 4.1.2 with KRaft"


def test_a_caveat_of_one_side_is_marked_with_it() -> None:
    elections, uneven = "elections do not show", "leaders uneven: 14 at most, 10 on average"
    assert caveats_of_sides({Side.A: (elections,), Side.B: (elections, uneven)}) == [
        elections,
        f"B: {uneven}",
    ]
    assert caveats_of_sides({Side.A: (), Side.B: ()}) == []
    assert caveats_of_sides({Side.A: (uneven,)}) == [uneven]


def test_answer_page_and_file_show_a_caveat_of_either_side(tmp_path: Path) -> None:
    uneven = "leaders uneven: 14 at most, 10 on average"
    body = ComparisonRun(setups("num.io.threads=2", "num.io.threads=1"), Effort(4, 3), 0.05)
    reporter = RecordingReporter()
    order = RunOrder(reporter, RunOptions(tmp_path), "id")
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
    page = (order.folder / "compare.html").read_text(encoding="utf-8")
    assert f"B: {uneven}" in page
    warnings = [
        event.text
        for event in reporter.events
        if isinstance(event, Notice) and event.level is Level.WARNING
    ]
    assert warnings == [f"caveat: B: {uneven}"]


def test_an_end_before_both_sides_were_open_is_kept(tmp_path: Path) -> None:
    only_a = {Side.A: facts()[Side.A]}
    write_answer(
        ComparisonAnswer(only_a, (), (), 0.05), {"status": "failed"}, tmp_path / "compare.json"
    )
    document = json.loads((tmp_path / "compare.json").read_text())
    assert document["a"]["label"] == "num.io.threads=2"
    assert document["b"] is None


@pytest.mark.parametrize(
    ("b", "pairs", "code"), [(8.0, 4, 4), (10.0, 4, 0), (12.0, 4, 0), (10.0, 2, 3)]
)
def test_the_exit_code_is_that_of_the_answer(b: float, pairs: int, code: int) -> None:
    outcome = outcome_with(answer(10.0, b, pairs))
    assert outcome.exit_code == code
    assert (outcome.error is None) == (code != 3)


# --- sides that differ in their load ---------------------------------------------


def setups(a: str, b: str, cluster: str = "testbed") -> dict[Side, SideSetup]:
    return load_sides({Side.A: a, Side.B: b}, cluster, "1kB", "default", ())


def test_a_side_may_change_any_key_by_its_full_path() -> None:
    made = setups("workload.producer.acks=1", "workload.producer.acks=all")
    assert [each.config.workload.producer.acks for each in made.values()] == ["1", "all"]
    settings = [each.settings for each in made.values()]
    differing = {key for key in settings[0] if settings[0][key] != settings[1][key]}
    assert differing == {"workload.producer.acks"}


def test_sides_that_differ_in_the_workload_alone_load_the_same_brokers() -> None:
    alike = setups("workload.producer.acks=1", "workload.producer.acks=all")
    assert share_brokers(alike)
    assert not share_brokers(setups("num.io.threads=1", "num.io.threads=2"))
    assert not share_brokers(setups("testbed", "testbed")), "the method against itself"
    assert needed_bytes(alike) < needed_bytes(setups("testbed", "testbed"))


def test_keys_of_a_workload_are_compared_on_existing_brokers() -> None:
    made = setups("workload.producer.acks=1", "workload.producer.acks=all", cluster="example")
    assert share_brokers(made)


def test_a_key_without_its_file_is_no_broker_property() -> None:
    with pytest.raises(
        ConfigError, match=r"--a sets producer\.acks.*mean workload\.producer\.acks"
    ):
        setups("producer.acks=1", "producer.acks=all")


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
    key = setting.partition("=")[0]
    assert f"--b sets {key}" in str(error.value)
    assert f"--set {key}=" in str(error.value)
    assert str(error.value) == snapshot


def test_the_only_thing_that_differs_is_the_cause() -> None:
    case = ComparedSize(1_000)
    CaseComparer(
        TwoSides({Side.A: 10.0, Side.B: 8.0}, noise=0.01), Effort(4, 3), 128.0, 1e4
    ).measure(case)
    a = SideFacts("acks=1", "id-a", "testbed", 1, ENVIRONMENT, {"workload.producer.acks": "1"})
    b = replace(a, run_id="id-b", settings={"workload.producer.acks": "all"})
    (found,) = answer_of({Side.A: a, Side.B: b}, [case], 0.05).cases
    assert found.cause is not None
    assert found.cause.names == ("workload.producer.acks",)
    assert "workload.producer.acks is all on B and 1 on A" in found.cause.text
    assert "nothing else that was compared differs" in found.cause.text


def test_an_unknown_side_is_named_by_its_option() -> None:
    with pytest.raises(ConfigError, match=r"--a foo is neither a setting nor a cluster; expected"):
        load_sides({Side.A: "foo", Side.B: "testbed"}, "testbed", "1kB", "default", ())


def test_an_invalid_trial_is_repeated_as_often_as_the_goal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def hold(*given: Any) -> Trial:
        made.append(given[-1])
        invalid = replace(trial().judgement, verdict=Verdict.INVALID)
        return trial(judgements={"default": invalid})

    overrides = ("goal.search.invalid_repeats_max=4",)
    sides = load_sides(
        {Side.A: "num.io.threads=2", Side.B: "num.io.threads=1"}, "testbed", "1kB", "default",
        overrides,
    )  # fmt: skip
    body = ComparisonRun(sides, Effort(4, 3), 0.05)
    monkeypatch.setattr(body, "_hold", hold)
    monkeypatch.setattr(body, "_highest_load", lambda *_: (100.0, "goal.search.load_cap"))
    order = RunOrder(RecordingReporter(), RunOptions(tmp_path), "id")
    run = RunState(order, {"a": SimpleNamespace(brokers=3)})  # type: ignore[dict-item]
    (turn,) = next(body.schedule())
    with pytest.raises(NoConclusionError, match="no load saturates side A"):
        body.measure_turn(run, turn, TimeBudget(None))
    assert len(made) == 1 + 4
