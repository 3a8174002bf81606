"""The wait for write-back: pages of the last load that the brokers' hosts still have to write.

A broker's own counter of written bytes (`write_bytes` of /proc/PID/io) grows when a page is
dirtied, so it is still while the kernel writes. Only dirty and write-back memory show that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.trials.recovery import NotIdle
from metrics.sources.hosts import readings
from metrics.sources.hosts.sample import HostSample
from metrics.sources.hosts.source import HostSource, NoHosts
from metrics.units import format_volume
from metrics.windows.write_back import dirty_background_bytes, log_disks_of, unwritten_bytes

GAIN, SPARE_BYTES = 2.0, 16e6
"""A host is at rest while it writes at most `GAIN` times as many pages at a time as before the run,
plus `SPARE_BYTES` [B]."""

QUIET_BYTES_PER_S = 1e6
"""Rate below which the disks of log dirs write nothing of a load [B/s]."""


class WriteBack:
    """What the brokers' hosts have to write, compared with the time before the run.

    Args:
        hosts: the brokers' hosts; no other part of the run uses the source during a wait.
    """

    def __init__(self, hosts: HostSource | None = None) -> None:
        self._hosts: HostSource = NoHosts() if hosts is None else hosts
        self._before: Mapping[str, HostSample] = {}
        self._last: dict[str, HostSample] = {}

    def take_baseline(self) -> None:
        """Read the hosts without the run's load."""
        self._before = {each.host: each for each in self._sampled()}

    def reasons(self) -> tuple[NotIdle, ...]:
        """The hosts that still write pages of the last load, a reason for each."""
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
    """Whether the disks of log dirs are known, and wrote next to nothing between two samples.

    The pages of a host that wait are then those of other disks.
    """
    disks, is_known = log_disks_of(later)
    names = [f"{readings.DISK_WRITTEN_BYTES}:{each}" for each in disks]
    passed_s = later.at_s - earlier.at_s
    if not is_known or passed_s <= 0 or any(name not in earlier.values for name in names):
        return False
    written = sum(later.values.get(name, 0.0) - earlier.values[name] for name in names)
    return written / passed_s < QUIET_BYTES_PER_S


def why_not_written(now: HostSample, before: HostSample | None) -> NotIdle | None:
    """The reason why a host still has pages of a load to write; None where it is at rest.

    Dirty pages alone do not count while they are fewer than those from which the kernel begins to
    write: a host without load keeps them for half a minute, and they disturb no trial.
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
