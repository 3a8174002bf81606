"""The sample of one broker, which every source returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Moment


@dataclass(frozen=True)
class BrokerSample:
    """One poll of one broker.

    Attributes:
        broker_id: node id.
        at_s: wall-clock time of the poll's middle [s since the epoch].
        values: readings by the names of `metrics.sources.beans`; empty when the poll failed.
        error: why the poll failed, or None.
    """

    broker_id: int
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None
