"""The measurement `limit`: the highest load that a case sustains, found by a search."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jobs.runs.lifecycle import Body
from jobs.runs.limit import LimitRun
from jobs.runs.measurement import Case, Measurement
from metrics.comparing import figures
from metrics.comparing.figures import Result, limit_result
from metrics.reporting.summary import RunSummary
from metrics.traffic.axes import axis_named


class Limit(Measurement):
    """The highest sustained load at each message size, given either as a payload rate or as a value
    on the axis that the goal searches.
    """

    name = "limit"
    figure = figures.LIMIT
    takes = frozenset()

    def unit_on(self, axis: str) -> str:
        """The unit is MB/s, or the axis's own unit if the load does not change the payload."""
        return axis_named(axis).unit

    def body(self, case: Case) -> Body:
        """A search that begins near the limit of the previous case.

        The first load does not change the limit that is found. If the cases have similar limits, a
        good first load saves trials.
        """
        config = case.config
        if case.nearby is not None:  # the first load is about three quarters of `load_start_max`
            start = min(config.goal.search.load_cap, max(2, math.ceil(case.nearby / 0.75)))
            config = config.with_search(load_start_max=start)
        return LimitRun(config, holds=False, climbs=case.nearby is None)

    def results(self, summary: RunSummary) -> Iterator[Result]:
        """The limit at each message size."""
        return map(limit_result, summary.boundaries)


MEASUREMENT = Limit
