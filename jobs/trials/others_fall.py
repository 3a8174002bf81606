"""A fall of the throughput of others while a load runs, which ends the load."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.watching import watching
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.others import ClientTraffic, Level
from metrics.windows.spans import good_samples

LOOK_S = 1.0
OVER_S = 5.0
"""Time over which the throughput of others is measured [s]."""
KEPT = 60
"""Number of looks whose own traffic is kept."""
DEVIATIONS = 3.0
"""Others have fallen where they are further below their level than so many standard deviations."""


class OthersFall:
    """Watches a running load, and stops the run where others lose too much of their throughput.

    Args:
        level: the load of others without ours; None where brokers do not show it.
    """

    def __init__(
        self,
        context: RunContext,
        pattern: TrafficPattern,
        channel: TaskChannel,
        sampler: Sampler[BrokerSample],
        level: Level | None,
    ) -> None:
        self._context = context
        self._channel = channel
        self._sampler = sampler
        self._level = level
        self._most = context.guards.limits.others_fall_max
        self._written: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def watch(self) -> AbstractContextManager[None]:
        """Watch while the block lasts, where others load the brokers."""
        level = self._level
        if level is None or self._most is None or not level.is_guarded:
            return nullcontext()
        return watching("others-fall", lambda: self.look(time.time()), LOOK_S, self._channel.fail)

    def look(self, now_s: float) -> float | None:
        """Look once, and return the time until the next look [s]; None once the run stops.

        Args:
            now_s: the driver's time [s since the epoch].
        """
        self._written.append((now_s, self._channel.written))
        theirs = self._theirs_per_s(self._sampler.samples_taken())
        level, most = self._level, self._most
        assert level is not None and most is not None, "see watch"
        if theirs is None:
            return LOOK_S
        fall = level.messages.mean - theirs
        is_harm = fall > max(most * level.messages.mean, DEVIATIONS * level.messages.deviation)
        words = (
            f"other clients write {theirs:,.0f} messages/s under the load, and "
            f"{level.messages.mean:,.0f} without it"
        )
        guards = self._context.guards
        harm = guards.lasting("others_fall", words if is_harm else None)
        if harm is None:
            return LOOK_S
        guards.stop(harm)
        self._channel.end_now()
        return None

    def _theirs_per_s(self, samples: Sequence[BrokerSample]) -> float | None:
        """The messages of others in the last seconds [1/s]; None while too little is known."""
        good = good_samples(samples)
        brokers = brokers_of(self._context.source)
        if any(not good.get(each) for each in brokers):
            return None
        last = [good[each][-1] for each in brokers]
        since_s = min(each.at_s for each in last) - OVER_S
        first = [
            next((s for s in reversed(good[each]) if s.at_s <= since_s), None) for each in brokers
        ]
        begun = [each for each in first if each is not None]
        if len(begun) < len(first):
            return None
        traffic = ClientTraffic.between(begun, last, brokers)
        if traffic is None:
            return None
        own = self._own_by(max(s.at_s for s in last)) - self._own_by(min(s.at_s for s in begun))
        return max(0.0, traffic.messages - own) / traffic.duration_s

    def _own_by(self, at_s: float) -> float:
        """Our acknowledged records by a moment, between two looks in proportion to the time."""
        before = max((each for each in self._written if each[0] <= at_s), default=None)
        after = min((each for each in self._written if each[0] > at_s), default=None)
        if before is None or after is None:
            return 0.0 if before is None else float(before[1])
        passed = (at_s - before[0]) / (after[0] - before[0])
        return before[1] + passed * (after[1] - before[1])
