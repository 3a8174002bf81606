"""The work of brokers in a measured window, computed from their samples.

The increase of a counter is the difference between its last and its first sample. The mean of a
histogram is weighted by the histogram's counts. Only samples inside the window count, because the
load before and after the window differs from the load in the window. A value that the samples do
not show is None, never 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from metrics.columns import NO_COLUMN
from metrics.sources.beans import (
    CONTROLLER_EPOCH,
    CONTROLLER_HANDLER_NS,
    GC_MS,
    HANDLER_IDLE_NS,
    NETWORK_IN_BYTES,
    NETWORK_OUT_BYTES,
    NETWORK_WAIT_NS,
    PHASES,
    REQUESTS,
    SHARED_HANDLER_IDLE_NS,
    SILENT_MS,
    UPTIME_MS,
)
from metrics.sources.first_polls import other_process
from metrics.sources.one_minute_rates import counts_restarted, whole_ticks
from metrics.sources.sample import BrokerSample, Sample

HANDLER_POLL_S = 0.3
"""Longest single wait of a request handler [s]. The idle counter adds a wait when the wait ends."""

_TRAFFIC = ("messages_in", "bytes_in", "bytes_out", "replication_bytes_in", "replication_bytes_out")
_COUNTERS = (
    HANDLER_IDLE_NS,
    SHARED_HANDLER_IDLE_NS,
    "produce_total_ms_count",
    *_TRAFFIC,
    "isr_shrinks",
    "isr_expands",
    "process_cpu_ns",
)


_RATES = (*_TRAFFIC, "failed_produce_requests", "disk_read_bytes", "disk_write_bytes")
"""Counters with a rate in `BrokerWindow`. The name of the rate is the name of the counter with
`_per_s` at the end."""


class Span:
    """The differences between the first and the last sample of one broker or host.

    Args:
        samples: at least one sample, in the order of time.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._first, self._last = samples[0].values, samples[-1].values
        self.duration_s = seconds_between(samples[0], samples[-1])

    def delta(self, name: str) -> float | None:
        """Increase of a counter, or None if the first or the last sample does not show the
        counter.
        """
        first, last = self._first.get(name), self._last.get(name)
        return None if first is None or last is None else last - first

    def per_s(self, name: str) -> float | None:
        """Increase of a counter per second [1/s].

        Kafka updates its one-minute rates every 5 s, at a tick. A count that is computed from
        one-minute rates changes only at these ticks (`metrics.sources.one_minute_rates`). For a
        count that is computed from one-minute rates, the result is the increase between the first
        and the last tick, divided by the time between these two ticks.
        """
        ticks = whole_ticks(self._samples, name)
        if ticks is None:
            return over(self.delta(name), self.duration_s)
        return over(ticks.events, ticks.duration_s)

    def ticked_s(self, name: str) -> float | None:
        """Time [s] between the first and the last tick in the span, for a count that is computed
        from one-minute rates; None for any other count. The time is 0 if the span contains fewer
        than two ticks.
        """
        ticks = whole_ticks(self._samples, name)
        return None if ticks is None else ticks.duration_s

    def error_per_s(self, name: str) -> float | None:
        """Largest error of `per_s` for a count that is computed from one-minute rates [1/s]."""
        ticks = whole_ticks(self._samples, name)
        return None if ticks is None else over(ticks.error, ticks.duration_s)

    def deltas(self, prefix: str) -> dict[str, float]:
        """Increase of each counter `PREFIX:PART` that the first and the last sample show."""
        return {
            name: value - self._first[name]
            for name, value in self._last.items()
            if name.startswith(f"{prefix}:") and name in self._first
        }

    def total_per_s(self, prefix: str) -> float | None:
        """Increase per second of the sum of all counters `PREFIX:PART` [1/s]."""
        grown = self.deltas(prefix)
        return over(sum(grown.values()), self.duration_s) if grown else None

    def mean(self, name: str) -> float | None:
        """Exact mean of a histogram inside the span, or None if the histogram recorded no values.

        The mean is (Mean₂·Count₂ - Mean₁·Count₁) / (Count₂ - Count₁).
        """
        return over(self.sum_delta(name), self.delta(f"{name}_count"))

    def sum_per_s(self, name: str) -> float | None:
        """Increase of a histogram's sum per second, in the histogram's unit."""
        return over(self.sum_delta(name), self.duration_s)

    def sum_delta(self, name: str) -> float | None:
        """Increase of a histogram's sum, or None if the first or the last sample does not show the
        histogram.
        """
        count, mean = f"{name}_count", f"{name}_mean"
        if any(key not in edge for key in (count, mean) for edge in (self._first, self._last)):
            return None
        grown = self._last[mean] * self._last[count] - self._first[mean] * self._first[count]
        # Count and mean are read one after the other, so a sum may seem to fall.
        return max(0.0, grown)

    @property
    def handler_idle(self) -> float | None:
        """Mean idle fraction of all request handlers [ratio]."""
        return scaled(self.per_s(HANDLER_IDLE_NS), 1e-9)

    @property
    def network_idle(self) -> float | None:
        """Idle fraction of the busiest network thread [ratio]."""
        least_ns = min(self.deltas(NETWORK_WAIT_NS).values(), default=None)
        return over(scaled(least_ns, 1e-9), self.duration_s)

    def gauges(self, name: str) -> list[float]:
        """The values of a gauge. Negative values, which mean unknown in the JVM, are left out."""
        found = (sample.values.get(name) for sample in self._samples)
        return [value for value in found if value is not None and value >= 0]

    def gauge_max(self, name: str) -> float | None:
        """The largest value of a gauge, or None if no sample shows it."""
        return max(self.gauges(name), default=None)


def over(part: float | None, whole: float | None) -> float | None:
    """The quotient `part` / `whole`, or None if one of the two values is unknown or `whole` is
    0.
    """
    return None if part is None or not whole else part / whole


def total(parts: Iterable[float | None]) -> float | None:
    """The sum of the known parts, or None if no part is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def whole(parts: Sequence[float | None]) -> float | None:
    """The sum of all parts, or None if a part is unknown or there are no parts."""
    return None if None in parts else total(parts)


def highest(values: Iterable[float | None]) -> float | None:
    """The highest known value, or None if no value is known."""
    return max((each for each in values if each is not None), default=None)


def scaled(value: float | None, factor: float) -> float | None:
    """The product of a value and a factor, or None if the value is unknown."""
    return None if value is None else value * factor


def seconds_between(first: Sample, last: Sample) -> float:
    """Time between two samples [s].

    The time is computed from the process's uptime if both samples show the uptime, because the
    uptime is read together with the counters. The wall-clock time of a sample differs by some
    milliseconds from the time at which the counters were read.
    """
    if UPTIME_MS in first.values and UPTIME_MS in last.values:
        return (last.values[UPTIME_MS] - first.values[UPTIME_MS]) / 1000.0
    return last.at_s - first.at_s


def good_samples(samples: Iterable[BrokerSample]) -> dict[int, list[BrokerSample]]:
    """Broker id → its samples without an error, in the order of time. A repeated sample counts
    once.
    """
    found: dict[int, list[BrokerSample]] = {}
    for sample in sorted(samples, key=lambda each: each.at_s):
        if sample.error is None and sample.values:
            kept = found.setdefault(sample.broker_id, [])
            if not kept or seconds_between(kept[-1], sample) != 0:
                kept.append(sample)
    return found


def isr_changed(before: BrokerSample, after: BrokerSample, at_rest: float = 0.0) -> bool:
    """True if the ISR changed between two samples, or if more partitions are under-replicated in
    the later sample than before the run.

    Args:
        before: the earlier sample of a broker.
        after: the later sample of this broker.
        at_rest: number of under-replicated partitions before the run, which the load did not cause.
    """
    moved = any(
        after.values.get(name, 0.0) != before.values.get(name, after.values.get(name, 0.0))
        for name in ("isr_shrinks", "isr_expands")
    )
    return moved or after.values.get("under_replicated_partitions", 0.0) > at_rest


def impossible_idle(broker_id: int, idle: float | None, duration_s: float) -> str | None:
    """A text if an idle fraction is too high for one pool of request handlers, or None if the
    fraction is possible.

    A wait that began before the window counts wholly, so values slightly above 1 are possible.
    """
    if idle is None or idle <= 1.1 + HANDLER_POLL_S / duration_s:
        return None
    return (
        f"broker {broker_id}: request handlers idle {idle:.2f}, above 1: the metric probably "
        f"includes a controller's handlers"
    )


def pauses(collection_ms: Mapping[str, float]) -> dict[str, float]:
    """Garbage collector → its time [ms], for the collectors that pause the threads of the program.

    The concurrent cycles of ZGC and Shenandoah do not pause the threads, so they do not count. An
    exporter may show the names of collectors in lower case.
    """
    return {name: ms for name, ms in collection_ms.items() if not name.lower().endswith("cycles")}


def standstill_s(samples: Sequence[BrokerSample], start_s: float, end_s: float) -> float | None:
    """The longest time for which the process answered no request, minus garbage collections.

    The source sends a request every 0.2 s between the samples, so the true time may be up to 0.2 s
    longer. A sample may not count the latest garbage collection yet, so the collections of the next
    sample are subtracted, too.

    Args:
        samples: samples of one broker in the order of time, including samples from before and after
            the window.
        start_s, end_s: start and end of the window [s since the epoch]. The first sample after the
            window also counts, because it covers the time since the last sample in the window.

    Returns:
        The longest time [s], or None if the source does not measure it.
    """
    found = []
    for index, sample in enumerate(samples):
        before, after = samples[max(0, index - 1)], samples[min(index + 1, len(samples) - 1)]
        if SILENT_MS in sample.values and sample.at_s >= start_s and before.at_s <= end_s:
            collected_ms = sum(pauses(Span((before, after)).deltas(GC_MS)).values())
            found.append(max(0.0, sample.values[SILENT_MS] - collected_ms) / 1000.0)
    return max(found, default=None)


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, or None if there are no values."""
    return sum(values) / len(values) if values else None


def find_contradiction(samples: Sequence[BrokerSample]) -> str | None:
    """The reason why the samples must come from at least two processes, for example because the
    broker restarted. None if all samples can come from one process.
    """
    for before, after in pairwise(samples):
        other = other_process(before, after)
        if other is not None:
            return f"broker {after.broker_id}: {other}: another process answered at its address"
        if seconds_between(before, after) < 0:
            up_s = after.values[UPTIME_MS] / 1000.0
            return f"broker {after.broker_id} restarted: its uptime fell to {up_s:.1f} s"
        if counts_restarted(before, after):
            return (
                f"broker {after.broker_id}: two successive one-minute rates contradict each other; "
                f"the broker was probably restarted"
            )
        for name in _COUNTERS:
            if name == HANDLER_IDLE_NS and CONTROLLER_HANDLER_NS in after.values:
                continue  # it is computed from the shared meter, which this loop checks, too
            old, new = before.values.get(name), after.values.get(name)
            if old is not None and new is not None and new < old:
                return f"broker {after.broker_id}: counter {name} fell from {old:.0f} to {new:.0f}"
    return None


@dataclass(frozen=True)
class RequestWindow:
    """Requests of one kind: their rate and the exact mean time of each phase.

    Kafka rounds the times of each request to whole milliseconds before it adds them up.

    Attributes:
        per_s: completed requests [1/s].
        total_ms: time from the request's arrival to the last byte of the answer [ms].
        request_queue_ms: wait for a request handler [ms].
        local_ms: time in a request handler, which includes CPU, page cache and flushes [ms].
        remote_ms: wait for followers, or for data to fetch [ms].
        throttle_ms: delay by a quota [ms].
        response_queue_ms: wait for a network thread [ms].
        response_send_ms: time to send the response [ms].
    """

    per_s: float | None = None
    total_ms: float | None = None
    request_queue_ms: float | None = None
    local_ms: float | None = None
    remote_ms: float | None = None
    throttle_ms: float | None = None
    response_queue_ms: float | None = None
    response_send_ms: float | None = None


@dataclass(frozen=True)
class BrokerWindow:
    """One broker or controller in the measured window. Unknown values are None.

    Attributes:
        broker_id: node id.
        start_s: time of the first good sample in the window [s since the epoch].
        end_s: time of the last good sample in the window [s since the epoch].
        samples_expected: number of expected samples.
        samples_missed: number of missing samples.
        edge_gap_s: largest time between an edge of the window and the nearest sample [s].
        interval_s: intended time between samples [s].
        contradiction: reason why the samples must come from at least two processes, for example
            because the broker restarted; None if all samples can come from one process.
        handler_idle: idle fraction of the request handlers [ratio]. Kafka counts a handler's wait,
            which lasts up to 0.3 s, when the wait ends. Therefore the error of the idle fraction is
            at most 0.3 s divided by the length of the window, and an idle fraction slightly above 1
            is normal.
        handler_idle_error: largest error of `handler_idle` [ratio], if one metric counts the
            broker's handlers and a controller's handlers together; otherwise None.
        handler_idle_rate_error: largest error of `handler_idle` [ratio], if `handler_idle` is
            computed from one-minute rates; None if the source reads counts. `handler_idle` has an
            error if rates are rounded, or if no sample was taken between two updates of a rate.
        ticked_s: time [s] between the first and the last update of the one-minute rates from which
            `handler_idle` is computed; None if the source reads counts.
        network_idle: idle fraction of the busiest network thread [ratio].
        request_queue_max: highest number of waiting requests in a sample [requests].
        produce: produce requests.
        fetch_consumer: fetch requests of consumers.
        fetch_follower: fetch requests of followers.
        produce_delayed_max: highest number, in a sample, of produce requests that wait for
            followers [requests].
        isr_shrinks: number of ISR shrinks [count].
        isr_expands: number of ISR expands [count].
        isr_changed_share: share of samples with under-replicated partitions, or with an ISR change
            since the previous sample [ratio].
        under_replicated_max: highest number of under-replicated partitions in a sample
            [partitions].
        replica_lag_max_records: largest lag of a follower in a sample [records].
        messages_in_per_s: messages received from producers [1/s].
        bytes_in_per_s: bytes of record batches received from producers [B/s].
        bytes_out_per_s: bytes of record batches sent to consumers [B/s].
        replication_bytes_in_per_s: bytes of record batches fetched from leaders [B/s].
        replication_bytes_out_per_s: bytes of record batches sent to followers [B/s].
        network_in_bytes_per_s: all bytes received on the sockets of the broker's listeners, which
            serve clients and followers [B/s].
        network_out_bytes_per_s: all bytes sent on the sockets of the broker's listeners [B/s].
        link_mbit_per_s: configured speed of the network interface in one direction [Mbit/s].
        failed_produce_requests_per_s: refused or failed produce requests [1/s].
        cpu_cores: CPU time of the process per second [cores].
        cpu_process_share: share of the machine's CPU time that the process used [ratio].
        cpu_machine_share: mean busy share of the machine's CPU in the samples [ratio].
        gc_share: share of the time in which garbage collection stopped the threads [ratio].
        heap_used_share_min: lowest used share of the heap in a sample [ratio]. This share is close
            to the share that garbage collections cannot free.
        heap_used_share_max: highest used share of the heap in a sample [ratio].
        flush_per_s: log flushes [1/s].
        flush_ms: exact mean time of a flush [ms].
        flush_threads: mean number of threads in a flush [threads].
        disk_read_bytes_per_s: bytes that the process read from disks [B/s].
        disk_write_bytes_per_s: bytes that the process wrote to disks [B/s].
        leader_partitions_min: lowest number of led partitions in a sample [partitions].
        leader_partitions_max: highest number of led partitions in a sample [partitions].
        offline_replicas_max: highest number of replicas on failed disks in a sample [replicas].
        fenced_brokers_max: highest number of fenced brokers in a sample of a controller [brokers].
        controller_elections: increase of the controller's epoch, at least 1 for each election
            [count].
        standstill_s: longest time for which the process answered no request, minus garbage
            collections [s].
    """

    broker_id: int
    start_s: float | None
    end_s: float | None
    interval_s: float
    samples_expected: int
    samples_missed: int
    edge_gap_s: float | None = None
    contradiction: str | None = None
    handler_idle: float | None = None
    handler_idle_error: Annotated[float | None, NO_COLUMN] = None
    network_idle: float | None = None
    request_queue_max: float | None = None
    produce: RequestWindow = RequestWindow()
    fetch_consumer: RequestWindow = RequestWindow()
    fetch_follower: RequestWindow = RequestWindow()
    produce_delayed_max: float | None = None
    isr_shrinks: float | None = None
    isr_expands: float | None = None
    isr_changed_share: float | None = None
    under_replicated_max: float | None = None
    replica_lag_max_records: float | None = None
    messages_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    replication_bytes_in_per_s: float | None = None
    replication_bytes_out_per_s: float | None = None
    network_in_bytes_per_s: float | None = None
    network_out_bytes_per_s: float | None = None
    link_mbit_per_s: float | None = None
    failed_produce_requests_per_s: float | None = None
    cpu_cores: float | None = None
    cpu_process_share: float | None = None
    cpu_machine_share: float | None = None
    gc_share: float | None = None
    heap_used_share_min: float | None = None
    heap_used_share_max: float | None = None
    flush_per_s: float | None = None
    flush_ms: float | None = None
    flush_threads: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    leader_partitions_min: float | None = None
    leader_partitions_max: float | None = None
    offline_replicas_max: float | None = None
    fenced_brokers_max: float | None = None
    controller_elections: float | None = None
    standstill_s: float | None = None
    handler_idle_rate_error: float | None = None
    ticked_s: float | None = None

    @property
    def idle_error(self) -> float:
        """Largest error of `handler_idle` [ratio]: the sum of the error from a shared metric and
        the error from one-minute rates.
        """
        return (self.handler_idle_error or 0.0) + (self.handler_idle_rate_error or 0.0)

    @property
    def missed_share(self) -> float:
        """Number of missing samples, divided by the number of expected samples [ratio]."""
        return self.samples_missed / self.samples_expected if self.samples_expected else 1.0


def broker_window(
    samples: Iterable[BrokerSample],
    broker_id: int,
    start_s: float,
    end_s: float,
    interval_s: float,
    under_replicated_at_rest: float = 0.0,
) -> BrokerWindow:
    """The window of one broker between two times.

    Args:
        samples: samples of any brokers in any order, also from before and after the window.
        broker_id: node id of the broker.
        start_s, end_s: the measured window [s since the epoch].
        interval_s: intended time between samples [s].
        under_replicated_at_rest: number of under-replicated partitions before the run.
    """
    own = [each for each in samples if each.broker_id == broker_id]
    good = good_samples(own).get(broker_id, [])
    inside = [sample for sample in good if start_s <= sample.at_s <= end_s]
    expected = max(2, int((end_s - start_s) / interval_s + 1e-9))
    missed = max(0, expected - len(inside))
    window = BrokerWindow(broker_id, None, None, interval_s, expected, missed)
    if len(inside) < 2:
        return window
    window = replace(
        window,
        start_s=inside[0].at_s,
        end_s=inside[-1].at_s,
        edge_gap_s=max(inside[0].at_s - start_s, end_s - inside[-1].at_s),
        # A restart before the window also counts, because leaders moved and the JVM is cold.
        contradiction=find_contradiction([each for each in good if each.at_s <= end_s]),
    )
    if window.contradiction is not None:
        return window
    at_rest = {broker_id: under_replicated_at_rest}
    return replace(
        _measured(window, inside),
        isr_changed_share=any_isr_changed_share(own, (broker_id,), start_s, end_s, at_rest),
        standstill_s=standstill_s(good, start_s, end_s),
    )


def _measured(window: BrokerWindow, inside: Sequence[BrokerSample]) -> BrokerWindow:
    span = Span(inside)
    gc_ms = pauses(span.deltas(GC_MS))
    heap = [
        sample.values["heap_used_bytes"] / sample.values["heap_max_bytes"]
        for sample in inside
        if "heap_used_bytes" in sample.values and sample.values.get("heap_max_bytes", 0) > 0
    ]
    cpu_cores = scaled(span.per_s("process_cpu_ns"), 1e-9)
    leaders = span.gauges("leader_partitions")
    rates: dict[str, Any] = {f"{each}_per_s": span.per_s(each) for each in _RATES}
    requests: dict[str, Any] = {
        kind: RequestWindow(
            span.per_s(f"{kind}_total_ms_count"),
            **{f"{phase}_ms": span.mean(f"{kind}_{phase}_ms") for phase in PHASES},
        )
        for kind in REQUESTS
    }
    return replace(
        window,
        contradiction=impossible_idle(window.broker_id, span.handler_idle, span.duration_s),
        handler_idle=span.handler_idle,
        handler_idle_error=scaled(span.per_s(CONTROLLER_HANDLER_NS), 0.5e-9),
        network_idle=span.network_idle,
        request_queue_max=span.gauge_max("request_queue_size"),
        **requests,
        **rates,
        produce_delayed_max=span.gauge_max("produce_delayed"),
        isr_shrinks=span.delta("isr_shrinks"),
        isr_expands=span.delta("isr_expands"),
        under_replicated_max=span.gauge_max("under_replicated_partitions"),
        replica_lag_max_records=span.gauge_max("replica_max_lag_records"),
        network_in_bytes_per_s=span.total_per_s(NETWORK_IN_BYTES),
        network_out_bytes_per_s=span.total_per_s(NETWORK_OUT_BYTES),
        cpu_cores=cpu_cores,
        cpu_process_share=over(cpu_cores, span.gauge_max("processors")),
        cpu_machine_share=mean(span.gauges("machine_cpu_share")[1:]),
        gc_share=over(sum(gc_ms.values()) / 1000.0, span.duration_s) if gc_ms else None,
        heap_used_share_min=min(heap, default=None),
        heap_used_share_max=max(heap, default=None),
        flush_per_s=span.per_s("log_flush_ms_count"),
        flush_ms=span.mean("log_flush_ms"),
        flush_threads=scaled(span.sum_per_s("log_flush_ms"), 1e-3),
        leader_partitions_min=min(leaders, default=None),
        leader_partitions_max=max(leaders, default=None),
        offline_replicas_max=span.gauge_max("offline_replicas"),
        fenced_brokers_max=span.gauge_max("fenced_brokers"),
        controller_elections=span.delta(CONTROLLER_EPOCH),
        handler_idle_rate_error=scaled(span.error_per_s(HANDLER_IDLE_NS), 1e-9),
        ticked_s=span.ticked_s(HANDLER_IDLE_NS),
    )


def broker_windows(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    start_s: float,
    end_s: float,
    interval_s: float,
    link_mbit_per_s: float | None = None,
    at_rest: Mapping[int, float] | None = None,
) -> tuple[BrokerWindow, ...]:
    """The windows of all nodes, including nodes without a good sample.

    Args:
        samples: samples of any brokers in any order.
        broker_ids: node ids of the windows.
        start_s, end_s: the measured window [s since the epoch].
        interval_s: intended time between samples [s].
        link_mbit_per_s: configured speed of the nodes' network interfaces, or None if unknown.
        at_rest: broker id → number of under-replicated partitions before the run.
    """
    baseline, good, span = at_rest or {}, good_samples(samples), (start_s, end_s, interval_s)
    return tuple(
        replace(
            broker_window(good.get(each, ()), each, *span, baseline.get(each, 0.0)),
            link_mbit_per_s=link_mbit_per_s,
        )
        for each in sorted(broker_ids)
    )


def busiest_of(windows: Iterable[BrokerWindow]) -> BrokerWindow | None:
    """The broker whose request handlers have the least idle time, or None if no broker shows the
    idle time.
    """
    known = [(w.handler_idle, w.broker_id, w) for w in windows if w.handler_idle is not None]
    return min(known, key=lambda each: each[:2])[2] if known else None


def any_isr_changed(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    start_s: float,
    end_s: float,
    at_rest: Mapping[int, float] | None = None,
) -> list[bool]:
    """For each sampling time in the window, whether any broker shows an ISR change.

    Under-replicated partitions count as an ISR change. The broker with the most samples determines
    the sampling times. A sample of any other broker belongs to the nearest sampling time, because
    all brokers are sampled within some milliseconds.

    Args:
        samples: samples of any brokers in any order.
        broker_ids: ids of the brokers.
        start_s, end_s: the window [s since the epoch].
        at_rest: broker id → number of under-replicated partitions before the run.

    Returns:
        One value for each sampling time. The list is empty if no broker shows its under-replicated
        partitions.
    """
    baseline, good = at_rest or {}, good_samples(samples)
    found: list[list[tuple[float, bool]]] = []
    for broker_id in broker_ids:
        known = [
            each
            for each in good.get(broker_id, ())
            if "under_replicated_partitions" in each.values and each.at_s <= end_s
        ]
        pairs = pairwise([*known[:1], *known])
        own = baseline.get(broker_id, 0.0)
        found.append([(b.at_s, isr_changed(a, b, own)) for a, b in pairs if b.at_s >= start_s])
    moments = [at_s for at_s, _ in max(found, key=len, default=[])]
    changed = {_nearest(moments, at_s) for each in found for at_s, is_changed in each if is_changed}
    return [each in changed for each in moments]


def any_isr_changed_share(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    start_s: float,
    end_s: float,
    at_rest: Mapping[int, float] | None = None,
) -> float | None:
    """The share of the sampling times at which any broker shows an ISR change [ratio]. See
    `any_isr_changed`.
    """
    return mean(any_isr_changed(samples, broker_ids, start_s, end_s, at_rest))


def _nearest(moments: Sequence[float], at_s: float) -> float:
    """The nearest of the ordered moments, or the earlier of two equally near moments."""
    after = bisect_left(moments, at_s)
    around = moments[max(0, after - 1) : after + 1]
    return min(around, key=lambda moment: abs(moment - at_s))
