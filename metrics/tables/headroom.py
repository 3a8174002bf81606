"""The table `headroom`: how often today's traffic fits into each resource of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Column, Flat, Moment


@dataclass(frozen=True)
class ResourceHeadroom:
    """How many times today's traffic fits into one resource of one broker.

    Attributes:
        broker_id: node id.
        resource: name of the resource, or `measured traffic` for the rate against the measured one.
        unit: unit of the uses: `ratio` or `B/s`.
        used: use in the window [unit].
        at_rest: use without traffic [unit].
        limit: use at which the resource gives out [unit].
        times: number of times that today's traffic fits; null where the use cannot be
            distinguished from no use [ratio].
        times_low: lower end of the 90 % interval of `times` [ratio].
        times_high: upper end of the 90 % interval of `times` [ratio].
        counts: true where the row decides the answer; false where it is shown for comparison.
    """

    broker_id: int
    resource: str
    unit: str
    used: float
    at_rest: float
    limit: float
    times: float | None = None
    times_low: float | None = None
    times_high: float | None = None
    counts: bool = True


@dataclass(frozen=True)
class HeadroomRow:
    """The use of one resource of one broker by production, and how many times it fits.

    Attributes:
        run_id: run whose limit it is held against; null for an estimate without a run.
        headroom_id: id of the call; all of its rows have it.
        at_s: end of the window.
        cluster: name of the configuration file.
        cluster_id: the id that Kafka gave the cluster.
        goal: goal of the limit.
        source: source of the metrics.
        window_s: length of the window [s].
        headroom: the resource, its use and how many times that fits.
        is_first: true for the row that gives out first.
        is_estimate: true where no run measured the limit.
        messages_in_per_s: messages that the broker received from producers [1/s].
        bytes_in_per_s: bytes of record batches that it received from producers [B/s].
        assumption: the assumptions of the answer, a sentence.
        growth_per_day: growth of the traffic that the history shows, in the first row; null
            without a history [ratio].
        full_at_s: time at which the cluster is full at this growth; null if it is not known, or not
            within a year.
        full_low_at_s: lower end of the 90 % interval of this time.
        full_high_at_s: upper end of the 90 % interval of this time; null where it is open.
    """

    run_id: str | None
    headroom_id: str
    at_s: Annotated[float, Moment(), Column("at")]
    cluster: str
    cluster_id: str
    goal: str
    source: str
    window_s: float
    headroom: Annotated[ResourceHeadroom, Flat()]
    is_first: bool = False
    is_estimate: bool = False
    messages_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    assumption: str = ""
    growth_per_day: float | None = None
    full_at_s: Annotated[float | None, Moment(), Column("full_at")] = None
    full_low_at_s: Annotated[float | None, Moment(), Column("full_low_at")] = None
    full_high_at_s: Annotated[float | None, Moment(), Column("full_high_at")] = None
