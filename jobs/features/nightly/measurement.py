"""The measurement of one case of a night: a search, or trials at a fixed load.

The settings of a case as flat texts; nights with different settings are not compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from jobs.campaigns.campaign import measurement_named
from jobs.config import Configuration, Goal, Workload, describe
from jobs.config.base import all_keys, default_at
from jobs.console.events import Plan
from jobs.features.nightly.suite import LIMIT, SuiteCase
from jobs.runs.estimate import ending_within
from jobs.runs.limit import LimitRun
from jobs.runs.measurement import Case
from jobs.runs.results import why_no_answer
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.holding import hold_until_valid
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import NoConclusionError
from metrics.comparing.figures import middle
from metrics.features.nightly.judging import QUANTITIES
from metrics.judging.attribution import AttributionVote, combine_votes
from metrics.tables.boundary import Boundary
from metrics.tables.rows import CaseRow
from metrics.traffic.axes import SCALE
from metrics.traffic.mix import SCALE_UNITS
from metrics.trial.trial import Trial

_OF_NO_TRIAL = ("name", "description", "message_bytes", "np")
_OF_NO_VERDICT = ("name", "description", "guards.", "search.budget.")
_OF_SEARCHES = ("search.",)


def settings_of(
    config: Configuration, case: SuiteCase, load: int, source: str, cluster_id: str
) -> dict[str, str]:
    """The settings of a case.

    Args:
        config: the configuration of the case.
        load: the fixed load on the goal's axis; a limit is an answer and no setting.
        source: name of the metrics' source.
        cluster_id: the cluster's id, which is omitted where each run starts new brokers.
    """
    skipped = _OF_NO_VERDICT if case.kind == LIMIT else (*_OF_NO_VERDICT, *_OF_SEARCHES)
    found = {
        "case.bpm": str(config.workload.message_bytes[0]),
        "metrics.source": source,
        **_texts("workload", describe(config.workload), _OF_NO_TRIAL),
        **_texts("goal", describe(config.goal), skipped),
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
    """Setting → its default, for each key of a workload or a goal that has one."""
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
    """The plan of a case; what a share of a limit writes is not known before the limit."""
    load = None if case.kind == LIMIT else case.held or (1 if case.mix is None else SCALE_UNITS)
    asked = Case(config_of(config, case), load, case.repeats)
    plan = measurement_named(case.kind).body(asked).plan(Path())
    return plan if case.share is None else replace(plan, write_bytes_max=None)


@dataclass(frozen=True)
class CaseMeasurer:
    """Measures the cases of one night one after another, each on a topic of its own.

    Attributes:
        context: the context of the run; its configuration has the sizes of all cases.
        gates: the gates of the run.
        suite, night: the names of the suite and of the night.
    """

    context: RunContext
    gates: Gates
    suite: str
    night: str

    def measure(self, case: SuiteCase, load: int | None, left_s: float | None) -> CaseRow:
        """Measure a case, and append its row.

        Args:
            load: a fixed load on the goal's axis; None to search a limit.
            left_s: the longest duration of a search [s]; None without a bound.

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
        # The cases of a night alternate, which shows changes of the cluster.
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
        progress = SearchProgress()
        with PointTopics(context) as topics:
            size = config.workload.message_bytes[0]
            measurer = TrialMeasurer(context, topics, self.gates, size, progress)

            def hold(left: int) -> Trial:
                progress.reason, progress.trials_left = f"case {case.name}", left
                return measurer.trial(load)

            hold_until_valid(hold, case.repeats, spare, trials)
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
                "make the case compare latency_p99 instead"
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
    """A fixed load on the goal's axis.

    A share refers to the limit at the case's first measurement, and the load stays the same: a
    share of each night's own limit would fall with the limit, and hide its fall.

    Args:
        history: the rows of this suite on this cluster, oldest first.
        limit_load: the latest limit at this size, or None.
        message_bytes: message size; the mean one of a mix [B].

    Raises:
        NoConclusionError: the case has a share, and no limit is known.
    """
    if case.held is not None:
        return case.held
    assert case.share is not None, "checked by the suite"
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
            f"its load is {share} of the limit{at}, which is unknown; expected an earlier limit of "
            f"{of}; add a case with a limit before it, or run redline find-limit"
        )
    return max(1, math.floor(case.share * limit_load))
