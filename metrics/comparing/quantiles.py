"""Student's t and chi-squared, as far as effects need them; the special functions are mpmath's."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import mpmath

_STEPS = 100
"""More than any freedom from 0.5 on needs."""
_CLOSE = 1e-9
"""A step as small as this is the last: what it leaves is its square."""


def student_tail(x: float, freedom: float) -> float:
    """How likely a value of Student's t is above `x`, from 0 on.

    P(T > x) is half of the regularized incomplete beta function at freedom / (freedom + x²)
    (Abramowitz and Stegun, 26.7.1).

    Args:
        freedom: degrees of freedom, above 0; need not be whole. Infinite is the normal
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
    """The value that Student's t is below with this probability, from 0.5 to below 1.

    By Newton's method from the normal quantile, which is below it: from 0 on the tail falls ever
    slower, so that no step goes too far.
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
    """How likely a value of chi-squared is above `x` (Abramowitz and Stegun, 26.4.19)."""
    return float(mpmath.gammainc(freedom / 2, x / 2, mpmath.inf, regularized=True))
