"""Sources that keep the readings of the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

History = Sequence[tuple[float, float]]
"""(time [s since the epoch], value) of a reading, oldest first."""


@runtime_checkable
class KeepsHistory(Protocol):
    """A source that keeps the readings of the past."""

    def history(
        self, reading: str, from_s: float, to_s: float, step_s: float
    ) -> Mapping[int, History]:
        """Broker id → a reading in the past; see `PrometheusServerSource.history`."""
        ...
