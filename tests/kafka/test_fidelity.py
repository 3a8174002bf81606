"""The wire client causes the same load as a real client, by the brokers' metrics: on usual brokers,
and below and above a planted limit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from jobs.testbed.launcher import start
from metrics.planning.planted import HandlerTime
from tests.bench.fidelity import CASES, Case, Comparison, comparison_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

log = logging.getLogger(__name__)

BROKERS, HANDLERS, PLANTED_MS, OWN_MS, IDLE_MIN = 2, 2, 20.0, 1.0, 0.2
MESSAGE_BYTES, RECORDS_PER_S, LINGER_MS = 1_000, 20, 125.0
RECORDS_PER_REQUEST = 1 + int(RECORDS_PER_S * LINGER_MS / 1_000)
LIMIT = (
    BROKERS
    * HandlerTime(PLANTED_MS, OWN_MS, handlers=HANDLERS).requests_per_s(IDLE_MIN)
    * RECORDS_PER_REQUEST
    / RECORDS_PER_S
)
"""The planted limit [producers]; at 1.25 times it no handler is ever idle."""
ROUNDS = 3


@pytest.fixture(scope="module")
def usual(spark_for_all: SparkSession) -> Iterator[Comparison]:
    """Three warm brokers for these tests, as other tests keep the shared brokers busy."""
    with (
        start("disk-bound", brokers=3, name="fidelity") as testbed,
        comparison_on(testbed, spark_for_all._jvm) as made,
    ):
        made.warm_up()
        yield made


@pytest.fixture(scope="module")
def limited(spark_for_all: SparkSession) -> Iterator[Comparison]:
    overrides: dict[str, object] = {"produce_handler_ms": PLANTED_MS, "num.io.threads": HANDLERS}
    with (
        start("calibrated", brokers=BROKERS, overrides=overrides, name="fidelity") as testbed,
        comparison_on(testbed, spark_for_all._jvm, warm_s=4.0, measure_s=10.0) as made,
    ):
        made.compare(case_at(0.5), rounds=1)  # the JVMs are cold
        yield made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_brokers_have_the_same_metrics_with_both_clients(usual: Comparison, case: Case) -> None:
    compared = usual.compare(case)
    log.warning("%s; %d windows were repeated", compared, usual.delayed)
    assert compared.wire.bytes_in_per_s > 0.97 * case.rate_bytes_per_s
    assert compared.differences == {}, compared


def case_at(share: float) -> Case:
    """Producers that offer this share of the planted limit."""
    return Case(
        MESSAGE_BYTES * RECORDS_PER_S,
        MESSAGE_BYTES,
        "1",
        producers=round(share * LIMIT),
        linger_ms=LINGER_MS,
        is_overload=share > 1.0,
    )


@pytest.mark.parametrize("share", [0.5, 1.2, 1.6])
def test_brokers_have_the_same_load_from_both_clients_at_a_limit(
    limited: Comparison, share: float
) -> None:
    compared = limited.compare(case_at(share), ROUNDS)
    log.warning("at %.1f times the limit: %s | %s", share, compared.wire, compared.librdkafka)
    apart = {"requests_per_s", "request_bytes", "bytes_in_per_s"} & compared.differences.keys()
    assert not apart, compared
    batch_bytes = compared.wire.request_bytes / (MESSAGE_BYTES * RECORDS_PER_REQUEST)
    assert (batch_bytes > 1.15) is (share > 1.25), "requests grow where the handlers are never idle"
