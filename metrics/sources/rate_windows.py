"""What windows of one-minute rates require: their length, and the interval of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from metrics.common.errors import ConfigError
from metrics.sources.one_minute_rates import ALPHA, IDLE_MOST, SEES_EACH_TICK_S, TICK_S
from metrics.sources.source import NodeInfo, named_brokers

POLL_SHARE_MAX = 0.1
"""Largest share of a broker's time for samples that see each tick, without a warning [ratio]."""


def reads_rates(nodes: Mapping[int, NodeInfo]) -> bool:
    """Whether counts of a node follow from one-minute rates."""
    return any(node.rates for node in nodes.values())


def window_least_s(nodes: Mapping[int, NodeInfo], interval_s: float) -> float | None:
    """The shortest window that has a whole tick of each rate [s]; None where no rate is read.

    Args:
        interval_s: time between two samples [s].
    """
    return 2 * (TICK_S + interval_s) if reads_rates(nodes) else None


def require_whole_ticks(nodes: Mapping[int, NodeInfo], measure_s: float, interval_s: float) -> None:
    """Check that a window has a whole tick of each one-minute rate.

    Args:
        measure_s: length of the window [s].
        interval_s: time between two samples [s].

    Raises:
        ConfigError: the window is too short.
    """
    least_s = window_least_s(nodes, interval_s)
    if least_s is None or measure_s >= least_s:
        return
    raise ConfigError(
        f"workload.trial.measure_s is {measure_s:g} and sample_interval_s {interval_s:g}; expected "
        f"{least_s:g} s or longer, better 20 s or more, as the exporters show one-minute rates in "
        f"place of counts, which move every {TICK_S:g} s; raise measure_s, or have the exporters "
        f"show the Count of the meters"
    )


def idle_error(interval_s: float) -> float:
    """Largest error of the handlers' idle time from ticks that samples miss [ratio].

    Args:
        interval_s: time between two samples [s].
    """
    ticks = math.ceil(interval_s / TICK_S)
    return ALPHA * IDLE_MOST / 2 * (ticks - 1) / ticks


def rate_caveats(nodes: Mapping[int, NodeInfo], interval_s: float) -> Iterator[str]:
    """A sentence for each thing that one-minute rates mean for an answer.

    Args:
        interval_s: time between two samples [s].
    """
    of_rates = sorted(node.node_id for node in nodes.values() if node.rates)
    if not of_rates:
        return
    names = sorted({name for node in nodes.values() for name in node.rates})
    yield (
        f"the exporters of {named_brokers(of_rates)} show one-minute rates in place of counts "
        f"({', '.join(names)}): their windows consist of whole ticks of {TICK_S:g} s"
    )
    poll_s = max(node.poll_s for node in nodes.values() if node.rates)
    every_s = max(interval_s, poll_s)
    if every_s > SEES_EACH_TICK_S:
        yield (
            f"samples every {every_s:g} s miss ticks of these rates, so that the request handlers' "
            f"idle time is known to ±{idle_error(every_s):.3f}, and a trial in which this error "
            f"decides is INVALID; set workload.trial.sample_interval_s to {SEES_EACH_TICK_S:g} or "
            f"less, or have the exporters show the Count of the meters"
        )
    if poll_s > POLL_SHARE_MAX * SEES_EACH_TICK_S:
        yield (
            f"a sample takes up to {poll_s:.2f} s of a broker's CPU, and one-minute rates need one "
            f"every {SEES_EACH_TICK_S:g} s, so that the load found is slightly too low; limit the "
            f"exporters to the beans that are read (includeObjectNames), or have them show the "
            f"Count of the meters and sample less often"
        )
