"""Registry of clients: name in a workload → producers and consumers."""

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
    """One client, for producers and for consumers.

    Attributes:
        producers: function that makes the client of a task with producers. The function's arguments
            are the plan and the number of the task (from 0). The caller opens the client.
        consumers: function that makes the client of a task with consumers. The function's arguments
            are the plan and the number of the task (from 0). The caller opens the client.
        packages: package that executors need for the client → one of the package's modules.
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
    """The client with this name, from `CLIENTS` or from an installed package.

    Raises:
        ConfigError: no installed package adds the client, or the package is broken.
    """
    if name in CLIENTS:
        return CLIENTS[name]
    added = load_extension(extensions.CLIENTS, name)
    roles = ("producer", "consumer")
    lacking = [role for role in roles if not callable(getattr(added.found, role, None))]
    if lacking:
        raise ConfigError(
            f"the client {name} of {added.package} has no {' and no '.join(lacking)}; expected a "
            "callable named producer and one named consumer; report this to the authors of the "
            "package, or uninstall the package"
        )
    return Client(
        partial(LibraryProducers, make=added.found.producer),
        partial(LibraryConsumers, make=added.found.consumer),
        {added.distribution: added.module} if added.distribution else {},
    )


def client_of(plan: TrialPlan, task: int) -> TaskClient:
    """The client of one task; the first tasks of the stage are producers, the others are
    consumers.
    """
    if task < plan.tasks:
        return client_named(plan.pattern.producer.options.client).producers(plan, task)
    return client_named(plan.pattern.consumers.client).consumers(plan, task - plan.tasks)
