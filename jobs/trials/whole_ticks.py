"""Polls of the brokers around a load, where their counts follow from one-minute rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from metrics.sources.beans import HANDLER_IDLE_NS, TICKED_S
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource

LOOK_S = 1.0
"""Time between two polls [s]."""
DEADLINE_S = 2 * TICK_S + 2.0
"""Longest wait for a tick of each rate [s]."""
_COMPARED = (HANDLER_IDLE_NS, "messages_in", "bytes_in")


def poll_after_ticks(
    source: MetricsSource,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> list[BrokerSample]:
    """A poll of all nodes that counts all of a load that has just ended.

    Counts that follow from one-minute rates are those of the last tick, so this waits for another
    tick of each.
    """
    first, found = source.sample_all(), []
    begun_s, ticked = clock(), _ticked(first)
    if not ticked:
        return first
    while clock() - begun_s < DEADLINE_S:
        pause(LOOK_S)
        found = source.sample_all()
        now = _ticked(found)
        if all(now.get(each, 0.0) > before for each, before in ticked.items()):
            break
    return found


def _ticked(samples: Sequence[BrokerSample]) -> Mapping[tuple[int, str], float]:
    """(broker id, reading) → the time of its ticks [s]."""
    return {
        (each.broker_id, name): each.values[f"{TICKED_S}:{name}"]
        for each in samples
        for name in _COMPARED
        if f"{TICKED_S}:{name}" in each.values
    }
