"""The planted limit: the limit that follows from stated service times of request handlers.

A run compares its answer with it. A request handler of a calibrated broker waits a stated time in
each produce request. A request also has a time of its own, and other requests (fetches of
followers, metadata) take a share of the handlers. With r produce requests per second the handlers
of a broker are therefore busy for

    busy = r x (stated + own) + others x handlers        [handlers]

and the broker is at its limit where busy is 1 - idle_min of all handlers. The two small terms
come from an exact window of the same brokers under a light load. The formula holds while every
request carries one full batch, so that a request does not change with the load.

The planted limit of disks and of a link: the limit that follows from their stated rates.

A run compares its answer with it. Each record takes its part of a batch on the leader's disk and
on each follower's, and its part of a produce request on the link:

    producers = brokers x disk rate / (replicas x bytes in the log of one producer per second)
    producers = link rate / bytes of one producer's requests per second, packets' headers included

The formulas hold while every request carries one full batch and all brokers get the same share.
The log's indexes and pages that are written more than once are left out; they take about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from metrics.planning.load_needs import Assumptions, Framing, stored_bytes, wire_bytes
from metrics.tables.rows import fact_of_node, merge_facts
from metrics.traffic.pattern import TrafficPattern
from metrics.windows.broker import BrokerWindow

HANDLERS_PROPERTY = "num.io.threads"
HANDLERS_DEFAULT = 8
"""Kafka's default of that property."""
_STATED = "planted.handler_ms"


@dataclass(frozen=True)
class HandlerTime:
    """The parts of the time that the request handlers of one broker spend.

    Attributes:
        stated_ms: configured wait in each produce request [ms].
        own_ms: time that a produce request takes in addition [ms].
        others: share of all handlers' time that other requests take [ratio].
        handlers: number of request handlers.
    """

    stated_ms: float
    own_ms: float = 0.0
    others: float = 0.0
    handlers: int = 1

    def requests_per_s(self, idle_min: float) -> float:
        """The rate of produce requests that leaves the share `idle_min` of the time idle [1/s].

        Infinite where a request takes no time; 0 where other requests alone take too much.
        """
        room = max(0.0, 1.0 - idle_min - self.others) * self.handlers
        time_s = (self.stated_ms + self.own_ms) / 1000.0
        return room / time_s if time_s > 0 else math.inf

    def idle(self, requests_per_s: float) -> float:
        """Idle fraction at this rate of produce requests; below 0 where requests queue."""
        time_s = (self.stated_ms + self.own_ms) / 1000.0
        return 1.0 - self.others - requests_per_s * time_s / self.handlers


def environment_of_handlers(
    stated_ms: Mapping[int, float], brokers: Iterable[int]
) -> dict[str, str]:
    """The stated times as environment facts of a run, for `stated_handler_times`.

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
    """Broker id → the stated time of its handlers; empty unless all brokers have one.

    Args:
        environment: environment of a run, with the brokers' properties
            (`metrics.tables.rows`).
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
    """How many times a pattern the first broker takes up to its limit; a fraction.

    A correct search answers with a bracket around it. For a pattern of one producer it is the
    number of producers.

    Args:
        brokers: all brokers; each leads the same number of partitions of each part.
        mix: the mix at scale 1, or one producer; each request carries one full batch.
        idle_min: the goal's `request_handler_idle_min` [ratio].
    """
    least = min(each.requests_per_s(idle_min) for each in brokers)
    per_s = sum(each.producers / each.producer.batch_interval_s for each in mix.loads)
    return least * len(brokers) / per_s


def complete_handler_times(
    stated: Mapping[int, HandlerTime], windows: Sequence[BrokerWindow]
) -> tuple[HandlerTime, ...]:
    """The handler times of all brokers with their small terms, from windows at a light load.

    The small terms are alike on one machine, so they are means over the brokers. A request's own
    time is the local time of produce requests minus the stated time. Kafka rounds each local time
    to a whole millisecond, so stated times of tens of milliseconds keep that error small. Other
    requests take the busy time that produce requests do not explain, at least 0. This share is
    inexact at light loads, as a waiting handler reports its idle time only every 0.3 s.

    Args:
        stated: broker id → its stated time.
        windows: one window of each of these brokers, in which requests do not queue.

    Raises:
        ValueError: a broker does not report its idle fraction or the time of its requests.
    """
    of_brokers = {window.broker_id: window for window in windows}
    terms = [_small_terms(time, of_brokers.get(broker)) for broker, time in stated.items()]
    own_ms, others = fmean(own for own, _ in terms), max(0.0, fmean(share for _, share in terms))
    return tuple(replace(time, own_ms=own_ms, others=others) for time in stated.values())


def _small_terms(stated: HandlerTime, window: BrokerWindow | None) -> tuple[float, float]:
    """Own time of a request [ms], and the share of all handlers that others take [ratio]."""
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
    """The stated rates of the disks and the link of some brokers.

    Attributes:
        disk_bytes_per_s: write rate of each broker's disk [B/s]; None without planted disks.
        link_bytes_per_s: rate of the link in each direction, packets' headers included [B/s];
            None where the link has none.
        mtu_bytes: largest packet of the link [B].
    """

    disk_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    mtu_bytes: int = 9_000

    def scale(self, mix: TrafficPattern, brokers: int) -> float | None:
        """How many times a mix fills a disk or the link; None without a rate.

        Args:
            mix: the mix at scale 1.
            brokers: number of brokers; each leads the same number of partitions of each part.
        """
        limits = [
            [self._of_disks(each, brokers) for each in mix.loads],
            [self._of_link(each) for each in mix.loads],
        ]
        used = [
            sum(each.producers / most for each, most in zip(mix.loads, own, strict=True) if most)
            for own in limits
        ]
        return 1.0 / max(used) if max(used) else None

    def _of_disks(self, pattern: TrafficPattern, brokers: int) -> float | None:
        if self.disk_bytes_per_s is None:
            return None
        written = log_bytes_per_s(pattern) * pattern.topic.replication_factor
        return self.disk_bytes_per_s * brokers / written

    def _of_link(self, pattern: TrafficPattern) -> float | None:
        if self.link_bytes_per_s is None:
            return None
        framing = Framing(self.mtu_bytes, link_bytes=0)
        per_message = wire_bytes(pattern, framing, Assumptions()).produce_requests
        return self.link_bytes_per_s / (per_message * pattern.producer.rate_records_per_s)


def log_bytes_per_s(pattern: TrafficPattern) -> float:
    """Bytes that one producer adds to the logs of the leaders [B/s]; inf in a closed loop."""
    producer = pattern.producer
    if math.isinf(producer.rate_records_per_s):
        return math.inf
    return stored_bytes(producer) * producer.rate_records_per_s
