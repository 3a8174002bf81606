"""The probable limit: a small Gaussian estimate from readings and neighbors.

Near its limit a cluster's utilization follows a power of the load, so for a trial at
load L with utilization u (1 at the threshold)

    ln L = ln limit + gain · ln(u / at_limit),

which is linear in the two unknowns, ln limit and gain. Each trial adds one such equation
with an error that grows with its distance from the limit; the prediction from neighbors on the
boundary line enters as a prior. The posterior is the usual least-squares one. It only guides the
search: verdicts decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from search.model import Observation
from search.signals import SATURATED_UTILIZATION, Signals


@dataclass(frozen=True)
class Prior:
    """The expected limit before the first trial.

    Attributes:
        load: the expected limit.
        spread: its standard deviation [ratio].
        source: the source in words, such as "fit of 3 sizes".
    """

    load: float
    spread: float
    source: str = "neighbors"


@dataclass(frozen=True)
class Curve:
    """The growth of utilization with load on this cluster.

    Attributes:
        gain: 1/p of utilization ∝ load^p; `gain_spread` is its standard deviation. Real brokers
            had 0.36, 0.75 and 1.08.
        at_limit: the smooth utilization at the limit: 1 where a smooth indicator is the limit,
            less where something else is; `at_limit_spread` is the standard deviation of its
            logarithm.
    """

    gain: float = 0.75
    gain_spread: float = 0.3
    at_limit: float = 1.0
    at_limit_spread: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """The expected limit with its uncertainty.

    Attributes:
        load: the expected limit.
        spread: standard deviation of its logarithm, approximately a ratio.
        gain, at_limit: the curve that belongs to it.
        scatter: scatter of the equations over their stated errors; `spread` includes it.
    """

    load: float
    spread: float
    gain: float
    at_limit: float
    scatter: float = 1.0

    def utilization_at(self, load: float) -> float:
        """The utilization expected at a load."""
        return float(self.at_limit * (load / self.load) ** (1.0 / max(self.gain, 0.05)))


@dataclass(frozen=True)
class LoadEquation:
    """One equation: `log_load` = ln limit + `slope` · gain, with error `spread`."""

    log_load: float
    slope: float
    spread: float


READABLE_MIN = 0.04
"""Utilization below which it is that of a cluster at rest and does not depend on the load."""
TRUST = 4.0
"""Weight of the assumed errors against the observed scatter [equations]."""

# Allowances of this model, in which every reading is a straight line's: for the curve, per unit
# of ln u; for the idle fraction (absolute); for what an overloaded cluster still delivers. They
# are wider than the errors of one reading in `search.posterior`, which has terms of its own for
# curvature, strays and flukes.
_CURVE_ALLOWANCE = 0.08
_IDLE_ALLOWANCE = 0.01
_DELIVERED_ALLOWANCE = 0.10
# Past the threshold requests grow while they queue, so utilization grows less and less.
_GROWTH_ALLOWANCE = 0.5
# Above this share of `at_limit`, a resource other than the curve's own is past its limit.
_READABLE_MAX = 1.12


def readable_max(curve: Curve) -> float:
    """The utilization above which a reading does not show the distance to the limit."""
    return SATURATED_UTILIZATION if curve.at_limit >= 1.0 else _READABLE_MAX * curve.at_limit


def readings(
    history: Iterable[Observation], signals: Signals, curve: Curve, noise: float
) -> list[LoadEquation]:
    """The equations from smooth utilizations."""
    found = []
    for seen in history:
        used = signals.utilization(seen)
        if used is None or not READABLE_MIN <= used < readable_max(curve):
            continue
        slope = math.log(used / curve.at_limit)
        spread = math.hypot(
            noise,
            curve.gain * _IDLE_ALLOWANCE / used,
            _CURVE_ALLOWANCE * abs(slope),
            curve.gain * curve.at_limit_spread,
            _GROWTH_ALLOWANCE * max(0.0, used - 1.0),
        )
        found.append(LoadEquation(math.log(seen.load), slope, spread))
    return found


def delivered_readings(history: Iterable[Observation], signals: Signals) -> list[LoadEquation]:
    """The equations from the shortfall of overloaded trials."""
    found = []
    for seen in history:
        share = signals.delivered(seen)
        if share is not None:
            log_load = math.log(seen.load * min(1.0, share / signals.achieved_min))
            found.append(LoadEquation(log_load, 0.0, _DELIVERED_ALLOWANCE))
    return found


def solve(equations: Sequence[LoadEquation], prior: Prior | None, curve: Curve) -> Estimate | None:
    """The posterior of the limit, or None without any evidence."""
    if not equations and prior is None:
        return None
    # Normal equations of (ln limit, gain); the gain always has a prior.
    a = b = c = d = e = 0.0
    if prior is not None:
        weight = 1.0 / prior.spread**2
        a, d = weight, weight * math.log(prior.load)
    weight = 1.0 / curve.gain_spread**2
    c, e = weight, weight * curve.gain
    for equation in equations:
        weight = 1.0 / equation.spread**2
        a += weight
        b += weight * equation.slope
        c += weight * equation.slope**2
        d += weight * equation.log_load
        e += weight * equation.slope * equation.log_load
    determinant = a * c - b * b
    log_limit = (d * c - b * e) / determinant
    gain = (a * e - b * d) / determinant
    scatter = _scatter(equations, log_limit, gain)
    spread = scatter * math.sqrt(c / determinant)
    return Estimate(math.exp(min(log_limit, 50.0)), spread, gain, curve.at_limit, scatter)


def below(estimate: Estimate, bound: float) -> Estimate:
    """The estimate, given that the limit is lower than `bound`: a normal curve cut off there.

    Mean and variance are those of the truncated normal distribution (N. L. Johnson, S. Kotz
    and N. Balakrishnan, Continuous Univariate Distributions 1, 1994, section 13.10).
    """
    spread = max(estimate.spread, 1e-6)
    away = (math.log(bound) - math.log(estimate.load)) / spread
    if away > 4.0:
        return estimate
    if away < -6.0:
        return replace(estimate, load=bound, spread=spread / abs(away))
    share = 0.5 * math.erfc(-away / math.sqrt(2.0))
    ratio = math.exp(-0.5 * away * away) / math.sqrt(2.0 * math.pi) / share
    load = estimate.load * math.exp(-spread * ratio)
    variance = max(0.01, 1.0 - away * ratio - ratio * ratio)
    return replace(estimate, load=load, spread=spread * math.sqrt(variance))


def _scatter(equations: Sequence[LoadEquation], log_limit: float, gain: float) -> float:
    """Birge's ratio, kept near 1 while there are few equations, and at least 1.

    R. T. Birge, Phys. Rev. 40, 207 (1932): where measurements scatter more than their
    stated errors, the errors are too small by the root of the reduced chi-square.
    """
    residuals = (
        (log_limit + equation.slope * gain - equation.log_load) / equation.spread
        for equation in equations
    )
    chi_square = sum(residual**2 for residual in residuals)
    freedom = max(0, len(equations) - 1)
    return max(1.0, math.sqrt((TRUST + chi_square) / (TRUST + freedom)))
