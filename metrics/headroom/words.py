"""The answer in words: how many times today's traffic fits, what gives out first, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from metrics.headroom.answer import Answer
from metrics.headroom.growth import DAYS_LEAST, Growth
from metrics.headroom.loads import RATIO
from metrics.tables.headroom import ResourceHeadroom
from metrics.units import UNKNOWN, format_mb_per_s, format_ratio

COLUMNS = ("broker", "resource", "used", "at rest", "gives out at", "times", "at 90 %")
ROWS_MAX = 40
"""Number of rows of a terminal's table; of more, the tightest of each resource are shown."""


def times_words(times: float | None) -> str:
    """A number of times, such as `3.2` or `0.95`."""
    if times is None:
        return "over 100"
    return f"{times:.2f}" if times < 2 else f"{times:.1f}" if times < 20 else f"{times:.0f}"


def answer_words(answer: Answer) -> str:
    """The answer in a sentence without its full stop."""
    first = answer.first
    span = f"{times_words(answer.times_low)} to {times_words(answer.times_high)}"
    kind = "estimated from thresholds, without a run: " if answer.is_estimate else ""
    beyond = "; today's traffic is beyond the limit" if answer.times < 1 else ""
    return (
        f"{kind}{times_words(answer.times)} times today's traffic fits ({span} at 90 %); "
        f"broker {first.broker_id}'s {first.resource} gives out first{beyond}".replace(
            "handlers gives", "handlers give"
        ).replace("threads gives", "threads give")
    )


def growth_words(growth: Growth, at_s: float) -> str:
    """The growth and the date in a sentence without its full stop.

    Args:
        at_s: the time of the answer [s since the epoch].
    """
    span = f"{format_ratio(growth.per_day_low)} to {format_ratio(growth.per_day_high)}"
    seen = (
        f"traffic grows by {format_ratio(growth.per_day)} a day ({span} at 90 %, "
        f"{growth.history_days:.0f} days of history)"
    )
    if growth.days_tenth is None:
        return f"{seen}: no overload is expected before {_date(at_s, growth.days_ahead)}"
    early = f"in one of ten cases before {_date(at_s, growth.days_tenth)}"
    if growth.days is None:
        beyond = _date(at_s, growth.days_ahead)
        return f"{seen}: the cluster is full {early}, in half of them not before {beyond}"
    return (
        f"{seen}: the cluster is full in half of the cases before {_date(at_s, growth.days)} "
        f"({growth.days:.0f} days), {early}, when the busiest hour of a day reaches the limit"
    )


def _date(at_s: float, days: float) -> str:
    return str((datetime.fromtimestamp(at_s, tz=timezone.utc) + timedelta(days=days)).date())


def short_history_words(days: int) -> str:
    """The reason why there is no date yet."""
    return (
        f"no date: the history of this cluster has {days} day{'' if days == 1 else 's'}; expected "
        f"{DAYS_LEAST} or more, with a call on most of them; call this job every hour, or at "
        "least every day"
    )


def table_rows(answer: Answer) -> tuple[tuple[str, ...], ...]:
    """The rows for a terminal; of many, the tightest of each resource."""
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
