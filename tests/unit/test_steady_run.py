"""The hold at the end of a search: what a run asks for, keeps and appends, and how a hold ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster.topics import TopicError
from jobs.config import load
from jobs.console.events import PhaseStarted, Plan, RecordingReporter
from jobs.runs import steady
from jobs.runs.estimate import line_of
from jobs.runs.limit import LimitRun
from jobs.runs.steady import steady_measurer
from jobs.trials import running_load
from jobs.trials.context import TrialHistory
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer
from jobs.trials.running_load import NOTICE_S
from metrics.tables.boundary import BoundaryRow
from metrics.trial.trial import Trial
from search.line import FinishedPoint
from search.model import Bracket, Done
from tests.support.contexts import run_context
from tests.support.running_loads import START_S, SentChannel, running
from tests.support.scripted_source import ScriptedSource
from tests.support.steady_trials import at


class Tables:
    """Keeps the boundaries that a run appends."""

    def __init__(self) -> None:
        self.rows: list[BoundaryRow] = []

    def append_boundary(self, row: BoundaryRow) -> None:
        self.rows.append(row)


class Run:
    """A search that found 64 producers at 1 kB and 20 at 100 B, on a disk of this speed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disk: float, *changes: str) -> None:
        options = (
            "workload.message_bytes=[100, 1000]",
            "workload.producer.rate_bytes_per_s=1e6",
            "workload.trial.early_end_error_rate=0.01",
        )
        self.config = load("testbed", "1kB", "default", [*options, *changes])
        self.tables, self.reporter = Tables(), RecordingReporter()
        self.history = TrialHistory()
        self.refusal: str | None = None
        self.held: list[tuple[int, float]] = []
        self.body = LimitRun(self.config)
        self.context = run_context(
            run_id="r", config=self.config, reporter=self.reporter, tables=self.tables,
            history=self.history, addresses={1: ("a", 1), 2: ("b", 2)}, environment={},
            guards=SimpleNamespace(require_untripped=lambda: None, refusal=lambda _: self.refusal),
        )  # fmt: skip
        line = line_of(self.config.workload, self.config.goal, 2)
        self.body._lines = {"default": line}
        points: list[FinishedPoint] = []
        for size, producers in ((1_000, 64), (100, 20)):
            trial = at(producers, disk, 10.0, size, number=len(points) + 1)
            self.history.add(trial, ())
            found = Done(Bracket(producers, producers + 1))
            points.append(FinishedPoint(size, found, (trial.observation("default"),)))
        self.body._points = {"default": points}
        for point in points:
            self.body._keep(self.context, self.body._boundary(self.context, "default", point))

        def hold(measurer: TrialMeasurer, producers: int) -> Trial:
            phases = measurer.pattern(producers).phases
            assert phases.early_end_error_rate == 0.0, "no verdict ends a hold early"
            self.held.append((producers, phases.measure_s))
            trial = at(producers, disk, 90.0, number=10 + len(self.held), steady=True)
            self.history.add(trial, ())
            return trial

        monkeypatch.setattr(TrialMeasurer, "trial", hold)

    def prove(self) -> None:
        none: Any = None
        self.body._prove_steady(Rig(self.context, none, none), SearchProgress())

    def phases(self) -> list[str]:
        return [each.text for each in self.reporter.events if isinstance(each, PhaseStarted)]


def test_the_search_goes_on_at_what_disks_wrote_and_all_limits_are_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(monkeypatch, 10e6)
    run.prove()
    assert run.held == [(64, 105.0), (9, 105.0)]
    large, small = run.body.boundaries
    assert (large.message_bytes, large.steady_load, large.loads[0]) == (1_000, 9.0, 64)
    assert large.trials == 3, "its holds count"
    assert small.message_bytes == 100 and small.steady_load is not None
    assert 7 <= small.steady_load <= 9
    appended = [each.boundary.steady_load for each in run.tables.rows]
    assert appended == [None, None, large.steady_load, small.steady_load]
    (phase,) = run.phases()
    assert phase.startswith("offering 64.0 MB/s at 1 kB for at most 1 min 45 s, until disks are ")
    assert phase.endswith("proven to write this load or memory is 80% full")
    resumed = Run(monkeypatch, 10e6)
    resumed.history.add(at(64, 10e6, 90.0, number=9, steady=True), ())
    resumed.prove()
    assert [load for load, _ in resumed.held] == [9], "no hold is repeated"
    short = Run(monkeypatch, 10e6, "goal.search.budget.trials=3")
    short.prove()
    assert [load for load, _ in short.held] == [64], "one more trial was allowed"
    why = "a hold of 64.0 MB/s for 1 min 30 s did not prove a steady load"
    assert short.body.boundaries[0].steady_note.startswith(why)


def test_a_hold_that_is_not_allowed_or_cannot_begin_is_said_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_ready(*_args: object) -> Trial:
        raise TopicError("the new topic is not ready after 60 s")

    cases: list[tuple[tuple[str, ...], str | None, str]] = [
        (("goal.search.steady_s=0",), None, "no hold was made, because search.steady_s is 0"),
        (("goal.search.budget.duration_s=100",), None, "the budget of 100 s does not allow"),
        ((), "the next load can add 9 GB", "the next load can add 9 GB"),
        ((), None, "the load could not begin: the new topic is not ready after 60 s"),
    ]
    for changes, refusal, why in cases:
        run = Run(monkeypatch, 10e6, *changes)
        run.refusal = refusal
        if why.startswith("the load"):
            monkeypatch.setattr(TrialMeasurer, "trial", not_ready)
        run.prove()
        assert run.held == []
        assert all(each.steady_note.startswith(why) for each in run.body.boundaries)
        assert [each.loads[0] for each in run.body.boundaries] == [64, 20]


def planned(tmp_path: Path, *changes: str) -> Plan:
    return LimitRun(load("testbed", "1kB", "default", list(changes))).plan(tmp_path)


def test_a_plan_has_the_time_of_a_hold_that_the_goal_asks_for(tmp_path: Path) -> None:
    without = planned(tmp_path, "goal.search.steady_s=0")
    assert not any("long trial" in note for note in without.notes)
    asked = planned(tmp_path, "goal.search.steady_s=120", "workload.trial.warmup_s=3")
    bare = planned(tmp_path, "goal.search.steady_s=0", "workload.trial.warmup_s=3")
    assert asked.duration_s == bare.duration_s + 123.0
    assert asked.notes[-1] == (
        "one long trial at the largest limit takes at most 2 min, within the budget"
    )
    usual = planned(tmp_path, "workload.trial.warmup_s=3")
    assert usual.duration_s == bare.duration_s + 70.5, "expected, not the longest"
    assert usual.notes[-1].endswith("the forecast includes 1 min 10 s")


def ended_s(
    monkeypatch: pytest.MonkeyPatch,
    load_s: float,
    disk: float,
    failing_load: int | None = None,
    acked: Sequence[tuple[float, int]] = (),
) -> float | None:
    """When a look ends a hold of 64 producers; None while it goes on."""

    @contextmanager
    def watching(_name: str, look: Any, *_: object) -> Iterator[None]:
        look()
        yield

    def windows(*_: object) -> Any:
        return at(64, disk, 90.0).evidence.write_back

    monkeypatch.setattr(running_load, "watching", watching)
    monkeypatch.setattr(running_load, "time", SimpleNamespace(time=lambda: START_S + load_s))
    monkeypatch.setattr(steady, "write_back_windows", windows)
    context = run_context(
        config=load("testbed", "1kB", "default", []), source=ScriptedSource((1, 2)),
        hosts=SimpleNamespace(brokers={"b": (1, 2)}),
        addresses={1: ("a", 1), 2: ("b", 2)},
    )  # fmt: skip
    none: Any = None
    measurer = steady_measurer(
        Rig(context, none, none), 1_000, SearchProgress(), 105.0, failing_load=failing_load
    )
    pattern = replace(at(64).pattern, phases=measurer.pattern(64).phases)
    channel = SentChannel()
    channel.acked = lambda: list(acked)  # type: ignore[method-assign]
    assert measurer.until is not None
    with measurer.until(running(pattern, channel, context)):
        return next(iter(channel.ends_s), None)


def test_a_proven_hold_ends_at_once_and_another_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended_s(monkeypatch, 92.0, 100e6) == 92.0 - 1.0 + NOTICE_S
    assert ended_s(monkeypatch, 92.0, 10e6) is None


def test_a_load_to_failure_ends_only_once_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [(float(second), 64_000 * second) for second in range(60)]
    failed = [*whole, *((60.0 + n, 64_000 * 59 + 9_000 * n) for n in range(12))]
    assert ended_s(monkeypatch, 73.0, 10e6, 64, failed) is not None
    slow = [*whole, *((59.0 + n, 64_000 * 59 + 54_000 * n) for n in range(1, 6))]
    assert ended_s(monkeypatch, 66.0, 10e6, 64, slow) is None, "a slow moment of the machine"
    assert ended_s(monkeypatch, 92.0, 100e6, 80, whole) is not None, "proven"
