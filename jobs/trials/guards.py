"""Guards: conditions that end a run at once, to protect a cluster with other users."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, cycle
from math import inf, isfinite

from jobs.cluster.admin import AdminError, KafkaAdmin, query_all_brokers
from jobs.cluster.health import ClusterHealth, GroupLags, LagGrowth, LogDir, Partitions
from jobs.cluster.lock import ClusterLock
from jobs.cluster.owner_topic import OwnerTopics, owner_topics
from jobs.config import Configuration
from jobs.config.goal import GuardLimits as Limits
from jobs.config.goal import OwnerBounds, tightened
from jobs.console.events import Reporter, note, warn
from jobs.engine.network.options import NAME_PREFIX
from jobs.trials.canaries import Canaries
from jobs.trials.control_server import TaskChannel
from jobs.trials.harm_rules import LOOK_S, BrokerAbsence, OthersSeen, harm
from jobs.trials.watching import watching
from metrics.common.errors import ConfigError, GuardStopError, RedlineError
from metrics.planning.load_hours import LoadHours, LoadTimes
from metrics.planning.load_needs import LogCleaning, logs_of, peak_log_bytes
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow
from metrics.units import format_some, format_volume

INTERVAL_S = 1.0
INTERVAL_MAX_S = 5.0
"""Interval between two checks while a load runs [s]: `INTERVAL_S`, or 3 times the duration of a
slow check, but at most `INTERVAL_MAX_S`.
"""

BRAKE_INTERVAL_S = 1.0
"""Interval between two checks whether an operator has created the topic that stops all runs [s].
Each check is one small request.
"""
BRAKE_LOOKERS = 3
"""A check asks brokers whether the topic that stops all runs exists. This number of brokers is
asked at the same time, so that a silent broker does not delay the check.
"""

OWNER_INTERVAL_S = 2.0
"""Interval between two readings of the owner's bounds while a load runs [s]; each reading takes two
small requests.
"""

GROUPS_INTERVAL_S = 10.0
"""Interval between two readings of the lag of other clients' consumer groups while a load
runs [s].
"""
GROUPS_SHARE = 0.02
"""Largest share of the time that the readings of group lags may take [ratio]; slow readings are
made less often.
"""

USED_SHARE_MAX = 0.9
"""Largest used share of a log directory's volume, on brokers with other users [ratio]."""

AHEAD_S, RATE_OVER_S = 10.0, 5.0
"""A run stops if a log directory would reach its limit within `AHEAD_S` [s], at the fill rate that
was measured over the last `RATE_OVER_S` [s].
"""

STOP = "stop"
"""Name of the topic that stops a run; on the cluster, `cluster.name_prefix` precedes this name."""

HARM_S = 15.0
"""Harm to other clients stops the run if the harm lasts for this time [s]. A trial whose verdict is
certainly an overload can end before this time has passed.
"""

_NAMED_MAX = 3
"""Largest number of log directories that a message names."""

BLIND_S = 30.0
"""Longest time for which checks of the cluster may fail before the run stops [s]."""


def open_guards(
    config: Configuration,
    admin: KafkaAdmin,
    run_id: str,
    reporter: Reporter,
    lock: ClusterLock | None = None,
    until_s: float | None = None,
) -> Guards:
    """Create the guards of a run, and check the cluster once; see `Guards.open`.

    Args:
        config: the configuration of the run.
        admin: the client for requests to the cluster.
        run_id: the id of the run, which is part of its topics' names.
        reporter: shows notes and warnings.
        lock: the lock of the cluster; None for a run without a lock.
        until_s: the time by which each load ends [s since the epoch]; None for no such time.
    """
    limits, start = config.goal.guards, config.cluster.name_prefix
    if limits.stop_topic == NAME_PREFIX + STOP:
        limits = limits.model_copy(update={"stop_topic": start + STOP})
    prefix = f"{start}{run_id}-"
    is_exclusive, given = config.cluster.is_exclusive, config.cluster.topics
    owners = OwnerTopics(admin, owner_topics(config.cluster.name_prefix))
    try:
        brokers, names = admin.describe_cluster().broker_ids, LogCleaning.NAMES
        properties = query_all_brokers(lambda b: admin.broker_config(b, names), brokers)
        cleaning = LogCleaning.of(properties)
    except AdminError:
        cleaning = LogCleaning()
    guards = Guards(
        limits,
        ClusterHealth(admin),
        lambda topic: is_exclusive or topic.startswith(prefix) or topic in given,
        partial(warn, reporter),
        lock=lock,
        cleaning=cleaning,
        used_share_default=None if is_exclusive else USED_SHARE_MAX,
        owner=dict if is_exclusive else owners.read,
        times=LoadTimes(config.cluster.hours, until_s),
        serving=None if is_exclusive else lambda: admin.describe_cluster().broker_ids,
        groups=None if is_exclusive else GroupLags(admin, lambda each: each.startswith(start)),
    )
    if guards.owner_words:
        note(reporter, guards.owner_words)
    for topic in owners.hidden:
        warn(
            reporter,
            f"this user may not describe the topic {topic}, so bounds of the cluster's owner in "
            "this topic would not apply; grant the user the ACL Read on the topic",
        )
    guards.open()
    return guards


@dataclass
class Guards:
    """Watches a run, and stops the run with `GuardStopError` (exit code 5).

    Args:
        limits: the goal's section `guards`.
        health: reads the state of the cluster.
        is_own: returns whether a topic, given its name, belongs to the run.
        warn: receives a sentence about each condition that the guards cannot watch.
        clock: monotonic time [s].
        lock: the lock of the cluster; None for a run without it.
        cleaning: the delays after which brokers delete log files; if not given, Kafka's default
            delays.
        used_share_default: default of the goal's key `disk_used_share_max` [ratio].
        owner: returns topic → bounds of the cluster's owner; no bounds by default.
        times: the times at which loads are allowed; if not given, loads are always allowed.
        serving: returns the ids of the brokers in service. With this function, the run can wait for
            a missing broker. None on a cluster without other users, where a missing replica ends
            the run.
        groups: consumer groups of other clients, whose lag is watched; None without such groups.

    Attributes:
        limits: the stricter values of the goal's limits and the owner's bounds.
        absence: the brokers that left the cluster, for which the run waits; None if the run does
            not wait for brokers.
        canaries: the clients that measure how long other clients wait; None without canaries. The
            caller opens the canaries after the guards.
        tripped: the reason why the run has to stop; None if it may continue.
        spent_bytes: payload that the run has written, all replicas counted [B].
        owner_bounds: topic → the owner's bounds, from the last reading.
        loaded_until_s: end of the last load [s since the epoch]; None before the first load.

    Raises:
        ConfigError: the bounds in a topic of the cluster's owner cannot be read or are malformed.
        AdminError: the cluster does not answer.
    """

    limits: Limits
    health: ClusterHealth
    is_own: Callable[[str], bool]
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    lock: ClusterLock | None = None
    cleaning: LogCleaning = field(default_factory=LogCleaning)
    used_share_default: float | None = None
    owner: Callable[[], Mapping[str, OwnerBounds]] = dict
    times: LoadTimes = field(default_factory=LoadTimes)
    serving: Callable[[], Iterable[int]] | None = None
    groups: GroupLags | None = None

    def __post_init__(self) -> None:
        """Combine the goal's limits with the owner's bounds, before any check of the cluster."""
        self._given = self.limits.model_fields_set
        if "disk_used_share_max" not in self._given:
            default = {"disk_used_share_max": self.used_share_default}
            self.limits = self.limits.model_copy(update=default)
        self._of_goal = self.limits
        self.owner_bounds: Mapping[str, OwnerBounds] = {}
        self.read_bounds()
        self.absence: BrokerAbsence | None = None
        if self.serving is not None and self.limits.pause_max_s:
            self.absence = BrokerAbsence(self.serving, self.limits.pause_max_s)
        self.canaries: Canaries | None = None
        self._bounds_read_s = self._checked_s = self._groups_read_s = self.clock()
        self._under_replicated: Partitions = frozenset()
        self._watches_disks = True
        self._unseen: set[tuple[int, str]] = set()
        self._others_lacking: Partitions = frozenset()
        self._replicas_seen_s = self._dirs_seen_s = -inf
        self._rooms: dict[tuple[int, str], deque[tuple[float, float]]] = defaultdict(deque)
        self.tripped: str | None = None
        self._remedy = (
            "repair the cluster and continue with --resume, or change the section guards of the "
            "goal"
        )
        self.spent_bytes = 0.0
        self.loaded_until_s: float | None = None
        self._lag_growth = LagGrowth()
        self._are_groups_unread = False
        self._harm_since_s: dict[str, float] = {}
        self._brakes: tuple[Iterator[int], ...] = ()
        self._brake_seen_s, self._brake_errors = self.clock(), 0
        self._is_blind = False
        self._under_way_bytes = 0.0

    def open(self) -> None:
        """Check the cluster before any load, and check whether loads are allowed now.

        Raises:
            ConfigError: the goal has a limit for the use of disks, but no broker reports its disks.
            AdminError: the cluster does not answer.
            GuardStopError: a disk is already beyond its limit, or no load is allowed now.
        """
        self._require_time(0.0)
        self._watches_disks = self._can_watch_disks()
        if self._watches_disks and not self.limits.other_topics:
            self.health.under_replicated()  # learns the interval of checks
        self.accept_current_state()
        self._warn_of_hidden_topics()
        for name in sorted(self._stop_topics):
            if self.health.has_topic(name) is None:
                self.require_or_warn(
                    f"this user may not describe the topic {name}, so an operator cannot end the "
                    "load by creating this topic; grant the user the ACL Describe on the topic, or "
                    "set guards.stop_topic: null"
                )
        brokers = self.health.broker_ids()
        parts = (brokers[n::BRAKE_LOOKERS] for n in range(BRAKE_LOOKERS))
        self._brakes = tuple(cycle(each) for each in parts if each)
        self.require_healthy()
        self._choose_groups()

    def read_bounds(self) -> bool:
        """Read the owner's bounds, and combine them with the goal's limits; return whether they
        changed.

        Raises:
            ConfigError: the bounds cannot be read or are malformed.
            AdminError: the cluster does not answer.
        """
        found = self.owner()
        self._bounds_read_s = self.clock()
        if found == self.owner_bounds:
            return False
        hours = (each.load_hours for each in found.values())
        owner_hours = tuple(LoadHours.parse(each) for each in hours if each is not None)
        self.times = replace(self.times, owner_hours=owner_hours)
        self.limits, self.owner_bounds = tightened(self._of_goal, *found.values()), found
        return True

    @property
    def owner_words(self) -> str:
        """A sentence with the bounds of the cluster's owner; empty without bounds."""
        stated = (
            f"{', '.join(f'{key} {value}' for key, value in bounds.given.items()) or 'none'} "
            f"(topic {topic})"
            for topic, bounds in self.owner_bounds.items()
        )
        words = " and ".join(stated)
        return f"bounds of the cluster's owner: {words}" if words else ""

    def key_words(self, name: str) -> str:
        """The name of a limit in messages: its key, such as `guards.np_max`. If the limit comes
        from the cluster's owner, the name contains the owner's topic.
        """
        for topic, bounds in self.owner_bounds.items():
            if name in bounds.given and getattr(self.limits, name) == bounds.given[name]:
                return f"{name} of the cluster's owner in the topic {topic}"
        return f"guards.{name}"

    def _by(self, name: str) -> str:
        """A clause that names the owner's topic if the limit comes from this topic; otherwise
        empty.
        """
        words = self.key_words(name)
        return "" if words.startswith("guards.") else f" ({words})"

    def _take_bounds(self, pattern: TrafficPattern) -> float:
        """Read the owner's bounds again, and stop the run if they changed and the load exceeds
        them.

        Returns:
            The time until the next reading while a load runs [s].
        """
        try:
            changed = self.read_bounds()
        except AdminError as error:
            blind_s = self.clock() - self._bounds_read_s
            if self.limits.fail_closed and blind_s > BLIND_S:
                self.stop(f"the owner's bounds could not be read for {blind_s:.0f} s: {error}")
        except ConfigError as error:
            self.stop(str(error))
        else:
            if changed:
                self.warn(f"{self.owner_words or 'no bounds of an owner apply'}, from now on")
                self.stop(self.cap_violation(pattern))
            if self.times.owner_hours:
                self.stop(self.times.refusal(time.time(), 0.0))
        return OWNER_INTERVAL_S

    def accept_current_state(self) -> None:
        """Accept the present under-replicated partitions, because a planned broker outage caused
        them.

        Raises:
            AdminError: the cluster does not answer.
        """
        self._under_replicated = self._others_under_replicated()

    # --- before a load ------------------------------------------------------

    def cap_violation(self, pattern: TrafficPattern) -> str | None:
        """A sentence about the limit that this traffic would exceed; None if it exceeds no
        limit.
        """
        if (found := self.limits.load_violation(pattern)) is not None:
            return f"{found[1]}{self._by(found[0])}"
        most, bytes_ = self.limits.write_bytes_max, pattern.planned_bytes
        if most is not None and not isfinite(bytes_):
            return self._overspent(0.0)
        if most is not None and self.spent_bytes + bytes_ > most:
            return (
                f"the run has written {format_volume(self.spent_bytes)} of payload in all "
                f"replicas, and the next load could add {format_volume(bytes_)}: more than "
                f"{format_volume(most)} in all{self._by('write_bytes_max')}"
            )
        return None

    def _overspent(self, under_way_bytes: float) -> str | None:
        """A sentence if the run has already written as many bytes as the limit allows; None
        otherwise.
        """
        most, written = self.limits.write_bytes_max, self.spent_bytes + under_way_bytes
        if most is None or written < most:
            return None
        return (
            f"the run has written {format_volume(written)} of payload in all replicas, and the "
            f"limit is {format_volume(most)}{self._by('write_bytes_max')}"
        )

    def admit(self, pattern: TrafficPattern) -> None:
        """Check that a load may begin.

        Raises:
            GuardStopError: the load exceeds a limit or the allowed time, or the cluster is not
                healthy.
        """
        self._take_bounds(pattern)
        self._require_time(pattern.phases.load_s)
        self.stop(self.cap_violation(pattern))
        self.require_room(pattern)
        self.require_healthy()

    def refusal(self, pattern: TrafficPattern) -> str | None:
        """The reason why `admit` would stop the run before a load; None if the load may begin."""
        return (
            self.times.refusal(time.time(), pattern.phases.load_s)
            or self.cap_violation(pattern)
            or self._lack_of_room(pattern, ())
        )

    def _require_time(self, load_s: float) -> None:
        refusal = self.times.refusal(time.time(), load_s)
        if refusal is not None:
            self.stop(refusal)
            self._remedy = "continue at another time with --resume"
            self.require_untripped()

    def require_room(self, pattern: TrafficPattern, topics: Sequence[str] = ()) -> None:
        """Check that each log directory has enough free space for a load.

        Args:
            pattern: the traffic of the load.
            topics: the topics of the load, once they exist; without topics, the load is assumed to
                be spread evenly over all directories.

        Raises:
            GuardStopError: the load could fill a directory beyond its limit.
        """
        self.stop(self._lack_of_room(pattern, topics))
        self.require_untripped()

    def _lack_of_room(self, pattern: TrafficPattern, topics: Sequence[str]) -> str | None:
        """A sentence about the log directory that could fill beyond its limit; None without such a
        directory.
        """
        try:
            dirs = self.health.log_dirs(topics) if self._watches_disks else ()
        except AdminError:  # the next check reports it
            return None
        held, logs = (sum(getattr(d, name) for d in dirs) for name in ("own_bytes", "own_logs"))
        adds_in_all = peak_log_bytes(pattern, self.cleaning, held)
        if logs and not all(d.is_known for d in dirs):  # some directories are not reported
            known = sum(logs_of(each.topic, each.brokers) for each in pattern.loads)
            logs = max(logs, known)
        dirs_on, logs_on = Counter(d.volume for d in dirs), Counter[tuple[int, int, int]]()
        for each in dirs:
            logs_on[each.volume] += each.own_logs
        for each in dirs if isfinite(adds_in_all) else ():  # else `watch` ends the load in time
            share = logs_on[each.volume] / logs if logs else dirs_on[each.volume] / len(dirs)
            adds = adds_in_all * share
            room = self._room(each)
            if each.is_known and adds > room:
                return (
                    f"the next load can add {format_volume(adds)} to {each.words}; expected at "
                    f"most {format_volume(max(0.0, room))}, because "
                    f"{format_volume(each.usable_bytes)} are free and the guards reserve a part of "
                    "the free space; lower topic.config.retention.bytes, shorten the load, or "
                    "free disk space"
                )
        return None

    def _room(self, each: LogDir) -> float:
        limits = self.limits
        return each.room_bytes(limits.disk_free_bytes_min, limits.disk_used_share_max)

    def _fill_rate_violation(self, each: LogDir, now: float) -> str | None:
        """A sentence about a log directory that will soon reach its limit; None without such a
        directory.
        """
        room, seen = self._room(each), self._rooms[each.broker_id, each.path]
        seen.append((now, room))
        while len(seen) > 2 and seen[-1][0] - seen[1][0] >= RATE_OVER_S:
            seen.popleft()
        passed_s = seen[-1][0] - seen[0][0]
        if passed_s < RATE_OVER_S / 2:
            return None
        rate = (seen[0][1] - room) / passed_s
        if rate <= 0 or room / rate > AHEAD_S:
            return None
        return (
            f"{each.words} fills at {format_volume(rate)} per second and would reach its limit in "
            f"{max(0.0, room / rate):.0f} s"
        )

    def settle(self, pattern: TrafficPattern, client: ClientWindow | None) -> None:
        """Add the payload of a load that has ended to the payload that the run has written.

        If the lock of the cluster is lost, the run also stops. Without the lock, another run may
        load the cluster at the same time, and the measurement is then not valid.

        Args:
            pattern: the traffic of the load.
            client: the counts of the clients; None if these counts are lost. If the counts are
                lost, the planned payload is added instead. If the counts are lost and the load has
                no planned volume, the payload that the last check saw is added.
        """
        self._check_lock()
        planned, seen = pattern.planned_bytes, self._under_way_bytes
        self._under_way_bytes = 0.0
        if client is None:
            self.spent_bytes += planned if isfinite(planned) else seen
            return
        records = client.counts.acked_total + client.counts.failed_total
        self.spent_bytes += pattern.written_bytes(records)

    def require_healthy(self) -> None:
        """Check the cluster once.

        Raises:
            GuardStopError: a guard trips now, or has tripped before.
        """
        if self.tripped is None:
            self._check()
        self.await_whole()
        self.require_untripped()

    @property
    def ends_load(self) -> str | None:
        """The reason why the load has to end now: a guard tripped, or a broker left the cluster;
        None if the load may continue.
        """
        return self.tripped or (None if self.absence is None else self.absence.why)

    def await_whole(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until all brokers are in service and the partitions of other clients are in sync
        again.

        Raises:
            GuardStopError: a guard tripped, or the wait exceeded `guards.pause_max_s`.
        """
        absence = self.absence
        if absence is None or absence.why is None:
            return
        self.warn(f"{absence.why}: the load has ended; the run waits until the cluster is complete")
        while absence.why is not None:
            self.require_untripped()
            self.stop(absence.stop_reason(self.clock()))
            if self.tripped is None:
                pause(max(LOOK_S, self.health.replicas_interval_s))
                self._check()

    def require_untripped(self) -> None:
        """Stop the run if a guard has tripped.

        Raises:
            GuardStopError: a guard has tripped.
        """
        if self.tripped is not None:
            within = ", as far as the cluster's owner allows" if self.owner_bounds else ""
            raise GuardStopError(
                f"stopped by a guard: {self.tripped}; the run's load has ended; {self._remedy}"
                f"{within}"
            )

    @contextmanager
    def required(self) -> Iterator[None]:
        """Replace an error in the block with the guard's error, if a guard has tripped.

        Raises:
            GuardStopError: a guard has tripped.
        """
        try:
            yield
        except RedlineError:
            self.await_whole()
            self.require_untripped()
            raise
        self.require_untripped()

    # --- while a load runs --------------------------------------------------

    @contextmanager
    def watch(
        self,
        pattern: TrafficPattern,
        channel: TaskChannel,
        lacking: Callable[[], float | None] = lambda: None,
    ) -> Iterator[None]:
        """Check the cluster while a load runs, and end the load if a guard trips.

        Args:
            pattern: the traffic of the load.
            channel: the channel to the tasks of the load.
            lacking: returns the number of under-replicated partitions in the brokers' metrics, or
                None if the number is unknown. While the number is 0, the guards do not request all
                topics.
        """
        self._groups_read_s = self._brake_seen_s = self.clock()
        self._brake_errors = 0
        looks: list[tuple[str, Callable[[], float | None], float]] = [
            ("guards", partial(self._look_at_cluster, pattern, channel, lacking), 0.0),
            *(
                (f"brake-{number}", partial(self._look_for_brake, brokers), 0.0)
                for number, brokers in enumerate(self._brakes)
            ),
            ("clients", self._check_clients, 0.0),
            ("groups", partial(self._look_at_groups, count()), 0.0),
            ("owner", partial(self._take_bounds, pattern), OWNER_INTERVAL_S),
        ]
        with ExitStack() as stack:
            stack.callback(self._end_load, pattern, channel)
            for name, look, first_after_s in looks:
                ending = partial(self._look, look, channel)
                stack.enter_context(watching(name, ending, first_after_s, channel.fail))
            yield

    def _end_load(self, pattern: TrafficPattern, channel: TaskChannel) -> None:
        self.loaded_until_s = time.time()
        self._under_way_bytes = pattern.written_bytes(channel.written)

    def _look(self, look: Callable[[], float | None], channel: TaskChannel) -> float | None:
        """Check the cluster once, and end the load if the load may not continue.

        Returns:
            The time until the next check [s]; None for no further check.
        """
        if self.ends_load is not None:
            return None
        wait_s = look()
        if self.ends_load is None:
            return wait_s
        channel.end_now()
        return None

    def _look_at_cluster(
        self, pattern: TrafficPattern, channel: TaskChannel, lacking: Callable[[], float | None]
    ) -> float:
        """Check the written volume and the cluster; return the time until the next check [s]."""
        began_s = self.clock()
        self.stop(self._overspent(pattern.written_bytes(channel.written)))
        try:
            self._check(lacking)
        except Exception as error:  # noqa: BLE001 - no load may continue without its guards
            self.stop(f"the cluster could not be watched: {type(error).__name__}: {error}")
        return min(max(INTERVAL_S, 3 * (self.clock() - began_s)), INTERVAL_MAX_S)

    def _look_for_brake(self, brokers: Iterator[int]) -> float:
        """Ask the next broker whether the stop topic exists; return the time until the next check
        [s].

        Up to `BRAKE_LOOKERS` threads call this function at the same time, each for different
        brokers. The run stops if the checks of all threads have failed for `BLIND_S` seconds.

        Args:
            brokers: an endless sequence of broker ids; this thread asks these brokers in turn.
        """
        try:
            self.stop(self._stop_request(next(brokers)))
            self._brake_seen_s, self._brake_errors = self.clock(), 0
        except Exception as error:  # noqa: BLE001 - no load may continue without its brake
            self._brake_errors += 1
            unseen_s = self.clock() - self._brake_seen_s
            what = " or ".join(sorted(self._stop_topics))
            words = (
                f"for {unseen_s:.0f} s, no broker has answered the question whether the topic "
                f"{what} exists ({self._brake_errors} requests failed): {error}"
            )
            if unseen_s > BLIND_S:
                self.stop(words)
            elif self._brake_errors == BRAKE_LOOKERS * 3:
                self.warn(f"{words}; the load ends after {BLIND_S:.0f} s")
        return BRAKE_INTERVAL_S

    def _look_at_groups(self, looks: Iterator[int]) -> float | None:
        """Check whether other clients' consumer groups fall behind; warn or stop the run if their
        lag stays unreadable. Return the time until the next check [s].

        Args:
            looks: an iterator that counts the checks under the load; it yields 0 at the first
                check.
        """
        if self.groups is None or self.limits.others_lag_s_max is None:
            return None
        try:
            readings = self.groups.read()
            self._groups_read_s, self._are_groups_unread = self.clock(), False
            is_loaded = next(looks) > 0
            lags = self._lag_growth.take(readings, is_loaded)
            seen = OthersSeen(lags=lags if is_loaded else ())
            self.stop(self.lasting_harm(seen, "others_lag_s_max"))
        except AdminError as error:
            if error.cause == "UnknownTopicOrPartitionError":  # topics were deleted
                with suppress(AdminError):
                    self.groups.choose()
            unread_s = self.clock() - self._groups_read_s
            text = (
                f"the lag of other consumer groups could not be read for {unread_s:.0f} s: {error}"
            )
            was_unread, self._are_groups_unread = self._are_groups_unread, unread_s > 2 * BLIND_S
            if self._are_groups_unread and not was_unread:
                self.warn(text)
            if self._are_groups_unread and self.limits.fail_closed:
                self.stop(text)
        return max(GROUPS_INTERVAL_S, self.groups.took_s / GROUPS_SHARE)

    # --- checking -----------------------------------------------------------

    def _check_lock(self) -> None:
        if self.lock is None:
            return
        self.stop(self.lock.lost)
        if self.limits.fail_closed and (doubt := self.lock.doubt) is not None:
            self.stop(f"{doubt}; {self.key_words('fail_closed')} requires the lock")

    def _stop_request(self, broker: int | None = None) -> str | None:
        """A sentence about the stop topic that an operator created to stop all runs; None if no
        stop topic exists.

        Args:
            broker: id of the broker that receives the request; any broker by default.

        Raises:
            AdminError: the broker, or the cluster, does not answer.
        """
        for name in self._stop_topics:
            if self.health.has_topic(name, broker):
                return (
                    f"the topic {name} exists, which an operator creates to stop all runs; delete "
                    "the topic before the next run"
                )
        return None

    @property
    def _stop_topics(self) -> frozenset[str]:
        """The stop topic of the goal, and the stop topics of the cluster's owners."""
        of_owners = (each.given.get("stop_topic") for each in self.owner_bounds.values())
        return frozenset(filter(None, (self.limits.stop_topic, *of_owners)))

    def require_or_warn(self, text: str) -> None:
        """Warn that a condition cannot be watched; with `fail_closed`, refuse the load.

        Args:
            text: a sentence about the condition.

        Raises:
            ConfigError: the limits have `fail_closed`.
        """
        if not self.limits.fail_closed:
            self.warn(text)
            return
        raise ConfigError(f"{text}; {self.key_words('fail_closed')} is true, so no load begins")

    def _check(self, lacking: Callable[[], float | None] | None = None) -> None:
        """Check the cluster.

        Args:
            lacking: see `watch`; None between loads. Under a load, topics and log directories are
                read only if a reading is due. Under a load, other threads check the stop topic and
                the canaries.
        """
        self._check_lock()
        try:
            stop = self._stop_request() if lacking is None else None
            short = self._others_under_replicated(lacking)
            missing = frozenset() if self.absence is None else self.absence.missing()
            self.stop(stop)
            self._judge_replicas(short, missing)
            dirs = self._due_log_dirs(is_paced=lacking is not None)
        except AdminError as error:
            if self.clock() - self._checked_s > BLIND_S:
                self.stop(f"the cluster could not be watched for {BLIND_S:.0f} s: {error}")
            return
        self._checked_s = self.clock()
        if lacking is None:
            self._check_clients()
        self._warn_of_unseen(dirs)
        limits = self.limits
        for each in dirs:
            trouble = each.trouble(limits.disk_free_bytes_min, limits.disk_used_share_max)
            trouble = trouble or self._fill_rate_violation(each, self._checked_s)
            self.stop(trouble if each.is_known else None)

    def _judge_replicas(self, lacking: Partitions, missing: frozenset[int]) -> None:
        """Stop the run or end the load if partitions of other clients have lost a replica.

        Args:
            lacking: the under-replicated partitions of other clients.
            missing: ids of the brokers that left the cluster.
        """
        fresh, words = sorted(lacking - self._under_replicated), None
        if fresh:
            named = format_some(f"partition {each} of the topic {topic}" for topic, each in fresh)
            words = (
                f"{named}, which this run did not create, became under-replicated"
                f"{self._offline_dirs_clause()}"
            )
        if self.absence is not None:
            self.absence.note(missing, words, self.clock())
        else:
            self.stop(words)
        if self.absence is None or self.absence.why is None:
            self._under_replicated = lacking

    def _check_clients(self) -> float:
        """Stop the run if requests of other clients fail or wait too long, and if this has lasted
        for `HARM_S`.

        Returns:
            The time until the next check while a load runs [s].
        """
        canaries = self.canaries
        if canaries is None or self.limits.canary_p99_ms_max is None:
            return INTERVAL_S
        was_blind, self._is_blind = self._is_blind, canaries.blind_s > BLIND_S
        words = (
            f"the canaries have had no connection for {canaries.blind_s:.0f} s, so no guard "
            f"watches the latency of other clients: {canaries.trouble or 'no answer'}"
        )
        if self._is_blind and self.limits.fail_closed:
            self.stop(words)
        elif self._is_blind and not was_blind:
            self.warn(words)
        seen = OthersSeen(canary=canaries.worst())
        self.stop(self.lasting_harm(seen, "canary_p99_ms_max"))
        return INTERVAL_S

    def lasting_harm(self, seen: OthersSeen, *keys: str) -> str | None:
        """A sentence about harm to other clients that has lasted for `HARM_S`; None without such
        harm.

        While a broker is absent, harm is ignored, because the absence itself affects other clients.

        Args:
            seen: the present readings of other clients.
            keys: keys of the limits whose rules are applied; see `harm_rules.RULES`.
        """
        is_away = self.absence is not None and self.absence.why is not None
        now_s, lasting = self.clock(), None
        for key in keys:
            words = None if is_away else harm(key, seen, self.limits)
            if words is None:
                self._harm_since_s.pop(key, None)
                continue
            lasts_s = now_s - self._harm_since_s.setdefault(key, now_s)
            if lasts_s >= HARM_S and lasting is None:
                lasting = f"for {lasts_s:.0f} s, {words}{self._by(key)}"
        return lasting

    def _offline_dirs_clause(self) -> str:
        """A clause that explains missing replicas by failed log directories; empty if no directory
        failed.
        """
        try:
            gone = [each for each in self.health.log_dirs() if each.is_offline]
        except AdminError:
            return ""
        if not gone:
            return ""
        named = format_some(f"{each.path} of broker {each.broker_id}" for each in gone)
        return f", because the log directory {named} is offline: its disk is full or fails"

    def stop(self, why: str | None) -> None:
        """Stop the run for a reason. Without a reason, nothing changes. Only the first reason is
        kept.

        The caller ends a running load.
        """
        self.tripped = self.tripped or why

    def _others_under_replicated(
        self, lacking: Callable[[], float | None] | None = None
    ) -> Partitions:
        """The under-replicated partitions that do not belong to the run. The brokers are asked
        again only if the last answer is too old.
        """
        if not self.limits.other_topics:
            return frozenset()
        asks_otherwise = self._watches_disks or self.absence is not None  # detects silent brokers
        if lacking is not None and asks_otherwise and lacking() == 0:
            self._others_lacking = frozenset()
            return self._others_lacking
        now_s = self.clock()
        if lacking is None or now_s - self._replicas_seen_s >= self.health.replicas_interval_s:
            found = self.health.under_replicated()
            self._others_lacking = frozenset(each for each in found if not self.is_own(each[0]))
            self._replicas_seen_s = now_s
        return self._others_lacking

    def _due_log_dirs(self, is_paced: bool) -> tuple[LogDir, ...]:
        """The log directories; empty if no guard watches them, or if no reading is due."""
        now_s = self.clock()
        interval_s = min(self.health.log_dirs_interval_s, INTERVAL_MAX_S)
        if not self._watches_disks or (is_paced and now_s - self._dirs_seen_s < interval_s):
            return ()
        found = self.health.log_dirs()
        self._dirs_seen_s = now_s
        return found

    def _warn_of_hidden_topics(self) -> None:
        """Warn if the user may not describe all topics, because the guard cannot watch hidden
        topics.
        """
        hidden = self.health.hidden_topics() if self.limits.other_topics else frozenset()
        if hidden is None and self.limits.fail_closed:
            self.require_or_warn(
                "the guard of other topics cannot check whether it sees all topics, because this "
                "user may not read the brokers' log directories; grant the user the ACL Describe "
                "on the cluster"
            )
        if hidden:
            self.require_or_warn(
                "the guard of other topics cannot watch the topics that this user may not describe "
                f"({len(hidden)}, {min(hidden)} among them); grant the user the ACL Describe on "
                "all topics, or set guards.other_topics: false"
            )

    def _choose_groups(self) -> None:
        """Choose the consumer groups whose lag is watched, and warn of groups that this user may
        not see.
        """
        groups, self.groups = self.groups, None
        if groups is None or not self.limits.others_lag_s_max:
            return
        blind, acl = "so no guard watches their lag", "grant the user the ACL Describe on groups"
        try:
            watched = groups.choose()
        except AdminError as error:
            self.require_or_warn(f"consumer groups cannot be listed, {blind}: {error}")
            return
        if hidden := groups.hidden:
            self.require_or_warn(
                f"this user may not describe {len(hidden)} consumer groups, {hidden[0]} among "
                f"them, {blind}; {acl}, or set guards.others_lag_s_max: null"
            )
        elif not watched and self.health.hidden_topics() is None:
            self.require_or_warn(
                "this user sees no consumer groups of other clients and may not describe the "
                f"cluster, {blind}; {acl} and the cluster, or set guards.others_lag_s_max: null"
            )
        self.groups = groups if watched else None

    def _can_watch_disks(self) -> bool:
        limits = self.limits
        if not limits.disk_free_bytes_min and limits.disk_used_share_max is None:
            return False
        dirs = self.health.log_dirs()
        if any(each.is_known for each in dirs):
            return True
        problem = "the brokers do not report how full their disks are" + (
            f" ({_unknown_words(dirs)})" if dirs else ""
        )
        needs = "this requires Kafka 3.3 or later and the ACL Describe on the cluster"
        names = ("disk_free_bytes_min", "disk_used_share_max")
        for name in names:
            if by := self._by(name):
                raise ConfigError(
                    f"{name} cannot be watched{by}: {problem}; {needs}; grant the user the ACL"
                )
        given = [name for name in names if name in self._given and getattr(limits, name)]
        if given:
            keys = " and ".join(f"guards.{name}" for name in given)
            options = " ".join(f"--set goal.guards.{name}=null" for name in given)
            raise ConfigError(
                f"goal {keys} cannot be watched: {problem}; {needs}; grant the user the ACL, or "
                f"run without this guard: {options}"
            )
        self.warn(f"{problem}, so no guard watches the disks; {needs}")
        return False

    def _warn_of_unseen(self, dirs: Sequence[LogDir]) -> None:
        """Warn of log directories for which the brokers report no size; warn only once of each
        directory.
        """
        unknown = [each for each in dirs if not each.is_known]
        fresh = [each for each in unknown if (each.broker_id, each.path) not in self._unseen]
        self._unseen.update((each.broker_id, each.path) for each in fresh)
        if fresh:
            self.warn(
                f"the guard of the disks cannot watch {len(unknown)} of {len(dirs)} log "
                f"directories: {_unknown_words(fresh)}; it watches the other directories"
            )


def _unknown_words(dirs: Sequence[LogDir]) -> str:
    """A clause about these log directories: it contains the first few names, and the number of the
    remaining directories.
    """
    return format_some((each.unknown_words for each in dirs), _NAMED_MAX)
