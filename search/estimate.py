"""A Gaussian estimate of the limit, computed from readings and from the limits of neighboring
message sizes.

Near the limit, a cluster's utilization is proportional to a power of the load. So a trial at load L
with utilization u (1 at the threshold) gives the equation

    ln L = ln limit + gain · ln(u / at_limit),

which is linear in the two unknowns, ln limit and gain. Each trial adds one equation, with an error
that grows with the distance of the trial from the limit. The prediction from neighboring sizes on
the boundary line is the prior, and least squares give the posterior. The estimate only guides the
search. The limit itself follows from verdicts.
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
        spread: standard deviation of the expected limit [ratio].
        source: the source of the expected limit in words, such as "costs fitted to 3 sizes".
    """

    load: float
    spread: float
    source: str = "neighbors"


@dataclass(frozen=True)
class Curve:
    """The growth of utilization with load on a cluster.

    Attributes:
        gain: 1/p, if utilization is proportional to load^p. Measured on real brokers, `gain` was
            0.36, 0.75 or 1.08.
        gain_spread: standard deviation of `gain`.
        at_limit: highest utilization of the indicators in `Signals.smooth` at the limit [ratio].
            The value is 1 if the limiting resource has an indicator in `Signals.smooth`, and less
            than 1 if it has none.
        at_limit_spread: standard deviation of ln `at_limit`.
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
        spread: standard deviation of ln `load`, including the effect of `scatter`. This is
            approximately the relative standard deviation of `load` [ratio].
        gain, at_limit: the gain of the fitted curve, and its utilization at the limit.
        scatter: scatter of the equations relative to their errors, at least 1 [ratio].
    """

    load: float
    spread: float
    gain: float
    at_limit: float
    scatter: float = 1.0

    def utilization_at(self, load: float) -> float:
        """The expected utilization at a load [ratio]. The value 1 is the threshold."""
        return float(self.at_limit * (load / self.load) ** (1.0 / max(self.gain, 0.05)))


@dataclass(frozen=True)
class LoadEquation:
    """The equation `log_load` = ln limit + `slope` · gain, with the error `spread`."""

    log_load: float
    slope: float
    spread: float


READABLE_MIN = 0.04
"""A reading with a utilization below this value does not depend on the load, for example if brokers
are almost idle [ratio]."""
TRUST = 4.0
"""Weight of the assumed errors against the observed scatter, as a number of observations."""

# Errors of one reading in this model, which assumes a straight line in logarithms: error of the
# curve, per unit of ln u; error of the idle fraction (absolute); error of the delivered share of an
# overload. They are larger than the errors in `search.posterior`, because that model has separate
# terms for curvature, strays and flukes.
_CURVE_ALLOWANCE = 0.08
_IDLE_ALLOWANCE = 0.01
_DELIVERED_ALLOWANCE = 0.10
# Above the threshold, requests grow while they queue, so utilization grows more slowly.
_GROWTH_ALLOWANCE = 0.5
# A reading above this multiple of `at_limit` does not fit a curve that another resource limits.
_READABLE_MAX = 1.12


def readable_max(curve: Curve) -> float:
    """The highest utilization [ratio] that shows the distance to the limit. A reading with a higher
    utilization does not show this distance.
    """
    return SATURATED_UTILIZATION if curve.at_limit >= 1.0 else _READABLE_MAX * curve.at_limit


def readings(
    history: Iterable[Observation], signals: Signals, curve: Curve, noise: float
) -> list[LoadEquation]:
    """The equation for the limit that follows from the utilization in each trial.

    `noise` is the scatter of the limit from trial to trial.
    """
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
    """One equation for the limit from each overloaded trial whose acknowledged share shows the
    limit. The acknowledged share is the share of the load that brokers acknowledged.
    """
    found = []
    for seen in history:
        share = signals.delivered(seen)
        if share is not None:
            log_load = math.log(seen.load * min(1.0, share / signals.achieved_min))
            found.append(LoadEquation(log_load, 0.0, _DELIVERED_ALLOWANCE))
    return found


def solve(equations: Sequence[LoadEquation], prior: Prior | None, curve: Curve) -> Estimate | None:
    """The least-squares estimate of the limit; None if there is no evidence."""
    if not equations and prior is None:
        return None
    # The normal equations of (ln limit, gain). The gain always has a prior.
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
    """The estimate under the condition that the limit is lower than `bound`.

    The result is the mean and the variance of the normal distribution truncated at `bound`. The
    formulas are derived in section 13.10 of the book "Continuous Univariate Distributions 1" by
    Johnson, Kotz and Balakrishnan (1994).
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
    """Birge's ratio of the equations for the limit: the scatter of the equations, divided by the
    scatter that the errors of the equations explain. The ratio is at least 1, and close to 1 for
    few equations.

    If measurements scatter more than their errors, the errors are too small by a factor (Birge,
    Phys. Rev. 40, 207, 1932). This factor is the root of the reduced chi-square.
    """
    residuals = (
        (log_limit + equation.slope * gain - equation.log_load) / equation.spread
        for equation in equations
    )
    chi_square = sum(residual**2 for residual in residuals)
    freedom = max(0, len(equations) - 1)
    return max(1.0, math.sqrt((TRUST + chi_square) / (TRUST + freedom)))
