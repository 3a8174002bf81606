"""Fixed loads on an open cluster, one trial after another, without a search.

One load without a gap, judged window by window.

Trials at a fixed load, with repeats of INVALID ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.config import Configuration
from jobs.console.events import TrialFinished
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.early_end import overload_lasts
from jobs.trials.load import GeneratorError, StageFailedError, Target
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.sampling import Samples, TrialSampler
from jobs.trials.unclean_stop import UncleanStop
from jobs.trials.warm_up import open_gates
from jobs.trials.watching import watching
from metrics.common.errors import NoConclusionError
from metrics.judging.validity import accounting_mismatch
from metrics.sources.hosts.source import HostSample
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import RateProfile
from metrics.trial.adding import total
from metrics.trial.client import ClientWindow, Counts, merge
from metrics.trial.evidence import Evidence, Reason
from metrics.trial.others import ClientTraffic, others_at
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow

LOOK_S = 0.25
"""Interval between two checks for the end of a window [s]."""

SAMPLES_AFTER = 2.0
"""Sampling intervals for which a window waits for samples after its end, and for which it keeps
samples for the next window, so that samples lie on both sides of each edge."""


@dataclass
class _LoadInProgress:
    """A load that runs.

    Attributes:
        windows: number of its windows.
        number: trial number of the current window.
        judged: number of windows that are judged.
        counts: sum of the counts of the judged windows.
        host_samples: samples of the hosts of tasks, around the current window.
    """

    pattern: TrafficPattern
    topics: TopicSet
    windows: int
    number: int
    judged: int = 0
    counts: Counts | None = None
    host_samples: tuple[HostSample, ...] = ()


class ContinuousMeasurer(TrialMeasurer):
    """Holds a load through many windows; each is a trial with a verdict of its own."""

    def hold_windows(
        self, load: int, windows: int, into: list[Trial], profile: RateProfile | None = None
    ) -> None:
        """Offer `load` on the goals' axis through so many windows, and append each as it ends.

        Args:
            into: receives the trials of the windows as they are judged. A load that had to end
                early has fewer, and the last one states why.
            profile: share of the load over time.

        Raises:
            GuardStopError: a guard tripped; the earlier windows are kept.
            NoConclusionError: the topics did not grow by the acknowledged records of all windows.
        """
        context = self._context
        one = context.pattern(self._message_bytes, load)
        one = one.with_phases(one.phases.in_full).with_profile(profile)
        length_s = windows * one.phases.measure_s
        whole = one.with_phases(replace(one.phases, measure_s=length_s))
        context.guards.admit(whole)
        topics = self._topics.open(one)
        one, whole = topics.fit(one), topics.fit(whole)
        context.guards.require_room(whole, topics.names)
        refusals = self._gates.pass_all(topics)
        context.tables.settle()
        running = _LoadInProgress(one, topics, windows, context.history.numbering.take())
        refusals = refusals or self._with_backlog(topics, one, running.number)
        self._announce(running.number, one)
        if refusals:
            into.append(self._keep(running, self._refused(*refusals), Samples(), time.time()))
            return
        try:
            before = context.topics.end_offsets(topics)
            with self._sampler(one, topics) as sampler:
                watch = partial(self._watched_windows, running, sampler, whole, into)
                target = Target.of(topics, context.addresses, before)
                trial_id = f"{context.run_id}-{running.number}"
                rows = context.generator.offer(trial_id, target, one, watch, windows)
                into.append(self._judge(running, sampler, merge(rows)))
        except (StageFailedError, GeneratorError, AdminError) as error:
            context.guards.settle(whole, None)
            why = self._tripped() or Reason("task_failed", str(error), 1.0, 0.0)
            into.append(self._keep(running, self._refused(why), Samples(), time.time()))
            context.guards.require_untripped()
            return
        assert running.counts is not None, "the last window was judged"
        summed = replace(into[-1].evidence.client, counts=running.counts)
        context.guards.settle(whole, summed)
        context.guards.require_untripped()
        if running.judged < windows:  # a task and its account were lost; the last trial states it
            return
        after, lacking = self._settled_offsets(topics, before, summed)
        grown = {partition: (begin, after[partition]) for partition, begin in before.items()}
        self._require_account(Evidence(summed, end_offsets=grown, unreplicated_records=lacking))

    @property
    def _overload_max_s(self) -> float:
        return self._context.config.goal.search.overload_max_s

    def _require_account(self, whole: Evidence) -> None:
        """Check that the topics hold the acknowledged records of all windows, and no others.

        Raises:
            NoConclusionError: the numbers differ.
        """
        limits = next(iter(self._context.thresholds.values()))
        wrong = accounting_mismatch(whole, limits)
        if wrong:
            raise NoConclusionError(
                f"the account of the whole load is wrong: {wrong[0].text}; expected that the "
                "topics grew by the acknowledged records; check for other producers"
            )

    @contextmanager
    def _watched_windows(
        self,
        running: _LoadInProgress,
        sampler: TrialSampler,
        whole: TrafficPattern,
        held: list[Trial],
        channel: TaskChannel,
    ) -> Iterator[None]:
        def look() -> float:
            parts = (self._context, self._facts, running.pattern, channel)
            if overload_lasts(*parts, sampler.samples_taken(), time.time()):
                self._context.guards.stop(
                    "the load kept the brokers beyond the goal for "
                    f"{self._overload_max_s:g} s; offer less, or raise goal.search.overload_max_s "
                    "to hold an overload for longer"
                )
                channel.end_now()
            while (reports := channel.take_window(running.judged + 1)) is not None:
                held.append(self._judge(running, sampler, merge(reports)))
                running.number = self._context.history.numbering.take()
                self._announce(running.number, running.pattern)
            return LOOK_S

        guarded = self._guarded(sampler, whole, channel, running.pattern.phases, running.windows)
        with guarded, watching("windows", look, LOOK_S, channel.fail):
            yield
        look()  # the last window but one may have ended since the last check

    def _judge(
        self, running: _LoadInProgress, sampler: TrialSampler, client: ClientWindow
    ) -> Trial:
        """Judge a window that is over, keep it, and drop its samples."""
        interval_s = running.pattern.phases.sample_interval_s
        sampler.wait_past(client.end_s, SAMPLES_AFTER * interval_s)
        host_samples = (*running.host_samples, *client.host_samples)
        samples = sampler.samples_taken()
        samples = replace(samples, hosts=(*samples.hosts, *host_samples))
        own = samples.within(client.start_s, client.end_s)
        running.judged += 1
        running.counts = total(
            [each for each in (running.counts, client.counts) if each is not None]
        )
        topics, pattern = running.topics, running.pattern
        evidence = self._evidence(topics, pattern, client, samples, running.judged - 1)
        if (everything := _traffic_of(evidence.brokers, client.duration_s)) is not None:
            commits_per_s = pattern.commits_per_s(len(topics.leaders))
            others = others_at(everything, client, self._gates.level, commits_per_s)
            evidence = replace(evidence, others=others)
        most_s = 0.0 if self._context.config.cluster.is_exclusive else self._overload_max_s
        kept_s = client.end_s - max(SAMPLES_AFTER * interval_s, most_s)
        running.host_samples = tuple(each for each in host_samples if each.at_s >= kept_s)
        sampler.forget_before(kept_s)
        return self._keep(running, evidence, own, client.start_s)

    def _keep(
        self, running: _LoadInProgress, evidence: Evidence, samples: Samples, started_s: float
    ) -> Trial:
        """Append the current window as a trial, and report it."""
        context = self._context
        parts = (running.topics, running.pattern, evidence)
        trial = self._judged(running.number, started_s, *parts, is_held=True)
        context.tables.append_trial(trial, samples.nodes, samples.hosts)
        context.history.add(trial, samples.nodes, samples.hosts)
        left = running.windows - running.judged
        context.reporter.report(TrialFinished(trial, evidence.client.duration_s, left))
        return trial


def _traffic_of(brokers: Sequence[BrokerWindow], duration_s: float) -> ClientTraffic | None:
    """The traffic of all clients in a window; None where a broker does not show it."""
    messages = [each.messages_in_per_s for each in brokers]
    written = [each.bytes_in_per_s for each in brokers]
    read = [each.bytes_out_per_s for each in brokers]
    if not brokers or None in messages or None in written:
        return None
    return ClientTraffic(
        duration_s,
        sum(filter(None, messages)) * duration_s,
        sum(filter(None, written)) * duration_s,
        None if None in read else sum(filter(None, read)) * duration_s,
    )


class Holder:
    """Holds fixed loads, with the gates, guards and judgement of a search's trials.

    It measures the brokers at rest when it is created. As a context manager it deletes the topics
    at the end.

    Args:
        warm_up_max_s: longest warm-up of cold brokers [s]; 0 for none.
    """

    def __init__(self, context: RunContext, warm_up_max_s: float) -> None:
        self._context = context
        self._topics = PointTopics(context)
        self._gates = open_gates(context, warm_up_max_s)

    def hold(
        self,
        message_bytes: int,
        load: int,
        reason: str = "",
        trials_left: int = 1,
        config: Configuration | None = None,
        stop: UncleanStop | None = None,
    ) -> Trial:
        """Make one trial at `load` on the goal's axis, and append it to the tables.

        Args:
            message_bytes: message size [B].
            reason: purpose of this trial, shown as progress.
            trials_left: number of trials that remain, this one included.
            config: configuration of this trial, on the same topic; that of the run by default.
            stop: kills a broker in the window.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept as INVALID.
        """
        progress = SearchProgress(reason, trials_left)
        context = self._context if config is None else replace(self._context, config=config)
        measurer = TrialMeasurer(
            context, self._topics, self._gates, message_bytes, progress, stop=stop
        )
        return measurer.trial(load)

    def hold_windows(
        self,
        message_bytes: int,
        load: int,
        windows: int,
        into: list[Trial],
        reason: str = "",
        profile: RateProfile | None = None,
    ) -> None:
        """Hold one load without a gap through so many windows, each appended as a trial.

        Args:
            into: receives the trials as they are judged.
            profile: share of the load over time.

        Raises:
            GuardStopError: a guard tripped; the earlier windows are kept.
            NoConclusionError: the topics do not hold the acknowledged records.
        """
        progress = SearchProgress(reason, windows)
        measurer = ContinuousMeasurer(
            self._context, self._topics, self._gates, message_bytes, progress
        )
        measurer.hold_windows(load, windows, into, profile)

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self._topics.__exit__()


def hold_until_valid(
    hold: Callable[[int], Trial], count: int, spare: int, into: list[Trial]
) -> None:
    """Make trials until `count` of them are valid, or more than `spare` are INVALID.

    Args:
        hold: makes a trial, given the number of valid trials that are still missing.
        into: receives the trials as they are judged, so that an error keeps them.
    """
    while (missing := count - sum(each.is_valid for each in into)) > 0:
        if len(into) - (count - missing) > spare:
            return
        into.append(hold(missing))
