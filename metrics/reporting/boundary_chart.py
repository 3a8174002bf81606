"""The chart of the boundary line, from one Altair specification, as HTML and as PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from metrics.reporting import drawing
from metrics.reporting.chart_style import NEUTRAL, PAGE, RESOURCE_COLORS, RESOURCE_SHAPES, beside
from metrics.reporting.files import write_atomic
from metrics.reporting.limit_answer import estimate_words, latency_words, span_words
from metrics.reporting.summary import RunSummary
from metrics.reporting.templating import render
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.units import (
    AT_LEVEL,
    UNKNOWN,
    format_count,
    format_counted,
    format_mb_per_s,
    format_ratio,
    format_size,
)
from metrics.windows.use import Resource

_PANEL_WIDTH, _PANEL_HEIGHT = 430, 320  # [px]
_NOT_BOUND = "no overload seen"
_LEGEND = alt.Legend(
    title="Limiting resource", orient="bottom", direction="horizontal", symbolOpacity=1
)


def write_chart(summary: RunSummary, html_path: Path, png_path: Path) -> tuple[Path, ...]:
    """Draw the boundary line of a summary into two files. The HTML file is self-contained.

    Returns:
        The written files. If vl-convert is not installed, only the HTML file is written. If the
        summary has no boundary point, no file is written.
    """
    if not summary.boundaries:
        return ()
    spec = boundary_spec(summary)
    write_atomic(html_path, chart_page(summary, spec))
    if not drawing.can_draw():
        return (html_path,)
    write_atomic(png_path, drawing.png(spec))
    return html_path, png_path


def boundary_spec(summary: RunSummary) -> dict[str, Any]:
    """The Vega-Lite specification of a chart that shows payload per broker and messages per second
    for each message size.
    """
    rows = [_row(boundary.lasting, summary.brokers) for boundary in summary.boundaries]
    sizes = [boundary.message_bytes for boundary in summary.boundaries]
    payload = _linear_y(_heights(rows, "mb"))
    panels = [_panel(rows, sizes, "mb", payload, below=True)]
    positive = [row for row in rows if row["mps_lower"] > 0]  # a logarithmic axis has no zero
    if positive:
        messages = _log_y(_heights(positive, "mps"))
        panels.append(_panel(positive, sizes, "mps", messages, below=False))
    return beside(panels, spacing=36, title=_title(summary).to_dict(), padding=20)


PAYLOAD_TITLE = "Payload per broker (whole cluster) [MB/s]"


def _row(boundary: Boundary, brokers: int) -> dict[str, Any]:
    """One point of the boundary line, with the texts of the point's tooltip."""
    upper = boundary.mb_per_s_per_broker_overloaded
    if upper is None and boundary.mb_per_s_overloaded is not None and brokers:
        upper = boundary.mb_per_s_overloaded / brokers
    low, over = boundary.loads
    span, estimate = span_words(boundary), estimate_words(boundary)
    bound = boundary.limited_by or Resource.UNKNOWN.value
    return {
        "bpm": boundary.message_bytes,
        "size": format_size(boundary.message_bytes),
        "mb_lower": boundary.mb_per_s_per_broker,
        "mb_upper": upper,
        "mb_low": boundary.mb_per_s_per_broker_low,
        "mb_high": boundary.mb_per_s_per_broker_high,
        "mb_label": _payload_label(boundary) if boundary.mps else "",
        "mps_lower": boundary.mps,
        "mps_upper": boundary.mps_overloaded,
        "mps_low": _messages(boundary, boundary.mb_per_s_low),
        "mps_high": _messages(boundary, boundary.mb_per_s_high),
        "mps_label": _short_count(boundary.mps),
        "messages": format_count(boundary.mps),
        "cluster": f"{format_mb_per_s(boundary.mb_per_s)} MB/s",
        "per_broker": f"{format_mb_per_s(boundary.mb_per_s_per_broker)} MB/s",
        "load": f"{boundary.along.amount(low)} sustained, {over or UNKNOWN} overloaded",
        "width": "open" if over is None else format_ratio(boundary.relative_width),
        "interval": f"{span} {boundary.along.unit_words}" if span else UNKNOWN,
        "estimate": f"{estimate} {boundary.along.unit_words}" if estimate else UNKNOWN,
        "latency": latency_words(*boundary.latencies_ms) or UNKNOWN,
        "is_hollow": boundary.doubtful or boundary.gave_up is not None,
        "bound": _NOT_BOUND if over is None else bound,
        "evidence": (
            boundary.gave_up or boundary.evidence or "; ".join(boundary.overload_reasons) or UNKNOWN
        ),
        "trials": boundary.trials,
    }


def _payload_label(boundary: Boundary) -> str:
    """The payload rate per broker, and on a second line the payload rate of the whole cluster."""
    each, whole = boundary.mb_per_s_per_broker, boundary.mb_per_s
    text = format_mb_per_s(each)
    return f"{text}\n({format_mb_per_s(whole)})" if whole > each else text


def _messages(boundary: Boundary, mb_per_s: float | None) -> float | None:
    """Messages per second [1/s] at the given payload rate; None if the payload rate is not known,
    or if the message size varies.
    """
    if mb_per_s is None or boundary.mb_per_s <= 0 or boundary.along is MESSAGE_BYTES:
        return None
    return boundary.mps * mb_per_s / boundary.mb_per_s or None


def _heights(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """All values that the y axis of a panel must include."""
    names = [f"{name}_{end}" for end in ("lower", "upper", "low", "high")]
    return [row[each] for each in names for row in rows if row[each] is not None]


def _linear_y(values: Sequence[float]) -> dict[str, Any]:
    """A linear axis from zero, with a margin above the highest value."""
    domain = [0, max(values) * 1.12 or 1]
    scale = alt.Scale(domain=domain, nice=False)
    axis = alt.Axis(format=",~r", tickCount=6)
    return {"scale": scale, "axis": axis, "title": PAYLOAD_TITLE}


def _log_y(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with grid lines at 1, 2 and 5."""
    lowest, highest = min(values), max(values)
    decades = range(math.floor(math.log10(lowest)) - 1, math.ceil(math.log10(highest)) + 1)
    lines = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    low = max(line for line in lines if line < lowest / 1.2)
    high = min(line for line in lines if line > highest * 1.2)
    axis = alt.Axis(format="~s", values=[line for line in lines if low <= line <= high])
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    return {"scale": scale, "axis": axis, "title": "Messages per second, whole cluster"}


def _panel(
    rows: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    name: str,
    axis: Mapping[str, Any],
    *,
    below: bool,
) -> alt.LayerChart:
    """One panel. A line connects the highest sustained loads, and a band reaches up to the lowest
    overloads.

    A bar shows the interval of the limit, or the bracket if the interval is not known.

    Args:
        rows: the points of the line.
        sizes: all message sizes [B].
        name: prefix of the panel's columns in `rows`.
        axis: options of the y axis.
        below: True to print figures below the points, False to print the figures above the points.
    """
    upper, low, high = (f"{name}_{end}" for end in ("upper", "low", "high"))
    y = alt.Y(f"{name}_lower", type="quantitative", **axis)
    color = alt.Color("bound", **_by_resource(rows, RESOURCE_COLORS, NEUTRAL))
    # Shapes help readers who cannot distinguish colors, and are visible in black-and-white print.
    shape = alt.Shape("bound", **_by_resource(rows, RESOURCE_SHAPES, "wedge"))
    base = alt.Chart().encode(x=_size_axis(sizes), y=y)
    closed = base.transform_filter(f"isValid(datum.{upper})")
    is_open = base.transform_filter(f"!isValid(datum.{upper})")
    known = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
    bracket = closed.transform_filter(f"!isValid(datum.{low}) || !isValid(datum.{high})")
    cap = {"orient": "horizontal", "thickness": 2, "size": 13, "opacity": 1}
    hollow, filled = (base.transform_filter(f"{sign}datum.is_hollow") for sign in ("", "!"))
    looks = {"color": color, "shape": shape, "tooltip": _tooltip()}
    figures = {"align": "left", "dx": 9, "dy": 12 if below else -9, "fontSize": 11}
    figures |= {"lineBreak": "\n"}
    marks = (
        closed.mark_area(opacity=0.2, color=NEUTRAL).encode(y2=upper),
        base.mark_line(color=NEUTRAL, strokeWidth=2),
        bracket.mark_rule(strokeWidth=2, opacity=1).encode(y2=upper, color=color),
        bracket.mark_tick(**cap).encode(y=_at(upper), color=color),
        known.mark_rule(strokeWidth=2, opacity=1).encode(y=_at(low), y2=high, color=color),
        known.mark_tick(**cap).encode(y=_at(low), color=color),
        known.mark_tick(**cap).encode(y=_at(high), color=color),
        is_open.mark_point(
            shape="triangle-up", size=70, filled=True, yOffset=-12, opacity=1
        ).encode(color=color),
        filled.mark_point(size=95, filled=True, opacity=1).encode(**looks),
        hollow.mark_point(size=95, filled=True, style=PAGE, opacity=1).encode(shape=shape),
        hollow.mark_point(size=95, filled=False, strokeWidth=2, opacity=1).encode(**looks),
        base.mark_text(**figures).encode(text=f"{name}_label:N"),
    )
    data = alt.InlineData(values=[dict(row) for row in rows])  # shared by all marks
    return alt.LayerChart(data=data, layer=list(marks), width=_PANEL_WIDTH, height=_PANEL_HEIGHT)


def _at(name: str) -> alt.Y:
    return alt.Y(name, type="quantitative")


def _size_axis(sizes: Sequence[int]) -> alt.X:
    """A logarithmic axis of message sizes, with a label at each measured size."""
    sizes = sorted(set(sizes))
    margin = max(1.5, (sizes[-1] / sizes[0]) ** 0.1)
    # The right margin leaves space for a figure.
    domain = [sizes[0] / margin, sizes[-1] * margin**1.4]
    names = " : ".join(f"datum.value == {size} ? '{format_size(size)}'" for size in sizes)
    return alt.X(
        "bpm",
        type="quantitative",
        scale=alt.Scale(type="log", domain=domain, nice=False),
        axis=alt.Axis(
            values=sizes, labelExpr=f"{names} : ''", labelOverlap="greedy", labelSeparation=2
        ),
        title="Message size",
    )


def _by_resource(
    rows: Sequence[Mapping[str, Any]], looks: Mapping[str, str], other: str
) -> dict[str, Any]:
    """Options of a chart: the color or the shape of each resource in `rows`, and the legend."""
    found = {row["bound"] for row in rows}
    known = [name for name in RESOURCE_COLORS if name in found]
    domain = [*known, *sorted(found - set(known))]
    scale = alt.Scale(domain=domain, range=[looks.get(name, other) for name in domain])
    return {"type": "nominal", "scale": scale, "legend": _LEGEND}


def _tooltip() -> list[alt.Tooltip]:
    titles = {
        "size": "message size",
        "per_broker": "per broker",
        "cluster": "cluster",
        "messages": "messages/s",
        "load": "load",
        "width": "bracket width",
        "interval": f"limit {AT_LEVEL}",
        "estimate": "best estimate",
        "latency": "latency",
        "bound": "bound by",
        "evidence": "evidence",
        "trials": "trials",
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _title(summary: RunSummary) -> alt.TitleParams:
    brokers = f"{format_counted(summary.brokers, 'broker')}, " if summary.brokers else ""
    legend = (
        "Line: highest sustained load. Band: up to the lowest overload. "
        f"Bar: interval of the limit {AT_LEVEL}. Hollow: doubtful or not found."
    )
    facts = f"{brokers}goal {summary.goal}, {summary.started_at[:10]}"
    return alt.TitleParams(
        text=f"Throughput limit of {summary.cluster} with {summary.workload}",
        subtitle=[line for line in (facts, summary.caveat, legend) if line],
        anchor="start",
        offset=18,
    )


def _short_count(count: float) -> str:
    """A count with three digits, such as 160 k or 1.25 M."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= factor * 0.9995:
            return f"{_three_digits(count / factor)}{unit}"
    return _three_digits(count)


def _three_digits(value: float) -> str:
    digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{round(value, digits):g}"


def chart_page(summary: RunSummary, spec: Mapping[str, Any]) -> str:
    """Render a chart as HTML, with a table of its figures below the chart."""
    return render("boundary.html", summary=summary, spec=spec)
