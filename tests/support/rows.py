"""Invented rows of the tables."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from metrics.tables.boundary import Boundary
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.trial.evidence import Evidence, Judgement, Reason
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import START_S, broker, evidence
from tests.support.patterns import pattern


def traffic(
    producers: int = 4,
    message_bytes: int = 100,
    rate_records_per_s: float = 5_000.0,
    *,
    brokers: int = 2,
    **changes: Any,
) -> TrafficPattern:
    """The traffic pattern of a cluster, with two replicas of each partition.

    Args:
        changes: fields of the pattern (`load`, `point_message_bytes`), or arguments of
            `tests.support.patterns.pattern`.
    """
    names = ("axis", "load", "point_message_bytes")
    own = {name: changes.pop(name) for name in names if name in changes}
    options: dict[str, Any] = {"linger_ms": 10.0, "topic": TopicOptions(replication_factor=2)}
    options |= changes
    made = pattern(
        producers, message_bytes=message_bytes, rate_records_per_s=rate_records_per_s, **options
    )
    return replace(made, brokers=brokers, **own)


PATTERN = traffic()

BOUNDARY = Boundary(
    message_bytes=100,
    np_sustained=20,
    np_overloaded=21,
    mps=100_000.0,
    mb_per_s=10.0,
    mb_per_s_per_broker=5.0,
    overload_reasons=("request_handler_idle: idle 0.1",),
    limited_by="disk",
    trials=6,
    goal="default",
)


OVERLOADED = Judgement(
    Verdict.OVERLOADED,
    (Reason("request_handler_idle", "idle 0.1", 0.1, 0.2, 2, Resource.REQUEST_HANDLERS),),
    {"request_handler_idle": 1.125},
    Resource.DISK,
    "disk: …",
)


def trial(number: int = 1, run_id: str = "run-1", **changes: Any) -> Trial:
    """An overloaded trial of two brokers.

    Args:
        changes: fields of the trial, or of its evidence (`client`, `brokers`, …).
    """
    names = {item.name for item in fields(Evidence)}
    found = {"brokers": (broker(1), broker(2, handler_idle=0.1)), "growth": {0: 6_000, 1: 6_000}}
    own = {name: value for name, value in changes.items() if name in names}
    seen = own.pop("client", None)
    whole = Trial(
        run_id=run_id,
        number=number,
        started_at_s=START_S - 3,
        finished_at_s=START_S + 12,
        topic="redline-100",
        pattern=PATTERN,
        evidence=evidence(seen, **{**found, **own}),
        judgements={"default": OVERLOADED},
    )
    return replace(whole, **{k: v for k, v in changes.items() if k not in names})
