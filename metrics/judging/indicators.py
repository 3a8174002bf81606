"""The indicators: the rules that make a trial OVERLOADED.

Each broker is judged separately, because one slow broker limits the whole cluster. A rule gives
no reason if its evidence is missing. `metrics.judging.validity` checks that the required evidence
is present. A new indicator needs a class in this module, a line in `INDICATORS`, and a limit in
`metrics.judging.thresholds.Indicators`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from metrics.judging.nearness import THROTTLED, throttle_reasons
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
from metrics.windows.broker import BrokerWindow, Span, any_isr_changed, highest, over
from metrics.windows.use import Resource


class Indicator(ABC):
    """A rule that makes a trial OVERLOADED, with its name and the name of its limit.

    Attributes:
        name: name of the rule in reasons and in the search.
        limit_name: name of the rule's limit in `Indicators`. The rule is off if the limit is None.
            The name of the limit is empty for a rule without one.
        needs_metrics: True if the rule needs the brokers' metrics, which a blind cluster does not
            show.
        judges_parts: True if the rule judges each part of a mix in addition to the whole mix.
    """

    name: str
    limit_name = ""
    needs_metrics = True
    judges_parts = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True if the limits and the cluster allow the rule to take part in the verdict."""
        is_set = not self.limit_name or getattr(limits, self.limit_name) is not None
        return is_set and not (self.needs_metrics and cluster.is_blind)

    @abstractmethod
    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason for each value beyond the limit, the worst value first."""

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The measured value relative to its limit: 1 at the limit, more than 1 beyond the limit.

        The search uses this value to choose the next load. The result is None if the evidence is
        missing, or if the rule does not compare a value with a limit.
        """
        return None

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The measured value of a sustained trial and a text about this value for reports, or None
        if the value is not known.
        """
        return None

    def missing(self, window: BrokerWindow) -> str:
        """Noun phrase for the metric that the broker's window lacks, or an empty text if no metric
        is missing.
        """
        return ""

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence | None:
        """The rule's values in a running trial, or None if the values are known only at the end of
        the trial.

        A trial cannot end early as SUSTAINED if an indicator returns None for it.
        """
        return None


class BrokerIndicator(Indicator):
    """A rule that compares one value of each broker's window with a limit.

    Attributes:
        metric: noun phrase for the compared value, with the name of the reading in brackets.
        resource: the broker's resource that the compared value describes.
        is_floor: True if the limit is the lowest allowed value, and False if it is the highest.
    """

    metric: str
    resource = Resource.UNKNOWN
    is_floor = False

    @abstractmethod
    def value(self, window: BrokerWindow) -> float | None:
        """The compared value of a broker, or None if the window lacks the value."""

    @abstractmethod
    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """A text for a value beyond the limit."""

    def limit(self, broker_id: int, cluster: ClusterFacts, limits: Indicators) -> float | None:
        """The rule's limit for a broker, or None if the rule has no limit for this broker."""
        found: float | None = getattr(limits, self.limit_name)
        return found

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason for each broker beyond the limit, the worst broker first."""
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
        """The noun phrase `metric` if the broker's window lacks the value, or an empty text
        otherwise.
        """
        return self.metric if self.value(window) is None else ""


class IdleIndicator(BrokerIndicator):
    """A rule that finds brokers whose threads of one kind have too little idle time.

    Attributes:
        threads: noun phrase for this kind of threads.
    """

    threads: str
    is_floor = True

    @abstractmethod
    def value(self, window: BrokerWindow | Span) -> float | None:
        """The idle fraction of the threads in a window or between two samples [ratio]."""

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """A text such as `request handlers idle 0.12, below 0.20`."""
        return f"{self.threads} idle {format_beside(value, limit)}, below {limit:.2f}"

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The busy share of the busiest broker's threads, divided by the highest allowed busy
        share.
        """
        known = [idle for each in evidence.brokers if (idle := self.value(each)) is not None]
        return max(0.0, 1.0 - min(known)) / self._allowed(limits) if known else None

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The busy share of the threads, divided by its limit. There is one value for each two
        successive samples of a broker so far. The mean over the window decides the verdict.
        """
        allowed = self._allowed(limits)

        def used(span: Span) -> float | None:
            idle = self.value(span)
            return None if idle is None else (1.0 - idle) / allowed

        return EarlyEvidence(means=slices.means(self.name, used))

    def _allowed(self, limits: Indicators) -> float:
        """The highest allowed busy share of the threads [ratio]."""
        return 1.0 - float(getattr(limits, self.limit_name))


class RequestHandlerIdle(IdleIndicator):
    """Brokers whose request handlers have too little idle time."""

    name = "request_handler_idle"
    limit_name = "request_handler_idle_min"
    metric = f"the request handlers' idle time ({HANDLER_IDLE_NS})"
    threads = "request handlers"
    resource = Resource.REQUEST_HANDLERS

    def value(self, window: BrokerWindow | Span) -> float | None:
        """The mean idle fraction of all request handlers."""
        return window.handler_idle

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The idle fraction of the busiest broker."""
        window, least = evidence.busiest_broker, limits.request_handler_idle_min
        if window is None or window.handler_idle is None:
            return None
        text = (
            f"request handlers idle {window.handler_idle:.2f} on the busiest broker "
            f"{window.broker_id}; at least {least:.2f} is required"
        )
        return self._reason(window, text, window.handler_idle, least)


class Isr(Indicator):
    """A rule that finds ISR changes or under-replicated partitions in too many samples.

    Published studies use this rule: a trial is overloaded if the ISR of any broker changes in more
    than half of the samples. On a cluster without metrics, the Admin API shows the under-replicated
    partitions.
    """

    name = "isr"
    needs_metrics = False

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason with the share of samples that show ISR changes, and the broker with the most
        changes.
        """
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
        """The share of samples that show ISR changes, divided by the highest allowed share."""
        return over(evidence.isr_changed_share, limits.isr_changed_share_max)

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The share of samples that show ISR changes."""
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
        """For each sampling time so far, whether any broker shows an ISR change."""
        at_rest = slices.cluster.under_replicated_at_rest
        changed = any_isr_changed(slices.samples, slices.broker_ids, *slices.window, at_rest)
        found = (changed, limits.isr_changed_share_max)
        return EarlyEvidence(shares={self.name: found} if changed else {})


class FollowersBehind(Indicator):
    """A rule that finds followers whose lag behind the leaders grows too fast.

    The ISR shows a lagging follower only after `replica.lag.time.max.ms`, which is 30 s by default.
    The growth of the lag shows a lagging follower before the ISR shows it.
    """

    name = FOLLOWER_LAG
    limit_name = "follower_lag_growth_max"
    needs_metrics = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True if the goal sets a limit, partitions have followers, and no broker is offline on
        purpose.
        """
        is_whole = not cluster.offline and cluster.killed is None
        return cluster.followers > 0 and is_whole and super().is_on(limits, cluster)

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason with the growth of the followers' lag if this growth is beyond the limit."""
        lag = followers_behind(evidence, limits)
        return [] if lag is None else [followers_reason(evidence, limits, lag)]

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """A note that the followers' lag is not known, or None if the followers' lag is known."""
        return followers_unknown(limits) if evidence.follower_lag is None else None

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The followers' lag so far, divided by the highest allowed lag of the whole window. The
        evidence is empty if the lag is not known.
        """
        levels = followers_lag_so_far(slices, limits)
        return EarlyEvidence(stocks={self.name: levels} if levels else {})


class NetworkIdle(IdleIndicator):
    """Brokers whose busiest network thread has too little idle time."""

    name = "network_idle"
    limit_name = "network_idle_min"
    metric = f"the network threads' idle time ({NETWORK_WAIT_NS})"
    threads = "busiest network thread"
    resource = Resource.NETWORK_THREADS

    def value(self, window: BrokerWindow | Span) -> float | None:
        """The idle fraction of the busiest network thread."""
        return window.network_idle


class RequestQueue(BrokerIndicator):
    """A rule that finds brokers with too many waiting requests in a sample."""

    name = "request_queue"
    _GAUGE = "request_queue_size"
    metric = f"the size of the request queue ({_GAUGE})"
    resource = Resource.REQUEST_HANDLERS

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True if the goal limits the number of waiting requests (as a number or as a share of the
        queue's size), and if the metrics of the brokers can be read.
        """
        given = (limits.request_queue_max, limits.request_queue_share_max)
        return any(each is not None for each in given) and super().is_on(limits, cluster)

    def value(self, window: BrokerWindow) -> float | None:
        """The highest number of waiting requests in a sample."""
        return window.request_queue_max

    def limit(self, broker_id: int, cluster: ClusterFacts, limits: Indicators) -> float | None:
        """The highest allowed number of waiting requests, or None if the goal sets only a share and
        the size of the queue is unknown.
        """
        found = [] if limits.request_queue_max is None else [limits.request_queue_max]
        room = cluster.queued_max_requests.get(broker_id)
        if limits.request_queue_share_max is not None and room is not None:
            found.append(limits.request_queue_share_max * room)
        return min(found, default=None)

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """A text with the number of waiting requests, and the size of the queue if it is known."""
        room = cluster.queued_max_requests.get(broker_id)
        of_room = "" if room is None else f" (size of the queue: {room:.0f})"
        return f"up to {value:.0f} requests waited for a handler, above {limit:.0f}{of_room}"

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """For each slice that shows the request queue, whether the queue was longer than the
        limit.
        """
        shares = {}
        for broker_id in slices.broker_ids:
            limit = self.limit(broker_id, slices.cluster, limits)
            if limit is not None:
                queued = (span.gauge_max(self._GAUGE) for span in slices.of(broker_id))
                waiting = [each > limit for each in queued if each is not None]
                shares[f"{self.name}/{broker_id}"] = (waiting, 0.0)
        return EarlyEvidence(shares=shares)


class ProduceResponseTime(BrokerIndicator):
    """A rule that finds brokers whose produce requests take too long on average.

    The time is `TotalTimeMs` of `request=Produce` in Kafka's `RequestMetrics`. The time begins when
    the request arrives and ends with the last byte of the answer. The mean over the window is
    exact, because Kafka counts every request.
    """

    name = "produce_response_time"
    limit_name = "produce_response_ms_max"
    _TIMES = "produce_total_ms"
    metric = f"the response time of produce requests ({_TIMES})"

    def value(self, window: BrokerWindow) -> float | None:
        """The mean response time of produce requests [ms]."""
        return window.produce.total_ms

    def words(self, value: float, limit: float, broker_id: int, cluster: ClusterFacts) -> str:
        """A text with the mean response time [ms]."""
        shown = format_beside(value, limit, 1)
        return f"mean response time of produce requests {shown} ms, above {limit:.1f} ms"

    def utilization(self, evidence: Evidence, limits: Indicators) -> float | None:
        """The mean response time of the slowest broker, divided by the limit."""
        slowest_ms = highest(map(self.value, evidence.brokers))
        return over(slowest_ms, limits.produce_response_ms_max)

    def missing(self, window: BrokerWindow) -> str:
        """The noun phrase `metric` if the broker's window lacks the response time, or an empty
        text. The text is also empty for a broker without produce requests.
        """
        return "" if window.produce.per_s == 0 else super().missing(window)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The response time in each slice, divided by the limit and weighted by the slice's number
        of requests.
        """
        most = limits.produce_response_ms_max
        assert most is not None, "see is_on"
        means = {}
        for broker_id in slices.broker_ids:
            spans = slices.of(broker_id)
            requests = [span.per_s(f"{self._TIMES}_count") or 0.0 for span in spans]
            if any(requests):
                per_s = sum(requests) / len(requests)
                took = [span.sum_per_s(self._TIMES) or 0.0 for span in spans]
                means[f"{self.name}/{broker_id}"] = [each / per_s / most for each in took]
        return EarlyEvidence(means=means)


class ProduceLatency(Indicator):
    """A rule that compares one quantile of the produce latency with the objective for this
    quantile.

    The latency is known only at the end of a trial.
    """

    needs_metrics = False
    judges_parts = True

    def __init__(self, quantile: str) -> None:
        self.name = f"latency_{quantile}"
        self.limit_name = f"latency_{quantile}_ms_max"
        self.quantile = quantile

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason if the latency is above the objective."""
        limit_ms = limits.latency_objectives.get(self.quantile)
        value_ms = float(getattr(evidence.client.latency, f"{self.quantile}_ms"))
        if limit_ms is None or not value_ms > limit_ms:
            return []
        text = f"produce latency {self.quantile} {value_ms:.1f} ms, above {limit_ms:.1f} ms"
        return [Reason(self.name, text, value_ms, limit_ms)]


LAG_WINDOW_S = 40.0
"""Window length up to which the allowed growth of the lag is a fixed share of the offered records
[s]. In a longer window, the allowed number of records is the number that is allowed in a window of
`LAG_WINDOW_S`, and does not grow further. The measured growth has an error, because records are in
flight at the start and at the end of a window. The error is about as large as the number of records
that producers send in 1 s."""


def lag_allowed(most: float, duration_s: float) -> float:
    """The highest allowed growth of a lag in a window, as a share of the offered records [ratio].

    Args:
        most: the highest allowed growth in a window of up to `LAG_WINDOW_S` [ratio].
        duration_s: length of the window [s].
    """
    return most * min(1.0, LAG_WINDOW_S / duration_s)


class ConsumerLag(Indicator):
    """A rule that finds consumer groups whose lag grows too fast.

    The growth is known only at the end of a trial.
    """

    name = "consumer_lag"
    limit_name = "consumer_lag_growth_max"
    needs_metrics = False
    judges_parts = True

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason for each consumer group whose lag grew by more than the limit."""
        return [
            Reason(
                self.name,
                f"consumer group {group} fell behind by "
                f"{evidence.lag_growth_per_s[group]:.0f} records/s, {share:.1%} of the offered "
                f"rate, above {most:.1%}",
                share,
                most,
            )
            for group, share, most in self._shares(evidence, limits)
            if share > most
        ]

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The growth of the lag of the consumer group that fell behind most."""
        shares = self._shares(evidence, limits)
        if not shares:
            return None
        group, share, most = max(shares, key=lambda each: each[1])
        text = (
            f"the lag of consumer group {group} grew by {share:.1%} of the offered records, not "
            f"above {most:.1%}"
        )
        return Reason(self.name, text, share, most)

    def _shares(self, evidence: Evidence, limits: Indicators) -> list[tuple[str, float, float]]:
        """Tuples (group, growth of the group's lag, highest allowed growth). Each growth is a share
        of the offered records.
        """
        client, most = evidence.client, limits.consumer_lag_growth_max
        if most is None or client.counts.offered_records == 0:
            return []
        offered_per_s = client.counts.offered_records / client.duration_s
        allowed = lag_allowed(most, client.duration_s)
        grown = sorted(evidence.lag_growth_per_s.items())
        return [(group, per_s / offered_per_s, allowed) for group, per_s in grown]

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence | None:
        """None if consumer groups read the load, because tasks report the groups' lag only at the
        end. Without consumer groups, the evidence is empty.
        """
        return None if slices.groups else EarlyEvidence()


class Achieved(Indicator):
    """A rule that finds a shortfall: too few of the offered records were acknowledged.

    `metrics.judging.validity` checks first that the generator did not cause the shortfall.
    """

    name = "achieved"
    needs_metrics = False
    judges_parts = True

    def falls_short(self, evidence: Evidence, limits: Indicators) -> bool:
        """True if fewer records were acknowledged than the goal requires."""
        share, edge = evidence.client.achieved_share, evidence.client.edge_share
        return share is not None and share + edge < limits.achieved_min

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """One reason if the acknowledged share of the offered records is too low."""
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
        """The unacknowledged share of the offered records, divided by the highest allowed
        unacknowledged share.
        """
        share = evidence.client.achieved_share
        if share is None or limits.achieved_min >= 1.0:
            return None
        missing = max(0.0, 1.0 - share - evidence.client.edge_share)
        return missing / (1.0 - limits.achieved_min)

    def sustained(self, evidence: Evidence, limits: Indicators) -> Reason | None:
        """The acknowledged share of the offered records."""
        share = evidence.client.achieved_share
        if share is None:
            return None
        text = (
            f"{share:.1%} of the offered records were acknowledged in the window; at least "
            f"{limits.achieved_min:.1%} is required (p99 {evidence.client.latency.p99_ms:.1f} ms)"
        )
        return Reason(self.name, text, share, limits.achieved_min)

    def early(self, slices: Slices, limits: Indicators) -> EarlyEvidence:
        """The number of unacknowledged records so far, divided by the highest number allowed at the
        end of the window.
        """
        allowed = (1.0 - limits.achieved_min) * slices.offered_per_s * slices.window_s
        if allowed <= 0:
            # No record may be missing, but some records always wait for their acknowledgement.
            return EarlyEvidence(stocks={self.name: []})
        offered = slices.offered_per_s
        waiting = [max(0.0, offered * at_s - records) / allowed for at_s, records in slices.acked]
        return EarlyEvidence(stocks={self.name: waiting})


class Throttling(Indicator):
    """A rule that finds quotas which throttle the load, if the goal counts throttling as an
    overload.

    A quota allows a burst, so throttling begins late in a window. So the rule gives no evidence
    before the end of the window.
    """

    name = THROTTLED
    needs_metrics = False

    def is_on(self, limits: Indicators, cluster: ClusterFacts) -> bool:
        """True if the goal counts throttling as an overload."""
        return limits.throttled_is_overload

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """The result of `throttle_reasons`. Any throttling is an overload."""
        return throttle_reasons(evidence, 0.0)


ACHIEVED = Achieved()
CONSUMER_LAG = ConsumerLag()
LATENCIES = tuple(ProduceLatency(quantile) for quantile in LATENCY_QUANTILES)
CLIENT_INDICATORS: Sequence[Indicator] = (*LATENCIES, ACHIEVED)
"""Indicators that overloaded brokers can trigger, and that an overloaded generator can also
trigger.
"""
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
"""All indicators, in the order of their reasons: the rules about brokers precede the rules about
clients."""


def active(limits: Indicators, cluster: ClusterFacts) -> list[Indicator]:
    """The indicators that are on for these limits and this cluster."""
    return [each for each in INDICATORS if each.is_on(limits, cluster)]


def exceeded(evidence: Evidence, limits: Indicators) -> list[tuple[Indicator, Reason]]:
    """Pairs of an active indicator and one of its reasons, for the whole load."""
    rules = active(limits, evidence.cluster)
    return [(each, reason) for each in rules for reason in each.reasons(evidence, limits)]
