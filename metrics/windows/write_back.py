"""Windows of write-back: what brokers took in, what the disks below them wrote, and the rest in
memory.

Linux keeps written pages in memory until they are `vm.dirty_expire_centisecs` old, or until more
than `vm.dirty_background_ratio` of the available memory is dirty. So a disk writes nothing for the
first half minute of a load, and then in surges. A window therefore has, beside its totals, the span
of settled write-back: the longest one in which the disks wrote `WRITTEN_MIN` of what brokers took
in or, without one, that with the largest share, over at least `SETTLED_EXPIRIES` times that age.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metrics.sources.hosts import source as readings
from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample, parts_of
from metrics.windows.broker import Span, over, total

DIRTY_RATIO, DIRTY_BACKGROUND_RATIO, DIRTY_EXPIRE_S = 0.2, 0.1, 30.0
"""Linux's defaults of vm.dirty_ratio, vm.dirty_background_ratio [ratio] and
vm.dirty_expire_centisecs [s], for hosts that do not show them."""

SETTLED_EXPIRIES = 2.0
"""Length of a span of settled write-back at least, as a multiple of the age at which pages are
written."""

WRITTEN_MIN = 0.95
"""Share of what brokers took in that disks write in settled write-back at least [ratio]. The rest
is younger than the edges of the span."""

FASTEST_S = 10.0
"""Time over which the highest rate of disks is measured [s]."""

POINTS_MAX = 500
"""Points of a window among which the span of settled write-back is looked for."""

_STACKED = ("dm-", "md")
"""Devices that are made of other disks, which count the same bytes."""
_TAKEN = ("bytes_in", "replication_bytes_in")


@dataclass(frozen=True)
class WriteBackWindow:
    """One host of brokers from the first sample of a window to the last; unknown values are None.

    Attributes:
        host: name of the host.
        brokers: ids of the brokers that run on it.
        duration_s: time between the first sample and the last [s].
        taken_bytes: bytes that its brokers took in, from producers and as replicas [B].
        written_bytes: bytes that its disks wrote: those of the log dirs where they are known, else
            all disks that are not made of others [B].
        disks: names of these disks.
        disks_known: True where these are known to be the disks of the log dirs.
        dirty_bytes: most written pages of files that only memory held in a sample [B].
        writeback_bytes: most pages of files that were being written to disks in a sample [B].
        unwritten_start_bytes, unwritten_end_bytes: both together in the first sample, and in the
            last one [B].
        unwritten_max_bytes: both together in the sample with the most of them [B].
        dirty_limit_bytes: size of the dirty pages from which writers wait for disks: halfway
            between the limits by vm.dirty_background_ratio and vm.dirty_ratio of the available
            memory, or by those in bytes [B].
        dirty_expire_s: age at which the kernel writes a dirty page, by vm.dirty_expire_centisecs;
            Linux's default where the host does not show it [s].
        settled_s: length of the span of settled write-back; 0 if the window is too short [s].
        settled_taken_bytes, settled_written_bytes: bytes taken in and written in that span [B].
        fastest_bytes_per_s: highest rate at which the disks wrote for `FASTEST_S`; None for a
            shorter window [B/s].
    """

    host: str
    brokers: tuple[int, ...] = ()
    duration_s: float = 0.0
    taken_bytes: float | None = None
    written_bytes: float | None = None
    disks: tuple[str, ...] = ()
    disks_known: bool = False
    dirty_bytes: float | None = None
    writeback_bytes: float | None = None
    unwritten_start_bytes: float | None = None
    unwritten_end_bytes: float | None = None
    unwritten_max_bytes: float | None = None
    dirty_limit_bytes: float | None = None
    dirty_expire_s: float = DIRTY_EXPIRE_S
    settled_s: float = 0.0
    settled_taken_bytes: float | None = None
    settled_written_bytes: float | None = None
    fastest_bytes_per_s: float | None = None

    @property
    def settled_share(self) -> float | None:
        """Share of the bytes taken in that disks wrote in the settled span [ratio]."""
        return over(self.settled_written_bytes, self.settled_taken_bytes)

    @property
    def absorbed_bytes(self) -> float | None:
        """Bytes that memory took in the window, as no disk wrote them [B]."""
        if self.taken_bytes is None or self.written_bytes is None:
            return None
        return max(0.0, self.taken_bytes - self.written_bytes)

    @property
    def room_bytes(self) -> float | None:
        """Bytes that memory could take at the beginning of the window [B]."""
        if self.dirty_limit_bytes is None or self.unwritten_start_bytes is None:
            return None
        return max(0.0, self.dirty_limit_bytes - self.unwritten_start_bytes)

    @property
    def unwritten_share(self) -> float | None:
        """Share of `dirty_limit_bytes` that pages which no disk had filled at most [ratio]."""
        return over(self.unwritten_max_bytes, self.dirty_limit_bytes)


def unwritten_bytes(sample: HostSample) -> float | None:
    """Pages of files that no disk has yet, those being written included [B]."""
    dirty = sample.values.get(readings.DIRTY_BYTES)
    return None if dirty is None else dirty + sample.values.get(readings.WRITEBACK_BYTES, 0.0)


def dirty_limit_bytes(sample: HostSample) -> float | None:
    """The size of the dirty pages from which writers wait for disks [B].

    It is halfway between the background limit and the limit (mm/page-writeback.c of Linux,
    `dirty_freerun_ceiling`): vm.dirty_ratio of the available memory, or vm.dirty_bytes. Linux's
    defaults count where a host does not show them, as node_exporter does not.
    """
    limit = _threshold(sample, readings.DIRTY_LIMIT_BYTES, readings.DIRTY_RATIO, DIRTY_RATIO)
    background = dirty_background_bytes(sample)
    if limit is None or background is None:
        return None
    # The kernel halves the limit for a background limit that is not below it.
    return (limit + (background if background < limit else limit / 2)) / 2


def dirty_background_bytes(sample: HostSample) -> float | None:
    """The size of the dirty pages from which the kernel writes them at any age [B].

    As `dirty_limit_bytes`, by vm.dirty_background_ratio or vm.dirty_background_bytes.
    """
    return _threshold(
        sample,
        readings.DIRTY_BACKGROUND_BYTES,
        readings.DIRTY_BACKGROUND_RATIO,
        DIRTY_BACKGROUND_RATIO,
    )


def dirty_expire_s(sample: HostSample) -> float:
    """The age at which the kernel writes a dirty page; Linux's default if it is not shown [s]."""
    return sample.values.get(readings.DIRTY_EXPIRE_S, DIRTY_EXPIRE_S)


def _threshold(sample: HostSample, in_bytes: str, ratio: str, default: float) -> float | None:
    if in_bytes in sample.values:
        return sample.values[in_bytes]
    available = sample.values.get(readings.MEMORY_AVAILABLE_BYTES)
    return None if available is None else sample.values.get(ratio, default) * available


def write_back_windows(
    nodes: Iterable[BrokerSample],
    hosts: Sequence[HostSample],
    brokers: Mapping[str, Sequence[int]],
    start_s: float,
    end_s: float,
) -> tuple[WriteBackWindow, ...]:
    """The windows of the hosts that show their dirty memory.

    Args:
        nodes: samples of any nodes, in any order, also from before and after the window.
        hosts: samples of any hosts, in any order.
        brokers: host → ids of the brokers that run on it.
        start_s, end_s: the measured window [s since the epoch].
    """
    by_broker: dict[int, list[BrokerSample]] = {}
    for node in nodes:
        by_broker.setdefault(node.broker_id, []).append(node)
    counters = {broker: _Counter(own) for broker, own in by_broker.items()}
    none = _Counter(())
    found = []
    for host, ids in brokers.items():
        own = knowing_log_disks(
            each
            for each in hosts
            if each.host == host and each.values and start_s <= each.at_s <= end_s
        )
        if len(own) > 1 and unwritten_bytes(own[0]) is not None:
            found.append(_window(host, own, [counters.get(each, none) for each in ids], tuple(ids)))
    return tuple(found)


def knowing_log_disks(samples: Iterable[HostSample]) -> list[HostSample]:
    """The samples in their order; where some know the disks of log dirs, only these.

    Tasks of the load sample a machine, too, that they share with brokers, and know no log dirs.
    """
    found = sorted(samples, key=lambda each: each.at_s)
    return [each for each in found if parts_of(each.values, readings.LOG_DISK)] or found


def _window(
    host: str, samples: Sequence[HostSample], counters: Sequence[_Counter], ids: tuple[int, ...]
) -> WriteBackWindow:
    first, last, span = samples[0], samples[-1], Span(samples)
    disks, is_known = log_disks_of(first)
    unwritten = [each for sample in samples if (each := unwritten_bytes(sample)) is not None]
    taken = [_whole([counter.at(each.at_s) for counter in counters]) for each in samples]
    names = [f"{readings.DISK_WRITTEN_BYTES}:{disk}" for disk in disks]
    written = [_whole([each.values.get(name) for name in names]) for each in samples]
    points = [
        (each.at_s, took, wrote)
        for each, took, wrote in zip(samples, taken, written, strict=True)
        if took is not None and wrote is not None
    ]
    expire_s = dirty_expire_s(first)
    begin, end = settled_span(points, SETTLED_EXPIRIES * expire_s) or (None, None)
    return WriteBackWindow(
        host=host,
        brokers=ids,
        duration_s=last.at_s - first.at_s,
        taken_bytes=_grown([took for _, took, _ in points]),
        written_bytes=_grown([wrote for _, _, wrote in points]),
        disks=disks,
        disks_known=is_known,
        dirty_bytes=span.gauge_max(readings.DIRTY_BYTES),
        writeback_bytes=span.gauge_max(readings.WRITEBACK_BYTES),
        unwritten_start_bytes=unwritten[0],
        unwritten_end_bytes=unwritten[-1],
        unwritten_max_bytes=max(unwritten),
        dirty_limit_bytes=dirty_limit_bytes(first),
        dirty_expire_s=expire_s,
        settled_s=end[0] - begin[0] if begin and end else 0.0,
        settled_taken_bytes=end[1] - begin[1] if begin and end else None,
        settled_written_bytes=end[2] - begin[2] if begin and end else None,
        fastest_bytes_per_s=fastest_bytes_per_s(points),
    )


Point = tuple[float, float, float]
"""A time [s], and the bytes that were taken in and written until then [B]."""


def settled_span(points: Sequence[Point], least_s: float) -> tuple[Point, Point] | None:
    """The longest span of at least this length in which `WRITTEN_MIN` of all was written.

    Without one, the span of this length or more with the largest share; None for fewer points.
    Surges of write-back distort nothing, as edges are chosen where memory holds equally little, and
    no span shows a larger share than the disk's speed over the load.
    """
    best: tuple[bool, float, Point, Point] | None = None
    points = points[:: 1 + len(points) // POINTS_MAX]
    for i, begin in enumerate(points):
        for end in points[i + 1 :]:
            taken, length_s = end[1] - begin[1], end[0] - begin[0]
            if length_s < least_s or taken <= 0:
                continue
            share = (end[2] - begin[2]) / taken
            is_written = share >= WRITTEN_MIN
            rank = (is_written, length_s if is_written else share)
            if best is None or rank > best[:2]:
                best = (*rank, begin, end)
    return None if best is None else best[2:]


def fastest_bytes_per_s(points: Sequence[Point]) -> float | None:
    """The highest rate at which disks wrote over `FASTEST_S`, which a full disk does not exceed
    [B/s]; None for fewer points.
    """
    rates, end = [], 0
    for i, begin in enumerate(points):
        end = max(end, i)
        while end < len(points) and points[end][0] - begin[0] < FASTEST_S:
            end += 1
        if end == len(points):
            break
        rates.append((points[end][2] - begin[2]) / (points[end][0] - begin[0]))
    return max(rates, default=None)


def log_disks_of(sample: HostSample) -> tuple[tuple[str, ...], bool]:
    """The disks whose writes count, and whether they are known to have the log dirs."""
    with_logs = sorted(parts_of(sample.values, readings.LOG_DISK))
    if with_logs:
        return tuple(with_logs), True
    disks = sorted(parts_of(sample.values, readings.DISK_WRITTEN_BYTES))
    return tuple(each for each in disks if not each.startswith(_STACKED)), False


def _whole(parts: Sequence[float | None]) -> float | None:
    """The sum of the parts; None where one is not known."""
    return None if None in parts else total(parts)


def _grown(values: Sequence[float]) -> float | None:
    """Growth of a counter; None where it fell, as after a restart."""
    if len(values) < 2 or values[-1] < values[0]:
        return None
    return values[-1] - values[0]


class _Counter:
    """The bytes that a broker has taken in, between its samples."""

    def __init__(self, samples: Iterable[BrokerSample]) -> None:
        own = sorted(
            (each.at_s, sum(each.values.get(name, 0.0) for name in _TAKEN))
            for each in samples
            if _TAKEN[0] in each.values
        )
        self._times = [at_s for at_s, _ in own]
        self._values = [value for _, value in own]

    def at(self, at_s: float) -> float | None:
        """The counter at a time, by a straight line between two samples; None beyond them."""
        i = bisect_left(self._times, at_s)
        if i < len(self._times) and self._times[i] == at_s:
            return self._values[i]
        if i in {0, len(self._times)}:
            return None
        before_s, after_s = self._times[i - 1 : i + 1]
        share = (at_s - before_s) / (after_s - before_s)
        return self._values[i - 1] + share * (self._values[i] - self._values[i - 1])
