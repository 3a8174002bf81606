"""The engine's clients request metadata in a way that makes no broker create a topic."""

from __future__ import annotations

from jobs.engine.clients.kafka_python import producer_options
from jobs.engine.consuming.group_member import group_options
from metrics.traffic.clients import ConsumerOptions
from tests.support.patterns import plan

PLAN = plan(consumers=ConsumerOptions(groups=1))


def test_producers_and_consumers_of_kafka_python_create_no_topics() -> None:
    assert producer_options(PLAN.pattern.producer)["allow_auto_create_topics"] is False
    assert group_options(PLAN, 0, 0)["allow_auto_create_topics"] is False
