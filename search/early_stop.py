"""The rule that ends a trial as soon as the trial's verdict is almost certain.

A trial is cut into n slices of equal length, and its verdict follows from the mean of each
indicator over all slices. After k slices with mean m and standard deviation s, the mean of all n
slices is expected to be m with a variance of s²·(1/k - 1/n)·(1+r)/(1-r), where r is the correlation
of neighboring slices. The trial may end if the mean of all n slices will probably not cross the
indicator's threshold any more. The probability that the mean still crosses the threshold is at most
the configured error rate. The error rate is divided equally among all checks (Bonferroni), because
each further check can end the trial by chance. The second half of the slices is also judged
separately, because an indicator may drift. If an indicator is a share of samples, such as the share
of samples with ISR changes, the samples are counted. The trial may end if the remaining samples
cannot change the verdict. A stock, such as the number of waiting records, shows an overload if the
stock is above its limit and still grows. A stock shows a sustained load if the stock stays below
half of its limit.

If a load is far above the limit, `is_far_beyond` ends the warm-up of the trial early. After an
early end of the warm-up, the rule judges the window of the trial as usual.

The error rate is the probability that the early verdict differs from the verdict of the whole
trial. A test checks the error rate with simulated trials, whose neighboring slices have a
correlation of up to 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist, fmean, variance

from search.model import Verdict

_CORRELATION_LEAST = 0.3
_CORRELATION_MOST = 0.8
# Precision of utilizations; it also prevents a zero variance.
_DEVIATION_LEAST = 0.01
_STOCK_LOW = 0.5

LASTING_SHARE = 0.5
"""Minimum share of overloaded slices in a lasting overload [ratio]."""
FEWEST = 4
"""Minimum number of slices from which the scatter of the slices is computed."""
SETTLED_S, SHORTFALL_S = 1.0, 3.0
"""`SETTLED_S` is the time at the start of a load in which acknowledged records are not judged [s].
`SHORTFALL_S` is the minimum time for which brokers must acknowledge too few records, before the
load counts as far above the limit [s]."""
FAR_BEYOND = 0.8
"""If the acknowledged share of a load is below this value, the load is far above the limit
[ratio]."""


def is_far_beyond(written: Sequence[tuple[float, int]], offered_per_s: float) -> bool:
    """True if brokers recently acknowledged so few records that the load must be far above the
    limit.

    Args:
        written: (time since the full load began [s], records acknowledged since then), oldest
            first.
        offered_per_s: total rate of records that all producers offer [1/s].
    """
    if not written or written[-1][0] < SETTLED_S + SHORTFALL_S:
        return False
    now_s, records = written[-1]
    at_s, before = next(each for each in reversed(written) if each[0] <= now_s - SHORTFALL_S)
    return records - before < FAR_BEYOND * offered_per_s * (now_s - at_s)


@dataclass(frozen=True)
class Progress:
    """A running trial, cut into slices of equal length.

    Attributes:
        planned: number of slices of the whole trial.
        means: indicator → its utilization in each slice so far (1 is the threshold). The verdict
            follows from the mean utilization over all slices of the trial.
        shares: indicator → pair of values. The first value is a sequence with one element for each
            slice so far: True if the slice is overloaded. The second value is a limit [ratio]: the
            whole trial is overloaded if the share of overloaded slices is above this limit.
        stocks: indicator → one ratio for each slice so far. The ratio is the amount that waits at
            the end of the slice, such as a number of records, divided by the amount that may wait
            at the end of the trial.
        known_at_end: True if an indicator is known only after the trial; the trial then cannot end
            early as SUSTAINED.
    """

    planned: int
    means: Mapping[str, Sequence[float]]
    shares: Mapping[str, tuple[Sequence[bool], float]] = field(default_factory=dict)
    stocks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    known_at_end: bool = False


@dataclass(frozen=True)
class StopRule:
    """The settings of early stopping.

    Attributes:
        error_rate: probability that the early verdict differs from the verdict of the whole trial.
        first: number of slices before the first check; at least `FEWEST`.
        every: number of slices between checks.
        sustained_from: earliest time at which the trial can end as SUSTAINED, as a share of the
            whole trial [ratio]. The trial must not end as SUSTAINED earlier, because some
            indicators react late.
    """

    error_rate: float = 0.01
    first: int = 8
    every: int = 2
    sustained_from: float = 0.5

    def verdict(self, progress: Progress) -> Verdict | None:
        """The verdict with which the trial may end now; None if the trial must continue."""
        done = _slices(progress)
        if done < self.first or done >= progress.planned or (done - self.first) % self.every:
            return None
        looks = 1 + (progress.planned - 1 - self.first) // self.every
        # An error can happen at any check and at any indicator, so they share the error rate.
        tail = self.error_rate / (looks * max(1, len(progress.means) + len(progress.stocks)))
        sides = _sides(progress, tail)
        if Verdict.OVERLOADED in sides:
            return Verdict.OVERLOADED
        if progress.known_at_end or done < self.sustained_from * progress.planned:
            return None
        is_sustained = bool(sides) and all(side is Verdict.SUSTAINED for side in sides)
        return Verdict.SUSTAINED if is_sustained else None

    def has_lasted(self, span: Progress) -> bool:
        """True if an overload lasted during a past time span, according to the slices of the span.

        An indicator in `shares` counts as overloaded only if more than half of its slices are
        overloaded, even if the indicator's own limit is below one half.

        Args:
            span: the slices of the time span, with the indicators that were read.
        """
        seen = replace(
            span,
            means={name: each for name, each in span.means.items() if len(each) > 1},
            shares={
                name: (each, max(limit, LASTING_SHARE))
                for name, (each, limit) in span.shares.items()
            },
            stocks={name: each for name, each in span.stocks.items() if len(each) > FEWEST},
            planned=0,
        )
        tail = self.error_rate / max(1, len(seen.means) + len(seen.stocks))
        return Verdict.OVERLOADED in _sides(seen, tail)


def _sides(progress: Progress, tail: float) -> list[Verdict | None]:
    """For each indicator, the verdict at the end of the trial; None if this verdict is not certain
    yet.

    If there are more slices than planned, the trial is finished.
    """
    planned = progress.planned
    means = (_side_of_mean(each, max(planned, len(each)), tail) for each in progress.means.values())
    shares = (
        _side_of_share(each, limit, max(planned, len(each)))
        for each, limit in progress.shares.values()
    )
    return [*means, *shares, *(_side_of_stock(each, tail) for each in progress.stocks.values())]


def _slices(progress: Progress) -> int:
    lengths = [len(values) for values in progress.means.values()]
    lengths += [len(against) for against, _ in progress.shares.values()]
    lengths += [len(levels) for levels in progress.stocks.values()]
    return min(lengths, default=0)


def _side_of_mean(values: Sequence[float], planned: int, tail: float) -> Verdict | None:
    """The verdict of the whole trial from the mean of all slices; None if the verdict is not
    certain yet.
    """
    done = len(values)
    correlation = min(_CORRELATION_MOST, max(_CORRELATION_LEAST, _correlation(values)))
    spread = math.sqrt(
        max(variance(values), _DEVIATION_LEAST**2)
        * (1.0 / done - 1.0 / planned)
        * (1.0 + correlation)
        / (1.0 - correlation)
    )
    reach = _student(tail, done // 2) * spread
    whole, later = fmean(values), fmean(values[done // 2 :])
    if min(whole, later) - reach > 1.0:
        return Verdict.OVERLOADED
    if max(whole, later) + reach < 1.0:
        return Verdict.SUSTAINED
    return None


def _side_of_share(against: Sequence[bool], limit: float, planned: int) -> Verdict | None:
    """The verdict of the whole trial from the share of overloaded slices; None if the verdict is
    not certain yet.
    """
    counted = sum(against)
    if counted > limit * planned:
        return Verdict.OVERLOADED
    if counted + planned - len(against) <= limit * planned:
        return Verdict.SUSTAINED
    return None


def _side_of_stock(levels: Sequence[float], tail: float) -> Verdict | None:
    """The verdict of the whole trial from the amount that waits, such as a number of records; None
    if the verdict is not certain yet.
    """
    later = levels[len(levels) // 2 :]
    if max(later) <= _STOCK_LOW:
        return Verdict.SUSTAINED
    growth = [after - before for before, after in pairwise(levels)]
    if min(later) <= 1.0:
        return None
    reach = _student(tail, len(growth) - 1) * math.sqrt(variance(growth) / len(growth))
    return Verdict.OVERLOADED if fmean(growth) - reach > 0.0 else None


def _correlation(values: Sequence[float]) -> float:
    """Correlation of neighboring slices."""
    mean = fmean(values)
    total = sum((value - mean) ** 2 for value in values)
    if total == 0.0:
        return 0.0
    pairs = pairwise(values)
    return sum((one - mean) * (other - mean) for one, other in pairs) / total


def _student(tail: float, freedom: int) -> float:
    """The upper quantile of Student's t, computed with the Cornish-Fisher expansion."""
    z = NormalDist().inv_cdf(1.0 - tail)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
