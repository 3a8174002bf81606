"""Waiting until brokers are at rest, so that one load does not spoil the next trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from metrics.sources.source import MetricsSource, brokers_of
from metrics.windows import BrokerWindow, broker_windows

DEADLINE_S = 60.0
CALM_IDLE = 0.9
_WINDOW_S = 1.0


@dataclass(frozen=True)
class Recovery:
    """How the wait for rest went.

    Attributes:
        duration_s: until the brokers were at rest, or until the deadline [s].
        unrest: what was not at rest by the deadline, a sentence a broker.
    """

    duration_s: float
    unrest: tuple[str, ...] = ()


def unrest(window: BrokerWindow) -> str | None:
    """Why this broker is not at rest, or None: handlers idle, followers have all there is."""
    broker, idle = f"broker {window.broker_id}", window.handler_idle
    if window.contradiction is not None:
        return window.contradiction
    if idle is None:
        return f"{broker} does not answer with its metrics"
    if idle < CALM_IDLE:
        return f"{broker}: request handlers idle {idle:.2f}"
    if window.under_replicated_max:
        return f"{broker}: {window.under_replicated_max:.0f} partitions under-replicated"
    if window.replica_lag_max_records:
        return f"{broker}: {window.replica_lag_max_records:.0f} records behind as a follower"
    return None


def _silent(_sentence: str) -> None:
    return None


def wait_until_calm(
    source: MetricsSource,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = _silent,
) -> Recovery:
    """Wait until every broker was at rest for a second, or until the deadline.

    Args:
        tell: hears after each look what is not at rest yet.
    """
    began_s = from_s = clock()
    earlier = source.sample_all()
    restless: tuple[str, ...] = ("nothing was seen",)
    while from_s - began_s < deadline_s:
        pause(_WINDOW_S)
        later = source.sample_all()
        to_s = clock()
        samples = [*earlier, *later]
        windows = broker_windows(samples, brokers_of(source), from_s, to_s, to_s - from_s)
        restless = tuple(why for why in map(unrest, windows) if why is not None)
        if not restless:
            return Recovery(from_s - began_s)
        tell(restless[0])
        earlier, from_s = later, to_s
    return Recovery(from_s - began_s, restless)
