"""Whether every single producer kept its rate, in a few numbers whatever their count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.trial.histograms import encode_histogram, merged_histogram, new_histogram, record_us

_PARTS = 1_000_000


@dataclass(frozen=True)
class ProducerShares:
    """Achieved shares of producers: acknowledged inside the window over due inside it [ratio].

    Attributes:
        lowest, highest: of the producers.
        worst: index of the producer that is farthest from 1.
        parts: encoded histogram of the shares [millionths], from which quantiles are read.
    """

    lowest: float | None = None
    highest: float | None = None
    worst: int | None = None
    parts: str = ""

    @classmethod
    def of(cls, producers: Iterable[tuple[int, int, int]]) -> ProducerShares:
        """Of (index, acknowledged, due); producers with nothing due are left out."""
        shares = [(acked / due, index) for index, acked, due in producers if due > 0]
        if not shares:
            return cls()
        histogram = new_histogram()
        for share, _ in shares:
            record_us(histogram, share * _PARTS)
        _, worst = max((abs(share - 1.0), index) for share, index in shares)
        lowest, highest = min(shares)[0], max(shares)[0]
        return cls(lowest, highest, worst, encode_histogram(histogram))

    @classmethod
    def merged(cls, parts: Sequence[ProducerShares]) -> ProducerShares:
        """Of the producers of several tasks."""
        known = [each for each in parts if each.lowest is not None and each.highest is not None]
        if not known:
            return cls()
        worst = max(known, key=lambda each: each.farthest)
        return cls(
            min(each.lowest for each in known if each.lowest is not None),
            max(each.highest for each in known if each.highest is not None),
            worst.worst,
            encode_histogram(merged_histogram(each.parts for each in known)),
        )

    @property
    def farthest(self) -> float:
        """How far the worst producer is from its rate [ratio]."""
        edges = [edge for edge in (self.lowest, self.highest) if edge is not None]
        return max((abs(edge - 1.0) for edge in edges), default=0.0)

    def quantile(self, percentile: float) -> float | None:
        """The share that so many percent of the producers do not exceed, to 0.1 %."""
        if not self.parts:
            return None
        histogram = merged_histogram([self.parts])
        return float(histogram.get_value_at_percentile(percentile)) / _PARTS
