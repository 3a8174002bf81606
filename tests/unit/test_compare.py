"""`redline compare` without brokers: its sides, its plan, its sentences and its file.

`redline compare RUN_ID RUN_ID`: two finished runs by the intervals of their limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click.testing
import pytest
from click.testing import CliRunner, Result
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
from jobs.features.compare.comparison_run import (
    ComparisonRun,
    bound_table,
    differences_table,
    effects_table,
    sentence,
    sentences,
)
from jobs.features.compare.sides import (
    SideSetup,
    compare_finished,
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
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.comparing.effects import Conclusion, Side
from metrics.reporting.summary import RunSummary, write_summary
from metrics.trial.trial import ALL_BROKERS, Trial, offline_state
from search.model import Verdict
from tests.support.frozen import lost_keys
from tests.support.report_rows import summary_of_sizes
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
         r"--a sets producer\.acks.*write workload\.producer\.acks"),
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
    assert "regression: the capacity of B is 2" in sentence(case, 0.05)
    assert case.cause is not None and case.cause.slower == "B"
    row = effects_table(found).rows[0]
    assert row[:4] == ("1 kB", "capacity [MB/s/broker]", "10.0", "8.00")
    assert row[-1] == "4"
    assert len(bound_table(found).rows) == 4
    table = differences_table(found.differences)
    assert table.rows == (("num.io.threads", "2", "1"),)
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
    body.evaluate(run, KeyboardInterrupt())
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
    assert "all other compared facts are equal" in found.cause.text


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


def run_of(name: str, share: float, sizes: tuple[int, ...] = (100, 1000)) -> RunSummary:
    """A run whose limits are this share of those of any other, each known to 5 %."""
    found = summary_of_sizes(list(sizes))
    limits = tuple(
        replace(each, mb_per_s=each.mb_per_s * share, load_low=58.0, load_high=61.0)
        for each in found.boundaries
    )
    environment = {"broker.version": "4.1.2" if share == 1 else "4.3.1", "cluster.id": name}
    return replace(found, run_id=name, boundaries=limits, environment=environment)


def run_compare(out: Path, *runs: RunSummary, options: tuple[str, ...] = ()) -> Result:
    for one in runs:
        (out / one.run_id).mkdir()
        write_summary(one, out / one.run_id / "summary.json")
    names = [one.run_id for one in runs]
    command = [*names, "--out", str(out), *options]
    return CliRunner().invoke(compare, command, standalone_mode=False)


def test_a_limit_that_fell_is_a_regression_and_the_differences_are_listed(tmp_path: Path) -> None:
    options = ("--json", str(tmp_path / "found.json"))
    done = run_compare(tmp_path, run_of("before", 1.0), run_of("after", 0.8), options=options)
    assert isinstance(done.exception, RegressionError)
    assert done.exception.exit_code == 4
    assert "run after against before, 100 B: 20.0% less" in done.output
    assert "differs: broker.version 4.1.2 → 4.3.1" in done.output
    assert (
        "brokers were Kafka 4.1.2 in the first run and Kafka 4.3.1 in the second run" in done.output
    )
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["runs"] == ["before", "after"]
    assert [each["conclusion"] for each in document["effects"]] == ["regression"] * 2


def test_no_difference_comes_with_the_smallest_detectable_loss(tmp_path: Path) -> None:
    done = run_compare(tmp_path, run_of("before", 1.0), run_of("after", 0.99))
    assert done.exception is None, done.output
    assert "no significant effect (-1.0%" in done.output
    assert "smallest detectable loss is" in done.output
    small = ("--min-effect", "0.3")
    done = run_compare(tmp_path, run_of("first", 1.0), run_of("second", 0.8), options=small)
    assert done.exception is None, done.output


def test_caveats_of_either_run_stand_beside_the_answer(tmp_path: Path) -> None:
    uneven = "leaders uneven: 14 at most, 10 on average"
    first, second = run_of("before", 1.0), replace(run_of("after", 1.0), caveat=uneven)
    done = run_compare(tmp_path, first, second, options=("--json", str(tmp_path / "found.json")))
    assert f"caveat of after: {uneven}" in done.output
    document = json.loads((tmp_path / "found.json").read_text())
    assert f"caveat of after: {uneven}" in document["caveats"]
    both = tmp_path / "both"
    both.mkdir()
    printed = run_compare(both, replace(first, caveat=uneven), second).output
    assert printed.count(uneven) == 1 and f"caveat of both runs: {uneven}" in printed


def test_runs_without_a_size_or_an_interval_in_common_have_no_answer(tmp_path: Path) -> None:
    other = run_compare(tmp_path, run_of("a", 1.0, (100,)), run_of("b", 1.0, (1000,)))
    assert isinstance(other.exception, ConfigError)
    limits = tuple(replace(each, load_low=None) for each in run_of("d", 1.0).boundaries)
    bare = replace(run_of("d", 1.0), boundaries=limits)
    unsure = run_compare(tmp_path, run_of("c", 1.0), bare)
    assert isinstance(unsure.exception, NoConclusionError)


def goals_of(name: str, shares: Mapping[str, float], state: str = ALL_BROKERS) -> RunSummary:
    """A run with a limit at 1 kB for each goal, each another share."""
    found = [
        replace(each, goal=goal, state=state)
        for goal, share in shares.items()
        for each in run_of(name, share, (1000,)).boundaries
    ]
    return replace(run_of(name, 1.0), goal=", ".join(shares), boundaries=tuple(found))


def test_each_goal_is_compared_with_the_same_goal_only(tmp_path: Path) -> None:
    options = ("--json", str(tmp_path / "found.json"))
    before = goals_of("before", {"strict": 0.5, "tolerant": 1.0, "default": 1.0})
    after = goals_of("after", {"tolerant": 1.0, "strict": 0.4})
    done = run_compare(tmp_path, before, after, options=options)
    assert isinstance(done.exception, RegressionError)
    assert "run after against before with goal strict" in str(done.exception)
    effects = json.loads((tmp_path / "found.json").read_text())["effects"]
    found = {each["where"]["goal"]: (each["conclusion"], each["count"]) for each in effects}
    assert found == {"strict": ("regression", 1), "tolerant": ("no difference seen", 1)}
    assert len(effects) == 2
    assert "default, all brokers, 1 kB" in done.output


def test_runs_along_the_message_size_compare_with_different_sizes(tmp_path: Path) -> None:
    def along(name: str, share: float, message_bytes: int) -> RunSummary:
        found = run_of(name, share, (message_bytes,))
        span: dict[str, Any] = {
            "load_sustained": message_bytes,
            "load_low": 0.97 * message_bytes,
            "load_high": 1.02 * message_bytes,
        }
        limits = (replace(each, axis="message_bytes", **span) for each in found.boundaries)
        return replace(found, boundaries=tuple(limits))

    first, second = along("before", 1.0, 5_000), along("after", 0.5, 2_500)
    done = run_compare(tmp_path, first, second)
    assert isinstance(done.exception, RegressionError), done.output
    assert "run after against before: 50.0% less" in done.output
    assert "the searched size" in done.output and "0 B" not in done.output
    assert "only one" not in done.output


def test_limits_in_other_states_of_the_cluster_are_not_compared(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    away = goals_of("after", {"default": 0.5}, offline_state(1))
    done = run_compare(tmp_path, goals_of("before", {"default": 1.0}), away)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == snapshot


def test_a_file_that_cannot_be_written_is_refused_before_and_a_warning_after(
    tmp_path: Path,
) -> None:
    file = tmp_path / "before" / "summary.json" / "found.json"
    runs, options = (run_of("before", 1.0), run_of("after", 0.8)), ("--json", str(file))
    done = run_compare(tmp_path, *runs, options=options)
    assert isinstance(done.exception, ConfigError)
    assert "--json" in str(done.exception) and "cannot be written" in str(done.exception)
    assert "Limits" not in done.output, "refused before the comparison"
    reporter = RecordingReporter()
    with pytest.raises(RegressionError, match=r"20\.0% less"):
        compare_finished(("before", "after"), tmp_path, 0.05, file, reporter)
    notices = [each.text for each in reporter.events if isinstance(each, Notice)]
    assert any(f"--json {file} cannot be written" in text for text in notices)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    for arguments, part in (
        (["one"], "1 RUN_ID are given (one); expected two RUN_ID"),
        (["one", "two", "three"], "(one, two, three); expected two RUN_ID"),
        (["one", "two", "--a", "kafka=4.3.1"], "and a side are given (one, two)"),
        (["--a", "kafka=4.3.1"], "--b is missing"),
        ([], "--a is missing"),
        (["one", "two"], "does not exist"),
        (["one", "one"], "the run one is given twice"),
    ):
        command = [*arguments, "--out", str(tmp_path)]
        done = CliRunner().invoke(compare, command, standalone_mode=False)
        assert isinstance(done.exception, ConfigError) and part in str(done.exception)


def test_a_run_without_a_conclusion_has_the_reason_below_the_table(tmp_path: Path) -> None:
    whole = run_of("a", 1.0, (100,))
    limits = tuple(replace(each, gave_up="4 invalid trials in a row") for each in whole.boundaries)
    done = run_compare(tmp_path, whole, replace(run_of("b", 1.0, (100,)), boundaries=limits))
    (row,) = [each for each in done.output.splitlines() if each.strip().startswith("b ")]
    assert "no conclusion" in row and "invalid trials" not in row
    assert "b, 100 B: 4 invalid trials in a row" in done.output
