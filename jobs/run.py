"""A run: one search per message size against one cluster, from opening to the last file."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from jobs.axes import heaviest
from jobs.brokers.cluster import (
    OpenCluster,
    open_cluster,
    queues_of,
    require_fitting,
    window_needed_s,
)
from jobs.brokers.sources import open_metrics
from jobs.brokers.topics import Topics
from jobs.config import Configuration
from jobs.environment import environment_of
from jobs.estimate import line_of, plan_of
from jobs.events import PhaseStarted, PointFinished, Reporter, RunFinished, RunStarted
from jobs.results import (
    boundary_of,
    caveat_of,
    config_text,
    ending_of,
    run_row,
    write_results,
)
from jobs.spark_session import close_session, local_session
from jobs.trials.bench import Bench
from jobs.trials.control import control_of
from jobs.trials.guards import open_guards
from jobs.trials.history import replay, resumed_records
from jobs.trials.load import Generator, require_room
from jobs.trials.measure import Outlook, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import open_gates
from metrics.schema import RunRow
from metrics.sources.shortcomings import is_blind, shortcomings
from metrics.store import TableStore
from metrics.summary import Boundary, RunSummary
from metrics.units import iso_utc
from search.bracket import bracket_of
from search.errors import GuardStopError, NoConclusionError
from search.forecast import trials_left
from search.line import FinishedPoint
from search.lines import run_line
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
        slots: tasks of a local Spark session; None for one per core.
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
    brokers: int = 0
    _points: list[FinishedPoint] = field(default_factory=list)
    _begun: tuple[Observation, ...] = ()
    _caveats: tuple[str, ...] = ()
    _environment: dict[str, str] = field(default_factory=dict)

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

    def _phase(self, text: str) -> None:
        self.reporter.report(PhaseStarted(text))

    # --- opening ------------------------------------------------------------

    def _run(self, stack: ExitStack) -> None:
        workload, goal = self.config.workload, self.config.goal
        opened = open_cluster(self.config.cluster, self.reporter, stack)
        self.brokers = len(opened.info.brokers)
        # A run that is resumed may have left a topic behind, which is not to be written to.
        name = f"{self.run_id}-{secrets.token_hex(2)}" if self.resumes else self.run_id
        topics = Topics(opened.admin, name)
        require_fitting(opened, workload, goal)
        for bpm in workload.message_bytes:
            largest = heaviest(workload, goal, bpm)
            topics.validate(largest.workload, largest.bpm)
        bench = self._bench(opened, topics, stack)
        self._resume(bench)
        bench.tables.append_run(self._row("started", bench, None))
        try:
            self._search_all(bench, opened)
        except BaseException as error:
            bench.tables.append_run(self._row("finished", bench, error))
            raise
        bench.tables.append_run(self._row("finished", bench, None))
        bench.tables.compact()

    def _bench(self, opened: OpenCluster, topics: Topics, stack: ExitStack) -> Bench:
        workload, goal = self.config.workload, self.config.goal
        self._phase("starting Spark")
        spark = local_session(self.slots, log=self._folder / "spark.log")
        stack.callback(close_session, spark)
        self._phase("opening the Delta tables")
        tables = TableStore(spark, self.tables).open()
        self._phase("connecting to the brokers' metrics")
        source = open_metrics(self.config.cluster, opened, getattr(spark, "_jvm", None))
        stack.callback(source.close)
        guards = open_guards(self.config, opened.admin, self.run_id, self.reporter)
        if self.resumes:
            guards.spent_bytes = tables.payload_bytes(self.run_id)
        self._caveats = shortcomings(source.nodes)
        for caveat in self._caveats:
            self._phase(caveat)
        control = stack.enter_context(control_of(spark))
        slots = spark.sparkContext.defaultParallelism
        require_room(
            heaviest(workload, goal, workload.message_bytes[0]).workload, slots, self.brokers
        )
        options = opened.security.client_kwargs()
        self._environment = environment_of(
            spark, source.nodes, opened.admin, opened.info, workload.topic
        )
        return Bench(
            run_id=self.run_id,
            workload=workload,
            goal=goal,
            thresholds=replace(
                goal.thresholds(window_needed_s(opened, workload), queues_of(opened, goal)),
                client_only=is_blind(source.nodes),
            ),
            reporter=self.reporter,
            generator=Generator(spark, slots, options, control),
            topics=topics,
            guards=guards,
            check_cluster=opened.check,
            addresses=opened.info.addresses,
            source=source,
            tables=tables,
            environment=self._environment,
        )

    def _resume(self, bench: Bench) -> None:
        """Take over the trials of the run that is resumed, and see where it stood."""
        self._line = line_of(bench.workload, bench.goal, self.brokers)
        if not self.resumes:
            return
        bench.records.extend(resumed_records(bench.tables, self.run_id, config_text(self.config)))
        bench.numbers = itertools.count(bench.tables.next_trial(self.run_id))
        self._points, self._begun = replay(self._line, bench.records)
        self._is_begun = True

    # --- searching ----------------------------------------------------------

    def _search_all(self, bench: Bench, opened: OpenCluster) -> None:
        for point in self._points:
            self._keep(bench, point)
        outlook = Outlook()
        topics = PointTopics(bench)
        gates = open_gates(bench, self.config.cluster.warm_up_max_s)

        def look_ahead(decision: Decision, history: Sequence[Observation]) -> None:
            if isinstance(decision, Measure):
                outlook.reason = decision.reason
                outlook.trials_left = trials_left(self._line, self._points, history)

        def end_point(point: FinishedPoint) -> None:
            topics.close()
            self._points.append(point)
            self._keep(bench, point)

        try:
            run_line(
                self._line,
                lambda bpm: TrialMeasurer(bench, topics, gates, bpm, outlook),
                look_ahead,
                tuple(self._points),
                self._begun,
                end_point,
            )
        except GuardStopError as stop:
            self._keep_cut(bench, str(stop))
            raise
        finally:
            topics.close()

    def _keep_cut(self, bench: Bench, why: str) -> None:
        """Keep the best bracket of a search that was stopped; its trials can be resumed."""
        bpm = self._line.next_bpm(self._points)
        history = tuple(r.observation for r in bench.records if r.bpm == bpm)
        if bpm is None or not history:
            return
        cut = FinishedPoint(bpm, GaveUp(bracket_of(history), why), history)
        boundary = boundary_of(cut, bench.records, self.config, self.brokers)
        self.boundaries.append(boundary)
        self.reporter.report(PointFinished(boundary))

    def _keep(self, bench: Bench, point: FinishedPoint) -> None:
        boundary = boundary_of(point, bench.records, self.config, self.brokers)
        self.boundaries.append(boundary)
        names = (self.config.cluster.name, self.config.workload.name, self.config.goal.name)
        bench.tables.append_boundary(self.run_id, time.time(), names, boundary)
        self.reporter.report(PointFinished(boundary))

    # --- concluding ---------------------------------------------------------

    def _row(self, event: str, bench: Bench, error: BaseException | None) -> RunRow:
        ending = ending_of(error, self.boundaries) if event == "finished" else None
        row = run_row(
            self.run_id, event, time.time(), self.config, self.brokers, bench.environment, ending
        )
        return replace(row, caveat=caveat_of(self.config, self._caveats))

    def _conclude(self, started_s: float, error: BaseException | None) -> RunSummary:
        ending, finished_s = ending_of(error, self.boundaries), time.time()
        summary = RunSummary(
            run_id=self.run_id,
            started_at=iso_utc(started_s),
            finished_at=iso_utc(finished_s),
            cluster=self.config.cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal.name,
            boundaries=tuple(sorted(self.boundaries, key=lambda boundary: boundary.bpm)),
            brokers=self.brokers,
            status=ending.status,
            exit_code=ending.exit_code,
            error=ending.error,
            caveat=caveat_of(self.config, self._caveats),
            environment=self._environment,
        )
        files = write_results(summary, self._folder, self.tables)
        self.reporter.report(RunFinished(summary, finished_s - started_s, files))
        return summary
