"""How many times today's traffic fits into the limit, for each broker and each resource.

Today's use U of a resource is the sum of a use R without traffic and a use that grows with the
traffic. If the resource is exhausted at a use of C, brokers can carry (C - R) / (U - R) times
today's traffic. If a run measured the limit, C is known for the limiting resource: its use at the
limit. With a measured limit, the interval of the answer is computed from the limit's interval.

A second method divides the bytes per second at the limit by today's bytes per second. If the
metrics do not show the use of any resource, the second method alone gives the answer. A limit
between two measured message sizes is interpolated with a cost for each message and a cost for each
byte (`metrics.planning.provisioning`). Message sizes are stored sizes: after compression, and with
the overhead of records and batches. If a run's brokers do not report stored sizes,
`metrics.planning.load_needs` calculates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from metrics.comparing.effects import student_quantile
from metrics.features.headroom.limits import (
    BEND_OF_DISKS,
    BYTES_PER_S,
    RATIO,
    REST_PRIOR,
    Key,
    Line,
    ResourceLoad,
    RunLimit,
    Today,
    TrafficLimit,
    fit_line,
)
from metrics.judging.thresholds import Indicators
from metrics.planning.provisioning import MeasuredLimit, limit_at
from metrics.tables.rows import ResourceHeadroom
from metrics.units import UNKNOWN, format_mb_per_s, format_ratio, format_size
from metrics.windows.broker import HANDLER_POLL_S, BrokerWindow
from metrics.windows.use import Resource
from search.model import LEVEL

TIMES_MAX = 100.0
"""Highest ratio of a resource's limit to its use today. At a higher ratio, the use cannot be
distinguished from zero.
"""
UNMEASURED_LOW, UNMEASURED_HIGH = 0.5 / 0.8, 1.0 / 0.8
"""If no run measured the limit, a resource is exhausted between these multiples of its threshold
[ratio]. Measured limits lie at 50 % to 100 % use of the request handlers, and the threshold of the
request handlers' use is 80 %.
"""
_TAIL = (1.0 + LEVEL) / 2.0


@dataclass(frozen=True)
class Capacity:
    """The capacity of a resource of one broker.

    Attributes:
        at_rest: use of the resource without traffic [unit of the use].
        rest_error: standard deviation of `at_rest`.
        limit: use at which the resource is exhausted.
        limit_error: standard deviation of `limit`.
        low, high: ends of the limit's 90 % interval, divided by the best estimate of the limit
            [ratio].
        counts: whether the answer depends on this resource.
        bend: error that arises because the use is not an exact linear function of the load. The
            error is half of the 90 % interval of ln(answer), divided by ln(answer) [ratio].
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
        rows: one row for each resource of each broker; the resource that is exhausted first comes
            first.
        times, times_low, times_high: how many times today's traffic fits, with the ends of the 90 %
            interval.
        is_estimate: whether the limit is estimated from thresholds, because no run measured it.
        assumption: the assumptions, as one sentence.
        notes: warnings about the answer, one sentence each.
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
        """The row of the resource that is exhausted first."""
        return self.rows[0]


def measured_capacity(measured: RunLimit, broker_id: int, load: ResourceLoad) -> Capacity | None:
    """The capacity of a resource according to a run; None if this resource did not limit the run
    and has no threshold.
    """
    line = measured.line_of(broker_id, load.key)
    rest = Line(0.0, 0.0, 0.0, 0.0) if line is None else line
    if line is not None and load.key == (measured.binding or (Resource.REQUEST_HANDLERS, RATIO)):
        return Capacity(
            rest.at_rest, rest.rest_error, line.at_load, line.load_error,
            measured.low, measured.high, bend=measured.bend,
        )  # fmt: skip
    if load.most is None:
        return None
    # The run may have used more than the threshold, although this resource was not the limit.
    return Capacity(rest.at_rest, rest.rest_error, max(load.most, rest.at_load), bend=measured.bend)


def row_of(
    broker_id: int, load: ResourceLoad, capacity: Capacity, error: float
) -> ResourceHeadroom:
    """How many times today's traffic fits into one resource of one broker, with the 90 % interval.

    Args:
        error: half of the 90 % interval of the use, from the scatter of the readings [unit of the
            use].
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
    # The error of a small use is many times the use, so it is added and not multiplied.
    most, least = grows + error, max(grows - error, free / TIMES_MAX)
    down = math.hypot(spread, math.log(most / grows), math.log(capacity.low or 1e-9))
    up = math.hypot(spread, math.log(max(1.0, grows / least)), math.log(capacity.high))
    return replace(
        row, times=times, times_low=times * math.exp(-down), times_high=times * math.exp(up)
    )


Parts = Sequence[Mapping[int, Mapping[Key, ResourceLoad]]]
"""For each part of the window: broker id → resource → its use."""


def scatter_error(today: Today, parts: Parts, broker_id: int, key: Key) -> float:
    """Half of the 90 % interval of a resource's use. The interval is computed from two errors: the
    scatter of the use between the parts of the window, and the polling error.
    """
    seen = [part[broker_id][key].used for part in parts if key in part.get(broker_id, {})]
    found = 0.0
    if len(seen) > 1:
        found = student_quantile(_TAIL, len(seen) - 1) * stdev(seen) / math.sqrt(len(seen))
    if key[0] is Resource.REQUEST_HANDLERS:
        window = next(each for each in today.whole.brokers if each.broker_id == broker_id)
        edge = HANDLER_POLL_S / 2.0 / max(1.0, today.end_s - today.start_s)
        found = math.hypot(found, edge + window.idle_error)
    return found


def _rows(
    today: Today,
    limits: Indicators,
    capacity_of: Callable[[int, ResourceLoad, Parts], Capacity | None],
) -> list[ResourceHeadroom]:
    """The rows of all brokers and resources whose capacity is known."""
    parts = today.parts_of(limits)
    return [
        row_of(broker, load, capacity, scatter_error(today, parts, broker, key))
        for broker, loads in today.loads(limits).items()
        for key, load in loads.items()
        if (capacity := capacity_of(broker, load, parts)) is not None
    ]


def ordered(rows: Sequence[ResourceHeadroom]) -> tuple[ResourceHeadroom, ...]:
    """The rows in the order in which the resources are exhausted. Rows on which the answer does not
    depend come last.
    """

    def place(row: ResourceHeadroom) -> tuple[bool, float, int]:
        times = math.inf if row.times is None else row.times
        return not (row.counts and row.times is not None), times, row.broker_id

    return tuple(sorted(rows, key=place))


def answer_of(
    rows: Sequence[ResourceHeadroom], *, is_estimate: bool, notes: Sequence[str] = ()
) -> Answer | None:
    """The lowest headroom of any resource of any broker, with the interval of this headroom.

    The result is None if no row with `counts` has a value of `times`.
    """
    known = [row for row in rows if row.counts and row.times is not None]
    if not known:
        return None
    # The minimum of several values is at most the lowest upper end, and at least the lowest lower
    # end.
    return Answer(
        ordered(rows),
        min(row.times for row in known if row.times is not None),
        min(row.times_low for row in known if row.times_low is not None),
        min(row.times_high for row in known if row.times_high is not None),
        is_estimate,
        ASSUMES_THRESHOLDS if is_estimate else ASSUMES_RUN,
        tuple(notes),
    )


MEASURED_TRAFFIC = "measured traffic"
"""Resource name of the rows that compare today's bytes per second with the measured limit."""
SIZES_ALIKE = 0.1
"""Two message sizes count as equal if they differ by at most this much [ratio]."""
FULLNESS_APART = 2.0
"""Today's requests and the run's requests can contain different numbers of messages. If the two
numbers of messages per request differ by more than this factor, a comparison by bytes misleads
[ratio].
"""
_DISAGREES = 1.25
"""The headroom is computed in two ways: from bytes per second, and from the use of resources. If
the two results differ by more than this factor, the answer has a note [ratio].
"""


def limit_for_size(points: Sequence[TrafficLimit], stored_bytes: float) -> tuple[float, str]:
    """Two values for messages of the given stored size. The first value is the traffic of a broker
    at the limit [B/s]. The second value is a note that explains how the limit was computed from
    measured message sizes. The note is empty if this message size was measured.

    Args:
        points: the limits at the measured sizes; at least one.
        stored_bytes: stored size of a message, including its share of the batch header [B].
    """
    nearest = min(points, key=lambda each: abs(each.stored_bytes - stored_bytes))
    if abs(nearest.stored_bytes / stored_bytes - 1.0) <= SIZES_ALIKE:
        return nearest.bytes_per_s, ""
    sizes = [each.stored_bytes for each in points]
    size, measured = format_size(round(stored_bytes)), format_size(round(nearest.stored_bytes))
    if not min(sizes) < stored_bytes < max(sizes):
        smaller = stored_bytes < nearest.stored_bytes
        rate = nearest.messages_per_s * stored_bytes if smaller else nearest.bytes_per_s
        return rate, (
            f"messages are {size} in the brokers' logs and {measured} in the nearest measurement; "
            f"both sizes are assumed to have the same limit in "
            f"{'messages' if smaller else 'bytes'}/s"
        )
    line = [
        MeasuredLimit(max(1, round(each.stored_bytes)), each.bytes_per_s / 1e6) for each in points
    ]
    found, _ = limit_at(line, round(stored_bytes))
    return found.mb_per_s * 1e6, (
        f"messages are {size} in the brokers' logs, which is between two measured sizes; the limit "
        "is interpolated with a cost for each message and a cost for each byte"
    )


def traffic_rows(
    today: Today, measured: RunLimit, points: Sequence[RunLimit], *, counts: bool
) -> tuple[list[ResourceHeadroom], list[str]]:
    """The rows that compare each broker's traffic with the measured limit, and notes on these rows.

    Args:
        measured: the limit at the message size that is nearest to today's mean size.
        points: the limits at all message sizes.
        counts: whether the answer depends on these rows.
    """
    limits = [each.traffic for each in points if each.traffic is not None]
    rows: list[ResourceHeadroom] = []
    notes: list[str] = []
    for window in today.whole.brokers if limits else ():
        taken, messages = window.bytes_in_per_s, window.messages_in_per_s
        if not taken or not messages:
            continue
        most, note = limit_for_size(limits, taken / messages)
        # One note is enough for all brokers: their sizes differ only in the last digits.
        if note and not notes:
            notes.append(note)
        load = ResourceLoad(Resource.UNKNOWN, BYTES_PER_S, taken)
        capacity = Capacity(0.0, 0.0, most, 0.0, measured.low, measured.high, counts)
        row = row_of(window.broker_id, load, capacity, 0.0)
        rows.append(replace(row, resource=MEASURED_TRAFFIC))
    if measured.traffic is not None:
        notes += _fullness_notes(today.whole.brokers, measured.traffic)
    return rows, notes


def _fullness_notes(brokers: Sequence[BrokerWindow], limit: TrafficLimit) -> Iterator[str]:
    """A warning if today's requests contain many more or many fewer messages than the requests at
    the limit; otherwise empty.
    """
    messages = sum(each.messages_in_per_s or 0.0 for each in brokers)
    requests = sum(each.produce.per_s or 0.0 for each in brokers)
    if not (limit.requests_per_s and requests):
        return
    then, now = limit.messages_per_s / limit.requests_per_s, messages / requests
    if not 1 / FULLNESS_APART <= now / then <= FULLNESS_APART:
        yield (
            f"a request has {now:.3g} messages today and {then:.3g} in the run, so a comparison by "
            "bytes misleads; the answer is computed from the use of the resources instead"
        )


def disagreement(by_use: float, rows: Sequence[ResourceHeadroom]) -> str:
    """A note if the bytes per second give another headroom than the use of resources; otherwise an
    empty text.
    """
    times = [row.times for row in rows if row.times is not None]
    if not times or 1 / _DISAGREES <= min(times) / by_use <= _DISAGREES:
        return ""
    share = format_ratio(min(times) / by_use)
    return (
        f"by bytes/s alone, the limit is {min(times):.1f} times today's traffic, which is {share} "
        "of the answer: the brokers' cost per byte today differs from the cost per byte in the run"
    )


ASSUMES_RUN = (
    "today's traffic grows evenly, with the topics, message sizes, batches and consumers of this "
    "window, and each resource's use grows in proportion to the traffic"
)
ASSUMES_THRESHOLDS = (
    "each resource's use grows in proportion to the traffic; no run measured the limit, so the "
    "interval assumes that a resource is exhausted at 62 % to 125 % of its threshold"
)


def nearest_limit(today: Today, points: Sequence[RunLimit]) -> RunLimit:
    """The limit at the message size that is nearest to today's mean stored size."""
    taken = sum(each.bytes_in_per_s or 0.0 for each in today.whole.brokers)
    messages = sum(each.messages_in_per_s or 0.0 for each in today.whole.brokers)
    known = [(each.traffic.stored_bytes, each) for each in points if each.traffic is not None]
    if not (taken and messages and known):
        return points[0]
    return min(known, key=lambda each: abs(math.log(taken / messages / each[0])))[1]


def hold_against_run(today: Today, points: Sequence[RunLimit], limits: Indicators) -> Answer | None:
    """How many times today's traffic fits into the limit of a run.

    The answer is None if the use of every resource is too small to be distinguished from zero.

    Args:
        points: the limits of the run, at least one.
        limits: the thresholds of the goal.
    """
    measured = nearest_limit(today, points)
    rows = _rows(today, limits, lambda broker, load, _: measured_capacity(measured, broker, load))
    is_by_traffic = not any(row.counts and row.times is not None for row in rows)
    by_traffic, notes = traffic_rows(today, measured, points, counts=is_by_traffic)
    notes += _notes_on(measured, today)
    answer = answer_of([*rows, *by_traffic], is_estimate=False, notes=notes)
    if answer is None or is_by_traffic:
        return answer
    other = disagreement(answer.times, by_traffic)
    return replace(answer, notes=(*answer.notes, other)) if other else answer


def hold_against_thresholds(today: Today, limits: Indicators) -> Answer | None:
    """The headroom until a resource's use reaches its threshold. The interval of this headroom is
    wide, because no run measured the limit.
    """
    rates = [
        {each.broker_id: each.bytes_in_per_s or 0.0 for each in part.brokers}
        for part in (today.whole, *today.parts)
    ]

    def capacity(broker: int, load: ResourceLoad, parts: Parts) -> Capacity | None:
        if load.most is None:
            return None
        curve = [
            (rate[broker], part[broker][load.key].used)
            for rate, part in zip(rates[1:], parts, strict=True)
            if load.key in part.get(broker, {}) and broker in rate
        ]
        line = fit_line(curve, rates[0][broker])
        if line is None:
            line = Line(0.0, load.used, REST_PRIOR * load.used, 0.0)
        return Capacity(
            line.at_rest, line.rest_error, load.most, 0.0, UNMEASURED_LOW, UNMEASURED_HIGH,
            bend=BEND_OF_DISKS,
        )  # fmt: skip

    return answer_of(_rows(today, limits, capacity), is_estimate=True)


def _notes_on(measured: RunLimit, today: Today) -> Iterator[str]:
    if measured.is_doubtful:
        yield (
            f"the limit at {format_size(measured.message_bytes)} is doubtful: its interval is "
            "wider than the goal accepts; measure it again"
        )
    if measured.binding is None:
        named = "an unknown resource" if measured.limited_by is None else measured.limited_by.value
        yield (
            f"the run was limited by {named}, whose use does not grow with the traffic; the "
            "request handlers' use at the limit replaces it"
        )
    ids = [each.broker_id for each in today.whole.brokers]
    if unknown := [str(each) for each in ids if each not in measured.lines]:
        yield (
            f"the run had no broker {', '.join(unknown)}; the mean of the run's brokers replaces "
            "its readings"
        )


COLUMNS = ("broker", "resource", "used", "at rest", "limit", "times", "at 90 %")
ROWS_MAX = 40
"""Maximum number of rows of a table on the terminal. A longer table shows only the broker with the
least headroom for each resource.
"""


def times_words(times: float | None) -> str:
    """A headroom factor as text, such as `3.2` or `0.95`; `over 100` for None."""
    if times is None:
        return "over 100"
    return f"{times:.2f}" if times < 2 else f"{times:.1f}" if times < 20 else f"{times:.0f}"


def answer_words(answer: Answer) -> str:
    """The answer as a sentence without a full stop."""
    first = answer.first
    span = f"{times_words(answer.times_low)} to {times_words(answer.times_high)}"
    kind = "estimated from thresholds, without a run: " if answer.is_estimate else ""
    beyond = "; today's traffic exceeds the limit" if answer.times < 1 else ""
    return (
        f"{kind}{times_words(answer.times)} times today's traffic fits ({span} at 90 %); "
        f"the first exhausted resource is broker {first.broker_id}'s {first.resource}{beyond}"
    )


def table_rows(answer: Answer) -> tuple[tuple[str, ...], ...]:
    """The table rows for a terminal. A table that would have too many rows shows only the broker
    with the least headroom for each resource.
    """
    shown: Sequence[ResourceHeadroom] = answer.rows
    if len(shown) > ROWS_MAX:
        tightest: dict[str, ResourceHeadroom] = {}
        for row in shown:
            tightest.setdefault(row.resource, row)
        shown = list(tightest.values())
    return tuple(_row(each) for each in shown)


def _row(row: ResourceHeadroom) -> tuple[str, ...]:
    span = UNKNOWN
    if row.times_low is not None and row.times_high is not None:
        span = f"{times_words(row.times_low)} to {times_words(row.times_high)}"
    uses = (_use(each, row.unit) for each in (row.used, row.at_rest, row.limit))
    name = row.resource if row.counts else f"({row.resource})"
    return (str(row.broker_id), name, *uses, times_words(row.times), span)


def _use(use: float, unit: str) -> str:
    return format_ratio(use) if unit == RATIO else f"{format_mb_per_s(use / 1e6)} MB/s"
