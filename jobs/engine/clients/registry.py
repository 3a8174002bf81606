"""Registry of the clients for producers and consumers, by the names that workloads use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from jobs.engine.clients import kafka_python, librdkafka
from jobs.engine.clients.library_consumers import LibraryConsumers
from jobs.engine.clients.library_producers import LibraryProducers
from jobs.engine.consuming.wire_consumers import WireConsumers
from jobs.engine.producing.loop import WireProducers
from jobs.engine.task.client import TaskClient
from jobs.engine.task.plan import TrialPlan
from metrics.common import extensions
from metrics.common.errors import ConfigError
from metrics.common.extensions import load_extension


@dataclass(frozen=True)
class Client:
    """A client in both roles.

    Attributes:
        producers, consumers: make the client of one task of a plan, unopened; tasks count from 0 in
            each role.
        packages: packages that executors need for it: package → a module of it.
    """

    producers: Callable[[TrialPlan, int], TaskClient]
    consumers: Callable[[TrialPlan, int], TaskClient]
    packages: Mapping[str, str] = field(default_factory=dict)


CLIENTS: Mapping[str, Client] = {
    "wire": Client(WireProducers, WireConsumers),
    "kafka-python": Client(
        partial(LibraryProducers, make=kafka_python.KafkaPythonProducer),
        partial(LibraryConsumers, make=kafka_python.KafkaPythonConsumer),
    ),
    "librdkafka": Client(
        partial(LibraryProducers, make=librdkafka.RdKafkaProducer),
        partial(LibraryConsumers, make=librdkafka.RdKafkaConsumer),
        {librdkafka.PACKAGE: "confluent_kafka"},
    ),
}
"""Name of a client, as in `metrics.traffic.clients.NAMES` → client."""


def client_named(name: str) -> Client:
    """The client with this name: one of `CLIENTS`, or one that an installed package adds.

    Raises:
        ConfigError: no package here adds it, or the package is broken.
    """
    if name in CLIENTS:
        return CLIENTS[name]
    added = load_extension(extensions.CLIENTS, name)
    roles = ("producer", "consumer")
    lacking = [role for role in roles if not callable(getattr(added.found, role, None))]
    if lacking:
        raise ConfigError(
            f"the client {name} of {added.package} has no {' and no '.join(lacking)}; expected a "
            "callable for both; report it to the authors of the package, or uninstall it"
        )
    return Client(
        partial(LibraryProducers, make=added.found.producer),
        partial(LibraryConsumers, make=added.found.consumer),
        {added.distribution: added.module} if added.distribution else {},
    )


def client_of(plan: TrialPlan, task: int) -> TaskClient:
    """The client of a task of the stage: producers in the first tasks, consumers in the others."""
    if task < plan.tasks:
        return client_named(plan.pattern.producer.options.client).producers(plan, task)
    return client_named(plan.pattern.consumers.client).consumers(plan, task - plan.tasks)
