"""What bound one size: the resource that gave out, and the headroom of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.reporting.page.answers import reason_texts
from metrics.reporting.page.trials import LIMIT, TOO_MUCH, ListedTrial, belongs_to, shortened
from metrics.tables.boundary import Boundary
from metrics.units import format_size
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse


@dataclass(frozen=True)
class Use:
    """One resource at both sides of the bracket, each time of the broker that used it most.

    Attributes:
        at_limit, at_overload: at the sustained and the overloaded side; None when not known.
        is_limit: True for the resource that is named as what bound the brokers.
        ceiling: up to which use the goal calls a load sustained; 1 where it does not say [ratio].
    """

    resource: str
    at_limit: ResourceUse | None
    at_overload: ResourceUse | None
    is_limit: bool
    ceiling: float = 1.0

    @property
    def headroom(self) -> float | None:
        """What was left of it at the limit, up to the goal's threshold [ratio]."""
        used = None if self.at_limit is None else self.at_limit.utilization
        return None if used is None else max(0.0, self.ceiling - used)


Ceilings = Mapping[Resource, float]
"""Up to which use of a resource a goal calls a load sustained [ratio]."""

_IDLE_MINIMA = {
    Resource.REQUEST_HANDLERS: "indicators.request_handler_idle_min",
    Resource.NETWORK_THREADS: "indicators.network_idle_min",
}


def ceilings_of(goal: Mapping[str, Any]) -> Ceilings:
    """The ceilings of a goal, by its keys as the table `runs` keeps them."""
    return {
        resource: 1.0 - float(goal[key])
        for resource, key in _IDLE_MINIMA.items()
        if goal.get(key) is not None
    }


@dataclass(frozen=True)
class Binding:
    """What bound one size.

    Attributes:
        resource: its name, or what is known instead.
        evidence: the sentence that it rests on.
        reasons: of the overload, a sentence each.
        uses: of every resource of which anything is known.
        trials: the numbers of the trials at the limit and at the overload.
    """

    size: str
    resource: str
    evidence: str
    reasons: tuple[str, ...]
    uses: tuple[Use, ...]
    trials: tuple[int | None, int | None]


def binding_of(boundary: Boundary, trials: Sequence[ListedTrial], ceilings: Ceilings) -> Binding:
    """What bound a boundary point, from the trials at the sides of its bracket."""
    low, over = (_at(boundary, trials, side) for side in (LIMIT, TOO_MUCH))
    if boundary.loads[1] is None:
        resource = "no overload was seen"
    else:
        resource = boundary.limited_by or Resource.UNKNOWN.value
    return Binding(
        size=format_size(boundary.bpm),
        resource=resource,
        evidence=_without_name(boundary.evidence, resource),
        reasons=shortened(reason_texts(boundary.overload_reasons)),
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


def _without_name(evidence: str, resource: str) -> str:
    """The evidence without the resource's name at its front."""
    return evidence.removeprefix(f"{resource}: ")
