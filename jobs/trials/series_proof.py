"""The test whether the first load of a warm-up changes the exporters' series as expected.

If counts are computed from one-minute rates, the run waits for an update of these rates before it
polls the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseStarted
from jobs.trials.context import RunContext
from metrics.common.errors import ConfigError
from metrics.judging.series_proof import (
    BYTES_LEAST,
    MESSAGES_LEAST,
    HandlerPool,
    Proof,
    polls_of,
    prove,
    sent_by_broker,
)
from metrics.planning.planted import HANDLERS_DEFAULT, HANDLERS_PROPERTY
from metrics.sources.beans import HANDLER_IDLE_NS, TICKED_S
from metrics.sources.one_minute_rates import TICK_S, reads_rates
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource
from metrics.tables.rows import fact_of_node
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow

LOOK_S = 1.0
"""Time between two polls [s]."""
DEADLINE_S = 2 * TICK_S + 2.0
"""Longest wait for an update of each one-minute rate [s]."""
_TRAFFIC = ("messages_in", "bytes_in")


Polled = tuple[Sequence[BrokerSample], Sequence[BrokerSample], Sequence[BrokerSample]]


def poll_after_ticks(
    source: MetricsSource,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> list[BrokerSample]:
    """Poll all nodes as soon as their counts include the whole load that has just ended.

    Counts that are computed from one-minute rates are as old as the last update of the rate, so
    this function waits until each rate was updated again.
    """
    found = source.sample_all()
    if not reads_rates(source.nodes):
        return found
    begun_s, before = clock(), _ticked(found)
    nodes = source.nodes.items()
    rates = {(node_id, name) for node_id, node in nodes for name in node.rates if name in _TRAFFIC}
    while (passed_s := clock() - begun_s) < DEADLINE_S:
        pause(LOOK_S)
        found = source.sample_all()
        now = _ticked(found)
        is_counted = all(now.get(each, 0.0) > at_s for each, at_s in before.items())
        if is_counted and (passed_s >= TICK_S or now.keys() >= rates):
            break
    return found


def _ticked(samples: Sequence[BrokerSample]) -> Mapping[tuple[int, str], float]:
    """(broker id, reading) → time of the last update of the reading's rate [s]; a rate that was
    always 0 is left out.
    """
    return {
        (each.broker_id, name): each.values[f"{TICKED_S}:{name}"]
        for each in samples
        for name in (HANDLER_IDLE_NS, *_TRAFFIC)
        if f"{TICKED_S}:{name}" in each.values
    }


UNREADABLE = "broker.config"
"""Key in the facts about the environment of the run. The key exists only if the brokers' properties
cannot be read.
"""
LOOKS_MAX = 3

_REMEDY = (
    "check whether another broker, a proxy or a cache answers at the exporter's address, name "
    "other rules in metrics.prometheus.rules, or set metrics.client_only: true"
)


def is_enough(pattern: TrafficPattern, brokers: int) -> bool:
    """Whether a load is at least twice as large as is necessary to test the series of every broker.

    Args:
        pattern: the traffic of the load.
        brokers: number of brokers, which share the load evenly.
    """
    each = pattern.producer.rate_records_per_s * pattern.producers / max(1, brokers)
    messages = each * pattern.phases.load_s
    sizes = messages * pattern.producer.message_bytes
    return messages >= 2 * MESSAGES_LEAST and sizes >= 2 * BYTES_LEAST


@dataclass
class SeriesProof:
    """Tests the series that the run found on the exporters' pages: once in a run, a load must
    change these series as expected.

    Args:
        context: the open resources of the run.
        pause: waits for a time between two polls [s], replaced in tests.
    """

    context: RunContext
    pause: Callable[[float], None] = time.sleep

    @property
    def is_due(self) -> bool:
        """Whether the run reads series that it found itself and that no load has tested yet."""
        found = any(node.series for node in self.context.source.nodes.values())
        return found and self.context.history.series_doubt is None

    def poll(self) -> Sequence[BrokerSample]:
        """Poll the brokers immediately before a load, if this load has to test the exporters'
        series. The result is empty if no test is due.
        """
        return self.context.source.sample_all() if self.is_due else ()

    def skip(self, why: str) -> None:
        """Record the reason why the exporters' series are not tested with any load, if a test is
        due.
        """
        if self.is_due:
            self._note((why,))

    def examine(
        self,
        polls: Polled,
        client: ClientWindow,
        topics: TopicSet,
        pattern: TrafficPattern,
    ) -> None:
        """Compare the changes of the brokers' readings with a load that has just ended.

        Args:
            polls: two polls of the brokers before any load, and the poll before this load.
            client: the counts of the load's clients.
            topics: the topics of the load.
            pattern: the traffic of the load.

        Raises:
            ConfigError: a reading disagrees with the load.
        """
        if not self.is_due:
            return
        if any(each.producer.options.acks == "0" for each in pattern.loads):
            self._note(("with acks=0 brokers do not acknowledge the bytes that they received",))
            return
        *at_rest, before = polls
        rest, pools, found = polls_of(*at_rest), self.pools(), Proof()
        for look in range(LOOKS_MAX):
            if look:
                self.pause(LOOK_S)
            after = poll_after_ticks(self.context.source, pause=self.pause)
            loaded = polls_of(before, after)
            lasted_s = max((polls.seconds for polls in loaded.values()), default=0.0)
            commits = pattern.commits_per_s(len(topics.leaders)) * lasted_s
            sent = sent_by_broker(client.counts, topics.leaders, commits)
            found = prove(rest, loaded, sent, pools)
            if not found.disagreements:
                break
        if found.disagreements and not self._has_leaders(topics):
            found = Proof(doubts=("leaders moved during the load",))
        if found.disagreements:
            raise ConfigError(
                f"the series that the run found on the exporters' pages do not agree with the load "
                f"of the warm-up: {'; '.join(found.disagreements)}; {_REMEDY}"
            )
        self._note(found.doubts)
        self.context.history.idle_unproven = found.idle_unproven

    def pools(self) -> dict[int, HandlerPool]:
        """Broker id → the pool of the broker's request handlers."""
        facts = self.context.environment
        is_readable = UNREADABLE not in facts
        found = {}
        for node_id, node in self.context.source.nodes.items():
            number = None
            if is_readable:
                stated = fact_of_node(facts, "broker", node_id, f"config.{HANDLERS_PROPERTY}")
                number = int(stated or HANDLERS_DEFAULT)
            found[node_id] = HandlerPool(number, (node.controller_share or 0.0) / 2)
        return found

    def _has_leaders(self, topics: TopicSet) -> bool:
        """Whether each partition is led by its planned leader; False if the leaders are unknown."""
        try:
            return not self.context.topics.moved_leaders(topics)
        except AdminError:
            return False

    def _note(self, doubts: Sequence[str]) -> None:
        """Record the reasons why the series are not proven; the run's caveats contain them."""
        text = ""
        if doubts:
            text = (
                "the series that were found on the exporters' pages are not proven by a load: "
                f"{'; '.join(doubts)}"
            )
            self.context.reporter.report(PhaseStarted(text))
        self.context.history.series_doubt = text
