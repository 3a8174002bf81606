"""Write-back in a window: bytes that brokers received, bytes that their disks wrote, and bytes that
stayed in memory.

Linux keeps written pages in memory until they are `vm.dirty_expire_centisecs` old, or until more
than `vm.dirty_background_ratio` of the available memory is dirty. So a disk writes nothing in the
first half minute of a load, and writes in surges later. Therefore `settled_span` finds the part of
a window in which the disks kept up best with the brokers. This part of the window lasts at least
`SETTLED_EXPIRIES` times the age at which Linux writes pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metrics.common.grouping import grouped
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample, parts_of
from metrics.windows.broker import Span, over, whole

DIRTY_RATIO, DIRTY_BACKGROUND_RATIO, DIRTY_EXPIRE_S = 0.2, 0.1, 30.0
"""Linux's defaults of vm.dirty_ratio [ratio], vm.dirty_background_ratio [ratio] and
vm.dirty_expire_centisecs [s], for hosts that do not show these settings."""

SETTLED_EXPIRIES = 2.0
"""The function `settled_span` finds a part of a window. The minimum length of this part is this
multiple of the age at which the kernel writes a page."""

WRITTEN_MIN = 0.95
"""Disks keep up with the brokers if they write at least this share of the received bytes [ratio].
The share is below 1, because the kernel does not write the youngest pages yet."""

FASTEST_S = 10.0
"""Time over which the highest write rate of disks is measured [s]."""

POINTS_MAX = 500
"""The function `settled_span` compares at most this number of points of a window with each other.
"""

_STACKED = ("dm-", "md")
"""Prefixes of the names of devices that consist of several disks, such as RAID arrays. The bytes of
such a device are already in the counters of the disks that it consists of."""
_TAKEN = ("bytes_in", "replication_bytes_in")


@dataclass(frozen=True)
class WriteBackWindow:
    """Write-back of one host between the first and the last sample. Unknown values are None.

    Attributes:
        host: name of the host.
        brokers: ids of the brokers on the host.
        duration_s: time between the first and the last sample [s].
        taken_bytes: bytes that the host's brokers received, from producers and as replicas [B].
        written_bytes: bytes that the host's disks wrote [B]. Only the disks of the log dirs count.
            If the disks of the log dirs are unknown, all disks count, except devices that consist
            of other disks.
        disks: names of the counted disks.
        disks_known: True if the counted disks are known to be the disks of the log dirs.
        dirty_bytes: highest size, in a sample, of the dirty pages of files [B].
        writeback_bytes: highest size, in a sample, of the pages that are being written to disks
            [B].
        unwritten_start_bytes: total size, in the first sample, of the dirty pages and of the pages
            that are being written to disks [B].
        unwritten_end_bytes: total size, in the last sample, of the dirty pages and of the pages
            that are being written to disks [B].
        unwritten_max_bytes: highest total size, in a sample, of the dirty pages and of the pages
            that are being written to disks [B].
        dirty_limit_bytes: size of the dirty pages at which writers begin to wait for disks [B].
        dirty_expire_s: age [s] at which the kernel writes a dirty page, according to
            vm.dirty_expire_centisecs; Linux's default if the host does not show this setting.
        settled_s: length [s] of the part of the window in which the disks kept up best with the
            brokers; 0 if the window is too short.
        settled_taken_bytes: bytes [B] that the brokers received in the part of the window in which
            the disks kept up best.
        settled_written_bytes: bytes [B] that the disks wrote in the part of the window in which the
            disks kept up best.
        fastest_bytes_per_s: highest rate at which the disks wrote for `FASTEST_S` [B/s], or None
            for a shorter window.
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
    def taken_per_s(self) -> float | None:
        """Rate at which the host's brokers received bytes [B/s]."""
        return over(self.taken_bytes, self.duration_s)

    @property
    def settled_share(self) -> float | None:
        """Share of the received bytes that the disks wrote [ratio], in the part of the window in
        which the disks kept up best.
        """
        return over(self.settled_written_bytes, self.settled_taken_bytes)

    @property
    def absorbed_bytes(self) -> float | None:
        """Bytes that the brokers received in the window and that are only in memory, because no
        disk wrote them [B].
        """
        if self.taken_bytes is None or self.written_bytes is None:
            return None
        return max(0.0, self.taken_bytes - self.written_bytes)

    @property
    def room_bytes(self) -> float | None:
        """Room for dirty pages in memory at the beginning of the window [B]."""
        if self.dirty_limit_bytes is None or self.unwritten_start_bytes is None:
            return None
        return max(0.0, self.dirty_limit_bytes - self.unwritten_start_bytes)

    @property
    def unwritten_share(self) -> float | None:
        """Highest size of the unwritten pages, divided by `dirty_limit_bytes` [ratio]."""
        return over(self.unwritten_max_bytes, self.dirty_limit_bytes)


def unwritten_bytes(sample: HostSample) -> float | None:
    """Size of the unwritten pages [B]: the dirty pages, and the pages that are being written to
    disks. None if the size is unknown.
    """
    dirty = sample.values.get(readings.DIRTY_BYTES)
    return None if dirty is None else dirty + sample.values.get(readings.WRITEBACK_BYTES, 0.0)


def dirty_limit_bytes(sample: HostSample) -> float | None:
    """The size of the dirty pages at which writers begin to wait for disks [B].

    Writers begin to wait at the mean of the background limit and the hard limit of dirty pages
    (`dirty_freerun_ceiling` in Linux's mm/page-writeback.c). The hard limit is vm.dirty_bytes, or
    vm.dirty_ratio of the available memory. Linux's default is used for a setting of vm.* that the
    host does not show. A host with node_exporter shows none of these settings.
    """
    limit = _threshold(sample, readings.DIRTY_LIMIT_BYTES, readings.DIRTY_RATIO, DIRTY_RATIO)
    background = dirty_background_bytes(sample)
    if limit is None or background is None:
        return None
        # If the background limit is not below the limit, the kernel uses half of the limit.
    return (limit + (background if background < limit else limit / 2)) / 2


def dirty_background_bytes(sample: HostSample) -> float | None:
    """The size of the dirty pages at which the kernel begins to write pages of any age [B].

    The background limit is vm.dirty_background_bytes, or vm.dirty_background_ratio of the available
    memory.
    """
    return _threshold(
        sample,
        readings.DIRTY_BACKGROUND_BYTES,
        readings.DIRTY_BACKGROUND_RATIO,
        DIRTY_BACKGROUND_RATIO,
    )


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
    """The write-back windows of the hosts that show their dirty pages.

    Args:
        nodes: samples of any nodes in any order, also from before and after the window.
        hosts: samples of any hosts in any order.
        brokers: host → ids of the brokers on the host.
        start_s, end_s: the measured window [s since the epoch].
    """
    by_broker = grouped((node.broker_id, node) for node in nodes)
    counters = {broker: _Counter(own) for broker, own in by_broker.items()}
    none = _Counter(())
    found = []
    for host, ids in brokers.items():
        own = samples_with_log_disks(
            each
            for each in hosts
            if each.host == host and each.values and start_s <= each.at_s <= end_s
        )
        if len(own) > 1 and unwritten_bytes(own[0]) is not None:
            found.append(_window(host, own, [counters.get(each, none) for each in ids], tuple(ids)))
    return tuple(found)


def samples_with_log_disks(samples: Iterable[HostSample]) -> list[HostSample]:
    """The samples that show the disks of log dirs, ordered by time. If no sample shows the disks of
    log dirs, the result has all samples.

    If a Spark task takes samples on a broker's machine, these samples do not show the disks of log
    dirs.
    """
    found = sorted(samples, key=lambda each: each.at_s)
    return [each for each in found if parts_of(each.values, readings.LOG_DISK)] or found


def _window(
    host: str, samples: Sequence[HostSample], counters: Sequence[_Counter], ids: tuple[int, ...]
) -> WriteBackWindow:
    first, last, span = samples[0], samples[-1], Span(samples)
    disks, is_known = log_disks_of(first)
    unwritten = [each for sample in samples if (each := unwritten_bytes(sample)) is not None]
    taken = [whole([counter.at(each.at_s) for counter in counters]) for each in samples]
    names = [f"{readings.DISK_WRITTEN_BYTES}:{disk}" for disk in disks]
    written = [whole([each.values.get(name) for name in names]) for each in samples]
    points = [
        (each.at_s, took, wrote)
        for each, took, wrote in zip(samples, taken, written, strict=True)
        if took is not None and wrote is not None
    ]
    expire_s = first.values.get(readings.DIRTY_EXPIRE_S, DIRTY_EXPIRE_S)
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
"""Tuples of a time [s since the epoch], the bytes received until this time [B], and the bytes
written until this time [B]."""


def settled_span(points: Sequence[Point], least_s: float) -> tuple[Point, Point] | None:
    """The first and the last point of the part of a window in which the disks kept up best with the
    brokers.

    Only parts of at least `least_s` are compared. The result is the longest part in which the disks
    wrote at least `WRITTEN_MIN` of the received bytes. If the disks always wrote a smaller share,
    the result is the part in which they wrote the largest share of the received bytes. Surges of
    write-back do not distort the result, because the chosen part begins and ends with similarly few
    dirty pages. In every part, the ratio of written bytes to received bytes is at most the ratio of
    the disks' speed to the load.

    Args:
        points: points of a window in the order of time.
        least_s: minimum length of the part of the window [s].

    Returns:
        The first and the last point of the part of the window, or None if the window is shorter
        than `least_s`.
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
    """The highest rate [B/s] at which disks wrote during a time of `FASTEST_S`; None if the points
    cover less time. For disks that were at their limit in the window, the result is an upper bound
    of their speed.
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
    """The disks whose written bytes are counted, and True if these disks are known to be the disks
    of the log dirs.
    """
    with_logs = sorted(parts_of(sample.values, readings.LOG_DISK))
    if with_logs:
        return tuple(with_logs), True
    disks = sorted(parts_of(sample.values, readings.DISK_WRITTEN_BYTES))
    return tuple(each for each in disks if not each.startswith(_STACKED)), False


def _grown(values: Sequence[float]) -> float | None:
    """Increase of a counter, or None if the counter fell, for example after a restart."""
    if len(values) < 2 or values[-1] < values[0]:
        return None
    return values[-1] - values[0]


class _Counter:
    """The bytes that a broker has received, interpolated between its samples."""

    def __init__(self, samples: Iterable[BrokerSample]) -> None:
        own = sorted(
            (each.at_s, sum(each.values.get(name, 0.0) for name in _TAKEN))
            for each in samples
            if _TAKEN[0] in each.values
        )
        self._times = [at_s for at_s, _ in own]
        self._values = [value for _, value in own]

    def at(self, at_s: float) -> float | None:
        """The value at a time, interpolated between two samples, or None outside of the samples."""
        i = bisect_left(self._times, at_s)
        if i < len(self._times) and self._times[i] == at_s:
            return self._values[i]
        if i in {0, len(self._times)}:
            return None
        before_s, after_s = self._times[i - 1 : i + 1]
        share = (at_s - before_s) / (after_s - before_s)
        return self._values[i - 1] + share * (self._values[i] - self._values[i - 1])
