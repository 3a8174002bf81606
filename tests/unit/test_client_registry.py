"""The clients that workloads may name: one registry, for both roles."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from jobs.engine.clients.kafka_python import KafkaPythonConsumer, KafkaPythonProducer
from jobs.engine.clients.library_consumers import LibraryConsumers
from jobs.engine.clients.library_producers import LibraryProducers
from jobs.engine.clients.librdkafka import RdKafkaConsumer, RdKafkaProducer
from jobs.engine.clients.registry import CLIENTS, client_of
from jobs.engine.consuming.wire_consumers import WireConsumers
from jobs.engine.producing.loop import WireProducers
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import NAMES, ConsumerOptions
from tests.support.patterns import plan


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
