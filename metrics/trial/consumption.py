"""The counts of consumer groups, for the members in one task and for a whole group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Annotated

from metrics.columns import Flat, column
from metrics.common.grouping import grouped
from metrics.trial.adding import FIRST, LARGEST, POINT_BY_POINT, Histogram, Quantiles, total

LAG_INTERVAL_S = 0.5
"""Time between two readings of the lag [s]; the first reading is at the window's start."""


@dataclass(frozen=True)
class ReadRange:
    """A range of offsets of one partition that one member read without a gap.

    Attributes:
        partition: number of the partition.
        from_offset: the first offset of the range.
        to_offset: the offset after the last offset of the range.
        records: number of records according to the batches' headers, including commit and abort
            records of transactions. The number equals `to_offset - from_offset`, unless offsets are
            missing.
    """

    partition: int
    from_offset: int
    to_offset: int
    records: int

    @property
    def length(self) -> int:
        """Number of offsets."""
        return self.to_offset - self.from_offset


@dataclass
class GroupCounts:
    """Counts of the members of one group in a running engine, in a task, or in all tasks.

    Attributes:
        group: number of the group, from 0.
        members: number of members.
        records: records read inside the window.
        wire_bytes: size of the record batches read inside the window, or of the keys and values if
            a client library decodes the batches.
        lag_records: records that are available and not read yet, measured at the window's start and
            every `LAG_INTERVAL_S` after it.
        errors: error name → number of errors over the whole trial.
        control_records: commit and abort records of transactions, which consumers skipped, over the
            whole trial.
        rebalances: number of assignments of partitions, without the first assignment of each
            member.
        unread_records: acknowledged records that were not read by the end of the drain.
        notes: notes of the consumers for the user; each note is a sentence.
        throttle_ms: throttle time that fetch responses reported over the whole trial, summed; None
            in rows of older versions.
        last_read_s: time from the window's start to the read of the last record [s]; None without
            records.
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
    """The counts of the members of one group in one task.

    Attributes:
        counts: counts of the members.
        latency_us: time from the intended send to the receipt of a record [µs].
        read_ranges: all ranges of offsets that the members read over the whole trial.
    """

    counts: GroupCounts
    latency_us: Histogram = field(default_factory=Histogram)
    read_ranges: tuple[ReadRange, ...] = ()


@dataclass(frozen=True)
class GroupWindow:
    """One consumer group in the measured window, over all tasks.

    Attributes:
        counts: counts of the group.
        latency: time from the intended send to the receipt of a record.
        records_total: records read over the whole trial, drain included; a record that is read
            again counts again.
        reread_records: records read more than once, which a rebalance can cause.
        read_by_partition: the ranges of offsets that the group read over the whole trial.
    """

    counts: Annotated[GroupCounts, Flat()]
    latency: Annotated[Quantiles, Flat("latency_", adds_meaning=True)] = field(
        default_factory=Quantiles
    )
    records_total: int = 0
    reread_records: int = 0
    read_by_partition: tuple[ReadRange, ...] = ()

    @column
    def lag_slope_records_per_s(self) -> float:
        """Slope of the line through the measured lags [records/s]; NaN if the lag was measured only
        once.
        """
        return lag_slope(self.counts.lag_records, LAG_INTERVAL_S)

    @classmethod
    def of(cls, share: GroupShare) -> GroupWindow:
        """The window of a group from the sum of the counts of all tasks."""
        read = join_ranges(share.read_ranges)
        passed = sum(read_range.length for read_range in share.read_ranges)
        return cls(
            share.counts,
            Quantiles.of(share.latency_us),
            sum(read_range.records for read_range in share.read_ranges)
            - share.counts.control_records,
            passed - sum(read_range.length for read_range in read),
            read,
        )


def group_windows(shares: Iterable[GroupShare]) -> tuple[GroupWindow, ...]:
    """One window for each group, in the order of the group numbers."""
    by_group = grouped((share.counts.group, share) for share in shares)
    return tuple(GroupWindow.of(total(by_group[group])) for group in sorted(by_group))


def lag_slope(lag_records: Sequence[int], interval_s: float) -> float:
    """Slope of the line through lags that were measured every `interval_s` seconds [records/s].

    The line is the least-squares fit, as in Theodolite's lag trend metric
    (https://www.theodolite.rocks). The slope is NaN for fewer than two lags.
    """
    if len(lag_records) < 2:
        return math.nan
    return linear_regression(range(len(lag_records)), lag_records).slope / interval_s


def join_ranges(read_ranges: Iterable[ReadRange]) -> tuple[ReadRange, ...]:
    """Join the adjacent and overlapping ranges of each partition, and sort them by partition and
    offset.

    An offset that several ranges contain is counted once.
    """
    joined: list[ReadRange] = []
    for read_range in sorted(read_ranges, key=lambda each: (each.partition, each.from_offset)):
        last = joined[-1] if joined else None
        if (
            last is None
            or last.partition != read_range.partition
            or read_range.from_offset > last.to_offset
        ):
            joined.append(read_range)
            continue
        end = max(last.to_offset, read_range.to_offset)
        again = max(0, min(last.to_offset, read_range.to_offset) - read_range.from_offset)
        records = last.records + max(0, read_range.records - again)
        joined[-1] = ReadRange(read_range.partition, last.from_offset, end, records)
    return tuple(joined)
