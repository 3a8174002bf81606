"""Trials on real brokers: a trial is prepared, offers its load, is sampled, judged and stored.

A load has one measured window, or several windows without a gap between them. Each window is a
trial.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.config import Configuration
from jobs.console.events import TrialFinished, TrialStarted
from jobs.engine.task.plan import TrialPlan
from jobs.trials.broker_sockets import BrokerSockets
from jobs.trials.context import RunContext
from jobs.trials.early_end import EarlyEnd, overload_lasts
from jobs.trials.gates import Gates, open_gates
from jobs.trials.load import GeneratorError, Load
from jobs.trials.others_harm import OthersHarm
from jobs.trials.point_topics import PointTopics
from jobs.trials.running_load import RunningLoad, Watcher, offer, progress_reported
from jobs.trials.sampling import LoadSampler, Samples
from jobs.trials.unclean_stop import UncleanStop
from jobs.trials.unscored_load import build_backlog
from metrics.common.errors import NoConclusionError
from metrics.judging.validity import accounting_mismatch
from metrics.judging.verdict import judge_all
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.source import brokers_of, controllers_of, ends_interval_s
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import RateProfile
from metrics.trial.adding import total
from metrics.trial.client import ClientWindow, Counts, merge
from metrics.trial.evidence import OTHERS_CHANGED, ClusterFacts, Evidence, Reason, follower_lags
from metrics.trial.others import ClientTraffic, others_at, others_in
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow, any_isr_changed_share, broker_windows
from metrics.windows.host import host_windows
from metrics.windows.write_back import write_back_windows
from search.model import Observation, Verdict

STAGE_LAUNCH_S = 1.0
"""Time from the start of a stage until its tasks agree on a start [s]; measured on a warm
session.
"""

_log = logging.getLogger(__name__)

REPLICATED_DEADLINE_S = 15.0
"""Longest time to wait for followers to fetch the acknowledged records before the end offsets are
read [s].
"""

LOOK_S = 0.25
"""Interval between two checks of the followers, and of the end of a window [s]."""

SAMPLES_AFTER = 2.0
"""Number of sampling intervals around the end of a window. After the end of a window, the run waits
for further samples, for at most this number of intervals. Samples from at least this number of
intervals before the end are kept for the next window. Each window thus has samples on both sides of
its edges.
"""


@dataclass
class SearchProgress:
    """The purpose of the next trial and the expected number of remaining trials, shown as progress.

    The search sets all attributes before each trial.

    Attributes:
        reason: purpose of the next trial.
        trials_left: expected number of remaining trials, the next one included.
        checks: whether the next trial checks for a change of the limit.
    """

    reason: str = ""
    trials_left: int = 0
    checks: bool = False


@dataclass(frozen=True)
class Rig(AbstractContextManager["Rig"]):
    """The resources for the trials of an open run; a context manager that deletes the topics.

    Attributes:
        context: the open resources of the run.
        topics: the topics of the current traffic.
        gates: the gates, which delay each trial until the cluster is in the same state as before
            the run.
    """

    context: RunContext
    topics: PointTopics
    gates: Gates

    @classmethod
    def open(cls, context: RunContext, warm_up_max_s: float) -> Rig:
        """Create a rig, and measure the brokers at rest.

        Args:
            context: the open resources of the run.
            warm_up_max_s: longest warm-up of cold brokers [s]; 0 for no warm-up.
        """
        return cls(context, PointTopics(context), open_gates(context, warm_up_max_s))

    def trial(
        self,
        message_bytes: int,
        load: int,
        reason: str = "",
        trials_left: int = 1,
        config: Configuration | None = None,
        stop: UncleanStop | None = None,
    ) -> Trial:
        """Make one trial, and append it to the tables.

        Args:
            message_bytes: message size [B].
            load: load of the trial on the goal's axis.
            reason: purpose of the trial, shown as progress.
            trials_left: number of remaining trials, this one included.
            config: configuration of the trial; the run's configuration by default. If the topic
                settings are those of the previous trial, the trial uses the topic of the previous
                trial.
            stop: kills a broker in the window; None to kill no broker.

        Raises:
            GuardStopError: a guard tripped; a trial that the guard ended is stored as INVALID.
        """
        progress = SearchProgress(reason, trials_left)
        context = self.context if config is None else replace(self.context, config=config)
        rig = replace(self, context=context)
        return TrialMeasurer(rig, message_bytes, progress, stop=stop).trial(load)

    def __exit__(self, *_: object) -> None:
        self.topics.__exit__()


@dataclass
class _Loading:
    """A load in progress, with the results of its windows so far.

    Attributes:
        load: the load.
        number: trial number of the current window.
        refusals: reasons why the load cannot begin; empty if it can.
        judged: number of windows that are judged already.
        counts: the counts of each judged window.
        host_samples: samples of the hosts that run tasks, from shortly before the current window to
            shortly after it.
    """

    load: Load
    number: int
    refusals: tuple[Reason, ...] = ()
    judged: int = 0
    counts: list[Counts] = field(default_factory=list)
    host_samples: tuple[HostSample, ...] = ()


@dataclass
class TrialMeasurer:
    """Measures loads for one message size; implements `search.lines.GoalsMeasurer`.

    Args:
        rig: the resources for trials.
        message_bytes: message size of the boundary point [B].
        progress: the purpose of the next trial and the number of remaining trials, shown to the
            user.
        held: the held load of the previous window; None if the previous window had no held load.
        stop: kills a broker in the window; None to kill no broker.
        until: ends the window of a hold (a long trial that shows whether disks write a load); None
            for all trials that are not holds.
    """

    rig: Rig
    message_bytes: int
    progress: SearchProgress
    held: int | None = None
    stop: UncleanStop | None = None
    until: Watcher | None = None
    _sockets: BrokerSockets | None = None
    _load_start_s: float | None = None
    _kept_overloaded_s: float = 0.0

    def __post_init__(self) -> None:
        """Take the context, the topics and the gates from `rig`."""
        self._context, self._topics, self._gates = self.rig.context, self.rig.topics, self.rig.gates

    def pattern(self, load: int) -> TrafficPattern:
        """The traffic pattern of a trial at a load on the goals' axis."""
        return self._context.pattern(self.message_bytes, load)

    def measure(self, load: int) -> dict[str, Observation]:
        """Make a trial at a load, and return its observation for each goal."""
        return _observed(self.trial(load))

    def hold(self, load: int) -> dict[str, Observation]:
        """Make one window of a held load, and return its observation for each goal."""
        return _observed(self.trial(load, is_held=True))

    def trial(self, load: int, is_held: bool = False) -> Trial:
        """Make a trial, judge it by each goal, and append the trial and its samples to the tables.

        Args:
            load: load of the trial on the goals' axis.
            is_held: whether the trial is one window of a load that stays the same for several
                windows. If the previous window had this load, no rest precedes the trial.

        Raises:
            GuardStopError: a guard tripped; a trial that the guard ended is stored as INVALID.
        """
        pattern, context = self.pattern(load), self._context
        if is_held:
            pattern = pattern.with_phases(pattern.phases.in_full)
        follows, self.held = is_held and self.held == load, load if is_held else None
        loading = self._prepared(pattern, follows=follows)
        started_s, samples = time.time(), Samples()
        self._announce(loading)
        if loading.refusals:
            evidence = self._refused(*loading.refusals)
        else:
            evidence, samples = self._offered(loading)
        trial = self._judged(loading, started_s, evidence, is_held=is_held)
        lasted_s = time.time() - started_s  # rest is not part of the trial
        try:
            trial = self._with_recovery(trial)
        finally:
            self._keep(trial, samples, lasted_s, max(0, self.progress.trials_left - 1))
        if any(OTHERS_CHANGED & each.rules for each in trial.judgements.values()):
            self._gates.renew_level()
        context.guards.require_untripped()
        context.guards.await_whole()
        context.cluster.check()
        return trial

    def hold_windows(
        self, load: int, windows: int, into: list[Trial], profile: RateProfile | None = None
    ) -> None:
        """Offer a load with several windows without a gap, and append each window as a trial when
        it ends.

        Args:
            load: the load in units of the axis that the goals' search varies, such as producers.
            windows: number of windows.
            into: receives the trial of each window once the trial is judged. If the load had to end
                early, the last trial contains the reason.
            profile: the course of the load over time, in shares of the full load; None for a
                constant load.

        Raises:
            GuardStopError: a guard tripped; the trials of earlier windows are kept.
            NoConclusionError: the number of records that the topics gained differs from the number
                of acknowledged records.
        """
        pattern, context = self.pattern(load), self._context
        pattern = pattern.with_phases(pattern.phases.in_full).with_profile(profile)
        loading = self._prepared(pattern, windows)
        self._announce(loading)
        if loading.refusals:
            refused = self._refused(*loading.refusals)
            into.append(self._keep_window(loading, refused, Samples(), time.time()))
            return
        held = loading.load
        try:
            before = context.topics.end_offsets(held.topics)
            with self._sampler(held) as sampler:
                watch = partial(self._watched_windows, loading, into)
                offered = replace(held, end_offsets=before)
                rows = offer(context, offered, sampler, self._facts, watch)
                into.append(self._judge_window(loading, sampler, merge(rows)))
        except (GeneratorError, AdminError) as error:
            refused = self._failed(held, error)
            into.append(self._keep_window(loading, refused, Samples(), time.time()))
            context.guards.require_untripped()
            return
        summed = replace(into[-1].evidence.client, counts=total(loading.counts))
        context.guards.settle(held.whole, summed)
        context.guards.require_untripped()
        if loading.judged < windows:  # a task and its counts were lost; the last trial says so
            return
        after, lacking = self._settled_offsets(held.topics, before, summed)
        grown = {partition: (begin, after[partition]) for partition, begin in before.items()}
        whole = Evidence(summed, end_offsets=grown, unreplicated_records=lacking)
        if wrong := accounting_mismatch(whole, next(iter(context.thresholds.values()))):
            raise NoConclusionError(
                f"the records of the whole load do not add up: {wrong[0].text}; expected that the "
                "topics grew by the acknowledged records; check for other producers"
            )

    # --- before and after a load --------------------------------------------

    def _prepared(
        self, pattern: TrafficPattern, windows: int = 1, follows: bool = False
    ) -> _Loading:
        """Open the topics of a load, wait for the conditions of its start (the gates), and build
        the backlog of its consumer groups.

        Args:
            pattern: the traffic of the load, up to the end of the first window.
            windows: number of windows.
            follows: whether the load continues a held load without rest.
        """
        context, phases = self._context, pattern.phases
        whole = pattern.with_phases(replace(phases, measure_s=windows * phases.measure_s))
        context.guards.admit(whole)
        topics = self._topics.open(pattern)
        pattern = topics.fit(pattern)
        context.guards.require_room(topics.fit(whole), topics.names)
        gates = self._gates.pass_between_windows if follows else self._gates.pass_all
        refusals = gates(topics)
        context.tables.settle()  # the previous trial, which was appended while this one prepared
        number = next(context.history.numbers)
        name = f"{context.run_id}-{number}"
        load = Load(name, topics, pattern, context.addresses, windows=windows)
        loading = _Loading(load, number, refusals)
        if not refusals:
            is_loaded, problem = build_backlog(context, topics, pattern, loading.number)
            if problem is not None:
                loading.refusals = (problem,)
            elif is_loaded:
                loading.refusals = self._gates.pass_all(topics)
        return loading

    def _sampler(self, load: Load) -> LoadSampler:
        context, phases, topics = self._context, load.pattern.phases, load.topics
        replicas = sum(map(len, topics.partition_replicas.values()))
        every_s = ends_interval_s(replicas, phases.sample_interval_s, phases.measure_s)
        read = partial(context.topics.replica_ends, topics)
        return LoadSampler(context.source, phases.sample_interval_s, context.hosts, read, every_s)

    def _announce(self, loading: _Loading) -> None:
        pattern = loading.load.pattern
        lasts_s = pattern.phases.load_s + STAGE_LAUNCH_S + TrialPlan.start_lead_s
        self._context.reporter.report(
            TrialStarted(loading.number, pattern, self.progress.reason, lasts_s)
        )

    def _judged(
        self, loading: _Loading, started_s: float, evidence: Evidence, *, is_held: bool
    ) -> Trial:
        """Judge the evidence of a trial that has just ended."""
        context = self._context
        return Trial(
            run_id=context.run_id,
            number=loading.number,
            started_at_s=started_s,
            finished_at_s=time.time(),
            topic=loading.load.topics.names[0],
            pattern=loading.load.pattern,
            evidence=evidence,
            judgements=judge_all(evidence, context.thresholds),
            held=is_held,
            state=context.state,
            leaders_back_s=self.stop.leaders_back_s if self.stop else None,
            warm_up=context.history.warm_up,
            steady=self.until is not None,
            checks=self.progress.checks,
        )

    def _keep(self, trial: Trial, samples: Samples, lasted_s: float, left: int) -> None:
        """Append a trial and its samples to the tables, and report the trial."""
        context = self._context
        context.tables.append_trial(trial, samples.nodes, samples.hosts)
        context.history.add(trial, samples.nodes, samples.hosts)
        context.reporter.report(TrialFinished(trial, lasted_s, left))

    def _with_recovery(self, trial: Trial) -> Trial:
        """Wait after an overload until the brokers are at rest, and add the length of the wait to
        the trial.

        After the kill of a broker, this method does not wait, because the cluster cannot be at rest
        before the broker is restarted.
        """
        verdicts = {each.verdict for each in trial.judgements.values()}
        is_whole = self.stop is None or not self.stop.has_killed
        goes_on = trial.held and not trial.evidence.kept_overloaded_s
        if Verdict.OVERLOADED not in verdicts or goes_on or not is_whole:
            return trial
        self.held = None  # the next window of a held load begins at rest
        rest_s, end_s = self._gates.await_recovery().since_s, trial.evidence.client.end_s
        return trial if rest_s is None else replace(trial, recovery_s=rest_s - end_s)

    # --- a load of one window -----------------------------------------------

    def _offered(self, loading: _Loading) -> tuple[Evidence, Samples]:
        """Offer a load with one window; return its evidence and its samples."""
        context, load, topics = self._context, loading.load, loading.load.topics
        try:
            before = context.topics.end_offsets(topics)
            with self._sampler(load) as sampler:
                offered = replace(load, end_offsets=before)
                client = merge(offer(context, offered, sampler, self._facts, self._watched))
                samples = sampler.stop()
            samples = replace(samples, hosts=(*samples.hosts, *client.host_samples))
            after, unreplicated = self._settled_offsets(topics, before, client)
        except (GeneratorError, AdminError) as error:
            return self._failed(load, error), Samples()
        context.guards.settle(load.pattern, client)
        if (tripped := self._tripped()) is not None:
            return self._refused(tripped), Samples()
        everything = self._gates.record_load_end()
        ends = after
        if client.counts.failed_total:  # queued requests may reach the logs late
            ends = context.topics.end_offsets(topics)
        grown = written_records(before, ends, client.counts.acked_total)
        commits_per_s = load.pattern.commits_per_s(len(topics.leaders))
        start_s = self._load_start_s
        evidence = replace(
            self._evidence(load, client, samples),
            end_offsets={each: (begin, after[each]) for each, begin in before.items()},
            unreplicated_records=unreplicated,
            others=others_in(everything, grown, client, self._gates.level, commits_per_s),
            kept_overloaded_s=self._kept_overloaded_s,
            load_s=None if start_s is None else client.end_s - start_s,
        )
        return evidence, samples

    @contextmanager
    def _watched(self, load: RunningLoad) -> Iterator[None]:
        """Watch a load with one window, and end the window once its verdict is certain."""
        self._load_start_s, self._kept_overloaded_s = None, 0.0
        early_end = EarlyEnd(load, may_begin_early=self.stop is None)
        kill = self.stop.watch if self.stop else None
        with ExitStack() as stack:
            for each in filter(None, (self._observed, self.until, kill)):
                stack.enter_context(each(load))
            stack.enter_context(early_end.watch())
            yield
        self._load_start_s = load.channel.start_s
        self._kept_overloaded_s = early_end.kept_overloaded_s

    @contextmanager
    def _observed(self, load: RunningLoad) -> Iterator[None]:
        """Watch a load for harm to other clients, report its progress, and count its traffic at the
        brokers' sockets.
        """
        context, control = self._context, self._context.cluster.broker_control
        self._sockets = None
        with ExitStack() as stack:
            stack.enter_context(OthersHarm(load, self._gates.level).watch())
            stack.enter_context(progress_reported(load))
            if control is not None:  # otherwise the brokers' processes are unknown
                self._sockets = BrokerSockets(control.pids, context.addresses)
                stack.enter_context(self._sockets.watch(load))
            yield

    # --- a load of several windows ------------------------------------------

    @contextmanager
    def _watched_windows(
        self, loading: _Loading, into: list[Trial], load: RunningLoad
    ) -> Iterator[None]:
        """Judge each window, except the last window, as soon as the window ends. Stop the run if an
        overload lasts for too long.
        """
        context, most_s = self._context, self._context.config.goal.search.overload_max_s

        def look(now_s: float) -> float:
            if overload_lasts(load, now_s):
                context.guards.stop(
                    f"the load was an overload for {most_s:g} s; offer a smaller load, or raise "
                    "goal.search.overload_max_s to allow a longer overload"
                )
                load.channel.end_now()
            while (reports := load.channel.take_window(loading.judged + 1)) is not None:
                into.append(self._judge_window(loading, load.sampler, merge(reports)))
                loading.number = next(context.history.numbers)
                self._announce(loading)
            return LOOK_S

        with self._observed(load), load.looked_at("windows", look, LOOK_S):
            yield
        look(time.time())  # the second to last window may have ended since the last check

    def _judge_window(self, loading: _Loading, sampler: LoadSampler, client: ClientWindow) -> Trial:
        """Judge a window that has ended, store it as a trial, and drop its samples."""
        load, pattern, config = loading.load, loading.load.pattern, self._context.config
        kept_s = SAMPLES_AFTER * pattern.phases.sample_interval_s
        sampler.wait_past(client.end_s, kept_s)
        host_samples = (*loading.host_samples, *client.host_samples)
        samples = sampler.samples_taken()
        samples = replace(samples, hosts=(*samples.hosts, *host_samples))
        evidence = self._evidence(load, client, samples, loading.judged)
        loading.judged += 1
        loading.counts.append(client.counts)
        if (everything := _traffic_of(evidence.brokers, client.duration_s)) is not None:
            commits_per_s = pattern.commits_per_s(len(load.topics.leaders))
            others = others_at(everything, client, self._gates.level, commits_per_s)
            evidence = replace(evidence, others=others)
        if not config.cluster.is_exclusive:
            kept_s = max(kept_s, config.goal.search.overload_max_s)
        since_s = client.end_s - kept_s
        loading.host_samples = tuple(each for each in host_samples if each.at_s >= since_s)
        sampler.forget_before(since_s)
        own = samples.within(client.start_s, client.end_s)
        return self._keep_window(loading, evidence, own, client.start_s)

    def _keep_window(
        self, loading: _Loading, evidence: Evidence, samples: Samples, started_s: float
    ) -> Trial:
        """Store the current window as a trial."""
        trial = self._judged(loading, started_s, evidence, is_held=True)
        self._keep(
            trial, samples, evidence.client.duration_s, loading.load.windows - loading.judged
        )
        return trial

    # --- the evidence -------------------------------------------------------

    @property
    def _facts(self) -> ClusterFacts:
        """The facts of the cluster, including the partitions that have been under-replicated since
        before the run.
        """
        at_rest = self._gates.under_replicated_at_rest
        return replace(self._context.facts, under_replicated_at_rest=at_rest)

    def _refused(self, *refusals: Reason) -> Evidence:
        """The evidence of a trial that could not begin, that failed, or that a guard ended."""
        now_s, source = time.time(), self._context.source.name
        client = ClientWindow(now_s, now_s)
        return Evidence(client, metrics_source=source, refusals=refusals, cluster=self._facts)

    def _failed(self, load: Load, error: Exception) -> Evidence:
        """The evidence of a load that failed or that a guard ended."""
        self._context.guards.settle(load.whole, None)
        return self._refused(self._tripped() or Reason("task_failed", str(error), 1.0, 0.0))

    def _tripped(self) -> Reason | None:
        """The guard's reason why the trial is INVALID; None if no guard ended the trial."""
        why = self._context.guards.ends_load
        return None if why is None else Reason("guard", f"ended by a guard: {why}", 1.0, 0.0)

    def _evidence(
        self, load: Load, client: ClientWindow, samples: Samples, window: int = 0
    ) -> Evidence:
        """The evidence of one window from clients, nodes and hosts, without the end offsets.

        Args:
            load: the load of the window.
            client: the counts of the clients in the window.
            samples: the samples of nodes, hosts and replicas.
            window: number of the window within its load, from 0.
        """
        context, facts, edges_s = self._context, self._facts, (client.start_s, client.end_s)
        brokers, at_rest = brokers_of(context.source), facts.under_replicated_at_rest
        killed = self.stop.victim if self.stop and self.stop.has_killed else None
        lags = follower_lags(samples.replicas, *edges_s)
        try:
            moved = context.topics.moved_leaders(load.topics)
        except AdminError as error:  # without the leaders, only client errors show a move
            _log.warning("the leaders of %s are not known: %s", load.topics, error)
            moved = None

        def windows(nodes: frozenset[int]) -> tuple[BrokerWindow, ...]:
            interval_s = load.pattern.phases.sample_interval_s
            link = context.config.cluster.link_mbit_per_s
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
            planned_s=load.pattern.phases.measure_s,
            closed_loop=load.pattern.producer.closed_loop,
            cluster=replace(facts, killed=killed),
            write_back=write_back_windows(
                samples.nodes, samples.hosts, context.hosts.brokers, *edges_s
            ),
            canaries=() if context.canaries is None else context.canaries.windows(*edges_s),
            moved_leaders=moved,
            broker_sockets=self._sockets.window_counts(window) if self._sockets else {},
            follower_lag=next(reversed(lags), None) if killed is None else None,
        )

    def _settled_offsets(
        self, topics: TopicSet, before: Mapping[int, int], client: ClientWindow
    ) -> tuple[Mapping[int, int], int]:
        """The end offset of each partition after the trial, and the number of records that were
        missing in the first reading.

        Clients see the high watermark as the end offset. The high watermark waits for followers
        even if acks is 1, so this method waits until the end offsets include all acknowledged
        records.
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
            time.sleep(LOOK_S)


def repeat_until_valid(
    make: Callable[[int], Trial], count: int, spare: int, into: list[Trial]
) -> None:
    """Make trials until `count` trials are valid, or until more than `spare` trials are INVALID.

    Args:
        make: makes a trial; receives the number of valid trials that are still missing.
        count: required number of valid trials.
        spare: largest accepted number of INVALID trials.
        into: receives each trial once it is judged, so that it is kept after an error.
    """
    while (missing := count - sum(each.is_valid for each in into)) > 0:
        if len(into) - (count - missing) > spare:
            return
        into.append(make(missing))


def written_records(before: Mapping[int, int], after: Mapping[int, int], acked: int) -> int:
    """The number of records that a load added to its topics. The result is at least the number of
    acknowledged records.

    The end offsets do not include acknowledged records above the high watermark, which waits for
    followers. Because of this lower bound, acknowledged records above the high watermark do not
    count as records of other clients.
    """
    return max(sum(after.values()) - sum(before.values()), acked)


def _traffic_of(brokers: Sequence[BrokerWindow], duration_s: float) -> ClientTraffic | None:
    """The traffic of all clients in a window; None if a broker's metrics do not show it."""
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


def _observed(trial: Trial) -> dict[str, Observation]:
    return {goal: trial.observation(goal) for goal in trial.judgements}
