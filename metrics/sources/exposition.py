"""The parts of the Prometheus text format, version 0.0.4, that a scrape of numbers needs.

A line is `name{label="value",...} number [timestamp]`. Exporters write a series with the same text
each time, so a scrape looks the texts up and parses none of them twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")

Labels = dict[str, str]


@dataclass(frozen=True)
class Poll:
    """One answer of an exporter.

    Attributes:
        at_s: time of the poll [s].
        text: the page.
    """

    at_s: float
    text: str


def series_of(line: str) -> str:
    """The text of a line's series; empty for a comment and for a malformed line."""
    if not line or line[0] == "#":
        return ""
    return line[: line.rfind("}") + 1 or max(0, line.find(" "))]


def number_of(text: str) -> float:
    """The number at the start of a text, which a timestamp may follow; NaN for another text."""
    try:
        return float(text.split(None, 1)[0])
    except (ValueError, IndexError):
        return math.nan


def parse_series(text: str) -> tuple[str, Labels] | None:
    """Name and labels of a series; None for a malformed text."""
    found = _SERIES.fullmatch(text.strip())
    if found is None:
        return None
    labels: Labels = {}
    rest = found[2] or ""
    while rest.strip():
        label = _LABEL.match(rest)
        if label is None:
            return None
        labels[label[1]] = _ESCAPED.sub(_unescaped, label[2])
        rest = rest[label.end() :]
    return found[1], labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
