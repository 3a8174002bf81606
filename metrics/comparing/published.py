"""Published claims about an experiment's figure, held against the measured figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from metrics.comparing.effects import Effect, paired_effect
from metrics.comparing.sweeps import Pairs, Result, effect_of

SAME_WITHIN = 0.10
"""Largest change that counts as the same, where a study publishes no difference [share]."""
SIZE = "workload.message_bytes"
"""The key of a claim for the message size, which is a field of a result."""


@dataclass(frozen=True)
class Claim:
    """A published claim: how the figure of one case compares with that of another.

    Attributes:
        source: the study, such as `Heroku 2016`.
        says: the claim, a clause without a full stop.
        of: full path → value of the case that the claim is about.
        against: full path → value of the case that it is compared with.
        change: `less`, `more`, or `same` for at most `SAME_WITHIN`.
        by: the published change, such as -0.33; None where the study has no figure [share].
        reading: the reading that is compared, such as `p99_ms`; empty for the figure.
    """

    source: str
    says: str
    of: Mapping[str, str]
    against: Mapping[str, str]
    change: Literal["less", "more", "same"]
    by: float | None = None
    reading: str = ""


class Verdict(str, Enum):
    """What the measured figures say of a claim."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict.

    Attributes:
        effect: the measured effect; None where too few figures have an interval.
        seen: the mean ratio of the figures, also without an effect; None if none was measured.
        lacks: settings that were not measured; empty if all were.
    """

    claim: Claim
    verdict: Verdict
    effect: Effect | None = None
    seen: float | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)


def judge_claim(claim: Claim, results: Sequence[Result]) -> ClaimVerdict:
    """Hold a claim against the results of a sweep.

    The claim agrees if the whole interval of the effect lies where the claim has it, and contains
    the published change, if there is one. It differs if no part of the interval does.
    """
    known = [each for each in results if each.value]
    for settings in (claim.of, claim.against):
        if not any(_matches(each, settings) for each in known):
            return ClaimVerdict(claim, Verdict.CANNOT_SAY, lacks=settings)
    pairs = _pairs(claim, known)
    if claim.reading:
        values = [(a.reading(claim.reading), b.reading(claim.reading)) for a, b in pairs]
        readings = [(a, b) for a, b in values if a and b]
        effect, logs = paired_effect(readings), [math.log(b / a) for a, b in readings]
    else:
        effect = effect_of(pairs)
        logs = [math.log((b.estimate or 1.0) / (a.estimate or 1.0)) for a, b in pairs]
    seen = math.exp(sum(logs) / len(logs)) if logs else None
    return ClaimVerdict(claim, _verdict(claim, effect), effect, seen)


def _verdict(claim: Claim, effect: Effect | None) -> Verdict:
    if effect is None:
        return Verdict.CANNOT_SAY
    margin = 1.0 + SAME_WITHIN
    regions = {"less": (0.0, 1.0), "more": (1.0, math.inf), "same": (1.0 / margin, margin)}
    low, high = regions[claim.change]
    excludes_figure = claim.by is not None and not effect.low <= 1.0 + claim.by <= effect.high
    if effect.high < low or effect.low > high or excludes_figure:
        return Verdict.DIFFERS
    return Verdict.AGREES if low <= effect.low and effect.high <= high else Verdict.CANNOT_SAY


def _pairs(claim: Claim, results: Sequence[Result]) -> Pairs:
    """Pairs of results of one repeat that differ in the keys of the claim alone."""
    keys = {*claim.of, *claim.against}

    def place(each: Result) -> tuple[object, ...]:
        rest = sorted(item for item in each.settings.items() if item[0] not in keys)
        return each.repeat, None if SIZE in keys else each.message_bytes, tuple(rest)

    first = {place(each): each for each in results if _matches(each, claim.against)}
    return [
        (first[place(each)], each)
        for each in results
        if _matches(each, claim.of) and place(each) in first
    ]


def _matches(result: Result, settings: Mapping[str, str]) -> bool:
    own = {**result.settings, SIZE: str(result.message_bytes)}
    return all(own.get(key) == value for key, value in settings.items())
