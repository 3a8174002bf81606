"""Checks of the notebooks' outputs, on the tables of a search."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

from jobs.features.plan.planning import limits_of
from metrics.planning.provisioning import Demand, provision
from metrics.reporting.summary import RunSummary
from metrics.tables.store import TableStore
from tests.support.notebook_kernel import FOLDER, Executed
from tests.support.sweep_rows import FIGURES, point_row, run_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
DEMAND = Demand(mb_per_s=50.0, message_bytes=1_000, consumer_groups=1, growth=0.5, offline=0.2)


def parameters(where: str, run_id: str) -> dict[str, object]:
    return {"where": where, "run_id": run_id, "goal": "tolerant", "mb_per_s": DEMAND.mb_per_s}


def add_sweep(spark: SparkSession, where: str) -> None:
    tables = TableStore(spark, where)
    for acks in FIGURES:
        for row in run_rows(acks):
            tables.append_run(row)
        tables.append_boundary(point_row(acks))
    tables.settle()


def check(name: str, shown: Executed, summary: RunSummary) -> None:
    """Check that a notebook shows the values of the run's summary, for two goals."""
    text = re.sub(r"<[^>]+>", " ", unescape(shown.html))
    point = summary.boundaries[0]
    if name == "boundary":
        assert f"Run {summary.run_id} of" in text
        assert shown.html.count("<iframe") == 4  # a line for each goal, the use, all lines
        assert f"{point.np_overloaded}" in text
        assert point.evidence in text
    elif name == "experiments":
        assert "Experiment acks, sweep s1 of 1970-01-01" in text
        assert "acks all against 1, 1 kB: 25.0% less" in text
        assert shown.html.count("<iframe") == 2
    elif name == "provisioning":
        answer = provision(limits_of(summary, "tolerant"), DEMAND)
        assert re.search(rf"Brokers to buy\s+{answer.brokers}\b", text)
        assert shown.pictures == 1
    elif name == "regressions":
        assert f"{summary.cluster} with {summary.workload}, goal tolerant" in text
        assert "goal default" not in text
        assert "There is nothing to draw." in text  # no nights
    else:
        assert f"of run {summary.run_id}" in text
        assert "OVERLOADED" in text
        assert "Request handlers idle [ratio]" in text
        assert shown.pictures == 3
