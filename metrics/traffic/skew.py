"""The skew of partitions: some get more batches than others, by Zipf's law.

The partition of rank k gets a share in proportion to 1 / k^exponent.
"""

from __future__ import annotations

EXPONENT_MAX = 5.0
_ROUNDS = 50


def zipf_weights(count: int, exponent: float) -> list[float]:
    """The weights of `count` partitions, the heaviest first."""
    return [rank**-exponent for rank in range(1, count + 1)]


def largest_over_mean(count: int, exponent: float) -> float:
    """The share of the heaviest partition over the mean share [ratio]."""
    return count / sum(zipf_weights(count, exponent))


def exponent_of(count: int, largest: float) -> float:
    """The exponent at which the heaviest partition has `largest` times the mean share.

    It is 0 for an even spread, and at most `EXPONENT_MAX`.
    """
    low, high = 0.0, EXPONENT_MAX
    if count < 2 or largest <= 1.0:
        return low
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_over_mean(count, middle) < largest else (low, middle)
    return high
