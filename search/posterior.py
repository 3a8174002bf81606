"""The probability of each possible limit, according to all trials of a point. The interval and the
confidence follow from these probabilities.

During each trial, the limit is the true limit times a random factor. The spread of the random
factor is unknown and is called the noise. The utilization in a trial gives an equation for the
limit during this trial, as in `search.estimate`. The verdict of a trial shows whether the limit
during this trial is above or below the load. If brokers had almost no idle time in an overload, the
trial gives only an upper bound of the limit. The upper bound is the load divided by
`SATURATED_UTILIZATION` ^ gain. With a small probability, the reading of a utilization is an outlier
(a *stray*), or a verdict is wrong by chance (a *fluke*).

The noise and the gain of the curve (`search.estimate.Curve`) are unknown, so the model has a grid
of values of the noise and the gain. For each pair of a noise and a gain, least squares estimate the
limit from the equations of the trials. Least squares also estimate the limit for each case in which
the reading of one trial is a stray. For each limit on a grid of limits, the probability of the
limit according to the equations is multiplied by the probabilities of the verdicts and of the
prediction from neighboring sizes. The posterior of the limit is the weighted sum over all pairs of
a noise and a gain. The weight of a pair is its probability, given the scatter of the trials at this
message size and at finished message sizes.

A load is a whole number, but a limit is a real number here. The limit is the load above which a
trial without noise would be overloaded. If 11 producers are sustained and 12 are overloaded, the
limit is between 11 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from search.estimate import READABLE_MIN, Curve, Prior, readable_max
from search.model import LEVEL, Bracket, Interval, Observation, Verdict
from search.signals import SATURATED_UTILIZATION, Signals

STRAY, STRAY_SPREAD = 0.04, 0.25
"""A stray is a reading that is an outlier. `STRAY` is the share of readings that are strays
[ratio]. `STRAY_SPREAD` is the standard deviation of ln limit for a stray.
"""
FLUKE = 0.04
"""Share of verdicts that are wrong by chance (flukes) [ratio]. The share is equal for all loads."""

# Errors of one reading, without the noise: error of the idle fraction (absolute); errors of the
# curve per unit of ln u and of its square; error of the curve above the threshold, where requests
# grow; error of the delivered share, per unit of the missing share.
_IDLE_ERROR = 0.005
_CURVE_ERROR = 0.02
_CURVATURE = 0.12
_GROWTH_ERROR = 0.1
_DELIVERED_ERROR = 0.3
_SHORT_ERROR = 0.01


@dataclass(frozen=True)
class TrialEvidence:
    """The evidence of one trial about the limit during this trial, in logarithms.

    Attributes:
        load: ln of the load.
        is_sustained: True if the load was sustained.
        met: value of (ln of the limit during the trial) + `slope` · gain, where gain is
            `Curve.gain`; None if this value is unknown. If the value is unknown, the trial shows
            only whether ln of the limit is above or below `load` - `slope` · gain.
        slope: ln(utilization / utilization at the limit).
        error: standard deviation of `met`, or of the bound if `met` is None [ln]. The scatter of
            the limit from trial to trial is not included.
        by_curve: True if `met` and `slope` are computed from the utilization in the trial, and show
            the limit.
    """

    load: float
    is_sustained: bool
    met: float | None = None
    slope: float = 0.0
    error: float = 0.0
    by_curve: bool = False


def evidence_of(
    history: Iterable[Observation], signals: Signals, curve: Curve
) -> list[TrialEvidence]:
    """The evidence of each valid trial, in the order of `history`."""
    valid = (seen for seen in history if seen.verdict is not Verdict.INVALID)
    return [_evidence(seen, signals, curve) for seen in valid]


def _evidence(seen: Observation, signals: Signals, curve: Curve) -> TrialEvidence:
    load, is_sustained = math.log(seen.load), seen.verdict is Verdict.SUSTAINED
    used, share = signals.utilization(seen), signals.delivered(seen)
    if share is not None and (used is None or curve.at_limit < 1.0):
        short = math.log(min(1.0, share / signals.achieved_min))
        return TrialEvidence(
            load, is_sustained, load + short, error=_SHORT_ERROR - _DELIVERED_ERROR * short
        )
    if curve.at_limit >= 1.0 and signals.at_most(seen) is not None:
        return TrialEvidence(
            load,
            is_sustained,
            None,
            math.log(SATURATED_UTILIZATION),
            _GROWTH_ERROR * (SATURATED_UTILIZATION - 1.0),
        )
    if used is None or not READABLE_MIN <= used < readable_max(curve):
        return TrialEvidence(load, is_sustained)
    slope = math.log(used / curve.at_limit)
    error = math.hypot(
        curve.gain * _IDLE_ERROR / used,
        _CURVE_ERROR * slope,
        _CURVATURE * slope**2,
        _GROWTH_ERROR * max(0.0, used - 1.0),
    )
    return TrialEvidence(load, is_sustained, load, slope, error, by_curve=True)


NOISES = tuple(0.005 * 1.6**step for step in range(8))
"""The grid of the noise, from 0.5 to 13.4 %. The noise is the relative standard deviation of the
limit from trial to trial [ratio]."""
GAINS = tuple(0.2 * 1.2**step for step in range(14))
"""The grid of the curve's gain, from 0.2 to 2.2; see `search.estimate.Curve`."""
NOISE_MEDIAN, NOISE_SPREAD = 0.025, 1.2
"""Prior distribution of the noise: median [ratio], and standard deviation of the logarithm."""
# Error of the utilization at the limit if another resource is the limit. All overloads have the
# same error, so further overloads do not reduce it.
_END_ERROR = 0.05
# The prediction from neighbors can be wrong, so its prior has the tails of Student's t.
_PRIOR_FREEDOM = 3.0
# Sizes have similar gains, so this share of each probability moves to each neighboring gain.
_BLUR = 0.15
_CELLS = 48
_REACH = 0.5
_NEGLIGIBLE = 1e-3

_LOG_GAINS = tuple(map(math.log, GAINS))
_EVEN = (0.0,) * len(GAINS)
_EITHER_WAY, _SHOWN, _ROOT_2 = FLUKE / 2.0, (1.0 - FLUKE) * 0.5, math.sqrt(2.0)


@dataclass(frozen=True)
class Posterior:
    """The probability of each limit on a grid. The steps of the grid are equal in the logarithm.

    Attributes:
        start, step: the lower edge of the first cell of the grid, and the width of each cell [ln].
        weights: probability that the limit is in a cell of the grid, for each cell [ratio]. The sum
            of all probabilities is 1.
    """

    start: float
    step: float
    weights: tuple[float, ...]

    def below(self, load: float) -> float:
        """The probability that the limit is below a load [ratio]."""
        cells = (math.log(load) - self.start) / self.step if load > 0.0 else 0.0
        whole = max(0, min(len(self.weights), math.floor(cells)))
        part = self.weights[whole] * (cells - whole) if 0 <= cells < len(self.weights) else 0.0
        return min(1.0, sum(self.weights[:whole]) + part)

    def inside(self, bracket: Bracket) -> float:
        """The probability that the limit is inside the bracket [ratio]."""
        if bracket.overloaded is None:
            return 0.0
        return self.below(bracket.overloaded) - self.below(bracket.sustained)

    def quantile(self, share: float) -> float:
        """A quantile of the limit: the limit is below this load with the probability `share`."""
        total = 0.0
        for number, weight in enumerate(self.weights):
            if weight > 0.0 and total + weight >= share:
                return math.exp(self.start + self.step * (number + (share - total) / weight))
            total += weight
        return math.exp(self.start + self.step * len(self.weights))

    def interval(self, level: float = LEVEL) -> Interval:
        """The median and the interval. The probability below the interval equals the probability
        above it.
        """
        tail = (1.0 - level) / 2.0
        return Interval(self.quantile(tail), self.quantile(1.0 - tail), self.quantile(0.5))


@dataclass(frozen=True)
class Odds:
    """The odds of each pair of a noise (`NOISES`) and a gain (`GAINS`), up to a common factor.

    Attributes:
        logs: ln of the odds. There is a row for each of `NOISES`, and a column for each of `GAINS`.
    """

    logs: tuple[tuple[float, ...], ...]

    def after(self, points: Iterable[Odds]) -> Odds:
        """The odds after one or more finished points. `points` contains results of `evidence`."""
        noises = zip(*(point.logs for point in points), strict=True)
        total = [[sum(logs) for logs in zip(*rows, strict=True)] for rows in noises]
        best = max(map(max, total))
        blurred = [_blurred([math.exp(max(x - best, -700.0)) for x in row]) for row in total]
        return Odds(
            tuple(
                tuple(log + math.log(max(share, 1e-300)) for log, share in zip(*rows, strict=True))
                for rows in zip(self.logs, blurred, strict=True)
            )
        )


def initial_odds(curve: Curve) -> Odds:
    """The odds before any trial: ln noise and ln gain have normal distributions."""
    spread = curve.gain_spread / curve.gain
    by_gain = [_bell(math.log(gain / curve.gain) / spread) for gain in GAINS]
    by_noise = [_bell(math.log(noise / NOISE_MEDIAN) / NOISE_SPREAD) for noise in NOISES]
    return Odds(tuple(tuple(one + other for other in by_gain) for one in by_noise))


def evidence(history: Iterable[Observation], signals: Signals, curve: Curve) -> Odds:
    """The probability of the trials at one message size, for each pair of a noise (`NOISES`) and a
    gain (`GAINS`).
    """
    trials = evidence_of(history, signals, curve)
    read, bounds = _split(trials)
    rows = []
    for noise in NOISES:
        row = []
        for gain, found in zip(GAINS, _normals(read, noise, _EVEN, curve), strict=True):
            sides = [_side(one, noise, gain) for one in bounds]
            row.append(_log_sum([_evidence_of(one, sides) for one in found]))
        rows.append(tuple(row))
    return Odds(tuple(rows))


def posterior(
    history: Iterable[Observation],
    bracket: Bracket,
    signals: Signals,
    curves: Mapping[Curve, float],
    odds: Odds,
    prior: Prior | None = None,
) -> Posterior | None:
    """The posterior of the limit; None if neither utilizations nor a bracket determine the limit.

    Args:
        history: the trials of the point.
        bracket: the highest sustained and the lowest overloaded load of the trials. The grid of
            limits is placed around these two loads.
        signals: the indicators that show the distance to the limit.
        curves: possible curve → its probability. The curves differ in the utilization at the limit.
            The gain of a curve is used only for the error of the idle fraction, because the gain of
            the equations comes from `GAINS`.
        odds: odds of each pair of a noise and a gain, computed without the trials in `history`.
        prior: the prediction from neighboring sizes; None if there is no prediction.
    """
    layers, is_read, history = [], False, list(history)
    for curve, share in curves.items():
        trials = evidence_of(history, signals, curve)
        is_read = is_read or any(one.met is not None for one in trials)
        for noise, row in zip(NOISES, odds.logs, strict=True):
            layers.append(_layer(trials, noise, [one + math.log(share) for one in row], curve))
    if not is_read and (bracket.overloaded is None or bracket.sustained < 1):
        return None
    best = max(layer.best for layer in layers)
    drawn = [(layer, layer.curves(best)) for layer in layers]
    drawn = [(layer, normals) for layer, normals in drawn if normals]
    low, high = _range(
        [one for _, some in drawn for one in some] if is_read else [], bracket, prior
    )
    while True:
        found = _on_grid(low, high, drawn, prior)
        inner = None if found is None else _core(found)
        if inner is None or inner[1] - inner[0] > 0.5 * (high - low):
            return found
        low, high = inner


# --- The evidence of trials -------------------------------------------------------

Side = tuple[float, float]
"""A verdict as (slope, offset); its probability is Φ(slope · ln limit + offset)."""


def _split(trials: Sequence[TrialEvidence]) -> tuple[list[TrialEvidence], list[TrialEvidence]]:
    """The trials that have a reading, and the trials that have only a verdict."""
    read = [one for one in trials if one.met is not None]
    return read, [one for one in trials if one.met is None]


def _side(trial: TrialEvidence, noise: float, gain: float) -> Side:
    """The evidence of a verdict: whether the limit during the trial is above or below the load.

    The limit during a trial differs from the true limit by a random factor with the standard
    deviation `noise`. If the trial has an equation, the equation shows the limit during the trial.
    The error of the equation has the standard deviation `trial.error`.
    """
    sign, total = (1.0 if trial.is_sustained else -1.0), math.hypot(noise, trial.error)
    if trial.met is None:
        return sign / total, -sign * (trial.load - gain * trial.slope) / total
    met, share = trial.met - gain * trial.slope, (trial.error / total) ** 2
    spread = max(noise * trial.error / total, 1e-4)
    return sign * share / spread, sign * (met * (1.0 - share) - trial.load) / spread


_Normal = tuple[float, float, float]
"""A normal distribution of ln limit: (ln of the probability of the evidence, mean, variance).

The type is a tuple, because a search creates thousands of distributions, and an object of a class
would take twice the time of a tuple."""


def _joined(one: _Normal, other: _Normal) -> _Normal:
    """The product of two distributions."""
    (odds, mean, variance), (more, elsewhere, others) = one, other
    total, away = variance + others, mean - elsewhere
    odds = odds + more + _bell(away / math.sqrt(total)) - 0.5 * math.log(total)
    share = variance / total
    return odds, mean - share * away, share * others


def _log_share(normal: _Normal, side: Side) -> float:
    """The logarithm of a verdict's probability, averaged over the distribution of the limit."""
    _, mean, variance = normal
    slope, offset = side
    away = (slope * mean + offset) / math.sqrt(1.0 + slope * slope * variance)
    return math.log(_verdict(away))


def _evidence_of(normal: _Normal, sides: Sequence[Side]) -> float:
    """The logarithm of the probability of all evidence, including verdicts."""
    return normal[0] + sum([_log_share(normal, side) for side in sides])


class _Sums:
    """Sums over the equations of trials, from which the least-squares estimate of the limit is
    computed for each of `GAINS`.

    Args:
        read: the trials that have an equation for the limit, at least one.
        variances: the variance of each equation.
        by_curve: True if the equations use the utilization, so that they share the error of the
            curve's utilization at the limit.
    """

    def __init__(
        self, read: Sequence[TrialEvidence], variances: Sequence[float], by_curve: bool
    ) -> None:
        self.by_curve = by_curve
        self._weight = self._met = self._slope = 0.0
        self._mets = self._both = self._slopes = self._logs = 0.0
        for one, variance in zip(read, variances, strict=True):
            weight, met, slope = 1.0 / variance, one.met or 0.0, one.slope
            self._weight += weight
            self._met += weight * met
            self._slope += weight * slope
            self._mets += weight * met * met
            self._both += weight * met * slope
            self._slopes += weight * slope * slope
            self._logs += math.log(variance)
        self._logs += math.log(self._weight)

    def over_gains(self, end: float, row: Sequence[float]) -> list[_Normal]:
        """The distribution of the limit for each of `GAINS`.

        This is the innermost loop of the search, so it avoids function calls.

        Args:
            end: error of the utilization at the limit. All equations share this error.
            row: ln of the odds of each gain.
        """
        weight, met, slope, logs = self._weight, self._met, self._slope, self._logs
        mets, twice_both, slopes = self._mets, 2.0 * self._both, self._slopes
        own_variance = 1.0 / weight
        found = []
        for gain, odds in zip(GAINS, row, strict=True):
            mean = (met - gain * slope) / weight
            misfit = mets - gain * (twice_both - gain * slopes) - weight * mean * mean
            variance = own_variance + (gain * end) ** 2
            found.append((odds - 0.5 * (misfit + logs), mean, variance))
        return found


class _Readings:
    """The equations of all trials at one message size, under the assumption of one value of the
    noise (the scatter of the limit from trial to trial).

    `stray` is the position of the trial whose reading is assumed to be an outlier; None if no
    reading is assumed to be an outlier.
    """

    def __init__(self, read: Sequence[TrialEvidence], noise: float, stray: int | None) -> None:
        variances = [noise**2 + one.error**2 for one in read]
        if stray is not None:
            variances[stray] += STRAY_SPREAD**2
        self._odds = len(read) * math.log(1.0 - STRAY)
        self._odds += 0.0 if stray is None else math.log(STRAY / (1.0 - STRAY))
        # The scatter is in the utilization, not the load. One reading alone does not show the gain.
        self._freedom = max(0, sum(one.by_curve for one in read) - 1)
        self._groups = []
        for by_curve in (True, False):
            some = [number for number, one in enumerate(read) if one.by_curve is by_curve]
            if some:
                own = [variances[number] for number in some]
                self._groups.append(_Sums([read[number] for number in some], own, by_curve))

    def over_gains(self, curve: Curve, row: Sequence[float]) -> list[_Normal]:
        """The distribution of the limit from all equations, for each of `GAINS`. `row` contains ln
        of the prior odds of each of `GAINS`.
        """
        odds = [
            one + (self._odds + self._freedom * log)
            for one, log in zip(row, _LOG_GAINS, strict=True)
        ]
        if not self._groups:
            return [(each, 0.0, 1e6) for each in odds]
        end = max(curve.at_limit_spread, _END_ERROR * (curve.at_limit < 1.0))
        first, *others = self._groups
        found = first.over_gains(end if first.by_curve else 0.0, odds)
        for one in others:
            more = one.over_gains(0.0, _EVEN)
            found = [_joined(mine, other) for mine, other in zip(found, more, strict=True)]
        return found


def _normals(
    read: Sequence[TrialEvidence], noise: float, row: Sequence[float], curve: Curve
) -> Iterator[tuple[_Normal, ...]]:
    """For each of `GAINS`, several distributions of the limit. One distribution assumes no outlier.
    For each reading, a further distribution assumes that this reading is an outlier.
    """
    strays = range(len(read)) if len(read) > 1 else ()
    groups = [_Readings(read, noise, stray) for stray in (None, *strays)]
    return zip(*(one.over_gains(curve, row) for one in groups), strict=True)


# --- The grid ---------------------------------------------------------------------

Curves = list[tuple[float, float, float]]
"""Normal curves as (height, mean, standard deviation)."""


@dataclass(frozen=True)
class _Layer:
    """The evidence under the assumption of one curve and one noise (scatter of the limit from trial
    to trial). The evidence has two parts: the verdicts, and the distributions of the limit that
    follow from the equations of the trials.
    """

    normals: list[_Normal]
    sides: list[Side]

    @property
    def best(self) -> float:
        """The logarithm of a probability: how probable the evidence, including the verdicts, is for
        the most probable distribution.
        """
        return _evidence_of(max(self.normals), self.sides)

    def curves(self, best: float) -> Curves:
        """The normal distributions of the limit, without distributions of negligible probability.
        The logarithm of each probability is compared with `best`, the highest such logarithm in all
        layers.
        """
        room = best + math.log(_NEGLIGIBLE) - self.best + max(self.normals)[0]
        kept = ((odds, mean, math.sqrt(var)) for odds, mean, var in self.normals if odds >= room)
        return [(math.exp(odds - best) / spread, mean, spread) for odds, mean, spread in kept]


def _layer(
    trials: Sequence[TrialEvidence], noise: float, row: Sequence[float], curve: Curve
) -> _Layer:
    read, _ = _split(trials)
    normals: list[_Normal] = []
    likeliest = (-math.inf, GAINS[0])
    for gain, found in zip(GAINS, _normals(read, noise, row, curve), strict=True):
        normals += found
        likeliest = max(likeliest, (found[0][0], gain))
    return _Layer(normals, [_side(one, noise, likeliest[1]) for one in trials])


def _on_grid(
    low: float, high: float, layers: Sequence[tuple[_Layer, Curves]], prior: Prior | None
) -> Posterior | None:
    """The posterior from `low` to `high` [ln]; None if the probability is 0 everywhere."""
    step = (high - low) / _CELLS
    cells = [low + step * (number + 0.5) for number in range(_CELLS)]
    weights = [0.0] * _CELLS
    for layer, curves in layers:
        _add(weights, cells, curves, layer.sides)
    if prior is not None:
        weights = [w * _student(x, prior) for w, x in zip(weights, cells, strict=True)]
    total = sum(weights)
    return None if total <= 0.0 else Posterior(low, step, tuple(w / total for w in weights))


def _add(weights: list[float], cells: Sequence[float], curves: Curves, sides: list[Side]) -> None:
    """Add one layer's probability of each ln limit to `weights`."""
    exp, step = math.exp, cells[1] - cells[0]
    found = [0.0] * len(cells)
    for height, mean, exact in curves:
        # A curve narrower than a cell could be lost between two cells, so it is widened.
        spread = max(exact, 0.5 * step)
        first = max(0, math.ceil((mean - 5.0 * spread - cells[0]) / step))
        stop = max(first, math.floor((mean + 5.0 * spread - cells[0]) / step) + 1)
        scale = height * exact / spread
        found[first:stop] = [
            one + scale * exp(-0.5 * (away := (x - mean) / spread) * away)
            for one, x in zip(found[first:stop], cells[first:stop], strict=True)
        ]
    for number, x in enumerate(cells):
        if found[number] > 0.0:
            beside = found[number]
            for slope, offset in sides:
                beside *= _verdict(slope * x + offset)
            weights[number] += beside


def _range(curves: Curves, bracket: Bracket, prior: Prior | None) -> tuple[float, float]:
    """The range of the grid [ln]."""
    edges = [mean + side * spread for _, mean, spread in curves for side in (-5.0, 5.0)]
    around = None if prior is None else prior.load
    for load in (bracket.sustained, bracket.overloaded, around):
        edges += [math.log(load) + side * _REACH for side in (-1.0, 1.0)] if load else []
    return min(edges), max(edges)


def _core(found: Posterior) -> tuple[float, float]:
    """The range [ln] of the grid that contains nearly all of the probability. The range is extended
    by one cell of the grid at each end.
    """
    least = max(found.weights) * 1e-4
    inside = [number for number, weight in enumerate(found.weights) if weight >= least]
    return found.start + found.step * (inside[0] - 1), found.start + found.step * (inside[-1] + 2)


def _verdict(away: float) -> float:
    """The probability of a verdict, including the probability that the verdict is wrong by chance.

    `away` is the distance [standard deviations] of the limit from the load. The distance is
    positive if the verdict is right.
    """
    return _EITHER_WAY + _SHOWN * math.erfc(-away / _ROOT_2)


def _student(x: float, prior: Prior) -> float:
    away = (x - math.log(prior.load)) / prior.spread
    return math.exp(-0.5 * (_PRIOR_FREEDOM + 1.0) * math.log1p(away * away / _PRIOR_FREEDOM))


def _blurred(shares: Sequence[float]) -> list[float]:
    padded = [shares[0], *shares, shares[-1]]
    triples = zip(padded, shares, padded[2:], strict=False)
    return [_BLUR * (left + right) + (1.0 - 2.0 * _BLUR) * own for left, own, right in triples]


def _bell(away: float) -> float:
    return -0.5 * away * away


def _log_sum(logs: Sequence[float]) -> float:
    best = max(logs)
    return best + math.log(sum(math.exp(one - best) for one in logs))
