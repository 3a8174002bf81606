"""What consumer groups read: a task's share, a group's window, its lag and its account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LAG_INTERVAL_S = 0.5
"""Lag is noted at the window's start and every so often after it [s]."""


@dataclass(frozen=True)
class Stint:
    """What one member read of one partition without a break.

    Attributes:
        partition: that was read.
        from_offset, to_offset: the first offset and the one after the last.
        records: as the batches say; `to_offset - from_offset` unless offsets are missing.
    """

    partition: int
    from_offset: int
    to_offset: int
    records: int

    @property
    def length(self) -> int:
        """Offsets passed."""
        return self.to_offset - self.from_offset


@dataclass(frozen=True)
class GroupShare:
    """The members of one group that one task hosts.

    Attributes:
        group: number of the group, from 0.
        members: that this task hosts.
        records, wire_bytes: read inside the window; bytes of record batches, or of keys and
            values where a library decodes them [B].
        latency_us: encoded histogram, intended send time to receipt [µs].
        lag_records: at the window's start and every `LAG_INTERVAL_S` after it.
        stints: everything read over the whole trial.
        errors: error name → how often, over the whole trial.
        rebalances: assignments after the first, of all these members.
        unread_records: acknowledged and not read by the end of the drain.
        note: what is worth knowing, one sentence, or None.
    """

    group: int
    members: int
    records: int = 0
    wire_bytes: int = 0
    latency_us: str = ""
    lag_records: tuple[int, ...] = ()
    stints: tuple[Stint, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    rebalances: int = 0
    unread_records: int = 0
    note: str | None = None

    @classmethod
    def from_mapping(cls, row: Mapping[str, Any]) -> GroupShare:
        """From a dict, as Spark's and Arrow's rows give it."""
        values = dict(row)
        values["lag_records"] = tuple(values.get("lag_records") or ())
        values["stints"] = tuple(Stint(**stint) for stint in values.get("stints") or ())
        values["errors"] = dict(values.get("errors") or {})
        return cls(**values)


@dataclass(frozen=True)
class GroupWindow:
    """One consumer group over the measured window, all tasks merged.

    Attributes:
        group: number of the group, from 0.
        members: of the group.
        records, wire_bytes: read inside the window; bytes of record batches [B].
        latency_p50_ms, latency_p95_ms, latency_p99_ms, latency_max_ms: intended send time to
            receipt; NaN where nothing was read [ms].
        lag_records: at the window's start and every `LAG_INTERVAL_S` after it; records that
            could be read and were not yet.
        lag_slope_records_per_s: of a line through them [records/s]; NaN with one point.
        records_total: read over the whole trial, drain included, rereads among them.
        reread_records: read more than once, which a rebalance may bring about.
        read_by_partition: what was read over the whole trial, in ranges without a break.
        errors: error name → how often, over the whole trial.
        rebalances: assignments after each member's first.
        unread_records: acknowledged and not read by the end of the drain.
        notes: what the consumers want remembered, a sentence each.
    """

    group: int
    members: int
    records: int
    wire_bytes: int
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_max_ms: float
    lag_records: tuple[int, ...]
    lag_slope_records_per_s: float
    records_total: int
    reread_records: int
    read_by_partition: tuple[Stint, ...]
    errors: Mapping[str, int] = field(default_factory=dict)
    rebalances: int = 0
    unread_records: int = 0
    notes: tuple[str, ...] = ()


def added(series: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Sums point by point, as far as all series go."""
    return tuple(sum(point) for point in zip(*series, strict=False))


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
