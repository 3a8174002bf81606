"""A limit of wire producers, judged again with Kafka's own Java producers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.config import Configuration, load
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Judgement
from search.model import Verdict
from tests.support.engine_bench import end_offsets_of
from tests.support.java_traffic import JavaKind, java_traffic
from tests.support.loaded_brokers import LoadedBrokers, judged_writes, loaded
from tests.support.original_traffic import PLAIN
from tests.support.runs import limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STATED_MS = 40.0
RECORDS_PER_S = 16
MESSAGE_BYTES = 1000
PARTITIONS = {partition: [1] for partition in range(10)}
WINDOW_S = 60.0
"""Window that is long compared with the batches at its edges [s]."""
SETTLED_S = 10.0
"""Time for which the producers send before it [s]."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"produce_handler_ms": STATED_MS, "num.io.threads": 1}
    with start("calibrated", brokers=1, overrides=overrides, name="java") as running:
        yield running


@pytest.fixture
def config(testbed: Testbed) -> Configuration:
    """A limit near 19.6 producers; bisection ends at 18 and 24, whose idle time is clear."""
    options = (
        "cluster.warm_up_max_s=20",
        f"workload.message_bytes=[{MESSAGE_BYTES}]",
        "workload.producer.rate_bytes_per_s=null",
        f"workload.producer.rate_records_per_s={RECORDS_PER_S}",
        "workload.producer.linger_ms=4000",
        "workload.trial.warmup_s=4",
        "workload.trial.measure_s=16",
        "workload.trial.early_end_error_rate=0",
        "goal.search.method=bisection",
        "goal.search.load_start_max=24",
        "goal.search.resolution=0.3",
        "goal.search.steady_s=0",
    )
    return load(str(cluster_file(testbed.folder)), "calibrated", "default", options)


def judged_with_java(
    testbed: Testbed, brokers: LoadedBrokers, config: Configuration, producers: int, folder: Path
) -> Judgement:
    """The judgement of the goal with Kafka's own producers in one JVM."""
    pattern = config.workload.pattern(MESSAGE_BYTES).producer
    properties = {
        **PLAIN,
        "linger.ms": f"{pattern.options.linger_ms:.0f}",
        "batch.size": str(pattern.options.batch_size),
    }
    kind = JavaKind(producers, RECORDS_PER_S, MESSAGE_BYTES, properties=properties)
    thresholds = Thresholds(config.goal.indicators, config.goal.validity)
    with (
        connect(testbed.bootstrap_servers) as admin,
        brokers.topic(PARTITIONS, {}) as topic,
        java_traffic(testbed, {topic: kind}, "judged", folder / f"errors-{producers}.log"),
    ):
        threading.Event().wait(SETTLED_S)
        seen = judged_writes(
            brokers.source,
            lambda: sum(end_offsets_of(admin, topic, PARTITIONS).values()),
            kind.per_s,
            MESSAGE_BYTES,
            WINDOW_S,
            thresholds,
        )
    found, client, (window,) = seen.judgement, seen.evidence.client, seen.evidence.brokers
    grown = client.counts.acked_records
    log.warning(
        "%d producers with Java: idle %.3f, %.2f requests/s, %d of %d records: %s",
        *(producers, window.handler_idle, window.produce.per_s, grown),
        *(client.counts.offered_records, found.verdict),
    )
    assert window.produce.per_s is not None
    records = grown / client.duration_s / window.produce.per_s
    # A delayed JVM sends two batches in one request if both are full.
    most = 1.1 if found.verdict is Verdict.SUSTAINED else 2.0
    assert 0.98 <= records / pattern.records_per_batch <= most
    return found


def test_java_producers_get_the_same_verdicts_at_the_limit_and_at_the_first_overload(
    testbed: Testbed, config: Configuration, tmp_path: Path, spark: SparkSession
) -> None:
    (point,) = limits_of(config, tmp_path, "wire")
    sustained, overloaded = point["np_sustained"], point["np_overloaded"]
    assert (sustained, overloaded) == (18, 24), point["overload_reasons"]
    with loaded(testbed, spark._jvm) as brokers:
        for producers, verdict in (
            (sustained, Verdict.SUSTAINED),
            (overloaded, Verdict.OVERLOADED),
        ):
            found = judged_with_java(testbed, brokers, config, producers, tmp_path)
            assert found.verdict is verdict, found.reasons
            if verdict is Verdict.OVERLOADED:
                assert found.reasons[0].indicator == "request_handler_idle"
