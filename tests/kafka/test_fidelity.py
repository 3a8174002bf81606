"""The wire client causes the load that a real client causes, in the brokers' own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.testbed.launcher import start
from metrics.sources.jmx import open_jmx
from tests.bench.fidelity import CASES, Case, Comparison

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def comparison(spark_for_all: SparkSession) -> Iterator[Comparison]:
    """Three warm brokers of their own, as other tests leave theirs busy."""
    with (
        start("disk-bound", brokers=3, name="fidelity") as testbed,
        connect(testbed.bootstrap_servers) as admin,
    ):
        source = open_jmx(testbed.jmx_endpoints, spark_for_all._jvm)
        made = Comparison(testbed, admin, source)
        made.warm_up()
        yield made
        source.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_brokers_see_the_same_of_both_clients(comparison: Comparison, case: Case) -> None:
    compared = comparison.compare(case)
    assert compared.wire.bytes_in_per_s > 0.97 * case.rate_bytes_per_s
    assert compared.differences == {}, compared
