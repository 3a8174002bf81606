"""The probability that the limit changed while it was measured, and when.

Two hypotheses are compared for the valid trials of a point, in their order: one limit for all of
them, or one limit up to some trial and another one from there on, which differs by `LEAST` or more.
As in `search.posterior`, each trial has a limit of its own: the limit times a random scatter, whose
size is unknown. Readings may be strays and verdicts may be flukes, so a single trial that differs
is no change. Limits are on a grid; the noise and the gain of the curve are each on a coarse one,
and both hypotheses are summed over them.

Trials far from the limit are at the beginning of a search, and the curve's form is not known. So
residuals alone do not tell a change from a curve that bends; a trial that repeats an early load
does, as both have the same error of the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub

from search.estimate import Curve
from search.interval import LEVEL, Interval
from search.trial_evidence import FLUKE, STRAY, STRAY_SPREAD, TrialEvidence

LEAST = 0.06
"""Smallest change of the limit that counts as one [ln]."""
PROBABLE = 0.1
"""Probability of a change in a run, before its trials."""
NOISE_MEDIAN, NOISE_SPREAD = 0.022, 0.8
"""The noise before any trial: its median [ratio], and the σ of its logarithm."""
NEAR = 0.5
"""Size up to which half of all changes are expected to be [ln]."""
_NOISES = (0.01, 0.018, 0.032, 0.057)
_GAIN_STEPS = (-1.5, -0.75, 0.0, 0.75, 1.5)
_TAIL = 0.05
_STEP = 0.02
_REACH = 0.5
_ROOT_2 = math.sqrt(2.0)


@dataclass(frozen=True)
class Suspicion:
    """The evidence of a change in the trials of a point.

    Attributes:
        probability: probability that the limit changed by `LEAST` or more.
        last_before, since: the last trial that was very probably before the change and the first
            one that was very probably after it, as positions among the valid trials.
        before, after: the 90 % interval of the limit before and after the most probable change.
    """

    probability: float
    last_before: int = 0
    since: int = 0
    before: Interval | None = None
    after: Interval | None = None


def suspicion(trials: Sequence[TrialEvidence], curve: Curve) -> Suspicion:
    """The evidence of a change in the trials of a point.

    Args:
        trials: evidence of the valid trials, oldest first.
        curve: the curve with which they were read; its gain is the middle of those tried.
    """
    count = len(trials)
    if count < 2:
        return Suspicion(0.0)
    grid = _grid(trials, curve)
    steady = 0.0
    splits = [0.0] * count
    sides = []
    share = 1.0 / len(grid)
    for weight, rows in _layers(trials, curve, grid):
        firsts = list(accumulate(rows, _times))
        lasts = list(accumulate(reversed(rows), _times))[::-1]
        steady += weight * share * sum(firsts[-1])
        for split in range(1, count):
            splits[split] += weight * share * sum(map(mul, firsts[split - 1], _apart(lasts[split])))
        sides.append((weight, firsts, lasts))
    prior = PROBABLE / (count - 1)
    changed = prior * sum(splits)
    total = changed + (1.0 - PROBABLE) * steady
    if total <= 0.0:
        return Suspicion(0.0)
    likeliest = max(range(1, count), key=splits.__getitem__)
    before, after = [0.0] * len(grid), [0.0] * len(grid)
    for weight, firsts, lasts in sides:
        one, other = firsts[likeliest - 1], lasts[likeliest]
        before = _plus(before, weight, _times(one, _apart(other)))
        after = _plus(after, weight, _times(other, _apart(one)))
    return Suspicion(
        changed / total,
        _split_at(splits, _TAIL) - 1,
        _split_at(splits, 1.0 - _TAIL),
        _interval(grid, before),
        _interval(grid, after),
    )


def _plus(sums: Sequence[float], weight: float, row: Sequence[float]) -> list[float]:
    return [total + weight * each for total, each in zip(sums, row, strict=True)]


def _split_at(splits: Sequence[float], share: float) -> int:
    """The first trial before which the change happened with this probability."""
    total, found = sum(splits), 0.0
    for split, weight in enumerate(splits):
        found += weight
        if weight > 0.0 and found >= share * total:
            return split
    return len(splits) - 1


def _grid(trials: Sequence[TrialEvidence], curve: Curve) -> list[float]:
    """Values of ln limit that reach beyond all limits that the trials show."""
    centers = [one.load if one.met is None else one.met - curve.gain * one.slope for one in trials]
    near = sorted(centers)
    low, high = near[0] - _REACH, near[-1] + _REACH
    cells = max(2, math.ceil((high - low) / _STEP))
    return [low + (high - low) * (cell + 0.5) / cells for cell in range(cells)]


def _layers(
    trials: Sequence[TrialEvidence], curve: Curve, grid: Sequence[float]
) -> Iterator[tuple[float, list[list[float]]]]:
    """The likelihood of each trial on the grid, for each noise and gain, with its weight."""
    spread = max(0.15, curve.gain_spread / curve.gain)
    gains = [curve.gain * math.exp(spread * away) for away in _GAIN_STEPS]
    for noise in _NOISES:
        own = _bell(math.log(noise / NOISE_MEDIAN) / NOISE_SPREAD)
        for gain, away in zip(gains, _GAIN_STEPS, strict=True):
            rows = [_row(one, noise, gain, grid) for one in trials]
            yield own * _bell(away), rows


def _row(trial: TrialEvidence, noise: float, gain: float, grid: Sequence[float]) -> list[float]:
    """The likelihood of a trial for each limit."""
    if trial.met is None:
        spread = _ROOT_2 * math.hypot(noise, trial.error) * (1.0 if trial.held else -1.0)
        edge = trial.load - gain * trial.slope
        return [0.5 * FLUKE + (1.0 - FLUKE) * 0.5 * math.erfc((edge - x) / spread) for x in grid]
    met = trial.met - gain * trial.slope
    spread = math.hypot(noise, trial.error)
    wide = math.hypot(spread, STRAY_SPREAD)
    unit = gain if trial.by_curve else 1.0
    close, far = unit * (1.0 - STRAY) / spread, unit * STRAY / wide
    exp, narrow, broad = math.exp, -0.5 / spread**2, -0.5 / wide**2
    aways = [x - met for x in grid]
    return [
        close * exp(narrow * square) + far * exp(broad * square)
        for square in map(mul, aways, aways)
    ]


def _apart(row: Sequence[float]) -> list[float]:
    """For each limit, the mean over the limits that differ from it by `LEAST` or more.

    Half of the weight is on those that differ by at most `NEAR`.
    """
    least, near, count = round(LEAST / _STEP), round(NEAR / _STEP), len(row)
    sums = [0.0] * near + list(accumulate(row, initial=0.0))
    total = sums[-1]
    sums += [total] * near
    close, far = 0.25 / (near - least), 0.5 / count
    outer = map(sub, sums[2 * near :], sums[1:])
    inner = map(sub, sums[near + least :], sums[near - least + 1 :])
    return [
        close * (both - same) + far * (total - same)
        for both, same, _ in zip(outer, inner, row, strict=False)
    ]


def _times(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return list(map(mul, one, other))


def _interval(grid: Sequence[float], weights: Sequence[float]) -> Interval | None:
    total = sum(weights)
    if total <= 0.0:
        return None
    tail = (1.0 - LEVEL) / 2.0
    step = grid[1] - grid[0]
    found = []
    for share in (tail, 0.5, 1.0 - tail):
        reached = 0.0
        for x, weight in zip(grid, weights, strict=True):
            if weight > 0.0 and reached + weight >= share * total:
                part = (share * total - reached) / weight
                found.append(math.exp(x + step * (part - 0.5)))
                break
            reached += weight
    return Interval(found[0], found[2], found[1])


def _bell(away: float) -> float:
    return math.exp(-0.5 * away * away)
