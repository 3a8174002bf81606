"""Bottlenecks planted in real brokers, one for each resource, and the resource that trials name.

The matrix is logged as the table of docs/evidence/attribution.md, which describes how to run this.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import ConfigResourceType

from jobs.config.loading import load_workload
from jobs.setup.jars import java_jar, kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.profile import load_profile
from metrics.traffic.clients import ProducerPattern
from metrics.trial.client import TaskReport
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.loaded_brokers import (
    Load,
    LoadedBrokers,
    Replicas,
    Route,
    TrialOutcome,
    loaded_testbed,
)
from tests.support.patterns import producer_pattern
from tests.support.processes import beside
from tests.support.rate_limited_link import rate_limited_link

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
log = logging.getLogger(__name__)

ALL = (1, 2, 3)
CASES_LEAST, RIGHT_AT_LEAST = 12, 11 / 12
RUN_SHARE_ONE, RUN_SHARE_ALL = 0.2, 0.5
"""Time between two planted collections, in multiples of a collection [ratio]."""
INVALID_AT_MOST = 3
"""Largest number of tries of a disturbed trial, as in a search."""


def led_by(leaders: Sequence[int], replicas: int = 1) -> dict[int, list[int]]:
    """Partitions with these leaders, and the next brokers as followers."""
    return {
        partition: [(leader - 1 + each) % len(ALL) + 1 for each in range(replicas)]
        for partition, leader in enumerate(leaders)
    }


EVENLY, MANY = ALL * 4, ALL * 10
ON_ONE = (1,) * 4


def messages(acks: str = "1") -> ProducerPattern:
    """Messages of 1 kB; requests grow under load."""
    return producer_pattern(1_000, 1_000.0, linger_ms=20.0, acks=acks)


def small(acks: str = "1") -> ProducerPattern:
    """Small batches in many requests."""
    return producer_pattern(1_000, 250.0, linger_ms=10.0, acks=acks)


def large(acks: str = "1") -> ProducerPattern:
    """Large batches; compression takes nearly all of the time of their requests."""
    return producer_pattern(
        1_000, 1_000.0, linger_ms=200.0, batch_size=200_000, pool_bytes=4_000_000, acks=acks
    )


def full(acks: str = "1") -> ProducerPattern:
    """The load of the calibrated testbed: one full batch in each request."""
    return load_workload("calibrated", [f"workload.producer.acks={acks}"]).pattern(1000).producer


# Brokers compress uncompressed batches again, which takes CPU of a handler.
SLOW_APPENDS = {"compression.type": "gzip"}


USUAL = {
    "log.flush.interval.messages": str(2**63 - 1),
    "num.io.threads": "2",
    "follower.replication.throttled.rate": "1000000000",
}


# A network thread looks up the principal of each request. The planted class waits in this call for
# as many milliseconds as the broker's file has bytes, and does not wait without a file.

PRINCIPALS = "PlantedPrincipals"
FOLDER_PROPERTY = "planted.folder"
SOURCE = (Path(__file__).parents[1] / "support" / "PlantedPrincipals.java").read_text(
    encoding="utf-8"
)


@dataclass(frozen=True)
class Bench:
    """Running brokers in which every bottleneck can be planted."""

    brokers: LoadedBrokers
    jvm: Any
    waits: Path


Undone = AbstractContextManager[Route | None]
Plant = Callable[[Bench], Undone]


@contextmanager
def altered(bench: Bench, ids: Sequence[int], values: Mapping[str, str]) -> Iterator[Route | None]:
    """Set properties of these brokers within this context."""

    def set_all(wanted: Mapping[str, str]) -> None:
        for each in ids:
            bench.brokers.alter(ConfigResourceType.BROKER, str(each), wanted)

    set_all(values)
    try:
        yield None
    finally:
        set_all({name: USUAL[name] for name in values})


def flushes(*ids: int) -> Plant:
    values = {"log.flush.interval.messages": "1", "num.io.threads": "1"}
    return lambda bench: altered(bench, ids, values)


def handlers(count: int, *ids: int) -> Plant:
    return lambda bench: altered(bench, ids, {"num.io.threads": str(count)})


def network_waits(each_ms: int, *ids: int) -> Plant:
    """The network threads of these brokers wait in each request [ms]."""

    @contextmanager
    def plant(bench: Bench) -> Iterator[Route | None]:
        files = [bench.waits / str(broker_id) for broker_id in ids]
        for file in files:
            file.write_bytes(bytes(each_ms))
        try:
            yield None
        finally:
            for file in files:
                file.unlink()

    return plant


def collections(run_share: float, *ids: int) -> Plant:
    """Full collections, one after the other, as in a heap that is too small."""

    @contextmanager
    def plant(bench: Bench) -> Iterator[Route | None]:
        ended = threading.Event()
        with ExitStack() as stack:
            for each in ids:
                address = bench.brokers.testbed.jmx_endpoints[each]
                collect = partial(_collect, bench.jvm, address, run_share, ended)
                stack.enter_context(beside(collect, ended))
            yield None

    return plant


def _collect(jvm: Any, address: str, run_share: float, ended: threading.Event) -> None:
    remote = jvm.javax.management.remote
    url = remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi")
    connector = remote.JMXConnectorFactory.connect(url)
    try:
        server = connector.getMBeanServerConnection()
        memory = jvm.javax.management.ObjectName("java.lang:type=Memory")
        pause_s = 0.0
        while not ended.wait(pause_s):
            begun_s = time.monotonic()
            server.invoke(memory, "gc", None, None)
            # A broker without any running time could not be sampled.
            pause_s = (time.monotonic() - begun_s) * run_share
    finally:
        connector.close()


def slow_link(is_stated: bool) -> Plant:
    @contextmanager
    def plant(bench: Bench) -> Iterator[Route | None]:
        with rate_limited_link(40, bench.brokers.addresses[1]) as link:
            yield Route({1: link.address}, link.inside, 40.0 if is_stated else None)

    return plant


def slow_followers(*ids: int) -> Plant:
    """Followers that leave the ISR and then fetch at most 100 kB/s, so that they do not return.

    Kafka throttles only followers outside the ISR.
    """

    @contextmanager
    def plant(bench: Bench) -> Iterator[Route | None]:
        def paused(work: Load) -> list[TaskReport]:
            with beside(lambda: _pause(bench.brokers.testbed, ids)):
                return work()

        with altered(bench, ids, {"follower.replication.throttled.rate": "100000"}):
            yield Route(bench.brokers.addresses, paused)

    return plant


def _pause(running: Testbed, ids: Sequence[int]) -> None:
    """Stop brokers until they leave the ISR, but are not fenced."""
    for seconds, sent in ((2.0, signal.SIGSTOP), (5.0, signal.SIGCONT)):
        threading.Event().wait(seconds)
        for each in ids:
            running.kill_broker(each, sent)


@contextmanager
def quota(bench: Bench) -> Iterator[Route | None]:
    with bench.brokers.quota("producer_byte_rate", 200_000.0):
        yield None


def nothing(_bench: Bench) -> Undone:
    """Plant no bottleneck in the testbed."""
    return nullcontext()


@dataclass(frozen=True)
class Case:
    """A planted bottleneck, and a load on it.

    Attributes:
        planted: the resource that must be named; UNKNOWN if the metrics cannot show it.
        where, how: place and way of planting, in words.
        plant: plants the bottleneck within its context.
        replicas, producer, producers, groups: the load.
        expected_text: further text that the answer must contain.
    """

    planted: Resource
    where: str
    how: str
    plant: Plant
    replicas: Replicas
    producer: ProducerPattern
    producers: int
    groups: int = 0
    topic: Mapping[str, str] = field(default_factory=dict)
    warmup_s: float = 3.0
    expected_text: str = ""

    @property
    def load(self) -> str:
        replication = len(next(iter(self.replicas.values())))
        read = f", {self.groups} group" if self.groups else ""
        return f"acks={self.producer.options.acks}, RF {replication}{read}"


FLUSH = "`log.flush.interval.messages=1`, `num.io.threads=1`"
SLEEP = "a handler waits in each produce request: profile `calibrated`"
PRINCIPAL = "a network thread waits in each request"
FULL_GC = "one full collection after the other"
GZIP = "batches are compressed again, four handlers a broker"
THROTTLED = {"follower.replication.throttled.replicas": "*"}
ON_ALL = "all"

CASES = {
    "disk-one": Case(Resource.DISK, "broker 1", FLUSH, flushes(1), led_by(MANY), small(), 60),
    "disk-all": Case(
        Resource.DISK, ON_ALL, FLUSH, flushes(*ALL), led_by(MANY, 3), small("all"), 45
    ),
    "disk-all-read": Case(
        Resource.DISK, ON_ALL, FLUSH, flushes(*ALL), led_by(MANY), small(), 60, groups=1
    ),
    "few-handlers": Case(
        Resource.REQUEST_HANDLERS, "broker 1",
        "`num.io.threads=1`, and batches are compressed again", handlers(1, 1),
        led_by(ON_ONE), large(), 50, topic=SLOW_APPENDS,
    ),
    "network-threads-one": Case(
        Resource.NETWORK_THREADS, "broker 1", PRINCIPAL, network_waits(20, 1), led_by(EVENLY),
        messages(), 24,
    ),
    "network-threads-all": Case(
        Resource.NETWORK_THREADS, ON_ALL, PRINCIPAL, network_waits(20, *ALL), led_by(EVENLY, 3),
        messages("all"), 24, groups=1,
    ),
    "cpu-one": Case(
        Resource.CPU, "broker 1", GZIP, handlers(4, 1), led_by(ON_ONE), large(), 80,
        topic=SLOW_APPENDS,
    ),
    "cpu-all": Case(
        Resource.CPU, ON_ALL, GZIP, handlers(4, *ALL), led_by(EVENLY, 3), large("all"), 60,
        groups=1, topic=SLOW_APPENDS,
    ),
    "heap-one": Case(
        Resource.HEAP, "broker 1", FULL_GC, collections(RUN_SHARE_ONE, 1), led_by(ON_ONE),
        messages(), 75,
    ),
    "heap-all": Case(
        Resource.HEAP, ON_ALL, FULL_GC, collections(RUN_SHARE_ALL, *ALL), led_by(EVENLY, 3),
        messages("all"), 30,
    ),
    "network": Case(
        Resource.NETWORK, "broker 1",
        "a token bucket of 40 Mbit/s (`tc … tbf`); needs root and iproute2",
        slow_link(True), led_by(ON_ONE), messages(), 8,
    ),
    "network-unstated": Case(
        Resource.UNKNOWN, "broker 1", "the same, and `link_mbit_per_s` is not stated",
        slow_link(False), led_by(ON_ONE), messages("all"), 8,
        expected_text="the speed of the network interface is not stated (link_mbit_per_s)",
    ),
    "follower-one": Case(
        Resource.REPLICATION, "broker 2", "a follower that left the ISR may fetch only 100 kB/s",
        slow_followers(2), led_by(ON_ONE, 2), messages(), 4, topic=THROTTLED, warmup_s=10.0,
        expected_text="the replicas on broker 2 by up to",
    ),
    "followers-all": Case(
        Resource.REPLICATION, "brokers 2 and 3", "the same of all followers",
        slow_followers(2, 3), led_by(ON_ONE, 3), messages("all"), 4, topic=THROTTLED, warmup_s=10.0,
    ),
    "quota": Case(
        Resource.QUOTA, ON_ALL, "200 kB/s for each client id", quota, led_by(EVENLY, 3),
        messages("all"), 8, groups=1,
    ),
}  # fmt: skip
# Broker 3's handlers wait three times as long, so a third of the partitions keeps them as busy.
WAITS_MS = {1: 5.0, 2: 5.0, 3: 15.0}
WAITED = partial(
    Case, Resource.REQUEST_HANDLERS, how=SLEEP, plant=nothing,
    expected_text="waiting without CPU for at least",
)  # fmt: skip
MOSTLY_ON_TWO = (1, 2, 1, 2, 1, 2, 3)
WAITING = {
    "waiting-handlers-one": WAITED(
        "broker 3", replicas=led_by(EVENLY), producer=full(), producers=92
    ),
    "waiting-handlers-all": WAITED(
        ON_ALL, replicas=led_by(MOSTLY_ON_TWO), producer=full(), producers=190, groups=1
    ),
    "waiting-handlers-followed": WAITED(
        ON_ALL, replicas=led_by(MOSTLY_ON_TWO, 3), producer=full("all"), producers=190
    ),
}


@pytest.fixture(scope="module")
def bench(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("waits")
    overrides = {
        "log.retention.bytes": "134217728",
        "replica.lag.time.max.ms": "2000",
        "num.io.threads": "2",
        "heap_mb": 512,
        "jvm_options": "-XX:TieredStopAtLevel=1 -XX:-ExplicitGCInvokesConcurrent",
        "principal.builder.class": PRINCIPALS,
        FOLDER_PROPERTY: str(folder),
    }
    of_kafka = kafka_jars(load_profile("default").kafka_version)
    jars = [*of_kafka, java_jar(PRINCIPALS, SOURCE, of_kafka)]  # with the planted class
    options: dict[str, Any] = {"overrides": overrides, "name": "bound", "jars": jars}
    with loaded_testbed("default", spark_for_all._jvm, brokers=len(ALL), **options) as brokers:
        yield Bench(brokers, spark_for_all._jvm, folder)


@pytest.fixture(scope="module")
def waiting(spark_for_all: SparkSession) -> Iterator[Bench]:
    overrides: dict[str, object] = {"produce_handler_ms": WAITS_MS, "num.io.threads": 1}
    options: dict[str, Any] = {"overrides": overrides, "name": "bound"}
    with loaded_testbed("calibrated", spark_for_all._jvm, brokers=len(ALL), **options) as brokers:
        yield Bench(brokers, spark_for_all._jvm, Path())


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[Case, TrialOutcome]]:
    """Name of a case → the case and its outcome, for all cases until now."""
    return {}


def limiting_resource(seen: TrialOutcome) -> Resource | None:
    """The limiting resource that a trial names; for an INVALID one, the resource of its reasons."""
    if seen.judgement.verdict is not Verdict.INVALID:
        return seen.judgement.limited_by
    return seen.judgement.reasons[0].resource


def is_right(case: Case, seen: TrialOutcome) -> bool:
    return (
        limiting_resource(seen) is case.planted and case.expected_text in seen.judgement.attribution
    )


def is_reported(case: Case, seen: TrialOutcome) -> bool:
    """True if the planted resource is named, also as a second one, or is reported as unknown."""
    text = seen.judgement.attribution
    also = text.partition("also at its limit: ")[2].partition(";")[0]
    is_known = case.planted is not Resource.UNKNOWN
    if f"{case.planted.value} (broker" in also or limiting_resource(seen) is case.planted:
        return True
    return not is_known and case.expected_text in text


def is_disturbed(seen: TrialOutcome) -> bool:
    """True if processes other than the brokers kept the machine busy."""
    full = [each for each in seen.evidence.brokers if (each.cpu_machine_share or 0.0) >= 0.9]
    return bool(full) and sum(each.cpu_process_share or 0.0 for each in full) < 0.45


def check(bench: Bench, case: Case) -> TrialOutcome:
    """Measure a case, and check that the answer names the planted resource or none."""
    for _ in range(INVALID_AT_MOST):
        with bench.brokers.topic(case.replicas, case.topic) as topic, case.plant(bench) as route:
            seen = bench.brokers.trial(
                topic,
                case.replicas,
                case.producer,
                case.producers,
                measure_s=6.0,
                warmup_s=case.warmup_s,
                route=replace(route or Route(bench.brokers.addresses), groups=case.groups),
            )
        log_case(seen)
        if seen.judgement.verdict is not Verdict.INVALID or case.planted is Resource.QUOTA:
            break
    assert seen.judgement.verdict is not Verdict.SUSTAINED, "the load reaches the planted limit"
    assert is_reported(case, seen) or limiting_resource(seen) is Resource.UNKNOWN, (
        seen.judgement.attribution
    )
    return seen


@pytest.mark.parametrize("case", CASES)
def test_the_planted_resource_is_named(
    bench: Bench, answers: dict[str, tuple[Case, TrialOutcome]], case: str
) -> None:
    answers[case] = (CASES[case], check(bench, CASES[case]))


@pytest.mark.parametrize("case", WAITING)
def test_waiting_handlers_are_not_taken_for_the_disk(
    waiting: Bench, answers: dict[str, tuple[Case, TrialOutcome]], case: str
) -> None:
    answers[case] = (WAITING[case], check(waiting, WAITING[case]))


def test_nearly_all_answers_are_right(answers: dict[str, tuple[Case, TrialOutcome]]) -> None:
    """Only undisturbed cases count, as a busy machine hides the cause of the handlers' waits."""
    for case, seen in answers.values():
        resource = limiting_resource(seen)
        text = seen.judgement.attribution or "; ".join(r.text for r in seen.judgement.reasons)
        log.warning(
            "| %s | %s | %s | %s | %s%s%s | %s |",
            *(case.planted.value, case.where, case.how, case.load),
            "" if is_right(case, seen) else "**not right** ",
            "(disturbed) " if is_disturbed(seen) else "",
            *(resource.value if resource else "–", text),
        )
    right = [is_right(*each) for each in answers.values()]
    calm = [is_right(*each) for each in answers.values() if not is_disturbed(each[1])]
    log.warning(
        "%d of %d right, %d of %d undisturbed", sum(right), len(right), sum(calm), len(calm)
    )
    if len(calm) < CASES_LEAST:
        pytest.skip(f"others kept the machine busy: {len(calm)} cases had it to themselves")
    assert sum(calm) >= RIGHT_AT_LEAST * len(calm)


def log_case(seen: TrialOutcome) -> None:
    log.warning("%s: %s", seen.judgement.verdict.value, seen.judgement.attribution)
    for reason in seen.judgement.reasons:
        log.warning("  %s", reason.text)
    for row in seen.evidence.resources:
        cells = (row.utilization, row.saturation, row.errors)
        used, waiting, failed = ("–" if cell is None else f"{cell:.2f}" for cell in cells)
        log.warning(
            "| %d | %s | %s | %s %s | %s %s |",
            *(row.broker_id, row.resource.value, used),
            *(waiting, row.saturation_unit, failed, row.errors_unit),
        )
