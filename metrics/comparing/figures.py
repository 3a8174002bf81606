"""How the figure of a measurement is named, shown and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FigureKind:
    """The kind of a figure, without its unit.

    Attributes:
        word: its name, such as `limit`.
        less_is_better: True if a smaller figure is better, as for a time.
        heading: the word before the unit in the heading of its column; empty for none.
        interval_heading: the heading of its interval.
        columns: heading of each further column → the reading of a result that it shows.
    """

    word: str
    less_is_better: bool = False
    heading: str = ""
    interval_heading: str = "at 90 %"
    columns: Mapping[str, str] = field(default_factory=dict)


LIMIT = FigureKind("limit", heading="limit")
ACKNOWLEDGED = FigureKind(
    "acknowledged",
    columns={
        "CPU-s/MB": "cpu_s_per_mb",
        "broker CPU-s/MB": "broker_cpu_s_per_mb",
        "log B/B": "log_bytes_per_byte",
    },
)
TIME = FigureKind("time", less_is_better=True)
