"""How fast a consumer group falls behind."""

from __future__ import annotations

import math
from collections.abc import Sequence


def lag_slope(lag_records: Sequence[int], interval_s: float) -> float:
    """Slope of the line through lags taken every `interval_s` [records/s].

    The line has the least squares of distance, as in Theodolite's lag trend metric
    (https://www.theodolite.rocks). NaN of fewer than two points, which have none.
    """
    count = len(lag_records)
    if count < 2:
        return math.nan
    middle, mean = (count - 1) / 2, sum(lag_records) / count
    rise = sum((index - middle) * (lag - mean) for index, lag in enumerate(lag_records))
    return rise / sum((index - middle) ** 2 for index in range(count)) / interval_s
