"""What bound one size: the resource that gave out, and the headroom of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.reporting.page.answers import reason_texts
from metrics.reporting.page.trial_rows import LIMIT, TOO_MUCH, TrialRow, UsedResource, shortened
from metrics.reporting.summary import Boundary
from metrics.units import format_size
from metrics.windows.resource import Resource


@dataclass(frozen=True)
class Use:
    """One resource at both sides of the bracket, each time of the broker that used it most.

    Attributes:
        at_limit, at_overload: at the sustained and the overloaded side; None when not known.
        is_limit: True for the resource that is named as what bound the brokers.
    """

    resource: str
    at_limit: UsedResource | None
    at_overload: UsedResource | None
    is_limit: bool

    @property
    def headroom(self) -> float | None:
        """What was left of it at the limit [ratio]."""
        used = None if self.at_limit is None else self.at_limit.utilization
        return None if used is None else max(0.0, 1.0 - used)


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


def binding_of(boundary: Boundary, trials: Sequence[TrialRow]) -> Binding:
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
        uses=_uses(low, over, resource),
        trials=(None if low is None else low.number, None if over is None else over.number),
    )


def _at(boundary: Boundary, trials: Sequence[TrialRow], side: str) -> TrialRow | None:
    load = boundary.loads[0 if side == LIMIT else 1]
    found = [
        trial
        for trial in trials
        if (side, boundary.goal) in trial.sides
        and trial.load == load
        and (trial.bpm == boundary.bpm or boundary.axis == "message_bytes")
    ]
    return found[-1] if found else None


def _uses(low: TrialRow | None, over: TrialRow | None, limit: str) -> tuple[Use, ...]:
    names = [resource.value for resource in Resource]
    found = (
        Use(name, _most_used(low, name), _most_used(over, name), name == limit) for name in names
    )
    return tuple(use for use in found if _is_known(use.at_limit) or _is_known(use.at_overload))


def _most_used(trial: TrialRow | None, resource: str) -> UsedResource | None:
    uses: Iterable[UsedResource] = () if trial is None else trial.resources
    own = [use for use in uses if use.resource == resource]
    return max(own, key=_how_used, default=None)


def _how_used(use: UsedResource) -> tuple[float, float]:
    return (
        -1.0 if use.utilization is None else use.utilization,
        -1.0 if use.saturation is None else use.saturation,
    )


def _is_known(use: UsedResource | None) -> bool:
    return use is not None and (use.utilization is not None or bool(use.saturation))


def _without_name(evidence: str, resource: str) -> str:
    """The evidence without the resource's name at its front."""
    return evidence.removeprefix(f"{resource}: ")
