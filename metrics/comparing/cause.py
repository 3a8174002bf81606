"""The likely cause of a difference: what bound the slower side, and what differs that governs it.

A suspicion with its evidence, not a proof: the proof is to change that one thing and to
compare again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from metrics.comparing.governors import VERSIONS, can_slow, governor_of, short_name
from metrics.judging.attribution import Attribution, utilization
from metrics.judging.attribution_votes import AttributionVote, combine_votes
from metrics.tables.environment import ABSENT, Difference, difference
from metrics.trial.trial import Trial
from metrics.windows.resource import Resource
from search.model import Verdict

MAY_BIND_UTILIZATION = 0.80
"""Use of a resource at saturation from which on it may bind, next to what was named [ratio]."""
GREW_LEAST = 1.10
"""A resource is used more at the same load when it is so many times as used [ratio]."""
OF_OURS = ("redline.", "package.", "python.", "driver.", "spark.", "controller.")
"""What the sides share, or what no broker runs on."""

SETTINGS = ("workload.", "goal.")
"""What is offered to the brokers and how it is judged, as `--set` names it."""

Use = Mapping[Resource, float]


@dataclass(frozen=True)
class SideEvidence:
    """What one side showed.

    Attributes:
        label: what people call it, such as `B`.
        saturated, steady: its trials; the steady ones at the same load as the other side's.
        environment: as the table `runs` has it, and settings of the workload and the goal.
    """

    label: str
    saturated: Sequence[Trial]
    steady: Sequence[Trial]
    environment: Mapping[str, str]

    @property
    def _bound(self) -> Attribution | None:
        named = [trial.judgement for trial in self.saturated if trial.judgement.limited_by]
        return combine_votes([AttributionVote(judgement) for judgement in named])

    @property
    def bound_by(self) -> Resource:
        """What bound it when it was saturated, as most of its trials say that can tell."""
        return Resource.UNKNOWN if self._bound is None else self._bound.resource

    @property
    def attribution(self) -> str:
        """The evidence for it, of the last trial that says so, and how many say so."""
        return "" if self._bound is None else self._bound.text


@dataclass(frozen=True)
class Cause:
    """Why one side is slower, as far as what was seen tells.

    Attributes:
        slower: label of the slower side.
        resource: what binds it there.
        names: what differs and governs that resource, as Kafka names it; none when nothing
            that was seen explains the difference.
        text: the answer in a sentence.
        evidence: what it rests on, a sentence each.
    """

    slower: str
    resource: Resource
    names: tuple[str, ...]
    text: str
    evidence: tuple[str, ...] = field(default_factory=tuple)


def use_of_trials(trials: Sequence[Trial]) -> dict[Resource, float]:
    """How used each resource was on the broker that used it most, median of the trials [ratio]."""
    seen: dict[Resource, list[float]] = {}
    for trial in trials:
        if trial.judgement.verdict is Verdict.INVALID:
            continue
        tables = [utilization(window) for window in trial.evidence.brokers]
        for resource in Resource:
            used = [table[resource] for table in tables if resource in table]
            used += _of_interfaces(trial) if resource is Resource.NETWORK else []
            if used:
                seen.setdefault(resource, []).append(max(used))
    return {resource: median(values) for resource, values in seen.items()}


def _of_interfaces(trial: Trial) -> list[float]:
    """How used the interfaces of the brokers' hosts were, where their speed is known [ratio]."""
    hosts = [host for host in trial.evidence.hosts if host.brokers]
    shares = [each.used_share for host in hosts for each in host.interfaces]
    return [share for share in shares if share is not None]


def broker_differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[Difference, ...]:
    """What differs between two environments and can matter to brokers."""
    return tuple(each for each in difference(before, after) if not each.name.startswith(OF_OURS))


def likely_cause(slower: SideEvidence, faster: SideEvidence) -> Cause:
    """The most likely reason for the slower side, or that none was seen."""
    differences = broker_differences(faster.environment, slower.environment)
    suspects = _suspects(slower, faster)
    if differences and all(each.name.startswith(SETTINGS) for each in differences):
        return _only_change(differences, suspects, slower, faster)
    versions = [each for each in differences if VERSIONS.match(each.name)]
    # A release tells properties that another does not have, or sets to their defaults.
    told = [each for each in differences if not versions or ABSENT not in (each.before, each.after)]
    for resource in suspects:
        found = [each for each in told if _explains(each, resource)]
        if found:
            return _cause(resource, found, slower, faster)
    if versions:
        return _version_cause(versions, suspects, slower, faster)
    return _no_cause(differences, slower, faster)


def _suspects(slower: SideEvidence, faster: SideEvidence) -> tuple[Resource, ...]:
    """What may bind the slower side: named, then nearly used up, then more used at one load.

    Of those that are nearly used up handlers come first, as they do in `Resource`: what they
    wait for, such as a disk, is waited for by more of them side by side.
    """
    bound = slower.bound_by
    full = use_of_trials(slower.saturated)
    near = [name for name in Resource if full.get(name, 0.0) >= MAY_BIND_UTILIZATION]
    named = [] if bound is Resource.UNKNOWN else [bound]
    grown = [name for name, _ in _grown(slower, faster)]
    return tuple(dict.fromkeys([*named, *near, *grown]))


def _grown(slower: SideEvidence, faster: SideEvidence) -> list[tuple[Resource, float]]:
    """Resources that the slower side uses more at the same load, and how many times as much."""
    mine, theirs = use_of_trials(slower.steady), use_of_trials(faster.steady)
    times = {name: used / theirs[name] for name, used in mine.items() if theirs.get(name)}
    grown = [(name, ratio) for name, ratio in times.items() if ratio >= GREW_LEAST]
    return sorted(grown, key=lambda each: -each[1])


def _explains(changed: Difference, resource: Resource) -> bool:
    governor = governor_of(changed.name)
    return governor is not None and resource in governor.resources and can_slow(governor, changed)


def _cause(
    resource: Resource, found: Sequence[Difference], slower: SideEvidence, faster: SideEvidence
) -> Cause:
    names = tuple(dict.fromkeys(short_name(each.name) for each in found))
    told = "; ".join(_change(each, slower, faster) for each in found)
    used = _used(resource, slower, faster)
    return Cause(
        slower.label,
        resource,
        names,
        ". ".join(filter(None, (f"likely cause of the slower {slower.label}: {told}", used))),
        _bound(slower, faster),
    )


def _change(changed: Difference, slower: SideEvidence, faster: SideEvidence) -> str:
    governor = governor_of(changed.name)
    what = f" (it {governor.what})" if governor else ""
    return (
        f"{short_name(changed.name)} is {changed.after} on {slower.label} and "
        f"{changed.before} on {faster.label}{what}"
    )


def _used(resource: Resource, slower: SideEvidence, faster: SideEvidence) -> str:
    """How used a resource is on both sides; empty of one that has no such figure."""
    parts = []
    for when, mine, theirs in (
        ("saturated", slower.saturated, faster.saturated),
        ("at the same load", slower.steady, faster.steady),
    ):
        used, other = use_of_trials(mine).get(resource), use_of_trials(theirs).get(resource)
        if used is not None and other is not None:
            parts.append(f"{when} {used:.2f} on {slower.label} and {other:.2f} on {faster.label}")
    name = resource.value[:1].upper() + resource.value[1:]
    return f"{name} in use: {'; '.join(parts)}" if parts else ""


def _version_cause(
    versions: Sequence[Difference],
    suspects: Sequence[Resource],
    slower: SideEvidence,
    faster: SideEvidence,
) -> Cause:
    first = versions[0]
    resource = suspects[0] if suspects else Resource.UNKNOWN
    grown = _grown(slower, faster)
    more = ", ".join(f"{name.value} ×{ratio:.2f}" for name, ratio in grown)
    cost = f"used more at the same load: {more}" if more else "nothing is used more at one load"
    return Cause(
        slower.label,
        resource,
        ("version",),
        f"likely cause of the slower {slower.label}: Kafka {first.after} in place of "
        f"{first.before}, as no property differs that governs what binds it "
        f"({resource.value}); {cost}",
        _evidence(slower, faster, resource),
    )


def _only_change(
    changed: Sequence[Difference],
    suspects: Sequence[Resource],
    slower: SideEvidence,
    faster: SideEvidence,
) -> Cause:
    """What is offered or asked for differs, and nothing else does."""
    resource = suspects[0] if suspects else Resource.UNKNOWN
    told = "; ".join(_change(each, slower, faster) for each in changed)
    binds = slower.bound_by
    bound = "" if binds is Resource.UNKNOWN else f"; {slower.label} is bound by {binds.value}"
    return Cause(
        slower.label,
        resource,
        tuple(short_name(each.name) for each in changed),
        f"cause of the slower {slower.label}: {told}, and nothing else that was compared "
        f"differs{bound}",
        _evidence(slower, faster, resource),
    )


def _no_cause(
    differences: Sequence[Difference], slower: SideEvidence, faster: SideEvidence
) -> Cause:
    bound = slower.bound_by
    if differences:
        among = ", ".join(dict.fromkeys(short_name(each.name) for each in differences))
        told = f"what differs ({among}) does not govern what binds {slower.label} ({bound.value})"
    else:
        count = len(slower.environment.keys() & faster.environment.keys())
        told = f"the sides agree in all {count} properties and facts that were compared"
    return Cause(
        slower.label,
        bound,
        (),
        f"no cause seen for the slower {slower.label}: {told}",
        _evidence(slower, faster, bound),
    )


def _evidence(slower: SideEvidence, faster: SideEvidence, resource: Resource) -> tuple[str, ...]:
    return (*_bound(slower, faster), *filter(None, (_used(resource, slower, faster),)))


def _bound(slower: SideEvidence, faster: SideEvidence) -> tuple[str, ...]:
    """What bound each side."""
    return tuple(
        f"{side.label} saturated, bound by {side.attribution or side.bound_by.value}"
        for side in (slower, faster)
    )
