"""A limit of wire producers, judged again with Kafka's own Java producers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.config import Configuration, load
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.trial.client import ClientWindow, Counts
from metrics.trial.evidence import Evidence, Judgement
from metrics.windows.broker import broker_windows
from search.model import Verdict
from tests.bench.contest import CHILD
from tests.bench.meter import started
from tests.bench.rows import JAVA
from tests.bench.task import Task
from tests.support.engine_bench import end_offsets_of
from tests.support.java_traffic import kafka_tools_jars
from tests.support.loaded_brokers import LoadedBrokers, loaded
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
JAVA_START_S = 120.0
"""Deadline for the start of two dozen JVMs on two cores [s]."""


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
    testbed: Testbed, brokers: LoadedBrokers, config: Configuration, producers: int
) -> Judgement:
    """The judgement of the goal with processes of ProducerPerformance, one producer each."""
    producer = config.workload.pattern(MESSAGE_BYTES).producer.options
    with (
        connect(testbed.bootstrap_servers) as admin,
        brokers.topic(PARTITIONS, {}) as topic,
        ExitStack() as stack,
    ):
        task = Task(
            topic,
            MESSAGE_BYTES,
            "producer",
            JAVA,
            testbed.bootstrap_servers,
            batch_bytes=producer.batch_size,
            options={"linger_ms": round(producer.linger_ms)},
            records_per_s=RECORDS_PER_S,
            jars=tuple(map(str, kafka_tools_jars(testbed.kafka_version))),
        )
        running = [stack.enter_context(started(CHILD, task.to_text()))[0] for _ in range(producers)]

        def give_up() -> None:
            for each in running:
                each.kill()

        impatient = threading.Timer(JAVA_START_S, give_up)
        impatient.start()
        for process in running:  # its first progress line comes after some seconds of load
            assert process.stdout is not None and "records sent" in process.stdout.readline()
        impatient.cancel()
        with Sampler(brokers.source, 0.5) as sampler:
            begin, start_s = sum(end_offsets_of(admin, topic, PARTITIONS).values()), time.time()
            threading.Event().wait(WINDOW_S)
            grown = sum(end_offsets_of(admin, topic, PARTITIONS).values()) - begin
            end_s = time.time()
            samples = sampler.stop()
        assert all(process.poll() is None for process in running)
    offered = round(producers * RECORDS_PER_S * (end_s - start_s))
    counts = Counts(offered, grown, grown, 0, offered * MESSAGE_BYTES, grown * MESSAGE_BYTES)
    windows = broker_windows(samples, brokers_of(brokers.source), start_s, end_s, 0.5)
    found = judge(
        Evidence(ClientWindow(start_s, end_s, counts), windows, (), brokers.source.name),
        Thresholds(config.goal.indicators, config.goal.validity),
    )
    (window,) = windows
    log.warning(
        "%d producers with Java: idle %.3f, %.2f requests/s, %d of %d records: %s",
        *(producers, window.handler_idle, window.produce.per_s, grown, offered, found.verdict),
    )
    assert window.produce.per_s is not None
    records = grown / (end_s - start_s) / window.produce.per_s
    full = config.workload.pattern(MESSAGE_BYTES).producer.records_per_batch
    # A delayed JVM sends two batches in one request if both are full.
    assert full * 0.98 <= records <= full * (1.1 if found.verdict is Verdict.SUSTAINED else 2.0)
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
            found = judged_with_java(testbed, brokers, config, producers)
            assert found.verdict is verdict, found.reasons
            if verdict is Verdict.OVERLOADED:
                assert found.reasons[0].indicator == "request_handler_idle"
