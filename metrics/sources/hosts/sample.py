"""One look at one host, as every source of hosts gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Moment


@dataclass(frozen=True)
class HostSample:
    """One look at one host.

    Attributes:
        host: its name.
        at_s: wall-clock time of the look's middle [s since the epoch].
        values: readings by the names of `metrics.sources.hosts.readings`; empty when the look
            failed, or where the system shows none.
        error: why the look failed, or None.
    """

    host: str
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None
