"""The limit that follows from stated service times: what a run's answer is held against.

A request handler of a calibrated broker waits a stated time in each produce request. Besides,
a request has an own time, and other requests (fetches of followers, metadata) take a share of
the handlers. So with r produce requests per second the handlers of a broker are busy for

    busy = r x (stated + own) + others x handlers        [handlers]

and the broker is at its limit where busy is 1 - idle_min of all handlers. The two small terms
come from an exact window of the same brokers under a light load. All of it holds while a request
does not change with the load: as long as every request carries one full batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from metrics.tables.environment import merged, of_node
from metrics.traffic.producer import ProducerPattern
from metrics.windows.broker import BrokerWindow

HANDLERS_PROPERTY = "num.io.threads"
HANDLERS_DEFAULT = 8
"""Kafka's, where the property is not set."""
_STATED = "planted.handler_ms"


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


def told(stated_ms: Mapping[int, float], brokers: Iterable[int]) -> dict[str, str]:
    """The stated times as a part of a run's environment, where `stated` finds them.

    Args:
        stated_ms: broker id → time that a handler waits in each produce request [ms].
        brokers: all of the cluster.
    """
    if not stated_ms:
        return {}
    return merged("broker", {i: {_STATED: f"{stated_ms.get(i, 0.0):g}"} for i in brokers})


def stated(environment: Mapping[str, str], brokers: Iterable[int]) -> dict[int, HandlerTime]:
    """Broker id → the time that is planted in its handlers; empty unless all brokers have one.

    Args:
        environment: of a run, with the brokers' properties (`metrics.tables.environment`).
    """
    found = {}
    for broker in brokers:
        waits_ms = of_node(environment, "broker", broker, _STATED)
        if waits_ms is None or not float(waits_ms):
            return {}
        handlers = of_node(environment, "broker", broker, f"config.{HANDLERS_PROPERTY}")
        found[broker] = HandlerTime(float(waits_ms), handlers=int(handlers or HANDLERS_DEFAULT))
    return found


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


def completed(
    planted: Mapping[int, HandlerTime], windows: Sequence[BrokerWindow]
) -> tuple[HandlerTime, ...]:
    """The handler times of all brokers with their small terms, from windows at a light load.

    These are alike on one machine, so they are the means over the brokers. A request's own time
    is the local time of produce requests beyond what is stated: Kafka rounds each to a whole
    millisecond, so it takes stated times of tens of milliseconds to make that small. What others
    take is what the idle fraction leaves, never below none. It is blurred at light loads, as a
    handler that waits tells so only every 0.3 s.

    Args:
        planted: broker id → what is stated of it.
        windows: of all these brokers, where requests do not queue.

    Raises:
        ValueError: a broker does not tell its idle fraction or the time of its requests.
    """
    of_brokers = {window.broker_id: window for window in windows}
    each = [_measured(one, of_brokers.get(broker)) for broker, one in planted.items()]
    own_ms, others = fmean(own for own, _ in each), max(0.0, fmean(share for _, share in each))
    return tuple(replace(one, own_ms=own_ms, others=others) for one in planted.values())


def _measured(planted: HandlerTime, window: BrokerWindow | None) -> tuple[float, float]:
    """Own time of a request [ms], and the share of all handlers that others take [ratio]."""
    if window is None or window.handler_idle is None:
        raise ValueError("a broker's handlers do not tell how idle they are at a light load")
    per_s, local_ms = window.produce.per_s, window.produce.local_ms
    if not per_s or local_ms is None:
        named = f"broker {window.broker_id}"
        raise ValueError(f"{named} does not tell what produce requests took at a light load")
    busy = per_s * local_ms / 1000.0 / planted.handlers
    return local_ms - planted.stated_ms, 1.0 - window.handler_idle - busy
