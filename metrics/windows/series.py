"""The samples of a trial as series over time: gauges as they are, counters as rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import Span
from metrics.windows.write_back import unwritten_bytes


@dataclass(frozen=True)
class Series:
    """A reading over time.

    Attributes:
        title: title with the unit.
        reading: name in `metrics.sources.beans`.
        scale: factor from the reading, or from the rate of a counter per second, to the unit.
        is_counter: True for a reading that only grows, which is shown as its rate.
    """

    title: str
    reading: str
    scale: float = 1.0
    is_counter: bool = False


SERIES = (
    Series("Request handlers idle [ratio]", "handler_idle_ns", 1e-9, is_counter=True),
    Series("Requests waiting", "request_queue_size"),
    Series("Bytes in [MB/s]", "bytes_in", 1e-6, is_counter=True),
    Series("Under-replicated partitions", "under_replicated_partitions"),
    Series("ISR shrinks [1/s]", "isr_shrinks", is_counter=True),
)
"""The series that the report and the notebook `trial` draw, in their order."""


UNWRITTEN = "Pages that no disk has [MB]"
"""The title of the series of hosts: written pages that only memory holds, or that are being
written to disks."""
NO_BROKER = -1


@dataclass(frozen=True)
class SeriesPoint:
    """One value of one broker or host.

    Attributes:
        title: title of its series.
        broker_id: node id; `NO_BROKER` for a host.
        elapsed_s: time since the start of the measured window [s].
        value: value in the unit of the series; for a counter, its rate since the sample before.
        host: name of the host; empty for a broker.
    """

    title: str
    broker_id: int
    elapsed_s: float
    value: float
    host: str = ""

    @property
    def name(self) -> str:
        """The name of its line: `broker 1`, or the host."""
        return self.host or f"broker {self.broker_id}"


def series_points(
    samples: Iterable[BrokerSample], brokers: Collection[int], start_s: float
) -> list[SeriesPoint]:
    """The samples of one trial as `SERIES`, by series, broker and time.

    A counter that fell because the broker restarted has no value there.

    Args:
        samples: samples of any nodes, in any order.
        brokers: ids of the brokers; controllers are left out.
        start_s: start of the measured window [s since the epoch].
    """
    own: dict[int, list[BrokerSample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda each: each.at_s):
        if sample.broker_id in brokers:
            own[sample.broker_id].append(sample)
    return [
        SeriesPoint(series.title, broker, at_s - start_s, value)
        for series in SERIES
        for broker in sorted(own)
        for at_s, value in _values(series, own[broker])
    ]


def host_series_points(
    samples: Iterable[HostSample], hosts: Collection[str], start_s: float
) -> list[SeriesPoint]:
    """The pages of each host that no disk has, by host and time.

    Args:
        samples: samples of any hosts, in any order.
        hosts: names of the brokers' hosts; others are left out.
        start_s: start of the measured window [s since the epoch].
    """
    return [
        SeriesPoint(UNWRITTEN, NO_BROKER, each.at_s - start_s, unwritten / 1e6, each.host)
        for each in sorted(samples, key=lambda one: (one.host, one.at_s))
        if each.host in hosts and (unwritten := unwritten_bytes(each)) is not None
    ]


def _values(series: Series, samples: Sequence[BrokerSample]) -> Iterator[tuple[float, float]]:
    """The (time [s since the epoch], value) of a gauge in each sample, or of a counter's rate since
    the sample before; of a count that follows from one-minute rates in each tick.
    """
    shown = [each for each in samples if series.reading in each.values]
    if not series.is_counter:
        yield from ((each.at_s, each.values[series.reading] * series.scale) for each in shown)
        return
    for before, after in pairwise(shown):
        span = Span((before, after))
        per_s = span.per_s(series.reading)
        if per_s is not None and min(span.duration_s, per_s) >= 0:
            yield after.at_s, per_s * series.scale
