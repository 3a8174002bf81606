"""The wait after a load until the brokers are at rest, so that the load does not affect the next
trial.

The wait includes write-back: the hosts of the brokers still have to write pages of the last load to
disk. A broker's own counter of written bytes (`write_bytes` of /proc/PID/io) grows when a page
becomes dirty, and does not change while the kernel writes the page. Write-back is therefore
measured by the sizes of dirty and write-back memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample, HostSource
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource, brokers_of
from metrics.units import format_volume
from metrics.windows.broker import BrokerWindow, broker_windows
from metrics.windows.write_back import dirty_background_bytes, log_disks_of, unwritten_bytes

DEADLINE_S = 60.0
LOOK_S = 1.0
"""Shortest time over which the load of the brokers is measured [s]."""

AT_REST_IDLE = 0.85
"""Request handlers with a higher idle fraction are at rest [ratio]. A handler adds a wait to its
idle counter when the wait ends, up to 0.3 s late. One measurement of a broker without load may
therefore show an idle fraction of only 0.88.
"""
UNNOTED_S = 0.15
"""A handler's idle counter lacks a part of the idle time in a measurement just after the last
request. This value is the mean of the missing idle time [s]. The idle counter does not contain the
handler's wait that is in progress. The next measurement contains this wait. After 12 loads the
measured idle fraction was 0.79 to 0.87 in the first second of rest, and 1.0 in the next second.
"""
IDLE_LOSS = 0.1
"""A broker is still at rest if its idle fraction is lower than at the start of the run by at most
this value [ratio]. Other clients of the broker can cause a small loss of idle fraction.
"""
DISK_GAIN = 2.0
DISK_SPARE_BYTES_PER_S = 1e6
"""A disk is at rest if it writes less than `DISK_GAIN` times its rate at the start of the run plus
`DISK_SPARE_BYTES_PER_S` [B/s].
"""
LAGGING = "records behind"
DISK_PATIENCE_S = 10.0
"""Longest wait for the end of the brokers' writes to disk, if the brokers are otherwise at rest
[s]."""


@dataclass(frozen=True)
class Baseline:
    """The readings of a broker without the run's load; the defaults describe an unused broker.

    Attributes:
        handler_idle: idle fraction of the request handlers [ratio].
        waiting_requests: requests in the request queue.
        under_replicated: under-replicated partitions.
        replica_lag_records: largest lag of a follower.
        disk_write_bytes_per_s: rate at which the process writes to disks [B/s].
    """

    handler_idle: float = 1.0
    waiting_requests: float = 0.0
    under_replicated: float = 0.0
    replica_lag_records: float = 0.0
    disk_write_bytes_per_s: float = 0.0

    @classmethod
    def of(cls, window: BrokerWindow) -> Baseline:
        """The readings of a window. A missing reading gets the value of an unused broker."""
        idle = 1.0 if window.handler_idle is None else min(1.0, window.handler_idle)
        return cls(
            idle,
            window.request_queue_max or 0.0,
            window.under_replicated_max or 0.0,
            window.replica_lag_max_records or 0.0,
            window.disk_write_bytes_per_s or 0.0,
        )


@dataclass(frozen=True)
class NotIdle:
    """The reason why a broker is not at rest.

    Attributes:
        text: the reason as a clause that names the broker or the host.
        invalidates: whether a trial that begins now would be INVALID for this reason.
        is_write_back: whether a host still writes pages of the last load.
        is_lag: whether a follower lacks records.
    """

    text: str
    invalidates: bool = True
    is_write_back: bool = False
    is_lag: bool = False


@dataclass(frozen=True)
class Recovery:
    """The result of a wait until brokers are at rest.

    Attributes:
        duration_s: length of the wait [s].
        since_s: the time at which the brokers came to rest [s since the epoch]; None if they did
            not come to rest.
        not_idle: the reasons why brokers were not at rest at the end of the wait.
        look: the last two polls of all nodes; the brokers were at rest between them if `not_idle`
            is empty.
    """

    duration_s: float
    since_s: float | None = None
    not_idle: tuple[NotIdle, ...] = ()
    look: tuple[Sequence[BrokerSample], Sequence[BrokerSample]] = ((), ())

    @property
    def invalidates(self) -> bool:
        """Whether a trial that began now would be INVALID."""
        return any(each.invalidates for each in self.not_idle)

    @property
    def patience_s(self) -> float:
        """The longest time to wait for the brokers and hosts that are not at rest now [s]."""
        is_worth = any(each.invalidates or each.is_write_back for each in self.not_idle)
        return DEADLINE_S if is_worth else DISK_PATIENCE_S


def why_not_idle(
    window: BrokerWindow, baseline: Baseline, unnoted_s: float = 0.0
) -> NotIdle | None:
    """The reason why a broker is busier than its baseline; None if it is at rest.

    Args:
        window: the readings of the broker now.
        baseline: the readings of the broker without the run's load.
        unnoted_s: idle time of each handler [s] that may be missing in the counters of the window.
    """
    broker, idle = f"broker {window.broker_id}", window.handler_idle
    if window.contradiction is not None:
        return NotIdle(window.contradiction)
    if window.start_s is None:
        return NotIdle(f"the metrics of {broker} cannot be read")
    if window.ticked_s == 0.0:
        return NotIdle(f"{broker}: its one-minute rates were not updated yet")
    unnoted = unnoted_s / max(LOOK_S, window.ticked_s or (window.end_s or 0.0) - window.start_s)
    if idle is not None and idle < min(AT_REST_IDLE, baseline.handler_idle - IDLE_LOSS) - unnoted:
        return NotIdle(f"{broker}: request handlers idle {idle:.2f}")
    gauges = (
        (window.request_queue_max, baseline.waiting_requests, "requests wait for a handler"),
        (window.under_replicated_max, baseline.under_replicated, "partitions under-replicated"),
        (window.replica_lag_max_records, 2 * baseline.replica_lag_records, LAGGING),
    )
    for value, limit, text in gauges:
        if value is not None and value > limit:
            return NotIdle(f"{broker}: {value:.0f} {text}", is_lag=text == LAGGING)
    written, before = window.disk_write_bytes_per_s, baseline.disk_write_bytes_per_s
    if written is not None and written > DISK_GAIN * before + DISK_SPARE_BYTES_PER_S:
        text = f"{broker}: still writes {written / 1e6:.1f} MB/s to its disk"
        return NotIdle(text, invalidates=False)
    return None


def windows_between(
    source: MetricsSource, earlier: Sequence[BrokerSample], later: Sequence[BrokerSample]
) -> tuple[BrokerWindow, ...]:
    """The window of each broker between two polls of all nodes."""
    samples = [*earlier, *later]
    times_s = [sample.at_s for sample in samples]
    from_s, to_s = min(times_s, default=0.0), max(times_s, default=0.0)
    return broker_windows(samples, brokers_of(source), from_s, to_s, max(LOOK_S, to_s - from_s))


def wait_until_at_rest(
    source: MetricsSource,
    baselines: Mapping[int, Baseline] | None = None,
    earlier: Sequence[BrokerSample] = (),
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = lambda _: None,
    unwritten: Callable[[], tuple[NotIdle, ...]] = tuple,
) -> Recovery:
    """Wait until every broker has been at rest for a second, or until the deadline.

    Args:
        source: the metrics of the brokers.
        baselines: broker id → its readings without the run's load.
        earlier: a poll of all nodes that was made before this wait; it can shorten the first
            measurement.
        deadline_s: longest wait [s].
        clock: returns the wall-clock time [s since the epoch], replaced in tests.
        pause: waits for a time [s], replaced in tests.
        report: receives the reason why a broker is not at rest, after each measurement.
        unwritten: returns a reason for each host that still writes pages of the last load.
    """
    began_s = clock()
    earlier = earlier or source.sample_all()
    seen_s = polled_s = min((sample.at_s for sample in earlier), default=began_s)
    unnoted_s = UNNOTED_S
    while True:
        pause(max(0.0, polled_s + LOOK_S - clock()))
        later = source.sample_all()
        windows = windows_between(source, earlier, later)
        found = (
            why_not_idle(each, (baselines or {}).get(each.broker_id, Baseline()), unnoted_s)
            for each in windows
        )
        not_idle = (*(each for each in found if each is not None), *unwritten())
        waited_s = clock() - began_s
        look = (earlier, later)
        recovery = Recovery(waited_s, None if not_idle else seen_s, not_idle, look)
        if not not_idle or waited_s >= min(deadline_s, recovery.patience_s):
            return recovery
        report(not_idle[0].text)
        polled_s = min((sample.at_s for sample in later), default=clock())
        if all(window.ticked_s != 0.0 for window in windows):
            earlier, unnoted_s, seen_s = later, 0.0, polled_s


GAIN, SPARE_BYTES = 2.0, 16e6
"""A host is at rest if the size of the pages that it is writing is at most `GAIN` times the size
before the run, plus `SPARE_BYTES` [B].
"""

QUIET_BYTES_PER_S = 1e6
"""If the disks of log directories write at a lower rate than this [B/s], the unwritten pages of the
host belong to other disks.
"""


class WriteBack:
    """The pages that the brokers' hosts have to write to disk, compared with the time before the
    run.

    Args:
        hosts: the metrics of the brokers' hosts, which no other part of the run reads during a
            wait.
    """

    def __init__(self, hosts: HostSource) -> None:
        self._hosts = hosts
        self._before: Mapping[str, HostSample] = {}
        self._last: dict[str, HostSample] = {}

    def take_baseline(self) -> None:
        """Read the hosts' metrics without the run's load."""
        self._before = {each.host: each for each in self._sampled()}

    def reasons(self) -> tuple[NotIdle, ...]:
        """A reason for each host that still writes pages of the last load."""
        found = []
        for each in self._sampled():
            last = self._last.get(each.host)
            self._last[each.host] = each
            why = why_not_written(each, self._before.get(each.host))
            if why is not None and not (last is not None and are_log_disks_quiet(last, each)):
                found.append(why)
        return tuple(found)

    def _sampled(self) -> Sequence[HostSample]:
        own = self._hosts.brokers
        return [each for each in self._hosts.sample_all() if each.host in own] if own else ()


def are_log_disks_quiet(earlier: HostSample, later: HostSample) -> bool:
    """Whether the disks of log directories are known and wrote almost nothing between two samples.

    If the result is True, the host's unwritten pages belong to other disks.
    """
    disks, is_known = log_disks_of(later)
    names = [f"{readings.DISK_WRITTEN_BYTES}:{each}" for each in disks]
    passed_s = later.at_s - earlier.at_s
    if not is_known or passed_s <= 0 or any(name not in earlier.values for name in names):
        return False
    written = sum(later.values.get(name, 0.0) - earlier.values[name] for name in names)
    return written / passed_s < QUIET_BYTES_PER_S


def why_not_written(now: HostSample, before: HostSample | None) -> NotIdle | None:
    """The reason why a host is not at rest: it still has to write pages of a load; None if it is at
    rest.

    Dirty pages are ignored while their size is below the threshold at which the kernel starts to
    write them. A host without load keeps dirty pages below this threshold for half a minute, and
    these pages do not affect a trial.

    Args:
        now: the present sample of the host.
        before: the sample before the run; None if it is unknown.
    """
    written = now.values.get(readings.WRITEBACK_BYTES)
    was = {} if before is None else before.values
    if written is not None and written > GAIN * was.get(readings.WRITEBACK_BYTES, 0) + SPARE_BYTES:
        text = f"host {now.host}: {format_volume(written)} are being written to its disks"
        return NotIdle(text, invalidates=False, is_write_back=True)
    unwritten, background = unwritten_bytes(now), dirty_background_bytes(now)
    if unwritten is None or background is None:
        return None
    usual = GAIN * ((None if before is None else unwritten_bytes(before)) or 0.0)
    if unwritten <= max(background, usual):
        return None
    text = f"host {now.host}: {format_volume(unwritten)} of written pages wait for its disks"
    return NotIdle(text, invalidates=False, is_write_back=True)
