"""Which client a plan asks for."""

from __future__ import annotations

from jobs.engine.clients.client import ProducerClient
from jobs.engine.clients.wire_client import WireClient
from jobs.engine.pattern import TrialPlan
from search.errors import ConfigError


def client_of(plan: TrialPlan, task: int) -> ProducerClient:
    """The client that `plan.client` names, for this task; nothing is opened yet.

    Raises:
        ConfigError: there is no client of this name.
    """
    if plan.client == "wire":
        return WireClient(plan, task)
    raise ConfigError(f"producer.client is {plan.client}; expected wire")
