"""The health of a whole cluster: under-replicated partitions, disks and hidden topics.

The module also reads the lag of other users' consumer groups with a few small requests.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka.errors import KafkaStorageError, TopicAuthorizationFailedError

from jobs.cluster.admin import NOT_SUPPORTED, AdminError, KafkaAdmin, query_all_brokers
from metrics.common.grouping import grouped
from metrics.sources.source import log_dirs_interval_s, topics_interval_s
from metrics.units import format_size

UNKNOWN_BYTES = -1
"""Value of a volume's size and free space if the broker does not report them (before Kafka 3.3)."""

NOT_SERVED = ("ClusterAuthorizationFailedError", *NOT_SUPPORTED)
"""Causes of an `AdminError` if a broker does not serve requests for its log directories."""

BROKERS_QUERIED = 3
"""Number of brokers that are queried for all topics on their disks."""

Answer = TypeVar("Answer")

Partitions = frozenset[tuple[str, int]]
"""Partitions as (topic, number)."""


@dataclass(frozen=True)
class LogDir:
    """A log directory of a broker, and the volume of the directory.

    If a broker reports no log directory, one `LogDir` without a path and without sizes stands for
    the broker's directories.

    Attributes:
        total_bytes, usable_bytes: size and free space of the volume [B], or `UNKNOWN_BYTES`.
        own_logs: how many replicas of this run's topics are in the directory.
        own_bytes: how much space [B] the replicas of this run's topics take in the directory.
        is_offline: whether the broker stopped using the directory, because its disk failed.
    """

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    own_logs: int = 0
    own_bytes: int = 0
    is_offline: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the broker reports the size and the free space of the volume."""
        return self.total_bytes > 0 and self.usable_bytes >= 0

    @property
    def volume(self) -> tuple[int, int, int]:
        """A key of the volume: directories of one broker on one volume have equal keys."""
        return self.broker_id, self.total_bytes, self.usable_bytes

    @property
    def used_share(self) -> float:
        """Used share of the volume [ratio]."""
        return 1.0 - self.usable_bytes / self.total_bytes

    def room_bytes(self, free_bytes_min: int | None, used_share_max: float | None) -> float:
        """Bytes that can be written before the volume exceeds a limit [B]; negative if the volume
        exceeds the limit now.
        """
        kept = float(free_bytes_min or 0)
        if used_share_max is not None:
            kept = max(kept, (1.0 - used_share_max) * self.total_bytes)
        return self.usable_bytes - kept

    @property
    def words(self) -> str:
        """The volume's name in messages."""
        return f"the volume of {self.path} of broker {self.broker_id}"

    @property
    def unknown_words(self) -> str:
        """A clause that states which sizes the broker does not report."""
        if not self.path:
            return f"broker {self.broker_id} reports no log directory"
        if self.is_offline:
            return f"{self.path} of broker {self.broker_id} is offline"
        return f"broker {self.broker_id} does not report the size of {self.path}"

    def trouble(self, free_bytes_min: int | None, used_share_max: float | None) -> str | None:
        """A clause that states which limit the volume exceeds; None if it exceeds no limit."""
        if free_bytes_min is not None and self.usable_bytes < free_bytes_min:
            free, least = format_size(self.usable_bytes), format_size(free_bytes_min)
            return f"{self.words} has {free} left, less than {least}"
        if used_share_max is not None and self.used_share > used_share_max:
            return f"{self.words} is {self.used_share:.1%} full, more than {used_share_max:.1%}"
        return None


class ClusterHealth:
    """Checks of the whole cluster through the Admin API.

    Attributes:
        partitions: number of partitions in the last answer about all topics; 0 before the first
            answer.
        replicas_max: the largest number of replicas on one broker, according to the last answer.
    """

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin
        self.partitions = 0
        self.replicas_max = 0

    @property
    def replicas_interval_s(self) -> float:
        """Shortest time between two calls of `under_replicated` while a load runs [s]."""
        return topics_interval_s(self.partitions)

    @property
    def log_dirs_interval_s(self) -> float:
        """Shortest time between two calls of `log_dirs` while a load runs [s]."""
        return log_dirs_interval_s(self.replicas_max)

    def under_replicated(self) -> Partitions:
        """The under-replicated partitions of all topics that this user may describe.

        A missing replica does not count if a reassignment is still copying it.

        Raises:
            AdminError: the cluster does not answer.
        """
        described = self._admin.describe_topics()
        parts = {
            (topic.name, number): each
            for topic in described
            for number, each in topic.partitions.items()
        }
        replicas = Counter(broker for each in parts.values() for broker in each.replicas)
        self.partitions, self.replicas_max = len(parts), max(replicas.values(), default=0)
        lacking = {
            place: frozenset(each.replicas) - frozenset(each.isr)
            for place, each in parts.items()
            if len(each.isr) < len(each.replicas)
        }
        adding = self._adding(grouped(lacking)) if lacking else {}
        return frozenset(
            place for place, out in lacking.items() if out - adding.get(place, frozenset())
        )

    def _adding(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> dict[tuple[str, int], frozenset[int]]:
        """The replicas that reassignments are adding; empty if brokers do not list them."""
        try:
            return self._admin.adding_replicas(partitions)
        except AdminError:  # no ACL Describe on the cluster, or brokers before 2.4
            return {}

    def is_reassigning(self) -> bool:
        """Whether a reassignment copies replicas now; False if brokers do not list
        reassignments.
        """
        return any(self._adding().values())

    def log_dirs(self, topics: Sequence[str] = ()) -> tuple[LogDir, ...]:
        """The log directories of all brokers. If a broker reports no directory, one `LogDir`
        without a path and without sizes stands for the broker's directories.

        Args:
            topics: topics whose replicas are counted in each directory. The replicas of other
                topics are not requested, because there may be thousands.

        Raises:
            AdminError: a broker does not answer.
        """
        brokers = self._admin.describe_cluster().broker_ids
        held = self._held(topics)

        def look(broker: int) -> list[LogDir]:
            answer = _if_served(self._admin.log_dirs_of, broker, held.get(broker, {}))
            unknown = LogDir(broker, "", UNKNOWN_BYTES, UNKNOWN_BYTES)
            return [_log_dir_in(broker, each) for each in answer or ()] or [unknown]

        return tuple(each for found in query_all_brokers(look, brokers) for each in found)

    def _held(self, topics: Sequence[str]) -> dict[int, dict[str, list[int]]]:
        """Broker id → topic → the topic's partitions that have a replica on the broker."""
        described = self._admin.describe_topics(f"look at {len(topics)} topics", topics)
        held: dict[int, dict[str, list[int]]] = {}
        for topic in described:
            for number, each in topic.partitions.items():
                for broker in each.replicas:
                    held.setdefault(broker, {}).setdefault(topic.name, []).append(number)
        return held

    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that serve clients.

        Raises:
            AdminError: the cluster does not answer.
        """
        return self._admin.describe_cluster().broker_ids

    def has_topic(self, name: str, broker: int | None = None) -> bool | None:
        """Whether a topic exists; None if this user may not describe the topic.

        Args:
            broker: the broker that receives the request; any broker by default.

        Raises:
            AdminError: the broker, or the cluster, does not answer.
        """
        found = self._admin.describe_topics(f"look for the topic {name}", [name], broker)
        if any(each.error_code == TopicAuthorizationFailedError.errno for each in found):
            return None
        return any(each.partitions for each in found)

    def hidden_topics(self) -> frozenset[str] | None:
        """Topics that exist on the brokers, but that this user may not describe.

        Only `BROKERS_QUERIED` brokers are queried. A few brokers are enough, because other users'
        topics are hidden on every broker if the user lacks the permission.

        Returns:
            None if this user may not read the brokers' log directories.

        Raises:
            AdminError: the cluster does not answer.
        """
        brokers = self._admin.describe_cluster().broker_ids[:BROKERS_QUERIED]
        answers = [_if_served(self._admin.topics_held_by, each) for each in brokers]
        held = [each for each in answers if each is not None]
        if not held:
            return None
        unseen = frozenset().union(*held) - self._admin.topic_names()
        return self._admin.forbidden_among(brokers[0], sorted(unseen))


def _if_served(ask: Callable[..., Answer], *args: object) -> Answer | None:
    """A broker's answer about its log directories; None if the broker does not serve the
    request.
    """
    try:
        return ask(*args)
    except AdminError as error:
        if error.cause not in NOT_SERVED:
            raise
        return None


def _log_dir_in(broker: int, answer: Mapping[str, Any]) -> LogDir:
    error = int(answer.get("error_code") or 0)
    logs = [log for topic in answer.get("topics") or () for log in topic["partitions"]]
    total, usable = (
        UNKNOWN_BYTES if error or answer.get(key) is None else int(answer[key])
        for key in ("total_bytes", "usable_bytes")
    )
    return LogDir(
        broker,
        str(answer["log_dir"]),
        total,
        usable,
        own_logs=len(logs),
        own_bytes=sum(int(log["partition_size"]) for log in logs),
        is_offline=error == KafkaStorageError.errno,
    )


GROUPS_MAX = 20
"""Largest number of watched groups."""
CANDIDATES_MAX = 100
"""Largest number of groups from which the watched groups are chosen; each group costs one request.
"""
PARTITIONS_MAX = 1_000
"""Largest number of partitions of all watched groups together."""
ACTIVE = ("Stable", "")
"""States of groups with members; the state is empty for brokers before Kafka 2.6."""
REFUSED = ("GroupAuthorizationFailedError", "TopicAuthorizationFailedError")

PerPartition = Mapping[tuple[str, int], int]
"""(Topic, partition) → an offset."""


@dataclass(frozen=True)
class GroupReading:
    """A reading of a consumer group's lag.

    Attributes:
        at_s: time of the reading [s].
        lag: number of records that the group has not committed.
        end: sum of the end offsets of the group's partitions.
    """

    at_s: float
    lag: int
    end: int


@dataclass(frozen=True)
class GroupLag:
    """How far a consumer group fell behind under the loads of a run.

    Attributes:
        group: id of the group.
        grown: growth of the group's lag under the loads, minus the decrease between loads
            [records].
        per_s: rate of new records in the group's partitions [1/s].
        is_shrinking: whether the group's lag shrank since the previous reading.
    """

    group: str
    grown: int
    per_s: float
    is_shrinking: bool = False

    @property
    def behind_s(self) -> float:
        """Time [s] in which the group's topics gain `grown` records; 0 while the lag shrinks."""
        return self.grown / self.per_s if self.per_s and not self.is_shrinking else 0.0


class LagGrowth:
    """The growth of some groups' lag under loads; growth between loads does not count."""

    def __init__(self) -> None:
        self._first: dict[str, GroupReading] = {}
        self._last: dict[str, GroupReading] = {}
        self._grown: dict[str, int] = {}

    def take(self, readings: Mapping[str, GroupReading], is_loaded: bool) -> list[GroupLag]:
        """Add readings, and return how far each group fell behind until now.

        Args:
            is_loaded: whether the run has loaded the brokers since the previous reading.
        """
        found = []
        for group, now in readings.items():
            first, last = self._first.setdefault(group, now), self._last.get(group, now)
            grown = now.lag - last.lag
            owed = self._grown.get(group, 0) + (grown if is_loaded else min(0, grown))
            self._last[group], self._grown[group] = now, max(0, owed)
            passed_s = now.at_s - first.at_s
            per_s = (now.end - first.end) / passed_s if passed_s > 0 else 0.0
            found.append(GroupLag(group, self._grown[group], per_s, grown < 0))
        return found


class GroupLags:
    """Reads the lag of the other users' groups that have committed the most records.

    A reading costs one request to each group coordinator, one request for the leaders of the
    groups' partitions, and one request to each of these leaders.

    Args:
        is_own: function that returns whether the group with the given id belongs to a run.
        clock: monotonic time [s].

    Attributes:
        hidden: other users' groups whose offsets this user may not read.
        took_s: duration of the last reading [s].
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        is_own: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._is_own = is_own
        self._clock = clock
        self._chosen: dict[str, PerPartition] = {}
        self.hidden: tuple[str, ...] = ()
        self.took_s = 0.0

    def choose(self) -> tuple[str, ...]:
        """Choose the groups to watch, and return their ids.

        Raises:
            AdminError: the cluster does not answer.
        """
        states = self._admin.groups()
        active = [group for group, state in states.items() if state in ACTIVE]
        others = sorted(group for group in active if not self._is_own(group))[:CANDIDATES_MAX]
        committed, hidden = dict[str, PerPartition](), []
        for group in others:
            try:
                committed[group] = self._admin.committed_offsets([group])[group]
            except AdminError as error:  # for example for a group of another type
                hidden += [group] if error.cause in REFUSED else []
        names = sorted({topic for offsets in committed.values() for topic, _ in offsets})
        known = {
            (topic.name, number)
            for topic in self._admin.describe_topics(f"look at {len(names)} topics", names)
            for number in topic.partitions
        }
        left = PARTITIONS_MAX
        self._chosen, self.hidden = {}, tuple(hidden)
        for group in sorted(committed, key=lambda each: -sum(committed[each].values())):
            watched = {at: kept for at, kept in committed[group].items() if at in known}
            if watched and len(watched) <= left and len(self._chosen) < GROUPS_MAX:
                self._chosen[group] = watched
                left -= len(watched)
        return tuple(self._chosen)

    def read(self) -> dict[str, GroupReading]:
        """Watched group → its reading; the result lacks a group whose offset was deleted.

        Raises:
            AdminError: the cluster does not answer, or a topic was deleted.
        """
        if not self._chosen:
            return {}
        began_s = self._clock()
        committed = self._admin.committed_offsets(list(self._chosen))
        ends = self._admin.end_offsets({at for each in self._chosen.values() for at in each})
        now_s = self._clock()
        self.took_s = now_s - began_s
        found = {}
        for group, partitions in self._chosen.items():
            offsets = committed.get(group, {})
            if partitions.keys() <= offsets.keys():
                lag = sum(max(0, ends[at] - offsets[at]) for at in partitions)
                found[group] = GroupReading(now_s, lag, sum(ends[at] for at in partitions))
        return found
