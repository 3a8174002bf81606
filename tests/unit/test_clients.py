"""Library clients follow the engine's schedule, and one registry names them in both roles."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections import Counter
from typing import Any

import pytest

from jobs.engine.batches.pool import pool_of
from jobs.engine.clients.kafka_python import KafkaPythonConsumer, KafkaPythonProducer
from jobs.engine.clients.library import NEVER_SENT, Record, Settled
from jobs.engine.clients.library_consumers import LibraryConsumers
from jobs.engine.clients.library_producers import LibraryLoop, LibraryProducers, records_of
from jobs.engine.clients.librdkafka import (
    RdKafkaConsumer,
    RdKafkaProducer,
    connection_options,
    producer_options,
)
from jobs.engine.clients.registry import CLIENTS, client_of
from jobs.engine.consuming.wire_consumers import WireConsumers
from jobs.engine.producing.batch import UNACKNOWLEDGED
from jobs.engine.producing.loop import WireProducers
from jobs.engine.task.plan import TrialPlan
from metrics.common.errors import ConfigError, RedlineError
from metrics.traffic.clients import NAMES, ConsumerOptions
from tests.support.patterns import plan, producer_pattern
from tests.support.simulated_time import SimulatedTime


class Shelf:
    """A library that keeps records, and settles them when it is served."""

    def __init__(self, room: int = 10**9, fate: str | None = None, is_silent: bool = False) -> None:
        self.throttle_ms = 3
        self.partitions: list[int] = []
        self.timestamps_ms: list[int] = []
        self.room, self.fate, self.is_silent = room, fate, is_silent
        self._waiting: list[Settled] = []

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        if len(self._waiting) >= self.room:
            return False
        self.partitions.append(partition)
        self.timestamps_ms.append(timestamp_ms)
        self._waiting.append(settled)
        return True

    def serve(self) -> None:
        if not self.is_silent:
            self._settle(self.fate)

    end = serve

    def close(self) -> None:
        self._settle(NEVER_SENT)

    def _settle(self, fate: str | None) -> None:
        while self._waiting:
            self._waiting.pop()(fate)


def _plan(**fields: Any) -> TrialPlan:
    load = {"rate_records_per_s": 2_000.0, "pool_bytes": 100_000}
    return plan(**(load | {"measure_s": 0.4, "drain_timeout_s": 0.2} | fields))


def _run(trial: TrialPlan, *libraries: Shelf) -> LibraryLoop:
    time_here = SimulatedTime()
    loop = LibraryLoop(trial, 0, libraries, clock=time_here.clock, sleep=time_here.sleep)
    return loop.run(time_here.now_s + 0.02, 1.7e9)


def test_every_due_record_is_offered_once_and_accounted_for() -> None:
    shelf = Shelf()
    loop = _run(_plan(), shelf)
    counts, window = loop.account.counts, loop.account.window
    offered = loop.producers[0].records_due_between(window.start_s, window.end_s)
    assert offered == 800
    assert counts.acked_total == len(shelf.partitions) == pytest.approx(1_000, rel=0.1)
    assert counts.acked_by_partition == Counter(shelf.partitions)
    assert counts.acked_records == pytest.approx(800, rel=0.1)
    assert (counts.failed_total, counts.throttle_ms) == (0, 3)
    assert counts.unsent_own_records <= 1_000 - len(shelf.partitions)
    steps = [b - a for a, b in zip(shelf.timestamps_ms, shelf.timestamps_ms[1:], strict=False)]
    assert set(steps) <= {0, 1}, "create times are the intended ones, half a millisecond apart"
    pattern = _plan().pattern.producer
    records, pool = records_of(pattern), pool_of(pattern)
    assert len(records) == len(pool) * pool.sections[0].full_records
    assert {len(value or b"") for _, value, _ in records} == {100}
    assert len({value for _, value, _ in records}) == len(records)


def test_partitions_are_those_that_the_wire_client_would_take() -> None:
    trial = _plan(batch_size=2_000, linger_ms=2.0)
    shelf = Shelf()
    loop = _run(trial, shelf)
    pattern = trial.pattern.producer
    pool = pool_of(pattern)
    expected: list[int] = []
    producer = type(loop.producers[0])(
        0, pattern, pool.section_of(0), range(4), loop.producers[0]._schedule
    )
    while len(expected) < len(shelf.partitions):
        records = producer.records_by(producer.ready_s)
        expected += [producer.partition] * records
        producer.seal(records, 0.0)
    assert shelf.partitions == expected[: len(shelf.partitions)]
    assert len(set(expected)) > 1


def test_records_that_the_library_has_no_room_for_stay_due() -> None:
    loop = _run(_plan(), Shelf(room=3, is_silent=True))
    counts = loop.account.counts
    assert counts.sent_records == 0, "three went in the warm-up, then there was no room"
    assert counts.unsent_own_records == 0, "the library was full, which is not the loop's fault"
    assert counts.errors == {UNACKNOWLEDGED: 3}


def test_buffer_memory_bounds_the_records_on_the_way() -> None:
    shelf = Shelf(is_silent=True)
    _run(_plan(buffer_memory=1_000), shelf)
    assert len(shelf.partitions) == 10


def test_failures_are_counted_by_name_without_records_never_sent() -> None:
    shelf = Shelf(fate="NotLeaderForPartitionError")
    loop = _run(_plan(), shelf)
    counts = loop.account.counts
    assert counts.errors == {"NotLeaderForPartitionError": len(shelf.partitions)}
    assert counts.failed_total == len(shelf.partitions) > 0
    by_producer = counts.by_producer
    assert by_producer.failed == {0: {"NotLeaderForPartitionError": len(shelf.partitions)}}
    assert counts.sent_by_partition == Counter(shelf.partitions)
    assert counts.acked_total == 0
    assert not _run(_plan(), Shelf(fate=NEVER_SENT)).account.counts.errors


# kafka-python leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
def test_a_missing_library_and_an_unreachable_broker_are_errors_before_any_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("librdkafka", "kafka-python"):
        trial = _plan(client=name, brokers={7: ("127.0.0.1", 1)}, connect_timeout_s=0.5)
        client = client_of(trial, 0)
        with pytest.raises(RedlineError, match=r"broker 7 at 127\.0\.0\.1:1"):
            client.open()
        client.close()
        gc.collect()
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"package confluent-kafka.*pip install confluent-kafka"):
        RdKafkaProducer(_plan(client="librdkafka"), 0)


def test_librdkafka_takes_the_same_connection_options() -> None:
    given = {"security_protocol": "SASL_SSL", "ssl_check_hostname": False, "ssl_keyfile": None}
    assert connection_options(given) == {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(ConfigError, match="option sasl_kerberos_name is set, and librdkafka"):
        connection_options({"sasl_kerberos_name": "k"})
    options = producer_options(producer_pattern(batch_size=16_384), 150)
    assert options["batch.num.messages"] == 150, "batches are bounded by records"
    assert int(str(options["batch.size"])) > 1_000 * 16_384


def kinds_of(trial: TrialPlan) -> list[type]:
    """The clients of a trial's tasks, unopened."""
    hosted = [client_of(trial, task) for task in range(trial.tasks + trial.consumer_tasks)]
    for each in hosted:
        each.close()
    return [type(each) for each in hosted]


def test_the_registry_has_the_names_that_workloads_may_have_and_no_other() -> None:
    assert tuple(CLIENTS) == NAMES


KINDS: dict[str, tuple[type, type, tuple[type, type] | None]] = {
    "wire": (WireProducers, WireConsumers, None),
    "kafka-python": (
        LibraryProducers,
        LibraryConsumers,
        (KafkaPythonProducer, KafkaPythonConsumer),
    ),
    "librdkafka": (LibraryProducers, LibraryConsumers, (RdKafkaProducer, RdKafkaConsumer)),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_name_leads_to_its_client_in_both_roles(name: str) -> None:
    producers, consumers, libraries = KINDS[name]
    reading: Any = ConsumerOptions(groups=1, members=2, client=name)
    trial = plan(client=name, consumers=reading, tasks=2, consumer_tasks=1)
    assert kinds_of(trial) == [producers, producers, consumers]
    made: tuple[Any, Any] = (CLIENTS[name].producers, CLIENTS[name].consumers)
    if libraries is not None:
        assert tuple(each.keywords["make"] for each in made) == libraries
    other = plan(client=name, consumers=ConsumerOptions(groups=1), consumer_tasks=1)
    assert kinds_of(other) == [producers, WireConsumers], "the roles may have different clients"


@pytest.mark.parametrize("name", CLIENTS)
def test_each_requirement_of_executors_is_a_package_and_its_module(name: str) -> None:
    for package, module in CLIENTS[name].packages.items():
        assert importlib.util.find_spec(module) is not None, f"{package} has no {module}"
    assert bool(CLIENTS[name].packages) == (name == "librdkafka"), "the others come with the wheel"
