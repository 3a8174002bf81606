"""Registry of the clients for producers and consumers, by the names that workloads use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from jobs.engine.clients import kafka_python, librdkafka
from jobs.engine.clients.library_consumers import LibraryConsumers
from jobs.engine.clients.library_producers import LibraryProducers
from jobs.engine.consuming.consumer_client import ConsumerClient
from jobs.engine.consuming.wire_consumers import WireConsumers
from jobs.engine.producing.producer_client import ProducerClient
from jobs.engine.producing.wire_producers import WireProducers
from jobs.engine.task.plan import TrialPlan


@dataclass(frozen=True)
class Client:
    """A client in both roles.

    Attributes:
        producers, consumers: make the client of one task of a plan, unopened; tasks count from 0 in
            each role.
        packages: packages that executors need for it: package → a module of it.
    """

    producers: Callable[[TrialPlan, int], ProducerClient]
    consumers: Callable[[TrialPlan, int], ConsumerClient]
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
"""Name of a client, as in `metrics.traffic.clients.ClientName` → client."""


def client_of(plan: TrialPlan, task: int) -> ProducerClient | ConsumerClient:
    """The client of a task of the stage: producers in the first tasks, consumers in the others."""
    if task < plan.tasks:
        return CLIENTS[plan.pattern.producer.options.client].producers(plan, task)
    return CLIENTS[plan.pattern.consumers.client].consumers(plan, task - plan.tasks)
