"""A night: measures its cases, judges them against earlier nights, and reports them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from jobs.campaigns.nightly.conclusion import case_reports, judged_row, outcome_of_night, rule_of
from jobs.campaigns.nightly.junit import write_junit
from jobs.campaigns.nightly.measurement import (
    CaseInvalidError,
    CaseMeasurer,
    Night,
    expected_s,
    load_of,
)
from jobs.config import Configuration
from jobs.config.loading import require_open_loop
from jobs.config.suite import LIMIT, Case, Suite
from jobs.console.events import Level, Notice, PhaseStarted, Plan, Table
from jobs.runs.artifacts import ArtifactWriter
from jobs.runs.budget import TimeBudget
from jobs.runs.estimate import describe_producer, starting_s, trial_s
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.outcome import RunOutcome
from jobs.runs.resumption import config_text, differences, require_same_series
from jobs.trials.context import RunContext
from jobs.trials.warm_up import open_gates
from metrics.common.errors import ConfigError
from metrics.comparing.nightly import judge_night
from metrics.reporting.answer_page import AnswerPage, answer_page
from metrics.reporting.files import write_atomic
from metrics.reporting.nightly import CaseReport, NightReport, table_rows, write_night
from metrics.tables.cases import CaseRow, Outcome
from metrics.units import format_duration


class NightRun(Body):
    """Measures the cases of a suite, and judges them against earlier nights.

    Args:
        config: the suite's configuration, with the sizes of all its cases.
        night: the name of the night; a continued night keeps its name.
        budget_s: the budget of the night [s]; None for the suite's.
        junit: the path of the JUnit XML, or None.
    """

    def __init__(
        self,
        suite: Suite,
        config: Configuration,
        night: str,
        budget_s: float | None = None,
        junit: Path | None = None,
    ) -> None:
        require_open_loop(config)
        self.suite = suite
        self.config = config
        self.night = night
        self._budget_s = suite.budget_s if budget_s is None else budget_s
        self._junit = junit
        self._rows: dict[str, CaseRow] = {}
        self._history: list[CaseRow] = []
        self._missing: dict[str, tuple[Outcome, str]] = {}
        self._cases: tuple[CaseReport, ...] = ()

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The run's single configuration."""
        return {"": self.config}

    def plan(self, out: Path) -> Plan:
        """The plan of all cases."""
        cluster, one_s = self.config.cluster, trial_s(self.config.workload)
        all_s = sum(expected_s(self.config, case) for case in self.suite.cases)
        names = ", ".join(case.name for case in self.suite.cases)
        budget = "" if self._budget_s is None else f", within {format_duration(self._budget_s)}"
        notes = [f"cases {names}{budget}", *cluster.caveats]
        return Plan(
            cluster=cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            brokers=cluster.brokers_known,
            message_bytes=self.suite.sizes,
            producer=describe_producer(self.config.workload),
            resolution=self.config.goal.search.resolution,
            trial_s=one_s,
            trials_estimated=round(all_s / one_s),
            duration_s=all_s,
            out=out,
            notes=tuple(notes),
            starting_s=starting_s(cluster),
        )

    # --- measuring ----------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"night {self.night} of suite {self.suite.name}"

    def has_results(self, folder: Path) -> bool:
        """Whether the folder has results; a night with a name may also run for the first time."""
        return (folder / "nightly.json").exists()

    def resume(self, run: RunState) -> None:
        """Load the cases that this night measured before, and the history of the suite."""
        context = run.context
        everything = context.tables.cases(self.suite.name, self.config.cluster.name)
        self._history = [row for row in everything if row.run_id != context.run_id]
        if not run.order.resumes:
            return
        before = context.tables.run_rows(context.run_id)
        if not before:
            return
        differing = differences(before[0].settings, json.loads(config_text(self.config)))
        if differing:
            raise ConfigError(
                f"the night {self.night} began with another configuration: {'; '.join(differing)}; "
                "expected the same configuration; give the same options, or another --night"
            )
        then = before[0].environment
        require_same_series(f"the night {self.night}", then, context.environment)
        self._rows = {row.case: row for row in everything if row.run_id == context.run_id}
        context.history.numbering.resume_at(context.tables.next_trial(context.run_id))

    def measure(self, run: RunState) -> None:
        """Measure the remaining cases of the night, and judge all of them."""
        left = [case for case in self.suite.cases if case.name not in self._rows]
        if left:
            # As in a search of its own, a load that grows shows where the first limit is searched.
            load_max_s, climbs = self.config.cluster.warm_up_max_s, left[0].kind == LIMIT
            gates = open_gates(run.context, load_max_s, climbs=climbs)
            night = Night(self.suite, self.night)
            measurer = CaseMeasurer(run.context, self.config, gates, night)
            for case in left:
                self._measure(run, measurer, case)
        self._judge(run, None)

    def _measure(self, run: RunState, measurer: CaseMeasurer, case: Case) -> None:
        reporter = run.order.reporter
        budget = TimeBudget(self._budget_s, run.started_s)
        if why := budget.refusal(expected_s(self.config, case)):
            self._miss(run, case, Outcome.NOT_MEASURED, why)
            return
        reporter.report(PhaseStarted(f"case {case.name}"))
        try:
            producers = None if case.kind == LIMIT else self._load_of(run.context, case)
            self._rows[case.name] = measurer.measure(case, producers, budget.left_s)
        except CaseInvalidError as error:
            self._miss(run, case, Outcome.INVALID, str(error))

    def _miss(self, run: RunState, case: Case, outcome: Outcome, why: str) -> None:
        self._missing[case.name] = (outcome, why)
        text = f"case {case.name}: {outcome.value}: {why}"
        run.order.reporter.report(Notice(Level.WARNING, text))

    def _load_of(self, context: RunContext, case: Case) -> int:
        if case.np is not None:
            return case.np
        names = (self.config.cluster.name, self.config.workload.name, self.config.goal.name)
        return load_of(case, self._history, context.tables.latest_limit(*names, case.size))

    # --- concluding ---------------------------------------------------------

    def _judge(self, run: RunState, error: BaseException | None) -> None:
        """Judge the measured cases; the tables keep the judgement of a complete night only."""
        tonight = [self._rows[case.name] for case in self.suite.cases if case.name in self._rows]
        comparisons = judge_night(tonight, self._history, rule_of(self.suite))
        if error is None:
            for each in comparisons:
                run.context.tables.append_case(judged_row(each))
        self._cases = case_reports(self.suite, comparisons, self._missing, error)

    def fail(self, run: RunState, error: BaseException) -> None:
        """Judge the cases that were measured before the error."""
        self._judge(run, error)

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome by the error, or by the cases."""
        return outcome_of_night(self._cases, error)

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write nightly.json, the page and the JUnit XML, and report each case."""
        started_at, finished_at = run.times
        report = NightReport(
            run_id=run.order.run_id,
            night=self.night,
            suite=self.suite.name,
            cluster=self.config.cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            started_at=started_at,
            finished_at=finished_at,
            status=outcome.status,
            exit_code=outcome.exit_code,
            error=outcome.error,
            caveat=run.caveat(self.config),
            cases=self._cases,
            environment=run.environment,
        )
        file = run.order.folder / "nightly.json"
        files, junit = ArtifactWriter(), self._junit
        files.write_answer_file("summary", file, run.order.json_file, partial(write_night, report))
        title = f"{self._title} on {self.config.cluster.name}"
        columns = ("case", "tonight", "change", "interval", "nights", "outcome")
        table = Table(title, columns, tuple(table_rows(self._cases)))
        page = run.order.folder / "nightly.html"
        files.write("report", page, lambda: write_atomic(page, answer_page(_page(report, table))))
        if junit is not None:
            files.write("JUnit XML", junit, lambda: write_junit(report, junit))
        self._report(run, files, table)
        files.require_all("fix the disk, then run the same command with the same --night")

    def _report(self, run: RunState, files: ArtifactWriter, table: Table) -> None:
        reporter = run.order.reporter
        reporter.report(table)
        for each in self._cases:
            level = Level.WARNING if each.outcome is Outcome.REGRESSION else Level.NOTE
            reporter.report(Notice(level, f"{each.case}: {each.text}"))
        for what, where in (*files.written, ("tables", run.order.tables)):
            reporter.report(Notice(Level.NOTE, f"{what}: {where}"))


def _page(report: NightReport, table: Table) -> AnswerPage:
    """The content of a night's page: regressions first, then all other cases in order."""
    cases = sorted(report.cases, key=lambda each: each.outcome is not Outcome.REGRESSION)
    return AnswerPage(
        title=f"Night {report.night} of suite {report.suite} on {report.cluster}",
        about=f"run {report.run_id}, workload {report.workload}, goal {report.goal}",
        started_at=report.started_at,
        status=report.status,
        error=report.error,
        caveat=report.caveat,
        sentences=tuple(f"{each.case}: {each.text}" for each in cases),
        tables=((table.title, table.columns, table.rows),),
        facts=tuple(sorted(report.environment.items())),
        file="nightly.json",
    )
