"""The planted limit of a testbed: the limit that follows from its configured service times or
rates.

The planted limit is known. So a test on a testbed can measure the limit, and compare the measured
limit with the planted limit.

Request handlers: a testbed can let each request handler wait for a configured time (`stated`) in
each produce request. Kafka needs further time (`own`) to process a produce request. Other requests,
such as fetches of followers, occupy a share of the handlers (`others`). A broker has `handlers`
request handlers. At r produce requests per second, the number of busy request handlers (`busy`) is

    busy = r x (stated + own) + others x handlers        [handlers]

A broker is at its limit if `busy` / `handlers` = 1 - idle_min. The values `own` and `others` are
measured under a light load on the same brokers. The formula requires that every request carries one
full batch, so that a request has the same size and needs the same time at every load.

Disks and link: each record is written to the disk of its leader and to the disk of each follower.
Each record is sent once on the link. If the disks are the limit, the highest number of producers is

    producers = brokers x disk rate / (replicas x bytes in the log of one producer per second)

If the link is the limit, the highest number of producers is

    producers = link rate / bytes of one producer's requests per second, packets' headers included

The formulas require that every request carries one full batch, and that all brokers carry the same
load. Log indexes and pages that are written more than once are ignored; they add about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from metrics.planning.load_needs import Framing, stored_bytes, wire_bytes
from metrics.tables.rows import fact_of_node, merge_facts
from metrics.traffic.pattern import TrafficPattern
from metrics.windows.broker import BrokerWindow

HANDLERS_PROPERTY = "num.io.threads"
HANDLERS_DEFAULT = 8
"""Kafka's default of `num.io.threads`."""
_STATED = "planted.handler_ms"


@dataclass(frozen=True)
class HandlerTime:
    """The time that the request handlers of one broker need for requests.

    Attributes:
        stated_ms: configured wait in each produce request [ms].
        own_ms: time [ms] that a handler needs for each produce request in addition to the wait.
        others: share of all handlers' time that other requests need [ratio].
        handlers: number of request handlers.
    """

    stated_ms: float
    own_ms: float = 0.0
    others: float = 0.0
    handlers: int = 1

    def requests_per_s(self, idle_min: float) -> float:
        """The rate of produce requests at which the handlers' idle fraction is `idle_min` [1/s].

        The rate is infinite if a produce request needs no time. The rate is 0 if other requests
        alone make the idle fraction lower than `idle_min`.
        """
        room = max(0.0, 1.0 - idle_min - self.others) * self.handlers
        time_s = (self.stated_ms + self.own_ms) / 1000.0
        return room / time_s if time_s > 0 else math.inf


def environment_of_handlers(
    stated_ms: Mapping[int, float], brokers: Iterable[int]
) -> dict[str, str]:
    """The stated times as facts of a run's environment, for `stated_handler_times`.

    Args:
        stated_ms: broker id → time that a handler waits in each produce request [ms].
        brokers: all brokers of the cluster.
    """
    if not stated_ms:
        return {}
    return merge_facts("broker", {i: {_STATED: f"{stated_ms.get(i, 0.0):g}"} for i in brokers})


def stated_handler_times(
    environment: Mapping[str, str], brokers: Iterable[int]
) -> dict[int, HandlerTime]:
    """Broker id → handler time, in which `stated_ms` is the configured wait in each produce
    request.

    The result is empty if a broker has no configured wait.

    Args:
        environment: the facts of a run's environment, with the brokers' properties.
        brokers: all broker ids of the cluster.
    """
    found = {}
    for broker in brokers:
        waits_ms = fact_of_node(environment, "broker", broker, _STATED)
        if waits_ms is None or not float(waits_ms):
            return {}
        handlers = fact_of_node(environment, "broker", broker, f"config.{HANDLERS_PROPERTY}")
        found[broker] = HandlerTime(float(waits_ms), handlers=int(handlers or HANDLERS_DEFAULT))
    return found


def planted_scale(brokers: Sequence[HandlerTime], mix: TrafficPattern, idle_min: float) -> float:
    """The factor by which the load of a traffic pattern is multiplied so that the first broker
    reaches its limit.

    The factor is not rounded. A correct search ends with a bracket around this factor. For a
    pattern of one producer, the factor is the number of producers at the limit.

    Args:
        brokers: all brokers; each leads the same number of partitions of each part.
        mix: the mix at scale 1, or a pattern of one producer. Each request has one full batch.
        idle_min: the goal's `request_handler_idle_min` [ratio].
    """
    least = min(each.requests_per_s(idle_min) for each in brokers)
    per_s = sum(each.producers / each.producer.batch_interval_s for each in mix.loads)
    return least * len(brokers) / per_s


def complete_handler_times(
    stated: Mapping[int, HandlerTime], windows: Sequence[BrokerWindow]
) -> tuple[HandlerTime, ...]:
    """Handler times, completed with `own_ms` and `others`, which are measured under a light load.

    `own_ms` and `others` are means over all brokers, because brokers on one machine have similar
    values. `own_ms` is Kafka's LocalTimeMs of a produce request minus the configured wait
    `stated_ms`. Kafka rounds each LocalTimeMs to a whole millisecond, so the error is small for
    waits of tens of milliseconds. `others` is the share of the handlers' time in which they process
    requests other than produce requests; it is at least 0. `others` is inexact at light loads,
    because a waiting handler reports its idle time only every 0.3 s.

    Args:
        stated: broker id → handler time with the configured wait.
        windows: one window of each broker; in these windows, requests must not wait in the queue.

    Raises:
        ValueError: a broker does not report its idle fraction or the time of its requests.
    """
    of_brokers = {window.broker_id: window for window in windows}
    terms = [_small_terms(time, of_brokers.get(broker)) for broker, time in stated.items()]
    own_ms, others = fmean(own for own, _ in terms), max(0.0, fmean(share for _, share in terms))
    return tuple(replace(time, own_ms=own_ms, others=others) for time in stated.values())


def _small_terms(stated: HandlerTime, window: BrokerWindow | None) -> tuple[float, float]:
    """Two values of a broker: the time of a produce request without the configured wait [ms]; the
    share of the handlers' time that other requests need [ratio].
    """
    if window is None or window.handler_idle is None:
        raise ValueError("a broker does not report its handlers' idle fraction at a light load")
    per_s, local_ms = window.produce.per_s, window.produce.local_ms
    if not per_s or local_ms is None:
        broker = f"broker {window.broker_id}"
        raise ValueError(f"{broker} does not report the time of produce requests at a light load")
    busy = per_s * local_ms / 1000.0 / stated.handlers
    return local_ms - stated.stated_ms, 1.0 - window.handler_idle - busy


@dataclass(frozen=True)
class PlantedRates:
    """The stated rates of the brokers' disks and network link.

    Attributes:
        disk_bytes_per_s: write rate of each broker's disk [B/s]; None if the disks have no stated
            rate.
        link_bytes_per_s: rate of the link in each direction, including packet headers [B/s]; None
            if the link has no stated rate.
        mtu_bytes: largest packet of the link [B].
    """

    disk_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    mtu_bytes: int = 9_000

    def scale(self, mix: TrafficPattern, brokers: int) -> float | None:
        """The multiple of a mix at which a disk or the link is full; None if no rate is stated.

        Args:
            mix: the mix at scale 1.
            brokers: number of brokers; each leads the same number of partitions of each part.
        """
        framing = Framing(self.mtu_bytes, link_bytes=0)
        on_disks = on_link = 0.0
        for each in mix.loads:
            if each.producer.closed_loop:
                continue
            on_disks += each.producers * log_bytes_per_s(each) * each.topic.replication_factor
            per_message = wire_bytes(each, framing).produce_requests
            on_link += each.producers * each.producer.rate_records_per_s * per_message
        used = max(
            on_disks / brokers / (self.disk_bytes_per_s or math.inf),
            on_link / (self.link_bytes_per_s or math.inf),
        )
        return 1.0 / used if used else None


def log_bytes_per_s(pattern: TrafficPattern) -> float:
    """Rate at which one producer fills the leaders' logs [B/s].

    The rate is infinite in a closed loop.
    """
    return stored_bytes(pattern.producer) * pattern.producer.rate_records_per_s
