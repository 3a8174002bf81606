"""The report as one HTML file that loads nothing, in light, in dark and on paper."""

from __future__ import annotations

from metrics.charts import boundary_spec
from metrics.report.model import Report
from metrics.report.templating import render
from metrics.report.words import WORDS


def report_page(report: Report) -> str:
    """The page of a report, with one chart for each goal."""
    specs = [boundary_spec(part.summary) for part in report.parts]
    return render("report.html", report=report, specs=specs, words=WORDS)
