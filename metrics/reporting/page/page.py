"""The report as one self-contained HTML file, with themes for light, dark and print."""

from __future__ import annotations

from metrics.reporting.boundary_chart import boundary_spec
from metrics.reporting.page.model import Report
from metrics.reporting.templating import render
from metrics.reporting.trial_charts import throughput_latency_spec

WORDS = {
    "producers": "identical clients that send records, each at the same fixed rate; a run "
    "searches for their number, which is np in tables and JSON",
    "offered": "the rate of the schedule",
    "achieved": "the rate that was acknowledged",
    "trial": "one iteration: prepare, warm up, measure, recover",
    "window": "the measured part of a trial; rates and idle fractions are counter differences "
    "over exactly this time",
    "verdict": "the result of a trial: SUSTAINED, OVERLOADED or INVALID, with its reasons",
    "INVALID": "the trial cannot be judged, for example because the generator missed its rate or "
    "metrics are missing; it is measured again and never counts as an overload",
    "bracket": "the highest number of producers that was sustained, and the lowest number above "
    "it that was not",
    "interval": "the range in which the limit lies with 90 % confidence, computed from all trials",
    "doubtful": "a limit whose interval is wider than the goal accepts",
    "boundary point": "a bracket no wider than the resolution; its value is the sustained side",
    "boundary line": "the boundary points over a range of message sizes",
    "resource": "what can limit the brokers: request handlers, network threads, CPU, heap, disk, "
    "network, replication or quota, or the connections to them",
    "MB": "10⁶ bytes of payload",
}
"""Word → meaning; a test compares them with the glossary."""


def report_page(report: Report) -> str:
    """Render a report, with a chart for each goal and one of all trials."""
    lines = [boundary_spec(part.summary) for part in report.parts]
    latency = throughput_latency_spec([listed.trial for listed in report.trials])
    specs = lines if latency is None else [*lines, latency]
    return render("report.html", report=report, specs=specs, latency=latency, words=WORDS)
