"""The limiting resource of one message size, and the headroom of the other resources.

The trials of a run as a report lists them, with the brackets that they decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.reporting.limit_words import first_reasons, reason_texts
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.trial.trial import Trial
from metrics.units import format_size
from metrics.windows.broker import BrokerWindow
from metrics.windows.use import Resource, ResourceUse
from search.model import Verdict

BROKERS_MAX = 12
"""Maximum number of brokers in a trial's evidence: those with the least idle handlers."""
WINDOWS_MAX = 1_000
"""Maximum number of windows in a report; in a long run each trial shows fewer brokers."""
LIMIT, OVERLOAD = "sustained side", "overloaded side"

Sides = tuple[tuple[str, str], ...]
"""The sides of brackets that a trial decided: (`LIMIT` or `OVERLOAD`, goal)."""


@dataclass(frozen=True)
class ListedTrial:
    """One trial on the page.

    Attributes:
        trial: the trial.
        sides: the sides of brackets that the trial decided.
        brokers_shown: number of brokers whose windows are shown.
    """

    trial: Trial
    sides: Sides
    brokers_shown: int

    @property
    def verdict(self) -> str:
        """The common verdict of all goals, or the different verdicts, separated by slashes."""
        verdicts = (each.verdict.value for each in self.trial.judgements.values())
        return " / ".join(dict.fromkeys(verdicts))

    @property
    def reason(self) -> str:
        """The most important reason of the first goal that has one."""
        judgements = self.trial.judgements.values()
        return next((reason.text for each in judgements for reason in each.reasons), "")

    @property
    def windows(self) -> tuple[BrokerWindow, ...]:
        """The windows of the brokers with the least idle handlers."""
        order = sorted(
            self.trial.evidence.brokers,
            key=lambda each: 1.0 if each.handler_idle is None else each.handler_idle,
        )
        return tuple(sorted(order[: self.brokers_shown], key=lambda each: each.broker_id))


def listed_trials(
    trials: Sequence[Trial], boundaries: Sequence[Boundary]
) -> tuple[ListedTrial, ...]:
    """A run's trials in chronological order, with the sides of brackets that they decided."""
    ordered = sorted(trials, key=lambda each: each.number)
    sides = _sides(ordered, boundaries)
    shown = max(1, min(BROKERS_MAX, WINDOWS_MAX // max(1, len(ordered))))
    return tuple(ListedTrial(each, sides.get(each.number, ()), shown) for each in ordered)


def belongs_to(trial: Trial, boundary: Boundary) -> bool:
    """True if a trial was made for this boundary point."""
    is_of_size = (
        trial.point_message_bytes == boundary.message_bytes or boundary.along is MESSAGE_BYTES
    )
    return is_of_size and trial.state == boundary.state


def _sides(trials: Sequence[Trial], boundaries: Sequence[Boundary]) -> dict[int, Sides]:
    """Trial number → the sides that it decided; of several trials at a load the last counts."""
    found: dict[tuple[str, int, str], int] = {}
    for trial in trials:
        for boundary in (each for each in boundaries if belongs_to(trial, each)):
            # The first versions of the tables have no name of the goal.
            judgement = trial.judgements.get(boundary.goal) or trial.judgements.get("")
            low, over = boundary.loads
            ends = ((low, Verdict.SUSTAINED, LIMIT), (over, Verdict.OVERLOADED, OVERLOAD))
            for load, verdict, side in ends:
                has_verdict = judgement is not None and judgement.verdict is verdict
                if trial.load == load and has_verdict:
                    found[boundary.goal, boundary.message_bytes, side] = trial.number
    sides: dict[int, Sides] = {}
    for (goal, _, side), number in found.items():
        sides[number] = (*sides.get(number, ()), (side, goal))
    return sides


@dataclass(frozen=True)
class Use:
    """The use of one resource at both sides of the bracket, on the broker that used it most.

    Attributes:
        at_limit, at_overload: use at the sustained and the overloaded side; None if not known.
        is_limit: True for the limiting resource.
        ceiling: highest use at which the goal accepts a load; 1 without such a threshold [ratio].
    """

    resource: str
    at_limit: ResourceUse | None
    at_overload: ResourceUse | None
    is_limit: bool
    ceiling: float = 1.0

    @property
    def headroom(self) -> float | None:
        """The unused part of the resource at the limit, up to the goal's threshold [ratio]."""
        used = None if self.at_limit is None else self.at_limit.utilization
        return None if used is None else max(0.0, self.ceiling - used)


Ceilings = Mapping[Resource, float]
"""Resource → highest use at which a goal accepts a load [ratio]."""

_IDLE_MINIMA = {
    Resource.REQUEST_HANDLERS: "indicators.request_handler_idle_min",
    Resource.NETWORK_THREADS: "indicators.network_idle_min",
}


def ceilings_of(goal: Mapping[str, Any]) -> Ceilings:
    """The ceilings of a goal, from its keys in the table `runs`."""
    return {
        resource: 1.0 - float(goal[key])
        for resource, key in _IDLE_MINIMA.items()
        if goal.get(key) is not None
    }


@dataclass(frozen=True)
class Binding:
    """The limiting resource of one message size.

    Attributes:
        resource: name of the resource, or a remark if it is not known.
        evidence: the evidence in a sentence.
        reasons: reasons of the overload, a sentence each.
        uses: use of each resource that was measured.
        trials: numbers of the trials at the limit and at the overload.
    """

    size: str
    resource: str
    evidence: str
    reasons: tuple[str, ...]
    uses: tuple[Use, ...]
    trials: tuple[int | None, int | None]


def binding_of(boundary: Boundary, trials: Sequence[ListedTrial], ceilings: Ceilings) -> Binding:
    """Find the limiting resource of a boundary point in the trials at the sides of its bracket."""
    low, over = (_at(boundary, trials, side) for side in (LIMIT, OVERLOAD))
    if boundary.loads[1] is None:
        resource = "no overload occurred"
    else:
        resource = boundary.limited_by or Resource.UNKNOWN.value
    return Binding(
        size=format_size(boundary.message_bytes),
        resource=resource,
        evidence=boundary.evidence.removeprefix(f"{resource}: "),
        reasons=first_reasons(reason_texts(boundary.overload_reasons)),
        uses=_uses(low, over, resource, ceilings),
        trials=(
            None if low is None else low.trial.number,
            None if over is None else over.trial.number,
        ),
    )


def _at(boundary: Boundary, trials: Sequence[ListedTrial], side: str) -> ListedTrial | None:
    load = boundary.loads[0 if side == LIMIT else 1]
    found = [
        each
        for each in trials
        if (side, boundary.goal) in each.sides
        and each.trial.load == load
        and belongs_to(each.trial, boundary)
    ]
    return found[-1] if found else None


def _uses(
    low: ListedTrial | None, over: ListedTrial | None, limit: str, ceilings: Ceilings
) -> tuple[Use, ...]:
    found = (
        Use(
            each.value,
            _most_used(low, each),
            _most_used(over, each),
            each.value == limit,
            ceilings.get(each, 1.0),
        )
        for each in Resource
    )
    return tuple(use for use in found if _is_known(use.at_limit) or _is_known(use.at_overload))


def _most_used(listed: ListedTrial | None, resource: Resource) -> ResourceUse | None:
    uses = () if listed is None else listed.trial.evidence.resources
    own = [use for use in uses if use.resource is resource]
    return max(own, key=_how_used, default=None)


def _how_used(use: ResourceUse) -> tuple[float, float]:
    return (
        -1.0 if use.utilization is None else use.utilization,
        -1.0 if use.saturation is None else use.saturation,
    )


def _is_known(use: ResourceUse | None) -> bool:
    return use is not None and (use.utilization is not None or bool(use.saturation))
