"""The parts of the Prometheus text format, version 0.0.4, that a scrape of numbers needs.

A line is `name{label="value",...} number [timestamp]`. Exporters write a series with the same text
each time, so a scrape looks the texts up and parses none of them twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")

NUMBER_MAX = 1e27
"""Largest number that is read: the largest 64-bit count, times a thousand million."""
_NUMBER_LENGTH_MAX = 400
_SERIES_LENGTH_MAX = 8_192
"""Longest text of a series that is read [characters]."""

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
    """The number at the start of a text, which a timestamp may follow; NaN for another text, and
    for a number beyond `NUMBER_MAX`, which no counter reaches.
    """
    try:
        found = float(text[:_NUMBER_LENGTH_MAX].split(None, 1)[0])
    except (ValueError, IndexError):
        return math.nan
    return found if abs(found) <= NUMBER_MAX else math.nan


def numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The values that are numbers; a JVM reports NaN for an unknown value."""
    parsed = {name: number_of(str(value)) for name, value in values.items()}
    return {name: value for name, value in parsed.items() if not math.isnan(value)}


def brief(text: str, most: int) -> str:
    """The begin of a remote text on one line, without control characters."""
    words = " ".join(text[: 4 * most].split())
    return "".join(each for each in words if each.isprintable())[:most]


def parse_series(text: str) -> tuple[str, Labels] | None:
    """Name and labels of a series; None for a malformed text."""
    found = _SERIES.fullmatch(text.strip()) if len(text) <= _SERIES_LENGTH_MAX else None
    if found is None:
        return None
    labels: Labels = {}
    rest, at = (found[2] or "").rstrip(), 0
    while at < len(rest):
        label = _LABEL.match(rest, at)
        if label is None:
            return None
        labels[label[1]] = _ESCAPED.sub(_unescaped, label[2])
        at = label.end()
    return found[1], labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
