"""The verdict of a trial: INVALID before OVERLOADED before SUSTAINED, always with reasons."""

from __future__ import annotations

from collections.abc import Mapping

from metrics.judging.attribution import attribute
from metrics.judging.indicators import INDICATORS
from metrics.judging.slices import Slices
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import RULES, invalid_reasons
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.trial.judgement import Judgement, Reason
from metrics.trial.task import WINDOW_TOLERANCE_S
from metrics.units import format_mb_per_s
from search.early_stop import Progress
from search.model import Verdict


def judge_all(evidence: Evidence, goals: Mapping[str, Thresholds]) -> dict[str, Judgement]:
    """One trial in the eyes of each goal, by the goal's name."""
    return {name: judge(evidence, thresholds) for name, thresholds in goals.items()}


def judge(evidence: Evidence, thresholds: Thresholds) -> Judgement:
    """What a goal says of a trial."""
    if evidence.refusals and evidence.client.counts.offered_records == 0:
        return Judgement(Verdict.INVALID, evidence.refusals)
    limits = thresholds.indicators
    active = [each for each in INDICATORS if each.is_on(limits, evidence.cluster)]
    used = {each.name: each.utilization(evidence, limits) for each in active}
    near = {name: value for name, value in used.items() if value is not None}
    cut = _cut_short(evidence)
    invalid = invalid_reasons(evidence, thresholds)
    if invalid:
        return Judgement(Verdict.INVALID, (*invalid, *cut), near)
    overloaded = [reason for each in active for reason in each.reasons(evidence, limits)]
    closed = _closed_loop(evidence)
    if overloaded:
        found = attribute(evidence, thresholds)
        reasons = (*overloaded, *closed, *cut)
        return Judgement(Verdict.OVERLOADED, reasons, near, found.resource, found.text)
    shown = [each.sustained(evidence, limits) for each in active]
    told = [reason for reason in shown if reason is not None]
    if closed:  # something sets its pace, whether or not that is too much for the brokers
        found = attribute(evidence, thresholds)
        reasons = (*closed, *told, *cut)
        return Judgement(Verdict.SUSTAINED, reasons, near, found.resource, found.text)
    return Judgement(Verdict.SUSTAINED, (*told, *cut), near)


def _closed_loop(evidence: Evidence) -> tuple[Reason, ...]:
    """What a closed loop gave, and how far the generator itself was from its end."""
    if not evidence.closed_loop:
        return ()
    client = evidence.client
    busy, achieved = client.counts.loop_busy, client.achieved_mb_per_s
    text = (
        f"closed loop: {format_mb_per_s(achieved)} MB/s as fast as it was let, the busiest task "
        f"busy {busy:.0%} of the window; latencies leave out waiting before the send"
    )
    return (Reason("closed_loop", text, achieved or 0.0, 0.0),)


def _cut_short(evidence: Evidence) -> tuple[Reason, ...]:
    """That the window ended early, for whoever reads the trial's reasons."""
    duration_s, planned_s = evidence.client.duration_s, evidence.planned_s
    if not 0 < duration_s < planned_s - WINDOW_TOLERANCE_S:
        return ()
    text = (
        f"the window ended after {duration_s:.1f} of {planned_s:g} s, as its verdict was as good "
        "as certain"
    )
    return (Reason("ended_early", text, duration_s, planned_s),)


def progress_of(slices: Slices, thresholds: Thresholds) -> Progress:
    """What a goal can say of a running trial, as the rule takes it that may end it early."""
    limits = thresholds.indicators
    active = [each for each in INDICATORS if each.is_on(limits, slices.cluster)]
    told = [each.early(slices, limits) for each in active]
    known = [each for each in told if each is not None]
    return Progress(
        planned=slices.planned,
        means={key: values for each in known for key, values in each.means.items()},
        shares={key: values for each in known for key, values in each.shares.items()},
        stocks={key: values for each in known for key, values in each.stocks.items()},
        known_at_end=len(known) < len(told),
    )


def window_least_s(cluster: ClusterFacts) -> float:
    """The shortest window that all rules of validity let pass [s]."""
    return max(rule.window_least_s(cluster) for rule in RULES)
