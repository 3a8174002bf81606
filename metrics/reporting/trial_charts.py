"""Charts of single trials: use of the resources, readings over time, latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from metrics.reporting.chart_style import NEUTRAL
from metrics.tables.trial_series import SERIES
from metrics.units import format_size
from metrics.windows.resource import Resource

Rows = Sequence[Mapping[str, Any]]

QUANTILES = ("p50", "p95", "p99", "p999", "max")
# Okabe and Ito's, as in metrics.reporting.chart_style; brokers have no order of their own.
_BROKER_COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f8a99"]
_CELL_WIDTH, _CELL = 78, 34  # [px]
_PANEL_WIDTH, _PANEL_HEIGHT = 620, 84  # [px]


def limits_use_chart(peaks: Rows) -> alt.LayerChart:
    """How used each resource was where each size overloaded, of the broker that used it most.

    Args:
        peaks: rows of `metrics.tables.views.resource_peaks`.
    """
    ordered = sorted(peaks, key=lambda row: row["bpm"])
    return _use_chart(ordered, lambda row: format_size(row["bpm"]), "Message size")


def brokers_use_chart(resources: Rows) -> alt.LayerChart:
    """How used each resource of each broker was in one trial.

    Args:
        resources: rows of `metrics.tables.views.resource_rows`.
    """
    ordered = sorted(resources, key=lambda row: row["broker_id"])
    return _use_chart(ordered, lambda row: f"broker {row['broker_id']}", "")


def _use_chart(rows: Rows, name_of: Any, title: str) -> alt.LayerChart:
    """Cells with a percentage each; the frame marks what the attribution names."""
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
    framed = alt.TitleParams(
        "Use of the resources",
        subtitle="Framed: what bound it. ?: the metrics do not tell.",
        anchor="start",
    )
    width, height = alt.Step(_CELL_WIDTH), alt.Step(_CELL)
    return alt.LayerChart(layer=[heat, bound, text], title=framed, width=width, height=height)


def _amount(value: float | None, unit: str | None) -> str:
    return "not known" if value is None else f"{value:.3g} {unit or ''}".strip()


def series_chart(points: Rows, window_s: float) -> alt.VConcatChart:
    """The readings of one trial over time, a panel each, the measured window shaded.

    Args:
        points: rows of `metrics.tables.trial_series.sample_series`, of one trial.
        window_s: length of the measured window [s].
    """
    brokers = sorted({row["broker_id"] for row in points})
    times = [row["elapsed_s"] for row in points] or [0.0]
    domain = [min(0.0, *times), max(window_s, *times)]
    colors = [_BROKER_COLORS[i % len(_BROKER_COLORS)] for i in range(len(brokers))]
    color = alt.Color(
        "broker_id:N",
        scale=alt.Scale(domain=brokers, range=colors),
        legend=alt.Legend(title="Broker", orient="top"),
    )
    x = alt.X("elapsed_s:Q", scale=alt.Scale(domain=domain, nice=False))
    panels = [
        _panel([dict(row) for row in points if row["title"] == each.title], each.title, x, color)
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
    title = alt.TitleParams(
        "The samples over time",
        subtitle="Seconds since the measured window (shaded) began; before it is the warm-up.",
        anchor="start",
    )
    return alt.vconcat(*shaded, spacing=14, title=title)


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
    """Latency from the intended send time at several quantiles, a line for each trial.

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
    line = base.mark_line(point=True, color=_BROKER_COLORS[0])
    title = alt.TitleParams("Latency, from the time at which a record was due", anchor="start")
    return alt.LayerChart(layer=[line, figures], title=title, width=420, height=220)
