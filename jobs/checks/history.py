"""What the past of the brokers shows, where their source keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from jobs.checks.finding import Finding, ok, warning
from metrics.common.errors import ConfigError
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.history import History, KeepsHistory
from metrics.sources.http_access import ScrapeError
from metrics.sources.source import MetricsSource, sample_interval_of

CHECK = "history"
SPAN_S, STEP_S = 86_400.0, 600.0
"""Time that is looked at, and between two numbers of it [s]."""


def history_findings(
    source: MetricsSource, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """The broker that had the busiest request handlers in the last day, and when.

    Empty where the source keeps no past, or not the idle time of the brokers' own handlers.
    """
    is_shared = any(node.controller_share is not None for node in source.nodes.values())
    if is_shared or not isinstance(source, KeepsHistory):
        return []
    step_s, now_s = max(STEP_S, 2 * sample_interval_of(source, 0.0)), clock()
    try:
        known = source.history(HANDLER_IDLE_NS, now_s - SPAN_S, now_s, step_s)
    except ConfigError:
        return []
    except ScrapeError as error:
        return [warning(CHECK, f"the last day of the brokers is unknown: {error}")]
    idle = [
        (share, broker, at_s)
        for broker, values in known.items()
        for share, at_s in _shares(values, step_s)
    ]
    if not idle:
        return [ok(CHECK, f"less than {2 * step_s / 60:.0f} min of the brokers")]
    share, broker, at_s = min(idle)
    first_s = min(values[0][0] for values in known.values() if values)
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
    return [
        ok(
            CHECK,
            f"{(now_s - first_s) / 3600:.1f} h of the brokers; the request handlers were busiest "
            f"on broker {broker}, idle {share:.2f} in the {step_s / 60:.0f} min to {day} UTC",
        )
    ]


def _shares(values: History, step_s: float) -> list[tuple[float, float]]:
    """The idle share of each step without a gap or a restart, and the step's end."""
    return [
        ((idle_ns - before_ns) / 1e9 / (at_s - before_s), at_s)
        for (before_s, before_ns), (at_s, idle_ns) in pairwise(values)
        if idle_ns >= before_ns and at_s - before_s < 1.5 * step_s
    ]
