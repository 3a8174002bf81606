"""One trial on real brokers: prepare, load, sample, account, judge, keep."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import TrialFinished, TrialStarted
from jobs.engine.task.plan import TrialPlan
from jobs.trials.broker_sockets import BrokerSockets
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.early_end import EarlyEnd
from jobs.trials.gates import Gates
from jobs.trials.load import GeneratorError, StageFailedError, Target
from jobs.trials.others_harm import OthersHarm
from jobs.trials.point_topics import PointTopics
from jobs.trials.sampling import Samples, TrialSampler, lacking_now
from jobs.trials.unclean_stop import UncleanStop
from jobs.trials.unscored_load import build_backlog
from jobs.trials.watching import Ticker
from metrics.judging.verdict import judge_all
from metrics.sources.source import brokers_of, controllers_of, ends_interval_s
from metrics.traffic.pattern import Phases, TrafficPattern
from metrics.trial.client import ClientWindow, merge
from metrics.trial.evidence import OTHERS_CHANGED, ClusterFacts, Evidence, Reason, follower_lags
from metrics.trial.others import others_in
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow, any_isr_changed_share, broker_windows
from metrics.windows.host import host_windows
from metrics.windows.write_back import write_back_windows
from search.model import Observation, Verdict

STAGE_LAUNCH_S = 1.0
"""Time from the request for a stage until its tasks agree on a start, measured on a warm
session [s]."""

_log = logging.getLogger(__name__)

REPLICATED_DEADLINE_S = 15.0
"""Longest time for followers to fetch acknowledged records before the end offsets are read [s]."""

_POLL_S = 0.25


@dataclass
class SearchProgress:
    """The purpose of the next trial, and how many trials the search still expects.

    The search sets it before each trial; it is shown as progress. `checks` marks trials that look
    for a change of the limit.
    """

    reason: str = ""
    trials_left: int = 0
    checks: bool = False


class TrialMeasurer:
    """Measures loads for one message size; implements `search.lines.GoalsMeasurer`.

    Args:
        message_bytes: message size of the point [B].
        held: the load that is held already; None when there is none.
        stop: kills a broker in the window; None to kill none.

    Attributes:
        is_steady: whether its trials hold a limit to prove it on disk.
    """

    is_steady = False

    def __init__(
        self,
        context: RunContext,
        topics: PointTopics,
        gates: Gates,
        message_bytes: int,
        progress: SearchProgress,
        held: int | None = None,
        stop: UncleanStop | None = None,
    ) -> None:
        self._context = context
        self._topics = topics
        self._gates = gates
        self._progress = progress
        self._message_bytes = message_bytes
        self._held = held
        self._stop = stop
        self._broker_ends: BrokerSockets | None = None
        self._load_start_s: float | None = None
        self._kept_overloaded_s = 0.0

    def measure(self, load: int) -> dict[str, Observation]:
        """Make a trial at `load`, and return its observation for each goal; see `trial`."""
        return _observed(self.trial(load))

    def hold(self, load: int) -> dict[str, Observation]:
        """Make one window of a held load, and return its observation for each goal."""
        return _observed(self.trial(load, is_held=True))

    def trial(self, load: int, is_held: bool = False) -> Trial:
        """Offer `load` on the goals' axis, judge it by each, and append trial and samples.

        Args:
            is_held: whether it is a window of a held load, which has its full length and follows
                the window before it without rest.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept as INVALID.
        """
        context = self._context
        pattern = context.pattern(self._message_bytes, load)
        if is_held:
            pattern = pattern.with_phases(pattern.phases.in_full)
        context.guards.admit(pattern)
        topics = self._topics.open(pattern)
        pattern = topics.fit(pattern)
        context.guards.require_room(pattern, topics.names)
        follows = is_held and self._held == load
        self._held = load if is_held else None
        refusals = (
            self._gates.pass_between_windows(topics) if follows else self._gates.pass_all(topics)
        )
        context.tables.settle()  # the previous trial, which was appended while this one prepared
        number = context.history.numbering.take()
        refusals = refusals or self._with_backlog(topics, pattern, number)
        started_s = time.time()
        self._announce(number, pattern)
        samples = Samples()
        if refusals:
            evidence = self._refused(*refusals)
        else:
            evidence, samples = self._run(number, pattern, topics)
        trial = self._judged(number, started_s, topics, pattern, evidence, is_held=is_held)
        judged_s = time.time()
        try:
            trial = self._with_recovery(trial)
        finally:
            started_s += time.time() - judged_s  # rest is not part of the trial
            context.tables.append_trial(trial, samples.nodes, samples.hosts)
        context.history.add(trial, samples.nodes, samples.hosts)
        left = max(0, self._progress.trials_left - 1)
        context.reporter.report(TrialFinished(trial, time.time() - started_s, left))
        if any(OTHERS_CHANGED & each.rules for each in trial.judgements.values()):
            self._gates.renew_level()
        context.guards.require_untripped()
        context.guards.await_whole()
        context.cluster.check()
        return trial

    def _judged(
        self,
        number: int,
        started_s: float,
        topics: TopicSet,
        pattern: TrafficPattern,
        evidence: Evidence,
        *,
        is_held: bool,
    ) -> Trial:
        """The trial of this evidence, which has just ended."""
        context = self._context
        return Trial(
            run_id=context.run_id,
            number=number,
            started_at_s=started_s,
            finished_at_s=time.time(),
            topic=topics.names[0],
            pattern=pattern,
            evidence=evidence,
            judgements=judge_all(evidence, context.thresholds),
            held=is_held,
            state=context.state,
            leaders_back_s=self._stop.leaders_back_s if self._stop else None,
            warm_up=context.history.warm_up,
            steady=self.is_steady,
            checks=self._progress.checks,
        )

    def _with_backlog(
        self, topics: TopicSet, pattern: TrafficPattern, number: int
    ) -> tuple[Reason, ...]:
        """Build the backlog that the pattern's groups begin with; the reasons why it is refused."""
        is_loaded, problem = build_backlog(self._context, topics, pattern, number)
        if problem is not None:
            return (problem,)
        return self._gates.pass_all(topics) if is_loaded else ()

    def _with_recovery(self, trial: Trial) -> Trial:
        """After an overload: the trial with the time that the brokers took to come to rest.

        After a broker was killed the cluster cannot come to rest before that broker is restarted,
        so there is no wait.
        """
        verdicts = {each.verdict for each in trial.judgements.values()}
        is_whole = self._stop is None or not self._stop.has_killed
        goes_on = trial.held and not trial.evidence.kept_overloaded_s
        if Verdict.OVERLOADED not in verdicts or goes_on or not is_whole:
            return trial
        self._held = None  # the next window of a hold begins at rest
        rest_s, end_s = self._gates.await_recovery().since_s, trial.evidence.client.end_s
        return trial if rest_s is None else replace(trial, recovery_s=rest_s - end_s)

    # --- the trial ----------------------------------------------------------

    @property
    def _facts(self) -> ClusterFacts:
        """The facts of the run, with what the gates know of the cluster at rest."""
        at_rest = self._gates.under_replicated_at_rest
        return replace(self._context.facts, under_replicated_at_rest=at_rest)

    def _refused(self, *refusals: Reason) -> Evidence:
        """The evidence of a trial without an account."""
        context, now_s = self._context, time.time()
        return Evidence(
            ClientWindow(now_s, now_s),
            metrics_source=context.source.name,
            refusals=refusals,
            cluster=self._facts,
        )

    def _run(
        self, number: int, pattern: TrafficPattern, topics: TopicSet
    ) -> tuple[Evidence, Samples]:
        context = self._context
        try:
            before = context.topics.end_offsets(topics)
            client, samples = self._offer(number, pattern, topics, before)
            after, unreplicated = self._settled_offsets(topics, before, client)
        except (StageFailedError, GeneratorError, AdminError) as error:
            context.guards.settle(pattern, None)
            tripped = self._tripped()
            return self._refused(tripped or Reason("task_failed", str(error), 1.0, 0.0)), Samples()
        context.guards.settle(pattern, client)
        if (tripped := self._tripped()) is not None:
            return self._refused(tripped), Samples()
        everything = self._gates.record_load_end()
        ends = after
        if client.counts.failed_total:  # requests that were still queued reach the logs late
            ends = context.topics.end_offsets(topics)
        grown = written_records(before, ends, client.counts.acked_total)
        others = others_in(
            everything, grown, client, self._gates.level, pattern.commits_per_s(len(topics.leaders))
        )
        evidence = replace(
            self._evidence(topics, pattern, client, samples),
            end_offsets={each: (begin, after[each]) for each, begin in before.items()},
            unreplicated_records=unreplicated,
            others=others,
            kept_overloaded_s=self._kept_overloaded_s,
            load_s=None if self._load_start_s is None else client.end_s - self._load_start_s,
        )
        return evidence, samples

    def _moved_leaders(self, topics: TopicSet) -> dict[int, int] | None:
        """The leaders that moved until now; None where the cluster does not answer in time.

        Then only the errors of clients show a move.
        """
        try:
            return self._context.topics.moved_leaders(topics)
        except AdminError as error:
            _log.warning("the leaders of %s are not known: %s", topics, error)
            return None

    def _tripped(self) -> Reason | None:
        """The guard's reason why the trial is INVALID, or None."""
        why = self._context.guards.ends_load
        return None if why is None else Reason("guard", f"ended by a guard: {why}", 1.0, 0.0)

    def _evidence(
        self,
        topics: TopicSet,
        pattern: TrafficPattern,
        client: ClientWindow,
        samples: Samples,
        window: int = 0,
    ) -> Evidence:
        """The evidence of one window from clients, nodes and hosts, without the end offsets.

        Args:
            window: number of the window within its load, from 0.
        """
        cluster = self._context.config.cluster
        context, facts, edges_s = self._context, self._facts, (client.start_s, client.end_s)
        brokers, at_rest = brokers_of(context.source), facts.under_replicated_at_rest
        killed = self._stop.victim if self._stop and self._stop.has_killed else None
        lags = follower_lags(samples.replicas, *edges_s)

        def windows(nodes: frozenset[int]) -> tuple[BrokerWindow, ...]:
            interval_s, link = pattern.phases.sample_interval_s, cluster.link_mbit_per_s
            return broker_windows(samples.nodes, nodes, *edges_s, interval_s, link, at_rest)

        return Evidence(
            client,
            windows(brokers),
            windows(controllers_of(context.source) - brokers),
            context.source.name,
            host_windows(
                samples.hosts,
                *edges_s,
                context.hosts.brokers,
                {each.host for each in client.host_samples},
                context.hosts.machines,
            ),
            any_isr_changed_share=any_isr_changed_share(samples.nodes, brokers, *edges_s, at_rest),
            planned_s=pattern.phases.measure_s,
            closed_loop=pattern.producer.closed_loop,
            cluster=replace(facts, killed=killed),
            write_back=write_back_windows(
                samples.nodes, samples.hosts, context.hosts.brokers, *edges_s
            ),
            canaries=() if context.canaries is None else context.canaries.windows(*edges_s),
            moved_leaders=self._moved_leaders(topics),
            broker_sockets=self._broker_ends.window_counts(window) if self._broker_ends else {},
            follower_lag=next(reversed(lags), None) if killed is None else None,
        )

    def _offer(
        self, number: int, pattern: TrafficPattern, topics: TopicSet, before: Mapping[int, int]
    ) -> tuple[ClientWindow, Samples]:
        context = self._context
        target = Target.of(topics, context.addresses, before)
        trial_id = f"{context.run_id}-{number}"
        self._load_start_s, self._kept_overloaded_s = None, 0.0
        with self._sampler(pattern, topics) as sampler:
            watch = partial(self._watched, sampler, pattern, topics)
            client = merge(context.generator.offer(trial_id, target, pattern, watch))
            samples = sampler.stop()
        return client, replace(samples, hosts=(*samples.hosts, *client.host_samples))

    def _sampler(self, pattern: TrafficPattern, topics: TopicSet) -> TrialSampler:
        context, interval_s = self._context, pattern.phases.sample_interval_s
        read_replicas = partial(context.topics.replica_ends, topics)
        replicas = sum(map(len, topics.partition_replicas.values()))
        replicas_s = ends_interval_s(replicas, interval_s, pattern.phases.measure_s)
        return TrialSampler(context.source, context.hosts, interval_s, read_replicas, replicas_s)

    @contextmanager
    def _watched(
        self, sampler: TrialSampler, pattern: TrafficPattern, topics: TopicSet, channel: TaskChannel
    ) -> Iterator[None]:
        early_end = EarlyEnd(
            self._context, self._facts, pattern, channel, sampler, self._stop is None
        )
        stop = nullcontext() if self._stop is None else self._stop.watch(channel, pattern, topics)
        with self._guarded(sampler, pattern, channel, pattern.phases), early_end.watch(), stop:
            yield
            self._load_start_s = channel.start_s
            self._kept_overloaded_s = early_end.kept_overloaded_s

    @contextmanager
    def _guarded(
        self,
        sampler: TrialSampler,
        pattern: TrafficPattern,
        channel: TaskChannel,
        phases: Phases,
        windows: int = 1,
    ) -> Iterator[None]:
        """Guard a load, show its progress, and count at the brokers' ends of its connections.

        Args:
            pattern: the traffic of the whole load.
            phases: its phases up to the first window; the other windows are as long.
            windows: number of its windows.
        """
        context, nodes, control = self._context, sampler.nodes, self._context.cluster.broker_control
        counting: AbstractContextManager[None] = nullcontext()
        self._broker_ends = None
        if control is not None:  # else the brokers' processes are unknown
            self._broker_ends = BrokerSockets(control.pids, context.addresses)
            counting = self._broker_ends.watch(channel, phases, windows)
        with (
            context.guards.watch(pattern, channel, partial(lacking_now, nodes, context)),
            OthersHarm(context, pattern, channel, nodes, self._gates.level).watch(),
            Ticker(context.reporter, nodes, pattern, channel).watch(),
            counting,
        ):
            yield

    def _settled_offsets(
        self, topics: TopicSet, before: Mapping[int, int], client: ClientWindow
    ) -> tuple[Mapping[int, int], int]:
        """Partition → end offset after the trial, and the records that it lacked at first.

        The end offset that clients see is the high watermark, which waits for followers
        although acks=1 does not; so this waits until it covers the acknowledged records.
        """
        deadline_s = time.monotonic() + REPLICATED_DEADLINE_S
        wanted = client.counts.acked_total + sum(before.values())
        lacking: int | None = None
        while True:
            after = self._context.topics.end_offsets(topics)
            missing = max(0, wanted - sum(after.values()))
            lacking = missing if lacking is None else lacking
            if not missing or time.monotonic() > deadline_s:
                return after, lacking
            time.sleep(_POLL_S)

    # --- reporting ----------------------------------------------------------

    def _announce(self, number: int, pattern: TrafficPattern) -> None:
        self._context.reporter.report(
            TrialStarted(
                number,
                pattern,
                self._progress.reason,
                pattern.phases.load_s + STAGE_LAUNCH_S + TrialPlan.start_lead_s,
            )
        )


def written_records(before: Mapping[int, int], after: Mapping[int, int], acked: int) -> int:
    """The records that a load added to its topics, at least those that were acknowledged.

    Acknowledged records above the high watermark, which waits for followers, are not in the end
    offsets yet. Without them they would count as those of others.
    """
    return max(sum(after.values()) - sum(before.values()), acked)


def _observed(trial: Trial) -> dict[str, Observation]:
    return {goal: trial.observation(goal) for goal in trial.judgements}
