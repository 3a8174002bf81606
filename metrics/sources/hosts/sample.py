"""The sample of one host, which every host source returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Moment


@dataclass(frozen=True)
class HostSample:
    """One sample of one host.

    Attributes:
        host: name of the host.
        at_s: wall-clock time of the sample's middle [s since the epoch].
        values: readings by the names of `metrics.sources.hosts.readings`; empty when the sample
            failed, or where the system shows none.
        error: why the sample failed, or None.
    """

    host: str
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None
