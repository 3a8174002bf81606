"""The lag of consumer groups of others: a few groups, by a few small requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.cluster.admin import AdminError, KafkaAdmin

GROUPS_MAX = 20
"""Groups that are watched."""
CANDIDATES_MAX = 100
"""Groups among which they are chosen, once: each takes a request."""
PARTITIONS_MAX = 1_000
"""Partitions of all watched groups together."""
ACTIVE = ("Stable", "")
"""States of groups with members; brokers before Kafka 2.6 report none."""
REFUSED = ("GroupAuthorizationFailedError", "TopicAuthorizationFailedError")

Partitions = Mapping[tuple[str, int], int]
"""(Topic, partition) → an offset."""


@dataclass(frozen=True)
class GroupReading:
    """Where a consumer group is at a moment.

    Attributes:
        at_s: the moment [s].
        lag: records that it has not committed.
        end: sum of its partitions' end offsets.
    """

    at_s: float
    lag: int
    end: int


@dataclass(frozen=True)
class GroupLag:
    """How far a consumer group fell behind under the loads of a run.

    Attributes:
        group: its id.
        grown: growth of its lag under the loads, less what it caught up [records].
        per_s: records that its partitions gain [1/s].
        is_shrinking: whether its lag shrank since the look before.
    """

    group: str
    grown: int
    per_s: float
    is_shrinking: bool = False

    @property
    def behind_s(self) -> float:
        """Time in which its topics gain these records [s]; 0 while the lag shrinks."""
        return self.grown / self.per_s if self.per_s and not self.is_shrinking else 0.0


class LagGrowth:
    """The growth of the lag of some groups under loads; that between loads does not count."""

    def __init__(self) -> None:
        self._first: dict[str, GroupReading] = {}
        self._last: dict[str, GroupReading] = {}
        self._grown: dict[str, int] = {}

    def take(self, readings: Mapping[str, GroupReading], is_loaded: bool) -> list[GroupLag]:
        """Take a look; returns how far each group fell behind until now.

        Args:
            is_loaded: whether the run has loaded the brokers since the look before.
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
    """Reads the lag of the groups of others that have committed most records.

    A look takes one request to each of their coordinators, one for the leaders of their partitions
    and one to each of these leaders.

    Args:
        is_own: whether the group of this id belongs to a run.
        clock: monotonic time [s].

    Attributes:
        hidden: groups of others whose offsets this user may not read.
        took_s: time that the last look took [s].
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
        self._chosen: dict[str, Partitions] = {}
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
        committed, hidden = dict[str, Partitions](), []
        for group in others:
            try:
                committed[group] = self._admin.committed_offsets([group])[group]
            except AdminError as error:  # such as for a group of another kind
                hidden += [group] if error.cause in REFUSED else []
        names = sorted({topic for offsets in committed.values() for topic, _ in offsets})
        known = {
            (str(topic["name"]), int(each["partition_index"]))
            for topic in self._admin.describe_topics(f"look at {len(names)} topics", names)
            for each in topic["partitions"]
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
        """Watched group → where it is now; a group that has lost an offset is left out.

        Raises:
            AdminError: the cluster does not answer, or a topic is gone.
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
