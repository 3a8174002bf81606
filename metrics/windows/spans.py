"""Arithmetic on the samples of one broker: differences, exact means, contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from metrics.sources.beans import (
    CONTROLLER_HANDLER_NS,
    GC_MS,
    HANDLER_IDLE_NS,
    SHARED_HANDLER_IDLE_NS,
    SILENT_MS,
    UPTIME_MS,
)
from metrics.sources.first_polls import other_process
from metrics.sources.one_minute_rates import begins_anew, whole_ticks
from metrics.sources.sample import BrokerSample, Sample

HANDLER_POLL_S = 0.3
"""The longest single wait of a request handler; the idle counter adds a wait at its end [s]."""

_COUNTERS = (
    HANDLER_IDLE_NS,
    SHARED_HANDLER_IDLE_NS,
    "produce_total_ms_count",
    "messages_in",
    "bytes_in",
    "bytes_out",
    "replication_bytes_in",
    "replication_bytes_out",
    "isr_shrinks",
    "isr_expands",
    "process_cpu_ns",
)


class Span:
    """Differences between the first and the last of some samples of one broker or host."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._first, self._last = samples[0].values, samples[-1].values
        self.duration_s = seconds_between(samples[0], samples[-1])

    def delta(self, name: str) -> float | None:
        """Growth of a counter."""
        first, last = self._first.get(name), self._last.get(name)
        return None if first is None or last is None else last - first

    def per_s(self, name: str) -> float | None:
        """Growth of a counter per second [1/s].

        A count that follows from one-minute rates grows with each tick of its meter; its growth is
        that of the whole ticks in the span, over their time.
        """
        ticks = whole_ticks(self._samples, name)
        if ticks is None:
            return over(self.delta(name), self.duration_s)
        return over(ticks.events, ticks.duration_s)

    def ticked_s(self, name: str) -> float | None:
        """Time of the whole ticks of a count that follows from one-minute rates [s].

        None for another count, and 0 without a whole tick.
        """
        ticks = whole_ticks(self._samples, name)
        return None if ticks is None else ticks.duration_s

    def error_per_s(self, name: str) -> float | None:
        """Largest error of `per_s` for a count that follows from one-minute rates [1/s]."""
        ticks = whole_ticks(self._samples, name)
        return None if ticks is None else over(ticks.error, ticks.duration_s)

    def deltas(self, prefix: str) -> dict[str, float]:
        """Growth of each counter of a bean with `*` that both edges have."""
        return {
            name: value - self._first[name]
            for name, value in self._last.items()
            if name.startswith(f"{prefix}:") and name in self._first
        }

    def total_per_s(self, prefix: str) -> float | None:
        """Growth per second of all counters of a bean with `*` together [1/s]."""
        grown = self.deltas(prefix)
        return over(sum(grown.values()), self.duration_s) if grown else None

    def mean(self, name: str) -> float | None:
        """Exact mean of a histogram inside the span; None when it recorded no values.

        It is (Mean₂·Count₂ - Mean₁·Count₁) / (Count₂ - Count₁).
        """
        return over(self.sum_delta(name), self.delta(f"{name}_count"))

    def sum_per_s(self, name: str) -> float | None:
        """Growth of a histogram's sum per second, in the histogram's unit."""
        return over(self.sum_delta(name), self.duration_s)

    def sum_delta(self, name: str) -> float | None:
        """Growth of a histogram's sum; None where an edge does not show it."""
        count, mean = f"{name}_count", f"{name}_mean"
        if any(key not in edge for key in (count, mean) for edge in (self._first, self._last)):
            return None
        grown = self._last[mean] * self._last[count] - self._first[mean] * self._first[count]
        # A sum cannot fall, but may seem to, as count and mean are read one after the other.
        return max(0.0, grown)

    def gauges(self, name: str) -> list[float]:
        """The readings of a gauge; negative ones, which the JVM uses for unknown, are left out."""
        found = (sample.values.get(name) for sample in self._samples)
        return [value for value in found if value is not None and value >= 0]

    def gauge_max(self, name: str) -> float | None:
        """The largest reading of a gauge."""
        return max(self.gauges(name), default=None)


def over(part: float | None, whole: float | None) -> float | None:
    """The quotient; None where a part is unknown or `whole` is 0."""
    return None if part is None or not whole else part / whole


def total(parts: Iterable[float | None]) -> float | None:
    """The sum of the known parts; None without one."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def seconds_between(first: Sample, last: Sample) -> float:
    """Time between two samples, by the broker's own uptime where both have it [s].

    The wall-clock time of a poll is some milliseconds off; uptime is read with the counters.
    """
    if UPTIME_MS in first.values and UPTIME_MS in last.values:
        return (last.values[UPTIME_MS] - first.values[UPTIME_MS]) / 1000.0
    return last.at_s - first.at_s


def good_samples(samples: Iterable[BrokerSample]) -> dict[int, list[BrokerSample]]:
    """Broker id → its good samples by time; a sample that was received twice counts once."""
    found: dict[int, list[BrokerSample]] = {}
    for sample in sorted(samples, key=lambda each: each.at_s):
        if sample.error is None and sample.values:
            kept = found.setdefault(sample.broker_id, [])
            if not kept or seconds_between(kept[-1], sample) != 0:
                kept.append(sample)
    return found


def isr_changed(before: BrokerSample, after: BrokerSample, at_rest: float = 0.0) -> bool:
    """True when the ISR changed between two samples, or the later one has under-replicated
    partitions.

    Args:
        at_rest: under-replicated partitions before the run, which our load does not cause.
    """
    moved = any(
        after.values.get(name, 0.0) != before.values.get(name, after.values.get(name, 0.0))
        for name in ("isr_shrinks", "isr_expands")
    )
    return moved or after.values.get("under_replicated_partitions", 0.0) > at_rest


def impossible_idle(broker_id: int, idle: float | None, duration_s: float) -> str | None:
    """A contradiction where an idle fraction is too high for one pool of handlers, or None.

    Waits across the window's edges explain values slightly above 1.
    """
    if idle is None or idle <= 1.1 + HANDLER_POLL_S / duration_s:
        return None
    return (
        f"broker {broker_id}: request handlers idle {idle:.2f}, above 1: the metric probably "
        f"includes a controller's handlers"
    )


def heap_shares(samples: Sequence[BrokerSample]) -> list[float]:
    """Used share of the heap in each sample that shows it [ratio]."""
    return [
        sample.values["heap_used_bytes"] / sample.values["heap_max_bytes"]
        for sample in samples
        if "heap_used_bytes" in sample.values and sample.values.get("heap_max_bytes", 0) > 0
    ]


def pauses(collection_ms: Mapping[str, float]) -> dict[str, float]:
    """The collectors whose time stopped the threads, without the concurrent cycles of ZGC and
    Shenandoah. An exporter may show their names in lower case.
    """
    return {name: ms for name, ms in collection_ms.items() if not name.lower().endswith("cycles")}


def standstill_s(samples: Sequence[BrokerSample], start_s: float, end_s: float) -> float | None:
    """The longest time for which the process answered no request, garbage collections subtracted.

    Between the samples, the source polls every 0.2 s, so the true time is up to 0.2 s longer. A
    collection that a sample does not count yet is in the next one.

    Args:
        samples: samples of one broker by time, also from before and after the window.
        start_s, end_s: the window; the first sample after it counts with the time since the
            sample before.

    Returns:
        The least such time [s]; None where the source does not measure it.
    """
    found = []
    for index, sample in enumerate(samples):
        before, after = samples[max(0, index - 1)], samples[min(index + 1, len(samples) - 1)]
        if SILENT_MS in sample.values and sample.at_s >= start_s and before.at_s <= end_s:
            collected_ms = sum(pauses(Span((before, after)).deltas(GC_MS)).values())
            found.append(max(0.0, sample.values[SILENT_MS] - collected_ms) / 1000.0)
    return max(found, default=None)


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None without values."""
    return sum(values) / len(values) if values else None


def find_contradiction(samples: Sequence[BrokerSample]) -> str | None:
    """The reason why samples cannot all be from one broker that kept running, or None."""
    for before, after in pairwise(samples):
        other = other_process(before, after)
        if other is not None:
            return f"broker {after.broker_id}: {other}, so another process answered at its address"
        if seconds_between(before, after) < 0:
            up_s = after.values[UPTIME_MS] / 1000.0
            return f"broker {after.broker_id} restarted: its uptime fell to {up_s:.1f} s"
        if begins_anew(before, after):
            return (
                f"broker {after.broker_id}: its one-minute rates do not follow from one another, "
                f"as after a restart of the broker"
            )
        for name in _COUNTERS:
            if name == HANDLER_IDLE_NS and CONTROLLER_HANDLER_NS in after.values:
                continue  # derived from the shared meter, which is checked in its place
            old, new = before.values.get(name), after.values.get(name)
            if old is not None and new is not None and new < old:
                return f"broker {after.broker_id}: counter {name} fell from {old:.0f} to {new:.0f}"
    return None
