"""Estimates of a run's trials, time and bytes, made before any load. The module also has the time
budget of a run with several cases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from jobs.cluster.opening import LAG_CHECKS
from jobs.config import Cluster, Configuration, Goal, Workload
from jobs.console.events import Plan
from jobs.trials.canaries import AFTER_S
from jobs.trials.gates import LOOK_MAX_S
from jobs.trials.guards import Guards
from metrics.planning.load_needs import LogCleaning, describe, executor_cpu, retained_bytes
from metrics.traffic.axes import NP, axis_named
from metrics.units import format_duration, format_size
from search.confirming import Confirmation
from search.forecast import Forecast, forecast
from search.guide import Guide
from search.limits import Limits
from search.line import Line, ProducerRate
from search.model import PRODUCERS
from search.signals import Signals

STAGE_OVERHEAD_S = 3.0
"""Time of a trial in addition to its warm-up and window: the gates, the start of the barrier stage,
the agreement on a start, the drain and the judgement [s]. The measured time on two cores was 1.5 to
3 s. After an overload, the wait until the brokers are at rest adds some seconds.
"""

SPARK_S = 10.0
"""Time to start Spark and its Python workers [s]. The measured time on two cores was 8 to 13 s."""

LOOKS_S = 10.0
"""Time to open the metrics, to measure the brokers at rest, and to write the summary and the report
[s]. The measured time on two cores was 6 to 14 s.
"""

WARM_UP_S = 20.0
"""Expected length of the load that warms cold brokers before the first trial [s]."""


def starting_s(cluster: Cluster) -> float:
    """The time [s] that a run takes outside its trials.

    On a shared cluster, this time includes two measurements of other clients: their load before the
    run, and their latency after the run.
    """
    others_s = 0.0 if cluster.is_exclusive else LOOK_MAX_S + AFTER_S
    return SPARK_S + brokers_s(cluster) + others_s + LOOKS_S


def brokers_s(cluster: Cluster) -> float:
    """The time until the brokers are started and warm [s]."""
    return cluster.start_s + min(WARM_UP_S, cluster.warm_up_max_s)


def line_of(workload: Workload, goal: Goal, brokers: int, guards: Guards | None = None) -> Line:
    """The plan of the boundary line of one goal: the line contains the limits at all message sizes.

    Args:
        workload: the workload.
        goal: the goal.
        brokers: number of brokers.
        guards: the guards of the run, which know the bounds of the cluster's owner; None before the
            cluster is open.
    """
    search, axis = goal.search, axis_named(goal.search.axis)
    signals = Signals(
        achieved_min=goal.indicators.achieved_min, idle_min=goal.indicators.request_handler_idle_min
    )

    def bound(message_bytes: int) -> tuple[int, str]:
        limits = goal.guards if guards is None else guards.limits
        one = workload.pattern(message_bytes, brokers)
        load, key = limits.highest_load(partial(axis.apply, one), search.load_cap)
        return load, f"guards.{key}" if guards is None else guards.key_words(key)

    return Line(
        sizes=workload.message_bytes,
        rate=payload_rate(workload, goal),
        limits=Limits(
            search.load_start_max,
            search.load_cap,
            search.resolution,
            search.invalid_repeats_max,
            axis.counts,
            other_way=axis.other_way,
            interval_max=search.widest_interval,
        ),
        brokers=brokers,
        budget=search.budget,
        refine_max=search.refine_max,
        guide=Guide(signals=signals),
        confirmation=confirmation_of(workload, goal),
        bound=bound if guards is not None or goal.guards.caps_load else None,
        check_for_change=search.check_for_change,
        # Longer waits leave the handlers idle for longer: their readings would mislead the search.
        method="bisection" if axis.needs_latency else search.method,
    )


def confirmation_of(workload: Workload, goal: Goal) -> Confirmation:
    """The rule by which a held load confirms a limit; only time under load counts."""
    return Confirmation.lasting(goal.search.confirm_s, workload.trial.load_s)


def payload_rate(workload: Workload, goal: Goal) -> ProducerRate:
    """The payload rate for one unit of load. Budgets, forecasts and the model of the search use
    this rate.

    Some axes do not scale the whole payload, such as partitions, consumer groups or one part of a
    mix. If the search varies such an axis, the result is the payload rate at load `load_start_max`,
    divided by `load_start_max`.
    """
    axis, size = axis_named(goal.search.axis), workload.message_bytes[0]
    if workload.mix is not None:
        load = 1 if axis.grows_payload else goal.search.load_start_max
        whole = axis.apply(workload.pattern(size), load)
        return ProducerRate(bytes_per_s=1e6 * whole.mb_per_s / load)
    unit, larger = (axis.apply(workload.pattern(each), 1) for each in (size, 2 * size))
    per_s = unit.records_per_s / (1 if axis.grows_payload else goal.search.load_start_max)
    if math.isclose(larger.mb_per_s, unit.mb_per_s):  # the same payload at every size
        rate = ProducerRate(bytes_per_s=per_s * unit.message_bytes)
    else:
        rate = ProducerRate(records_per_s=per_s)
    if axis is not NP:  # a unit of load is not a producer, so it has no batches
        return rate
    options = workload.producer
    return replace(rate, linger_s=options.linger_ms / 1000.0, batch_bytes=options.batch_size)


def trial_s(workload: Workload) -> float:
    """The duration of one trial with all its phases [s]."""
    return workload.trial.load_s + STAGE_OVERHEAD_S


def plan_of(config: Configuration, out: Path | None = None) -> Plan:
    """The plan of a search, from a forecast on simulated clusters.

    The plan's `write_bytes_max`, `peak_mb_per_s` and `disk_bytes_max` are high estimates: each of
    these values is expected to be exceeded in one run of ten.
    """
    cluster, workload, goal = config.cluster, config.workload, config.goal
    one_s = trial_s(workload)
    brokers = cluster.brokers_known
    expected = _expected(line_of(workload, goal, brokers or 1), one_s)
    lines = 1 if goal.search.brokers_offline is None else 2  # all brokers, and the remaining ones
    loaded_share = workload.trial.load_s / one_s
    replicas = mean_replicas(workload)
    with_replicas = loaded_share * replicas
    write_bytes_max = lines * expected.bytes.high * with_replicas + sum(
        backlog_bytes(workload, size) for size in workload.message_bytes
    )
    return Plan(
        cluster=cluster.name,
        workload=workload.name,
        goal=config.goal_names,
        brokers=brokers,
        message_bytes=workload.message_bytes,
        producer=describe_producer(workload),
        resolution=goal.search.resolution,
        trial_s=one_s,
        trials_estimated=round(lines * expected.trials.median),
        duration_s=lines * expected.seconds.median,
        write_bytes_max=write_bytes_max,
        out=out,
        notes=(
            *_notes(cluster, workload),
            *_executor_note(workload, expected.peak_bytes_per_s.high),
        ),
        starting_s=starting_s(cluster),
        peak_mb_per_s=expected.peak_bytes_per_s.high / 1e6,
        disk_bytes_max=write_bytes_max
        if cluster.topics
        else on_disk(
            workload,
            brokers,
            expected.point_bytes.high * with_replicas
            + backlog_bytes(workload, max(workload.message_bytes)),
            expected.peak_bytes_per_s.high * replicas,
        ),
    )


@lru_cache(maxsize=64)
def _expected(line: Line, one_s: float) -> Forecast:
    """The forecast for the plan of a boundary line. The forecast is cached, because the cases of a
    sweep often have equal plans.
    """
    return forecast(line, one_s)


def backlog_bytes(workload: Workload, message_bytes: int) -> float:
    """Payload of the consumers' backlog at one message size, with all replicas [B]."""
    if workload.mix is not None:
        return sum(backlog_bytes(part, part.message_bytes[0]) for part in workload.parts)
    consumers = workload.consumers
    records = consumers.backlog_records if consumers.groups else 0
    return float(records * message_bytes * workload.topic.replication_factor)


def mean_replicas(workload: Workload) -> float:
    """The number of replicas of each byte of payload; for a mix, the mean weighted by payload."""
    if workload.mix is None:
        return workload.topic.replication_factor
    pattern = workload.pattern(workload.message_bytes[0])
    return pattern.written_bytes(pattern.records_per_s) / (1e6 * pattern.mb_per_s)


def on_disk(
    workload: Workload, brokers: int | None, written: float, peak_bytes_per_s: float
) -> float:
    """Upper bound [B] of the bytes that the brokers store at the same time.

    The topics of one message size are deleted before the topics of the next size are created.

    Args:
        workload: the workload.
        brokers: number of brokers; None if it is unknown, so that retention is ignored.
        written: bytes written at one message size, with all replicas [B].
        peak_bytes_per_s: the highest rate of written bytes, with all replicas [B/s].
    """
    if brokers is None:
        return written
    topics = [part.topic for part in workload.parts]
    late = peak_bytes_per_s * max(LogCleaning().late_s(each) for each in topics)
    return min(written, sum(retained_bytes(each, brokers) for each in topics) + late)


def describe_producer(workload: Workload) -> str:
    """The pattern of one producer as text; for a mix, the pattern of one producer of each part."""
    if workload.mix is not None:
        return "; ".join(
            f"{part.name}: {PRODUCERS.amount(part.np or 1)} of "
            f"{format_size(part.message_bytes[0])} messages, {describe_producer(part)}"
            for part in workload.parts
        )
    producer = workload.producer
    if producer.rate is not None:
        rate = "closed loop, as fast as brokers acknowledge"
    elif producer.rate_bytes_per_s is not None:
        rate = f"{producer.rate_bytes_per_s / 1e6:g} MB/s"
    else:
        rate = f"{producer.rate_records_per_s:g} records/s"
    topics = workload.topic.count
    in_turns = f", producers spread over {topics} topics" if topics > 1 else ""
    packed = "" if producer.compression == "none" else f"compression {producer.compression}, "
    return (
        f"{rate}, acks={producer.acks}, linger {producer.linger_ms:g} ms, "
        f"batches up to {producer.batch_size:,} B, {packed}"
        f"replication factor {workload.topic.replication_factor}{in_turns}"
    )


def _notes(cluster: Cluster, workload: Workload) -> tuple[str, ...]:
    smallest_and_largest = sorted({min(workload.message_bytes), max(workload.message_bytes)})
    patterns = [workload.pattern(size) for size in smallest_and_largest]
    network = describe(each for pattern in patterns for each in pattern.loads)
    own = (*workload.notes, *filter(None, [cluster.topics_note]))
    if cluster.starts_brokers:
        return (*own, *cluster.caveats, network)
    if all(part.topic.replication_factor < 2 for part in workload.parts):
        return (*own, network)
    window_s = workload.trial.measure_s
    text = (
        f"a window of {window_s:g} s shows followers that fall behind if the brokers' "
        f"replica.lag.time.max.ms is at most {1000 * window_s / LAG_CHECKS:.0f} (Kafka's default "
        "is 30000); the run reads the setting before any load, and stops if it is higher"
    )
    return (*own, text, network)


def _executor_note(workload: Workload, peak_bytes_per_s: float) -> tuple[str, ...]:
    """A sentence about the cores that executors need for the heaviest load; empty for client
    libraries, because their need is unknown.
    """
    if any(part.producer.client != "wire" for part in workload.parts):
        return ()
    if workload.mix is not None:
        parts = workload.pattern(workload.message_bytes[0]).parts
        scale = peak_bytes_per_s / (1e6 * sum(each.mb_per_s for each in parts))
        return tuple(
            f"part {each.part}: {needed}"
            for each in parts
            if (needed := executor_cpu((each.producer,), 1e6 * each.mb_per_s * scale))
        )
    producers = (workload.pattern(size).producer for size in workload.message_bytes)
    needed = executor_cpu(producers, peak_bytes_per_s)
    return () if needed is None else (str(needed),)


def caveat_of(config: Configuration, shortcomings: Sequence[str] = ()) -> str:
    """A sentence about what the cluster and its metrics cannot show."""
    return "; ".join([*config.cluster.caveats, *shortcomings])


@dataclass(frozen=True)
class TimeBudget:
    """The time budget of a run: a case begins only if it is expected to end within the budget.

    Attributes:
        total_s: the length of the budget [s]; None without a budget.
        began_s: the start of the budget [s since the epoch].
        clock: wall clock [s since the epoch].
    """

    total_s: float | None
    began_s: float = field(default_factory=time.time)
    clock: Callable[[], float] = time.time

    @property
    def left_s(self) -> float | None:
        """The remaining time [s]; None without a budget."""
        if self.total_s is None:
            return None
        return max(0.0, self.total_s - (self.clock() - self.began_s))

    def share(self, share: float) -> TimeBudget:
        """Shorten the budget to this share of its length [ratio]."""
        return self if self.total_s is None else replace(self, total_s=share * self.total_s)

    def refusal(self, needed_s: float) -> str:
        """The reason why the budget has no time for a case of this duration [s]; empty if the case
        fits.
        """
        left_s = self.left_s
        if left_s is None or needed_s <= left_s:
            return ""
        return (
            f"it takes about {format_duration(needed_s)}, but only {format_duration(left_s)} of "
            "the budget are left"
        )


def ending_within(config: Configuration, left_s: float | None) -> Configuration:
    """The configuration with a search that ends within this time [s]; None for no bound."""
    if left_s is None:
        return config
    budget, own_s = config.goal.search.budget, config.goal.search.budget.duration_s
    left_s = left_s if own_s is None else min(left_s, own_s)
    return config.with_search(budget=replace(budget, duration_s=left_s))
