"""Tables and charts for notebooks: self-contained HTML, and PNG where HTML is not shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

import altair as alt

from metrics.reporting import drawing
from metrics.reporting.chart_style import chart_config, specification

_MARGIN = 24  # around a chart in its frame, and room for its menu [px]
_SENTENCE, _SENTENCE_EM = 44, 26  # a text longer than this [characters] wraps at this width [em]
_CELL = "vertical-align:top;padding:.3em .7em;max-width:44em"


class NotebookOutput:
    """The output of a notebook's cell.

    Args:
        html: the output as HTML.
        png: the same as a picture, for notebook front ends without HTML frames, or None.
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
    """Charts one below the other, each with tooltips in a self-contained frame.

    The frame isolates the chart's scripts from those of the notebook front end.
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
    """An HTML table of the rows: long texts wrap, numbers have four digits, null is a dash."""
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
    """The alignment of a column: right for numbers, left for all else."""
    known = [value for value in values if value is not None]
    return "right" if known and all(_is_number(value) for value in known) else "left"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
