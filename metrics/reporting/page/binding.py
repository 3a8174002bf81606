"""The limiting resource of one message size, and the headroom of the other resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.reporting.limit_words import reason_texts
from metrics.reporting.page.trials import LIMIT, OVERLOAD, ListedTrial, belongs_to, shortened
from metrics.tables.boundary import Boundary
from metrics.units import format_size
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse


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
    """The evidence without the resource's name at its start."""
    return evidence.removeprefix(f"{resource}: ")
