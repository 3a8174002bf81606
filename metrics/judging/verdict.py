"""The verdict of a trial, with its reasons.

A trial is INVALID if any rule of validity applies. A valid trial is OVERLOADED if any indicator
applies. A valid trial to which no indicator applies is SUSTAINED.
"""

from __future__ import annotations

from collections.abc import Mapping

from metrics.judging.attribution import attribute
from metrics.judging.indicators import Indicator, active
from metrics.judging.running import Slices
from metrics.judging.thresholds import Indicators, Thresholds, reasons_of_all
from metrics.judging.validity import SUSTAINED_RULES, invalid_reasons
from metrics.trial.client import WINDOW_TOLERANCE_S
from metrics.trial.evidence import ENDED_EARLY, ClusterFacts, Evidence, Judgement, Reason
from metrics.units import format_mb_per_s
from metrics.windows.broker import highest
from search.early_stop import Progress
from search.model import Verdict


def judge_all(evidence: Evidence, goals: Mapping[str, Thresholds]) -> dict[str, Judgement]:
    """Name of a goal → the judgement of a trial by this goal."""
    return {name: judge(evidence, thresholds) for name, thresholds in goals.items()}


def judge(evidence: Evidence, thresholds: Thresholds) -> Judgement:
    """The judgement of a trial by a goal."""
    if evidence.refusals and evidence.client.counts.offered_records == 0:
        return Judgement(Verdict.INVALID, evidence.refusals)
    limits = thresholds.indicators
    rules = active(limits, evidence.cluster)
    used = {each.name: _utilization(each, evidence, limits) for each in rules}
    near = {name: value for name, value in used.items() if value is not None}
    cut = _cut_short(evidence)
    invalid = invalid_reasons(evidence, thresholds)
    if invalid:
        return Judgement(Verdict.INVALID, (*invalid, *cut), near)
    overloaded = [
        reason
        for each in rules
        for reason in reasons_of_all(each.reasons, evidence, limits, each.judges_parts)
    ]
    if (lasted_s := evidence.kept_overloaded_s) and not overloaded:
        text = f"the brokers were overloaded for the last {lasted_s:g} s, so the load was stopped"
        overloaded = [Reason("kept_overloaded", text, lasted_s, lasted_s)]
    closed = _closed_loop(evidence)
    if overloaded:
        found = attribute(evidence, thresholds)
        reasons = (*overloaded, *closed, *cut)
        return Judgement(Verdict.OVERLOADED, reasons, near, found.resource, found.text)
    unproven = invalid_reasons(evidence, thresholds, SUSTAINED_RULES)
    if unproven:
        return Judgement(Verdict.INVALID, (*unproven, *cut), near)
    shown = [each.sustained(evidence, limits) for each in rules]
    known = [reason for reason in shown if reason is not None]
    if closed:  # a closed loop has a limiting resource even if the brokers sustain its load
        found = attribute(evidence, thresholds)
        reasons = (*closed, *known, *cut)
        return Judgement(Verdict.SUSTAINED, reasons, near, found.resource, found.text)
    return Judgement(Verdict.SUSTAINED, (*known, *cut), near)


def _utilization(rule: Indicator, evidence: Evidence, limits: Indicators) -> float | None:
    """The measured value of a rule, divided by the rule's limit. For a mix, the result is the
    highest ratio of all parts.
    """
    parts = evidence.by_part.values() if rule.judges_parts else ()
    return highest(rule.utilization(each, limits) for each in (evidence, *parts))


def _closed_loop(evidence: Evidence) -> tuple[Reason, ...]:
    """The throughput of a closed loop, and how busy the generator was."""
    if not evidence.closed_loop:
        return ()
    client = evidence.client
    busy, achieved = client.counts.loop_busy, client.achieved_mb_per_s
    text = (
        f"closed loop: {format_mb_per_s(achieved)} MB/s without a rate limit, and the busiest "
        f"task was busy {busy:.0%} of the window; latencies exclude the wait before the send"
    )
    return (Reason("closed_loop", text, achieved or 0.0, 0.0),)


def _cut_short(evidence: Evidence) -> tuple[Reason, ...]:
    """A reason for reports if the window ended early, or an empty tuple otherwise."""
    duration_s, planned_s = evidence.client.duration_s, evidence.planned_s
    if not 0 < duration_s < planned_s - WINDOW_TOLERANCE_S:
        return ()
    text = (
        f"the window ended after {duration_s:.1f} of {planned_s:g} s, because its verdict was "
        "almost certain"
    )
    return (Reason(ENDED_EARLY, text, duration_s, planned_s),)


def progress_of(slices: Slices, thresholds: Thresholds) -> Progress:
    """The values of a running trial, which decide whether the trial may end early for a goal."""
    limits = thresholds.indicators
    found = [each.early(slices, limits) for each in active(limits, slices.cluster)]
    known = [each for each in found if each is not None]
    return Progress(
        planned=slices.planned,
        means={key: values for each in known for key, values in each.means.items()},
        shares={key: values for each in known for key, values in each.shares.items()},
        stocks={key: values for each in known for key, values in each.stocks.items()},
        known_at_end=len(known) < len(found),
    )


def window_least_s(cluster: ClusterFacts, is_sustained: bool) -> float:
    """The shortest window for a verdict of SUSTAINED or of OVERLOADED [s].

    Args:
        cluster: facts about the cluster.
        is_sustained: True for a verdict of SUSTAINED.
    """
    isr_window_s = cluster.isr_window_s if is_sustained else None
    return max(cluster.rate_window_s or 0.0, isr_window_s or 0.0)
