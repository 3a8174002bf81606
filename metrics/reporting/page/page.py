"""The report as one self-contained HTML file, with themes for light, dark and print."""

from __future__ import annotations

from metrics.reporting.boundary_chart import boundary_spec
from metrics.reporting.page.model import Report
from metrics.reporting.page.words import WORDS
from metrics.reporting.templating import render
from metrics.reporting.trial_charts import throughput_latency_spec


def report_page(report: Report) -> str:
    """Render a report, with a chart for each goal and one of all trials."""
    lines = [boundary_spec(part.summary) for part in report.parts]
    latency = throughput_latency_spec([listed.trial for listed in report.trials])
    specs = lines if latency is None else [*lines, latency]
    return render("report.html", report=report, specs=specs, latency=latency, words=WORDS)
