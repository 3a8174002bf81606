"""How many times today's traffic fits, for each broker and resource, and which gives out first.

A use U of a resource is a part at rest R and a part that grows with the traffic. With C of it
there, today's traffic fits (C - R) / (U - R) times. Where a run measured the limit, C of the
limiting resource is its use there, and its interval is that of the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from metrics.comparing.quantiles import student_quantile
from metrics.headroom.limits import BEND_OF_DISKS, RunLimit
from metrics.headroom.lines import REST_PRIOR, Line, fit_line
from metrics.headroom.loads import RATIO, Key, ResourceLoad
from metrics.headroom.today import Today
from metrics.judging.thresholds import Indicators
from metrics.tables.headroom import ResourceHeadroom
from metrics.windows.resource import Resource
from metrics.windows.spans import HANDLER_POLL_S
from search.interval import LEVEL

TIMES_MAX = 100.0
"""Number of times beyond which a use cannot be distinguished from no use."""
UNMEASURED_LOW, UNMEASURED_HIGH = 0.5 / 0.8, 1.0 / 0.8
"""Ends of the interval of a limit that no run measured, over the threshold [ratio]. Runs found
limits between half of the request handlers' time in use and all of it; the threshold is 80 %."""
_TAIL = (1.0 + LEVEL) / 2.0


@dataclass(frozen=True)
class Capacity:
    """How much there is of a resource.

    Attributes:
        at_rest: use without traffic [unit of the use].
        rest_error: its standard deviation.
        limit: use at which the resource gives out.
        limit_error: its standard deviation.
        low, high: ends of the 90 % interval of the limit over its best estimate [ratio].
        counts: whether it decides the answer.
        bend: half of the 90 % interval of the logarithm of the answer for each unit of that
            logarithm, as a use is not quite a line [ratio].
    """

    at_rest: float
    rest_error: float
    limit: float
    limit_error: float = 0.0
    low: float = 1.0
    high: float = 1.0
    counts: bool = True
    bend: float = 0.0


@dataclass(frozen=True)
class Answer:
    """How many times today's traffic fits into the cluster.

    Attributes:
        rows: each resource of each broker, the first to give out first.
        times, times_low, times_high: that of the first one, with the 90 % interval.
        is_estimate: whether no run measured the limit.
        assumption: the assumptions, a sentence.
        notes: further sentences that a reader must know.
    """

    rows: tuple[ResourceHeadroom, ...]
    times: float
    times_low: float
    times_high: float
    is_estimate: bool = False
    assumption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> ResourceHeadroom:
        """The resource that gives out first."""
        return self.rows[0]


def measured_capacity(measured: RunLimit, broker_id: int, load: ResourceLoad) -> Capacity | None:
    """What a run shows of a resource; None where neither it nor a threshold shows its limit."""
    line, binding = measured.line_of(broker_id, load.key), measured.binding
    rest = Line(0.0, 0.0, 0.0, 0.0) if line is None else line
    is_fallback = binding is None and load.key == (Resource.REQUEST_HANDLERS, RATIO)
    if line is not None and (load.key == binding or is_fallback):
        return Capacity(
            rest.at_rest, rest.rest_error, line.at_load, line.load_error,
            measured.low, measured.high, bend=measured.bend,
        )  # fmt: skip
    if load.most is None:
        return None
    # The run may have used more of it than the threshold, without that being its limit.
    return Capacity(rest.at_rest, rest.rest_error, max(load.most, rest.at_load), bend=measured.bend)


def unmeasured_capacity(
    load: ResourceLoad, curve: Sequence[tuple[float, float]], rate: float
) -> Capacity | None:
    """The threshold of a resource that no run measured; None without one.

    Args:
        curve: the traffic and the use in each part of the window, or of a history.
        rate: the traffic of the window.
    """
    if load.most is None:
        return None
    line = fit_line(curve, rate)
    if line is None:
        line = Line(0.0, load.used, REST_PRIOR * load.used, 0.0)
    return Capacity(
        line.at_rest, line.rest_error, load.most, 0.0, UNMEASURED_LOW, UNMEASURED_HIGH,
        bend=BEND_OF_DISKS,
    )  # fmt: skip


def row_of(
    broker_id: int, load: ResourceLoad, capacity: Capacity, error: float
) -> ResourceHeadroom:
    """How many times the traffic of a use fits, with the interval.

    Args:
        error: half of the 90 % interval of the use, from its scatter [unit of the use].
    """
    rest = min(capacity.at_rest, load.used)
    row = ResourceHeadroom(
        broker_id, load.resource.value, load.unit, load.used, rest, capacity.limit,
        counts=capacity.counts,
    )  # fmt: skip
    free, grows = capacity.limit - rest, load.used - rest
    if free <= 0:
        return replace(row, times=0.0, times_low=0.0, times_high=0.0)
    if grows * TIMES_MAX <= free:
        return row
    deviations = student_quantile(_TAIL, math.inf)
    of_rest = deviations * capacity.rest_error * abs(1.0 / grows - 1.0 / free)
    times = free / grows
    bent = capacity.bend * abs(math.log(times))
    spread = math.hypot(deviations * capacity.limit_error / free, of_rest, bent)
    # An error of a small use is many times the use, so that it counts as a difference.
    most, least = grows + error, max(grows - error, free / TIMES_MAX)
    down = math.hypot(spread, math.log(most / grows), math.log(capacity.low or 1e-9))
    up = math.hypot(spread, math.log(max(1.0, grows / least)), math.log(capacity.high))
    return replace(
        row, times=times, times_low=times * math.exp(-down), times_high=times * math.exp(up)
    )


Parts = Sequence[Mapping[int, Mapping[Key, ResourceLoad]]]
"""The uses of all brokers in each part of the window."""


def scatter_error(today: Today, parts: Parts, broker_id: int, key: Key) -> float:
    """Half of the 90 % interval of a use: its scatter in the parts, and the windows' edges."""
    seen = [part[broker_id][key].used for part in parts if key in part.get(broker_id, {})]
    found = 0.0
    if len(seen) > 1:
        found = student_quantile(_TAIL, len(seen) - 1) * stdev(seen) / math.sqrt(len(seen))
    if key[0] is Resource.REQUEST_HANDLERS:
        window = next(each for each in today.whole.brokers if each.broker_id == broker_id)
        edge = HANDLER_POLL_S / 2.0 / max(1.0, today.end_s - today.start_s)
        found = math.hypot(found, edge + window.idle_error)
    return found


def rows_with_run(
    today: Today, measured: RunLimit, limits: Indicators
) -> Iterator[ResourceHeadroom]:
    """The rows of all brokers against the limit of a run."""
    parts = today.parts_of(limits)
    for broker_id, loads in today.loads(limits).items():
        for key, load in loads.items():
            capacity = measured_capacity(measured, broker_id, load)
            if capacity is not None:
                yield row_of(broker_id, load, capacity, scatter_error(today, parts, broker_id, key))


def rows_without_run(today: Today, limits: Indicators) -> Iterator[ResourceHeadroom]:
    """The rows of all brokers by thresholds, which no run confirmed."""
    parts, loads = today.parts_of(limits), today.loads(limits)
    rates = [{each.broker_id: each.bytes_in_per_s for each in part.brokers} for part in today.parts]
    for window in today.whole.brokers:
        broker_id = window.broker_id
        for key, load in loads[broker_id].items():
            curve = [
                (rate[broker_id] or 0.0, part[broker_id][key].used)
                for rate, part in zip(rates, parts, strict=True)
                if key in part.get(broker_id, {}) and broker_id in rate
            ]
            capacity = unmeasured_capacity(load, curve, window.bytes_in_per_s or 0.0)
            if capacity is not None:
                yield row_of(broker_id, load, capacity, scatter_error(today, parts, broker_id, key))


def ordered(rows: Sequence[ResourceHeadroom]) -> tuple[ResourceHeadroom, ...]:
    """The rows in the order in which they give out; those that do not count are last."""

    def place(row: ResourceHeadroom) -> tuple[bool, float, int]:
        times = math.inf if row.times is None else row.times
        return not (row.counts and row.times is not None), times, row.broker_id

    return tuple(sorted(rows, key=place))


def answer_of(
    rows: Sequence[ResourceHeadroom], *, is_estimate: bool, assumption: str, notes: Sequence[str]
) -> Answer | None:
    """The answer of all rows; None where no row that counts has a number."""
    known = [row for row in rows if row.counts and row.times is not None]
    if not known:
        return None
    # The least of several is at most as high as the lowest upper end, and may be any lower end.
    return Answer(
        ordered(rows),
        min(row.times for row in known if row.times is not None),
        min(row.times_low for row in known if row.times_low is not None),
        min(row.times_high for row in known if row.times_high is not None),
        is_estimate,
        assumption,
        tuple(notes),
    )
