"""Real brokers for tests; a plugin of tests/conftest.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import launch, make_spec, start
from jobs.testbed.places import default_root, free_ports
from jobs.testbed.profile import adapt, load_profile
from tests.support.bare_jvm import bare_jvm
from tests.support.engine_bench import Bench, bench_on
from tests.support.exporters import RULES, Exporter
from tests.support.loaded_brokers import LoadedBrokers, loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET = {"metadata.max.idle.interval.ms": 5_000}
"""Properties of nodes that idle for minutes: with Kafka's default of 0.5 s, a controller's metadata
records take a quarter of the CPU time of an idle node."""


QUICK = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "log.flush.interval.messages": 1_000_000,
    "num.io.threads": 8,
}
"""Properties of fast brokers, and of a controller that detects a dead broker after 3 s."""


@pytest.fixture(autouse=True)
def brief_look_at_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers of tests have no other clients, so runs need not watch for them before a load."""
    if "kafka" in request.path.parts:
        monkeypatch.setattr("jobs.trials.gates.FIRST_LOOK_S", 1.0)


@pytest.fixture(scope="session")
def exporters() -> dict[int, Exporter]:
    """Broker id → the Prometheus exporter of that broker of `kafka_testbed`."""
    ports = free_ports(len(RULES))
    return {
        i: Exporter(name, port) for i, (name, port) in enumerate(zip(RULES, ports, strict=True), 1)
    }


@pytest.fixture(scope="session")
def kafka_for_all(
    exporters: dict[int, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Three brokers and a controller of the disk-bound profile, for all tests of this process."""
    profile = load_profile("disk-bound")
    rules = tmp_path_factory.mktemp("exporters")
    spec = make_spec(
        adapt(profile, brokers=len(exporters), overrides=QUIET),
        "tests",
        kafka_jars(profile.kafka_version),
        node_jvm_options={i: [each.java_option(rules)] for i, each in exporters.items()},
    )
    if spec.class_archive is not None and not Path(spec.class_archive).exists():
        # The first testbed of a new checkout writes the archive that halves later starts.
        start(profile, brokers=1, name="tests").stop()
    with launch(spec, default_root()) as testbed:
        yield testbed


@pytest.fixture
def kafka_testbed(kafka_for_all: Testbed) -> Testbed:
    """The brokers of this process, after a check that all of them run.

    Tests share them: each test uses a topic of its own and stops no broker.
    """
    kafka_for_all.check()
    return kafka_for_all


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """The JVM of a driver that reads JMX, without Spark."""
    with bare_jvm() as (view, _):
        yield view


@pytest.fixture
def bench(kafka_testbed: Testbed) -> Iterator[Bench]:
    """A topic of its own on the brokers of the run, for trials without Spark."""
    with bench_on(kafka_testbed) as made:
        yield made


@pytest.fixture
def admin(kafka_testbed: Testbed) -> Iterator[KafkaAdmin]:
    """A connection to the brokers of the run."""
    with connect(kafka_testbed.bootstrap_servers) as connected:
        yield connected


REFUSED_SOCKETS = "ignore:unclosed <socket.socket:ResourceWarning"
"""Filter for a test that stops brokers: kafka-python leaves refused sockets to the garbage
collector."""


@pytest.fixture
def refused_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect refused sockets within the test; for tests with the filter `REFUSED_SOCKETS`."""
    yield
    for phase in ("setup", "call"):  # logged errors have references to the sockets
        caplog.get_records(phase).clear()
    gc.collect()


@pytest.fixture
def brokers(spark: SparkSession, kafka_testbed: Testbed) -> Iterator[LoadedBrokers]:
    """The brokers of the run, for single trials."""
    with loaded(kafka_testbed, spark._jvm) as under_load:
        yield under_load
