"""What a run will take, before any load: trials, time, bytes."""

from __future__ import annotations

from pathlib import Path

from jobs.config import Cluster, Goal, Workload
from jobs.reporter_model import Plan
from search.bisect import Bisection

STAGE_OVERHEAD_S = 5.0
"""A trial beside its warm-up and window: checking the topic, launching the barrier stage,
agreeing on the start, draining, judging and appending to the tables [s]; measured 4 to 6."""


def searcher_of(goal: Goal) -> Bisection:
    """The search that a goal asks for."""
    search = goal.search
    return Bisection(
        search.np_start_max, search.np_cap, search.resolution, search.invalid_repeats_max
    )


def trial_s(workload: Workload) -> float:
    """How long one trial takes, all phases [s]."""
    return workload.trial.load_s + STAGE_OVERHEAD_S


def plan_of(cluster: Cluster, workload: Workload, goal: Goal, out: Path | None = None) -> Plan:
    """The plan of a run. Bytes are payload with all its replicas, at most."""
    per_point = searcher_of(goal).trials_left(())
    trials = per_point * len(workload.message_bytes)
    bytes_max = sum(
        per_point
        * goal.search.np_start_max
        * workload.producer.bytes_per_s(size)
        * workload.trial.load_s
        * workload.topic.replication_factor
        for size in workload.message_bytes
    )
    return Plan(
        cluster=cluster.name,
        workload=workload.name,
        goal=goal.name,
        brokers=cluster.testbed.brokers if cluster.testbed else None,
        message_bytes=workload.message_bytes,
        producer=describe_producer(workload),
        resolution=goal.search.resolution,
        trial_s=trial_s(workload),
        trials_estimated=trials,
        duration_s=trials * trial_s(workload),
        write_bytes_max=bytes_max,
        out=out,
        notes=_notes(cluster),
    )


def describe_producer(workload: Workload) -> str:
    """One producer's pattern in words."""
    producer = workload.producer
    rate = (
        f"{producer.rate_bytes_per_s / 1e6:g} MB/s"
        if producer.rate_bytes_per_s is not None
        else f"{producer.rate_records_per_s:g} records/s"
    )
    return (
        f"{rate}, acks={producer.acks}, linger {producer.linger_ms:g} ms, "
        f"batches up to {producer.batch_size:,} B, "
        f"replication factor {workload.topic.replication_factor}"
    )


TESTBED_CAVEAT = (
    "the testbed is a small cluster on this machine: its figures say nothing about hardware"
)


def _notes(cluster: Cluster) -> tuple[str, ...]:
    return (TESTBED_CAVEAT,) if cluster.testbed else ()
