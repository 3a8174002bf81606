"""Student's t and the chi-squared distribution, with the special functions of mpmath."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import mpmath

_STEPS = 100
"""Maximum number of steps, sufficient for all degrees of freedom from 0.5 on."""
_CLOSE = 1e-9
"""Relative size of the last step; Newton's method leaves an error of its square."""


def student_tail(x: float, freedom: float) -> float:
    """The probability that Student's t is above `x`.

    P(T > x) is half of the regularized incomplete beta function at freedom / (freedom + x²)
    (Abramowitz and Stegun, 26.7.1).

    Args:
        x: the value, 0 or more.
        freedom: degrees of freedom, a real number above 0; infinity stands for the normal
            distribution.
    """
    if math.isinf(x):
        return 0.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(x / math.sqrt(2))
    at = freedom / (freedom + x * x)
    return 0.5 * float(mpmath.betainc(freedom / 2, 0.5, 0, at, regularized=True))


@lru_cache(maxsize=1024)
def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t.

    Newton's method starts at the quantile of the normal distribution, which is lower. From 0 on
    the tail is convex, so that no step overshoots.

    Args:
        probability: from 0.5 to below 1.
        freedom: as in `student_tail`.
    """
    tail, found = 1.0 - probability, NormalDist().inv_cdf(probability)
    for _ in range(_STEPS):
        step = (student_tail(found, freedom) - tail) / _student_density(found, freedom)
        found += step
        if abs(step) <= _CLOSE * max(1.0, found):
            break
    return found


def _student_density(x: float, freedom: float) -> float:
    if math.isinf(freedom):
        return NormalDist().pdf(x)
    logs = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    logs -= (freedom + 1) / 2 * math.log1p(x * x / freedom)
    return math.exp(logs) / math.sqrt(freedom * math.pi)


def chi2_tail(x: float, freedom: float) -> float:
    """The probability that chi-squared is above `x` (Abramowitz and Stegun, 26.4.19)."""
    return float(mpmath.gammainc(freedom / 2, x / 2, mpmath.inf, regularized=True))
