"""Latencies and failures at each broker, measured by the canary: a small client that runs beside
the load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from metrics.common.grouping import grouped

SLICE_S = 1.0
"""Length of a slice of a window [s]."""
REST_LEAST = 4
"""The p99 of a broker at rest is computed only if the broker acknowledged at least this many
records before the run.
"""
FAILED_RISE_MAX = 0.1
"""Clients of a broker count as failing if the share of failed records exceeds the share before the
run by more than this value [ratio].
"""


@dataclass(frozen=True)
class CanaryTime:
    """One record of the canary.

    Attributes:
        broker_id: the leader of the record's partition.
        sent_s: when the record was sent [s since the epoch].
        acked_ms: time from the send to the acknowledgement or, for an unacknowledged record, until
            now [ms].
        read_ms: time until the record was read back [ms]; None if the record is not read yet.
        has_failed: whether the record was refused or lost; `acked_ms` is then the time until this
            failure.
    """

    broker_id: int
    sent_s: float
    acked_ms: float
    read_ms: float | None = None
    has_failed: bool = False


@dataclass(frozen=True)
class CanaryWindow:
    """Latencies and failures of the canary at one broker in a window; unknown values are NaN.

    Attributes:
        broker_id: id of the broker.
        records: records sent in the window.
        p50_ms: median time to the acknowledgement.
        p99_ms: 99th percentile of the time to the acknowledgement.
        max_ms: longest time to an acknowledgement.
        read_p99_ms: 99th percentile of the time until a record is read back.
        at_rest_p99_ms: like `p99_ms`, for records before the run.
        over_time_p99_ms: like `p99_ms`, for each slice of one second; NaN in slices without
            records.
        failed: number of records that were refused or lost. The times do not include these records.
    """

    broker_id: int
    records: int = 0
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    max_ms: float = math.nan
    read_p99_ms: float = math.nan
    at_rest_p99_ms: float = math.nan
    over_time_p99_ms: tuple[float, ...] = ()
    failed: int = 0


def p99_ms(times_ms: Sequence[float]) -> float:
    """The 99th percentile of the times; NaN if there are no times."""
    return sorted(times_ms)[math.ceil(0.99 * (len(times_ms) - 1))] if times_ms else math.nan


def canary_windows(
    times: Iterable[CanaryTime], start_s: float, end_s: float, at_rest: Iterable[CanaryTime] = ()
) -> tuple[CanaryWindow, ...]:
    """The canary's window of each broker.

    Args:
        times: the send time and the latencies of each record of the canary.
        start_s, end_s: start and end of the window [s since the epoch].
        at_rest: records that were sent before the run.
    """
    window = [each for each in times if start_s <= each.sent_s < end_s]
    own, rest = _by_broker(window), _by_broker(at_rest)
    return tuple(
        _window(broker, own.get(broker, []), _acked_ms(rest.get(broker, [])), start_s, end_s)
        for broker in sorted({*own, *rest})
    )


def _by_broker(times: Iterable[CanaryTime]) -> dict[int, list[CanaryTime]]:
    return grouped((each.broker_id, each) for each in times)


def _acked_ms(times: Iterable[CanaryTime]) -> list[float]:
    return [each.acked_ms for each in times if not each.has_failed]


def _window(
    broker_id: int,
    own: Sequence[CanaryTime],
    rest_ms: Sequence[float],
    start_s: float,
    end_s: float,
) -> CanaryWindow:
    acked_ms = _acked_ms(own)
    read_ms = [each.read_ms for each in own if each.read_ms is not None]
    by_slice = grouped((int((each.sent_s - start_s) / SLICE_S), each) for each in own)
    slices = range(max(0, math.ceil((end_s - start_s) / SLICE_S)))
    return CanaryWindow(
        broker_id,
        len(own),
        median(acked_ms) if acked_ms else math.nan,
        p99_ms(acked_ms),
        max(acked_ms, default=math.nan),
        p99_ms(read_ms),
        p99_ms(rest_ms),
        tuple(p99_ms(_acked_ms(by_slice.get(each, ()))) for each in slices),
        len(own) - len(acked_ms),
    )


@dataclass(frozen=True)
class CanaryReading:
    """Latency and failures of the canary at a broker in the last seconds.

    Attributes:
        broker_id: id of the broker.
        p99_ms: 99th percentile of the time from the send to the acknowledgement, for the most
            recent records; NaN if no record was acknowledged.
        at_rest_p99_ms: like `p99_ms`, for records before the run.
        failed_share: share of the most recent records that failed [ratio].
        at_rest_failed_share: like `failed_share`, for records before the run [ratio].
    """

    broker_id: int
    p99_ms: float
    at_rest_p99_ms: float
    failed_share: float = 0.0
    at_rest_failed_share: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether the share of failed records is clearly higher than before the run."""
        return self.failed_share > self.at_rest_failed_share + FAILED_RISE_MAX

    def is_beyond(self, most_ms: float, rise_max: float) -> bool:
        """Whether clients fail or wait too long. A wait is too long if it exceeds `most_ms`, and
        also exceeds `rise_max` times the wait before the run.

        Args:
            most_ms: longest accepted p99 [ms].
            rise_max: highest accepted p99, as a multiple of the p99 before the run [ratio].
        """
        return self.fails or self.p99_ms > max(most_ms, rise_max * self.at_rest_p99_ms)

    @property
    def words(self) -> str:
        """A sentence about the failures of the broker's clients. If no client fails, the sentence
        is about the waits of the clients.
        """
        if self.fails:
            return (
                f"{self.failed_share:.0%} of the canaries' records to broker {self.broker_id} "
                f"fail, compared with {self.at_rest_failed_share:.0%} before the run"
            )
        return (
            f"clients of broker {self.broker_id} wait {self.p99_ms:,.0f} ms (p99 of the canaries), "
            f"compared with {self.at_rest_p99_ms:,.0f} ms before the run"
        )


def worst_of(
    times: Iterable[CanaryTime], at_rest: Iterable[CanaryTime], since_s: float
) -> CanaryReading | None:
    """The reading of the broker whose clients fail; if no clients fail, the reading of the broker
    whose clients wait longest.

    Args:
        times: all records of the canary.
        at_rest: records that were sent before the run.
        since_s: records that ended before this time are ignored [s since the epoch].

    Returns:
        The reading; None if no broker has enough records from before the run.
    """
    recent = _by_broker(each for each in times if each.sent_s + each.acked_ms / 1e3 >= since_s)
    rest = _by_broker(at_rest)
    found = [
        CanaryReading(
            broker, p99_ms(_acked_ms(seen)), p99_ms(rest_ms), _failed(seen), _failed(rest[broker])
        )
        for broker, seen in recent.items()
        if len(rest_ms := _acked_ms(rest.get(broker, []))) >= REST_LEAST
    ]
    return max(found, key=lambda each: (each.fails, each.p99_ms), default=None)


def _failed(times: Sequence[CanaryTime]) -> float:
    return sum(each.has_failed for each in times) / len(times)
