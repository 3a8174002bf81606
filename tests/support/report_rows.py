"""An invented run for reports: rows in the form of the tables, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Bracket, Verdict
from tests.support.evidence import broker
from tests.support.rows import traffic, trial

RUN_ID = "20261121-114632-6f2a"
IDLE = Reason(
    "request_handler_idle",
    "broker 2: request handlers idle 0.12, below 0.20",
    0.12,
    0.2,
    2,
    Resource.REQUEST_HANDLERS,
)
ENOUGH = Reason("request_handler_idle", "least idle request handlers 0.41 on broker 2", 0.41, 0.2)


def sustained() -> Judgement:
    return Judgement(Verdict.SUSTAINED, (ENOUGH,))


def overloaded(bound: Resource = Resource.DISK) -> Judgement:
    return Judgement(
        Verdict.OVERLOADED, (IDLE,), {}, bound, f"{bound.value}: broker 2: flushes took 86%"
    )


def trial_at(
    number: int,
    message_bytes: int,
    producers: int,
    verdicts: Mapping[str, Judgement],
    brokers: int = 3,
) -> Trial:
    first = next(iter(verdicts.values()))
    is_over = first.verdict is Verdict.OVERLOADED
    windows = [
        broker(each, handler_idle=0.9 if each != 2 else 0.12 if is_over else 0.41)
        for each in range(1, brokers + 1)
    ]
    pattern = traffic(producers, message_bytes, load=producers, point_message_bytes=message_bytes)
    return trial(
        number,
        RUN_ID,
        pattern=pattern,
        brokers=tuple(windows),
        judgements=verdicts,
        recovery_s=2.0 if is_over else None,
    )


def summary_of_sizes(
    sizes: Sequence[int], goal: str = "default", bound: Resource = Resource.DISK
) -> RunSummary:
    """The summary of a run with the bracket 58 to 63 producers of 250 kB/s at every size."""
    boundaries = [
        replace(
            make_boundary(
                Bracket(58, 63),
                NP,
                traffic(1, message_bytes, 250_000 / message_bytes, brokers=3),
                trials=2,
                reasons=[IDLE],
                limited_by=bound,
            ),
            goal=goal,
            evidence=f"{bound.value}: broker 2: flushes took 86%",
            confidence=0.95,
        )
        for message_bytes in sizes
    ]
    return RunSummary(
        run_id=RUN_ID,
        started_at="2026-11-21T11:46:32Z",
        finished_at="2026-11-21T11:51:40Z",
        cluster="testbed",
        workload="demo",
        goal=goal,
        boundaries=tuple(boundaries),
        brokers=3,
        caveat="the testbed's figures say nothing about hardware, JMX included",
        environment={"broker.version": "4.1.2", "redline.version": "0.1.0", "spark.version": "4"},
        replication_factor=2,
    )


def trials_of_sizes(sizes: Sequence[int], brokers: int = 3) -> list[Trial]:
    """The trials at both ends of the bracket of each size."""
    ends = [
        (message_bytes, *end)
        for message_bytes in sizes
        for end in ((63, overloaded()), (58, sustained()))
    ]
    return [
        trial_at(number, message_bytes, load, {"default": judgement}, brokers)
        for number, (message_bytes, load, judgement) in enumerate(ends, 1)
    ]
