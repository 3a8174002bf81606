"""Warming up brokers whose JVMs have just started, until more load makes them no faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import fmean

from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.unjudged import windows_under
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.warm_up import WarmUp
from metrics.windows.broker import BrokerWindow

BLOCK_S = 10.0
"""How long a block lasts, where there is time for one and a look [s]."""
GAIN_LEAST = 0.03
"""A block that is cheaper than all before it by less than this has gained nothing [ratio]."""
STEADY_BLOCKS = 2
"""Blocks in a row that gain nothing, after which the JVMs count as warm."""

SHARE, SHARE_SHORT = 0.5, 0.25
"""Of the first guess above the limit, which mostly is too much: the load of a block; and of one
that is all there is time for, as its reading has to tell how far the limit is."""

SATURATED_IDLE = 0.05
"""Handlers that are no more idle than this say only that the limit is lower [ratio]."""
LOOK_S, LOOK_BEGUN_S = 4.0, 2.0
LOOKS_MAX = 3
"""Where the warm-up left no idle time, so many blocks look at half the load, then a quarter, an
eighth: for so long, after at most so long of the same load [s]. Each saves a trial."""

FAILED_MAX = 2
"""Blocks that may fail, as when an executor is lost, before the run ends."""


def open_gates(context: RunContext, warm_up_max_s: float) -> Gates:
    """The gates of a run, after a first look at the brokers without its load.

    Args:
        warm_up_max_s: load on brokers whose JVMs are cold, at most [s]; 0 is none.
    """
    warming = partial(warm_up, context, warm_up_max_s) if warm_up_max_s > 0 else None
    last = context.cluster.last_load
    gates = Gates(context.source, context.topics.check, context.reporter, warming, last_load=last)
    context.reporter.report(PhaseStarted("looking at the brokers at rest"))
    gates.open()
    short = gates.under_replicated_at_rest
    context.facts = replace(context.facts, under_replicated_at_rest=short)
    if any(short.values()):
        told = ", ".join(
            f"{count:.0f} on broker {broker}" for broker, count in short.items() if count
        )
        context.reporter.report(
            PhaseStarted(
                f"partitions of others are under-replicated already ({told}): more than that counts"
            )
        )
    return gates


def warm_up(context: RunContext, load_max_s: float, topics: TopicSet) -> None:
    """Load a fresh cluster in blocks of 10 s until its cost per request stands still.

    With less time than for two blocks there is one, shorter where a look needs the rest.

    What the last block read stays in the context; where it left the handlers no idle time,
    shorter blocks of less load follow, so that it tells how far the limit is.

    A cold JVM reaches less than half of its speed, and on few cores its compilers take a
    minute or more, so time alone would be a guess. At most `load_max_s` of load [s]. A block
    whose executor is lost is loaded again, as a trial would be.

    Raises:
        StageFailedError, GeneratorError: one block more than `FAILED_MAX` failed.
        GuardStopError: a guard tripped.
    """
    context.reporter.report(PhaseStarted("warming up the brokers' JVMs"))
    costs_ms: list[float] = []
    failed, numbers = 0, count(1)
    share, block_s = share_and_length(load_max_s)
    pattern = block_pattern(context, topics.message_bytes, share, block_s)
    while not is_steady(costs_ms):
        look_s = LOOK_BEGUN_S + LOOK_S if _is_saturated(context.warm_up) else 0.0
        if (len(costs_ms) + 1) * block_s + look_s > load_max_s or (costs_ms and block_s < BLOCK_S):
            break
        try:
            cost_ms = _block(context, topics, pattern, next(numbers))
        except (StageFailedError, GeneratorError) as error:
            failed += 1
            if failed > FAILED_MAX:
                raise
            context.reporter.report(PhaseStarted(f"warming up the brokers again: {error}"))
            continue
        if cost_ms is None:  # without this metric there is nothing to wait for
            break
        costs_ms.append(cost_ms)
        loaded_s = len(costs_ms) * block_s
        detail = f"{loaded_s:.0f} s of load, {cost_ms:.2f} ms a request"
        context.reporter.report(PhaseProgress(detail))
    left_s = load_max_s - len(costs_ms) * block_s
    looks = min(LOOKS_MAX, int(left_s / (LOOK_S + LOOK_BEGUN_S)))
    try:
        _look_lower(context, topics, looks, numbers)
    except (StageFailedError, GeneratorError) as error:  # the first trial will tell
        context.reporter.report(PhaseStarted(f"going on without another look: {error}"))


def _look_lower(context: RunContext, topics: TopicSet, looks: int, numbers: Iterator[int]) -> None:
    """Halve the load until it leaves the handlers idle time to read."""
    for _ in range(looks):
        load = context.warm_up.load or 0
        if load <= 1 or not _is_saturated(context.warm_up):
            return
        pattern = context.pattern(topics.message_bytes, load // 2)
        begun_s = min(LOOK_BEGUN_S, context.workload.trial.warmup_s)
        _block(context, topics, _unjudged(context, pattern, LOOK_S, begun_s), next(numbers))


def _is_saturated(seen: WarmUp) -> bool:
    return seen.handler_idle is not None and seen.handler_idle <= SATURATED_IDLE


def is_steady(costs: Sequence[float]) -> bool:
    """True when the last blocks were no cheaper than the cheapest before them."""
    if len(costs) <= STEADY_BLOCKS:
        return False
    before, last = costs[:-STEADY_BLOCKS], costs[-STEADY_BLOCKS:]
    return min(last) > (1 - GAIN_LEAST) * min(before)


def _block(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, block: int
) -> float | None:
    """One block of load; what a produce request cost a handler [ms], or None if unknown."""
    windows = windows_under(context, topics, pattern, f"warm-up-{block}")
    idles = [window.handler_idle for window in windows if window.handler_idle is not None]
    context.warm_up = WarmUp(pattern.on_axis, min(idles, default=None))
    costs = [cost for cost in map(handler_cost_ms, windows) if cost is not None]
    return fmean(costs) if costs else None


def share_and_length(load_max_s: float) -> tuple[float, float]:
    """Of the first guess above the limit, the share that a block offers; and its length [s].

    Args:
        load_max_s: of all blocks and looks [s].
    """
    if load_max_s >= 2 * BLOCK_S:
        return SHARE, BLOCK_S
    return SHARE_SHORT, min(BLOCK_S, max(load_max_s / 2, load_max_s - LOOK_BEGUN_S - LOOK_S))


def block_pattern(
    context: RunContext, bpm: int, share: float = SHARE, block_s: float = BLOCK_S
) -> TrafficPattern:
    """A share of the first guess above the limit, or as much as the guards allow, for one block."""
    load = max(1, int(context.config.goal.search.load_start_max * share))
    while True:
        pattern = _unjudged(context, context.pattern(bpm, load), block_s)
        if load == 1 or context.guards.trouble_with(pattern) is None:
            return pattern
        load //= 2


def _unjudged(
    context: RunContext, pattern: TrafficPattern, measure_s: float, begun_s: float = 0.0
) -> TrafficPattern:
    """The same, measured for so long, after so long of the same load [s]."""
    trial = context.workload.trial
    phases = replace(trial, ramp_up_s=0.0, warmup_s=begun_s, measure_s=measure_s, volume_bytes=None)
    return replace(pattern, phases=phases)


def handler_cost_ms(window: BrokerWindow) -> float | None:
    """Busy share of the handlers for each produce request per second, in thousandths.

    The time of one handler [ms] over their number; followers' fetches are in it too.
    """
    idle, rate = window.handler_idle, window.produce.per_s
    if idle is None or not rate:
        return None
    return 1000.0 * max(0.0, 1.0 - idle) / rate
