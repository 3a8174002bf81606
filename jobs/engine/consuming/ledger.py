"""Ledger of one consumer group in one task: the records read, and the lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.engine.producing.account import TimeLog
from jobs.engine.task.window import NOT_YET, Window
from metrics.trial.consumption import LAG_INTERVAL_S, GroupCounts, GroupShare, ReadRange

SKIPPED = "SkippedRecords"
"""Error name for records that brokers deleted before the group read them."""


class Position:
    """A member's position in one of its partitions.

    Attributes:
        offset: offset of the next record to read.
        high_watermark: end offset of the readable records, as the broker last reported it.
    """

    __slots__ = ("_began", "_records", "high_watermark", "offset", "partition")

    def __init__(self, partition: int, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.high_watermark = offset
        self._began = offset
        self._records = 0

    @property
    def lag(self) -> int:
        """Number of readable records that the member has not read yet."""
        return max(0, self.high_watermark - self.offset)

    def advance(self, records: int, next_offset: int) -> None:
        """Advance to `next_offset` after reading `records` records."""
        self._records += records
        self.offset = next_offset
        self.high_watermark = max(self.high_watermark, next_offset)

    def read_range(self) -> ReadRange:
        """The range of offsets read since the last `begin_read_range`."""
        return ReadRange(self.partition, self._began, self.offset, self._records)

    def begin_read_range(self) -> None:
        """Begin the next read range at the current offset."""
        self._began, self._records = self.offset, 0


class PositionBook:
    """The positions of one member.

    Attributes:
        positions: partition → the member's position.
    """

    positions: dict[int, Position]

    @property
    def lag(self) -> int:
        """Number of readable records that the member has not read yet."""
        return sum(position.lag for position in list(self.positions.values()))

    def has_reached(self, targets: Mapping[int, int]) -> bool:
        """True if the member has read each of its partitions up to the target offset."""
        positions = list(self.positions.values())
        return all(each.offset >= targets.get(each.partition, 0) for each in positions)


class GroupLedger:
    """Ledger of one group in one task. Times are on the engine's clock [s].

    Args:
        interval_s: time between two records of one producer [s]. From this interval, the ledger
            computes the due time of each record in a batch.

    Attributes:
        counts: counts of the group's members in this task.
        throttle_ms: sum of the brokers' throttle times [ms].
        window: the measured window; `NOT_YET` before the load starts.
    """

    def __init__(self, group: int, members: int, interval_s: float) -> None:
        self._interval_s = interval_s
        self._begin(NOT_YET, group, members)

    def _begin(self, window: Window, group: int, members: int) -> None:
        self.counts = GroupCounts(group, members)
        self.latency = TimeLog(self._interval_s)
        self.throttle_ms = 0
        self._last_read_s: float | None = None
        self._read_ranges: list[ReadRange] = []
        self._lags: list[int] = []
        self.window = window

    def begin_window(self, positions: Iterable[Position], following: Window) -> GroupShare:
        """Begin the following window; return this task's counts of the ended window."""
        owned = list(positions)
        over = self.share(owned)
        for position in owned:
            position.begin_read_range()
        self._begin(following, self.counts.group, self.counts.members)
        return over

    def count_read(
        self, records: int, wire_bytes: int, first_age_s: float | None, now: float
    ) -> None:
        """Count a batch. `first_age_s` is the age of the first record [s]; None if the age is
        unknown.
        """
        self._last_read_s = now
        if self.window.holds(now):
            self.counts.records += records
            self.counts.wire_bytes += wire_bytes
            if first_age_s is not None:
                self.latency.add(first_age_s, records)

    def close_read_range(self, position: Position) -> None:
        """Store the read range of a partition that the member no longer owns."""
        self._read_ranges.append(position.read_range())

    def sample_lag(self, lag_records: int, now: float) -> None:
        """Record the lag once for each sampling time since the last call."""
        window = self.window
        if now < window.start_s:
            return
        due = int((min(now, window.end_s) - window.start_s) / LAG_INTERVAL_S) + 1
        self._lags += [lag_records] * (due - len(self._lags))

    def share(
        self, positions: Iterable[Position], targets: Mapping[int, int] | None = None
    ) -> GroupShare:
        """The counts for the window, of all group members in this task.

        Args:
            positions: positions in the partitions that the members own now.
            targets: partition → offset that the members should have reached; None if the targets
                are unknown.
        """
        owned, counts = list(positions), self.counts
        read_ranges = [*self._read_ranges, *(position.read_range() for position in owned)]
        behind = {at.partition: (targets or {}).get(at.partition, 0) - at.offset for at in owned}
        unread = {partition: records for partition, records in behind.items() if records > 0}
        counts.throttle_ms = self.throttle_ms
        points = int(self.window.duration_s / LAG_INTERVAL_S) + 1  # the window may have ended early
        if self._last_read_s is not None:
            counts.last_read_s = self._last_read_s - self.window.start_s
        counts.lag_records = tuple(self._lags[:points])
        counts.unread_records = sum(unread.values())
        counts.notes = ()
        if unread:
            text = (
                f"consumer group {counts.group} had not read {counts.unread_records} acknowledged "
                f"records at the end of the drain, in {len(unread)} partitions; the first of the "
                f"partitions is {min(unread)}"
            )
            counts.notes = (text,)
        read = tuple(each for each in read_ranges if each.records or each.length)
        return GroupShare(counts, self.latency.histogram, read)
