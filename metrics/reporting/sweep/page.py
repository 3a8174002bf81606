"""The page of a sweep: one HTML file that loads nothing, in light and in dark."""

from __future__ import annotations

from metrics.reporting.sweep.answer import SweepAnswer
from metrics.reporting.sweep.charts import sweep_specs
from metrics.reporting.templating import render


def sweep_page(answer: SweepAnswer) -> str:
    """What each axis does, the charts, and every case with a link to its own report."""
    charts = sweep_specs(answer)
    return render("sweep.html", answer=answer, charts=charts, specs=[spec for _, spec in charts])
