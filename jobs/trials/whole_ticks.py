"""Polls of the brokers around a load, where their counts follow from one-minute rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from metrics.sources.beans import HANDLER_IDLE_NS, TICKED_S
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.rate_windows import reads_rates
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource

LOOK_S = 1.0
"""Time between two polls [s]."""
DEADLINE_S = 2 * TICK_S + 2.0
"""Longest wait for a tick of each rate [s]."""
_TRAFFIC = ("messages_in", "bytes_in")


def poll_after_ticks(
    source: MetricsSource,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> list[BrokerSample]:
    """A poll of all nodes that counts all of a load that has just ended.

    Counts that follow from one-minute rates are those of the last tick, so this waits for another
    tick of each.
    """
    found = source.sample_all()
    if not reads_rates(source.nodes):
        return found
    begun_s, before = clock(), _ticked(found)
    while (passed_s := clock() - begun_s) < DEADLINE_S:
        pause(LOOK_S)
        found = source.sample_all()
        now = _ticked(found)
        is_counted = all(now.get(each, 0.0) > at_s for each, at_s in before.items())
        if is_counted and (passed_s >= TICK_S or now.keys() >= _rates(source)):
            break
    return found


def _rates(source: MetricsSource) -> set[tuple[int, str]]:
    """(broker id, reading) of the counts of traffic that follow from rates."""
    return {
        (node_id, name)
        for node_id, node in source.nodes.items()
        for name in node.rates
        if name in _TRAFFIC
    }


def _ticked(samples: Sequence[BrokerSample]) -> Mapping[tuple[int, str], float]:
    """(broker id, reading) → the time of its ticks [s]; a rate that was always 0 is left out."""
    return {
        (each.broker_id, name): each.values[f"{TICKED_S}:{name}"]
        for each in samples
        for name in (HANDLER_IDLE_NS, *_TRAFFIC)
        if f"{TICKED_S}:{name}" in each.values
    }
