"""Real brokers for tests; a plugin of tests/conftest.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import launch, make_spec, start
from jobs.testbed.places import default_root
from jobs.testbed.ports import free_ports
from jobs.testbed.profile import adapt, load_profile
from tests.support.exporters import RULES, Exporter
from tests.support.loaded_brokers import LoadedBrokers, loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET = {"metadata.max.idle.interval.ms": 5_000}
"""Nodes that idle for minutes: Kafka's own half second takes a quarter of their CPU-time."""


@pytest.fixture(scope="session")
def exporters() -> dict[int, Exporter]:
    """Broker id → the Prometheus exporter that `kafka_testbed` has in that broker."""
    ports = free_ports(len(RULES))
    return {
        i: Exporter(name, port) for i, (name, port) in enumerate(zip(RULES, ports, strict=True), 1)
    }


@pytest.fixture(scope="session")
def kafka_for_all(
    exporters: dict[int, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Three brokers and a controller for the whole run, of the disk-bound profile."""
    profile = load_profile("disk-bound")
    rules = tmp_path_factory.mktemp("exporters")
    spec = make_spec(
        adapt(profile, brokers=len(exporters), overrides=QUIET),
        "tests",
        kafka_jars(profile.kafka_version),
        node_jvm_options={i: [each.java_option(rules)] for i, each in exporters.items()},
    )
    if spec.class_archive is not None and not Path(spec.class_archive).exists():
        # The first testbed of a fresh checkout leaves what halves the start of the others.
        start(profile, brokers=1, name="tests").stop()
    with launch(spec, default_root()) as testbed:
        yield testbed


@pytest.fixture
def kafka_testbed(kafka_for_all: Testbed) -> Testbed:
    """The brokers of the run, checked to be whole. Share them: one topic per test, and
    nothing that stops a broker.
    """
    kafka_for_all.check()
    return kafka_for_all


REFUSED_SOCKETS = "ignore:unclosed <socket.socket:ResourceWarning"
"""Of a test whose brokers go away: kafka-python leaves sockets that were refused to the garbage
collector."""


@pytest.fixture
def refused_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """They go while that is excused; with the mark `filterwarnings(REFUSED_SOCKETS)`."""
    yield
    for phase in ("setup", "call"):  # errors that were logged hold the sockets that they tell of
        caplog.get_records(phase).clear()
    gc.collect()


@pytest.fixture
def brokers(spark: SparkSession, kafka_testbed: Testbed) -> Iterator[LoadedBrokers]:
    """The brokers of the run, to make trials on without a run."""
    with loaded(kafka_testbed, spark._jvm) as under_load:
        yield under_load
