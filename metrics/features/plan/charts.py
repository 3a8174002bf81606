"""Tables and charts of the number of brokers that a demand needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from metrics.planning.provisioning import (
    Demand,
    MeasuredLimit,
    Provision,
    provision,
    provision_rows,
)
from metrics.reporting.chart_style import NEUTRAL, RESOURCE_COLORS
from metrics.reporting.notebook_display import NotebookOutput, table_html
from metrics.reporting.summary import RunSummary
from metrics.units import AT_LEVEL, format_mb_per_s, format_size

STEPS = 60
_WIDTH, _HEIGHT = 240, 220  # [px]


def answer_table(answer: Provision, demand: Demand) -> NotebookOutput:
    """A table of the answer. The assumptions of the answer follow below the table, as sentences."""
    rows = provision_rows(answer, demand)
    return NotebookOutput(table_html(("what", "value"), rows, "; ".join(answer.assumptions)))


def limits_table(limits: Sequence[MeasuredLimit], summary: RunSummary) -> NotebookOutput:
    """A table of a run's limits per broker, one row for each message size, with the caveat of the
    run.
    """
    rows = [
        (
            format_size(one.message_bytes),
            _rate(one.mb_per_s),
            None if one.mb_per_s_low is None else _rate(one.mb_per_s_low),
            one.limited_by,
            one.replication_factor,
            one.consumer_groups,
        )
        for one in limits
    ]
    columns = (
        "message size",
        "limit of a broker",
        f"lower end {AT_LEVEL}",
        "bound by",
        "replicas",
        "consumer groups",
    )
    note = f"Run {summary.run_id} on {summary.cluster}. {summary.caveat}"
    return NotebookOutput(table_html(columns, rows, note))


def _rate(mb_per_s: float) -> str:
    return f"{format_mb_per_s(mb_per_s)} MB/s"


def sweep(
    limits: Sequence[MeasuredLimit], demand: Demand, name: str, values: Iterable[Any]
) -> list[dict[str, Any]]:
    """The answers for several values of one field of the demand, one row for each value."""
    answers = ((value, provision(limits, replace(demand, **{name: value}))) for value in values)
    return [
        {
            "value": value,
            "brokers": answer.brokers,
            "binds_first": answer.binds_first,
            "headroom_offline": answer.headroom_offline,
        }
        for value, answer in answers
    ]


def brokers_chart(limits: Sequence[MeasuredLimit], demand: Demand) -> alt.HConcatChart:
    """Three charts of the required number of brokers: over the payload rate, over the growth, and
    over the share of brokers that may be offline.

    A point marks the given demand in each chart.
    """
    most = 2.5 * demand.mb_per_s
    panels = []
    for name, low, high, title, fmt in (
        ("mb_per_s", most / STEPS, most, "Payload today [MB/s]", "~s"),
        ("growth", 0.0, max(1.0, 2 * demand.growth), "Growth", ".0%"),
        ("offline", 0.0, max(0.5, demand.offline), "Share offline", ".0%"),
    ):
        values = [low + (high - low) * i / STEPS for i in range(STEPS + 1)]
        panels.append(_panel(limits, demand, name, values, title, fmt))
    heading = alt.TitleParams("How many brokers", anchor="start")
    return alt.hconcat(*panels, title=heading, spacing=30)


def _panel(
    limits: Sequence[MeasuredLimit],
    demand: Demand,
    name: str,
    values: Sequence[float],
    title: str,
    fmt: str,
) -> alt.LayerChart:
    x = alt.X("value:Q", title=title, axis=alt.Axis(format=fmt, tickCount=6))
    y = alt.Y(
        "brokers:Q", title="Brokers", scale=alt.Scale(zero=True), axis=alt.Axis(tickMinStep=1)
    )
    tips = [alt.Tooltip("value:Q", title=title, format=fmt), "brokers:Q", "binds_first:N"]
    rows = sweep(limits, demand, name, values)
    line = alt.Chart(alt.InlineData(values=rows)).mark_line(
        interpolate="step-before", strokeWidth=2, color=NEUTRAL
    )
    given = sweep(limits, demand, name, [getattr(demand, name)])
    found = sorted({row["binds_first"] for row in given})
    colors = [RESOURCE_COLORS.get(each, NEUTRAL) for each in found]
    color = alt.Color(
        "binds_first:N",
        scale=alt.Scale(domain=found, range=colors),
        legend=alt.Legend(title="Limiting resource", orient="bottom"),
    )
    point = alt.Chart(alt.InlineData(values=given)).mark_point(filled=True, size=110, opacity=1)
    text = alt.Chart(alt.InlineData(values=given)).mark_text(dx=12, dy=12).encode(text="brokers:Q")
    layers = (
        line.encode(x=x, y=y, tooltip=tips),
        point.encode(x=x, y=y, color=color, tooltip=tips),
        text.encode(x=x, y=y),
    )
    return alt.LayerChart(layer=list(layers), width=_WIDTH, height=_HEIGHT)
