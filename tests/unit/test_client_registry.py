"""The clients that workloads may name: one registry, for both roles."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from jobs.config import load_workload
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


@pytest.mark.parametrize("name", CLIENTS)
def test_every_name_is_taken_in_both_roles(name: str) -> None:
    overrides = [f"workload.producer.client={name}", f"workload.consumers.client={name}"]
    pattern = load_workload("demo", overrides).pattern(100)
    assert (pattern.producer.options.client, pattern.consumers.client) == (name, name)


@pytest.mark.parametrize(
    ("name", "producers", "consumers", "libraries"),
    [
        ("wire", WireProducers, WireConsumers, None),
        (
            "kafka-python",
            LibraryProducers,
            LibraryConsumers,
            (KafkaPythonProducer, KafkaPythonConsumer),
        ),
        ("librdkafka", LibraryProducers, LibraryConsumers, (RdKafkaProducer, RdKafkaConsumer)),
    ],
)
def test_a_name_leads_to_its_client_in_both_roles(
    name: str, producers: type[Any], consumers: type[Any], libraries: tuple[type, type] | None
) -> None:
    reading: Any = ConsumerOptions(groups=1, members=2, client=name)
    trial = plan(client=name, consumers=reading, tasks=2, consumer_tasks=1)
    assert kinds_of(trial) == [producers, producers, consumers]
    made: tuple[Any, Any] = (CLIENTS[name].producers, CLIENTS[name].consumers)
    if libraries is not None:
        assert tuple(each.keywords["make"] for each in made) == libraries


def test_the_roles_may_have_different_clients() -> None:
    reading = ConsumerOptions(groups=1, client="wire")
    trial = plan(client="kafka-python", consumers=reading, consumer_tasks=1)
    assert kinds_of(trial) == [LibraryProducers, WireConsumers]


@pytest.mark.parametrize("name", CLIENTS)
def test_each_requirement_of_executors_is_a_package_and_its_module(name: str) -> None:
    for package, module in CLIENTS[name].packages.items():
        assert importlib.util.find_spec(module) is not None, f"{package} has no {module}"
    assert bool(CLIENTS[name].packages) == (name == "librdkafka"), "the others come with the wheel"
