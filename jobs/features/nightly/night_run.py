"""A night: the measurement of a suite's cases, and the comparison with earlier nights."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from jobs.campaigns.campaign import Campaign, CampaignAnswer, Turn, measurement_named, once
from jobs.config import Configuration, Goal, Workload, describe
from jobs.config.base import all_keys, default_at
from jobs.config.loading import require_open_loop
from jobs.console.events import Level, Notice, PhaseStarted, Plan, Table, note
from jobs.console.printing import make_reporter
from jobs.features.nightly.suite import LIMIT, Suite, SuiteCase
from jobs.runs.context_factory import open_spark
from jobs.runs.estimate import TimeBudget, ending_within, starting_s
from jobs.runs.lifecycle import RunState
from jobs.runs.limit import LimitRun
from jobs.runs.measurement import Case
from jobs.runs.options import RunOptions
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.runs.recorded_runs import explaining_missing_tables
from jobs.runs.results import why_no_answer
from jobs.runs.resumption import config_text, differences, require_same_series
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates, open_gates
from jobs.trials.measure import Rig, repeat_until_valid
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.comparing.figures import middle
from metrics.features.nightly.judging import (
    QUANTITIES,
    CaseReport,
    NightComparison,
    NightRule,
    case_report,
    judge_night,
    night_document,
    table_rows,
)
from metrics.judging.attribution import AttributionVote, combine_votes
from metrics.reporting.files import json_text, write_atomic, write_file
from metrics.reporting.templating import render
from metrics.tables.boundary import Boundary
from metrics.tables.rows import CaseRow, Outcome
from metrics.tables.store import TableStore
from metrics.traffic.axes import SCALE
from metrics.traffic.mix import SCALE_UNITS
from metrics.trial.trial import Trial
from metrics.units import format_duration

_NAMES_ONLY = ("name", "description", "message_bytes", "np")
_NO_EFFECT_ON_VERDICT = ("name", "description", "guards.", "search.budget.")


def settings_of(
    config: Configuration, case: SuiteCase, load: int, source: str, cluster_id: str
) -> dict[str, str]:
    """The settings of a case as texts; nights with different settings are not compared.

    Args:
        config: the configuration of the case.
        load: the fixed load on the goal's axis; ignored if the case searches for a limit.
        source: name of the source of the brokers' metrics.
        cluster_id: the cluster's id. The cluster's id is not a setting if each run starts new
            brokers.
    """
    of_search = () if case.kind == LIMIT else ("search.",)
    found = {
        "case.bpm": str(config.workload.message_bytes[0]),
        "metrics.source": source,
        **_texts("workload", describe(config.workload), _NAMES_ONLY),
        **_texts("goal", describe(config.goal), (*_NO_EFFECT_ON_VERDICT, *of_search)),
    }
    if case.kind != LIMIT:
        named = {"np": str(load)} if case.mix is None else {"scale": f"{SCALE.shown(load):g}"}
        found |= {f"case.{name}": value for name, value in named.items()}
        found["case.compares"] = case.compares
    if case.share is not None:
        found["case.share"] = f"{case.share:g}"
    if not config.cluster.starts_brokers:
        found["cluster.id"] = cluster_id
    return found


def _texts(kind: str, keys: dict[str, object], skipped: tuple[str, ...]) -> dict[str, str]:
    return {
        f"{kind}.{key}": str(value)
        for key, value in keys.items()
        if not any(key == each or (each.endswith(".") and key.startswith(each)) for each in skipped)
    }


def default_settings() -> dict[str, str]:
    """Map from each setting of a workload or a goal to its default; settings without a default are
    left out.
    """
    found = {
        f"{kind}.{'.'.join(path)}": default_at(model, path)
        for kind, model in (("workload", Workload), ("goal", Goal))
        for path in all_keys(model)
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def config_of(config: Configuration, case: SuiteCase) -> Configuration:
    """The configuration of one case."""
    sized = config if case.size is None else config.with_workload(message_bytes=(case.size,))
    return sized if case.kind == LIMIT else sized.in_full


def plan_of(config: Configuration, case: SuiteCase) -> Plan:
    """The plan of a case. If the load is a share of a limit, the plan has no upper bound of the
    written bytes, because the limit is not known yet.
    """
    load = None if case.kind == LIMIT else case.held or (1 if case.mix is None else SCALE_UNITS)
    asked = Case(config_of(config, case), load, case.repeats)
    plan = measurement_named(case.kind).body(asked).plan(Path())
    return plan if case.share is None else replace(plan, write_bytes_max=None)


@dataclass(frozen=True)
class CaseMeasurer:
    """Measures the cases of a night in sequence; each case has its own topic.

    Attributes:
        context: the context of the run; its configuration has the sizes of all cases.
        gates: the conditions that must hold before a trial begins.
        suite, night: the name of the suite, and the name of the night.
    """

    context: RunContext
    gates: Gates
    suite: str
    night: str

    def measure(self, case: SuiteCase, load: int | None, left_s: float | None) -> CaseRow:
        """Measure a case, and append its row to the table `cases`.

        Args:
            load: the fixed load on the goal's axis; None to search the limit.
            left_s: the longest duration of a search [s]; None for an unlimited search.

        Raises:
            NoConclusionError: the case has no valid answer.
            GuardStopError: a guard stopped the trial.
        """
        config, started_s = config_of(self.context.config, case), time.time()
        context = replace(self.context, config=config)
        row = (
            self._limit(context, ending_within(config, left_s), case)
            if load is None
            else self._load(context, case, load)
        )
        row = replace(row, at_s=started_s, duration_s=time.time() - started_s)
        context.tables.append_case(row)
        return row

    # --- a limit ------------------------------------------------------------

    def _limit(self, context: RunContext, config: Configuration, case: SuiteCase) -> CaseRow:
        first = len(context.history.trials)
        # Without a closing check: the other cases of the night show changes of the cluster.
        searching = LimitRun(config, holds=False, checks=False)
        searching.begin(context)
        searching.search(context, self.gates)
        (boundary,), own = searching.boundaries, context.history.trials[first:]
        return self._limit_row(context, case, boundary, [trial.number for trial in own])

    def _limit_row(
        self, context: RunContext, case: SuiteCase, boundary: Boundary, trials: list[int]
    ) -> CaseRow:
        why = why_no_answer(boundary, self.context.config.goal)
        if why:
            raise NoConclusionError(f"the search found no limit: {why}")
        value = boundary.mb_per_s_per_broker
        if value <= 0:
            least = "a single producer" if case.mix is None else boundary.along.amount(1)
            raise NoConclusionError(f"{least} was too much")
        return replace(
            self._row(context, case, boundary.loads[0], trials),
            measure=QUANTITIES[LIMIT].name,
            value=value,
            values=(value,),
            mb_per_s_per_broker=value,
            limited_by=boundary.limited_by,
            evidence=boundary.evidence,
        )

    # --- a fixed load -------------------------------------------------------

    def _load(self, context: RunContext, case: SuiteCase, load: int) -> CaseRow:
        config = context.config
        spare = config.goal.search.invalid_repeats_max
        trials: list[Trial] = []
        with Rig(context, PointTopics(context), self.gates) as rig:
            size = config.workload.message_bytes[0]
            make = partial(rig.trial, size, load, f"case {case.name}")
            repeat_until_valid(make, case.repeats, spare, trials)
        invalid = [trial for trial in trials if not trial.is_valid]
        if len(trials) - len(invalid) < case.repeats:
            why = "; ".join(f"{each.indicator}: {each.text}" for each in invalid[-1].reasons)
            raise NoConclusionError(
                f"{len(invalid)} of {len(trials)} trials were INVALID; the last one: {why}"
            )
        return self._load_row(context, case, load, trials)

    def _load_row(
        self, context: RunContext, case: SuiteCase, load: int, trials: Sequence[Trial]
    ) -> CaseRow:
        valid = [trial for trial in trials if trial.is_valid]
        compared = QUANTITIES[case.compares]
        values = tuple(value for trial in valid if (value := compared.of(trial)) is not None)
        if not values:
            raise NoConclusionError(
                f"no trial has the metric {compared.name}; expected brokers that provide it; "
                "set compares to latency_p99 in this case"
            )
        evidence = [trial.evidence for trial in valid]
        achieved = middle(each.client.achieved_mb_per_s for each in evidence)
        bound = combine_votes(
            [AttributionVote(trial.judgement) for trial in valid if trial.limited_by]
        )
        return replace(
            self._row(context, case, load, [trial.number for trial in trials]),
            measure=compared.name,
            value=median(values),
            values=values,
            mb_per_s_per_broker=None if achieved is None else achieved / context.brokers,
            handler_s_per_mb=middle(each.handler_s_per_mb for each in evidence),
            latency_p99_ms=middle(each.client.latency.p99_ms for each in evidence),
            achieved_share=middle(each.client.achieved_share for each in evidence),
            verdicts=tuple(trial.verdict.value for trial in trials),
            limited_by=bound.resource.value if bound else None,
            evidence=bound.text if bound else "",
        )

    def _row(self, context: RunContext, case: SuiteCase, load: int, trials: list[int]) -> CaseRow:
        config = context.config
        size = config.workload.message_bytes[0]
        return CaseRow(
            run_id=context.run_id,
            event="measured",
            at_s=0.0,
            suite=self.suite,
            night=self.night,
            case=case.name,
            cluster=config.cluster.name,
            workload=config.workload.name,
            goal=config.goal.name,
            kind=case.kind,
            message_bytes=size,
            producers=context.pattern(size, load).producers,
            trials=tuple(trials),
            measure="",
            value=0.0,
            values=(),
            environment=context.environment,
            scale=None if case.mix is None else config.axis.shown(load),
            settings=settings_of(
                config, case, load, context.source.name, context.environment.get("cluster.id", "")
            ),
        )


def load_of(
    case: SuiteCase, history: Sequence[CaseRow], limit_load: int | None, message_bytes: int
) -> int:
    """The fixed load of a case, on the goal's axis.

    The key `share` refers to the limit that was known when the case was first measured. All later
    nights use the same load. If the load were a share of each night's own limit, the load would
    decrease together with the limit. A load that follows the limit would hide a regression.

    Args:
        history: the table rows of this suite on this cluster, oldest first.
        limit_load: the latest limit at this message size; None if no limit is known.
        message_bytes: message size, or the mean message size of a mix [B].

    Raises:
        NoConclusionError: the case states a share, but no limit is known.
    """
    if case.held is not None:
        return case.held
    assert case.share is not None, "SuiteCase requires a fixed load or a share of a limit"
    share = f"{case.share:g}"
    before = [
        row
        for row in history
        if row.case == case.name
        and row.message_bytes == message_bytes
        and row.settings.get("case.share") == share
    ]
    if before:
        first = before[-1]
        return first.producers if first.scale is None else round(SCALE_UNITS * first.scale)
    if not limit_load:
        at, of = (f" at {message_bytes} B", "this size") if case.mix is None else ("", "the mix")
        raise NoConclusionError(
            f"the load is {share} of the limit{at}, and this limit is unknown; expected an earlier "
            f"limit of {of}; add a case with a limit before this case, or run redline find-limit"
        )
    return max(1, math.floor(case.share * limit_load))


Missing = Mapping[str, tuple[Outcome, str]]
"""Name of each case without a valid figure → its outcome and the reason."""


def rule_of(suite: Suite) -> NightRule:
    """The rule that judges the nights of a suite."""
    return NightRule(
        {case.name: case.noise or suite.noise for case in suite.cases},
        suite.min_effect,
        suite.history_max,
        suite.since_s,
        default_settings(),
    )


def case_reports(
    suite: Suite,
    comparisons: Sequence[NightComparison],
    missing: Missing,
    error: BaseException | None,
    mean_bytes: int = 0,
) -> tuple[CaseReport, ...]:
    """The reports of all cases in the order of the suite, including the cases that were not
    measured.

    Args:
        error: the error that ended the night; None if the night is complete.
        mean_bytes: mean message size of the mix, for cases that state no message size [B].
    """
    compared = {each.tonight.case: case_report(each) for each in comparisons}
    why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error or "")
    ended = (Outcome.NOT_MEASURED, f"the night ended before this case: {why}".rstrip(": "))
    found = []
    for case in suite.cases:
        if case.name in compared:
            found.append(compared[case.name])
            continue
        outcome, text = missing.get(case.name, ended)
        found.append(CaseReport(case.name, case.kind, case.size or mean_bytes, outcome, text))
    return tuple(found)


def outcome_of_night(cases: Sequence[CaseReport], error: BaseException | None) -> RunOutcome:
    """The outcome of a night. If an error ended the night, the error determines the outcome.
    Without an error, a case with a regression gives the outcome `regression`, and a night without a
    compared case gives `no conclusion`.
    """
    if error is not None:
        return outcome_of(error)
    worse = [f"{each.case}: {each.text}" for each in cases if each.outcome is Outcome.REGRESSION]
    if worse:
        text = f"regression found: {'; '.join(worse)}"
        return RunOutcome("regression", RegressionError.exit_code, text)
    if not any(each.comparison for each in cases):
        reasons = "; ".join(f"{each.case}: {each.outcome.value}: {each.text}" for each in cases)
        return outcome_of(NoConclusionError(f"no case came to a conclusion: {reasons}"))
    return RunOutcome()


def judged_row(compared: NightComparison) -> CaseRow:
    """The table row of a judged case."""
    row = replace(
        compared.tonight,
        event="judged",
        outcome=compared.outcome.value,
        nights=compared.nights,
        text=case_report(compared).text,
    )
    effect = compared.effect
    if effect is None:
        return row
    return replace(
        row,
        change=effect.change,
        change_low=effect.low - 1.0,
        change_high=effect.high - 1.0,
        p_value=effect.p_value,
        smallest_visible=effect.smallest_visible,
    )


_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(head: Mapping[str, Any], cases: Sequence[CaseReport], path: Path) -> None:
    """Write the cases of a night as JUnit XML, with one test case for each case of the suite.

    A case with a regression is a failure. A case without history and a case that was not measured
    are skipped. A case without a valid figure is an error. All other cases pass, and their result
    sentence is the test output.
    """
    suite = TestSuite(_plain(f"redline nightly {head['suite']}"))
    suite.timestamp = _plain(head["started_at"])
    for name in ("run_id", "night", "cluster", "workload", "goal", "status"):
        suite.add_property(name, _plain(head[name]))
    for case in cases:
        suite.add_testcase(_test_case(head["suite"], case))
    xml = JUnitXml()
    xml.add_testsuite(suite)
    buffer = BytesIO()
    xml.write(buffer, pretty=True)
    write_file("--junit", path, buffer.getvalue())


def _test_case(suite: str, case: CaseReport) -> TestCase:
    lasted_s = case.comparison.tonight.duration_s if case.comparison else 0.0
    made = TestCase(_plain(case.case), _plain(f"{suite}.{case.kind}"), lasted_s)
    text = _plain(case.text)
    made.system_out = text
    if case.outcome is Outcome.REGRESSION:
        made.result = [Failure(text, case.outcome.value)]
    elif case.outcome is Outcome.INVALID:
        made.result = [Error(text, case.outcome.value)]
    elif case.outcome in (Outcome.NO_HISTORY, Outcome.NOT_MEASURED):
        made.result = [Skipped(text, case.outcome.value)]
    return made


def _plain(text: str) -> str:
    """The text with `?` for each control character that XML cannot express."""
    return _NO_XML.sub("?", text)


class NightRun(Campaign[SuiteCase]):
    """Measures the cases of a suite, and compares the figures with earlier nights.

    Args:
        config: the suite's configuration, with the message sizes of all cases.
        night: the name of the night. A night that is continued keeps its name.
        budget_s: the time budget of the night [s]; None for the budget of the suite.
        junit: the path of the JUnit XML file; None to write no such file.
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
        super().__init__(suite.budget_s if budget_s is None else budget_s)
        self.suite = suite
        self.config = config
        self.night = night
        self._junit = junit
        self._rows: dict[str, CaseRow] = {}
        self._history: list[CaseRow] = []
        self._accepted: dict[str, CaseRow] = {}
        self._measurer: CaseMeasurer | None = None
        self._cases: tuple[CaseReport, ...] = ()

    def schedule(self) -> Iterator[list[Turn[SuiteCase]]]:
        """The schedule: each case once, in the order of the suite."""
        yield once(self.suite.cases)

    def title(self, turn: Turn[SuiteCase]) -> str:
        """The name of the case."""
        return f"case {turn.case.name}"

    # --- the plan -----------------------------------------------------------

    def forecast(self, case: SuiteCase) -> Plan:
        """The plan of one case: a search, or trials at a fixed load."""
        return plan_of(self.config, case)

    def starting_s(self, groups: Sequence[Sequence[Turn[SuiteCase]]]) -> float:
        """The time that the start of the brokers and of Spark takes [s]. All cases use the same
        brokers.
        """
        return starting_s(self.config.cluster)

    def about(self, groups: Sequence[Sequence[Turn[SuiteCase]]]) -> tuple[str, ...]:
        """A plan note with the time budget and the names of the cases."""
        names = ", ".join(case.name for case in self.suite.cases)
        budget = "" if self.budget_s is None else f", within {format_duration(self.budget_s)}"
        return (f"cases {names}{budget}",)

    # --- measuring ----------------------------------------------------------

    def has_results(self, folder: Path) -> bool:
        """Whether the folder has results of this night. The value of `--night` can be the name of a
        new night or of an earlier night. The folder of a new night has no results.
        """
        return (folder / "nightly.json").exists()

    def resume(self, run: RunState) -> None:
        """Load the cases that an earlier invocation of this night measured, and the history of the
        suite.
        """
        context = run.context
        everything = context.tables.cases(self.suite.name, self.config.cluster.name)
        self._history = [row for row in everything if row.run_id != context.run_id]
        self._accepted = context.tables.accepted_cases(self.suite.name, self.config.cluster.name)
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
        context.history.numbers = count(context.tables.next_trial(context.run_id))

    def take_over(self, run: RunState, turn: Turn[SuiteCase]) -> bool:
        """Whether an earlier invocation of this night measured the case."""
        return turn.case.name in self._rows

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[SuiteCase]]) -> Iterator[None]:
        """Open the gates, and measure the brokers without load."""
        # As in `redline find-limit`, a rising load shows where to start the search of the first
        # limit.
        climbs = group[0].case.kind == LIMIT
        gates = open_gates(run.context, self.config.cluster.warm_up_max_s, climbs=climbs)
        self._measurer = CaseMeasurer(run.context, gates, self.suite.name, self.night)
        yield

    def measure_turn(self, run: RunState, turn: Turn[SuiteCase], budget: TimeBudget) -> None:
        """Measure a case. A search ends within the budget."""
        assert self._measurer is not None, "see opened"
        case = turn.case
        load = None if case.kind == LIMIT else self._load_of(run.context, case)
        self._rows[case.name] = self._measurer.measure(case, load, budget.left_s)

    def _load_of(self, context: RunContext, case: SuiteCase) -> int:
        if case.held is not None:
            return case.held
        config = self.config
        names = (config.cluster.name, config.workload.name, config.goal.name)
        size = case.size or config.workload.message_bytes[0]
        latest = context.tables.latest_limit(*names, size, config.axis)
        return load_of(case, self._history, latest, size)

    # --- concluding ---------------------------------------------------------

    def evaluate(self, run: RunState, error: BaseException | None) -> None:
        """Judge the measured cases. The tables store only the judgement of a complete night."""
        tonight = [self._rows[case.name] for case in self.suite.cases if case.name in self._rows]
        rule = replace(rule_of(self.suite), accepted=self._accepted)
        comparisons = judge_night(tonight, self._history, rule)
        if error is None:
            for each in comparisons:
                run.context.tables.append_case(judged_row(each))
        missing = {
            each.turn.case.name: (
                Outcome.INVALID if each.is_begun else Outcome.NOT_MEASURED,
                each.why,
            )
            for each in self.missing
        }
        mean_bytes = self.config.workload.message_bytes[0]
        self._cases = case_reports(self.suite, comparisons, missing, error, mean_bytes)

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of the night. After an error, the outcome depends on the error. Without an
        error, the outcome depends on the results of the cases.
        """
        return outcome_of_night(self._cases, error)

    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        """The files, the table and the sentences that report the cases."""
        started_at, finished_at = run.times
        head = {
            "run_id": run.order.run_id,
            "night": self.night,
            "suite": self.suite.name,
            "cluster": self.config.cluster.name,
            "workload": self.config.workload.name,
            "goal": self.config.goal_names,
            "started_at": started_at,
            "finished_at": finished_at,
            **asdict(outcome),
            "caveat": run.caveat(self.config),
        }
        document = json_text(night_document(head, self._cases, run.environment))
        title = f"night {self.night} of suite {self.suite.name} on {self.config.cluster.name}"
        columns = ("case", "tonight", "change", "interval", "nights", "outcome")
        table = Table(title, columns, tuple(table_rows(self._cases)))
        junit = partial(write_junit, head, self._cases)
        texts = [
            (each.outcome is Outcome.REGRESSION, f"{each.case}: {each.text}")
            for each in self._cases
        ]
        return CampaignAnswer(
            "nightly",
            lambda path: write_atomic(path, document),
            partial(
                render,
                "answer.html",
                run=head,
                title=title[:1].upper() + title[1:],
                about=f"run {run.order.run_id}, workload {head['workload']}, goal {head['goal']}",
                # Regressions come first, and the other cases follow in the order of the suite.
                sentences=[text for _, text in sorted(texts, key=lambda each: not each[0])],
                tables=(table,),
                facts=sorted(run.environment.items()),
                file="nightly.json",
            ),
            (table,),
            [Notice(Level.WARNING if is_worse else Level.NOTE, text) for is_worse, text in texts],
            "fix the disk, then run the same command with the same --night",
            () if self._junit is None else (("JUnit XML", self._junit, junit),),
        )


def accept_night(suite: Suite, cluster: str, options: RunOptions) -> int:
    """Accept the newest judged night: later nights are compared only with the accepted night and
    the nights after it.

    Raises:
        ConfigError: the tables contain no judged night of this suite on this cluster.
    """
    with make_reporter() as reporter, ExitStack() as stack:
        reporter.report(PhaseStarted("starting Spark, and reading the Delta tables"))
        store = TableStore(open_spark(stack), options.tables_or_default)
        with explaining_missing_tables(store):
            history = [row for row in store.cases(suite.name, cluster) if row.event == "judged"]
        if not history:
            raise ConfigError(
                f"{store.address('cases')} has no judged night of suite {suite.name} on {cluster}; "
                "expected a judged night to accept; run redline nightly first, or correct --suite, "
                "--cluster or --tables"
            )
        newest = [row for row in history if row.run_id == history[-1].run_id]
        names, night = ", ".join(row.case for row in newest), newest[0].night
        known = {row.run_id for row in store.accepted_cases(suite.name, cluster).values()}
        if newest[0].run_id in known:
            note(reporter, f"the night {night} of suite {suite.name} is accepted already")
            return 0
        now = "would be" if options.dry_run else "is"
        text = (
            f"the night {night} of suite {suite.name} on {cluster} {now} accepted: later nights "
            f"are compared with this night and the nights after it (cases {names})"
        )
        if not options.dry_run:
            for row in newest:
                store.append_case(replace(row, event="accepted", at_s=time.time(), text=text))
            store.settle()
        note(reporter, text)
    return 0
