"""What a run will take, before any load: trials, time, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.cluster.opening import LAG_CHECKS
from jobs.config import Cluster, Configuration, Goal, Workload
from jobs.console.events import Plan
from jobs.trials.axes import payload_rate
from metrics.planning.wire_model import WirePattern, describe
from search.budget import Budget
from search.forecast import forecast
from search.guide import Guide
from search.limits import Limits
from search.line import Line
from search.signals import Signals

STAGE_OVERHEAD_S = 5.0
"""A trial beside its warm-up and window: checking the topic, launching the barrier stage,
agreeing on the start, draining, judging and appending to the tables [s]; measured 4 to 6."""


def line_of(workload: Workload, goal: Goal, brokers: int) -> Line:
    """The boundary line that a goal asks for, as the search takes it."""
    search, budget = goal.search, goal.search.budget
    signals = Signals(
        achieved_min=goal.indicators.achieved_min,
        idle_min=goal.indicators.request_handler_idle_min,
    )
    return Line(
        sizes=workload.message_bytes,
        rate=payload_rate(workload, goal),
        limits=Limits(
            search.load_start_max,
            search.load_cap,
            search.resolution,
            search.invalid_repeats_max,
            search.axis,
        ),
        brokers=brokers,
        budget=Budget(budget.trials, budget.duration_s, budget.payload_bytes),
        refine_max=search.refine_max,
        guide=Guide(signals=signals),
        method=search.method,
    )


def trial_s(workload: Workload) -> float:
    """How long one trial takes, all phases [s]."""
    return workload.trial.load_s + STAGE_OVERHEAD_S


def plan_of(config: Configuration, out: Path | None = None) -> Plan:
    """The plan of a search, forecast on simulated clusters.

    `write_bytes_max`, with all replicas, is what one run in ten exceeds.
    """
    cluster, workload, goal = config.cluster, config.workload, config.goal
    one_s = trial_s(workload)
    brokers = cluster.testbed.brokers if cluster.testbed else None
    expected = forecast(line_of(workload, goal, brokers or 1), one_s)
    loaded_share = workload.trial.load_s / one_s
    return Plan(
        cluster=cluster.name,
        workload=workload.name,
        goal=config.goal_names,
        brokers=brokers,
        message_bytes=workload.message_bytes,
        producer=describe_producer(workload),
        resolution=goal.search.resolution,
        trial_s=one_s,
        trials_estimated=round(expected.trials.median),
        duration_s=expected.seconds.median,
        write_bytes_max=(expected.bytes.high * loaded_share * workload.topic.replication_factor),
        out=out,
        notes=_notes(cluster, workload),
    )


def describe_producer(workload: Workload) -> str:
    """One producer's pattern in words."""
    producer = workload.producer
    rate = (
        f"{producer.rate_bytes_per_s / 1e6:g} MB/s"
        if producer.rate_bytes_per_s is not None
        else f"{producer.rate_records_per_s:g} records/s"
    )
    topics = workload.topic.count
    in_turns = f", {topics} topics in turns" if topics > 1 else ""
    return (
        f"{rate}, acks={producer.acks}, linger {producer.linger_ms:g} ms, "
        f"batches up to {producer.batch_size:,} B, "
        f"replication factor {workload.topic.replication_factor}{in_turns}"
    )


TESTBED_CAVEAT = (
    "the testbed is a small cluster on this machine: its figures say nothing about hardware"
)


def wire_pattern(workload: Workload, message_bytes: int) -> WirePattern:
    """What one producer's traffic is to the network at this message size, uncompressed."""
    producer, payload = workload.producer, workload.payload
    return WirePattern(
        message_bytes=message_bytes - payload.key_bytes,
        key_bytes=payload.key_bytes or None,
        headers=payload.headers,
        header_bytes=payload.header_bytes,
        rate_records_per_s=producer.records_per_s(message_bytes),
        linger_ms=producer.linger_ms,
        batch_size_bytes=producer.batch_size,
        is_acknowledged=producer.acks_code != 0,
        replication_factor=workload.topic.replication_factor,
        consumer_groups=workload.consumers.groups,
    )


def _notes(cluster: Cluster, workload: Workload) -> tuple[str, ...]:
    smallest_and_largest = sorted({min(workload.message_bytes), max(workload.message_bytes)})
    network = describe(wire_pattern(workload, size) for size in smallest_and_largest)
    if cluster.testbed:
        return (TESTBED_CAVEAT, network)
    if workload.topic.replication_factor < 2:
        return (network,)
    window_s = workload.trial.measure_s
    text = (
        f"a window of {window_s:g} s shows followers that fall behind where the brokers' "
        f"replica.lag.time.max.ms is at most {1000 * window_s / LAG_CHECKS:.0f} (Kafka's default "
        "is 30000): it is read before any load, and where it is more, the run asks for a longer "
        "window or a lower setting"
    )
    return (text, network)


def caveat_of(config: Configuration, shortcomings: Sequence[str] = ()) -> str:
    """What a reader of the figures must know about the cluster and its metrics."""
    own = [TESTBED_CAVEAT] if config.cluster.testbed else []
    return "; ".join([*own, *shortcomings])
