"""How probable each limit is, from all trials of a point: its interval, and the confidence.

One trial meets the limit times a scatter of its own, the noise, which nobody knows. Its
reading is an equation for what it met (as in `search.estimate`), its verdict says on which
side of the load that lies, and a saturated overload only that it is lower than the load by
what the curve needs to saturate. A reading may also be a stray and a verdict a fluke, each
with a small chance. For each noise and each gain of a grid the readings are solved by least
squares, as they are and with every single one as a stray; verdicts and neighbours are then
laid over a grid of limits. The sum over all noises and gains, each as probable as the scatter
of these trials and of those at finished sizes makes it, is the posterior of the limit.

A limit is a real number here, also where loads are whole: the load from which on a trial
without noise would be overloaded. 11 producers sustained and 12 not is a limit from 11 to 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.estimate import READABLE_MIN, Curve, Prior, readable_max
from search.interval import LEVEL, Interval
from search.model import Bracket, Observation, Verdict
from search.signals import SATURATED, Signals

NOISES = tuple(0.005 * 1.6**step for step in range(8))
"""The grid of the noise: scatter of the limit from trial to trial, 0.5 to 13.4 % [σ, ratio]."""
GAINS = tuple(0.2 * 1.2**step for step in range(14))
"""The grid of the curve's gain, 0.2 to 2.2; see `search.estimate.Curve`."""
NOISE_USUAL, NOISE_SPREAD = 0.025, 1.2
"""The noise before any trial: its median [ratio], and the σ of its logarithm."""
STRAY, STRAY_SPREAD = 0.04, 0.25
"""Share of readings that tell of something else than limit and noise, and by how much [σ]."""
FLUKE = 0.04
"""Share of verdicts that have nothing to do with the load."""

# Errors of what one trial reads, its noise not counted: of the idle fraction (absolute); of
# the curve, per unit of ln u and of its square; of the curve past the threshold, where
# requests grow; of what was delivered, per unit of what was not.
_IDLE_ERROR = 0.005
_CURVE_ERROR = 0.02
_CURVATURE = 0.12
_GROWTH_ERROR = 0.1
_DELIVERED_ERROR = 0.3
_SHORT_ERROR = 0.01
# Of the utilization at a limit where something else binds; all overloads lie beyond it alike, so
# that no number of them tells it better.
_END_ERROR = 0.05
# Neighbours can mislead, so their curve has the tails of Student's t.
_PRIOR_FREEDOM = 3.0
# Sizes share the gain roughly: this share of each probability goes to the gains beside it.
_BLUR = 0.15
_CELLS = 48
_REACH = 0.5
_NEGLIGIBLE = 1e-3
_ERFC = np.frompyfunc(math.erfc, 1, 1)  # SciPy's takes longer to import than it would save

Floats = npt.NDArray[np.float64]
_NOISES = np.array(NOISES)[:, None, None]
_GAINS = np.array(GAINS)
_SHAPE = (len(NOISES), len(GAINS))


@dataclass(frozen=True)
class Posterior:
    """The probability of each limit on a grid that is even in its logarithm.

    Attributes:
        start, step: the lower edge of the first cell, and the width of each [ln].
        weights: of the cells; they sum to 1.
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
        """The probability that the limit is in [sustained, overloaded) [ratio]."""
        if bracket.overloaded is None:
            return 0.0
        return self.below(bracket.overloaded) - self.below(bracket.sustained)

    def quantile(self, share: float) -> float:
        """The load that the limit is below with this probability [ratio]."""
        total = 0.0
        for number, weight in enumerate(self.weights):
            if weight > 0.0 and total + weight >= share:
                return math.exp(self.start + self.step * (number + (share - total) / weight))
            total += weight
        return math.exp(self.start + self.step * len(self.weights))

    def interval(self, level: float = LEVEL) -> Interval:
        """The interval with as much probability below it as above it."""
        tail = (1.0 - level) / 2.0
        return Interval(self.quantile(tail), self.quantile(1.0 - tail))


@dataclass(frozen=True)
class Odds:
    """How probable each noise and gain is, up to a common factor.

    Attributes:
        logs: ln of it; a row for each of `NOISES`, in it a column for each of `GAINS`.
    """

    logs: tuple[tuple[float, ...], ...]

    def after(self, points: Iterable[Odds]) -> Odds:
        """With what the trials of finished points say, one point at least, each by `evidence`."""
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


def usual_odds(curve: Curve) -> Odds:
    """The odds before any trial; noise and gain scatter in their logarithms."""
    spread = curve.gain_spread / curve.gain
    by_gain = [_bell(math.log(gain / curve.gain) / spread) for gain in GAINS]
    by_noise = [_bell(math.log(noise / NOISE_USUAL) / NOISE_SPREAD) for noise in NOISES]
    return Odds(tuple(tuple(one + other for other in by_gain) for one in by_noise))


def evidence(history: Iterable[Observation], signals: Signals, curve: Curve) -> Odds:
    """How probable the trials of one point are under each noise and gain."""
    trials = _trials(history, signals, curve)
    found = _solved([one for one in trials if one.met is not None], curve, np.zeros(_SHAPE))
    bounds = [one for one in trials if one.met is None]
    slopes, offsets = _sides(bounds, _NOISES, _GAINS)  # (noises, 1, gains, bounds)
    shares = found.log_shares(np.moveaxis(slopes, -1, 0), np.moveaxis(offsets, -1, 0)).sum(axis=0)
    logs = np.logaddexp.reduce(found.odds + shares, axis=1)
    return Odds(tuple(map(tuple, logs.tolist())))


def posterior(
    history: Iterable[Observation],
    bracket: Bracket,
    signals: Signals,
    curves: Mapping[Curve, float],
    odds: Odds,
    prior: Prior | None = None,
) -> Posterior | None:
    """The posterior of the limit, or None where no trial says anything of it from both sides.

    Args:
        history: the trials of the point.
        bracket: what they support; the grid is laid around it.
        signals: how indicators are read.
        curves: how probable each utilization at the limit is that comes into question; the
            gains in them only scale an error.
        odds: of noise and gain without these trials.
        prior: what neighbours say of the limit, or None.
    """
    layers, is_read, history = [], False, list(history)
    for curve, share in curves.items():
        trials = _trials(history, signals, curve)
        is_read = is_read or any(one.met is not None for one in trials)
        layers.append(_layer(trials, curve, np.array(odds.logs) + math.log(share)))
    if not is_read and (bracket.overloaded is None or bracket.sustained < 1):
        return None
    best = max(float(layer.bests.max()) for layer in layers)
    drawn = [layer.drawn(best) for layer in layers]
    low, high = _range(drawn if is_read else [], bracket, prior)
    while True:
        found = _on_grid(low, high, drawn, prior)
        if found is None or len(core := _core(found)) > _CELLS // 2:
            return found
        low, high = (found.start + found.step * cell for cell in (core.start, core.stop))


# --- What trials say --------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    """What one trial says, in logarithms.

    Attributes:
        load: ln of the load.
        held: whether it was sustained.
        met: ln of the limit that it met, up to `slope` · gain; None where it says only on
            which side of the load, lowered by `slope` · gain, that was.
        slope: ln of the utilization over that at the limit.
        error: of all this, the noise not counted.
        by_curve: whether the utilization was needed.
    """

    load: float
    held: bool
    met: float | None = None
    slope: float = 0.0
    error: float = 0.0
    by_curve: bool = False


def _trials(history: Iterable[Observation], signals: Signals, curve: Curve) -> list[_Trial]:
    valid = (seen for seen in history if seen.verdict is not Verdict.INVALID)
    return [_trial(seen, signals, curve) for seen in valid]


def _trial(seen: Observation, signals: Signals, curve: Curve) -> _Trial:
    load, held = math.log(seen.load), seen.verdict is Verdict.SUSTAINED
    used, share = signals.utilization(seen), signals.delivered(seen)
    if share is not None and (used is None or curve.at_limit < 1.0):
        short = math.log(min(1.0, share / signals.achieved_min))
        return _Trial(load, held, load + short, error=_SHORT_ERROR - _DELIVERED_ERROR * short)
    if curve.at_limit >= 1.0 and signals.at_most(seen) is not None:
        return _Trial(load, held, None, math.log(SATURATED), _GROWTH_ERROR * (SATURATED - 1.0))
    if used is None or not READABLE_MIN <= used < readable_max(curve):
        return _Trial(load, held)
    slope = math.log(used / curve.at_limit)
    error = math.hypot(
        curve.gain * _IDLE_ERROR / used,
        _CURVE_ERROR * slope,
        _CURVATURE * slope**2,
        _GROWTH_ERROR * max(0.0, used - 1.0),
    )
    return _Trial(load, held, load, slope, error, by_curve=True)


def _sides(trials: Sequence[_Trial], noises: Floats, gains: Floats) -> tuple[Floats, Floats]:
    """What verdicts add: the probability of each is the normal one of slope · ln limit + offset.

    What a trial met lies between the limit, from which it is `noise` away, and its own
    reading, from which it is `error` away; the verdict says on which side of the load.

    Args:
        noises, gains: shapes that fit each other.

    Returns:
        Slopes and offsets; that shape with one axis more, the trials.
    """
    rows = [(one.load, one.held, one.met is not None, one.slope, one.error) for one in trials]
    load, held, is_read, slope, error = np.array(rows, dtype=float).reshape(-1, 5).T
    noise, gain = np.broadcast_arrays(noises, gains)
    noise, gain, sign = noise[..., None], gain[..., None], 2.0 * held - 1.0
    met = np.array([one.load if one.met is None else one.met for one in trials]) - gain * slope
    total = np.hypot(noise, error)
    share = np.where(is_read, (error / total) ** 2, 1.0)
    spread = np.where(is_read, np.maximum(noise * error / total, 1e-4), total)
    beyond = np.where(is_read, met * (1.0 - share) - load, -met)
    return sign * share / spread, sign * beyond / spread


class _Normals(NamedTuple):
    """Normal curves of ln limit, and ln of the probability of what led to each.

    Attributes:
        odds, mean, variance: shape (noises, strays, gains): of each of `NOISES`, of the readings
            as they are and with every single one as a stray, of each of `GAINS`.
    """

    odds: Floats
    mean: Floats
    variance: Floats

    def joined(self, other: _Normals) -> _Normals:
        """What both say together."""
        total, away = self.variance + other.variance, self.mean - other.mean
        odds = self.odds + other.odds - 0.5 * (away * away / total + np.log(total))
        share = self.variance / total
        return _Normals(odds, self.mean - share * away, share * other.variance)

    def log_shares(self, slopes: Floats, offsets: Floats) -> Floats:
        """The probability of verdicts, the limit being anywhere on each curve [ln].

        Args:
            slopes, offsets: see `_sides`; shapes that fit (…, noises, strays, gains).
        """
        away = (slopes * self.mean + offsets) / np.sqrt(1.0 + slopes * slopes * self.variance)
        return np.log(_verdicts(away))


def _solved(read: Sequence[_Trial], curve: Curve, odds: Floats) -> _Normals:
    """What all readings of a point say together.

    Args:
        odds: of each noise and gain without them [ln]; shape (noises, gains).
    """
    strays = [len(read) * math.log(1.0 - STRAY)]
    if len(read) > 1:
        strays += [strays[0] + math.log(STRAY / (1.0 - STRAY))] * len(read)
    by_curve = np.array([one.by_curve for one in read], dtype=bool)
    # What scatters is the utilization, not the load; the first one says nothing of the gain.
    freedom = max(0, int(by_curve.sum()) - 1)
    odds = odds[:, None, :] + np.array(strays)[:, None] + freedom * np.log(_GAINS)
    if not read:
        return _Normals(odds, np.zeros_like(odds), np.full_like(odds, 1e6))
    met, slope, error = np.array([(one.met, one.slope, one.error) for one in read], dtype=float).T
    of_strays = STRAY_SPREAD**2 * np.eye(len(strays), len(read), -1)
    variances = _NOISES**2 + error**2 + of_strays  # (noises, strays, readings)
    # Those that rest on the curve share the error of its end.
    end = (_GAINS * max(curve.at_limit_spread, _END_ERROR * (curve.at_limit < 1.0))) ** 2
    groups = [
        _least_squares(met[some], slope[some], variances[..., some], common)
        for some, common in ((by_curve, end), (~by_curve, np.zeros_like(end)))
        if some.any()
    ]
    found = groups[0] if len(groups) == 1 else groups[0].joined(groups[1])
    return found._replace(odds=found.odds + odds)


def _least_squares(met: Floats, slope: Floats, variances: Floats, common: Floats) -> _Normals:
    """The normal curves of some readings at each gain.

    Args:
        met, slope: of each; shape (readings,).
        variances: shape (noises, strays, readings).
        common: variance of an error that all of them share; shape (gains,).
    """
    weights = 1.0 / variances
    weight = weights.sum(axis=-1, keepdims=True)
    away = met[:, None] - slope[:, None] * _GAINS  # (readings, gains)
    mean = weights @ away / weight
    misfit = weights @ (away * away) - weight * mean * mean
    logs = np.log(variances).sum(axis=-1, keepdims=True) + np.log(weight)
    return _Normals(-0.5 * (misfit + logs), mean, 1.0 / weight + common)


# --- The grid ---------------------------------------------------------------------


class _Drawn(NamedTuple):
    """Normal curves that count, and the verdicts under each noise.

    Attributes:
        noises: which noise each curve is of, in order; shape (curves,).
        heights, means, spreads: of the curves; shape (curves,).
        slopes, offsets: of the verdicts, see `_sides`; shape (noises, trials).
    """

    noises: npt.NDArray[np.intp]
    heights: Floats
    means: Floats
    spreads: Floats
    slopes: Floats
    offsets: Floats


class _Layer(NamedTuple):
    """All that is known where the utilization at the limit is a certain one.

    Attributes:
        normals: what readings say.
        slopes, offsets: of the verdicts, see `_sides`; shape (noises, trials).
    """

    normals: _Normals
    slopes: Floats
    offsets: Floats

    @property
    def bests(self) -> Floats:
        """How probable the likeliest is under each noise, its verdicts counted [ln]."""
        noises = np.arange(len(NOISES))
        odds, mean, variance = (each.reshape(len(noises), -1) for each in self.normals)
        # Two readings may be as likely the stray; rounding is not to choose between them.
        likely = odds >= odds.max(axis=1, keepdims=True) - 1e-9
        usual = np.where(likely, mean, -np.inf).argmax(axis=1)
        one = _Normals(*(each[noises, usual][:, None] for each in (odds, mean, variance)))
        found: Floats = one.odds[:, 0] + one.log_shares(self.slopes, self.offsets).sum(axis=1)
        return found

    def drawn(self, best: float) -> _Drawn:
        """The curves that are not negligible beside the best of all layers."""
        odds, mean, variance = self.normals
        room = best + math.log(_NEGLIGIBLE) - self.bests + odds.max(axis=(1, 2))
        kept = odds >= room[:, None, None]
        spread = np.sqrt(variance[kept])
        heights = np.exp(odds[kept] - best) / spread
        return _Drawn(kept.nonzero()[0], heights, mean[kept], spread, self.slopes, self.offsets)


def _layer(trials: Sequence[_Trial], curve: Curve, odds: Floats) -> _Layer:
    normals = _solved([one for one in trials if one.met is not None], curve, odds)
    usual = _GAINS[normals.odds[:, 0].argmax(axis=1)]
    return _Layer(normals, *_sides(trials, np.array(NOISES), usual))


def _on_grid(
    low: float, high: float, drawn: Sequence[_Drawn], prior: Prior | None
) -> Posterior | None:
    """The posterior from `low` to `high` [ln], or None where all of it is nothing."""
    step = (high - low) / _CELLS
    cells: Floats = low + step * (np.arange(_CELLS, dtype=np.float64) + 0.5)
    weights = np.zeros(_CELLS)
    for some in drawn:
        weights += _weights(cells, some)
    if prior is not None:
        weights *= _student(cells, prior)
    total = float(weights.sum())
    if total <= 0.0:
        return None
    return Posterior(low, step, tuple((weights / total).tolist()))


def _weights(cells: Floats, drawn: _Drawn) -> Floats:
    """The probability of each ln limit in one layer; shape (cells,)."""
    noises, firsts = np.unique(drawn.noises, return_index=True)
    if not len(noises):
        return np.zeros_like(cells)
    exact = drawn.spreads[:, None]
    # A curve narrower than a cell is laid over its neighbours, so that none is lost.
    spread = np.maximum(exact, 0.5 * (cells[1] - cells[0]))
    away = (cells - drawn.means[:, None]) / spread
    shares = drawn.heights[:, None] * exact / spread * np.exp(-0.5 * away * away)
    found = np.add.reduceat(np.where(np.abs(away) <= 5.0, shares, 0.0), firsts)
    slopes, offsets = drawn.slopes[noises, :, None], drawn.offsets[noises, :, None]
    weights: Floats = (found * _verdicts(slopes * cells + offsets).prod(axis=1)).sum(axis=0)
    return weights


def _range(drawn: Sequence[_Drawn], bracket: Bracket, prior: Prior | None) -> tuple[float, float]:
    """From where to where the grid has to reach [ln]."""
    edges: list[float] = []
    for some in drawn:
        edges += (some.means - 5.0 * some.spreads).tolist()
        edges += (some.means + 5.0 * some.spreads).tolist()
    around = None if prior is None else prior.load
    for load in (bracket.sustained, bracket.overloaded, around):
        edges += [math.log(load) + side * _REACH for side in (-1.0, 1.0)] if load else []
    return min(edges), max(edges)


def _core(found: Posterior) -> range:
    """The cells that hold nearly all of it, with one more on either side."""
    least = max(found.weights) * 1e-4
    inside = [number for number, weight in enumerate(found.weights) if weight >= least]
    return range(inside[0] - 1, inside[-1] + 2)


def _verdicts(away: Floats) -> Floats:
    """The probability of verdicts, flukes included, `away` standard deviations on their side."""
    tails = np.asarray(_ERFC(away / -math.sqrt(2.0)), dtype=float)
    return FLUKE / 2.0 + (1.0 - FLUKE) * 0.5 * tails


def _student(x: Floats, prior: Prior) -> Floats:
    away = (x - math.log(prior.load)) / prior.spread
    shares: Floats = np.exp(-0.5 * (_PRIOR_FREEDOM + 1.0) * np.log1p(away * away / _PRIOR_FREEDOM))
    return shares


def _blurred(shares: Sequence[float]) -> list[float]:
    padded = [shares[0], *shares, shares[-1]]
    triples = zip(padded, shares, padded[2:], strict=False)
    return [_BLUR * (left + right) + (1.0 - 2.0 * _BLUR) * own for left, own, right in triples]


def _bell(away: float) -> float:
    return -0.5 * away * away
