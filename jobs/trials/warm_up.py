"""Warming up brokers whose JVMs have just started, until more load makes them no faster."""

from __future__ import annotations

from statistics import fmean

from jobs.brokers.topics import Topic
from jobs.events import PhaseProgress, PhaseStarted
from jobs.trials.bench import Bench
from jobs.trials.load import Target
from jobs.trials.recovery import wait_until_calm
from metrics.client import merge
from metrics.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.windows import BrokerWindow, broker_windows

BLOCK_S = 10.0
BLOCKS_MAX = 8
STEADY = 0.08
"""Gain of speed from one block of load to the next below which the JVMs count as warm [ratio]."""


def warm_up(bench: Bench, topic: Topic) -> None:
    """Load a fresh cluster in blocks of 10 s until its cost per request stands still.

    A cold JVM reaches less than half of its speed, and on few cores its compilers take a
    minute or more, so time alone would be a guess.
    """
    bench.reporter.report(PhaseStarted("warming up the brokers' JVMs"))
    cheapest: float | None = None
    for block in range(1, BLOCKS_MAX + 1):
        cost_ms = _block(bench, topic, block)
        if cheapest is not None and cost_ms is not None and cost_ms > (1 - STEADY) * cheapest:
            break
        cheapest = cost_ms if cheapest is None else min(cheapest, cost_ms or cheapest)
        bench.reporter.report(
            PhaseProgress(f"{block * BLOCK_S:.0f} s of load, {cost_ms or 0:.2f} ms a request")
        )
    wait_until_calm(bench.source)


def _block(bench: Bench, topic: Topic, block: int) -> float | None:
    """One block of load; what a produce request cost a handler [ms], or None if unknown."""
    target = Target(topic.name, topic.leaders, bench.addresses)
    np = max(1, bench.goal.search.np_start_max // 2)
    interval_s = bench.workload.trial.sample_interval_s
    with Sampler(bench.source, interval_s) as sampler:
        name = f"{bench.run_id}-warm-up-{block}"
        rows = bench.generator.offer(name, target, topic.message_bytes, np, 0.0, BLOCK_S)
        samples = sampler.stop()
    window = merge(rows)
    ids = brokers_of(bench.source)
    windows = broker_windows(samples, ids, window.start_s, window.end_s, interval_s)
    costs = [cost for cost in map(handler_cost_ms, windows) if cost is not None]
    return fmean(costs) if costs else None


def handler_cost_ms(window: BrokerWindow) -> float | None:
    """Busy share of the handlers for each produce request per second, in thousandths.

    The time of one handler [ms] over their number; followers' fetches are in it too.
    """
    idle, rate = window.handler_idle, window.produce.per_s
    if idle is None or not rate:
        return None
    return 1000.0 * max(0.0, 1.0 - idle) / rate
