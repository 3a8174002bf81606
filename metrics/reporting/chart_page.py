"""A page around a chart: one self-contained HTML file with a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.reporting.summary import RunSummary
from metrics.reporting.templating import render


def chart_page(summary: RunSummary, spec: Mapping[str, Any]) -> str:
    """Render the chart of `spec` with its figures as a table below it."""
    return render("boundary.html", summary=summary, spec=spec)
