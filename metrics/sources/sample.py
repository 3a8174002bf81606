"""The sample of one broker, and the protocol that the samples of brokers and hosts follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from metrics.columns import Column, Moment


class Timed(Protocol):
    """A sample with its time."""

    @property
    def at_s(self) -> float:
        """Time of the sample [s since the epoch]."""
        ...


class Sample(Timed, Protocol):
    """A sample of one broker or host."""

    @property
    def values(self) -> Mapping[str, float]:
        """Name of a reading → its value."""
        ...


def parts_of(readings: Iterable[str], name: str) -> list[str]:
    """The parts with a reading of this name. A part is the text after the colon, such as the disk
    `sda`.
    """
    named = (each.partition(":") for each in readings)
    return [part for reading, _, part in named if reading == name and part]


@dataclass(frozen=True)
class BrokerSample:
    """One poll of one broker.

    Attributes:
        broker_id: node id.
        at_s: wall-clock time of the middle of the poll [s since the epoch].
        values: name of a reading in `metrics.sources.beans` → its value. The map is empty if the
            poll failed.
        error: reason why the poll failed, or None.
    """

    broker_id: int
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None
