"""Which client a plan asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobs.engine.clients.client import ProducerClient
from jobs.engine.clients.kafka_python import KafkaPythonProducer
from jobs.engine.clients.library import Library
from jobs.engine.clients.library_client import LibraryClient
from jobs.engine.clients.librdkafka import RdKafkaProducer
from jobs.engine.clients.wire_client import WireClient
from jobs.engine.pattern import TrialPlan
from search.errors import ConfigError

WIRE = "wire"

LIBRARIES: Mapping[str, Callable[[TrialPlan, int], Library]] = {
    "kafka-python": KafkaPythonProducer,
    "librdkafka": RdKafkaProducer,
}
"""Clients that a library stands behind, by the names that workloads use."""


def client_of(plan: TrialPlan, task: int) -> ProducerClient:
    """The client that `plan.client` names, for this task; nothing is opened yet.

    Raises:
        ConfigError: there is no client of this name.
    """
    if plan.client == WIRE:
        return WireClient(plan, task)
    if plan.client in LIBRARIES:
        return LibraryClient(plan, task, LIBRARIES[plan.client])
    raise ConfigError(
        f"producer.client is {plan.client}; expected one of {', '.join((WIRE, *LIBRARIES))}; "
        "correct it in the workload"
    )
