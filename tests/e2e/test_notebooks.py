"""The notebooks in a Jupyter kernel, on the tables of a real run.

tests/spark/test_notebooks_on_connect.py uses tables of an older version, on Spark Connect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.reporting.summary import load_summary
from tests.support.finished_run import Run
from tests.support.notebook_checks import NAMES, add_sweep, check, parameters
from tests.support.notebook_kernel import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def with_sweep(run: Run, spark_for_all: SparkSession) -> Run:
    add_sweep(spark_for_all, str(run.tables))
    return run


@pytest.mark.parametrize("name", NAMES)
def test_each_notebook_runs_with_its_own_spark(name: str, with_sweep: Run, tmp_path: Path) -> None:
    summary = load_summary(with_sweep.folder / "summary.json")
    values = parameters(str(with_sweep.tables), summary.run_id)
    check(name, execute([name], values, tmp_path)[name], summary)
