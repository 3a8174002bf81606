"""The rates that the single producers kept, in a few numbers for any number of producers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column
from metrics.trial.histogram import Histogram

_PARTS = 1_000_000


@dataclass(frozen=True)
class ProducerShares:
    """Achieved shares of producers: acknowledged inside the window over due inside it [ratio].

    Attributes:
        lowest, highest: the lowest and the highest share of a producer.
        worst: index of the producer whose share is farthest from 1.
        parts: the shares of all producers [millionths].
    """

    lowest: float | None = None
    highest: float | None = None
    worst: int | None = None
    parts: Histogram = field(default_factory=Histogram)

    @classmethod
    def of(cls, producers: Iterable[tuple[int, int, int]]) -> ProducerShares:
        """The shares from (index, acknowledged, due), without producers that had no due records."""
        shares = [(acked / due, index) for index, acked, due in producers if due > 0]
        if not shares:
            return cls()
        _, worst = max((abs(share - 1.0), index) for share, index in shares)
        parts = Histogram(share * _PARTS for share, _ in shares)
        return cls(min(shares)[0], max(shares)[0], worst, parts)

    def plus(self, other: ProducerShares) -> ProducerShares:
        """The shares together with those of another task."""
        if self.lowest is None or other.lowest is None:
            return other if self.lowest is None else self
        assert self.highest is not None and other.highest is not None, "known with the lowest"
        return ProducerShares(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            max(self, other, key=lambda each: each.farthest).worst,
            self.parts.plus(other.parts),
        )

    @property
    def farthest(self) -> float:
        """Distance of the worst producer from its rate [ratio]."""
        edges = [edge for edge in (self.lowest, self.highest) if edge is not None]
        return max((abs(edge - 1.0) for edge in edges), default=0.0)

    @property
    def median(self) -> float | None:
        """The share that half of the producers do not exceed, accurate to 0.1 %."""
        median = self.parts.quantile(50.0)
        return None if math.isnan(median) else median / _PARTS


@dataclass(frozen=True)
class ProducerSpan:
    """The range of the rates that the single producers kept.

    Attributes:
        min: the lowest share of a producer: acknowledged inside the window over due inside it
            [ratio].
        p50: the share that half of the producers do not exceed [ratio].
        max: the highest share of a producer [ratio].
        worst: index of the producer whose share is farthest from 1.
    """

    min: float | None = None
    p50: float | None = None
    max: float | None = None
    worst: Annotated[int | None, Column("producer_worst")] = None

    @classmethod
    def of(cls, shares: ProducerShares) -> ProducerSpan:
        """The range of the shares of all producers of a trial."""
        return cls(shares.lowest, shares.median, shares.highest, shares.worst)
