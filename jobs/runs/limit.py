"""A run: one search per message size against one cluster, from opening to the last file."""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jobs.config import Configuration
from jobs.console.events import PointFinished, Reporter, RunFinished, RunStarted
from jobs.runs.estimate import line_of, plan_of
from jobs.runs.opening import Opening
from jobs.runs.recording import recorded
from jobs.runs.results import (
    boundary_of,
    caveat_of,
    config_text,
    ending_of,
    write_results,
)
from jobs.trials.context import Bench
from jobs.trials.history import replay, resumed_records
from jobs.trials.measure import Outlook, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import open_gates
from metrics.reporting.summary import Boundary, RunSummary
from metrics.units import iso_utc
from search.bracket import bracket_of
from search.errors import GuardStopError, NoConclusionError
from search.forecast import trials_left
from search.goals import Histories
from search.line import FinishedPoint, Line
from search.lines import next_size, run_lines
from search.model import Decision, GaveUp, Measure, Observation


def new_run_id(at_s: float) -> str:
    """A name that sorts by time and that no other run has."""
    at = datetime.fromtimestamp(at_s, tz=timezone.utc)
    return f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Keep the warnings of libraries in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, delay=True, encoding="utf-8")
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


@dataclass
class LimitRun:
    """Finds the boundary points of a configuration, and keeps what it found however it ends.

    Args:
        out: the run's own folder is made in here.
        tables: path or catalog name of the Delta tables.
        run_id: names the run in tables and topics; see `new_run_id`.
        slots: tasks that share the load; None for as many as Spark can run at once.
        resumes: True when `run_id` names a run to go on with.
    """

    config: Configuration
    reporter: Reporter
    out: Path
    tables: str
    run_id: str
    slots: int | None = None
    resumes: bool = False
    boundaries: list[Boundary] = field(default_factory=list)
    _bench: Bench | None = None
    _lines: Mapping[str, Line] = field(default_factory=dict)
    _points: dict[str, list[FinishedPoint]] = field(default_factory=dict)
    _begun: Mapping[str, tuple[Observation, ...]] | None = None
    _trials: list[dict[str, Any]] | None = None

    def execute(self) -> RunSummary:
        """Run to the end, and leave summary.json, chart and tables.

        Raises:
            NoConclusionError: a size ended without a valid bracket.
            RedlineError: as opening the cluster, the session or the tables raises.
            KeyboardInterrupt: it was interrupted.
        """
        # What an earlier part of the run left stays as it is until this one goes on with it.
        self._is_begun = not self.resumes
        started_s = time.time()
        plan = plan_of(self.config.cluster, self.config.workload, self.config.goal, self._folder)
        plan = replace(plan, goal=self.config.goal_names)
        self.reporter.report(RunStarted(self.run_id, plan))
        try:
            with ExitStack() as stack:
                stack.enter_context(logged_to(self._folder / "run.log"))
                self._run(stack)
        except BaseException as error:
            if self._is_begun:
                self._conclude(started_s, error)
            raise
        summary = self._conclude(started_s, None)
        if summary.exit_code:
            raise NoConclusionError(summary.error or summary.status)
        return summary

    @property
    def _folder(self) -> Path:
        return self.out / self.run_id

    def _run(self, stack: ExitStack) -> None:
        bench = Opening(
            self.config,
            self.reporter,
            self.run_id,
            self._folder,
            self.tables,
            self.slots,
            self.resumes,
        ).open(stack)
        self._bench = bench
        self._resume(bench)
        with recorded(bench, self.config, lambda error: ending_of(error, self.boundaries)):
            try:
                self._search_all(bench)
            finally:
                self._trials = bench.tables.trial_rows(self.run_id)

    def _resume(self, bench: Bench) -> None:
        """Take over the trials of the run that is resumed, and see where it stood."""
        self._lines = {
            goal.name: line_of(bench.workload, goal, bench.brokers) for goal in self.config.goals
        }
        self._points = {goal: [] for goal in self._lines}
        if not self.resumes:
            return
        bench.records.extend(resumed_records(bench.tables, self.run_id, config_text(self.config)))
        bench.numbers = itertools.count(bench.tables.next_trial(self.run_id))
        self._points, self._begun = replay(self._lines, bench.records)
        self._is_begun = True

    # --- searching ----------------------------------------------------------

    def _search_all(self, bench: Bench) -> None:
        for goal, points in self._points.items():
            for point in points:
                self._keep(bench, goal, point)
        outlook = Outlook()
        gates = open_gates(bench, self.config.cluster.warm_up_max_s)

        def look_ahead(decision: Decision, histories: Histories) -> None:
            if isinstance(decision, Measure):
                outlook.reason = decision.reason
                outlook.trials_left = max(
                    trials_left(line, self._points[goal], histories[goal])
                    for goal, line in self._lines.items()
                )

        def end_point(goal: str, point: FinishedPoint) -> None:
            topics.close()
            self._points[goal].append(point)
            self._keep(bench, goal, point)

        with PointTopics(bench) as topics:
            try:
                run_lines(
                    self._lines,
                    lambda bpm: TrialMeasurer(bench, topics, gates, bpm, outlook),
                    look_ahead,
                    self._points,
                    self._begun,
                    end_point,
                )
            except GuardStopError as stop:
                self._keep_cut(bench, str(stop))
                raise

    def _keep_cut(self, bench: Bench, why: str) -> None:
        """Keep the best brackets of a search that was stopped; its trials can be resumed."""
        bpm = next_size(self._lines, self._points)
        own = [record for record in bench.records if record.bpm == bpm]
        if bpm is None or not own:
            return
        for goal in self._lines:
            history = tuple(record.observation(goal) for record in own)
            cut = FinishedPoint(bpm, GaveUp(bracket_of(history), why), history)
            boundary = boundary_of(cut, bench.records, self.config, goal, bench.brokers)
            self.boundaries.append(boundary)
            self._tell(boundary)

    def _keep(self, bench: Bench, goal: str, point: FinishedPoint) -> None:
        boundary = boundary_of(point, bench.records, self.config, goal, bench.brokers)
        self.boundaries.append(boundary)
        names = (self.config.cluster.name, self.config.workload.name, goal)
        bench.tables.append_boundary(self.run_id, time.time(), names, boundary)
        self._tell(boundary)

    def _tell(self, boundary: Boundary) -> None:
        several = len(self.config.goals) > 1
        self.reporter.report(PointFinished(boundary, boundary.goal if several else ""))

    # --- concluding ---------------------------------------------------------

    def _conclude(self, started_s: float, error: BaseException | None) -> RunSummary:
        ending, finished_s, bench = ending_of(error, self.boundaries), time.time(), self._bench
        order = list(self._lines)
        summary = RunSummary(
            run_id=self.run_id,
            started_at=iso_utc(started_s),
            finished_at=iso_utc(finished_s),
            cluster=self.config.cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            boundaries=tuple(
                sorted(self.boundaries, key=lambda each: (order.index(each.goal), each.bpm))
            ),
            brokers=bench.brokers if bench else 0,
            status=ending.status,
            exit_code=ending.exit_code,
            error=ending.error,
            caveat=caveat_of(self.config, bench.caveats if bench else ()),
            environment=bench.environment if bench else {},
            replication_factor=self.config.workload.topic.replication_factor,
            consumer_groups=self.config.workload.consumers.groups,
        )
        told = json.loads(config_text(self.config))
        files = write_results(summary, self._folder, self.tables, self._trials, told)
        self.reporter.report(RunFinished(summary, finished_s - started_s, files))
        return summary
