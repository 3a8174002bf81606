"""The wire client causes the same load as a real client, by the brokers' metrics."""

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
    """Three warm brokers for these tests, as other tests keep the shared brokers busy."""
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
def test_brokers_have_the_same_metrics_with_both_clients(
    comparison: Comparison, case: Case
) -> None:
    compared = comparison.compare(case)
    assert compared.wire.bytes_in_per_s > 0.97 * case.rate_bytes_per_s
    assert compared.differences == {}, compared
