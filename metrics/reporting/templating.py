"""HTML pages from templates. All values are escaped, and each page is self-contained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2

from metrics.reporting import drawing
from metrics.reporting.chart_style import chart_config
from metrics.reporting.limit_answer import estimate_words, first_reasons, reading_words, span_words
from metrics.traffic.axes import axis_named
from metrics.units import (
    UNKNOWN,
    format_count,
    format_duration,
    format_mb_per_s,
    format_megabytes,
    format_ms,
    format_ratio,
    format_size,
    format_volume,
)
from search.model import LEVEL


def render(template: str, **values: Any) -> str:
    """Render a template of `metrics/reporting/templates`.

    Raises:
        jinja2.UndefinedError: a value that the template uses is missing.
    """
    return environment().get_template(template).render(**values)


HOSTS_MAX = 12
"""Maximum number of hosts that the evidence of a trial shows."""


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The Jinja environment, with the filters and globals for the templates."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=format_count,
        duration=format_duration,
        mb=format_mb_per_s,
        share=format_ratio,
        size=format_size,
        volume=format_volume,
        ms=format_ms,
        reading=reading_words,
        reasons=first_reasons,
        span=span_words,
        estimate=estimate_words,
        two=format_two,
        hundredths=format_hundredths,
        megabytes=format_megabytes,
        sentence=as_sentence,
        script_json=script_json,
    )
    made.globals.update(
        unknown=UNKNOWN,
        most_hosts=HOSTS_MAX,
        level=format_ratio(LEVEL),
        load_title=load_title,
        file=_source,
        vega=drawing.vega,
        can_draw=drawing.can_draw,
        no_charts=drawing.MISSING,
        dark_config=lambda: chart_config(dark=True),
    )
    return made


def _source(name: str) -> str:
    # `files` also reads from a wheel that is not unpacked.
    return (files("metrics.reporting") / "templates" / name).read_text(encoding="utf-8")


def script_json(value: Mapping[str, Any]) -> str:
    """A value as JSON that is safe inside a script element."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def load_title(axis: str) -> str:
    """The heading of a column of loads, such as `Producers`."""
    return as_sentence(axis_named(axis).words).removesuffix(".")


def as_sentence(text: str) -> str:
    """The text with a capital letter at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def format_hundredths(share: float | None) -> str:
    """A small share with two decimals, such as `0.13 %`; `–` if the share is not known."""
    return "–" if share is None else f"{100 * share:.2f} %"


def format_two(value: float | None) -> str:
    """A number with two decimals; without decimals if it is 100 or more; `–` if it is not known."""
    if value is None:
        return "–"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
