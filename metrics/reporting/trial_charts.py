"""Charts of single trials: use of resources, readings over time, and latencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from metrics.reporting.chart_style import COLORS, NEUTRAL, specification
from metrics.traffic.axes import axis_named
from metrics.trial.trial import Trial
from metrics.units import format_size
from metrics.windows.series import SERIES, SeriesPoint
from metrics.windows.use import Resource

Rows = Sequence[Mapping[str, Any]]

QUANTILES = ("p50", "p95", "p99", "p999", "max")
_VERDICT_SHAPES = {"SUSTAINED": "circle", "OVERLOADED": "triangle-up", "INVALID": "cross"}
_CELL_WIDTH, _CELL = 78, 34  # [px]
_PANEL_WIDTH, _PANEL_HEIGHT = 620, 84  # [px]


def limits_use_chart(peaks: Rows) -> alt.LayerChart:
    """Draw the use of each resource at the overload of each message size.

    Args:
        peaks: rows of `metrics.tables.views.resource_peaks`.
    """
    ordered = sorted(peaks, key=lambda row: row["bpm"])
    return _use_chart(ordered, lambda row: format_size(row["bpm"]), "Message size")


def brokers_use_chart(resources: Rows) -> alt.LayerChart:
    """Draw the use of each resource of each broker in one trial.

    Args:
        resources: rows of `metrics.tables.views.resource_rows`.
    """
    ordered = sorted(resources, key=lambda row: row["broker_id"])
    return _use_chart(ordered, lambda row: f"broker {row['broker_id']}", "")


def _use_chart(rows: Rows, name_of: Any, title: str) -> alt.LayerChart:
    """A heat map that shows the use of resources.

    In the heat map, a frame marks the limiting resource.
    """
    cells = [
        {
            "side": name_of(row),
            "resource": row["resource"],
            "used": row["utilization"],
            "bound": bool(row["is_limit"]),
            "waiting": _amount(row["saturation"], row["saturation_unit"]),
            "errors": _amount(row["errors"], row["errors_unit"]),
            "broker": row["broker_id"],
        }
        for row in rows
    ]
    sides = list(dict.fromkeys(cell["side"] for cell in cells))
    resources = [each.value for each in Resource if any(c["resource"] == each for c in cells)]
    x = alt.X("resource:N", sort=resources, title=None, axis=alt.Axis(labelAngle=-30, orient="top"))
    y = alt.Y("side:N", sort=sides, title=title or None)
    tips = ["resource:N", "broker:N", alt.Tooltip("used:Q", format=".0%"), "waiting:N", "errors:N"]
    base = alt.Chart(alt.InlineData(values=cells)).encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], range=["#f2f5f8", "#ef8a3c"], clamp=True, interpolate="rgb")
    legend = alt.Legend(format=".0%", title="Used", orient="right")
    heat = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color("used:Q", scale=scale, legend=legend), tooltip=tips
    )
    bound = base.transform_filter("datum.bound").mark_rect(
        fillOpacity=0, stroke="#1b1f24", strokeWidth=2
    )
    label = "isValid(datum.used) ? format(datum.used, '.0%') : '?'"
    text = base.transform_calculate(label=label).mark_text(fontSize=11).encode(text="label:N")
    framed = _title("Use of the resources", "Frame: the limiting resource. ?: not known.")
    width, height = alt.Step(_CELL_WIDTH), alt.Step(_CELL)
    return alt.LayerChart(layer=[heat, bound, text], title=framed, width=width, height=height)


def _amount(value: float | None, unit: str | None) -> str:
    return "not known" if value is None else f"{value:.3g} {unit or ''}".strip()


def series_chart(points: Sequence[SeriesPoint], window_s: float) -> alt.VConcatChart:
    """Draw the readings of one trial over time, with one panel for each reading. The measured
    window is shaded.

    Args:
        points: the readings of the trial.
        window_s: length of the measured window [s].
    """
    brokers = sorted({each.broker_id for each in points})
    times = [each.elapsed_s for each in points] or [0.0]
    domain = [min(0.0, *times), max(window_s, *times)]
    color = alt.Color(
        "broker_id:N",
        scale=alt.Scale(domain=brokers, range=COLORS),
        legend=alt.Legend(title="Broker", orient="top"),
    )
    x = alt.X("elapsed_s:Q", scale=alt.Scale(domain=domain, nice=False))
    panels = [
        _panel([asdict(one) for one in points if one.title == each.title], each.title, x, color)
        for each in SERIES
    ]
    window = alt.Chart(alt.InlineData(values=[{"from": 0.0, "to": window_s}])).mark_rect(
        color=NEUTRAL, opacity=0.13
    )
    shade = window.encode(x=alt.X("from:Q", title=None), x2="to:Q")
    shaded = [
        alt.LayerChart(layer=[shade, panel], width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
        for panel in panels
    ]
    time = "Seconds since the start of the measured window (shaded); before it: warm-up."
    return alt.vconcat(*shaded, spacing=14, title=_title("Readings over time", time))


def _title(text: str, subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=subtitle, anchor="start")


def latency_charts(trial: Mapping[str, Any]) -> alt.VConcatChart:
    """Draw the latency of one trial at several quantiles. If the latency over time is known, draw
    it, too.

    Args:
        trial: the trial's row of the table `trials`.
    """
    slices = trial.get("latency_over_time") or ()
    charts = [latency_chart([trial]), *([_latency_over_time(slices)] if slices else [])]
    drawn: alt.VConcatChart = alt.vconcat(*charts, spacing=28).resolve_scale(color="independent")
    return drawn


def _latency_over_time(slices: Rows) -> alt.LayerChart:
    points = [
        {"at": row["start_s"] + row["length_s"] / 2, "quantile": name, "ms": row[f"{name}_ms"]}
        for row in slices
        for name in ("p50", "p99", "max")
    ]
    base = alt.Chart(alt.InlineData(values=points)).encode(
        x=alt.X("at:Q", title="Seconds since the start of the measured window"),
        y=alt.Y("ms:Q", title="Latency [ms]", scale=alt.Scale(zero=True)),
        color=alt.Color(
            "quantile:N",
            scale=alt.Scale(domain=["p50", "p99", "max"], range=COLORS[:3]),
            legend=alt.Legend(title=None, orient="top"),
        ),
        tooltip=[
            "quantile:N",
            alt.Tooltip("at:Q", format=".1f"),
            alt.Tooltip("ms:Q", format=",.1f"),
        ],
    )
    title = alt.TitleParams("Latency over time", anchor="start")
    line = base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=16))
    return alt.LayerChart(layer=[line], title=title, width=_PANEL_WIDTH, height=160)


def throughput_latency_spec(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Draw throughput against latency, with a mark for each trial and a line for each message size.

    The line joins trials in the order of their load. Beyond the point where the line turns upward,
    more load only increases latency.

    Returns:
        The Vega-Lite specification, or None if no record was acknowledged in any trial.
    """
    rows = [_throughput_row(trial) for trial in trials]
    rows = [row for row in rows if row["achieved"] and row["p99"]]
    if not rows:
        return None
    sizes = [
        format_size(message_bytes)
        for message_bytes in sorted({trial.point_message_bytes for trial in trials})
    ]
    p99_ms = [row["p99"] for row in rows]
    domain = [min(p99_ms) / 1.3, max(p99_ms) * 1.3]  # keeps marks off the edges
    latency = alt.Scale(type="log", nice=False, domain=domain)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("achieved:Q", title="Acknowledged [MB/s]", scale=alt.Scale(zero=True)),
        y=alt.Y("p99:Q", title="Produce latency p99 [ms]", scale=latency),
        color=alt.Color(
            "size:N",
            scale=alt.Scale(domain=sizes, range=COLORS),
            legend=alt.Legend(
                title="Message size", orient="bottom", direction="horizontal", symbolOpacity=1
            ),
        ),
    )
    tips = [
        alt.Tooltip("trial:N", title="Trial"),
        alt.Tooltip("load:N", title="Load"),
        alt.Tooltip("offered:Q", title="Offered MB/s", format=",.4~r"),
        alt.Tooltip("achieved:Q", title="Acknowledged MB/s", format=",.4~r"),
        *(alt.Tooltip(f"{name}:Q", title=f"{name} ms", format=",.3~r") for name in QUANTILES[:4]),
        alt.Tooltip("verdict:N", title="Verdict"),
    ]
    shapes = alt.Shape(
        "verdict:N",
        scale=alt.Scale(domain=list(_VERDICT_SHAPES), range=list(_VERDICT_SHAPES.values())),
        legend=alt.Legend(
            title="Verdict", orient="bottom", direction="horizontal", symbolFillColor=NEUTRAL
        ),
    )
    line = base.mark_line(strokeWidth=1, opacity=0.45).encode(order="order:Q")
    marks = base.mark_point(filled=True, size=70, opacity=1).encode(shape=shapes, tooltip=tips)
    return specification(alt.hconcat(alt.layer(line, marks)))


def _throughput_row(trial: Trial) -> dict[str, Any]:
    client = trial.evidence.client
    return {
        "trial": trial.number,
        "size": format_size(trial.point_message_bytes),
        "load": axis_named(trial.pattern.axis).amount(trial.load),
        "order": trial.load,
        "offered": client.offered_mb_per_s,
        "achieved": client.achieved_mb_per_s,
        "verdict": trial.verdict.value,
        **{
            name: value if math.isfinite(value := getattr(client.latency, f"{name}_ms")) else None
            for name in QUANTILES[:4]
        },
    }


def _panel(points: list[dict[str, Any]], title: str, x: alt.X, color: alt.Color) -> alt.Chart:
    highest = max((row["value"] for row in points), default=0.0)
    from_zero = alt.Scale(domain=[0, highest * 1.05 or 1.0], nice=False)
    axis = alt.Axis(tickCount=3, titleAngle=0, titleAlign="left", titleAnchor="start", titleY=-6)
    y = alt.Y("value:Q", scale=from_zero, axis=axis, title=title)
    tips = [
        alt.Tooltip("broker_id:N"),
        alt.Tooltip("elapsed_s:Q", format=".1f"),
        alt.Tooltip("value:Q", format=".4~r"),
    ]
    chart = alt.Chart(alt.InlineData(values=points))
    mark = chart.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=16))
    encoded: alt.Chart = mark.encode(x=x, y=y, color=color, tooltip=tips)
    return encoded


def latency_chart(trials: Rows) -> alt.LayerChart:
    """Draw the latency from the intended send time at several quantiles, with one line per trial.

    Args:
        trials: rows of the table `trials`.
    """
    points = [
        {"trial": row["trial"], "quantile": name, "ms": row[f"latency_{name}_ms"]}
        for row in trials
        for name in QUANTILES
        if row[f"latency_{name}_ms"]
    ]
    base = alt.Chart(alt.InlineData(values=points)).encode(
        x=alt.X("quantile:N", sort=list(QUANTILES), title=None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("ms:Q", scale=alt.Scale(type="log"), title="Latency [ms]"),
        tooltip=["trial:N", "quantile:N", alt.Tooltip("ms:Q", format=",.1f")],
    )
    figures = base.mark_text(dy=-11, fontSize=11).encode(text=alt.Text("ms:Q", format=",.3~r"))
    line = base.mark_line(point=True, color=COLORS[0])
    title = alt.TitleParams("Latency from the intended send time", anchor="start")
    return alt.LayerChart(layer=[line, figures], title=title, width=420, height=220)
