"""What several overloads say together of what bound the brokers, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.judging.attribution import Attribution
from metrics.trial.judgement import Judgement
from metrics.windows.resource import Resource

NEAR_LIMIT = 1.5
"""Overloads up to so many times the lowest one say what binds at the limit; beyond, other
resources give out as well [ratio]."""


@dataclass(frozen=True)
class Told:
    """What one overload says.

    Attributes:
        judgement: of the overload.
        load: that it was made at, in words; empty where all were made at one.
        weight: how much it counts.
    """

    judgement: Judgement
    load: str = ""
    weight: float = 1.0

    @property
    def resource(self) -> Resource:
        """What it names."""
        return self.judgement.limited_by or Resource.UNKNOWN


def agreed(told: Sequence[Told], what: str = "overloads") -> Attribution | None:
    """What weighs most, with how many say so and what the others say; None of no overload.

    An overload that cannot name anything does not speak against those that can. Of those that
    name the same, the weightiest gives its evidence, and of two alike the last.

    Args:
        told: what each of them says, oldest first.
        what: they are, in words.
    """
    if not told:
        return None
    weights = dict.fromkeys(Resource, 0.0)
    for each in told:
        weights[each.resource] += each.weight
    weights[Resource.UNKNOWN] = 0.0
    named = max(weights, key=lambda resource: weights[resource]) if any(weights.values()) else None
    named = named or Resource.UNKNOWN
    alike = [each for each in told if each.resource is named]
    speaker = max(reversed(alike), key=lambda each: each.weight)
    text = speaker.judgement.attribution
    return Attribution(named, "; ".join(filter(None, [text, _agreement(told, named, what)])))


def contradiction(told: Sequence[Told]) -> str:
    """That overloads name different resources; empty where they do not."""
    by_name: dict[Resource, list[str]] = {}
    for each in told:
        if each.resource is not Resource.UNKNOWN:
            by_name.setdefault(each.resource, []).append(each.load)
    if len(by_name) < 2:
        return ""
    said = [f"{name.value}{_at(loads)}" for name, loads in by_name.items()]
    return f"overloads near the limit do not agree on what bound the brokers: {'; '.join(said)}"


def _agreement(told: Sequence[Told], named: Resource, what: str) -> str:
    if len(told) == 1:
        return ""
    others = [
        f"{each.resource.value}{_at([each.load])}" for each in told if each.resource is not named
    ]
    if not others:
        return f"all {len(told)} {what} say so"
    alike = len(told) - len(others)
    return f"{alike} of {len(told)} {what} say so, the others {', '.join(others)}"


def _at(loads: Sequence[str]) -> str:
    places = ", ".join(dict.fromkeys(filter(None, loads)))
    return f" at {places}" if places else ""
