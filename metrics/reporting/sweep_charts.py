"""An experiment as a chart: its figure over each axis, with latency beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from metrics.comparing.sweeps import Result
from metrics.reporting.chart_style import chart_config
from metrics.reporting.summary import write_atomic
from metrics.units import format_size

_WIDTH, _HEIGHT = 360, 260  # [px]
_PNG_SCALE = 2.0


def write_sweep_chart(
    title: str,
    figure: str,
    axes: Mapping[str, tuple[str, Sequence[str]]],
    results: Sequence[Result],
    png_path: Path,
) -> Path:
    """Draw an experiment into a PNG.

    Args:
        title: of the chart.
        figure: what was found of each case, with its unit.
        axes: full path of each key that varies → its short name and its values, in order.
        results: those without a figure are left out.
    """
    spec = sweep_spec(title, figure, axes, results)
    write_atomic(png_path, vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE))
    return png_path


def sweep_spec(
    title: str,
    figure: str,
    axes: Mapping[str, tuple[str, Sequence[str]]],
    results: Sequence[Result],
) -> dict[str, Any]:
    """The Vega-Lite specification: a row for each axis, the figure and the latency over it."""
    rows = [_row(each, axes) for each in results if each.value]
    panels = []
    for path, (name, values) in axes.items():
        own = [{**row, "series": _series(row, path, axes), "x": row[path]} for row in rows]
        x = alt.X("x:O", sort=list(values), title=name, axis=alt.Axis(labelAngle=0))
        color = alt.Color("series:N", title=None, legend=alt.Legend(orient="bottom", columns=2))
        found = _panel(own, x, color, "value", figure, ("low", "high"))
        latency = _panel(own, x, color, "p99", "latency p99 there [ms]", None)
        panels.append(alt.hconcat(found, latency, spacing=36))
    chart = alt.vconcat(*panels, title=title, padding=20, spacing=24)
    chart = chart.resolve_scale(color="independent")
    spec: dict[str, Any] = chart.to_dict()
    spec["config"] = chart_config(dark=False)
    return spec


def _row(each: Result, axes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{path: each.settings[path] for path in axes},
        "size": format_size(each.bpm),
        "value": each.value,
        "low": each.low,
        "high": each.high,
        "p99": each.p99_ms,
    }


def _series(row: Mapping[str, Any], path: str, axes: Mapping[str, tuple[str, Any]]) -> str:
    """What a line of the chart has in common beside the axis that is drawn."""
    rest = [f"{name} {row[other]}" for other, (name, _) in axes.items() if other != path]
    return ", ".join([row["size"], *rest])


def _panel(
    rows: Sequence[Mapping[str, Any]],
    x: alt.X,
    color: alt.Color,
    name: str,
    title: str,
    span: tuple[str, str] | None,
) -> alt.LayerChart:
    """One figure over an axis: each repeat a mark, their median a line."""
    base = alt.Chart(alt.InlineData(values=[dict(row) for row in rows])).encode(x=x, color=color)
    y = alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=True))
    mean = alt.Y(f"{name}:Q", aggregate="median", title=title)
    layers = [base.mark_line().encode(y=mean), base.mark_point(filled=True, size=60).encode(y=y)]
    if span is not None and any(row[span[0]] for row in rows):
        layers.append(base.mark_rule(strokeWidth=2).encode(y=f"{span[0]}:Q", y2=f"{span[1]}:Q"))
    panel: alt.LayerChart = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)
    return panel
