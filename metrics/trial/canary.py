"""What a small client beside a load sees of each broker: its canary."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

SLICE_S = 1.0
"""Length of a slice over time [s]."""
REST_LEAST = 4
"""Fewest records of a broker whose p99 at rest is known."""


@dataclass(frozen=True)
class CanaryTime:
    """One record of the canary.

    Attributes:
        broker_id: the leader of its partition.
        sent_s: when it was sent [s since the epoch].
        acked_ms: time until its acknowledgement; so far, where it has none yet.
        read_ms: time until it was read back; None where it was not read yet.
    """

    broker_id: int
    sent_s: float
    acked_ms: float
    read_ms: float | None = None


@dataclass(frozen=True)
class CanaryWindow:
    """What the canary saw of one broker in a window; unknown values are NaN.

    Attributes:
        broker_id: id of the broker.
        records: records sent in the window.
        p50_ms: time to the acknowledgement that 50 % of them do not exceed.
        p99_ms: time to the acknowledgement that 99 % of them do not exceed.
        max_ms: longest time to an acknowledgement.
        read_p99_ms: time until 99 % of them were read back.
        at_rest_p99_ms: like `p99_ms`, before the run.
        over_time_p99_ms: like `p99_ms`, by slices of a second; NaN in slices without records.
    """

    broker_id: int
    records: int = 0
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    max_ms: float = math.nan
    read_p99_ms: float = math.nan
    at_rest_p99_ms: float = math.nan
    over_time_p99_ms: tuple[float, ...] = ()


def p99_ms(times_ms: Sequence[float]) -> float:
    """The time that 99 % do not exceed; NaN without times."""
    return sorted(times_ms)[math.ceil(0.99 * (len(times_ms) - 1))] if times_ms else math.nan


def canary_windows(
    times: Iterable[CanaryTime], start_s: float, end_s: float, at_rest: Iterable[CanaryTime] = ()
) -> tuple[CanaryWindow, ...]:
    """The windows of all brokers.

    Args:
        start_s, end_s: the window [s since the epoch].
        at_rest: records before the run.
    """
    own, rest = defaultdict[int, list[CanaryTime]](list), defaultdict[int, list[float]](list)
    for each in times:
        if start_s <= each.sent_s < end_s:
            own[each.broker_id].append(each)
    for each in at_rest:
        rest[each.broker_id].append(each.acked_ms)
    return tuple(
        _window(broker, own[broker], rest[broker], start_s, end_s)
        for broker in sorted({*own, *rest})
    )


def _window(
    broker_id: int,
    own: Sequence[CanaryTime],
    rest_ms: Sequence[float],
    start_s: float,
    end_s: float,
) -> CanaryWindow:
    acked_ms = [each.acked_ms for each in own]
    read_ms = [each.read_ms for each in own if each.read_ms is not None]
    slices: list[list[float]] = [[] for _ in range(max(0, math.ceil((end_s - start_s) / SLICE_S)))]
    for each in own:
        slices[int((each.sent_s - start_s) / SLICE_S)].append(each.acked_ms)
    return CanaryWindow(
        broker_id,
        len(own),
        median(acked_ms) if acked_ms else math.nan,
        p99_ms(acked_ms),
        max(acked_ms, default=math.nan),
        p99_ms(read_ms),
        p99_ms(rest_ms),
        tuple(map(p99_ms, slices)),
    )


@dataclass(frozen=True)
class CanaryReading:
    """What the canary sees of a broker now.

    Attributes:
        broker_id: id of the broker.
        p99_ms: time to the acknowledgement that 99 % of the last records do not exceed.
        at_rest_p99_ms: the same before the run.
    """

    broker_id: int
    p99_ms: float
    at_rest_p99_ms: float

    def is_beyond(self, most_ms: float, rise_max: float) -> bool:
        """Whether clients of the broker wait longer than `most_ms`, and much longer than at rest.

        Args:
            rise_max: highest p99 over that at rest [ratio].
        """
        return self.p99_ms > max(most_ms, rise_max * self.at_rest_p99_ms)


def worst_of(
    times: Iterable[CanaryTime], at_rest: Iterable[CanaryTime], since_s: float
) -> CanaryReading | None:
    """The broker with the highest p99 since a moment; None where none has enough records at rest.

    Args:
        since_s: records count that were acknowledged later, or are not yet [s since the epoch].
    """
    recent, rest = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for each in times:
        if each.sent_s + each.acked_ms / 1000.0 >= since_s:
            recent[each.broker_id].append(each.acked_ms)
    for each in at_rest:
        rest[each.broker_id].append(each.acked_ms)
    found = [
        CanaryReading(broker, p99_ms(times_ms), p99_ms(rest[broker]))
        for broker, times_ms in recent.items()
        if len(rest[broker]) >= REST_LEAST
    ]
    return max(found, key=lambda each: each.p99_ms, default=None)
