"""Tables, charts and facts of trials for notebooks, as self-contained HTML and as PNG."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

import altair as alt

from metrics.columns import restored
from metrics.reporting import drawing
from metrics.reporting.chart_style import chart_config, specification
from metrics.tables.rows import trial_from
from metrics.tables.schema import SampleRow
from metrics.units import (
    UNKNOWN,
    format_count,
    format_duration,
    format_mb_per_s,
    format_ratio,
    format_size,
)
from metrics.windows.series import SeriesPoint, series_points

_MARGIN = 24  # space around a chart in its frame, and for its menu [px]
_SENTENCE, _SENTENCE_EM = 44, 26  # longest text without a wrap [characters], width of others [em]
_CELL = "vertical-align:top;padding:.3em .7em;max-width:44em"


class NotebookOutput:
    """The output of a notebook's cell.

    Args:
        html: the output as HTML.
        png: the output as a picture, for notebook front ends that show no HTML frames; None if
            there is no picture.
    """

    def __init__(self, html: str, png: bytes | None = None) -> None:
        self._html, self._png = html, png

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/html": self._html}
        return bundle if self._png is None else bundle | {"image/png": self._png}

    def _repr_html_(self) -> str:
        return self._html


def paragraph(text: str) -> NotebookOutput:
    """One paragraph of text."""
    return NotebookOutput(f"<p>{escape(text)}</p>")


def paragraphs(texts: Iterable[str]) -> NotebookOutput:
    """Several paragraphs of text."""
    return NotebookOutput("".join(f"<p>{escape(text)}</p>" for text in texts))


def chart_output(*specs: Mapping[str, Any] | alt.TopLevelMixin) -> NotebookOutput:
    """Charts below each other. Each chart has tooltips and is in a self-contained frame.

    The frame separates the scripts of the chart from the scripts of the notebook front end.
    """
    if not specs:
        return NotebookOutput("<p>There is nothing to draw.</p>")
    if not drawing.can_draw():
        return NotebookOutput(f"<p>{escape(drawing.MISSING)}</p>")
    ready = [_styled(spec) for spec in specs]
    png = drawing.png(ready[0]) if len(ready) == 1 else None
    return NotebookOutput("".join(_frame(spec) for spec in ready), png)


def _styled(spec: Mapping[str, Any] | alt.TopLevelMixin) -> dict[str, Any]:
    if isinstance(spec, Mapping):
        return {**spec, "config": chart_config(dark=False)}
    return specification(spec)


def _frame(spec: dict[str, Any]) -> str:
    svg = drawing.svg(spec)
    size = re.search(r'<svg[^>]* width="([\d.]+)"[^>]* height="([\d.]+)"', svg)
    width, height = (math.ceil(float(px)) + _MARGIN for px in size.groups()) if size else (900, 500)
    page = alt.Chart.from_dict(spec).to_html(
        inline=True, embed_options={"renderer": "svg"}, json_kwds={"cls": _ForScripts}
    )
    return (
        f'<iframe srcdoc="{escape(page)}" width="{width}" height="{height}" '
        'style="border:0;max-width:100%"></iframe>'
    )


class _ForScripts(json.JSONEncoder):
    """A JSON encoder whose output is safe inside a script element."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def table_html(columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """An HTML table of rows.

    Long texts wrap, numbers have four significant digits, and null is shown as a dash.
    """
    listed = list(rows)
    sides = [_side(row[place] for row in listed) for place in range(len(columns))]
    head = "".join(
        f'<th style="{_CELL};text-align:{side}">{escape(name)}</th>'
        for name, side in zip(columns, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in listed)
    foot = note or ("" if listed else "No rows.")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div><p>{escape(foot)}</p>'


def _side(values: Iterable[Any]) -> str:
    """The alignment of a column: right for numbers, left for other values."""
    known = [value for value in values if value is not None]
    are_numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in known
    )
    return "right" if known and are_numbers else "left"


def _cell(value: Any, side: str) -> str:
    text = _text(value)
    longest = max((len(line) for line in text.split("<br>")), default=0)
    wide = f"min-width:{_SENTENCE_EM}em" if longest > _SENTENCE else "white-space:nowrap"
    return f'<td style="{_CELL};text-align:{side};{wide}">{text}</td>'


def _text(value: Any) -> str:
    """A value as HTML."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(key))}: {_text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "<br>".join(_text(item) for item in value)
    return escape(str(value))


def _number(value: float) -> str:
    """A number with four significant digits; whole numbers stay whole."""
    if value == 0 or abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}".rstrip("0").rstrip(".")


WINDOW_COLUMNS = (
    "broker_id",
    "handler_idle",
    "network_idle",
    "cpu_machine_share",
    "cpu_cores",
    "gc_share",
    "flush_threads",
    "flush_ms",
    "request_queue_max",
    "messages_in_per_s",
    "bytes_in_per_s",
    "replication_bytes_in_per_s",
    "disk_write_bytes_per_s",
    "isr_shrinks",
    "under_replicated_max",
    "replica_lag_max_records",
    "produce.per_s",
    "produce.total_ms",
    "produce.request_queue_ms",
    "produce.local_ms",
    "produce.remote_ms",
)
"""The most important columns of a broker's window; docs/reference/tables.md lists all columns."""


def window_s(trial: Mapping[str, Any]) -> float:
    """The length [s] of a trial's measured window, from a row of the table `trials`."""
    passed: float = (trial["window_end"] - trial["window_start"]).total_seconds()
    return passed


def points_over_time(
    samples: Iterable[Mapping[str, Any]], trial: Mapping[str, Any]
) -> list[SeriesPoint]:
    """The readings of the brokers over the time of a trial.

    Args:
        samples: rows of the table `samples` for the trial's run.
        trial: the trial's row of the table `trials`.
    """
    evidence = trial_from(trial).evidence
    kept = (restored(SampleRow, row) for row in samples)
    own = (each.sample for each in kept if each.trial == trial["trial"])
    brokers = {window.broker_id for window in evidence.brokers}
    return series_points(own, brokers, evidence.client.start_s)


def trial_facts(trial: Mapping[str, Any]) -> NotebookOutput:
    """A table of the facts of a trial, from a row of `trials`."""
    passed_s = window_s(trial)
    facts = (
        ("Trial", f"{trial['trial']} of run {trial['run_id']}"),
        ("Verdict", trial["verdict"]),
        ("Reasons", [reason["text"] for reason in trial["reasons"] or ()]),
        ("Limiting resource", trial["limited_by"] or "–"),
        ("Evidence", trial["attribution"] or "–"),
        ("Pattern", _pattern(trial)),
        ("Offered", _offered(trial, passed_s)),
        ("Achieved", _achieved(trial, passed_s)),
        ("Failed", f"{format_count(trial['failed_total'])} records over the whole trial"),
        ("Accounting", _accounting(trial)),
        ("Generator", _generator(trial)),
        ("Measured for", format_duration(passed_s)),
        ("Source of metrics", trial["metrics_source"]),
    )
    return NotebookOutput(table_html(("what", "value"), facts))


def _offered(trial: Mapping[str, Any], passed_s: float) -> str:
    if trial.get("closed_loop"):
        return "no fixed rate: in a closed loop, latencies exclude the wait before the send"
    return _rates(trial["offered_records"], trial["offered_bytes"], passed_s)


def _pattern(trial: Mapping[str, Any]) -> str:
    records_per_s = trial["rate_records_per_s"]
    rate = (
        "in a closed loop"
        if records_per_s is None
        else f"of {format_count(records_per_s)} records/s each"
    )
    topics = trial.get("topics") or 1
    of_topics = f" of each of {topics} topics" if topics > 1 else ""
    partitions = f"{trial['partitions_per_broker']} partitions{of_topics}"
    return (
        f"{format_count(trial['np'])} producers {rate}, messages of "
        f"{format_size(trial['bpm'])}, acks={trial['acks']}, compression {trial['compression']}, "
        f"{trial['replication_factor']} replicas, {partitions} on "
        f"each of {trial['brokers']} brokers, consumer groups: {trial['consumer_groups']}"
    )


def _rates(records: int, size_bytes: int, passed_s: float) -> str:
    if passed_s <= 0:
        return UNKNOWN
    mb_per_s = format_mb_per_s(size_bytes / passed_s / 1e6)
    return f"{format_count(records / passed_s)} messages/s, {mb_per_s} MB/s"


def _achieved(trial: Mapping[str, Any], passed_s: float) -> str:
    offered = trial["offered_records"]
    rates = _rates(trial["acked_records"], trial["acked_bytes"], passed_s)
    if trial.get("closed_loop"):
        return rates
    share = format_ratio(trial["acked_records"] / offered) if offered else UNKNOWN
    return f"{rates}, {share} of the offered records"


def _accounting(trial: Mapping[str, Any]) -> str:
    grown = trial["end_offset_growth_records"]
    acked = format_count(trial["acked_total"])
    if grown is None:
        return f"{acked} acknowledged; the growth of the end offsets is not known"
    return f"{acked} acknowledged, and the end offsets grew by {format_count(grown)}"


def _generator(trial: Mapping[str, Any]) -> str:
    late = trial["lateness_p99_ms"]
    return (
        f"busiest task {format_ratio(trial['loop_busy'])}, "
        f"lateness p99 {UNKNOWN if late is None else f'{late:.1f}'} ms"
    )
