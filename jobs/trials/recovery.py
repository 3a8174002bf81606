"""Waiting until brokers are at rest, so that one load does not spoil the next trial."""

from __future__ import annotations

import time
from collections.abc import Callable

from metrics.sources.source import MetricsSource, brokers_of
from metrics.windows import BrokerWindow, broker_windows

DEADLINE_S = 60.0
CALM_IDLE = 0.9
_WINDOW_S = 1.0


def is_calm(window: BrokerWindow) -> bool:
    """True when request handlers are idle and followers have all that was written."""
    idle, lag = window.handler_idle, window.replica_lag_max_records
    behind = window.under_replicated_max
    return idle is not None and idle >= CALM_IDLE and not lag and not behind


def wait_until_calm(
    source: MetricsSource,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> float | None:
    """Wait until every broker was at rest for a second.

    Returns how long it took [s], or None when some were not at rest by the deadline.
    """
    began_s = from_s = clock()
    earlier = source.sample_all()
    while from_s - began_s < deadline_s:
        pause(_WINDOW_S)
        later = source.sample_all()
        to_s = clock()
        samples = [*earlier, *later]
        windows = broker_windows(samples, brokers_of(source), from_s, to_s, to_s - from_s)
        if all(is_calm(window) for window in windows):
            return from_s - began_s
        earlier, from_s = later, to_s
    return None
