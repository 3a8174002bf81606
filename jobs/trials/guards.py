"""Guards: conditions that end a run at once to protect a cluster that others use."""

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
"""Interval between two checks while a load runs [s]; slow checks make it longer."""

BRAKE_INTERVAL_S = 1.0
"""Interval between two looks for the topic that ends a load [s]; each is one small request."""
BRAKE_LOOKERS = 3
"""Brokers that are asked for this topic at the same time, so that one that hangs hides nothing."""

OWNER_INTERVAL_S = 2.0
"""Interval between two looks at the owner's bounds while a load runs [s]; each is two small
requests."""

GROUPS_INTERVAL_S = 10.0
"""Interval between two looks at the lag of groups of others while a load runs [s]."""
GROUPS_SHARE = 0.02
"""Largest share of the time for which these looks wait for brokers; slow ones are rarer [ratio]."""

USED_SHARE_MAX = 0.9
"""Largest used share of a log directory's volume on brokers that others use [ratio]."""

AHEAD_S, RATE_OVER_S = 10.0, 5.0
"""A run stops when a log directory would reach its limit within `AHEAD_S` at the rate of the last
`RATE_OVER_S` [s]."""

STOP = "stop"
"""The end of the name of the topic that stops a run; `cluster.name_prefix` comes before it."""

HARM_S = 15.0
"""Harm to others stops the run when it lasts for so long: longer than a certain overload [s]."""

_NAMED_MAX = 3
"""Largest number of log directories that a message names."""

BLIND_S = 30.0
"""A run stops when the cluster could not be checked for longer than this [s]."""


def open_guards(
    config: Configuration,
    admin: KafkaAdmin,
    run_id: str,
    reporter: Reporter,
    lock: ClusterLock | None = None,
    until_s: float | None = None,
    open_canaries: Callable[[], Canaries | None] | None = None,
) -> Guards:
    """The guards of a run, after a first check of the cluster; see `Guards.open`.

    Args:
        lock, open_canaries: see `Guards`.
        until_s: the time that no load may pass; None for none [s since the epoch].
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
        open_canaries=None if is_exclusive else open_canaries,
    )
    if guards.owner_words:
        note(reporter, guards.owner_words)
    for topic in owners.hidden:
        warn(
            reporter,
            f"this user may not describe the topic {topic}, so bounds that the cluster's owner may "
            "have stated there do not apply; grant the ACL Read on it",
        )
    guards.open()
    return guards


@dataclass
class Guards:
    """Watches a run, and stops it by `GuardStopError` (exit code 5).

    Args:
        limits: the goal's section `guards`.
        is_own: whether the topic of this name belongs to the run.
        warn: receives a sentence on each thing that the guards cannot watch.
        clock: monotonic time [s].
        lock: the lock of the cluster; None for a run without it.
        cleaning: the delays with which the brokers delete; Kafka's defaults by default.
        used_share_default: `disk_used_share_max` where the goal does not have this key [ratio].
        owner: returns the bounds of the cluster's owner by their topic; none by default.
        times: when loads are allowed; at any time by default.
        serving: returns the ids of the brokers that serve a cluster of others; None where a lack of
            replicas ends the run.
        groups: consumer groups of others, whose lag is watched; None without them.
        open_canaries: opens clients that show how long others wait; None without them.

    Attributes:
        limits: the strictest of the goal's limits and the owner's bounds.
        absence: the brokers that left a cluster of others.
        canaries: the clients that show how long others wait.
        tripped: why the run has to stop, or None.
        spent_bytes: payload that the run has written, all replicas counted [B].
        owner_bounds: the bounds by their topic, as read last.
        loaded_until_s: when the last load ended; None before the first [s since the epoch].

    Raises:
        ConfigError: there are bounds of an owner that cannot be read or are malformed.
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
    open_canaries: Callable[[], Canaries | None] | None = None

    def __post_init__(self) -> None:
        """Take the strictest limits, and begin without any look at the cluster."""
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
        self._unseen: frozenset[tuple[int, str]] = frozenset()
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
        """Check the cluster, and whether it may be loaded now, before any load.

        Raises:
            ConfigError: the goal has a limit of the disks, and no broker reports any.
            AdminError: the cluster does not answer.
            GuardStopError: a disk is beyond its limit already, or it is no time for loads.
        """
        self._require_time(0.0)
        self._watches_disks = self._can_watch_disks()
        if self._watches_disks and not self.limits.other_topics:
            self.health.under_replicated()  # the number of replicas sets the pace of other looks
        self.accept_current_state()
        self._warn_of_hidden_topics()
        for name in sorted(self._stop_topics):
            if self.health.has_topic(name) is None:
                self.require_or_warn(
                    f"this user may not describe the topic {name}, so an operator cannot end the "
                    "load by creating it; grant the ACL Describe on it, or set "
                    "guards.stop_topic: null"
                )
        brokers = self.health.broker_ids()
        parts = (brokers[n::BRAKE_LOOKERS] for n in range(BRAKE_LOOKERS))
        self._brakes = tuple(cycle(each) for each in parts if each)
        self.require_healthy()
        self._choose_groups()
        if self.open_canaries is not None and self.limits.canary_p99_ms_max:
            self.canaries = self.open_canaries()
            if self.canaries is None and self.limits.fail_closed:
                self.require_or_warn("there are no canaries")

    def read_bounds(self) -> bool:
        """Read the owner's bounds, and take the strictest limits; whether they changed.

        Raises:
            ConfigError: there are bounds that cannot be read or are malformed.
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
        """A sentence on the bounds of the cluster's owner; empty without any."""
        stated = (
            f"{', '.join(f'{key} {value}' for key, value in bounds.given.items()) or 'none'} "
            f"(topic {topic})"
            for topic, bounds in self.owner_bounds.items()
        )
        words = " and ".join(stated)
        return f"bounds of the cluster's owner: {words}" if words else ""

    def key_words(self, name: str) -> str:
        """A limit by its key, such as `guards.np_max`, or by its key and its owner's topic."""
        for topic, bounds in self.owner_bounds.items():
            if name in bounds.given and getattr(self.limits, name) == bounds.given[name]:
                return f"{name} of the cluster's owner in the topic {topic}"
        return f"guards.{name}"

    def _by(self, name: str) -> str:
        """A clause that names the owner's topic where it states a limit that holds."""
        words = self.key_words(name)
        return "" if words.startswith("guards.") else f" ({words})"

    def _take_bounds(self, pattern: TrafficPattern) -> float:
        """Read the owner's bounds again, and trip where a load exceeds new ones.

        Returns the time until the next look while a load runs [s].
        """
        try:
            changed = self.read_bounds()
        except AdminError as error:
            blind_s = self.clock() - self._bounds_read_s
            if self.limits.fail_closed and blind_s > BLIND_S:
                self.stop(f"the owner's bounds could not be read for {blind_s:.0f} s: {error}")
            return OWNER_INTERVAL_S
        except ConfigError as error:
            self.stop(str(error))
            return OWNER_INTERVAL_S
        if changed:
            self.warn(f"{self.owner_words or 'the cluster has no owner'}, from now on")
            self.stop(self.cap_violation(pattern))
        if self.times.owner_hours:
            self.stop(self.times.refusal(time.time(), 0.0))
        return OWNER_INTERVAL_S

    def accept_current_state(self) -> None:
        """Accept the partitions that are under-replicated now, at the start of a broker outage.

        Raises:
            AdminError: the cluster does not answer.
        """
        self._under_replicated = self._others_under_replicated()

    # --- before a load ------------------------------------------------------

    def cap_violation(self, pattern: TrafficPattern) -> str | None:
        """A sentence on the cap that this traffic would exceed, or None."""
        if (found := self.limits.load_violation(pattern)) is not None:
            return f"{found[1]}{self._by(found[0])}"
        most, bytes_ = self.limits.write_bytes_max, pattern.planned_bytes
        if most is not None and not isfinite(bytes_):
            return self._overspent(0.0)
        if most is not None and self.spent_bytes + bytes_ > most:
            return (
                f"{format_volume(self.spent_bytes)} of payload are written in all replicas, "
                f"and the next load could add {format_volume(bytes_)}: more than "
                f"{format_volume(most)} in all{self._by('write_bytes_max')}"
            )
        return None

    def _overspent(self, under_way_bytes: float) -> str | None:
        """A sentence on a load without a planned volume that has written its limit, or None."""
        most, written = self.limits.write_bytes_max, self.spent_bytes + under_way_bytes
        if most is None or written < most:
            return None
        return (
            f"{format_volume(written)} of payload are written in all replicas, and the limit is "
            f"{format_volume(most)}{self._by('write_bytes_max')}"
        )

    def admit(self, pattern: TrafficPattern) -> None:
        """Check that a load may begin.

        Raises:
            GuardStopError: the load exceeds a cap or the time for loads, or the cluster is not
                healthy.
        """
        self._take_bounds(pattern)
        self._require_time(pattern.phases.load_s)
        self.stop(self.cap_violation(pattern))
        self.require_room(pattern)
        self.require_healthy()

    def refusal(self, pattern: TrafficPattern) -> str | None:
        """Why a load may not begin, or None; `admit` would stop the run for it."""
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
        """Check that each log directory has room for a load.

        Args:
            topics: the topics of the load, once they exist; without them the load counts as
                spread evenly over all directories.

        Raises:
            GuardStopError: the load could fill a directory beyond its limit.
        """
        self.stop(self._lack_of_room(pattern, topics))
        self.require_untripped()

    def _lack_of_room(self, pattern: TrafficPattern, topics: Sequence[str]) -> str | None:
        """A sentence on the log directory that could fill beyond its limit, or None."""
        try:
            dirs = self.health.log_dirs(topics) if self._watches_disks else ()
        except AdminError:  # the next check reports it
            return None
        held, logs = (sum(getattr(d, name) for d in dirs) for name in ("own_bytes", "own_logs"))
        adds_in_all = peak_log_bytes(pattern, self.cleaning, held)
        if logs and not all(d.is_known for d in dirs):  # some logs are where no broker reports them
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
                    f"the next load can add {format_volume(adds)} to {each.words}, where "
                    f"{format_volume(max(0.0, room))} may be written: "
                    f"{format_volume(each.usable_bytes)} are free, and the guards reserve a part "
                    "of it; lower topic.config.retention.bytes, load for a shorter time, or free "
                    "disk space"
                )
        return None

    def _room(self, each: LogDir) -> float:
        limits = self.limits
        return each.room_bytes(limits.disk_free_bytes_min, limits.disk_used_share_max)

    def _fill_rate_violation(self, each: LogDir, now: float) -> str | None:
        """A sentence on a log directory that will soon reach its limit, or None."""
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
            f"{each.words} fills at {format_volume(rate)} a second and has room for "
            f"{max(0.0, room / rate):.0f} s"
        )

    def settle(self, pattern: TrafficPattern, client: ClientWindow | None) -> None:
        """Count the payload of a load that has ended; without an account it counts in full.

        A lost lock trips here, too: another run may have loaded the cluster at the same time, so
        the measurement is not valid.
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
            GuardStopError: a guard tripped, now or before.
        """
        if self.tripped is None:
            self._check()
        self.await_whole()
        self.require_untripped()

    @property
    def ends_load(self) -> str | None:
        """Why the load has to end now: a guard that tripped, or a broker that left; or None."""
        return self.tripped or (None if self.absence is None else self.absence.why)

    def await_whole(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until all brokers serve and the partitions of others are in sync again.

        Raises:
            GuardStopError: a guard tripped, or the cluster is not whole in time.
        """
        absence = self.absence
        if absence is None or absence.why is None:
            return
        self.warn(f"{absence.why}: the load has ended, and the run waits until it is whole again")
        while absence.why is not None:
            self.require_untripped()
            self.stop(absence.stop_reason(self.clock()))
            if self.tripped is None:
                pause(max(LOOK_S, self.health.replicas_interval_s))
                self._check()

    def require_untripped(self) -> None:
        """Stop the run when a guard has tripped.

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
        """Replace errors in the block by the guard's own error when a guard has tripped.

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
        """Check the cluster while a load runs, and end the load when a guard trips.

        Args:
            lacking: the number of partitions without all replicas in sync, as the brokers'
                metrics show it now; None where they do not. While it is 0, brokers are not asked
                for all topics.
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
        """Look once while the load may continue, and end the load where it may not.

        Returns the time until the next look [s], or None for no further look.
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
        """Check the written volume and the cluster; returns the time until the next look [s]."""
        began_s = self.clock()
        self.stop(self._overspent(pattern.written_bytes(channel.written)))
        try:
            self._check(lacking)
        except Exception as error:  # noqa: BLE001 - no load may continue without its guards
            self.stop(f"the cluster could not be watched: {type(error).__name__}: {error}")
        return min(max(INTERVAL_S, 3 * (self.clock() - began_s)), INTERVAL_MAX_S)

    def _look_for_brake(self, brokers: Iterator[int]) -> float:
        """Ask the next broker for the operator's topic; returns the time until the next look [s].

        Others are asked at the same time, each on a thread of its own.
        """
        try:
            self.stop(self._stop_request(next(brokers)))
            self._brake_seen_s, self._brake_errors = self.clock(), 0
        except Exception as error:  # noqa: BLE001 - no load may continue without its brake
            self._note_unseen_brake(error)
        return BRAKE_INTERVAL_S

    def _note_unseen_brake(self, error: Exception) -> None:
        """Count a look for the operator's topic that failed; trip where all do for long."""
        self._brake_errors += 1
        unseen_s = self.clock() - self._brake_seen_s
        what = " or ".join(sorted(self._stop_topics))
        words = (
            f"no broker has answered for {unseen_s:.0f} s whether the topic {what} exists "
            f"({self._brake_errors} looks failed): {error}"
        )
        if unseen_s > BLIND_S:
            self.stop(words)
        elif self._brake_errors == BRAKE_LOOKERS * 3:
            self.warn(f"{words}; the load ends after {BLIND_S:.0f} s")

    def _look_at_groups(self, looks: Iterator[int]) -> float | None:
        """Look for groups of others that fall behind; returns the time to the next look [s].

        Args:
            looks: numbers of the looks under this load, from 0, at its start.
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
            self._note_unread_groups(self.groups, error)
        return max(GROUPS_INTERVAL_S, self.groups.took_s / GROUPS_SHARE)

    def _note_unread_groups(self, groups: GroupLags, error: AdminError) -> None:
        """Choose groups anew where topics are gone, and warn of a long silence, or trip."""
        if error.cause == "UnknownTopicOrPartitionError":
            with suppress(AdminError):
                groups.choose()
        unread_s = self.clock() - self._groups_read_s
        text = f"the lag of other consumer groups could not be read for {unread_s:.0f} s: {error}"
        was_unread, self._are_groups_unread = self._are_groups_unread, unread_s > 2 * BLIND_S
        if self._are_groups_unread and not was_unread:
            self.warn(text)
        if self._are_groups_unread and self.limits.fail_closed:
            self.stop(text)

    # --- checking -----------------------------------------------------------

    def _check_lock(self) -> None:
        if self.lock is None:
            return
        self.stop(self.lock.lost)
        if self.limits.fail_closed and (doubt := self.lock.doubt) is not None:
            self.stop(f"{doubt}; {self.key_words('fail_closed')} requires it")

    def _stop_request(self, broker: int | None = None) -> str | None:
        """A sentence on the topic by which an operator stops all runs; None while it is absent.

        Args:
            broker: the broker that is asked; any by default.

        Raises:
            AdminError: the broker, or the cluster, does not answer.
        """
        for name in self._stop_topics:
            if self.health.has_topic(name, broker):
                return (
                    f"the topic {name} exists, by which an operator stops all runs; delete it "
                    "afterwards"
                )
        return None

    @property
    def _stop_topics(self) -> frozenset[str]:
        """The topic of the goal, and those that owners state beside it."""
        of_owners = (each.given.get("stop_topic") for each in self.owner_bounds.values())
        return frozenset(filter(None, (self.limits.stop_topic, *of_owners)))

    def require_or_warn(self, text: str) -> None:
        """Warn of a thing that cannot be watched, or refuse the load where limits fail closed.

        Raises:
            ConfigError: `fail_closed` is on.
        """
        if not self.limits.fail_closed:
            self.warn(text)
            return
        raise ConfigError(f"{text}; no load begins without it ({self.key_words('fail_closed')})")

    def _check(self, lacking: Callable[[], float | None] | None = None) -> None:
        """Check the cluster.

        Args:
            lacking: see `watch`; None between loads. Under a load, all topics and all log
                directories are asked for only where that is due; the brake and the canaries have
                looks of their own then, which wait for no other answer.
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
        """Trip, or end the load, where partitions of others have lost a replica.

        Args:
            missing: brokers that left the cluster.
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
        """Trip where clients fail or wait too long, for longer than an overload may last.

        Returns the time until the next look while a load runs [s].
        """
        canaries = self.canaries
        if canaries is None or self.limits.canary_p99_ms_max is None:
            return INTERVAL_S
        was_blind, self._is_blind = self._is_blind, canaries.blind_s > BLIND_S
        words = (
            f"the canaries have had no connection for {canaries.blind_s:.0f} s, so no guard "
            f"watches how long other clients wait: {canaries.trouble or 'no answer'}"
        )
        if self._is_blind and self.limits.fail_closed:
            self.stop(words)
        elif self._is_blind and not was_blind:
            self.warn(words)
        seen = OthersSeen(canary=canaries.worst())
        self.stop(self.lasting_harm(seen, "canary_p99_ms_max"))
        return INTERVAL_S

    def lasting_harm(self, seen: OthersSeen, *keys: str) -> str | None:
        """A sentence on harm to others that has lasted for `HARM_S`, with its time; None else.

        While a broker is away, others are harmed without any load, so nothing counts.

        Args:
            keys: keys of the limits whose rules judge; see `harm_rules.RULES`.
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
        """The reason why replicas are missing where a log directory failed, or an empty text."""
        try:
            gone = [each for each in self.health.log_dirs() if each.is_offline]
        except AdminError:
            return ""
        if not gone:
            return ""
        named = format_some(f"{each.path} of broker {each.broker_id}" for each in gone)
        return f", as the log directory {named} is offline: its disk is full or fails"

    def stop(self, why: str | None) -> None:
        """Stop the run for a reason, if there is one; the first counts.

        The caller ends a load that runs.
        """
        self.tripped = self.tripped or why

    def _others_under_replicated(
        self, lacking: Callable[[], float | None] | None = None
    ) -> Partitions:
        """Partitions of others that lack a replica; as last seen where no look is due."""
        if not self.limits.other_topics:
            return frozenset()
        asks_otherwise = self._watches_disks or self.absence is not None  # notices silent brokers
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
        """The log directories; none where they are not watched, or no look is due."""
        now_s = self.clock()
        interval_s = min(self.health.log_dirs_interval_s, INTERVAL_MAX_S)
        if not self._watches_disks or (is_paced and now_s - self._dirs_seen_s < interval_s):
            return ()
        found = self.health.log_dirs()
        self._dirs_seen_s = now_s
        return found

    def _warn_of_hidden_topics(self) -> None:
        """Warn when the user may not describe all topics, as the guard cannot watch those."""
        hidden = self.health.hidden_topics() if self.limits.other_topics else frozenset()
        if hidden is None and self.limits.fail_closed:
            self.require_or_warn(
                "the guard of other topics cannot know whether it sees all of them, as this user "
                "may not read the brokers' log directories; grant it the ACL Describe on the "
                "cluster"
            )
        if hidden:
            self.require_or_warn(
                f"the guard of other topics cannot see {len(hidden)} of them, {min(hidden)} "
                "among them, as this user may not describe them; grant it the ACL Describe on all "
                "topics, or set guards.other_topics: false"
            )

    def _choose_groups(self) -> None:
        """Choose the groups whose lag is watched, and warn of those that this user may not see."""
        groups, self.groups = self.groups, None
        if groups is None or not self.limits.others_lag_s_max:
            return
        blind, acl = "so no guard watches their lag", "grant the ACL Describe on groups"
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
                "this user may not describe the cluster, and sees no consumer group of others, "
                f"{blind}; {acl} and on the cluster, or set guards.others_lag_s_max: null"
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
                    f"{name} cannot be watched{by}: {problem}; {needs}; grant the ACL"
                )
        given = [name for name in names if name in self._given and getattr(limits, name)]
        if given:
            keys = " and ".join(f"guards.{name}" for name in given)
            options = " ".join(f"--set goal.guards.{name}=null" for name in given)
            raise ConfigError(
                f"goal {keys} cannot be watched: {problem}; {needs}; grant the ACL, or run "
                f"without this guard: {options}"
            )
        self.warn(f"{problem}, so no guard watches the disks; {needs}")
        return False

    def _warn_of_unseen(self, dirs: Sequence[LogDir]) -> None:
        """Warn once of each log directory whose size its broker does not report."""
        unknown = [each for each in dirs if not each.is_known]
        unseen = frozenset((each.broker_id, each.path) for each in unknown)
        fresh = [each for each in unknown if (each.broker_id, each.path) not in self._unseen]
        self._unseen |= unseen
        if fresh:
            self.warn(
                f"the guard of the disks cannot see {len(unknown)} of {len(dirs)} log directories: "
                f"{_unknown_words(fresh)}; it watches the others"
            )


def _unknown_words(dirs: Sequence[LogDir]) -> str:
    """A clause on the first log directories that are not reported, and the number of the rest."""
    return format_some((each.unknown_words for each in dirs), _NAMED_MAX)
