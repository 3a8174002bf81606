"""One load that goes on without a gap, judged window by window."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import TrialFinished
from jobs.trials.control_server import TaskChannel
from jobs.trials.load import GeneratorError, StageFailedError, Target
from jobs.trials.measure import TrialMeasurer
from jobs.trials.sampling import Samples, TrialSampler
from jobs.trials.ticker import Ticker
from jobs.trials.watching import watching
from metrics.common.errors import NoConclusionError
from metrics.judging.validity import AccountingMismatch
from metrics.judging.verdict import judge_all
from metrics.sources.hosts.sample import HostSample
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import RateProfile
from metrics.trial.adding import total
from metrics.trial.client import ClientWindow
from metrics.trial.counts import Counts
from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Reason
from metrics.trial.others import OtherLoad, others_at
from metrics.trial.task import merge
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow

LOOK_S = 0.25
"""How often it is looked whether a window is over [s]."""

SAMPLES_AFTER = 2.0
"""For so many sampling intervals a window waits for the samples behind its end, and keeps those
before it for the next window, so that samples lie on both sides of each edge."""


@dataclass
class _Under:
    """A load under way.

    Attributes:
        windows: how many it has.
        number: of the trial that the window under way will be.
        judged: windows that are.
        counts: of those that are judged, added up.
        of_generator: what the hosts with tasks showed around the window under way.
    """

    pattern: TrafficPattern
    topics: TopicSet
    windows: int
    number: int
    judged: int = 0
    counts: Counts | None = None
    of_generator: tuple[HostSample, ...] = ()


class ContinuousMeasurer(TrialMeasurer):
    """Holds a load through many windows; each is a trial with a verdict of its own."""

    def hold_windows(
        self, load: int, windows: int, into: list[Trial], profile: RateProfile | None = None
    ) -> None:
        """Offer `load` on the goals' axis through so many windows, and append each as it ends.

        Args:
            into: takes the windows' trials as they are judged; fewer where the load had to end
                before, and the last one then says why.
            profile: what share of the load is offered at which time.

        Raises:
            GuardStopError: a guard tripped; the windows before are kept.
            NoConclusionError: the topics did not grow by what was acknowledged in all windows.
        """
        context = self._context
        one = context.pattern(self._message_bytes, load)
        one = replace(one, phases=one.phases.in_full, profile=profile)
        length_s = windows * one.phases.measure_s
        whole = replace(one, phases=replace(one.phases, measure_s=length_s))
        context.guards.admit(whole)
        topics = self._topics.open(one)
        context.guards.require_room(whole, topics.names)
        refusals = self._gates.pass_all(topics)
        context.tables.settle()
        under = _Under(one, topics, windows, context.history.numbering.take())
        self._announce(under.number, one)
        if refusals:
            into.append(self._keep(under, self._refused(*refusals), Samples(), time.time()))
            return
        try:
            before = context.topics.end_offsets(topics)
            with self._sampler(one) as sampler:
                watch = partial(self._watched_windows, under, sampler, whole, into)
                target = Target(topics.names, topics.leaders, context.addresses, before)
                trial_id = f"{context.run_id}-{under.number}"
                rows = context.generator.offer(trial_id, target, one, watch, windows)
                into.append(self._judge(under, sampler, merge(rows)))
        except (StageFailedError, GeneratorError, AdminError) as error:
            context.guards.settle(whole, None)
            why = self._tripped() or Reason("task_failed", str(error), 1.0, 0.0)
            into.append(self._keep(under, self._refused(why), Samples(), time.time()))
            context.guards.require_untripped()
            return
        assert under.counts is not None, "the last window was judged"
        summed = replace(into[-1].evidence.client, counts=under.counts)
        context.guards.settle(whole, summed)
        context.guards.require_untripped()
        if under.judged < windows:  # a task was lost, and its account with it: the trial says so
            return
        after = self._settled_offsets(topics, before, summed)
        grown = {partition: (begin, after[partition]) for partition, begin in before.items()}
        self._require_account(Evidence(summed, end_offsets=grown))

    def _require_account(self, whole: Evidence) -> None:
        """Every record of all windows is in the topics, and nothing else.

        Raises:
            NoConclusionError: it is not so.
        """
        limits = next(iter(self._context.thresholds.values()))
        wrong = AccountingMismatch().reasons(whole, limits)
        if wrong:
            raise NoConclusionError(
                f"the account of the whole load does not hold: {wrong[0].text}; expected that the "
                "topics grew by what was acknowledged; see what else writes to them"
            )

    @contextmanager
    def _watched_windows(
        self,
        under: _Under,
        sampler: TrialSampler,
        whole: TrafficPattern,
        held: list[Trial],
        channel: TaskChannel,
    ) -> Iterator[None]:
        ticker = Ticker(self._context.reporter, sampler.nodes, whole, channel)

        def look() -> float:
            while (reports := channel.take_window(under.judged + 1)) is not None:
                held.append(self._judge(under, sampler, merge(reports)))
                under.number = self._context.history.numbering.take()
                self._announce(under.number, under.pattern)
            return LOOK_S

        guarded = self._context.guards.watch(whole, channel)
        ends: AbstractContextManager[None] = nullcontext()
        self._broker_ends = self._broker_sockets()
        if self._broker_ends is not None:
            ends = self._broker_ends.watch(channel, under.pattern.phases, under.windows)
        with guarded, ticker.watch(), ends, watching("windows", look, LOOK_S):
            yield
        look()  # the last but one may be over since the last look

    def _judge(self, under: _Under, sampler: TrialSampler, client: ClientWindow) -> Trial:
        """A window is over: judge it, keep it, and forget its samples."""
        interval_s = under.pattern.phases.sample_interval_s
        sampler.wait_past(client.end_s, SAMPLES_AFTER * interval_s)
        of_generator = (*under.of_generator, *client.host_samples)
        samples = sampler.samples_taken().with_hosts(of_generator)
        own = samples.within(client.start_s, client.end_s)
        under.judged += 1
        under.counts = total([each for each in (under.counts, client.counts) if each is not None])
        evidence = self._evidence(under.pattern, client, samples)
        if self._broker_ends is not None:
            ends = self._broker_ends.window_counts(under.judged - 1)
            evidence = replace(evidence, broker_sockets=ends)
        others = self._others(under, client, evidence.brokers)
        kept_s = client.end_s - SAMPLES_AFTER * interval_s
        under.of_generator = tuple(each for each in of_generator if each.at_s >= kept_s)
        sampler.forget_before(kept_s)
        return self._keep(under, replace(evidence, others=others), own, client.start_s)

    def _others(
        self, under: _Under, client: ClientWindow, brokers: Sequence[BrokerWindow]
    ) -> OtherLoad | None:
        messages = [each.messages_in_per_s for each in brokers]
        sizes = [each.bytes_in_per_s for each in brokers]
        if not brokers or None in messages or None in sizes:
            return None
        return others_at(
            sum(filter(None, messages)),
            sum(filter(None, sizes)),
            client,
            self._gates.at_rest,
            under.pattern.consumers.commits_per_s(len(under.topics.leaders)),
        )

    def _keep(self, under: _Under, evidence: Evidence, samples: Samples, started_s: float) -> Trial:
        """Append the window under way as a trial, and tell of it."""
        context = self._context
        trial = Trial(
            run_id=context.run_id,
            number=under.number,
            started_at_s=started_s,
            finished_at_s=time.time(),
            topic=under.topics.names[0],
            pattern=under.pattern,
            evidence=evidence,
            judgements=judge_all(evidence, context.thresholds),
            held=True,
            state=context.state,
            warm_up=context.history.warm_up,
        )
        context.tables.append_trial(trial, samples.nodes, samples.hosts)
        context.history.add(trial, samples.nodes)
        left = under.windows - under.judged
        context.reporter.report(TrialFinished(trial, evidence.client.duration_s, left))
        return trial
