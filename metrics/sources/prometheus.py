"""Broker metrics from Prometheus exporters in the brokers: a sample is one HTTP scrape of each.

The choice of one-minute rates for meters whose counts a page does not show.

A name that ends in `OneMinuteRate` says what the number is. Without it the numbers of successive
polls tell: a one-minute rate stays the same for 5 s, and its next value gives a whole number of
events (`metrics.sources.one_minute_rates`), which no other average does. A rate that is 0 means
what the page's other series with the same end of the name mean; the load of the warm-up proves it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import ClassVar

from metrics.common.errors import ConfigError
from metrics.sources.bean_series import Candidate, Meaning, candidates_of
from metrics.sources.beans import (
    CONTROLLER_EPOCH,
    FROM_FIRST_USE,
    HANDLER_IDLE_NS,
    Role,
    controller_share,
)
from metrics.sources.exposition import Poll, kind_of, number_of
from metrics.sources.http_access import ClosedError, HttpAccess, ScrapeError
from metrics.sources.one_minute_rates import (
    IDLE_MOST,
    SHARED_IDLE_MOST,
    TICK_S,
    RateCounts,
    is_exact,
    is_whole_tick,
    rounding_of,
)
from metrics.sources.rules import (
    BROKER_HANDLER_IDLE_NS,
    IDLE_METERS,
    JAVA,
    METERS,
    NODE_ID,
    ONE_MINUTE_RATE,
    RuleSet,
    Selector,
    as_rate,
    missing_readings,
    roles_of,
    with_handlers,
)
from metrics.sources.sample import BrokerSample, parts_of
from metrics.sources.scraper import Exporter, Scrape, Scraper, Scrapers
from metrics.sources.series_choice import (
    AUTO,
    IDLE_GROWTH_MAX,
    SECOND_POLL_S,
    Choices,
    choose,
    constant_labels,
    printed_numbers,
)
from metrics.sources.source import OPEN_DEADLINE_S, Endpoint, NodeInfo, scrape_interval_s

TICKS_SEEN_S = 3 * TICK_S + 2.0
"""Time after which a meter has ticked twice between polls, and once before that in a broker that
has just started [s]."""
POLLS_MAX = 20
_POLLS_APART_S = TICK_S - 0.5
"""Longest time between two polls with at most one tick between them [s]."""
_NAMED = ("oneminuterate", "oneminuteratetotal")
_PERCENT = 0.01


class _Evidence(str, Enum):
    """What a series is, by its name or by its numbers."""

    RATE = "one-minute rate"
    OTHER = "another number"
    ZERO = "0 until now"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Shown:
    """A series that may be the rate of a meter.

    Attributes:
        candidate: what its name says.
        times_s: time of each poll [s].
        numbers: the number of each poll.
        rounding: smallest rounding of their digits.
    """

    candidate: Candidate
    times_s: Sequence[float]
    numbers: Sequence[float]
    rounding: float

    @property
    def meter(self) -> str:
        """The reading of its meter."""
        return self.candidate.reading

    @property
    def end(self) -> str:
        """The end of its name."""
        return self.candidate.family[-1]

    @property
    def factor(self) -> float:
        """Factor to the rate; the idle share may be a percentage."""
        is_percent = self.meter in IDLE_METERS and self._largest > IDLE_GROWTH_MAX
        return _PERCENT if is_percent else 1.0

    @property
    def selector(self) -> Selector:
        """The selector for the rate."""
        return as_rate(replace(self.candidate.selector, factor=self.factor), self.meter)

    @property
    def _largest(self) -> float:
        return max(self.numbers)

    def evidence(self) -> _Evidence:
        """What the series is."""
        numbers = self.numbers
        if not all(map(math.isfinite, numbers)) or min(numbers) < 0:
            return _Evidence.OTHER
        if self.meter in IDLE_METERS and self._largest * self.factor > IDLE_GROWTH_MAX:
            return _Evidence.OTHER
        if self.end in _NAMED:
            return _Evidence.RATE
        if self.candidate.meaning is not Meaning.UNCERTAIN:
            return _Evidence.OTHER
        if max(numbers) == 0:
            # Only in the first seconds of a broker its handlers have not been idle.
            return _Evidence.UNKNOWN if self.meter in IDLE_METERS else _Evidence.ZERO
        if all(number.is_integer() for number in numbers):  # a count
            return _Evidence.OTHER
        whole = list(self._whole_ticks())
        if not all(whole):
            return _Evidence.OTHER
        return _Evidence.RATE if len(whole) > (self.meter in IDLE_METERS) else _Evidence.UNKNOWN

    def _whole_ticks(self) -> Iterator[bool]:
        """For each change of the number, whether it is that of a one-minute rate. The first rate
        after 0 may be that of the meter's first tick, which sets it.

        A number without all digits of a double, which has been rounded, shows nothing.
        """
        unit = self.selector.factor
        if not is_exact(self._largest * unit, self.rounding * unit):
            return
        polls = zip(self.times_s, self.numbers, strict=True)
        for (before_s, before), (at_s, number) in pairwise(polls):
            if number != before != 0 and at_s - before_s <= _POLLS_APART_S:
                yield is_whole_tick(before * unit, number * unit, self.rounding * unit)


def choose_rates(polls: Sequence[Poll], found: Choices) -> Choices:
    """Add the one-minute rates of meters whose counts a page does not show.

    Args:
        polls: polls of the page, the earliest first.
        found: the choices without rates.
    """
    counted = found.selectors.keys() - {*found.unproven}
    shown = [each for each in _shown(polls) if each.meter not in counted]
    evidence = {id(each): each.evidence() for each in shown}
    ends = {each.end for each in shown if evidence[id(each)] is _Evidence.RATE}
    ends -= {each.end for each in shown if evidence[id(each)] is _Evidence.OTHER}
    rates: dict[str, list[_Shown]] = {}
    for each in shown:
        is_alike = evidence[id(each)] is _Evidence.ZERO and each.end in ends
        if evidence[id(each)] is _Evidence.RATE or is_alike:
            rates.setdefault(each.meter, []).append(each)
    chosen = {
        meter: (alike[0].selector,)
        for meter, alike in rates.items()
        if len({one.numbers for one in alike}) == 1
    }
    is_open = any(evidence[id(each)] is _Evidence.UNKNOWN for each in shown)
    passed_s = polls[-1].at_s - polls[0].at_s
    return replace(
        found,
        selectors={**found.selectors, **chosen},
        refused=tuple(each for each in found.refused if each.reading not in chosen),
        unproven=tuple(each for each in found.unproven if each not in chosen),
        needs_poll=is_open and passed_s < TICKS_SEEN_S and len(polls) < POLLS_MAX,
    )


def _shown(polls: Sequence[Poll]) -> list[_Shown]:
    """The series of meters that may be rates and that every poll shows."""
    pages = [printed_numbers(poll.text) for poll in polls]
    constant = constant_labels(pages[0])
    found = []
    for series in pages[0]:
        for candidate in candidates_of(series, constant):
            if candidate.reading in METERS and all(series in page for page in pages):
                printed = [page[series][-1] for page in pages]
                numbers = tuple(map(number_of, printed))
                known = [text for text, n in zip(printed, numbers, strict=True) if math.isfinite(n)]
                rounding = min(map(rounding_of, known), default=0.0)
                found.append(_Shown(candidate, [each.at_s for each in polls], numbers, rounding))
    return found


_COMBINED = frozenset({Role.BROKER, Role.CONTROLLER})
_OPEN = HttpAccess("metrics.prometheus")

JAVA_FACTS = ("jvm.name", "jvm.vendor", "jvm.version")
"""Facts in the labels of the JVM's series, in the order of the rule sets."""

_REMEDY = (
    ". Start it with the Prometheus JMX exporter on that port, open the port to this machine, or "
    "correct metrics.prometheus of the cluster's file"
)


class PrometheusSource:
    """Scrapes the exporters of all brokers.

    Args:
        endpoints: addresses of the nodes' exporters.
        rules: the readings of their series; None to find them on each page.
        deadline_s: time after which a node's sample counts as missed [s].
        version: Kafka's version as far as the protocol shows it, such as `4.1`.
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.
        pause: waits between two polls of a page [s].

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    name = "prometheus"
    remedy: ClassVar[str] = _REMEDY
    correction: ClassVar[str] = "correct metrics.prometheus.endpoints"

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        rules: RuleSet | None,
        deadline_s: float,
        version: str = "unknown",
        clock: Callable[[], float] = time.time,
        access: HttpAccess = _OPEN,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ids = [endpoint.node_id for endpoint in endpoints]
        known = rules or RuleSet(AUTO, {})
        scrapers = [Scraper(endpoint, access, known, clock) for endpoint in endpoints]
        self._scrapers = Scrapers(scrapers, deadline_s, "redline-prometheus", clock)
        self._rules = rules
        self._version = version
        self._pause = pause
        self._counts = {endpoint.node_id: RateCounts() for endpoint in endpoints}
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self.nodes = dict(self._scrapers.open(self._probe))

    def _probe(self, exporter: Exporter) -> tuple[int, NodeInfo]:
        try:
            found = self._find_rules(exporter) if self._rules is None else None
            scrape = exporter.scrape_known_series(OPEN_DEADLINE_S)
        except ScrapeError as error:
            remedy = "" if isinstance(error, ClosedError) else self.remedy
            raise ConfigError(
                f"broker {exporter.node_id} shows no metrics at {exporter.url}: {error}{remedy}"
            ) from error
        return exporter.node_id, self._node(exporter, scrape, found or Choices())

    def _find_rules(self, exporter: Exporter) -> Choices:
        """Find the series of the readings on a page, and read them from now on.

        Raises:
            ConfigError: the page is not that of a broker.
        """
        polls = [exporter.poll(OPEN_DEADLINE_S)]
        found = choose(polls)
        if found.needs_poll:
            self._pause(SECOND_POLL_S)
            polls.append(exporter.poll(OPEN_DEADLINE_S))
            found = choose(polls)
        found = choose_rates(polls, found)
        while found.needs_poll:
            self._pause(SECOND_POLL_S)
            polls.append(exporter.poll(OPEN_DEADLINE_S))
            found = choose_rates(polls, choose(polls[:2]))
        if not found.has_beans and not found.refused:
            raise ConfigError(
                f"broker {exporter.node_id} shows no metrics at {exporter.url}: "
                f"{kind_of(polls[-1].text)}{self.remedy}"
            )
        exporter.use(found.rules)
        return found

    def _node(self, exporter: Exporter, scrape: Scrape, found: Choices) -> NodeInfo:
        node_id = exporter.node_id
        values = self._counts[node_id].counted(scrape.values, scrape.at_s)
        ids = parts_of(values, NODE_ID)
        if ids and str(node_id) not in ids:
            raise ConfigError(
                f"{exporter.url} answers as node {', '.join(sorted(ids))}, "
                f"expected node {node_id}; {self.correction}"
            )
        java = parts_of(values, JAVA)
        roles = roles_of(values)
        if Role.BROKER in roles:
            self._require_handlers(exporter, values, found)
        has_quorum = CONTROLLER_EPOCH in values
        sampled = with_handlers(values, scrape.at_s, is_shared=roles >= _COMBINED)
        rates = tuple(sorted({*parts_of(scrape.values, ONE_MINUTE_RATE)} - {*scrape.values}))
        later = (self._rules or found.rules).selectors.keys() & {*FROM_FIRST_USE}
        return NodeInfo(
            node_id,
            self._version,
            roles,
            dict(zip(JAVA_FACTS, java[0].split("/"), strict=False)) if java else {},
            missing_readings({*sampled, *later}, roles, has_quorum=has_quorum),
            scrape.took_s,
            has_quorum,
            controller_share(sampled),
            found.texts,
            found.preferred,
            found.refusals,
            rates=rates,
            # One-minute rates need samples that are as frequent as their ticks.
            spared_s=0.0 if rates else scrape_interval_s(scrape.took_s, scrape.lines),
        )

    def _require_handlers(
        self, exporter: Exporter, values: Mapping[str, float], found: Choices
    ) -> None:
        """Check that the idle time of the broker's own request handlers is known."""
        refused = {each.reading: each for each in found.refused}
        doubtful = refused.get(BROKER_HANDLER_IDLE_NS)
        if BROKER_HANDLER_IDLE_NS not in values and HANDLER_IDLE_NS not in values:
            doubtful = doubtful or refused.get(HANDLER_IDLE_NS)
        elif doubtful is None:
            return
        if self._rules is not None:
            found_out = f" under a name that {self._rules.name} maps to {HANDLER_IDLE_NS}"
            reason = ""
        else:
            found_out, reason = "", f": {doubtful.text}" if doubtful else ""
        raise ConfigError(
            f"broker {exporter.node_id} at {exporter.url} does not show the count of "
            f"RequestHandlerAvgIdlePercent{found_out}, which is required to recognize an "
            f"overload{reason}; have the exporter's rules export that bean's Count, or its "
            f"OneMinuteRate under a name that ends so, name the rules that fit in "
            f"metrics.prometheus.rules, or set metrics.client_only: true"
        )

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        scrapes = self._scrapers.scrape_all()
        return [self._sample(*each) for each in zip(self._ids, scrapes, strict=True)]

    def _sample(self, node_id: int, scrape: Scrape) -> BrokerSample:
        ids = parts_of(scrape.values, NODE_ID)
        if ids and str(node_id) not in ids:
            other = f"node {', '.join(sorted(ids))} answers at the address of node {node_id}"
            return BrokerSample(node_id, scrape.at_s, error=other)
        node, values = self.nodes.get(node_id), scrape.values
        is_shared = node is not None and node.roles >= _COMBINED
        if node is not None and node.rates:
            most = SHARED_IDLE_MOST if is_shared else IDLE_MOST
            values = self._counts[node_id].counted(values, scrape.at_s, most)
        values = with_handlers(values, scrape.at_s, is_shared=is_shared)
        return BrokerSample(node_id, scrape.at_s, values, scrape.error)

    def reconnect(self) -> None:
        """Close the connections; the next sample opens new ones."""
        self._scrapers.reconnect()

    def close(self) -> None:
        """See `MetricsSource.close`."""
        self._scrapers.close()
