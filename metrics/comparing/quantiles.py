"""Student's t and chi-squared, as far as effects need them; the special functions are mpmath's."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import mpmath

_HALVINGS = 200
"""More than a float has bits: the loop ends where halving an interval changes nothing."""


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
    """The value that Student's t is below with this probability, from 0.5 to below 1."""
    tail = 1.0 - probability
    low, high = 0.0, max(1.0, NormalDist().inv_cdf(probability))
    while student_tail(high, freedom) > tail:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


def chi2_tail(x: float, freedom: float) -> float:
    """How likely a value of chi-squared is above `x` (Abramowitz and Stegun, 26.4.19)."""
    return float(mpmath.gammainc(freedom / 2, x / 2, mpmath.inf, regularized=True))
