"""Traffic patterns and plans of trials with a few given fields, and defaults for the others."""

from __future__ import annotations

import dataclasses
from typing import Any

from jobs.engine.producing.schedule import Schedule, schedule_for
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import ConsumerOptions, ProducerOptions, ProducerPattern
from metrics.traffic.pattern import Phases, TopicOptions, TrafficPattern
from metrics.traffic.payload import Payload
from tests.support.processes import PATIENCE_S


def _taken(kind: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a dataclass from `fields`, and return them."""
    names = {item.name for item in dataclasses.fields(kind)}
    return {name: fields.pop(name) for name in names & fields.keys()}


def producer_pattern(
    message_bytes: int = 100,
    rate_records_per_s: float = 1_000.0,
    payload: Payload | None = None,
    **fields: Any,
) -> ProducerPattern:
    """The pattern of one producer.

    Args:
        fields: fields of `ProducerOptions` and `Payload`.
    """
    payload = dataclasses.replace(payload or Payload(), **_taken(Payload, fields))
    options = ProducerOptions(**_taken(ProducerOptions, fields))
    assert not fields, f"a producer has no {', '.join(fields)}"
    return ProducerPattern(message_bytes, rate_records_per_s, options, payload)


def pattern(
    producers: int = 1,
    *,
    topic: TopicOptions | None = None,
    consumers: ConsumerOptions | None = None,
    **fields: Any,
) -> TrafficPattern:
    """A traffic pattern, by default with a warm-up of 0.1 s and a window of 0.5 s.

    Args:
        fields: fields of `Phases`, and those of `producer_pattern`.
    """
    phases = Phases(**({"warmup_s": 0.1, "measure_s": 0.5} | _taken(Phases, fields)))
    return TrafficPattern(
        producers,
        producer_pattern(**fields),
        topic or TopicOptions(replication_factor=1),
        phases,
        consumers or ConsumerOptions(),
    )


def schedule_of(
    producer: ProducerPattern, index: int, start_s: float, ramp_up_s: float = 0.0
) -> Schedule:
    """The schedule of one of several producers with this pattern."""
    phases = Phases(warmup_s=60.0, measure_s=60.0, ramp_up_s=ramp_up_s)
    whole = dataclasses.replace(pattern(), producer=producer, phases=phases)
    return schedule_for(whole, index, start_s)


def plan(**fields: Any) -> TrialPlan:
    """The plan of a trial of one task on topic t, with four partitions that broker 7 leads.

    Args:
        fields: fields of `TrialPlan`, and those of `pattern` unless a whole pattern is given.
    """
    own = _taken(TrialPlan, fields)
    if "pattern" not in own:
        own["pattern"] = pattern(**fields)
    defaults: dict[str, Any] = {
        "trial_id": "x",
        "topics": ("t",),
        "tasks": 1,
        "leaders": (7,) * 4,
        "brokers": {7: ("h", 1)},
        "connect_timeout_s": PATIENCE_S,
    }
    return TrialPlan(**(defaults | own))
