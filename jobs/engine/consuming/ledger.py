"""What the members of one group in one task have read, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.engine.producing.account import TimeLog
from jobs.engine.task.window import NOT_YET, Window
from metrics.trial.consumption import LAG_INTERVAL_S, GroupCounts, GroupShare, ReadRange

SKIPPED = "SkippedRecords"
"""Error name of records that lay before what a broker had: deleted before they were read."""


class Position:
    """Where one member is in one partition that it owns.

    Attributes:
        offset: of the next record.
        high_watermark: end of what consumers may read, as the broker last said.
        error: the broker's last error code, 0 for none.
    """

    __slots__ = ("_began", "_records", "error", "high_watermark", "offset", "partition")

    def __init__(self, partition: int, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.high_watermark = offset
        self.error = 0
        self._began = offset
        self._records = 0

    @property
    def lag(self) -> int:
        """Records that may be read and are not yet."""
        return max(0, self.high_watermark - self.offset)

    def advance(self, records: int, next_offset: int) -> None:
        """So many records were read, up to before `next_offset`."""
        self._records += records
        self.offset = next_offset
        self.high_watermark = max(self.high_watermark, next_offset)

    def read_range(self) -> ReadRange:
        """What was read here."""
        return ReadRange(self.partition, self._began, self.offset, self._records)

    def begin_stint(self) -> None:
        """The next read_range begins."""
        self._began, self._records = self.offset, 0


class GroupLedger:
    """One group's reading in one task. Times are of the engine's clock [s].

    Args:
        interval_s: between two records of one producer, to tell the times of a batch's.

    Attributes:
        counts: of the members here.
        throttle_ms: for how long brokers said that a quota holds the members back, summed [ms].
        window: the measured one, once the start of the load is agreed on.
    """

    def __init__(self, group: int, members: int, interval_s: float) -> None:
        self._interval_s = interval_s
        self._begin(NOT_YET, group, members)

    def _begin(self, window: Window, group: int, members: int) -> None:
        self.counts = GroupCounts(group, members)
        self.latency = TimeLog(self._interval_s)
        self.throttle_ms = 0
        self._last_read_s: float | None = None
        self._stints: list[ReadRange] = []
        self._lags: list[int] = []
        self.window = window

    def begin_window(self, positions: Iterable[Position], following: Window) -> GroupShare:
        """Begin anew with the window that follows; returns the account of the one that is over."""
        owned = list(positions)
        over = self.share(owned)
        for position in owned:
            position.begin_stint()
        self._begin(following, self.counts.group, self.counts.members)
        return over

    def count_read(
        self, records: int, wire_bytes: int, first_age_s: float | None, now: float
    ) -> None:
        """A batch was read; its first record was due `first_age_s` ago, if that is known."""
        self._last_read_s = now
        if self.window.holds(now):
            self.counts.records += records
            self.counts.wire_bytes += wire_bytes
            if first_age_s is not None:
                self.latency.add(first_age_s, records)

    def close_stint(self, position: Position) -> None:
        """A partition was given up."""
        self._stints.append(position.read_range())

    def sample_lag(self, lag_records: int, now: float) -> None:
        """Note the lag, once for each point of the grid that has passed."""
        window = self.window
        if now < window.start_s:
            return
        due = int((min(now, window.end_s) - window.start_s) / LAG_INTERVAL_S) + 1
        self._lags += [lag_records] * (due - len(self._lags))

    def share(
        self, positions: Iterable[Position], targets: Mapping[int, int] | None = None
    ) -> GroupShare:
        """The account, with what is owned to the end.

        Args:
            targets: partition → offset up to which there was to read, where it is known.
        """
        self.latency.fold()
        owned, counts = list(positions), self.counts
        read_ranges = [*self._stints, *(position.read_range() for position in owned)]
        unread = _unread(owned, targets or {})
        points = int(self.window.duration_s / LAG_INTERVAL_S) + 1  # the window may have ended early
        counts.throttle_ms = self.throttle_ms
        if self._last_read_s is not None:
            counts.last_read_s = self._last_read_s - self.window.start_s
        counts.lag_records = tuple(self._lags[:points])
        counts.unread_records = sum(unread.values())
        counts.notes = _unread_notes(counts.group, unread)
        read = tuple(read_range for read_range in read_ranges if read_range.records or read_range.length)
        return GroupShare(counts, self.latency.histogram, read)


def _unread(positions: Iterable[Position], targets: Mapping[int, int]) -> dict[int, int]:
    """Partition → records that lie between the position and the target, where there are some."""
    behind = {each.partition: targets.get(each.partition, 0) - each.offset for each in positions}
    return {partition: records for partition, records in behind.items() if records > 0}


def _unread_notes(group: int, unread: Mapping[int, int]) -> tuple[str, ...]:
    if not unread:
        return ()
    text = (
        f"consumer group {group} had {sum(unread.values())} acknowledged records unread at the end "
        f"of the drain, in {len(unread)} partitions, first of partition {min(unread)}"
    )
    return (text,)
