"""The notebooks in a Jupyter kernel, on the tables of a real run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.runs.planning import limits_of
from metrics.planning.provisioning import Demand, provision
from metrics.reporting.summary import load_summary
from metrics.tables.store import TableStore
from tests.support.executed import FOLDER, Executed, execute
from tests.support.finished_run import Run
from tests.support.spark_connect import connect_server
from tests.support.sweep_rows import FIGURES, point_row, run_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
DEMAND = Demand(mb_per_s=50.0, bpm=1_000, consumer_groups=1, growth=0.5, offline=0.2)


def _parameters(run: Run) -> dict[str, object]:
    return {"where": str(run.tables), "goal": "tolerant", "mb_per_s": DEMAND.mb_per_s}


def _check(name: str, shown: Executed, run: Run) -> None:
    """What any reader would look for is there."""
    text = re.sub(r"<[^>]+>", " ", unescape(shown.html))
    run_id = run.summary["run_id"]
    point = run.summary["boundaries"][0]
    if name == "boundary":
        assert f"Run {run_id} of" in text
        assert shown.html.count("<iframe") == 4  # a line for each goal, the use, all lines
        assert f"{point['np_overloaded']}" in text
        assert point["evidence"] in text
    elif name == "experiments":
        assert "Experiment acks, sweep s1 of 1970-01-01" in text
        assert "acks all against 1, 1 kB: 25.0% less" in text
        assert shown.html.count("<iframe") == 2
    elif name == "provisioning":
        answer = provision(limits_of(load_summary(run.folder / "summary.json"), "tolerant"), DEMAND)
        assert re.search(rf"Brokers to buy\s+{answer.brokers}\b", text)
        assert shown.pictures == 1
    elif name == "regressions":
        assert "calibrated with calibrated, goal tolerant" in text
        assert "goal default" not in text
        assert "There is nothing to draw." in text  # no nights
    else:
        assert f"of run {run_id}" in text
        assert "OVERLOADED" in text
        assert "Request handlers idle [ratio]" in text
        assert shown.pictures == 3


@pytest.fixture(scope="module")
def with_sweep(run: Run, spark_for_all: SparkSession) -> Run:
    """A run in whose tables there is a sweep, too."""
    tables = TableStore(spark_for_all, str(run.tables))
    for acks in FIGURES:
        for row in run_rows(acks):
            tables.append_run(row)
        tables.append_boundary(point_row(acks))
    tables.settle()
    return run


@pytest.fixture(scope="module")
def on_connect(
    with_sweep: Run, spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Executed]]:
    """All notebooks in one kernel whose Spark is a Spark Connect server, without a Java."""
    scratch = tmp_path_factory.mktemp("kernel")
    with connect_server(spark_for_all) as address:
        remote = {"SPARK_REMOTE": address, "JAVA_HOME": str(scratch / "no-java")}
        yield execute(NAMES, _parameters(with_sweep), scratch, **remote)


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_on_spark_connect(
    name: str, on_connect: dict[str, Executed], run: Run, spark: SparkSession
) -> None:
    _check(name, on_connect[name], run)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_answers_alone_with_a_spark_of_its_own(
    name: str, with_sweep: Run, tmp_path: Path
) -> None:
    _check(name, execute([name], _parameters(with_sweep), tmp_path)[name], with_sweep)
