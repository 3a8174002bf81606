"""Charts of several runs: boundary lines, boundary points over time, nights, and headroom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import altair as alt

from metrics.reporting.chart_style import COLORS, NEUTRAL
from metrics.reporting.limit_answer import latency_words, payload_span_words
from metrics.units import AT_LEVEL, UNKNOWN, format_size

Rows = Sequence[Mapping[str, Any]]

_SHAPES = {"fell": "triangle-down", "rose": "triangle-up", "held": "circle", "first": "circle"}
_WIDTH, _HEIGHT, _NIGHTS_HEIGHT = 620, 300, 180  # [px]
_DENSE = 100
"""A chart with more marks than this number has small marks."""
_TIMES_LEAST = 0.1
"""Lowest headroom on the logarithmic axis. Marks with a lower headroom are drawn at this value."""
_TIMES_TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
_OUTCOMES = {
    "regression": ("#d55e00", "triangle-down"),
    "improvement": ("#009e73", "triangle-up"),
    "no change": ("#0072b2", "circle"),
    "no history": (NEUTRAL, "circle"),
    "invalid": ("#b59f00", "cross"),
    "not judged": (NEUTRAL, "circle"),
}
"""Outcome of a night → (color, shape) of its mark."""


def lines_chart(points: Rows) -> alt.LayerChart:
    """Draw boundary lines in one chart, with one line for each cluster, workload and goal.

    Args:
        points: rows of `metrics.tables.views.points_for_people` on the axis np.
    """
    values = [
        {
            "line": f"{row['cluster']}, {row['workload']}, {row['goal']}",
            "bpm": row["bpm"],
            "size": format_size(row["bpm"]),
            "low": row["mb_per_s_per_broker"],
            "high": row["mb_per_s_per_broker_overloaded"],
            "bound": row["limited_by"] or "no overload seen",
            "run": row["run_id"],
            "is_doubtful": bool(row["doubtful"]),
            **_interval(row),
        }
        for row in points
    ]
    sizes = sorted({row["bpm"] for row in points})
    names = " : ".join(f"datum.value == {size} ? '{format_size(size)}'" for size in sizes)
    axis = alt.Axis(values=sizes, labelExpr=f"{names or 1} : ''")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("bpm:Q", scale=alt.Scale(type="log"), axis=axis, title="Message size"),
        y=alt.Y("low:Q", title="Payload per broker [MB/s]"),
        color=_color("line", "Cluster, workload, goal"),
    )
    tips = ["line:N", "size:N", _rate("low", "sustained"), _rate("high", "overloaded")]
    tips += [alt.Tooltip("interval:N", title=f"{AT_LEVEL} [MB/s]"), "latency:N"]
    tips += [alt.Tooltip("bound:N", title="bound by"), "run:N"]
    doubtful, sure = (base.transform_filter(f"{sign}datum.is_doubtful") for sign in ("", "!"))
    layers = (
        base.mark_rule(strokeWidth=2).encode(y="bar_low:Q", y2="bar_high:Q"),
        base.mark_line(strokeWidth=2),
        sure.mark_point(filled=True, size=70, opacity=1).encode(tooltip=tips),
        doubtful.mark_point(filled=False, strokeWidth=2, size=70, opacity=1).encode(tooltip=tips),
    )
    title = _title(
        "The newest boundary lines",
        f"Points: highest sustained load; hollow: doubtful. Bars: interval of the limit {AT_LEVEL}"
        ", or the bracket if the interval is not known.",
    )
    return alt.LayerChart(layer=list(layers), title=title, width=_WIDTH, height=_HEIGHT)


def _interval(row: Mapping[str, Any]) -> dict[str, Any]:
    """The two ends of a point's bar [MB/s per broker].

    The result also has the interval and the latencies, formatted as text.
    """
    low, high = row["mb_per_s_per_broker_low"], row["mb_per_s_per_broker_high"]
    latencies = (row[f"latency_{name}_ms"] for name in ("p50", "p99", "p999"))
    words = {
        "interval": payload_span_words(low, high) or UNKNOWN,
        "latency": latency_words(*latencies) or UNKNOWN,
    }
    if low is None or high is None:
        low, high = row["mb_per_s_per_broker"], row["mb_per_s_per_broker_overloaded"]
    return {"bar_low": low, "bar_high": high, **words}


def history_charts(points: Rows) -> list[alt.LayerChart]:
    """Draw each boundary point over time with its bracket. Triangles mark brackets that moved.

    Args:
        points: rows of `metrics.tables.views.boundary_history`.

    Returns:
        One chart for each cluster, workload, goal and axis.
    """
    found = _series(
        points, lambda row: (row["cluster"], row["workload"], row["goal"], row["axis"] or "np")
    )
    return [_history_chart(own, _series_title(*names)) for names, own in found]


def _series_title(cluster: str, workload: str, goal: str, axis: str) -> str:
    along = "" if axis == "np" else f", along {axis}"
    return f"{cluster} with {workload}, goal {goal}{along}"


def _history_chart(points: Rows, title: str) -> alt.LayerChart:
    values = [
        {
            "at": row["at_ms"],
            "size": format_size(row["bpm"]),
            "low": row["mb_per_s_per_broker"],
            "high": _upper(row),
            "moved": row["moved"] or "first",
            "change": row["change"],
            "bound": row["limited_by"] or "no overload seen",
            "run": row["run_id"],
        }
        for row in points
    ]
    sizes = [format_size(message_bytes) for message_bytes in sorted({row["bpm"] for row in points})]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=_time_axis(),
        y=alt.Y("low:Q", title="Payload per broker [MB/s]", scale=alt.Scale(zero=True)),
        color=_color("size", "Message size", sizes),
    )
    tips = ["size:N", _rate("low", "sustained"), _rate("high", "overloaded"), "moved:N"]
    tips += [alt.Tooltip("change:Q", format="+.1%"), alt.Tooltip("bound:N", title="bound by")]
    shape = alt.Shape(
        "moved:N",
        scale=alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values())),
        legend=alt.Legend(title="Compared with the previous run", values=["fell", "held", "rose"]),
    )
    layers = (
        base.mark_rule(strokeWidth=2).encode(y2="high:Q"),
        base.mark_line(strokeWidth=1.5, opacity=0.6),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            shape=shape, tooltip=[*tips, "run:N"]
        ),
    )
    return alt.LayerChart(layer=list(layers), title=_title(title), width=_WIDTH, height=_HEIGHT)


def nights_charts(nights: Rows) -> list[alt.LayerChart]:
    """Draw the figure of each nightly case over time. The color shows the outcome of the night.

    Args:
        nights: rows of `metrics.tables.views.nights`.

    Returns:
        One chart for each suite, cluster and case.
    """
    found = _series(nights, lambda row: (row["suite"], row["cluster"], row["case"]))
    return [_nights_chart(own, ": ".join(names)) for names, own in found]


def _nights_chart(nights: Rows, title: str) -> alt.LayerChart:
    values = [
        {
            "at": row["at_ms"],
            "value": row["value"],
            "outcome": row["outcome"] or "not judged",
            "change": row["change"],
            "night": row["night"],
            "text": row["text"],
            "run": row["run_id"],
        }
        for row in nights
    ]
    colors, shapes = (
        alt.Scale(domain=list(_OUTCOMES), range=[look[i] for look in _OUTCOMES.values()])
        for i in (0, 1)
    )
    shown = [name for name in _OUTCOMES if any(value["outcome"] == name for value in values)]
    legend = alt.Legend(title="Compared with earlier nights", values=shown)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=_time_axis(), y=alt.Y("value:Q", title=nights[0]["measure"], scale=alt.Scale(zero=True))
    )
    tips = [
        "night:N",
        alt.Tooltip("value:Q", format=".4~r"),
        alt.Tooltip("change:Q", format="+.1%"),
    ]
    point = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color("outcome:N", scale=colors, legend=legend),
        shape=alt.Shape("outcome:N", scale=shapes, legend=legend),
        tooltip=[*tips, "outcome:N", "text:N", "run:N"],
    )
    line = base.mark_line(color=NEUTRAL, strokeWidth=1.5)
    heading = alt.TitleParams(title, anchor="start")
    return alt.LayerChart(layer=[line, point], title=heading, width=_WIDTH, height=_NIGHTS_HEIGHT)


def headroom_charts(answers: Rows) -> list[alt.LayerChart]:
    """Draw the headroom of each cluster over time, with its 90 % interval.

    Args:
        answers: rows of `metrics.tables.views.headroom_history`.

    Returns:
        One chart for each cluster.
    """
    found = _series(answers, lambda row: (row["cluster"],))
    return [_headroom_chart(own, name) for (name,), own in found]


def _headroom_chart(answers: Rows, title: str) -> alt.LayerChart:
    values = [
        {
            "at": row["at_ms"],
            "times": row["times"],
            "low": row["times_low"],
            "high": row["times_high"],
            **{
                f"shown {name}": max(_TIMES_LEAST, row[key])
                for name, key in (("times", "times"), ("low", "times_low"), ("high", "times_high"))
            },
            "first": f"broker {row['broker_id']}, {row['resource']}",
            "limit": "estimated" if row["is_estimate"] else "measured",
            "run": row["run_id"],
        }
        for row in answers
    ]
    ends = [each[name] for each in values for name in ("shown low", "shown high")]
    span = alt.Scale(type="log", nice=False, domain=[min(0.5, *ends), max(2.0, *ends)])
    axis = alt.Axis(values=_TIMES_TICKS, format="~g")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=_time_axis(),
        y=alt.Y("shown times:Q", title="Headroom [times today's traffic]", scale=span, axis=axis),
    )
    tips = [alt.Tooltip(f"{name}:Q", format=".3~r") for name in ("times", "low", "high")]
    has_both = len({each["limit"] for each in values}) > 1
    is_dense = len(values) > _DENSE
    full = alt.Chart(alt.InlineData(values=[{"times": 1.0}])).mark_rule(
        color="#d55e00", strokeDash=[4, 4]
    )
    layers = (
        base.mark_rule(strokeWidth=1 if is_dense else 2, opacity=0.5).encode(
            y="shown low:Q", y2="shown high:Q"
        ),
        base.mark_point(filled=True, size=20 if is_dense else 70, opacity=1).encode(
            color=_color("first", "Full first"),
            shape=alt.Shape(
                "limit:N",
                scale=alt.Scale(domain=["measured", "estimated"], range=["circle", "diamond"]),
                legend=alt.Legend(title="Limit") if has_both else None,
            ),
            tooltip=[*tips, "first:N", "limit:N", "run:N"],
        ),
        full.encode(y="times:Q"),
    )
    legend = f"Bars: interval {AT_LEVEL}. Dashed: the cluster is full."
    return alt.LayerChart(
        layer=list(layers),
        title=_title(f"Headroom of {title}", legend),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _series(
    rows: Rows, names: Callable[[Mapping[str, Any]], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], Rows]]:
    """Group rows into series, sorted by the names of the series. Each series is a pair (names, rows
    in order).
    """
    return [(named, list(own)) for named, own in groupby(sorted(rows, key=names), names)]


def _time_axis() -> alt.X:
    axis = alt.Axis(format="%b %d %H:%M", tickCount=6, labelOverlap="greedy")
    return alt.X("at:T", scale=alt.Scale(type="utc"), axis=axis, title="Time (UTC)")


def _upper(row: Mapping[str, Any]) -> float | None:
    """The payload rate at the lowest overload [MB/s per broker]; None if it is not known. On the
    axis `message_bytes`, the rate is not known, because the lowest overload has another message
    size than the sustained load.
    """
    over, mps = row["mps_overloaded"], row["mps"]
    is_known = over and mps and row["axis"] != "message_bytes"
    return row["mb_per_s_per_broker"] * over / mps if is_known else None


def _color(field: str, title: str, domain: Sequence[str] | None = None) -> alt.Color:
    scale = alt.Scale(range=COLORS) if domain is None else alt.Scale(domain=domain, range=COLORS)
    return alt.Color(f"{field}:N", scale=scale, legend=alt.Legend(title=title, labelLimit=320))


def _rate(field: str, title: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", title=f"{title} [MB/s]", format=".3~r")


_BRACKETS = "Points: highest sustained load. Bars: up to the lowest overload."


def _title(text: str, legend: str = _BRACKETS) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=legend, anchor="start", subtitleColor=NEUTRAL)
