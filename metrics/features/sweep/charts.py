"""Charts of a sweep: figure and latency, over each axis and over the message size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from metrics.comparing.figures import BROKERS_KEY, CASE, Result, case_words, short
from metrics.features.sweep.answer import SweepAnswer
from metrics.reporting import drawing
from metrics.reporting.chart_style import specification
from metrics.reporting.files import write_atomic
from metrics.reporting.templating import render
from metrics.units import format_size

_WIDTH, _HEIGHT = 360, 260  # [px]
_ROW, _LINE = 14, 13  # height of the bar of a case, and height of one line of its label [px]
_LABEL = 48  # maximum length of a name in a legend with two columns [characters]
_LATENCY = "latency p99 there [ms]"

Rows = Sequence[Mapping[str, Any]]


def sweep_page(answer: SweepAnswer) -> str:
    """Render the page of a sweep: effects, charts, and all cases with links to their reports."""
    charts = sweep_specs(answer)
    return render("sweep.html", answer=answer, charts=charts, specs=[spec for _, spec in charts])


def write_sweep_chart(answer: SweepAnswer, path: Path) -> None:
    """Draw all charts of a sweep into one file. The format is SVG if the file's suffix is `.svg`,
    otherwise PNG.

    If vl-convert is not installed, no file is written.
    """
    if not drawing.can_draw():
        return
    panels = [each for _, each in _charts(answer)]
    chart = alt.vconcat(*panels, title=answer.experiment, padding=20, spacing=24)
    spec = specification(chart.resolve_scale(color="independent", shape="independent"))
    if path.suffix == ".svg":
        write_atomic(path, drawing.svg(spec) + "\n")
    else:
        write_atomic(path, drawing.png(spec))


def sweep_specs(answer: SweepAnswer) -> list[tuple[str, dict[str, Any]]]:
    """Pairs (heading, Vega-Lite specification), one for each chart; empty if no case
    has a figure.
    """
    return [(heading, specification(chart)) for heading, chart in _charts(answer)]


def _charts(answer: SweepAnswer) -> Iterator[tuple[str, alt.HConcatChart]]:
    rows = [_row(each, answer) for each in answer.results if each.value]
    if not rows:
        return
    are_cases = _are_cases(rows, answer)
    if are_cases:
        yield "By case", _over_cases(rows, answer)
    for path, values in answer.axes.items():
        own = [{**row, "x": row[path], "series": _series(row, path, answer)} for row in rows]
        if path == CASE or (are_cases and _differ_in_more(own)):
            continue
        x = alt.X("x:O", sort=list(values), title=short(path), axis=alt.Axis(labelAngle=0))
        yield f"By {short(path)}", _beside(own, x, answer, ("p99", _LATENCY))
    if len({row["bpm"] for row in rows}) > 1:
        yield "By message size", _over_sizes(rows, answer)
    if len(rows) > 1 and all(row["p99"] for row in rows):
        yield "Throughput against latency", _against_latency(rows, answer)


def _row(each: Result, answer: SweepAnswer) -> dict[str, Any]:
    return {
        **{path: each.settings[path] for path in answer.axes},
        "case": case_words(each.settings),
        "bpm": each.message_bytes,
        "size": format_size(each.message_bytes),
        "value": each.estimate,
        "low": each.low,
        "high": each.high,
        "per_broker": each.estimate / each.brokers if each.estimate and each.brokers else None,
        "p99": each.p99_ms,
        "bound": each.limited_by or "",
    }


def _are_cases(rows: Rows, answer: SweepAnswer) -> bool:
    """Whether the cases have names, or do not contain all combinations of the axes' values."""
    if CASE in answer.axes:
        return True
    grid = math.prod(len({row[path] for row in rows}) for path in answer.axes)
    return len(answer.axes) > 1 and len({row["case"] for row in rows}) < grid


def _differ_in_more(rows: Rows) -> bool:
    """True if no two rows differ only in the drawn key `x`."""
    return len({(row["x"], row["series"]) for row in rows}) == len({row["series"] for row in rows})


def _over_cases(rows: Rows, answer: SweepAnswer) -> alt.HConcatChart:
    """A bar for each case, with all repeats and their intervals. A second panel shows
    the latency.
    """
    own = _named(rows, "name")
    names = list(dict.fromkeys(row["name"] for row in own))
    lines = max(name.count(", ") + 1 for name in names)
    height = len(names) * (_ROW + _LINE * lines)
    data = alt.InlineData(values=own)
    middle = -_LINE * (lines - 1) / 2
    named = alt.Axis(
        labelExpr="split(datum.label, ', ')", labelLimit=0, labelOffset=middle, title=None
    )

    def panel(name: str, title: str, axis: alt.Axis | None) -> alt.LayerChart:
        base = alt.Chart(data).encode(y=alt.Y("name:N", sort=names, axis=axis))
        median = alt.X(f"{name}:Q", aggregate="median", title=title, scale=alt.Scale(zero=True))
        every = alt.X(f"{name}:Q", title=title)
        bar = base.mark_bar(opacity=0.35, height=_ROW).encode(x=median)
        repeats = base.mark_point(filled=True, size=50, opacity=1)
        layers = [bar, repeats.encode(x=every, tooltip=_tips(answer))]
        if name == "value" and any(row["low"] for row in rows):
            layers.append(base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q"))
        layered: alt.LayerChart = alt.layer(*layers).properties(width=_WIDTH, height=height)
        return layered

    return alt.hconcat(
        panel("value", answer.figure, named), panel("p99", _LATENCY, None), spacing=24
    )


def _named(rows: Rows, key: str) -> Rows:
    """Copies of the rows with an added column `key`: the name of the row's case, followed by the
    message size if the rows have several sizes.
    """
    several = len({row["bpm"] for row in rows}) > 1
    return [{**row, key: f"{row['case']}, {row['size']}" if several else row["case"]}
            for row in rows]  # fmt: skip


def _series(row: Mapping[str, Any], path: str, answer: SweepAnswer) -> str:
    """The name of a row's line in the chart: the message size, and the values on all other axes."""
    rest = [f"{short(other)} {row[other]}" for other in answer.axes if other != path]
    return ", ".join([row["size"], *rest])


def _color(rows: Rows) -> alt.Color:
    """A color for each line of a chart, in the order of the message sizes.

    The legend has complete names, in two columns if the names are short.
    """
    names = dict.fromkeys(row["series"] for row in sorted(rows, key=lambda row: row["bpm"]))
    columns = 2 if max(map(len, names)) <= _LABEL else 1
    legend = alt.Legend(orient="bottom", columns=columns, labelLimit=0, symbolOpacity=1)
    return alt.Color("series:N", title=None, legend=legend, sort=list(names))


def _over_sizes(rows: Rows, answer: SweepAnswer) -> alt.HConcatChart:
    """A boundary line for each case. If the number of brokers varies, a second panel shows the
    figure per broker.
    """
    own = [{**row, "series": row["case"]} for row in rows]
    sizes = [format_size(message_bytes) for message_bytes in sorted({row["bpm"] for row in rows})]
    x = alt.X("size:O", sort=sizes, title="message size", axis=alt.Axis(labelAngle=0))
    beside = (
        ("per_broker", f"per broker [{answer.unit}]") if BROKERS_KEY in answer.axes
        else ("p99", _LATENCY)
    )  # fmt: skip
    return _beside(own, x, answer, beside)


def _beside(rows: Rows, x: alt.X, answer: SweepAnswer, other: tuple[str, str]) -> alt.HConcatChart:
    """A panel with the sweep's figure over an axis, and a second panel with the figure `other` if
    some case has it.
    """
    panels = [_panel(rows, x, "value", answer.figure)]
    if any(row[other[0]] for row in rows):
        panels.append(_panel(rows, x, *other))
    return alt.hconcat(*panels, spacing=36)


def _against_latency(rows: Rows, answer: SweepAnswer) -> alt.HConcatChart:
    """A chart with one point for each result: the result on the x axis, the p99 latency on the y
    axis.
    """
    own = _named(rows, "series")
    x = alt.X("value:Q", title=answer.figure, scale=alt.Scale(zero=True))
    marks = (
        alt.Chart(alt.InlineData(values=own))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=alt.Y("p99:Q", title="latency p99 [ms]", scale=alt.Scale(type="log")),
            color=_color(own),
            tooltip=_tips(answer),
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return alt.hconcat(marks)


def _tips(answer: SweepAnswer) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("case:N", title="Case"),
        alt.Tooltip("size:N", title="Size"),
        alt.Tooltip("value:Q", title=answer.figure, format=",.4~r"),
        alt.Tooltip("p99:Q", title="p99 ms", format=",.3~r"),
        alt.Tooltip("bound:N", title="Bound by"),
    ]


def _panel(rows: Rows, x: alt.X, name: str, title: str) -> alt.LayerChart:
    """One figure over an axis, with a mark for each repeat and a line through the medians."""
    data = alt.InlineData(values=[dict(row) for row in rows])
    base = alt.Chart(data).encode(x=x, color=_color(rows))
    y = alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=True))
    median = alt.Y(f"{name}:Q", aggregate="median", title=title)
    layers = [base.mark_line().encode(y=median), base.mark_point(filled=True, size=60).encode(y=y)]
    if name == "value" and any(row["low"] for row in rows):
        layers.append(base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"))
    panel: alt.LayerChart = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)
    return panel
