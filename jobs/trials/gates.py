"""Gates before each trial: brokers warm, at rest as before the run, and the topics in order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from jobs.cluster.opening import LastLoad
from jobs.cluster.topic_set import TopicReport, TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter
from jobs.trials.recovery import Baseline, Recovery, wait_until_calm, windows_between
from metrics.sources.beans import UPTIME_MS
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource, brokers_of
from metrics.trial.judgement import Reason
from metrics.trial.others import Written

SETTLE_S = 10.0
"""Brokers that are not at rest before the run get so long to settle [s]; beyond it, how they
are is how they usually are."""

FRESH_S = 3.0
"""Brokers that were seen at rest are not looked at again within so long [s]."""

WARM_UPTIME_S = 600.0
WARM_REQUESTS = 10_000
"""A broker that runs for less, or answered fewer produce requests since its start, is cold until
we have loaded it: the JVM compiles what has run some thousand times."""


def cold_brokers(
    samples: Iterable[BrokerSample], brokers: frozenset[int], loaded_s: float | None
) -> tuple[int, ...]:
    """Brokers whose JVM has not been loaded since its start, as far as their metrics tell.

    Args:
        loaded_s: when our last load ended [s since the epoch]; None before the first.
    """
    cold = []
    for sample in samples:
        uptime_ms = sample.values.get(UPTIME_MS)
        if sample.broker_id not in brokers or uptime_ms is None:
            continue
        started_s = sample.at_s - uptime_ms / 1000.0
        produced = sample.values.get("produce_total_ms_count", float(WARM_REQUESTS))
        is_young = uptime_ms < WARM_UPTIME_S * 1000.0 or produced < WARM_REQUESTS
        if is_young and (loaded_s is None or started_s > loaded_s):
            cold.append(sample.broker_id)
    return tuple(sorted(cold))


class Gates:
    """Keeps a trial from starting before the cluster is as it was before the run.

    Args:
        check: sees to it that the topics' ISRs are full and their preferred replicas lead.
        warm_up: loads the brokers on the topics until their JVMs are warm; None never does.
        clock, pause: wall-clock time [s], handed in for tests.
        last_load: of the brokers, by this run or one before it in this process.

    Attributes:
        at_rest: what others wrote before the run; None where the brokers do not tell.
    """

    def __init__(
        self,
        source: MetricsSource,
        check: Callable[[TopicSet], TopicReport],
        reporter: Reporter,
        warm_up: Callable[[TopicSet], None] | None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        last_load: LastLoad | None = None,
    ) -> None:
        self._source = source
        self._check = check
        self._report = reporter.report
        self._warm_up = warm_up
        self._clock = clock
        self._pause = pause
        self._usual: Mapping[int, Baseline] = {}
        self.at_rest: Written | None = None
        self._polled: Sequence[BrokerSample] = ()
        self._rested_s: float | None = None
        self._last_load = LastLoad() if last_load is None else last_load

    def open(self) -> None:
        """See how the brokers are without our load."""
        first = self._source.sample_all()
        seen = wait_until_calm(
            self._source, earlier=first, deadline_s=SETTLE_S, clock=self._clock, pause=self._pause
        )
        last = self._polled = self._source.sample_all()
        self._rested_s = None if seen.unrest else self._clock()
        windows = windows_between(self._source, first, last)
        self.at_rest = Written.between(first, last, brokers_of(self._source))
        self._usual = {window.broker_id: Baseline.of(window) for window in windows}

    @property
    def under_replicated_at_rest(self) -> dict[int, float]:
        """Broker id → under-replicated partitions before the run, or fewer if they came back."""
        return {broker: usual.under_replicated for broker, usual in self._usual.items()}

    def loaded(self) -> Written | None:
        """A load has just ended: what the brokers say now makes the next wait shorter.

        Returns what was written since the brokers were seen at rest; None where they do not tell.
        """
        before, self._polled = self._polled, self._source.sample_all()
        self._last_load.ended_s = self._clock()
        self._rested_s = None
        return Written.between(before, self._polled, brokers_of(self._source))

    def pass_all(self, topics: TopicSet) -> tuple[Reason, ...]:
        """Wait until a trial may begin; what is not well by the deadline makes it INVALID."""
        found = (*self._warm_reasons(topics), *self._topic_reasons(topics))
        if not found:
            self._note_fewer()
        return found

    def warm(self, topics: TopicSet) -> None:
        """Warm up brokers that are cold, before anything is decided about their first trial."""
        self._warm_reasons(topics)

    def _warm_reasons(self, topics: TopicSet) -> tuple[Reason, ...]:
        reasons = self._rest_reasons()
        brokers = brokers_of(self._source)
        loaded_s = self._last_load.ended_s
        if self._warm_up is None or not cold_brokers(self._polled, brokers, loaded_s):
            return reasons
        self._warm_up(topics)
        self.loaded()
        return self._rest_reasons()

    def _note_fewer(self) -> None:
        """Partitions of others that came back explain none that our load makes short."""
        now = {
            sample.broker_id: sample.values["under_replicated_partitions"]
            for sample in self._polled
            if "under_replicated_partitions" in sample.values
        }
        self._usual = {
            broker: replace(
                usual, under_replicated=min(usual.under_replicated, now.get(broker, math.inf))
            )
            for broker, usual in self._usual.items()
        }

    def go_on(self, topics: TopicSet) -> tuple[Reason, ...]:
        """As `pass_all` between the windows of a load that is held: the brokers get no rest."""
        self._polled = self._source.sample_all()
        return self._topic_reasons(topics)

    def recover(self) -> Recovery:
        """Wait until the brokers are at rest after an overload, or until the deadline."""
        recovery = self._wait("overloaded: waiting for the brokers to recover")
        self._rested_s = None if recovery.unrest else self._clock()
        return recovery

    def _wait(self, doing: str) -> Recovery:
        is_said = False

        def tell(sentence: str) -> None:
            nonlocal is_said
            if not is_said:
                self._report(PhaseStarted(doing))
                is_said = True
            self._report(PhaseProgress(sentence))

        earlier, self._polled = self._polled, ()
        recovery = wait_until_calm(
            self._source,
            self._usual,
            earlier,
            clock=self._clock,
            pause=self._pause,
            tell=tell,
        )
        if not recovery.invalidates:
            self._polled = self._source.sample_all()
        return recovery

    def _rest_reasons(self) -> tuple[Reason, ...]:
        rested_s, self._rested_s = self._rested_s, None
        if rested_s is not None and self._clock() - rested_s < FRESH_S:
            return ()
        recovery = self._wait("waiting until the brokers are at rest")
        if recovery.unrest and not recovery.invalidates:
            texts = "; ".join(each.text for each in recovery.unrest)
            self._report(PhaseStarted(f"going on after {recovery.duration_s:.0f} s: {texts}"))
        return tuple(
            Reason(
                "not_at_rest",
                f"not begun, as the brokers were not at rest within {recovery.duration_s:.0f} s: "
                f"{each.text}",
                recovery.duration_s,
                recovery.duration_s,
            )
            for each in recovery.unrest
            if each.invalidates
        )

    def _topic_reasons(self, topics: TopicSet) -> tuple[Reason, ...]:
        checked = self._check(topics)
        return tuple(
            Reason("topic_not_ready", f"not begun: {text}", checked.waited_s, checked.waited_s)
            for text in checked.sentences()
        )
