"""The notebooks in a Jupyter kernel, on the tables of a real run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.plan import limits_of
from metrics.planning.provisioning import Demand, provision
from metrics.reporting.summary import load_summary
from tests.support.executed import FOLDER, Executed, execute
from tests.support.finished_run import Run
from tests.support.spark_connect import connect_server

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
def on_connect(
    run: Run, spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Executed]]:
    """All notebooks in one kernel whose Spark is a Spark Connect server, without a Java."""
    scratch = tmp_path_factory.mktemp("kernel")
    with connect_server(spark_for_all) as address:
        remote = {"SPARK_REMOTE": address, "JAVA_HOME": str(scratch / "no-java")}
        yield execute(NAMES, _parameters(run), scratch, **remote)


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_on_spark_connect(
    name: str, on_connect: dict[str, Executed], run: Run, spark: SparkSession
) -> None:
    _check(name, on_connect[name], run)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_answers_alone_with_a_spark_of_its_own(name: str, run: Run, tmp_path: Path) -> None:
    _check(name, execute([name], _parameters(run), tmp_path)[name], run)
