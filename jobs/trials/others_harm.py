"""Detects harm to other clients in the brokers' metrics while a load runs, and ends the load."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from jobs.trials.harm_rules import OthersSeen, controller_queue_ms
from jobs.trials.running_load import RunningLoad
from metrics.sources.sample import BrokerSample
from metrics.traffic.clients import ProducerOptions
from metrics.trial.others import ClientTraffic, Level
from metrics.windows.broker import good_samples

LOOK_S = 1.0
OVER_S = 5.0
"""Time over which the rates of other clients are measured [s]."""
SHOWN = ("others_fall_max", "others_errors_per_s_max", "controller_queue_ms_max")
"""Keys of the limits whose rules need the brokers' metrics."""
KEPT = 60
"""Each check counts the run's own traffic. The counts of this number of newest checks are kept."""


def knows_own_errors(producers: Iterable[ProducerOptions]) -> bool:
    """Whether the run's producers count all their errors, so that other clients' errors can be
    computed.
    """
    return all(each.client == "wire" and each.acks != "0" for each in producers)


@dataclass
class OthersHarm:
    """Watches a running load, and stops the run if the load harms other clients (see `harm_rules`).

    Args:
        load: the running load.
        level: the usual load of other clients, without the run's load; None if it is unknown.
    """

    load: RunningLoad
    level: Level | None
    _own: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def watch(self) -> AbstractContextManager[None]:
        """Watch the running load until the returned context manager ends. On a cluster without
        other users, do nothing.
        """
        if self.level is None or self.load.context.config.cluster.is_exclusive:
            return nullcontext()
        return self.load.looked_at("others", self.look, LOOK_S)

    def look(self, now_s: float) -> float | None:
        """Check once.

        Args:
            now_s: the driver's time [s since the epoch].

        Returns:
            The time until the next check [s]; None once a guard has tripped.
        """
        guards, channel = self.load.context.guards, self.load.channel
        self._own.append((now_s, channel.written, channel.refused))
        seen = self._seen(self.load.samples.nodes)
        harm = None if seen is None else guards.lasting_harm(seen, *SHOWN)
        if harm is None:
            return LOOK_S
        guards.stop(harm)
        channel.end_now()
        return None

    def _seen(self, samples: Sequence[BrokerSample]) -> OthersSeen | None:
        """The readings of other clients in the last seconds; None while too few samples exist."""
        good = good_samples(samples)
        brokers = self.load.brokers
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
        edges_s = min(s.at_s for s in begun), max(s.at_s for s in last)

        def of_others(everything: float, column: int) -> float:
            before, after = (self._own_by(each, column) for each in edges_s)
            return max(0.0, everything - (after - before)) / traffic.duration_s

        producers = (each.producer.options for each in self.load.pattern.loads)
        errors = traffic.errors if knows_own_errors(producers) else None
        return OthersSeen(
            self.level,
            of_others(traffic.messages, 1),
            None if errors is None else of_others(errors, 2),
            controller_queue_ms(each for each in samples if each.at_s >= since_s),
        )

    def _own_by(self, at_s: float, column: int) -> float:
        """The total number of messages or errors of the run's own clients from the start of the
        load until `at_s`. Between two checks, the number is interpolated. Before the first check,
        the number is 0.
        """
        times_s, totals = [each[0] for each in self._own], [each[column] for each in self._own]
        return float(np.interp(at_s, times_s, totals, left=0.0)) if totals else 0.0
