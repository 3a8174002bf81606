"""The limit that follows from stated service times: what a run's answer is held against.

A request handler of a calibrated broker waits a stated time in each produce request. Besides,
a request has an own time, and other requests (fetches of followers, metadata) take a share of
the handlers. So with r produce requests per second the handlers of a broker are busy for

    busy = r x (stated + own) + others x handlers        [handlers]

and the broker is at its limit where busy is 1 - idle_min of all handlers. The two small terms
come from exact windows of the same brokers while they are at ease. All of it holds while a
request does not change with the load: as long as every request carries one full batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.traffic.producer import ProducerPattern
from metrics.windows.broker import BrokerWindow


@dataclass(frozen=True)
class HandlerTime:
    """What the request handlers of one broker spend their time on.

    Attributes:
        stated_ms: waited in each produce request, as the testbed was told to [ms].
        own_ms: what a produce request takes besides [ms].
        others: share of all handlers' time that other requests take [ratio].
        handlers: request handlers.
    """

    stated_ms: float
    own_ms: float = 0.0
    others: float = 0.0
    handlers: int = 1

    def requests_per_s(self, idle_min: float) -> float:
        """Produce requests at which so much of the handlers' time is left idle [1/s].

        Infinite where a request takes no time; 0 where the others alone take too much.
        """
        room = max(0.0, 1.0 - idle_min - self.others) * self.handlers
        time_s = (self.stated_ms + self.own_ms) / 1000.0
        return room / time_s if time_s > 0 else math.inf

    def idle(self, requests_per_s: float) -> float:
        """Idle fraction at so many produce requests per second; below 0 where they queue."""
        time_s = (self.stated_ms + self.own_ms) / 1000.0
        return 1.0 - self.others - requests_per_s * time_s / self.handlers


def planted_np(brokers: Sequence[HandlerTime], producer: ProducerPattern, idle_min: float) -> float:
    """The number of producers at which the first broker is at its limit; no whole number.

    A search that is right answers with a bracket around it.

    Args:
        brokers: all of them; each leads as many partitions as any other.
        producer: what each producer offers; each of its requests carries one batch.
        idle_min: the goal's `request_handler_idle_min` [ratio].
    """
    least = min(each.requests_per_s(idle_min) for each in brokers)
    return least * len(brokers) * producer.batch_interval_s


def measured(stated_ms: float, handlers: int, windows: Iterable[BrokerWindow]) -> HandlerTime:
    """The handler time of one broker, its small terms from windows at two or more light loads.

    A straight line of the busy handlers over the produce requests: its slope is the time of a
    request, and where it begins is what others take, never below 0. The idle fraction counts
    nanoseconds; the request metrics would not do, as Kafka rounds each to whole milliseconds.

    Args:
        stated_ms: waited in each produce request [ms].
        handlers: request handlers of the broker.
        windows: of this broker, where requests do not queue.

    Raises:
        ValueError: fewer than two different loads, or windows that know no idle fraction.
    """
    points = [
        (window.produce.per_s, (1.0 - window.handler_idle) * handlers)
        for window in windows
        if window.produce.per_s is not None and window.handler_idle is not None
    ]
    loads = [load for load, _ in points]
    if len(set(loads)) < 2:
        raise ValueError(
            f"{len(set(loads))} different loads are known; expected windows at two or more, or "
            "the time of a request cannot be told from what others take"
        )
    middle, mean_busy = sum(loads) / len(points), sum(busy for _, busy in points) / len(points)
    spread = sum((load - middle) ** 2 for load in loads)
    time_s = sum((load - middle) * (busy - mean_busy) for load, busy in points) / spread
    others = (mean_busy - time_s * middle) / handlers
    if others < 0:
        # Nothing takes less than no time: it is the edges of the windows that blur the line.
        others = 0.0
        time_s = sum(load * busy for load, busy in points) / sum(load**2 for load in loads)
    return HandlerTime(stated_ms, time_s * 1000.0 - stated_ms, others, handlers)
