"""The gates before each trial. They wait until the brokers are warm and at rest, and until the
topics are ready.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from jobs.cluster.health import ClusterHealth
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted, warn
from jobs.trials.context import RunContext
from jobs.trials.harm_rules import controller_queue_ms
from jobs.trials.others_harm import knows_own_errors
from jobs.trials.recovery import (
    DEADLINE_S,
    LOOK_S,
    Baseline,
    Recovery,
    WriteBack,
    wait_until_at_rest,
    windows_between,
)
from jobs.trials.series_proof import SeriesProof, poll_after_ticks
from jobs.trials.warm_up import AtRest, FirstLoads
from metrics.sources.beans import UPTIME_MS
from metrics.sources.one_minute_rates import reads_rates
from metrics.sources.sample import BrokerSample
from metrics.sources.source import brokers_of
from metrics.trial.evidence import Reason
from metrics.trial.others import (
    MESSAGES_LEAST_PER_S,
    ClientTraffic,
    Level,
    OtherLoad,
    OwnTraffic,
)
from metrics.trial.trial import WarmUp
from metrics.windows.broker import BrokerWindow

SETTLE_S = 10.0
"""Longest wait before the run until the brokers are at rest [s]. The readings after this wait are
the baseline.
"""

FRESH_S = 3.0
"""Time after a successful check for which the brokers are not checked again [s]."""

FIRST_LOOK_S, LOOK_MAX_S = 12.0, 60.0
"""Time for which the load of other clients is measured before the run [s]. The time is
`FIRST_LOOK_S` if other clients cause no notable load, and otherwise `LOOK_MAX_S`.
"""
RENEWAL_S = 10.0
"""If the load of other clients has changed, this load is measured again for this time [s]."""
OTHERS_PATIENCE_S = 15.0
"""Time after which the load of other clients is measured again [s], if the brokers are busier than
before the run and the load of other clients has grown. After this time, the brokers have finished
all work of the run's own load.
"""
BEHIND_IDLE = 0.05
"""Request handlers still process waiting requests if their idle fraction is below this value
[ratio].
"""
LEVEL_S = 600.0
"""The usual load of other clients is computed from readings that are at most this old [s]."""

WARM_UPTIME_S = 600.0
WARM_REQUESTS = 10_000
"""Before the run's first load, a broker is cold if it has run for less than `WARM_UPTIME_S` seconds
or has answered fewer than `WARM_REQUESTS` produce requests. The JVM compiles a method after several
thousand calls.
"""


def cold_brokers(
    samples: Iterable[BrokerSample], brokers: frozenset[int], loaded_s: float | None
) -> tuple[int, ...]:
    """The brokers whose metrics show that their JVM has had no load since its start.

    Args:
        samples: one sample of each node.
        brokers: ids of the brokers to check.
        loaded_s: end of the last load of this process [s since the epoch]; None before the first
            load.
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
    """Delays each trial until the cluster is in the same state as before the run.

    Args:
        context: the open resources of the run.
        first: offers the loads before the first trial; None for a run without such loads.
        clock, pause: functions for the wall-clock time [s] and for a pause [s]; tests replace these
            functions.

    Attributes:
        write_back: checks which pages the brokers' hosts still have to write to disk.
        reassigns: returns whether a reassignment copies replicas now; called only if followers lag.
        is_shared: whether other clients may use the brokers; the gates then measure the load of
            these clients.
        polls_at_rest: the first and the last poll of the brokers in the measurement before the run.
    """

    def __init__(
        self,
        context: RunContext,
        first: FirstLoads | None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.source, self.reporter, self._topics = context.source, context.reporter, context.topics
        self.first = first
        self.clock, self.pause = clock, pause
        self.last_load = context.cluster.last_load
        self.write_back = WriteBack(context.hosts)
        self.reassigns = ClusterHealth(context.cluster.admin).is_reassigning
        self.is_shared = not context.config.cluster.is_exclusive
        self.polls_at_rest: tuple[Sequence[BrokerSample], Sequence[BrokerSample]] = ((), ())
        self._is_reassigning = False
        self._baselines: dict[int, Baseline] = {}
        self._polled: Sequence[BrokerSample] = ()
        self._rested_s: float | None = None

    def take_baseline(self) -> None:
        """Measure the brokers and their hosts before any load of the run."""
        first = self.source.sample_all()
        recovery = wait_until_at_rest(
            self.source, earlier=first, deadline_s=SETTLE_S, clock=self.clock, pause=self.pause
        )
        last: Sequence[BrokerSample] = poll_after_ticks(self.source, self.clock, self.pause)
        self._polled = last
        self._note_look(first, last)
        if self.is_shared:
            last = self._watch_others_until(FIRST_LOOK_S)
            level = self.level
            if level is not None and level.is_notable:
                self.reporter.report(
                    PhaseStarted("measuring the load of other clients for a minute")
                )
                last = self._watch_others_until(LOOK_MAX_S)
        self.write_back.take_baseline()
        self.polls_at_rest = (first, last)
        self._rested_s = None if recovery.not_idle else self.clock()
        windows = windows_between(self.source, first, last)
        self._baselines = {window.broker_id: Baseline.of(window) for window in windows}

    def renew_level(self) -> None:
        """Measure the load of other clients and the idle time of the brokers again, after the load
        of other clients has changed.

        Only the newest of the earlier readings are kept: as many as took no more time than the new
        measurement, but at least one reading. The usual load of other clients therefore
        includes their load before and after the change.
        """
        looks = self.last_load.looks
        while len(looks) > 1 and sum(each.duration_s for _, each in looks) > RENEWAL_S:
            del looks[0]
        self.reporter.report(PhaseStarted("the load of other clients changed: measuring it again"))
        first = self._polled = self.source.sample_all()
        windows = windows_between(self.source, first, self._watch_others(RENEWAL_S))
        for each in windows if self.is_shared else ():
            if each.handler_idle is not None and not self._is_behind(each):
                before = self._baselines.get(each.broker_id, Baseline())
                idle = Baseline.of(each).handler_idle
                self._baselines[each.broker_id] = replace(before, handler_idle=idle)

    def _is_behind(self, window: BrokerWindow) -> bool:
        """Whether a broker still processes waiting requests, which may come from the last load."""
        waiting = self._baselines.get(window.broker_id, Baseline()).waiting_requests
        idle = 1.0 if window.handler_idle is None else window.handler_idle
        return (window.request_queue_max or 0.0) > waiting or idle < BEHIND_IDLE

    def _watch_others_until(self, seconds: float) -> Sequence[BrokerSample]:
        """Poll the brokers until the recent readings cover this time [s]; return the last poll."""
        known_s = sum(seen.duration_s for seen in self._recent_looks())
        return self._watch_others(seconds - known_s)

    def _recent_looks(self) -> list[ClientTraffic]:
        since_s = self.clock() - LEVEL_S
        return [seen for at_s, seen in self.last_load.looks if at_s >= since_s]

    def _watch_others(self, seconds: float) -> Sequence[BrokerSample]:
        """Poll the brokers every second for this time [s], without the run's load; return the last
        poll.
        """
        until_s, before = self.clock() + seconds, self._polled
        while self.clock() < until_s:
            self.pause(LOOK_S)
            self._polled = self.source.sample_all()
            if self._note_look(before, self._polled) or not reads_rates(self.source.nodes):
                before = self._polled
        return self._polled

    def _note_look(self, earlier: Sequence[BrokerSample], later: Sequence[BrokerSample]) -> bool:
        """Keep the traffic between two polls that were made without the run's load; return False if
        this traffic is unknown.
        """
        seen = ClientTraffic.between(earlier, later, brokers_of(self.source))
        if seen is not None:
            self.last_load.looks.append((self.clock(), seen))
        return seen is not None

    @property
    def level(self) -> Level | None:
        """The usual load of other clients, measured without the run's load; None if the metrics do
        not show it.
        """
        looks = self._recent_looks() or [seen for _, seen in self.last_load.looks[-1:]]
        if not self.is_shared:
            return Level.of(looks)
        at_rest = [each for poll in self.polls_at_rest for each in poll]
        return Level.of(looks, self.idle_at_rest, controller_queue_ms(at_rest))

    @property
    def at_rest(self) -> AtRest:
        """The brokers' readings, measured without the run's load."""
        level = self.level
        written_per_s = 0.0 if level is None else level.written.mean
        return AtRest(written_per_s, self.idle_at_rest, self.polls_at_rest)

    @property
    def idle_at_rest(self) -> float:
        """Idle fraction of the request handlers [ratio] at the broker with the lowest fraction,
        without the run's load.

        The fraction was measured before the run. If the load of other clients changed during the
        run, the fraction was measured again. The result is 1 if the idle fraction is unknown. On
        brokers without other clients, the result is always 1, because the measurement of such
        brokers takes only a second.
        """
        if not self.is_shared:
            return 1.0
        return min((each.handler_idle for each in self._baselines.values()), default=1.0)

    @property
    def under_replicated_at_rest(self) -> dict[int, float]:
        """Broker id → number of partitions that have been under-replicated since before the run."""
        return {broker: each.under_replicated for broker, each in self._baselines.items()}

    def record_load_end(self) -> ClientTraffic | None:
        """Register the end of a load, and poll the brokers at once to shorten the next wait.

        Returns:
            The traffic since the last poll before the load; None if the traffic is unknown.
        """
        before = self._polled
        self._polled = poll_after_ticks(self.source, self.clock, self.pause)
        self.last_load.ended_s = self.clock()
        self._rested_s = None
        return ClientTraffic.between(before, self._polled, brokers_of(self.source))

    def pass_all(self, topics: TopicSet) -> tuple[Reason, ...]:
        """Wait until a trial may begin, or until the deadline. The result has the reasons that make
        the trial INVALID; it is empty if the trial may begin.
        """
        found = (*self.warm(topics), *self._topic_reasons(topics))
        if not found:
            self._lower_baselines()
        return found

    def warm(self, topics: TopicSet) -> tuple[Reason, ...]:
        """Warm up cold brokers, unless a broker is not at rest; return the reasons why brokers are
        not at rest. A search calls this method before the search chooses its first load.
        """
        reasons = self._rest_reasons()
        brokers = brokers_of(self.source)
        loaded_s = self.last_load.ended_s
        if self.first is None or reasons:
            return reasons
        if cold_brokers(self._polled, brokers, loaded_s):
            self.first.warm(topics, self.at_rest)
        elif not self.first.light(topics, self.at_rest):
            return reasons
        self.record_load_end()
        return self._rest_reasons()

    def _lower_baselines(self) -> None:
        """If a broker has fewer under-replicated partitions than its baseline, reduce the baseline
        to the present number.

        If a partition that came in sync becomes under-replicated again, the run's load counts as
        the cause.
        """
        for sample in self._polled:
            now = sample.values.get("under_replicated_partitions")
            before = self._baselines.get(sample.broker_id)
            if now is not None and before is not None and now < before.under_replicated:
                self._baselines[sample.broker_id] = replace(before, under_replicated=now)

    def pass_between_windows(self, topics: TopicSet) -> tuple[Reason, ...]:
        """Check the topics between two windows of a held load; brokers may be under load."""
        self._polled = self.source.sample_all()
        return self._topic_reasons(topics)

    def await_recovery(self) -> Recovery:
        """Wait until the brokers are at rest after an overload, or until the deadline."""
        recovery = self._wait("overloaded: waiting for the brokers to recover")
        self._rested_s = None if recovery.not_idle else self.clock()
        return recovery

    def _wait(self, phase: str) -> Recovery:
        is_reported = False

        def report(sentence: str) -> None:
            nonlocal is_reported
            if not is_reported:
                self.reporter.report(PhaseStarted(phase))
                is_reported = True
            self.reporter.report(PhaseProgress(sentence))

        def wait(deadline_s: float) -> Recovery:
            earlier, self._polled = self._polled, ()
            baselines = self._baselines
            if self._is_reassigning:  # followers may lag by any number of records
                baselines = {
                    broker: replace(each, replica_lag_records=math.inf)
                    for broker, each in baselines.items()
                }
            return wait_until_at_rest(
                self.source,
                baselines,
                earlier,
                deadline_s,
                self.clock,
                self.pause,
                report,
                self.write_back.reasons,
            )

        self._is_reassigning = self._is_reassigning and self.reassigns()
        recovery = wait(OTHERS_PATIENCE_S if self.is_shared else DEADLINE_S)
        waited_s = recovery.duration_s
        if recovery.not_idle and waited_s < recovery.patience_s:
            if any(each.is_lag for each in recovery.not_idle) and self.reassigns():
                self._is_reassigning = True
                self.reporter.report(
                    PhaseProgress("followers lag, because a reassignment copies replicas")
                )
            if recovery.invalidates and self._have_others_risen(recovery.look):
                self.renew_level()
            recovery = wait(DEADLINE_S - waited_s)
            recovery = replace(recovery, duration_s=waited_s + recovery.duration_s)
        if not recovery.invalidates:
            self._note_look(*recovery.look)
            self._polled = self.source.sample_all()
        return recovery

    def _have_others_risen(
        self, look: tuple[Sequence[BrokerSample], Sequence[BrokerSample]]
    ) -> bool:
        """Whether other clients loaded the brokers more than usual between two polls.

        The result is False while brokers still process waiting requests, because these may be
        requests of the run.
        """
        earlier, later = look
        if any(self._is_behind(each) for each in windows_between(self.source, earlier, later)):
            return False
        seen = ClientTraffic.between(earlier, later, brokers_of(self.source))
        if seen is None:
            return False
        return OtherLoad.of(seen, OwnTraffic(0.0, 0.0), self.level).rise.share > 0.0

    def _rest_reasons(self) -> tuple[Reason, ...]:
        rested_s, self._rested_s = self._rested_s, None
        if rested_s is not None and self.clock() - rested_s < FRESH_S:
            return ()
        recovery = self._wait("waiting until the brokers are at rest")
        if recovery.not_idle and not recovery.invalidates:
            texts = "; ".join(each.text for each in recovery.not_idle)
            self.reporter.report(
                PhaseStarted(f"the trial begins after {recovery.duration_s:.0f} s although {texts}")
            )
        return tuple(
            Reason(
                "not_at_rest",
                f"not begun: the brokers were not at rest after {recovery.duration_s:.0f} s: "
                f"{each.text}",
                recovery.duration_s,
                recovery.duration_s,
            )
            for each in recovery.not_idle
            if each.invalidates
        )

    def _topic_reasons(self, topics: TopicSet) -> tuple[Reason, ...]:
        checked = self._topics.check(topics)
        return tuple(
            Reason("topic_not_ready", f"not begun: {text}", checked.waited_s, checked.waited_s)
            for text in checked.sentences()
        )


def open_gates(context: RunContext, warm_up_max_s: float, *, climbs: bool = False) -> Gates:
    """Create the gates of a run, and measure the brokers before any load of the run.

    Args:
        context: the open resources of the run.
        warm_up_max_s: longest warm-up of cold brokers [s]; 0 for no load before the first trial.
        climbs: whether the first load of the search comes from a measurement with a growing load,
            even if the brokers are warm.
    """
    if warm_up_max_s:
        gates = Gates(context, FirstLoads(context, warm_up_max_s, climbs))
    else:
        SeriesProof(context).skip("the cluster's warm_up_max_s is 0")
        gates = Gates(context, None)
    context.reporter.report(PhaseStarted("measuring the brokers at rest"))
    rests_since_s = time.time()
    gates.take_baseline()
    if gates.is_shared:
        context.history.warm_up = WarmUp(idle_at_rest=gates.idle_at_rest)
        _report_unguarded(context, gates.level)
    if context.canaries is not None:
        unseen = context.canaries.take_rest(rests_since_s)
        if unseen is not None:
            warn(context.reporter, unseen)
    short = gates.under_replicated_at_rest
    if any(short.values()):
        listed = ", ".join(
            f"{count:.0f} on broker {broker}" for broker, count in short.items() if count
        )
        context.reporter.report(
            PhaseStarted(
                f"partitions of other topics are under-replicated already ({listed}); only further "
                "partitions count against the load"
            )
        )
    return gates


def _report_unguarded(context: RunContext, level: Level | None) -> None:
    """Report each kind of harm to other clients that the guards cannot watch, and the reason; with
    `fail_closed`, refuse the run.
    """
    limits, report = context.guards.limits, context.reporter.report
    if limits.others_fall_max and level and level.is_notable and not level.is_guarded:
        report(
            PhaseStarted(
                f"other clients write {level.messages.mean:,.0f} messages/s: the guard of their "
                f"throughput (guards.others_fall_max) needs more than {MESSAGES_LEAST_PER_S:.0f}"
            )
        )
    known = level or Level()
    has_quorum = all(each.has_quorum for each in context.source.nodes.values())
    lacks = []
    if limits.others_fall_max and level is None:
        lacks.append("the writes of other clients (others_fall_max), which the metrics do not show")
    if limits.others_errors_per_s_max and not knows_own_errors(
        each.producer for each in context.workload.parts
    ):
        lacks.append(
            "the errors of other clients (others_errors_per_s_max), because the run's own errors "
            "are unknown if its producers use a client library or acks 0"
        )
    elif limits.others_errors_per_s_max and known.errors is None:
        lacks.append(
            "the errors of other clients (others_errors_per_s_max), which the metrics do not show"
        )
    if limits.controller_queue_ms_max and has_quorum and known.controller_queue_ms is None:
        lacks.append(
            "the controller's queue (controller_queue_ms_max), which no controller's metrics show"
        )
    if not lacks:
        return
    text = f"no guard watches {'; nor '.join(lacks)}"
    if limits.fail_closed:
        context.guards.require_or_warn(text)
    report(PhaseStarted(text))
