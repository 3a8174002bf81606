"""How large messages are: one size, or a distribution around a mean."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

MESSAGE_BYTES_MAX = 10_000_000
"""No message is larger [B]."""

QUANTILE_MAX = 0.9999
"""Distributions are cut above this quantile, so that there is a largest message to plan with."""

_NORMAL = NormalDist()
_GRID = 1_024
_ROUNDS = 4


@dataclass(frozen=True)
class Sizes:
    """The distribution of message sizes; its mean is given where it is used.

    Attributes:
        kind: "fixed"; "uniform"; "lognormal"; "histogram"; or "messages" for those of the
            messages that are sent, whatever their mean.
        spread: of "uniform", half its width over the mean, above 0 up to 1; of "lognormal",
            the standard deviation of the sizes' natural logarithm.
        histogram: of "histogram", pairs of size [B] and weight; scaled to the mean.
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
            mean_bytes: of the distribution as it is cut and rounded, as well as can be.
            share: from 0 to 1.
        """
        if self.kind in ("fixed", "messages"):
            return mean_bytes
        return _rounded(self._scaled(mean_bytes) * self._relative(share))

    def largest(self, mean_bytes: int) -> int:
        """No message is larger [B]; not for "messages", where the file decides."""
        return self.quantile(mean_bytes, 1.0)

    def _relative(self, share: float) -> float:
        """A quantile of the distribution at some mean."""
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
    """What to multiply relative sizes by, so that the rounded ones have the mean."""
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
