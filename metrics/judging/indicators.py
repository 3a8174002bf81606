"""The indicators: one object for each rule that makes a trial OVERLOADED, and the list of all.

Each broker is judged on its own, because one slow broker caps the cluster. A rule without its
evidence gives no reason; `metrics.judging.validity` checks the evidence that must not be missing.
A further indicator is a class here, a line in `INDICATORS` and its limit in
`metrics.judging.thresholds.Indicators`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from metrics.judging.nearness import NAME as THROTTLED
from metrics.judging.nearness import throttle_reasons
from metrics.judging.running import (
    FOLLOWER_LAG,
    EarlyEvidence,
    Slices,
    followers_behind,
    followers_lag_so_far,
    followers_reason,
    followers_unknown,
)
from metrics.judging.thresholds import LATENCY_QUANTILES, Indicators
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS
from metrics.trial.evidence import ClusterFacts, Evidence, Reason
from metrics.units import format_beside
from metrics.windows.broker import BrokerWindow, Span, any_isr_changed
from metrics.windows.use import Resource


class Indicator(ABC):
    """One rule: its name, its limit, and its judgement of a trial.

    Attributes:
        name: name in reasons and in the search.
        limit_name: name of the limit, which is None where the rule is off; empty for a rule that
            is always on.
        needs_metrics: the rule needs the brokers' metrics, which a blind cluster does not show.
        judges_parts: the rule also judges each part of a mix, beside the mix as a whole.
    """

    name: str
    limit_name = ""
    needs_metrics = True
    judges_parts = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True when the rule takes part in the verdict."""
        is_set = not self.limit_name or getattr(limits, self.limit_name) is not None
        return is_set and not (self.needs_metrics and cluster.is_blind)

    @abstractmethod
    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The values beyond the limit, the worst first; empty where there are none."""

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The nearness to the limit, to guide the search: 0 far off, 1 at it, above 1 beyond.

        None without evidence, or where the rule does not show the distance.
        """
        return None

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The value in a sustained trial, for people; None without one."""
        return None

    def missing(self, window: BrokerWindow) -> str:
        """The metric that a broker lacks, as a noun phrase; empty where it is complete."""
        return ""

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence | None:
        """The values in a running trial; None where they are known only at the end.

        A trial does not end early as SUSTAINED while an indicator is unknown.
        """
        return None


class BrokerIndicator(Indicator):
    """A rule by one value of each broker's window.

    Attributes:
        metric: the value as a noun phrase, with the reading that it follows from.
        resource: the resource that the value shows.
        is_floor: True where the limit is the lowest allowed value, not the highest.
    """

    metric: str
    resource = Resource.UNKNOWN
    is_floor = False

    @abstractmethod
    def value(self, window: BrokerWindow) -> float | None:
        """The value of a broker; None where it is not known."""

    @abstractmethod
    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """A value beyond the limit, in words."""

    def limit(self, broker_id: int, cluster: ClusterFacts, limits: Indicators) -> float | None:
        """The limit of a broker; None without one."""
        found: float | None = getattr(limits, self.limit_name)
        return found

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The brokers beyond the limit, the worst first."""
        found = []
        for window in evidence.brokers:
            place = (window.broker_id, evidence.cluster)
            value, limit = self.value(window), self.limit(*place, limits)
            if value is None or limit is None:
                continue
            if value < limit if self.is_floor else value > limit:
                text = f"broker {window.broker_id}: {self.words(value, limit, *place)}"
                found.append(self._reason(window, text, value, limit))
        return sorted(found, key=lambda reason: reason.value, reverse=not self.is_floor)

    def _reason(self, window: BrokerWindow, text: str, value: float, limit: float) -> Reason:
        return Reason(self.name, text, value, limit, window.broker_id, self.resource)

    def missing(self, window: BrokerWindow) -> str:
        """The metric, where a broker lacks it."""
        return self.metric if self.value(window) is None else ""

    def known(self, evidence: Evidence) -> list[float]:
        """The values of all brokers, as far as known."""
        values = map(self.value, evidence.brokers)
        return [each for each in values if each is not None]


class IdleIndicator(BrokerIndicator):
    """Brokers of which some threads have too little idle time.

    Attributes:
        threads: the threads, as a noun.
    """

    threads: str
    is_floor = True

    @abstractmethod
    def idle(self, span: Span) -> float | None:
        """The idle fraction of the threads between two samples [ratio]."""

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """Such as `request handlers idle 0.12, below 0.20`."""
        return f"{self.threads} idle {format_beside(value, limit)}, below {limit:.2f}"

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The utilization of the busiest broker's threads."""
        known, least = self.known(evidence), getattr(limits, self.limit_name)
        return max(0.0, 1.0 - min(known)) / (1.0 - least) if known and least is not None else None

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The utilization in each broker's slices, judged by their mean."""
        allowed = 1.0 - getattr(limits, self.limit_name)

        def used(span: Span) -> float | None:
            idle = self.idle(span)
            return None if idle is None else (1.0 - idle) / allowed

        return EarlyEvidence(means=slices.means(self.name, used))


class RequestHandlerIdle(IdleIndicator):
    """Brokers whose request handlers have too little idle time."""

    name = "request_handler_idle"
    limit_name = "request_handler_idle_min"
    metric = f"the request handlers' idle time ({HANDLER_IDLE_NS})"
    threads = "request handlers"
    resource = Resource.REQUEST_HANDLERS

    def value(self, window: BrokerWindow) -> float | None:
        """The idle fraction of the request handlers."""
        return window.handler_idle

    def idle(self, span: Span) -> float | None:
        """The mean over the handlers."""
        idle_ns = span.per_s(HANDLER_IDLE_NS)
        return None if idle_ns is None else idle_ns / 1e9

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The idle fraction of the busiest broker."""
        window, least = evidence.busiest_broker, limits.request_handler_idle_min
        if window is None or window.handler_idle is None:
            return None
        text = (
            f"least idle request handlers {window.handler_idle:.2f} on broker "
            f"{window.broker_id}, not below {least:.2f}"
        )
        return self._reason(window, text, window.handler_idle, least)


class Isr(Indicator):
    """ISR changes or under-replication at one broker or more in too many samples.

    The rule is that of the published studies, in which a trial is overloaded when the ISR of any
    broker changes in more than half of its samples. For a cluster without metrics, the Admin API
    shows under-replication.
    """

    name = "isr"
    needs_metrics = False

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The share of samples with changes, with the broker that has most of them."""
        share, most = evidence.isr_changed_share, limits.isr_changed_share_max
        if share is None or share <= most:
            return []
        text = (
            f"ISR changes or under-replicated partitions at one broker or more in {share:.0%} of "
            f"the samples, above {most:.0%}"
        )
        broker_id = None
        if (worst := self._worst(evidence)) is not None:
            broker_id = worst.broker_id
            text += (
                f" (most at broker {broker_id}: {worst.isr_shrinks or 0:.0f} shrinks, "
                f"{worst.isr_expands or 0:.0f} expands, "
                f"up to {worst.under_replicated_max or 0:.0f} partitions under-replicated)"
            )
        return [Reason(self.name, text, share, most, broker_id, Resource.REPLICATION)]

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The share of samples with changes over the allowed share."""
        share, most = evidence.isr_changed_share, limits.isr_changed_share_max
        return None if share is None or not most else share / most

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The share of samples with changes."""
        share, most = evidence.isr_changed_share, limits.isr_changed_share_max
        worst = self._worst(evidence)
        if share is None or worst is None:
            return None
        text = (
            f"ISR changes or under-replicated partitions in {share:.0%} of the samples, not above "
            f"{most:.0%}"
        )
        return Reason(self.name, text, share, most, worst.broker_id, Resource.REPLICATION)

    def _worst(self, evidence: Evidence) -> BrokerWindow | None:
        known = [w for w in evidence.brokers if w.isr_changed_share is not None]
        return max(known, key=lambda w: (w.isr_changed_share, w.broker_id), default=None)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The sampling times so far with a change at any broker; none where it is not known."""
        at_rest = slices.cluster.under_replicated_at_rest
        changed = any_isr_changed(slices.samples, slices.broker_ids, *slices.window, at_rest)
        found = (changed, limits.isr_changed_share_max)
        return EarlyEvidence(shares={self.name: found} if changed else {})


class FollowersBehind(Indicator):
    """Followers that fall behind the leaders, of partitions with replicas.

    A follower that stands still leaves the ISR after `replica.lag.time.max.ms`, 30 s by default;
    until then no ISR changes.
    """

    name = FOLLOWER_LAG
    limit_name = "follower_lag_growth_max"
    needs_metrics = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True where a limit is set and partitions have followers, all of which should run."""
        is_whole = not cluster.offline and cluster.killed is None
        return cluster.followers > 0 and is_whole and super().is_on(limits, cluster)

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The growth of the lag, where it is beyond the limit."""
        lag = followers_behind(evidence, limits)
        return [] if lag is None else [followers_reason(evidence, limits, lag)]

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The caveat that the lag is not known; None where it is."""
        return followers_unknown(limits) if evidence.follower_lag is None else None

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The lag so far over the highest of the whole window; no values where it is not known."""
        levels = followers_lag_so_far(slices, limits)
        return EarlyEvidence(stocks={self.name: levels} if levels else {})


class NetworkIdle(IdleIndicator):
    """Brokers whose busiest network thread has too little idle time."""

    name = "network_idle"
    limit_name = "network_idle_min"
    metric = f"the network threads' idle time ({NETWORK_WAIT_NS})"
    threads = "busiest network thread"
    resource = Resource.NETWORK_THREADS

    def value(self, window: BrokerWindow) -> float | None:
        """The idle fraction of the busiest network thread."""
        return window.network_idle

    def idle(self, span: Span) -> float | None:
        """That of the busiest thread."""
        waits_ns = span.deltas(NETWORK_WAIT_NS).values()
        if not waits_ns or span.duration_s <= 0:
            return None
        return min(waits_ns) / 1e9 / span.duration_s


class RequestQueue(BrokerIndicator):
    """Brokers with too many waiting requests in a sample."""

    name = "request_queue"
    _GAUGE = "request_queue_size"
    metric = f"the size of the request queue ({_GAUGE})"
    resource = Resource.REQUEST_HANDLERS

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True where a limit is set."""
        given = (limits.request_queue_max, limits.request_queue_share_max)
        return any(each is not None for each in given) and super().is_on(limits, cluster)

    def value(self, window: BrokerWindow) -> float | None:
        """The most requests that waited."""
        return window.request_queue_max

    def limit(self, broker_id: int, cluster: ClusterFacts, limits: Indicators) -> float | None:
        """The highest number of requests that may wait at a broker; None without a known limit."""
        found = [] if limits.request_queue_max is None else [limits.request_queue_max]
        room = cluster.queued_max_requests.get(broker_id)
        if limits.request_queue_share_max is not None and room is not None:
            found.append(limits.request_queue_share_max * room)
        return min(found, default=None)

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """The requests, with the size of the queue where it is known."""
        room = cluster.queued_max_requests.get(broker_id)
        of_room = "" if room is None else f" of {room:.0f} that the queue holds"
        return f"up to {value:.0f} requests{of_room} waited for a handler, above {limit:.0f}"

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The samples that show the queue, and are beyond the limit; one of them decides."""
        shares = {}
        for broker_id in slices.broker_ids:
            limit = self.limit(broker_id, slices.cluster, limits)
            if limit is not None:
                queued = (after.values.get(self._GAUGE) for _, after in slices.of(broker_id))
                waiting = [each > limit for each in queued if each is not None]
                shares[f"{self.name}/{broker_id}"] = (waiting, 0.0)
        return EarlyEvidence(shares=shares)


class ProduceResponseTime(BrokerIndicator):
    """Brokers whose produce requests take too long, by the exact mean of the window.

    The time is `TotalTimeMs` of `request=Produce` in Kafka's `RequestMetrics`: from the request's
    arrival to the last byte of the answer, without the wait in the clients.
    """

    name = "produce_response_time"
    limit_name = "produce_response_ms_max"
    _TIMES = "produce_total_ms"
    metric = f"the response time of produce requests ({_TIMES})"

    def value(self, window: BrokerWindow) -> float | None:
        """The mean response time."""
        return window.produce.total_ms

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """The mean response time [ms]."""
        shown = format_beside(value, limit, 1)
        return f"mean response time of produce requests {shown} ms, above {limit:.1f} ms"

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The response time of the slowest broker over the limit."""
        known, most = self.known(evidence), limits.produce_response_ms_max
        return max(known) / most if known and most is not None else None

    def missing(self, window: BrokerWindow) -> str:
        """The response time, where it is missing; a broker without produce requests has none."""
        return "" if window.produce.per_s == 0 else super().missing(window)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The time in each slice over the mean request rate, so that requests weigh the same."""
        most = limits.produce_response_ms_max
        assert most is not None, "see is_on"
        means = {}
        for broker_id in slices.broker_ids:
            spans = [Span(edges) for edges in slices.of(broker_id)]
            requests = [span.per_s(f"{self._TIMES}_count") or 0.0 for span in spans]
            if any(requests):
                per_s = sum(requests) / len(requests)
                took = [span.sum_per_s(self._TIMES) or 0.0 for span in spans]
                means[f"{self.name}/{broker_id}"] = [each / per_s / most for each in took]
        return EarlyEvidence(means=means)


class ProduceLatency(Indicator):
    """Produce latency above the objective at a quantile; known only at the end."""

    needs_metrics = False
    judges_parts = True

    def __init__(self, quantile: str) -> None:
        self.name = f"latency_{quantile}"
        self.limit_name = f"latency_{quantile}_ms_max"
        self.quantile = quantile

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The latency, where it is above the objective."""
        limit_ms = limits.latency_objectives.get(self.quantile)
        value_ms = float(getattr(evidence.client.latency, f"{self.quantile}_ms"))
        if limit_ms is None or not value_ms > limit_ms:
            return []
        text = f"produce latency {self.quantile} {value_ms:.1f} ms, above {limit_ms:.1f} ms"
        return [Reason(self.name, text, value_ms, limit_ms)]


LAG_WINDOW_S = 40.0
"""Length of a window up to which the limit of the lag's growth is a share of it: what is in flight
at its edges is about 1 s of records. A longer window allows no more records than this one [s]."""


def lag_allowed(most: float, duration_s: float) -> float:
    """The growth of a lag that a window may show, over the offered records [ratio]."""
    return most * min(1.0, LAG_WINDOW_S / duration_s)


class ConsumerLag(Indicator):
    """Consumer groups that fall behind faster than the limit allows; known only at the end."""

    name = "consumer_lag"
    limit_name = "consumer_lag_growth_max"
    needs_metrics = False
    judges_parts = True

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The groups beyond the limit."""
        client, most = evidence.client, limits.consumer_lag_growth_max
        if most is None or client.counts.offered_records == 0:
            return []
        offered_per_s = client.counts.offered_records / client.duration_s
        most = lag_allowed(most, client.duration_s)
        return [
            Reason(
                self.name,
                f"consumer group {group} fell behind by {growth_per_s:.0f} records/s, "
                f"{growth_per_s / offered_per_s:.1%} of the offered rate, above {most:.1%}",
                growth_per_s / offered_per_s,
                most,
            )
            for group, growth_per_s in sorted(evidence.lag_growth_per_s.items())
            if growth_per_s / offered_per_s > most
        ]

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The lag growth of the group that fell behind most."""
        client, most = evidence.client, limits.consumer_lag_growth_max
        growth = evidence.lag_growth_per_s
        if most is None or not growth or client.counts.offered_records == 0:
            return None
        group = max(growth, key=growth.__getitem__)
        share = growth[group] * client.duration_s / client.counts.offered_records
        most = lag_allowed(most, client.duration_s)
        text = (
            f"the lag of consumer group {group} grew by {share:.1%} of the offered records, not "
            f"above {most:.1%}"
        )
        return Reason(self.name, text, share, most)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence | None:
        """No values where consumer groups read, as tasks report their lag at the end."""
        return None if slices.groups else EarlyEvidence()


class Achieved(Indicator):
    """A shortfall: too little of the offered load was acknowledged.

    `metrics.judging.validity` first checks that the generator had capacity.
    """

    name = "achieved"
    needs_metrics = False
    judges_parts = True

    def falls_short(self, evidence: Evidence, limits: Indicators) -> bool:
        """True when less was acknowledged than the goal requires."""
        share, edge = evidence.client.achieved_share, evidence.client.edge_share
        return share is not None and share + edge < limits.achieved_min

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The share of the offered records that was acknowledged, where it falls short."""
        client, share = evidence.client, evidence.client.achieved_share
        if share is None or not self.falls_short(evidence, limits):
            return []
        least, counts = limits.achieved_min, client.counts
        text = (
            f"{format_beside(100 * share, 100 * least, 1)}% of the offered records were "
            f"acknowledged in the window, below {least:.1%} ({counts.acked_records} of "
            f"{counts.offered_records}; latency p99 {client.latency.p99_ms:.0f} ms)"
        )
        return [Reason(self.name, text, share, limits.achieved_min)]

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The missing share over the share that may be missing."""
        share = evidence.client.achieved_share
        if share is None or limits.achieved_min >= 1.0:
            return None
        missing = max(0.0, 1.0 - share - evidence.client.edge_share)
        return missing / (1.0 - limits.achieved_min)

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The share of the offered records that was acknowledged."""
        share = evidence.client.achieved_share
        if share is None:
            return None
        text = (
            f"{share:.1%} of the offered records were acknowledged in the window, not below "
            f"{limits.achieved_min:.1%} (latency p99 {evidence.client.latency.p99_ms:.1f} ms)"
        )
        return Reason(self.name, text, share, limits.achieved_min)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The unacknowledged records over those that may remain after the whole window."""
        allowed = (1.0 - limits.achieved_min) * slices.offered_per_s * slices.window_s
        if allowed <= 0:
            # No record may be missing, but the last acknowledgements are always outstanding.
            return EarlyEvidence(stocks={self.name: []})
        offered = slices.offered_per_s
        waiting = [max(0.0, offered * at_s - records) / allowed for at_s, records in slices.acked]
        return EarlyEvidence(stocks={self.name: waiting})


class Throttling(Indicator):
    """Quotas that throttle the load, where the goal searches for them.

    A quota allows a burst, so throttling shows only late in a window, and the rule gives no early
    evidence.
    """

    name = THROTTLED
    needs_metrics = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True where the goal searches for quotas."""
        return limits.throttled_is_overload

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """See `throttle_reasons`; any throttling is an overload."""
        return throttle_reasons(evidence, 0.0)


ACHIEVED = Achieved()
CONSUMER_LAG = ConsumerLag()
LATENCIES = tuple(ProduceLatency(quantile) for quantile in LATENCY_QUANTILES)
CLIENT_INDICATORS: Sequence[Indicator] = (*LATENCIES, ACHIEVED)
"""The indicators that a generator in trouble can trigger as well as overloaded brokers."""
INDICATORS: Sequence[Indicator] = (
    Throttling(),
    RequestHandlerIdle(),
    Isr(),
    FollowersBehind(),
    NetworkIdle(),
    RequestQueue(),
    ProduceResponseTime(),
    *LATENCIES,
    CONSUMER_LAG,
    ACHIEVED,
)
"""All indicators in the order of their reasons: those of the brokers first."""


def active(limits: Indicators, cluster: ClusterFacts) -> list[Indicator]:
    """The indicators that take part in the verdict."""
    return [each for each in INDICATORS if each.is_on(limits, cluster)]


def exceeded(evidence: Evidence, limits: Indicators) -> list[tuple[Indicator, Reason]]:
    """The reasons of the active indicators by the whole account, each with its indicator."""
    rules = active(limits, evidence.cluster)
    return [(each, reason) for each in rules for reason in each.reasons(evidence, limits)]
