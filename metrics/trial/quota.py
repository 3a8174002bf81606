"""The CPU quota of the generator's control groups in the measured window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metrics.sources.hosts import readings
from metrics.sources.hosts.sample import HostSample
from metrics.windows.spans import over


@dataclass(frozen=True)
class QuotaWindow:
    """The CPU quota of the tasks' control groups, on one host.

    Attributes:
        host: the host where it stopped them most; None without a quota.
        throttled_share: share of the quota's periods in which it was used up and stopped the
            tasks; None without a quota [ratio].
        throttled_ms: mean time that a task lost in such a period, at most; None without any [ms].
    """

    host: str | None = None
    throttled_share: float | None = None
    throttled_ms: float | None = None


def quota_window(samples: Iterable[HostSample], start_s: float, end_s: float) -> QuotaWindow:
    """The quota inside [start_s, end_s].

    Args:
        samples: samples of the hosts with tasks, in any order, also from before and after.
    """
    by_host: dict[str, list[HostSample]] = {}
    for each in sorted(samples, key=lambda sample: sample.at_s):
        if start_s <= each.at_s <= end_s and readings.QUOTA_PERIODS in each.values:
            by_host.setdefault(each.host, []).append(each)
    found = []
    for host, own in by_host.items():
        periods, stopped, stopped_s = (
            own[-1].values[name] - own[0].values[name]
            for name in (readings.QUOTA_PERIODS, readings.THROTTLED_PERIODS, readings.THROTTLED_S)
        )
        if periods > 0:
            share = min(1.0, stopped / periods)
            found.append(QuotaWindow(host, share, over(1000.0 * stopped_s, stopped)))
    return max(found, key=lambda each: each.throttled_share or 0.0, default=QuotaWindow())
