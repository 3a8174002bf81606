"""The search for the boundary points of a configuration, one message size after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobs.cluster.topics import TopicError
from jobs.config import Configuration
from jobs.config.loading import require_endless, require_open_loop
from jobs.console.events import Plan, PointFinished
from jobs.runs.estimate import line_of, plan_of
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.outage_limits import find_outage_limits, progress_updater
from jobs.runs.outcome import NO_CONCLUSION, RunOutcome, outcome_of
from jobs.runs.results import boundary_of, conclude_run, series_from, summary_of_run, why_no_answer
from jobs.runs.resumption import config_text, replay, resumed_trials
from jobs.runs.steady import (
    SteadyAnswer,
    announce,
    budget_problem,
    hold_steadily,
    largest,
    require_failure_allowed,
    steady_measurer,
    steady_plan,
    with_planned_hold,
)
from jobs.trials.calibration import Calibration, calibration_table
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates, open_gates
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import warm_up_pattern
from metrics.common.errors import ConfigError, GuardStopError, NoConclusionError
from metrics.reporting import drawing
from metrics.reporting.report_page import belongs_to
from metrics.tables.boundary import AnswerKind, Boundary, BoundaryRow
from metrics.trial.trial import ALL_BROKERS, Trial, WarmUp, place_of
from search.budget import Spent
from search.line import FinishedPoint, Line
from search.lines import next_size, run_lines, with_checked
from search.model import GaveUp, Observation, bracket_of


class LimitRun(Body):
    """Finds the boundary points of a configuration.

    Args:
        config: the configuration to search.
        holds: whether a long trial may follow the search. The long trial shows whether disks can
            write the load of the largest limit. `holds` has no effect if `search.steady_s` is set.
        climbs: whether the first load of the search comes from a measurement with a growing load,
            even if the brokers are warm.
        checks: whether the search may check for a change of the limit (`search.check_for_change`).

    Attributes:
        boundaries: the boundaries found until now, for all goals; they remain after an error.
    """

    measurement = "limit"

    def __init__(
        self, config: Configuration, *, holds: bool = True, climbs: bool = True, checks: bool = True
    ) -> None:
        require_endless(config)
        require_open_loop(config)
        require_failure_allowed(config)
        self.config = config
        self.boundaries: list[Boundary] = []
        self._lines: dict[str, Line] = {}
        self._points: dict[str, list[FinishedPoint]] = {}
        self._begun: Mapping[str, tuple[Observation, ...]] | None = None
        self._calibration = Calibration()
        self._climbs = climbs
        self._checks = checks
        self._before = 0
        self._holds = holds or config.goal.search.steady_s is not None

    def plan(self, out: Path) -> Plan:
        """The plan of the search, from a forecast on simulated clusters."""
        plan = plan_of(self.config, out)
        return with_planned_hold(plan, self.config) if self._holds else plan

    def begin(self, context: RunContext) -> None:
        """Begin the search without boundary points, and ignore earlier trials, which belong to
        other searches.
        """
        lines = {
            goal.name: line_of(context.workload, goal, context.brokers, context.guards)
            for goal in self.config.goals
        }
        self._lines = {
            goal: replace(line, check_for_change=line.check_for_change and self._checks)
            for goal, line in lines.items()
        }
        self._points = {goal: [] for goal in lines}
        self._before = len(context.history.trials)

    def resume(self, run: RunState) -> None:
        """Load the trials of a resumed run, and replay its search."""
        context = run.context
        self.begin(context)
        if not run.order.resumes:
            return
        if self.config.goal.search.brokers_offline is not None:
            raise ConfigError(
                f"--resume names the run {run.order.run_id}, in which brokers go offline; expected "
                "a run without offline brokers, because offline brokers have caught up in the "
                "meantime; start a new run"
            )
        tables, run_id = context.tables, context.run_id
        trials = resumed_trials(tables, run_id, config_text(self.config), context.environment)
        series = series_from(tables, run_id, trials)
        context.history.resume(trials, series, tables.next_trial(run_id))
        self._hint(trials[0].warm_up if trials else WarmUp())
        self._points, self._begun = replay(
            self._lines, [each for each in trials if not each.steady]
        )

    def _hint(self, warm_up: WarmUp) -> None:
        """Set the first load in each plan of a boundary line. The first load follows from the
        reading of a warm-up.
        """
        for goal in self.config.goals:
            line = self._lines[goal.name]
            self._lines[goal.name] = replace(
                line,
                hint=warm_up.hint(goal.indicators.request_handler_idle_min),
                limits=replace(line.limits, first_max=warm_up.generator_load),
            )

    # --- searching ----------------------------------------------------------

    def measure(self, run: RunState) -> None:
        """Search one message size after another, with the same trials for all goals."""
        context = run.context
        for goal, points in self._points.items():  # the points of a resumed run
            for point in points:
                self._keep(context, self._boundary(context, goal, point))
        drawing.prepare()  # loads slow libraries before any trial
        climbs = self._climbs and not context.history.trials
        self.search(context, open_gates(context, self.config.cluster.warm_up_max_s, climbs=climbs))
        if self.config.goal.search.brokers_offline is not None:
            context.guards.require_untripped()
            for boundary in find_outage_limits(context, self._lines, self._points, self.boundaries):
                self._keep(context, boundary)

    def search(self, context: RunContext, gates: Gates) -> None:
        """Continue the search from the present boundary points, and keep each further point."""
        progress = SearchProgress()

        def end_point(goal: str, point: FinishedPoint) -> None:
            self._points[goal][:] = with_checked(self._points[goal], point)
            try:
                if not point.checked:
                    self._calibration.measure(context, rig.topics, point.message_bytes)
            finally:
                self._keep(context, self._boundary(context, goal, point))

        def measurer_for(message_bytes: int) -> TrialMeasurer:
            context.guards.require_untripped()
            return TrialMeasurer(rig, message_bytes, progress)

        with Rig(context, PointTopics(context), gates) as rig:
            size = next_size(self._lines, self._points)
            load_max_s = self.config.cluster.warm_up_max_s
            if load_max_s and not context.history.trials and size is not None:
                gates.warm(rig.topics.open(warm_up_pattern(context, size, load_max_s)))
                self._hint(context.history.warm_up)
            try:
                run_lines(
                    self._lines,
                    measurer_for,
                    progress_updater(progress, self._lines, self._points),
                    self._points,
                    self._begun,
                    end_point,
                )
            except GuardStopError as stop:
                self._keep_stopped(context, str(stop))
                raise
            if self._holds:
                self._prove_steady(rig, progress)

    def _trials(self, context: RunContext) -> Sequence[Trial]:
        """The trials of this search."""
        return context.history.trials[self._before :]

    def _prove_steady(self, rig: Rig, progress: SearchProgress) -> None:
        """Make long trials until disks are proven to write a load. Of all limits, one has the
        largest byte rate; the first long trial offers the load of this limit. Then add the steady
        limit to the boundary of each point.
        """
        context, found = rig.context, largest(self.boundaries)
        if found is None:
            return
        trials, search = self._trials(context), self.config.goal.search
        plan = steady_plan(self.config, found, trials, self._spent(context))
        announce(context, plan, found)
        own = next(each for each in trials if belongs_to(each, found))
        measurer = steady_measurer(
            rig,
            own.point_message_bytes,
            progress,
            plan.hold_s,
            failing_load=found.loads[0] if search.to_failure else None,
        )

        refused: list[str] = []

        def hold(load: int) -> Trial | None:
            context.guards.require_untripped()
            pattern = measurer.pattern(load)
            spent = self._spent(context)
            why = budget_problem(search.budget, spent, pattern, plan)
            if why := why or context.guards.refusal(pattern) or "":
                refused.append(why)
                return None
            progress.reason = f"offering {self.config.axis.amount(load)} until its data is on disk"
            progress.trials_left = 1
            try:
                return measurer.trial(load)
            except TopicError as error:  # busy disks may delay the brokers' metadata
                refused.append(f"the load could not begin: {error}")
                return None

        done = [each for each in trials if each.steady]
        holds = hold_steadily(found, done, hold) if plan.hold_s else tuple(done)
        self._complete(context, SteadyAnswer(found, holds, plan.why or "".join(refused)))

    def _spent(self, context: RunContext) -> Spent:
        """The cost of the run until now, including the long trials that show whether disks write a
        load.
        """
        name, line = next(iter(self._lines.items()))
        spent = line.spent(self._points[name])
        for each in self._trials(context):
            if each.steady:
                rate = line.rate.bytes(each.point_message_bytes)
                spent = spent.plus([each.observation(name)], rate)
        return spent

    def _complete(self, context: RunContext, answer: SteadyAnswer) -> None:
        """Add the steady limits to the boundaries of all points."""
        found = []
        for goal, points in self._points.items():
            for point in points:
                boundary = self._boundary(context, goal, point)
                pattern = context.pattern(point.message_bytes, max(1, boundary.loads[0]))
                found.append(answer.complete(boundary, pattern))
        self.boundaries = found
        for boundary in found:
            self._append(context, boundary)

    def _keep_stopped(self, context: RunContext, why: str) -> None:
        """Add the results at the message size at which a guard stopped the search.

        For each goal, the result is the present bracket: the highest number of producers that was
        sustained, and the lowest overloaded number above it. The results are in summary.json.

        Args:
            context: the open resources of the run.
            why: the reason of the guard.
        """
        message_bytes = next_size(self._lines, self._points)
        trials = self._trials(context)
        own = [trial for trial in trials if trial.point_message_bytes == message_bytes]
        if message_bytes is None or not own:
            return
        for goal, line in self._lines.items():
            history = tuple(trial.observation(goal) for trial in own)
            interval = line.searcher(message_bytes, self._points[goal]).interval(history)
            gave_up = GaveUp(bracket_of(line.searched(history)), why, interval)
            stopped = FinishedPoint(message_bytes, gave_up, history)
            boundary = boundary_of(stopped, trials, context.config, goal, context.brokers)
            self.boundaries.append(boundary)
            self._report(context, boundary)

    def _boundary(self, context: RunContext, goal: str, point: FinishedPoint) -> Boundary:
        trials = self._trials(context)
        boundary = boundary_of(point, trials, context.config, goal, context.brokers)
        return self._calibration.complete(boundary, context, goal)

    def _keep(self, context: RunContext, boundary: Boundary) -> None:
        """Keep a boundary; it replaces an earlier boundary of the same point."""
        key = _key(boundary)
        earlier = [each for each in self.boundaries if _key(each) == key]
        self.boundaries = [each for each in self.boundaries if _key(each) != key]
        self.boundaries.append(boundary)
        self._append(context, boundary)
        if not earlier or _answer(earlier[-1]) != _answer(boundary):
            self._report(context, boundary)

    def _append(self, context: RunContext, boundary: Boundary) -> None:
        names = (self.config.cluster.name, self.config.workload.name)
        sweep_case = (context.sweep_case.experiment, context.sweep_case.case)
        row = BoundaryRow(context.run_id, time.time(), *names, boundary, *sweep_case)
        context.tables.append_boundary(row)

    def _report(self, context: RunContext, boundary: Boundary) -> None:
        several = len(self.config.goals) > 1
        context.reporter.report(PointFinished(boundary, boundary.goal if several else ""))

    # --- concluding ---------------------------------------------------------

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of the run. An error of the run determines the outcome. Without an error, the
        points that have no answer determine the outcome.
        """
        if error is not None:
            return outcome_of(error)
        missing = [(b, why) for b in self.boundaries if (why := self._missing(b))]
        if not missing:
            return RunOutcome()
        several = len({b.goal for b in self.boundaries}) > 1
        sizes = "; ".join(
            f"{f'{b.goal} at ' if several else ''}{b.message_bytes} B"
            f"{'' if b.state == ALL_BROKERS else f', {b.state}'}: {why}"
            for b, why in missing
        )
        text = f"no conclusion for {sizes}"
        return RunOutcome(NO_CONCLUSION, NoConclusionError.exit_code, text)

    def _missing(self, boundary: Boundary) -> str:
        """The reason why a boundary does not answer the question about the limit; empty if there is
        a limit in the boundary. A lower bound of the limit is sufficient if the goal accepts lower
        bounds.
        """
        goal = self.config.goal_named(boundary.goal)
        is_bound = boundary.answer_kind == AnswerKind.LOWER_BOUND.value
        if is_bound and goal.search.accept_lower_bound:
            return ""
        return why_no_answer(boundary, goal)

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write summary.json, the chart and the report."""
        goals = list(self._lines)
        found = sorted(
            self.boundaries, key=lambda b: (goals.index(b.goal), place_of(b.state), b.message_bytes)
        )
        summary = summary_of_run(run, self.config, outcome, found, measurement=self.measurement)
        if (table := calibration_table(found)) is not None:
            run.order.reporter.report(table)
        conclude_run(run, self.config, summary)


def _key(boundary: Boundary) -> tuple[str, int, str]:
    return boundary.goal, boundary.message_bytes, boundary.state


def _answer(boundary: Boundary) -> tuple[object, ...]:
    """Those values of a boundary whose change the user must see. If one of these values changes,
    the run reports the boundary again.
    """
    return boundary.loads, boundary.gave_up, boundary.changed, boundary.notes
