"""The early end of a trial's window, once its verdict is very unlikely to change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from math import isinf

from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.watching import watching
from metrics.judging.slices import Slices
from metrics.judging.verdict import progress_of, window_least_s
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import ClusterFacts
from search.early_stop import Progress

NOTICE_S = 1.0
"""Time between setting the end and the end itself, so that every task learns of it [s]."""


class EarlyEnd:
    """Watches a running trial, and ends its window when every goal has its verdict."""

    def __init__(
        self,
        context: RunContext,
        facts: ClusterFacts,
        pattern: TrafficPattern,
        channel: TaskChannel,
        sampler: Sampler[BrokerSample],
    ) -> None:
        self._context = context
        self._facts = facts
        self._phases = pattern.phases
        self._offered_per_s = pattern.records_per_s
        self._groups = pattern.consumers.groups
        self._channel = channel
        self._sampler = sampler

    def watch(self) -> AbstractContextManager[None]:
        """Watch while the block lasts, and end the window at most once."""
        if self._phases.stop_rule is None or isinf(self._offered_per_s):
            return nullcontext()
        return watching("early-end", self._look, self._phases.sample_interval_s / 2)

    def _look(self) -> float | None:
        end_s = self._end_now(time.time())
        if end_s is None:
            return self._phases.sample_interval_s / 2
        self._channel.end_after(end_s)
        return None

    def _end_now(self, now_s: float) -> float | None:
        """The length to which the window can be cut [s], or None while it has to continue."""
        start_s, rule = self._channel.start_s, self._phases.stop_rule
        if start_s is None or rule is None:
            return None
        begun_s = start_s + self._phases.warmup_s
        end_s = max(now_s - begun_s + NOTICE_S, window_least_s(self._facts))
        if now_s <= begun_s or end_s >= self._phases.measure_s:
            return None
        if all(rule.verdict(progress) is not None for progress in self._progress(begun_s)):
            return end_s
        return None

    def _progress(self, begun_s: float) -> Iterator[Progress]:
        """The progress of the trial towards each goal's verdict."""
        slices = Slices(
            self._sampler.samples_taken(),
            sorted(brokers_of(self._context.source)),
            (begun_s, begun_s + self._phases.measure_s),
            self._phases.sample_interval_s,
            self._channel.acked(),
            self._offered_per_s,
            self._facts,
            self._groups,
        )
        return (progress_of(slices, each) for each in self._context.thresholds.values())
