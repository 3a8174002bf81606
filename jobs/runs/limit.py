"""A search for the boundary points of a configuration, one message size after the other."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jobs.config import Configuration
from jobs.config.loading import require_endless, require_open_loop
from jobs.console.events import Plan, PointFinished, RunFinished, warn
from jobs.runs.artifacts import regeneration_hint
from jobs.runs.estimate import line_of, plan_of
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.outage_limits import find_outage_limits
from jobs.runs.outcome import NO_CONCLUSION, RunOutcome, outcome_of
from jobs.runs.results import (
    boundary_of,
    planted_table,
    series_from,
    summary_of_run,
    why_no_answer,
    write_results,
)
from jobs.runs.resumption import config_text, replay, resumed_trials
from jobs.runs.search_progress import progress_updater
from jobs.trials.calibration import calibrate
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import open_gates, warm_up_pattern
from metrics.common.errors import ConfigError, GuardStopError, NoConclusionError
from metrics.planning.planted import HandlerTime, planted_np, stated
from metrics.reporting import drawing
from metrics.tables.boundary import Boundary, BoundaryRow
from metrics.traffic.axes import NP
from metrics.trial.state import ALL_BROKERS, place_of
from metrics.trial.warm_up import WarmUp
from search.bracket import bracket_of
from search.line import FinishedPoint, Line
from search.lines import next_size, run_lines
from search.model import GaveUp, IntervalSearcher, Observation


class LimitRun(Body):
    """Finds the boundary points of a configuration, and keeps what it found however it ends.

    Attributes:
        boundaries: found so far, for every goal.
    """

    def __init__(self, config: Configuration) -> None:
        require_endless(config)
        require_open_loop(config)
        self.config = config
        self.boundaries: list[Boundary] = []
        self._lines: Mapping[str, Line] = {}
        self._points: dict[str, list[FinishedPoint]] = {}
        self._begun: Mapping[str, tuple[Observation, ...]] | None = None
        self._handler_times: tuple[HandlerTime, ...] = ()

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The one."""
        return {"": self.config}

    def plan(self, out: Path) -> Plan:
        """Forecast on simulated clusters."""
        return plan_of(self.config, out)

    def resume(self, run: RunState) -> None:
        """Take over the trials of the run that is resumed, and see where it stood."""
        context = run.context
        self._lines = {
            goal.name: line_of(context.workload, goal, context.brokers)
            for goal in self.config.goals
        }
        self._points = {goal: [] for goal in self._lines}
        if not run.order.resumes:
            return
        if self.config.goal.search.brokers_offline is not None:
            raise ConfigError(
                f"--resume names the run {run.order.run_id}, which takes brokers away; expected "
                "one with all brokers, as what they had to catch up with is gone; start a new run"
            )
        tables, run_id = context.tables, context.run_id
        context.trials.extend(
            resumed_trials(tables, run_id, config_text(self.config), context.environment)
        )
        context.series = series_from(tables, run_id, context.trials)
        self._take_hint(context.trials[0].warm_up if context.trials else WarmUp())
        context.numbers = itertools.count(tables.next_trial(run_id))
        self._points, self._begun = replay(self._lines, context.trials)

    # --- searching ----------------------------------------------------------

    def measure(self, run: RunState) -> None:
        """Search, size by size and for all goals from the same trials."""
        context = run.context
        for goal, points in self._points.items():
            for point in points:
                self._keep(context, goal, point)
        progress = SearchProgress()
        drawing.prepare()  # nothing is judged yet, and the next seconds are spent waiting
        gates = open_gates(context, self.config.cluster.warm_up_max_s)

        def end_point(goal: str, point: FinishedPoint) -> None:
            self._calibrate(context, topics, point.bpm)
            topics.close()
            self._points[goal].append(point)
            self._keep(context, goal, point)

        with PointTopics(context) as topics:
            if not context.trials:
                self._warm(context, topics, gates)
            try:
                run_lines(
                    self._lines,
                    lambda bpm: TrialMeasurer(context, topics, gates, bpm, progress),
                    progress_updater(progress, self._lines, self._points),
                    self._points,
                    self._begun,
                    end_point,
                )
            except GuardStopError as stop:
                self._keep_cut(context, str(stop))
                raise
        if self.config.goal.search.brokers_offline is not None:
            for boundary in find_outage_limits(context, self._lines, self._points, self.boundaries):
                self._keep_boundary(context, boundary)

    def _warm(self, context: RunContext, topics: PointTopics, gates: Gates) -> None:
        """Before anything is searched, as what cold brokers read tells where to begin."""
        load_max_s = self.config.cluster.warm_up_max_s
        bpm = next_size(self._lines, self._points)
        if bpm is not None and load_max_s:
            gates.warm(topics.open(warm_up_pattern(context, bpm, load_max_s)))
            self._take_hint(context.warm_up)

    def _take_hint(self, warm_up: WarmUp) -> None:
        idle_min = {
            goal.name: goal.indicators.request_handler_idle_min for goal in self.config.goals
        }
        self._lines = {
            name: replace(line, hint=warm_up.hint(idle_min[name]))
            for name, line in self._lines.items()
        }

    def _calibrate(self, context: RunContext, topics: PointTopics, bpm: int) -> None:
        """Once, on brokers with a planted limit that are warm now: what it is."""
        planted = stated(context.environment, context.addresses)
        if not planted or self._handler_times or self.config.axis is not NP:
            return
        try:
            light = topics.open(context.pattern(bpm, 1))
            self._handler_times = calibrate(context, light, planted)
        except (StageFailedError, GeneratorError, ValueError) as error:
            warn(context.reporter, f"the planted limit is not stated: {error}")

    def _keep_cut(self, context: RunContext, why: str) -> None:
        """Keep the best brackets of a search that was stopped; its trials can be resumed."""
        bpm = next_size(self._lines, self._points)
        own = [trial for trial in context.trials if trial.point_bpm == bpm]
        if bpm is None or not own:
            return
        for goal, line in self._lines.items():
            history = tuple(trial.observation(goal) for trial in own)
            searcher = line.searcher(bpm, self._points[goal])
            interval = searcher.interval(history) if isinstance(searcher, IntervalSearcher) else None
            gave_up = GaveUp(bracket_of(line.searched(history)), why, interval)
            cut = FinishedPoint(bpm, gave_up, history)
            boundary = boundary_of(cut, context.trials, self.config, goal, context.brokers)
            self.boundaries.append(boundary)
            self._tell(context, boundary)

    def _keep(self, context: RunContext, goal: str, point: FinishedPoint) -> None:
        boundary = boundary_of(point, context.trials, self.config, goal, context.brokers)
        boundary = replace(boundary, np_planted=self._planted_np(context, goal, point.bpm))
        self._keep_boundary(context, boundary)

    def _keep_boundary(self, context: RunContext, boundary: Boundary) -> None:
        self.boundaries.append(boundary)
        names = (self.config.cluster.name, self.config.workload.name)
        member = (context.member.experiment, context.member.case)
        row = BoundaryRow(context.run_id, time.time(), *names, boundary, *member)
        context.tables.append_boundary(row)
        self._tell(context, boundary)

    def _planted_np(self, context: RunContext, goal: str, bpm: int) -> float | None:
        if not self._handler_times:
            return None
        idle_min = context.thresholds[goal].indicators.request_handler_idle_min
        return planted_np(self._handler_times, context.pattern(bpm, 1).producer, idle_min)

    def _tell(self, context: RunContext, boundary: Boundary) -> None:
        several = len(self.config.goals) > 1
        context.reporter.report(PointFinished(boundary, boundary.goal if several else ""))

    # --- concluding ---------------------------------------------------------

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """By the error, or by the points that stayed open."""
        if error is not None:
            return outcome_of(error)
        reasons = [why_no_answer(b, self.config.goal_named(b.goal)) for b in self.boundaries]
        missing = [(b, why) for b, why in zip(self.boundaries, reasons, strict=True) if why]
        if not missing:
            return RunOutcome()
        several = len({b.goal for b in self.boundaries}) > 1
        told = "; ".join(
            f"{f'{b.goal} at ' if several else ''}{b.bpm} B"
            f"{'' if b.state == ALL_BROKERS else f', {b.state}'}: {why}"
            for b, why in missing
        )
        text = f"no conclusion for {told}"
        return RunOutcome(NO_CONCLUSION, NoConclusionError.exit_code, text)

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Leave summary.json, chart and report."""
        goals = list(self._lines)
        found = sorted(
            self.boundaries, key=lambda b: (goals.index(b.goal), place_of(b.state), b.bpm)
        )
        summary = summary_of_run(run, self.config, outcome, found)
        trials, series = None, None
        if run.contexts:
            trials = run.context.trials
            series = panels_of_run(run.context.history.series, trials)
        told = json.loads(config_text(self.config))
        order = run.order
        files = write_results(
            summary, order.folder, order.tables, trials, told, series, order.json_file
        )
        took_s = time.time() - run.started_s
        run.order.reporter.report(RunFinished(summary, took_s, tuple(files.written)))
        if (planted := planted_table(found)) is not None:
            run.order.reporter.report(planted)
        files.require_all(regeneration_hint(summary.run_id))
