"""A page around a chart: one HTML file that loads nothing, in light and in dark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.reporting.summary import RunSummary
from metrics.reporting.templating import render


def chart_page(summary: RunSummary, spec: Mapping[str, Any]) -> str:
    """The page: the chart of `spec`, and its figures as a table under it."""
    return render("boundary.html", summary=summary, spec=spec)
