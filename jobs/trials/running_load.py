"""A running load, its watchers, and the report of its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from jobs.console.events import TrialProgress
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.load import Load
from jobs.trials.sampling import LoadSampler, Samples, lacking_now
from jobs.trials.watching import watching
from metrics.sources.source import brokers_of
from metrics.traffic.pattern import Phases, TrafficPattern
from metrics.trial.client import TaskReport
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import broker_windows, busiest_of

NOTICE_S = 1.0
"""Time from the message that announces the end of a window until this end [s]; it is long enough
for every task to receive the message.
"""


@dataclass(frozen=True)
class RunningLoad:
    """A running load, with access to its tasks and its samples.

    Attributes:
        context: the open resources of the run.
        load: the load.
        channel: the channel to the tasks of the load.
        sampler: samples the brokers and, if their metrics are known, the hosts while the load runs.
        facts: the properties of the cluster that are necessary to judge the load.
    """

    context: RunContext
    load: Load
    channel: TaskChannel
    sampler: LoadSampler
    facts: ClusterFacts

    @property
    def pattern(self) -> TrafficPattern:
        """The traffic of the load, up to the end of the first window."""
        return self.load.pattern

    @property
    def interval_s(self) -> float:
        """Time between two samples [s]."""
        return self.pattern.phases.sample_interval_s

    @property
    def samples(self) -> Samples:
        """The samples that were taken until now."""
        return self.sampler.samples_taken()

    @property
    def brokers(self) -> frozenset[int]:
        """Ids of the brokers that have metrics."""
        return brokers_of(self.context.source)

    @property
    def begun_s(self) -> float | None:
        """Start of the first window [s since the epoch]; None until all tasks are ready."""
        start_s = self.channel.start_s
        return start_s and start_s + self.channel.phases_now(self.pattern.phases).warmup_s

    def end_soon(self, now_s: float) -> None:
        """End the window after `NOTICE_S`. This time is long enough for the message about the end
        to reach every task. If the window ends earlier anyway, send no message.
        """
        end_s = now_s - (self.begun_s or now_s) + NOTICE_S
        if end_s < self.pattern.phases.measure_s:
            self.channel.end_after(end_s)

    def looked_at(
        self, name: str, look: Callable[[float], float | None], first_after_s: float
    ) -> AbstractContextManager[None]:
        """Call `look` repeatedly on a thread while the block lasts.

        Args:
            name: name of the thread.
            look: receives the driver's time [s since the epoch], and returns the time until its
                next call [s]; None for no further call.
            first_after_s: time before the first call [s].
        """
        return watching(name, lambda: look(time.time()), first_after_s, self.channel.fail)


Watcher = Callable[[RunningLoad], AbstractContextManager[object]]
"""Watches a running load, and may end it."""


def ends_once(
    name: str, is_over: Callable[[RunningLoad, float, float], bool], look_s: float
) -> Watcher:
    """A watcher that ends the window of a load once a condition is true.

    Args:
        name: name of the watcher's thread.
        is_over: the condition; receives the load, the driver's time and the start of the window [s
            since the epoch].
        look_s: time between two checks [s].
    """

    def watch(load: RunningLoad) -> AbstractContextManager[None]:
        def look(now_s: float) -> float | None:
            begun_s = load.begun_s
            if begun_s is None or now_s <= begun_s or not is_over(load, now_s, begun_s):
                return look_s
            load.end_soon(now_s)
            return None

        return load.looked_at(name, look, look_s)

    return watch


def offer(
    context: RunContext, load: Load, sampler: LoadSampler, facts: ClusterFacts, watch: Watcher
) -> list[TaskReport]:
    """Offer a load under the run's guards.

    Returns:
        The reports on the last window, one for each task.

    Raises:
        GeneratorError: the load failed.
    """

    @contextmanager
    def watched(channel: TaskChannel) -> Iterator[None]:
        running = RunningLoad(context, load, channel, sampler, facts)
        lacking = partial(lacking_now, sampler.nodes, context)
        with context.guards.watch(load.whole, channel, lacking), watch(running):
            yield

    return context.generator.offer(load, watched)


_INTERVAL_S = 0.5
_RECENT_S = 2.0
_RECENT_INTERVALS = 2.5
"""The progress is computed from the samples of the most recent time. The length of this time is the
longer of two times, `_RECENT_S` [s] and `_RECENT_INTERVALS` sampling intervals. Each broker has at
least two samples in this time.
"""


def progress_reported(load: RunningLoad) -> AbstractContextManager[None]:
    """Report the progress of a load twice a second while the block lasts."""
    began_s, whole = time.time(), load.load.whole

    def look(now_s: float) -> float:
        start_s = load.channel.start_s
        load_s = -1.0 if start_s is None else now_s - start_s
        at_s, records = next(reversed(load.channel.acked()), (0.0, 0))
        achieved = records * whole.message_bytes / at_s / 1e6 if at_s > 0 else None
        stage = stage_at(load_s, load.channel.phases_now(whole.phases))
        from_s = now_s - max(_RECENT_S, _RECENT_INTERVALS * load.interval_s)
        samples = [each for each in load.sampler.nodes.samples_taken() if each.at_s >= from_s]
        nodes = {sample.broker_id for sample in samples}
        busiest = busiest_of(broker_windows(samples, nodes, from_s, now_s, load.interval_s))
        load.context.reporter.report(TrialProgress(stage, now_s - began_s, achieved, busiest))
        return _INTERVAL_S

    return load.looked_at("ticker", look, _INTERVAL_S)


def stage_at(load_s: float, phases: Phases) -> str:
    """The phase of a trial at this time after the trial's first record [s]."""
    if load_s < 0:
        return "preparing"
    if load_s < phases.warmup_s:
        return "warming up"
    return "measuring" if load_s < phases.load_s else "draining"
