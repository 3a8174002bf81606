"""The page of a sweep: one self-contained HTML file with a light and a dark theme."""

from __future__ import annotations

from metrics.reporting.sweep.answer import SweepAnswer
from metrics.reporting.sweep.charts import sweep_specs
from metrics.reporting.templating import render


def sweep_page(answer: SweepAnswer) -> str:
    """Render the effects, the charts, and all cases with links to the reports of their runs."""
    charts = sweep_specs(answer)
    return render("sweep.html", answer=answer, charts=charts, specs=[spec for _, spec in charts])
