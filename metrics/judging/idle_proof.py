"""The proof of the idle time of the request handlers: it falls under a load.

How far it falls depends on the machine: a load of a few requests moves it by less than its error.
So a fall beyond the error proves it. A fall is required only of a load that keeps the handlers
busy for longer than the error on any machine. The level at rest does not matter for that: others
who stop when the load begins raise the idle time, but never above what the load leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from metrics.judging.poll_pairs import Polls
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.windows.spans import HANDLER_POLL_S

REQUEST_LEAST_S = 20e-6
"""Time for which a produce request keeps a handler busy at least, on any machine [s]."""
LOCAL_SHARE = 0.5
"""Part of the local time of produce requests, where a page shows it, that counts as busy for
certain [ratio]."""
_LOCAL_ROUNDING_MS = 0.5
"""Largest error of a local time, as Kafka rounds each to whole milliseconds [ms]."""
OTHERS_SHARE_MAX = 0.1
"""Largest share of others in the produce requests whose local time is taken for that of the load
[ratio]."""
IDLE_SPARE = 0.02
"""Error of an idle time beside that of its edges [ratio]."""


@dataclass(frozen=True)
class HandlerPool:
    """The request handlers of one broker.

    Attributes:
        number: number of handlers; None where it is unknown.
        idle_error: error of their idle time, where a controller shares their meter [ratio].
    """

    number: int | None = None
    idle_error: float = 0.0


@dataclass(frozen=True)
class IdleProof:
    """The comparison of one broker's idle time at rest and under a load.

    Attributes:
        rest: polls without the load, as far apart as possible.
        load: polls just before and just after the load.
        requests: produce requests that were sent to the broker, at least.
        is_transactional: whether the load has transactions, whose requests also wait.
        pool: the broker's request handlers.
    """

    rest: Polls
    load: Polls
    requests: int = 0
    is_transactional: bool = False
    pool: HandlerPool = HandlerPool()

    def disagreement(self) -> str:
        """A clause where the handlers are more idle than the load allows; else empty."""
        idle, busy = _idle(self.load), self.busy_least
        beside = self.load.beside_share(HANDLER_IDLE_NS)  # without the load
        if idle is None or idle <= 1.0 - busy + self._error(self.load) + beside:
            return ""
        text = f"{HANDLER_IDLE_NS} shows the request handlers idle {idle:.2f} under the load"
        if not busy:
            return f"{text}, expected 1 or less"
        return (
            f"{text}, expected {1.0 - busy:.2f} or less, as the load's produce requests keep its "
            f"{self.pool.number} handlers busy for {busy:.2f} of the time or longer"
        )

    @property
    def proven_below(self) -> float | None:
        """The idle time below which a load shows that the reading falls [ratio]; None where the
        polls at rest do not show it.
        """
        idle = _idle(self.rest)
        if idle is None:
            return None
        return idle - _edge_error(self.rest) - self._error(self.load)

    @property
    def is_shown(self) -> bool:
        """Whether the idle time falls by more than its error."""
        idle, below = _idle(self.load), self.proven_below
        return idle is not None and below is not None and idle < below

    @property
    def busy_least(self) -> float:
        """Share of their time for which the load keeps the handlers busy, at least [ratio]."""
        if not self.pool.number:
            return 0.0
        busy_s = max(self.requests * REQUEST_LEAST_S, self._local_s() * LOCAL_SHARE)
        return min(1.0, busy_s / self.pool.number / self.load.seconds)

    def _local_s(self) -> float:
        """Time of the handlers in produce requests of the load [s]; 0 where it is unknown."""
        count, before = (polls.grown("produce_local_ms_count") for polls in (self.load, self.rest))
        times_ms = self.load.grown_sum("produce_local_ms")
        if self.is_transactional or count is None or before is None or times_ms is None:
            return 0.0
        of_others = before / self.rest.seconds * self.load.seconds
        if of_others > OTHERS_SHARE_MAX * count:
            return 0.0
        return max(0.0, times_ms - _LOCAL_ROUNDING_MS * count) / 1000.0

    def _error(self, polls: Polls) -> float:
        """Error of the idle time between two polls [ratio]."""
        return IDLE_SPARE + self.pool.idle_error + _edge_error(polls)


def _idle(polls: Polls) -> float | None:
    """Share of the time for which the request handlers waited [ratio]."""
    per_s = polls.per_s(HANDLER_IDLE_NS)
    return None if per_s is None else per_s / 1e9


def _edge_error(polls: Polls) -> float:
    """Error of the idle time by the edges of the time between two polls [ratio].

    A waiting handler reports its wait at the end, which lacks on one edge and adds on the other.
    """
    return HANDLER_POLL_S / polls.counted_s(HANDLER_IDLE_NS)
