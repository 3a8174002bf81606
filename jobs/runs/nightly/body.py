"""A night, from opening to the last file: measure, judge, report, whatever happens on the way."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from jobs.config import Configuration
from jobs.config.suite import Case, Suite
from jobs.console.events import Level, Notice, PhaseStarted, Plan, Reporter, RunStarted, Table
from jobs.runs.estimate import TESTBED_CAVEAT, describe_producer, trial_s
from jobs.runs.limit import logged_to
from jobs.runs.nightly.concluding import case_reports, ending_of_night, judged_row, rule_of
from jobs.runs.nightly.junit import write_junit
from jobs.runs.nightly.lock import lock_key, locked
from jobs.runs.nightly.measuring import CaseInvalidError, CaseMeasurer, Night, expected_s, load_of
from jobs.runs.opening import Opening
from jobs.runs.recording import recorded
from jobs.runs.results import Ending, caveat_of, config_text
from jobs.trials.context import Bench
from jobs.trials.history import differences
from jobs.trials.warm_up import open_gates
from metrics.comparing.nightly import judge_night
from metrics.reporting.nightly import CaseReport, NightReport, table_rows, write_night
from metrics.tables.cases import CaseRow, Outcome
from metrics.tables.views import latest_boundaries
from metrics.units import format_duration, iso_utc
from search.errors import ConfigError, NoConclusionError, RegressionError


@dataclass
class NightRun:
    """Measures the cases of a suite, and judges them against the nights before.

    Args:
        config: of the suite, with the sizes of all its cases.
        night: name of the night; a night that is tried again keeps its own.
        run_id: names the run in tables and topics; the same for the same night.
        out: the run's own folder is made in here.
        tables: path or catalog name of the Delta tables, which hold the history.
        slots: tasks that share the load; None for as many as Spark can run at once.
        budget_s: instead of the suite's [s].
        junit: where to write JUnit XML, or None.
        may_resume: True when the run may have been begun before.
    """

    suite: Suite
    config: Configuration
    reporter: Reporter
    out: Path
    tables: str
    night: str
    run_id: str
    slots: int | None = None
    budget_s: float | None = None
    junit: Path | None = None
    may_resume: bool = False
    _bench: Bench | None = None
    _rows: dict[str, CaseRow] = field(default_factory=dict)
    _history: list[CaseRow] = field(default_factory=list)
    _missing: dict[str, tuple[Outcome, str]] = field(default_factory=dict)
    _cases: tuple[CaseReport, ...] = ()

    def execute(self) -> None:
        """Run to the end, and leave nightly.json, JUnit XML and tables.

        Raises:
            RegressionError: a case is worse than before.
            NoConclusionError: no case has a valid figure.
            ConfigError: another night measures the cluster, or this one was begun otherwise.
            RedlineError: as opening the cluster, the session or the tables raises.
            KeyboardInterrupt: it was interrupted.
        """
        self._started_s = time.time()
        told = f"night {self.night} of suite {self.suite.name}"
        with locked(lock_key(self.config.cluster), told):
            self.reporter.report(RunStarted(self.run_id, self.plan(self._folder)))
            try:
                with ExitStack() as stack:
                    stack.enter_context(logged_to(self._folder / "run.log"))
                    self._run(stack)
            except BaseException as error:
                self._conclude(error)
                raise

    @property
    def _folder(self) -> Path:
        return self.out / self.run_id

    def plan(self, out: Path) -> Plan:
        """What will be done."""
        cluster, one_s = self.config.cluster, trial_s(self.config.workload)
        all_s = sum(expected_s(self.config, case) for case in self.suite.cases)
        names = ", ".join(case.name for case in self.suite.cases)
        budget = "" if self._budget_s is None else f", within {format_duration(self._budget_s)}"
        notes = [f"cases {names}{budget}", *([TESTBED_CAVEAT] if cluster.testbed else [])]
        return Plan(
            cluster=cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            brokers=cluster.testbed.brokers if cluster.testbed else None,
            message_bytes=self.suite.sizes,
            producer=describe_producer(self.config.workload),
            resolution=self.config.goal.search.resolution,
            trial_s=one_s,
            trials_estimated=round(all_s / one_s),
            duration_s=all_s,
            out=out,
            notes=tuple(notes),
        )

    @property
    def _budget_s(self) -> float | None:
        return self.suite.budget_s if self.budget_s is None else self.budget_s

    # --- measuring ----------------------------------------------------------

    def _run(self, stack: ExitStack) -> None:
        bench = Opening(
            self.config,
            self.reporter,
            self.run_id,
            self._folder,
            self.tables,
            self.slots,
            self.may_resume,
        ).open(stack)
        self._bench = bench
        if self.config.cluster.testbed is None:
            told = f"night {self.night} of suite {self.suite.name}"
            stack.enter_context(locked(bench.environment["cluster.id"], told))
        self._resume(bench)
        with recorded(bench, self.config, self._ending):
            self._measure_all(bench)
            self._conclude(None)
            self._raise_for_outcome()

    def _resume(self, bench: Bench) -> None:
        """Take over what was measured of this night before, and read the history."""
        everything = bench.tables.cases(self.suite.name, self.config.cluster.name)
        self._history = [row for row in everything if row.run_id != self.run_id]
        if not self.may_resume:
            return
        before = bench.tables.runs().where(f"run_id = '{self.run_id}'").collect()
        if not before:
            return
        differing = differences(json.loads(before[0].config), json.loads(config_text(self.config)))
        if differing:
            raise ConfigError(
                f"the night {self.night} was begun with another plan: {'; '.join(differing)}; "
                "expected the same; give the same options, or another --night"
            )
        self._rows = {row.case: row for row in everything if row.run_id == self.run_id}
        bench.numbers = itertools.count(bench.tables.next_trial(self.run_id))

    def _measure_all(self, bench: Bench) -> None:
        left = [case for case in self.suite.cases if case.name not in self._rows]
        if not left:
            return
        gates = open_gates(bench, self.config.cluster.warm_up_max_s)
        measurer = CaseMeasurer(bench, self.config, gates, Night(self.suite, self.night))
        for case in left:
            left_s = self._left_s()
            needed_s = expected_s(self.config, case)
            if left_s is not None and needed_s > left_s:
                self._miss(
                    case,
                    Outcome.NOT_MEASURED,
                    f"it takes about {format_duration(needed_s)}, and "
                    f"{format_duration(left_s)} of the night's budget were left",
                )
                continue
            self.reporter.report(PhaseStarted(f"case {case.name}"))
            try:
                np = None if case.limit is not None else self._load_of(bench, case)
                self._rows[case.name] = measurer.measure(case, np, left_s)
            except CaseInvalidError as error:
                self._miss(case, Outcome.INVALID, str(error))

    def _left_s(self) -> float | None:
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - (time.time() - self._started_s))

    def _miss(self, case: Case, outcome: Outcome, why: str) -> None:
        self._missing[case.name] = (outcome, why)
        text = f"case {case.name}: {outcome.value}: {why}"
        self.reporter.report(Notice(Level.WARNING, text))

    def _load_of(self, bench: Bench, case: Case) -> int:
        if case.np is not None:
            return case.np
        names = (self.config.cluster.name, self.config.workload.name, self.config.goal.name)
        found = latest_boundaries(bench.tables.read("boundaries"))
        for column, wanted in zip(("cluster", "workload", "goal"), names, strict=True):
            found = found.where(found[column] == wanted)
        known = found.where((found.axis == "np") & (found.bpm == case.bpm)).collect()
        return load_of(case, self._history, known[0].np_sustained if known else None)

    # --- concluding ---------------------------------------------------------

    def _conclude(self, error: BaseException | None) -> None:
        """Judge, and leave all files; after an error what is known until then."""
        if isinstance(error, RegressionError | NoConclusionError):
            return  # raised for what was concluded
        tonight = [self._rows[case.name] for case in self.suite.cases if case.name in self._rows]
        comparisons = judge_night(tonight, self._history, rule_of(self.suite))
        bench = self._bench
        if error is None and bench is not None:
            for each in comparisons:
                bench.tables.append_case(judged_row(each))
        self._cases = case_reports(self.suite, comparisons, self._missing, error)
        ending = self._ending(error)
        self._report = NightReport(
            run_id=self.run_id,
            night=self.night,
            suite=self.suite.name,
            cluster=self.config.cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            started_at=iso_utc(self._started_s),
            finished_at=iso_utc(time.time()),
            status=ending.status,
            exit_code=ending.exit_code,
            error=ending.error,
            caveat=caveat_of(self.config, bench.caveats if bench else ()),
            cases=self._cases,
            environment=bench.environment if bench else {},
        )
        write_night(self._report, self._folder / "nightly.json")
        if self.junit is not None:
            write_junit(self._report, self.junit)
        self._tell()

    def _ending(self, error: BaseException | None) -> Ending:
        return ending_of_night(self._cases, error)

    def _raise_for_outcome(self) -> None:
        ending = self._ending(None)
        for kind in (RegressionError, NoConclusionError):
            if ending.exit_code == kind.exit_code:
                raise kind(ending.error or ending.status)

    def _tell(self) -> None:
        title = f"night {self.night} of suite {self.suite.name} on {self.config.cluster.name}"
        columns = ("case", "tonight", "change", "interval", "nights", "outcome")
        self.reporter.report(Table(title, columns, tuple(table_rows(self._cases))))
        for each in self._cases:
            level = Level.WARNING if each.outcome is Outcome.REGRESSION else Level.NOTE
            self.reporter.report(Notice(level, f"{each.case}: {each.text}"))
        self.reporter.report(Notice(Level.NOTE, f"summary: {self._folder / 'nightly.json'}"))
        self.reporter.report(Notice(Level.NOTE, f"tables: {self.tables}"))
