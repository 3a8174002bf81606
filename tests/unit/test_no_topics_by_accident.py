"""Clients of ours ask for topics in a way that never makes a broker create one."""

from __future__ import annotations

from jobs.engine.clients.kafka_python import pattern_options
from jobs.engine.consumers.membership import group_options
from jobs.engine.consumers.pattern import ConsumerPattern
from jobs.engine.pattern import ProducerPattern, TrialPlan

PATTERN = ProducerPattern(message_bytes=100, rate_records_per_s=10.0)
PLAN = TrialPlan(
    trial_id="t",
    topics=("redline-t",),
    pattern=PATTERN,
    np=1,
    tasks=1,
    leaders=(1,),
    brokers={1: ("localhost", 9092)},
    warmup_s=0.0,
    measure_s=1.0,
    consumers=ConsumerPattern(groups=1),
)


def test_producers_and_consumers_of_kafka_python_create_no_topics() -> None:
    assert pattern_options(PATTERN)["allow_auto_create_topics"] is False
    assert group_options(PLAN, 0, 0)["allow_auto_create_topics"] is False
