"""The report as one HTML file that loads nothing, in light, in dark and on paper."""

from __future__ import annotations

from metrics.reporting.boundary_chart import boundary_spec
from metrics.reporting.page.model import Report
from metrics.reporting.page.words import WORDS
from metrics.reporting.templating import render


def report_page(report: Report) -> str:
    """The page of a report, with one chart for each goal."""
    specs = [boundary_spec(part.summary) for part in report.parts]
    return render("report.html", report=report, specs=specs, words=WORDS)
