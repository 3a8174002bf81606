"""The measurement of runs of older versions, and the kind of its figure, which they did not record.

Newer runs have the measurement in the table `runs` and in summary.json; sweep.json has the kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metrics.comparing import figures
from metrics.comparing.figures import FigureKind

LIMIT, LOAD = "limit", "load"


def inferred_measurement(
    has_points: bool, trials: Sequence[Mapping[str, Any]] = (), status: str = ""
) -> str:
    """The measurement of a run or of a sweep, inferred from its results.

    Args:
        has_points: whether it has boundary points.
        trials: its trials, as rows of the table `trials` or as summary.json has them; empty after a
            search.
        status: how it ended, as in the table `runs`; a search that is done has points.
    """
    if has_points:
        return LIMIT
    if any(row.get("leaders_back_s") is not None for row in trials):
        return "failover"
    volumes = {row.get("volume_bytes") for row in trials} - {None}
    if volumes:
        return "drain" if 0 in volumes else "fill"
    return LOAD if trials or status == "done" else LIMIT


def figure_kind_of(measurement: str) -> FigureKind:
    """The kind of figure of a measurement in a sweep.json that does not state it."""
    return {LIMIT: figures.LIMIT, LOAD: figures.ACKNOWLEDGED}.get(measurement, figures.TIME)
