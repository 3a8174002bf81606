"""The answer of a load that is held: whether the cluster carries it, and what was left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metrics.trial.trial import Trial
from metrics.units import (
    format_count,
    format_duration,
    format_mb_per_s,
    format_ms,
    format_ratio,
)
from metrics.windows.resource import Resource
from search.model import Verdict

_SINGULAR = {Resource.CPU, Resource.NETWORK}
_SHARED_OUT = (
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.NETWORK,
)
"""Resources whose unused share is what is left; a disk that is always busy can take more."""


@dataclass(frozen=True)
class LoadAnswer:
    """Whether a cluster carries a load.

    Attributes:
        carries: yes or no; None for neither.
        text: the answer in one line, which begins with `yes`, `no` or `no conclusion`; empty for a
            closed loop, which offers no rate.
    """

    carries: bool | None
    text: str


def answer_of_load(
    trials: Sequence[Trial],
    ceilings: Mapping[Resource, float],
    is_continuous: bool = False,
    ended: str = "",
) -> LoadAnswer:
    """The answer of trials at one load, or of the windows of one load without a gap.

    One overload means no, and at least half of the trials must be valid for an answer.

    Args:
        ceilings: resource → highest use at which the goal accepts a load; 1 without one [ratio].
        is_continuous: whether the trials are the windows of one load.
        ended: why the run ended early; empty at its end.
    """
    one = "window" if is_continuous else "trial"
    if not trials:
        return LoadAnswer(None, f"no conclusion, because {ended or 'nothing was measured'}")
    over, valid = (
        [each for each in trials if each.verdict is Verdict.OVERLOADED],
        [each for each in trials if each.is_valid],
    )
    count, load = f"of {format_count(len(trials))} {one}s", _offered(trials[0])
    lost = [each for each in trials if not each.is_valid]
    unjudged = f"{len(lost)} {count} could not be judged: {lost[0].reasons[0].text}" if lost else ""
    if valid and trials[0].pattern.producer.closed_loop:
        return LoadAnswer(None, "")
    if over:
        first = over[0]
        bound = "" if first.limited_by is None else f"; limiting resource: {first.limited_by.value}"
        after_s = first.started_at_s - trials[0].started_at_s
        when = f", the first one after {format_duration(after_s)}" if is_continuous else ""
        share = f"{len(over)} {count} {'was' if len(over) == 1 else 'were'} overloaded{when}"
        why = f"because {first.reasons[0].text}{bound}; {share}"
        return LoadAnswer(False, f"no: {load} {_time(trials, is_continuous)}, {why}")
    if 2 * len(valid) < len(trials) or (not valid and not ended):
        return LoadAnswer(None, f"no conclusion, because {unjudged}")
    if ended:
        carried = f"; {load} was sustained {_time(valid, is_continuous)} until then" * bool(valid)
        return LoadAnswer(None, f"no conclusion, because {ended}{carried}")
    text = f"yes: {load} {_time(valid, is_continuous)}{_latency(valid)}"
    return LoadAnswer(True, "; ".join(filter(None, (text, _left(valid, ceilings), unjudged))))


def _offered(trial: Trial) -> str:
    """The load in words: `200.0 MB/s (200,000 messages/s)`."""
    pattern = trial.pattern
    peak = pattern.peak_share
    shape = f"up to {{}} (profile {pattern.profile.name})" if pattern.profile is not None else "{}"
    messages = format_count(pattern.records_per_s * peak)
    return shape.format(f"{format_mb_per_s(pattern.peak_mb_per_s)} MB/s ({messages} messages/s)")


def _time(trials: Sequence[Trial], is_continuous: bool) -> str:
    each_s = [trial.evidence.client.duration_s for trial in trials]
    if is_continuous or len(trials) == 1:
        return f"for {format_duration(sum(each_s))}"
    return f"in {len(trials)} trials of {format_duration(max(each_s))}"


def _latency(trials: Sequence[Trial]) -> str:
    found = [each.evidence.client.latency.p99_ms for each in trials]
    known = [each for each in found if math.isfinite(each)]
    if not known:
        return ""
    return f", p99 {'up to ' if len(trials) > 1 else ''}{format_ms(max(known))} ms"


def _left(trials: Sequence[Trial], ceilings: Mapping[Resource, float]) -> str:
    """The unused share of the resource that was nearest to what the goal accepts."""
    uses = [
        (use.utilization, use)
        for trial in trials
        for use in trial.evidence.resources
        if use.resource in _SHARED_OUT and use.utilization is not None
    ]
    if not uses:
        return ""
    used, use = max(uses, key=lambda each: each[0] / (ceilings.get(each[1].resource) or 1.0))
    verb = "was" if use.resource in _SINGULAR else "were"
    ceiling = ceilings.get(use.resource, 1.0)
    least = f" (the goal requires {format_ratio(1.0 - ceiling)})" if ceiling < 1.0 else ""
    return (
        f"the {use.resource.value} of broker {use.broker_id} {verb} "
        f"{'at least ' if len(trials) > 1 else ''}{format_ratio(1.0 - used)} idle{least}"
    )
