"""The samples of a trial as time series. Gauges keep their values, and counters become rates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from metrics.common.grouping import grouped
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import Span
from metrics.windows.write_back import unwritten_bytes


@dataclass(frozen=True)
class Series:
    """A time series of one reading, as the report draws it.

    Attributes:
        title: title with the unit.
        reading: name of the reading in `metrics.sources.beans`.
        scale: factor that converts the reading to the unit in the title; for a counter, the factor
            converts the rate of the reading.
        is_counter: True for a counter, which is shown as its rate.
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
"""The series that the report and the notebook `trial` draw, in this order."""


UNWRITTEN = "File pages not on a disk yet [MB]"
"""Title of a series that each host has. The series shows how many bytes of file pages are only in
memory and not on a disk yet."""
NO_BROKER = -1


@dataclass(frozen=True)
class SeriesPoint:
    """One value of a series, for one broker or host.

    Attributes:
        title: title of the series.
        broker_id: node id of the broker; `NO_BROKER` if the value belongs to a host.
        elapsed_s: time since the start of the measured window [s].
        value: value in the unit of the series. For a counter, the rate since the previous sample.
        host: name of the host, or an empty text for a broker.
    """

    title: str
    broker_id: int
    elapsed_s: float
    value: float
    host: str = ""

    @property
    def name(self) -> str:
        """The name of the line in a chart: the host, or a text such as `broker 1`."""
        return self.host or f"broker {self.broker_id}"


def series_points(
    samples: Iterable[BrokerSample], brokers: Collection[int], start_s: float
) -> list[SeriesPoint]:
    """The points of all `SERIES` of a trial, ordered by series, broker and time.

    If a counter fell because the broker restarted, the series has no point at this time.

    Args:
        samples: samples of any nodes in any order.
        brokers: ids of the brokers. Samples of other nodes do not count.
        start_s: start of the measured window [s since the epoch].
    """
    ordered = sorted(samples, key=lambda each: each.at_s)
    own = grouped((each.broker_id, each) for each in ordered if each.broker_id in brokers)
    return [
        SeriesPoint(series.title, broker, at_s - start_s, value)
        for series in SERIES
        for broker in sorted(own)
        for at_s, value in _values(series, own[broker])
    ]


def host_series_points(
    samples: Iterable[HostSample], hosts: Collection[str], start_s: float
) -> list[SeriesPoint]:
    """The points of the series `UNWRITTEN`, ordered by host and time.

    Args:
        samples: samples of any hosts in any order.
        hosts: names of the brokers' hosts. Samples of other hosts do not count.
        start_s: start of the measured window [s since the epoch].
    """
    return [
        SeriesPoint(UNWRITTEN, NO_BROKER, each.at_s - start_s, unwritten / 1e6, each.host)
        for each in sorted(samples, key=lambda one: (one.host, one.at_s))
        if each.host in hosts and (unwritten := unwritten_bytes(each)) is not None
    ]


def _values(series: Series, samples: Sequence[BrokerSample]) -> Iterator[tuple[float, float]]:
    """Pairs of a time [s since the epoch] and a value, for each sample that shows the reading.

    The value of a counter is its rate since the previous sample.
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
