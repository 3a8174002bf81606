"""The outcomes of runs, and the contents of their boundaries."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load, load_workload
from jobs.console.events import Notice, RecordingReporter
from jobs.console.printing import plan_rows
from jobs.options import Duration
from jobs.runs.context_factory import RunOrder
from jobs.runs.estimate import line_of, plan_of
from jobs.runs.limit import LimitRun
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.runs.results import ArtifactWriter, boundary_of, write_results
from jobs.runs.resumption import config_text
from jobs.spark.failures import SparkFailedError, report_spark_failures
from jobs.trials.calibration import Calibration, calibration_table
from jobs.trials.canaries import AFTER_S
from jobs.trials.context import RunContext
from jobs.trials.gates import LOOK_MAX_S
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import (
    ENDED_SPARK,
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RedlineError,
    RegressionError,
    TerminatedError,
)
from metrics.planning.planted import environment_of_handlers
from metrics.reporting.limit_answer import answer_of, open_words
from metrics.tables.boundary import Boundary
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.units import format_duration
from search.line import FinishedPoint
from search.model import Bracket, Change, Done, GaveUp, Interval
from tests.support.evidence import client
from tests.support.report_rows import (
    overloaded,
    summary_of_sizes,
    sustained,
    trial_at,
    trials_of_sizes,
)
from tests.support.run_events import screen


def _boundary(gave_up: str | None = None) -> Boundary:
    return Boundary(100, 5, 6, 5.0, 0.0005, 0.0002, ("x",), "disk", 4, 6.0, gave_up, goal="default")


def _ended(
    error: BaseException | None, *boundaries: Boundary, accept_lower_bound: bool = False
) -> RunOutcome:
    """The outcome of a search that raised this error and found these boundaries."""
    config = load("testbed", "demo", "default")
    body = LimitRun(config.with_search(accept_lower_bound=accept_lower_bound))
    body.boundaries.extend(boundaries)
    return body.outcome(error)


def test_each_end_of_a_run_has_its_status_and_exit_code() -> None:
    ends: list[tuple[BaseException | None, str, int]] = [
        (None, "done", 0),
        (KeyboardInterrupt(), "interrupted", 130),
        (NoConclusionError("none"), "no conclusion", 3),
        (GuardStopError("full"), "stopped by a guard", 5),
        (ConfigError("wrong"), "failed", 2),
        (ZeroDivisionError(), "failed", 1),
        (ConnectionError("refused"), "failed", 1),
    ]
    for error, status, code in ends:
        for outcome in (outcome_of(error), _ended(error, _boundary())):
            assert (outcome.status, outcome.exit_code) == (status, code)
    for cause, status, code in (
        (KeyboardInterrupt(), "interrupted", 130),
        (TerminatedError(), "terminated", 143),
    ):
        error = ConnectionError("Answer from Java side is empty")  # as Spark's driver ends with it
        error.__context__ = cause
        assert (outcome_of(error).status, outcome_of(error).exit_code) == (status, code)
    assert RunOutcome().checked_exit_code() == 0
    assert RunOutcome("interrupted", 130, "interrupted").checked_exit_code() == 130
    with pytest.raises(RegressionError, match="a limit fell"):
        RunOutcome("regression", RegressionError.exit_code, "a limit fell").checked_exit_code()


def test_a_stopped_spark_ends_a_run_with_one_line_instead_of_pages_of_java(
    snapshot: SnapshotAssertion,
) -> None:
    java = "An error occurred while calling o1936.collectToPython.\n: java.lang.Illegal"
    stopped = RuntimeError(f"{java}StateException: Cannot call methods on a stopped SparkContext.")
    with pytest.raises(SparkFailedError) as failure, report_spark_failures():
        raise stopped
    assert str(failure.value) == snapshot
    assert outcome_of(failure.value).exit_code == 2
    for part in ENDED_SPARK:
        ended = pytest.raises(SparkFailedError, match="Spark's driver ended during the run")
        with ended, report_spark_failures():
            raise RuntimeError(f"[INTERNAL_ERROR] {part} found SQLSTATE: XX000")
    with pytest.raises(RuntimeError, match="something else"), report_spark_failures():
        raise RuntimeError("something else")
    kind = pytest.importorskip("py4j.protocol").Py4JJavaError
    error = kind.__new__(kind)
    error.java_exception = Mock(getCause=Mock(return_value=None))
    error.java_exception.toString.return_value = (
        "java.lang.IllegalArgumentException: requirement failed: "
        "A secret key must be specified via the spark.authenticate.secret config."
    )
    refused = pytest.raises(SparkFailedError, match="its settings have no secret")
    with refused, report_spark_failures():
        raise error


def test_a_calibration_that_fails_keeps_the_limit_that_was_found() -> None:
    config = load("testbed", "demo", "default")
    for error in (GuardStopError("full"), RedlineError("no broker answers"), ValueError("x")):
        reporter = RecordingReporter()
        topics = cast(PointTopics, Mock(open=Mock(side_effect=error)))
        given = SimpleNamespace(
            environment=environment_of_handlers({1: 60.0}, (1,)), addresses=(1,), config=config,
            reporter=reporter, pattern=config.pattern,
        )  # fmt: skip
        calibration, context = Calibration(), cast(RunContext, given)
        calibration.measure(context, topics, 1)
        (notice,) = reporter.events
        assert isinstance(notice, Notice)
        assert notice.text == f"the planted limit could not be measured: {error}"
        assert calibration.complete(_boundary(), context, "default") == _boundary()


def test_planted_and_found_limits_stand_side_by_side() -> None:
    assert calibration_table([_boundary()]) is None, "nothing was planted"
    planted = replace(_boundary(), np_sustained=47, np_overloaded=49, np_planted=48.2)
    known = replace(planted, load_low=46.5, load_high=49.5, load_estimate=48.3)
    cut = replace(planted, gave_up="the budget is used up")
    open_ended = replace(planted, message_bytes=1_000, np_overloaded=None)
    shown = calibration_table([known, cut, open_ended])
    assert shown is not None
    assert shown.rows == (
        ("100 B", "48.2", "47-49", "-2.5%", "48.3", "+0.2%", "46 to 50"),
        ("1 kB", "48.2", "47-", "-2.5%", "?", "?", "?"),
    )
    assert shown.columns[2:] == ("found", "off by", "estimate", "off by", "limit at 90 %")
    lines = screen(shown, width=80).splitlines()
    assert [line.split()[-1] for line in lines[-2:]] == ["50", "?"], "a terminal of 80 columns"


def test_one_point_without_an_answer_is_no_conclusion() -> None:
    outcome = _ended(None, _boundary(), _boundary("load_cap reached"))
    assert (outcome.status, outcome.exit_code) == ("no conclusion", 3)
    with pytest.raises(NoConclusionError, match=r"100 B: at least 0\.001 MB/s .*; load_cap"):
        outcome.checked_exit_code()
    stopped = _ended(GuardStopError("full"), _boundary("load_cap reached"))
    assert (stopped.status, stopped.exit_code) == ("stopped by a guard", 5)


WIDE = replace(
    _boundary(), load_sustained=5, load_overloaded=6, load_low=2.0, load_high=8.0,
    interval_max=0.2,
)  # fmt: skip


def test_a_doubtful_limit_is_no_conclusion_only_with_interval_max(
    snapshot: SnapshotAssertion,
) -> None:
    assert _ended(None, WIDE) == RunOutcome()
    body = LimitRun(load("testbed", "demo", "default", ["goal.search.interval_required=true"]))
    body.boundaries.extend([WIDE, replace(WIDE, interval_max=None)])
    outcome = body.outcome(None)
    assert (outcome.status, outcome.exit_code) == ("no conclusion", 3)
    assert outcome.error == snapshot


def test_the_widest_interval_follows_the_resolution_unless_it_is_given() -> None:
    for keys, widest in (
        ("", 0.2),
        ("resolution=0.1", 0.4),
        ("resolution=0.3", None),
        ("resolution=0.3 interval_max=0.25", 0.25),
        ("interval_max=1", None),
    ):
        overrides = [f"goal.search.{key}" for key in keys.split()]
        config = load("testbed", "demo", "default", overrides)
        assert line_of(config.workload, config.goal, 3).limits.interval_max == widest, keys


def _searched(result: Done | GaveUp, *trials: Trial) -> Boundary:
    config = load("testbed", "demo", "default", ["goal.search.interval_max=0.1"])
    point = FinishedPoint(1000, result, ())
    return boundary_of(point, trials, config, "default", 3)


def _at(number: int, producers: int, judged: Judgement, p99_ms: float) -> Trial:
    made = trial_at(number, 1000, producers, {"default": judged})
    seen = client(latency_p99_ms=p99_ms, latency_p999_ms=140.0)
    return replace(made, evidence=replace(made.evidence, client=seen))


def test_a_boundary_has_the_interval_of_its_search_and_the_latencies_of_its_last_trial() -> None:
    bracket, interval = Bracket(58, 63), Interval(55.0, 65.0)
    for result in (Done(bracket, 0.9, interval), GaveUp(bracket, "used up", interval)):
        found = _searched(result)
        assert (found.np_low, found.np_high, found.interval_max) == (55.0, 65.0, 0.1)
        assert found.doubtful
    assert _searched(Done(bracket)).interval is None
    made = [(63, overloaded(), 900.0), (58, sustained(), 10.0), (58, overloaded(), 800.0)]
    made += [(58, sustained(), 12.0), (58, overloaded(), 850.0), (40, sustained(), 5.0)]
    trials = [_at(number, *each) for number, each in enumerate(made, 1)]
    assert _searched(Done(bracket), *trials).latencies_ms == (2.0, 12.0, 140.0)
    assert _searched(Done(Bracket(0, 58)), *trials).latencies_ms == (None, None, None)
    nothing = _at(7, 58, sustained(), math.nan)
    assert _searched(Done(bracket), nothing).latency_p99_ms is None


def test_a_search_that_the_generator_ended_states_what_it_found_at_least() -> None:
    why = "the generator was the limit: 2 cores of 2 busy; use more executors or cores"
    found = _searched(GaveUp(Bracket(96, None), why))
    assert found.mb_per_s == pytest.approx(12.0)
    assert (found.gave_up, found.answer_kind) == (why, "lower bound")
    assert open_words(found) == f"at least 12.0 MB/s (96 producers); {why}"
    outcome = _ended(None, found)
    assert (outcome.status, outcome.exit_code) == ("no conclusion", 3)
    assert outcome.error == f"no conclusion for 1000 B: {open_words(found)}"
    accepting = _ended(None, found, accept_lower_bound=True)
    assert (accepting.status, accepting.exit_code, accepting.error) == ("done", 0, None)
    above = _searched(GaveUp(Bracket(96, None), "no load above 99 could be measured: a pause"))
    stated = "at least 12.0 MB/s (96 producers); no load above 99 could be measured: a pause"
    assert open_words(above) == stated
    nothing = _searched(GaveUp(Bracket(0, None), why))
    assert nothing.answer_kind == "none"
    assert open_words(nothing) == f"no load could be measured; {why}"
    assert _ended(None, nothing, accept_lower_bound=True).exit_code == 3
    along = ["goal.search.axis=partitions", "goal.search.load_cap=1000", "workload.np=16"]
    config = load("testbed", "demo", "default", along)
    point = FinishedPoint(1000, GaveUp(Bracket(8, None), why), ())
    text = f"at least {config.axis.amount(8)}; {why}"
    assert open_words(boundary_of(point, (), config, "default", 3)) == text


def test_the_plan_counts_the_time_beside_the_trials() -> None:
    """A search that was forecast at 75 s once took 199."""
    plan = plan_of(load("testbed", "1kB", "default"))
    shown = dict(plan_rows(plan))
    assert plan.starting_s == 45
    shared = plan_of(load("example", "1kB", "default"))
    own_s = load("testbed", "1kB", "default").cluster.start_s
    others_s = LOOK_MAX_S + AFTER_S
    assert shared.starting_s == plan.starting_s - own_s + others_s, "the load of others"
    took = format_duration(plan.duration_s + plan.starting_s)
    assert f", {took} with the start and the end, at most" in shown["forecast"]
    assert "written with all replicas" in shown["forecast"]
    assert "MB/s from producers; up to" in shown["peak"]


@pytest.mark.computes
def test_quick_answers_within_a_quarter_of_an_hour() -> None:
    config = load("example", "quick", "quick")
    plan = plan_of(config)
    assert len(config.workload.message_bytes) == 3
    budget_s = config.goal.search.budget.duration_s
    assert budget_s is not None
    worst_s = budget_s + plan.trial_s + config.workload.trial.drain_timeout_s + plan.starting_s
    assert plan.duration_s + plan.starting_s < worst_s <= 900
    for workload in map(load_workload, ("quick", "100B-to-100kB")):  # as on real clusters
        assert (workload.producer.acks, workload.producer.enable_idempotence) == ("all", True)
        assert workload.topic.replication_factor == 3
        assert workload.topic.config["min.insync.replicas"] == "2"


def test_the_plan_counts_the_time_in_which_limits_are_held() -> None:
    sizes = ["workload.message_bytes=[1000]"]
    config = load("testbed", "demo", "default", sizes)
    plan = plan_of(config)
    assert plan.duration_s == pytest.approx(plan.trials_estimated * plan.trial_s, rel=0.3)
    assert plan.trial_s > config.workload.trial.load_s
    # The brokers write each payload twice, and hold a size at a time.
    assert 1e9 < (plan.disk_bytes_max or 0) <= (plan.write_bytes_max or 0)
    assert (plan.peak_mb_per_s or 0) * 1e6 == pytest.approx(
        config.workload.pattern(1000).mb_per_s * 1e6 * 248, rel=0.3
    ), "the first loads grow to twice load_start_max at most"
    longer = plan_of(load("testbed", "demo", "default", [*sizes, "goal.search.confirm_s=600"]))
    assert longer.trials_estimated >= plan.trials_estimated + 60, "windows of 2 + 8 s of load"
    assert longer.duration_s >= plan.duration_s + 60 * longer.trial_s
    assert (longer.write_bytes_max or 0) > 3 * (plan.write_bytes_max or 0)


def test_an_answer_states_the_time_of_its_hold_and_the_loads_that_did_not_last() -> None:
    config = load("testbed", "demo", "default", ["goal.search.confirm_s=30"])
    made = [(63, overloaded(), False), (58, sustained(), False), (58, sustained(), True)]
    made += [(58, overloaded(), True)] * 3
    made += [(55, sustained(), False), (56, overloaded(), False), (55, sustained(), True)]
    made += [(55, overloaded(), True), (55, sustained(), True)]
    trials = [
        replace(trial_at(number, 1000, producers, {"default": judged}), held=held)
        for number, (producers, judged, held) in enumerate(made, 1)
    ]
    history = tuple(trial.observation("default") for trial in trials)
    done = Done(Bracket(55, 56), 0.9, notes=("a note of the search",), confirmed_s=30.0)
    boundary = boundary_of(FinishedPoint(1000, done, history), trials, config, "default", 3)
    assert boundary.confirmed_s == 30.0
    assert boundary.notes == (
        "a note of the search",
        (
            "a hold of 58 producers failed, because 3 of 3 windows were overloaded from 10 s of "
            "load on: broker 2: request handlers idle 0.12, below 0.20"
        ),
        "held for 30 s of load in 3 windows, 1 of them overloaded",
    )
    assert ", held for 30 s" in answer_of(boundary).why[0]
    change = Change(2, 6, 0.97, Interval(57.0, 62.0, 58.0), Interval(54.0, 57.0, 55.0))
    halved = FinishedPoint(1000, replace(done, changed=(change,)), history)
    later = boundary_of(halved, trials, config, "default", 3)
    assert boundary.notes[1] in later.notes, "its cause is of a trial before the change"
    cut = GaveUp(Bracket(0, 58), "the budget is used up")
    left = boundary_of(FinishedPoint(1000, cut, history[:6]), trials[:6], config, "default", 3)
    assert left.confirmed_s is None
    assert [note[:30] for note in left.notes] == ["a hold of 58 producers failed,"]


def test_a_duration_has_a_unit_or_is_seconds(snapshot: SnapshotAssertion) -> None:
    durations = {"90": 90.0, "1.5": 1.5, "90s": 90.0, " 30m": 1800.0, "1.5h": 5400.0}
    assert {text: Duration().convert(text, None, None) for text in durations} == durations
    sentences = []
    for text in ("0", "-5", "nan", "inf", "0h", "8d", "", "h", "1h30m", "-1m"):
        with pytest.raises(click.BadParameter) as refused:
            Duration().convert(text, None, None)
        sentences.append(str(refused.value))
    assert sentences == snapshot


@pytest.mark.computes
def test_the_plan_states_the_window_that_followers_need() -> None:
    for replicas, count in ((1, 0), (3, 1)):
        overrides = [
            "workload.trial.measure_s=15",
            f"workload.topic.replication_factor={replicas}",
            "workload.topic.config.min.insync.replicas=1",
        ]
        plan = plan_of(load("example", "demo", "default", overrides))
        windows = [note for note in plan.notes if "replica.lag" in note]
        assert len(windows) == count
    assert "a window of 15 s" in windows[0]
    assert "replica.lag.time.max.ms is at most 10000 (Kafka's default is 30000)" in windows[0]


def _order_of(folder: Path, json_file: Path | None = None) -> RunOrder:
    return RunOrder(
        folder.parent,
        "tables",
        json_file=json_file,
        reporter=RecordingReporter(),
        run_id=folder.name,
    )


@pytest.mark.computes
def test_a_run_writes_its_report_first_if_it_opened_tables(tmp_path: Path) -> None:
    settings = json.loads(config_text(load("testbed", "demo", "default")))
    copy, report = tmp_path / "elsewhere" / "answer.json", tmp_path / "report.html"
    order = _order_of(tmp_path, copy)
    files = write_results(summary_of_sizes([1000]), order, None, settings)
    assert {what for what, _ in files.written} == {"summary", "chart"}, "and no tables"
    assert not report.exists()
    own = tmp_path / "summary.json"
    assert [path for what, path in files.written if what == "summary"] == [str(own), str(copy)]
    assert copy.read_text() == own.read_text()
    files.require_all("nothing to be done")
    trials = trials_of_sizes([1000])
    files = write_results(summary_of_sizes([1000]), _order_of(tmp_path), trials, settings)
    assert files.written[0] == ("report", str(report))
    assert {what for what, _ in files.written} == {"report", "summary", "chart", "tables"}
    page = report.read_text(encoding="utf-8")
    assert "Evidence of trial 2" in page
    assert "--workload demo" in page


def test_a_file_that_cannot_be_written_prevents_no_other(tmp_path: Path) -> None:
    own, taken = tmp_path / "a.json", tmp_path / "summary.json"
    taken.mkdir()  # which no file can replace
    order = _order_of(tmp_path)
    files = write_results(summary_of_sizes([1000]), order, trials_of_sizes([1000]), {})
    assert [what for what, _ in files.written] == ["report", "chart", "chart", "tables"]
    with pytest.raises(ConfigError, match=r"summary\.json \(Is a directory\).*see to it"):
        files.require_all("see to it")
    copied = ArtifactWriter()
    copied.write_answer_file("answer", own, taken, lambda path: path.write_text("{}"))
    assert copied.written == [("answer", str(own))]
    with pytest.raises(ConfigError, match=r"json \(Is a directory\)"):
        copied.require_all("see to it")
