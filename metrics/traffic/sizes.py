"""The sizes of messages: one size, or a distribution around a mean."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

MESSAGE_BYTES_MAX = 10_000_000
"""Size of the largest message that is allowed [B]."""

QUANTILE_MAX = 0.9999
"""Quantile above which distributions are cut, so that plans have a largest message."""

_NORMAL = NormalDist()
_GRID = 1_024
_ROUNDS = 4


@dataclass(frozen=True)
class Sizes:
    """The distribution of message sizes; its methods take the mean as an argument.

    Attributes:
        kind: "fixed"; "uniform"; "lognormal"; "histogram"; or "messages" for the sizes of the
            messages of a file, with their own mean.
        spread: for "uniform", half the width over the mean, above 0 up to 1; for "lognormal",
            the standard deviation of the sizes' natural logarithm.
        histogram: for "histogram", pairs of size [B] and weight; scaled to the mean.
    """

    kind: str = "fixed"
    spread: float = 0.5
    histogram: tuple[tuple[int, float], ...] = ()

    @property
    def vary(self) -> bool:
        """True when not all messages have the same size."""
        return self.kind != "fixed"

    def quantile(self, mean_bytes: int, share: float) -> int:
        """The size that `share` of all messages do not exceed [B].

        Args:
            mean_bytes: mean of the distribution after cutting and rounding, approximately [B].
            share: share of the messages, from 0 to 1 [ratio].
        """
        if self.kind in ("fixed", "messages"):
            return mean_bytes
        return _rounded(self._scaled(mean_bytes) * self._relative(share))

    def largest(self, mean_bytes: int) -> int:
        """Size of the largest message [B]; not valid for "messages", whose file decides."""
        return self.quantile(mean_bytes, 1.0)

    def _relative(self, share: float) -> float:
        """A quantile of the unscaled distribution."""
        share = min(max(share, 1 - QUANTILE_MAX), QUANTILE_MAX)
        if self.kind == "uniform":
            return 1 + self.spread * (2 * share - 1)
        if self.kind == "lognormal":
            return math.exp(self.spread * _NORMAL.inv_cdf(share))
        return _histogram_quantile(self.histogram)(share)

    def _scaled(self, mean_bytes: int) -> float:
        return _scale(self, mean_bytes)


def _rounded(size: float) -> int:
    return min(max(1, round(size)), MESSAGE_BYTES_MAX)


@functools.lru_cache(maxsize=64)
def _scale(sizes: Sizes, mean_bytes: int) -> float:
    """The factor by which the rounded relative sizes have the mean."""
    relative = [sizes._relative((i + 0.5) / _GRID) for i in range(_GRID)]
    scale = mean_bytes * _GRID / sum(relative)
    for _ in range(_ROUNDS):
        mean = sum(_rounded(scale * each) for each in relative) / _GRID
        scale *= mean_bytes / mean
    return scale


@functools.lru_cache(maxsize=16)
def _histogram_quantile(histogram: tuple[tuple[int, float], ...]) -> Callable[[float], float]:
    ordered = sorted(histogram)
    bounds = list(accumulate(weight for _, weight in ordered))

    def quantile(share: float) -> float:
        return float(ordered[min(bisect_left(bounds, share * bounds[-1]), len(ordered) - 1)][0])

    return quantile
