"""What consumer groups read: a task's share, a group's window, its lag and its account."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Flat, column
from metrics.trial.adding import FIRST, LARGEST, POINT_BY_POINT, total
from metrics.trial.histogram import Histogram, Quantiles

LAG_INTERVAL_S = 0.5
"""Lag is noted at the window's start and every so often after it [s]."""


@dataclass(frozen=True)
class Stint:
    """What one member read of one partition without a break.

    Attributes:
        partition: that was read.
        from_offset, to_offset: the first offset and the one after the last.
        records: as the batches say, the ends of transactions included; `to_offset - from_offset`
            unless offsets are missing.
    """

    partition: int
    from_offset: int
    to_offset: int
    records: int

    @property
    def length(self) -> int:
        """Offsets passed."""
        return self.to_offset - self.from_offset


@dataclass
class GroupCounts:
    """Counts of the members of one group: the engine's, a task's, and those of all tasks.

    Attributes:
        group: number of the group, from 0.
        members: of the group.
        records: read inside the window.
        wire_bytes: of the record batches read inside the window, or of keys and values where a
            library decodes them.
        lag_records: at the window's start and every `LAG_INTERVAL_S` after it; records that
            could be read and were not yet.
        errors: error name → how often, over the whole trial.
        control_records: ends of transactions that were passed over in the whole trial.
        rebalances: assignments after each member's first.
        unread_records: acknowledged and not read by the end of the drain.
        notes: what the consumers want remembered, a sentence each.
        throttle_ms: throttle time that fetch responses reported over the whole trial, summed;
            None in rows of older versions.
        last_read_s: when the last record was read, after the window's start [s]; None where none
            was.
    """

    group: Annotated[int, FIRST]
    members: int = 0
    records: int = 0
    wire_bytes: int = 0
    lag_records: Annotated[tuple[int, ...], POINT_BY_POINT] = ()
    errors: dict[str, int] = field(default_factory=Counter)
    rebalances: int = 0
    unread_records: int = 0
    notes: tuple[str, ...] = ()
    throttle_ms: int | None = None
    control_records: int = 0
    last_read_s: Annotated[float | None, LARGEST] = None


@dataclass(frozen=True)
class GroupShare:
    """The members of one group that one task hosts.

    Attributes:
        counts: of these members.
        latency_us: intended send time to receipt [µs].
        stints: everything read over the whole trial.
    """

    counts: GroupCounts
    latency_us: Histogram = field(default_factory=Histogram)
    stints: tuple[Stint, ...] = ()


@dataclass(frozen=True)
class GroupWindow:
    """One consumer group over the measured window, all tasks together.

    Attributes:
        latency: from the intended send time to the receipt.
        records_total: read over the whole trial, drain included, rereads among them.
        reread_records: read more than once, which a rebalance may bring about.
        read_by_partition: what was read over the whole trial, in ranges without a break.
    """

    counts: Annotated[GroupCounts, Flat()]
    latency: Annotated[Quantiles, Flat("latency_", is_told=True)] = field(default_factory=Quantiles)
    records_total: int = 0
    reread_records: int = 0
    read_by_partition: tuple[Stint, ...] = ()

    @property
    @column
    def lag_slope_records_per_s(self) -> float:
        """Of a line through the lags [records/s]; NaN with one point."""
        return lag_slope(self.counts.lag_records, LAG_INTERVAL_S)

    @classmethod
    def of(cls, share: GroupShare) -> GroupWindow:
        """Of the shares of all tasks, added up."""
        read = ranges(share.stints)
        passed = sum(stint.length for stint in share.stints)
        return cls(
            share.counts,
            Quantiles.of(share.latency_us),
            sum(stint.records for stint in share.stints) - share.counts.control_records,
            passed - sum(stint.length for stint in read),
            read,
        )


def group_windows(shares: Iterable[GroupShare]) -> tuple[GroupWindow, ...]:
    """One window per group, by its number."""
    by_group: dict[int, list[GroupShare]] = defaultdict(list)
    for share in shares:
        by_group[share.counts.group].append(share)
    return tuple(GroupWindow.of(total(by_group[group])) for group in sorted(by_group))


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


def ranges(stints: Iterable[Stint]) -> tuple[Stint, ...]:
    """The stints' offsets as few ranges without a break, by partition and offset.

    What several of them hold counts once.
    """
    joined: list[Stint] = []
    for stint in sorted(stints, key=lambda each: (each.partition, each.from_offset)):
        last = joined[-1] if joined else None
        if last is None or last.partition != stint.partition or stint.from_offset > last.to_offset:
            joined.append(stint)
            continue
        end = max(last.to_offset, stint.to_offset)
        again = max(0, min(last.to_offset, stint.to_offset) - stint.from_offset)
        records = last.records + max(0, stint.records - again)
        joined[-1] = Stint(stint.partition, last.from_offset, end, records)
    return tuple(joined)
