"""When a trial may end early: as soon as its verdict will hardly change any more.

A trial of n slices is judged by the mean of each indicator over all of them. After k
slices with mean m and standard deviation s, the mean of all n lies around m with variance
s²·(1/k - 1/n)·(1+r)/(1-r), r being the correlation of neighbouring slices. The trial may
stop when that leaves the threshold out of reach at the error rate that was asked for,
which is shared out evenly between looks (Bonferroni), since looking often finds flukes.
An indicator that drifts is judged by its later half too, and a share of samples, such as
those with ISR changes, by counting: it may stop when no rest could change the outcome.
What builds up, such as records that wait, is judged by where it ends: overloaded once it
is beyond the limit and still grows, sustained while it stays below half of the limit.

The stated rate is the chance that the early verdict is not the one of the whole trial; a
test holds the rule to it in simulation, slices correlated by up to 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist, fmean, variance

from search.model import Verdict

_CORRELATION_LEAST = 0.3
_CORRELATION_MOST = 0.8
# Utilizations are known no better than this; it also keeps a flat line from zero variance.
_DEVIATION_LEAST = 0.01
_STOCK_LOW = 0.5


@dataclass(frozen=True)
class Progress:
    """A running trial, cut into slices of equal length.

    Attributes:
        planned: slices that the whole trial has.
        means: by indicator, its utilization in each slice so far (1 is the threshold);
            the trial is judged by the mean over all slices.
        shares: by indicator, whether each slice so far counts against it, and the share
            of all slices beyond which the trial is overloaded [ratio].
        stocks: by indicator, what has built up by the end of each slice so far, in units
            of what the whole trial may leave (1 is the threshold).
        known_at_end: True when an indicator is known at the end only, so that nothing
            before it says SUSTAINED.
    """

    planned: int
    means: Mapping[str, Sequence[float]]
    shares: Mapping[str, tuple[Sequence[bool], float]] = field(default_factory=dict)
    stocks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    known_at_end: bool = False


@dataclass(frozen=True)
class StopRule:
    """How careful early stopping is.

    Attributes:
        error_rate: chance that the early verdict is not the one of the whole trial.
        first: slices before the first look; 4 at least, as fewer do not tell how they scatter.
        every: slices between looks.
        sustained_from: share of the trial before which it is never called SUSTAINED,
            since some indicators need time to show [ratio].
    """

    error_rate: float = 0.01
    first: int = 8
    every: int = 2
    sustained_from: float = 0.5

    def verdict(self, progress: Progress) -> Verdict | None:
        """The verdict that the trial may stop with now, or None when it has to go on."""
        seen = _slices(progress)
        if seen < self.first or seen >= progress.planned or (seen - self.first) % self.every:
            return None
        looks = 1 + (progress.planned - 1 - self.first) // self.every
        # Either side of the threshold may be missed, by any of the indicators.
        tail = self.error_rate / (looks * max(1, len(progress.means) + len(progress.stocks)))
        sides = [
            _side_of_mean(values, progress.planned, tail) for values in progress.means.values()
        ]
        sides += [
            _side_of_share(against, limit, progress.planned)
            for against, limit in progress.shares.values()
        ]
        sides += [_side_of_stock(levels, tail) for levels in progress.stocks.values()]
        if Verdict.OVERLOADED in sides:
            return Verdict.OVERLOADED
        if progress.known_at_end or seen < self.sustained_from * progress.planned:
            return None
        agreed = bool(sides) and all(side is Verdict.SUSTAINED for side in sides)
        return Verdict.SUSTAINED if agreed else None


def _slices(progress: Progress) -> int:
    lengths = [len(values) for values in progress.means.values()]
    lengths += [len(against) for against, _ in progress.shares.values()]
    lengths += [len(levels) for levels in progress.stocks.values()]
    return min(lengths, default=0)


def _side_of_mean(values: Sequence[float], planned: int, tail: float) -> Verdict | None:
    """Which side of 1 the mean of all slices will be on, or None while open."""
    seen = len(values)
    correlation = min(_CORRELATION_MOST, max(_CORRELATION_LEAST, _neighbours(values)))
    spread = math.sqrt(
        max(variance(values), _DEVIATION_LEAST**2)
        * (1.0 / seen - 1.0 / planned)
        * (1.0 + correlation)
        / (1.0 - correlation)
    )
    reach = _student(tail, seen // 2) * spread
    whole, later = fmean(values), fmean(values[seen // 2 :])
    if min(whole, later) - reach > 1.0:
        return Verdict.OVERLOADED
    if max(whole, later) + reach < 1.0:
        return Verdict.SUSTAINED
    return None


def _side_of_share(against: Sequence[bool], limit: float, planned: int) -> Verdict | None:
    """Which side the share of all slices will be on whatever comes, or None while open."""
    counted = sum(against)
    if counted > limit * planned:
        return Verdict.OVERLOADED
    if counted + planned - len(against) <= limit * planned:
        return Verdict.SUSTAINED
    return None


def _side_of_stock(levels: Sequence[float], tail: float) -> Verdict | None:
    """Which side what builds up will end on, or None while open."""
    later = levels[len(levels) // 2 :]
    if max(later) <= _STOCK_LOW:
        return Verdict.SUSTAINED
    growth = [after - before for before, after in pairwise(levels)]
    if min(later) <= 1.0:
        return None
    reach = _student(tail, len(growth) - 1) * math.sqrt(variance(growth) / len(growth))
    return Verdict.OVERLOADED if fmean(growth) - reach > 0.0 else None


def _neighbours(values: Sequence[float]) -> float:
    """Correlation of neighbouring slices."""
    mean = fmean(values)
    total = sum((value - mean) ** 2 for value in values)
    if total == 0.0:
        return 0.0
    pairs = pairwise(values)
    return sum((one - mean) * (other - mean) for one, other in pairs) / total


def _student(tail: float, freedom: int) -> float:
    """Upper quantile of Student's t, by the Cornish-Fisher expansion."""
    z = NormalDist().inv_cdf(1.0 - tail)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
