"""Member of a consumer group: it joins, takes part in rebalances, sends heartbeats and commits.

kafka-python's coordinator does all of it, on threads of its own, and never fetches; the engine
reads the assigned partitions. Private parts of kafka-python are used, whose exact version is
pinned; tests against real brokers fail when they change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from jobs.engine.network.links import library_options
from jobs.engine.task.plan import Partitions, TrialPlan
from metrics.common.errors import RedlineError

_log = logging.getLogger(__name__)

HEARTBEAT_MS = 1_000
"""Members learn of a rebalance within this time [ms]."""

SESSION_MS = 10_000
POLL_S = 1.0
"""Longest wait of a member for the cluster before it checks whether to leave [s]."""
_TURN_S = 0.05
_PAUSE_S = 1.0
_COMMIT_TIMEOUT_MS = 5_000


class GroupError(RedlineError):
    """A consumer group could not be joined, or was lost."""


@dataclass(frozen=True)
class Assigned:
    """The change by which the member owns these partitions: partition → offset to begin at."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Revoked:
    """The change by which the member owns nothing; reading must stop before `done` is set."""

    done: threading.Event


@dataclass(frozen=True)
class Moved:
    """The change of leaders and first offsets of partitions that could not be read as expected.

    Attributes:
        leaders: partition → broker that leads it now.
        starts: partition → first offset in its log, where that was looked up.
    """

    leaders: Mapping[int, int]
    starts: Mapping[int, int]


Change = Assigned | Revoked | Moved


class Handover(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """Lets a member give its partitions up at exactly the offsets that it has read.

    The library commits just before a rebalance, which its heartbeat thread may learn of at any
    moment, while the engine reads on another thread. So each rebalance pauses the reader here, and
    commits once more while the member still owns the partitions.

    Args:
        pause: stops the reader; returns False if it had nothing to read.
        commit: commits the offsets of the reader.

    Attributes:
        assignments: number of assignments, as two in a row may name the same partitions.
    """

    def __init__(self, pause: Callable[[], bool], commit: Callable[[], Awaitable[None]]) -> None:
        self.assignments = 0
        self._pause = pause
        self._commit = commit

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Pause the reader, and commit what it has read."""
        if self._pause():
            await self._commit()

    async def on_partitions_lost(self, lost: Any) -> None:
        """Pause the reader; partitions that the group took away cannot be committed."""
        self._pause()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Count the assignment."""
        self.assignments += 1


class Member:
    """One member of one group, on a thread of its own.

    Args:
        wake: called from the member's thread when there is a new change.

    Attributes:
        changes: changes of the assignment, oldest first; the reader takes them.
        positions: partition → next offset, written by the reader and used by commits.
        owned: number of partitions that the member owns; None until it has joined.
        trouble: why membership ended; None while it lasts.
        has_reader: whether a reader takes changes now; there is none before and after a load.
    """

    def __init__(self, plan: TrialPlan, group: int, member: int, wake: Callable[[], None]) -> None:
        self.group = group
        self.name = plan.member_name(group, member)
        self.changes: deque[Change] = deque()
        self.positions: dict[int, int] = {}
        self.owned: int | None = None
        self.trouble: str | None = None
        self.has_reader = False
        self._plan = plan
        self._options = group_options(plan, group, member)
        self._wake = wake
        self._leaving = threading.Event()
        self._lookups: deque[tuple[int, bool]] = deque()
        self._consumer: Any = None
        self._handover = Handover(self._pause_reader, self._commit)
        self._assignments = 0
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()

    def leave(self) -> None:
        """Begin to leave: commit, and give the partitions back to the group."""
        self._leaving.set()

    def look_up(self, partition: int, start: bool) -> None:
        """Look up a partition's leader and, if `start`, its first offset; `Moved` follows."""
        self._lookups.append((partition, start))

    def join(self, timeout_s: float) -> None:
        """Wait at most so long until the member has left [s]."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # --- on the member's thread -------------------------------------------------

    def _run(self) -> None:
        try:
            self._consumer = consumer = KafkaConsumer(**self._options)
            consumer.subscribe(list(self._plan.topics), listener=self._handover)
            while not self._leaving.wait(_TURN_S):
                self._poll(consumer)
        except (KafkaError, OSError, ValueError, AssertionError) as error:
            self.trouble = f"{self.name}: {type(error).__name__}: {error}"
        finally:
            self._end(self._consumer)

    def _poll(self, consumer: Any) -> None:
        coordinator = consumer._coordinator
        self._set_positions(consumer)
        coordinator.poll(timeout_ms=int(POLL_S * 1000))
        resume_join(coordinator)
        if self._handover.assignments != self._assignments and not coordinator.need_rejoin():
            self._assignments = self._handover.assignments
            self._take(consumer)
        if self._lookups:
            self._look_up(consumer)

    def _look_up(self, consumer: Any) -> None:
        asked = [self._lookups.popleft() for _ in range(len(self._lookups))]
        cluster = consumer._cluster
        cluster.request_update()
        plan = self._plan
        leaders = {p: cluster.leader_for_partition(topic_partition(plan, p)) for p, _ in asked}
        known = {p: leader for p, leader in leaders.items() if leader is not None and leader >= 0}
        lost = sorted({topic_partition(plan, partition) for partition, start in asked if start})
        firsts = consumer.beginning_offsets(lost) if lost else {}
        starts = {number_of(plan, each): offset for each, offset in firsts.items()}
        self.changes.append(Moved(known, starts))
        self._wake()

    def _pause_reader(self) -> bool:
        """Stop the reader; returns False if it had not begun."""
        if self.owned is None:
            return False
        self.owned = None
        revoked = Revoked(threading.Event())
        self.changes.append(revoked)
        self._wake()
        if self.has_reader:
            revoked.done.wait(_PAUSE_S)
        return True

    async def _commit(self) -> None:
        """Commit exactly what was read, during a rebalance; called by the library."""
        consumer = self._consumer
        self._set_positions(consumer)
        offsets = consumer._subscription.all_consumed_offsets()
        try:
            await consumer._coordinator._commit_offsets_sync_async(offsets, _COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            _log.warning("%s: its last records are read again: %s", self.name, error)

    def _take(self, consumer: Any) -> None:
        offsets = begin_offsets(consumer, self._plan, sorted(consumer.assignment()))
        self.positions = dict(offsets)
        self._set_positions(consumer)
        self.changes.append(Assigned(offsets))
        self.owned = len(offsets)
        self._wake()

    def _set_positions(self, consumer: Any) -> None:
        """Set the positions from which automatic commits take their offsets."""
        mine = consumer.assignment()
        for partition, offset in list(self.positions.items()):
            each = topic_partition(self._plan, partition)
            if each in mine:
                consumer.seek(each, offset)

    def _end(self, consumer: Any) -> None:
        try:
            if consumer is not None:
                if self.trouble is None:
                    self._set_positions(consumer)
                consumer.close(autocommit=self.trouble is None, timeout_ms=_COMMIT_TIMEOUT_MS)
        except (KafkaError, OSError, ValueError, AssertionError) as error:
            self.trouble = self.trouble or f"{self.name}: {type(error).__name__}: {error}"
        finally:
            self._wake()


def resume_join(coordinator: Any) -> None:
    """Resume a join that kafka-python would forget; to be called after each poll.

    A leader rejoins when it learns of more partitions, and `need_rejoin` becomes False with its
    assignment. If a poll ends before the cluster's answer to the join, no later poll waits for that
    answer, and the leader stops sending heartbeats.
    """
    if coordinator._join_task is not None and not coordinator.need_rejoin():
        coordinator.request_rejoin()


def topic_partition(plan: TrialPlan, number: int) -> TopicPartition:
    """The partition of this number as kafka-python's type."""
    return TopicPartition(*plan.partitions.of(number))


def number_of(plan: TrialPlan, each: TopicPartition) -> int:
    """The number of a partition of the trial's topics."""
    number = plan.partitions.number(each.topic, each.partition)
    assert number is not None, "only topics of the trial are subscribed to"
    return number


def group_options(plan: TrialPlan, group: int, member: int) -> dict[str, object]:
    """KafkaConsumer's configuration for a member that commits what it has read."""
    return {
        **library_options(plan.client_options, plan.member_name(group, member)),
        "bootstrap_servers": plan.servers,
        "group_id": plan.group_id(group),
        "partition_assignment_strategy": (
            RoundRobinPartitionAssignor if plan.shares_topics else RangePartitionAssignor,
        ),
        "enable_auto_commit": True,
        "auto_commit_interval_ms": plan.pattern.consumers.auto_commit_interval_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "allow_auto_create_topics": False,  # a late request must not create a deleted topic again
        "metrics_enabled": False,
    }


def begin_offsets(consumer: Any, plan: TrialPlan, owned: list[TopicPartition]) -> dict[int, int]:
    """Partition → offset to begin at: the committed one, or the group's start."""
    if not owned:
        return {}
    committed = consumer._coordinator.fetch_committed_offsets(set(owned))
    left = {number_of(plan, each): at.offset for each, at in committed.items() if at.offset >= 0}
    fresh = [each for each in owned if number_of(plan, each) not in left]
    return left | start_offsets(consumer, plan, fresh)


def start_offsets(
    consumer: Any, plan: TrialPlan, partitions: list[TopicPartition]
) -> dict[int, int]:
    """Partition → offset at which a group without a committed offset starts."""
    is_asked = bool(partitions) and plan.pattern.consumers.start != "latest"
    firsts = consumer.beginning_offsets(partitions) if is_asked else dict.fromkeys(partitions, 0)
    numbered = {number_of(plan, each): offset for each, offset in firsts.items()}
    return {number: plan.start_offset(number, first) for number, first in numbered.items()}


def is_fair_share(owned: int, partitions: Partitions, members: int) -> bool:
    """True when a member owns as many partitions as it does once its whole group has joined.

    Kafka's range assignor distributes each topic's partitions evenly, up to one; its round robin,
    for groups with more members than partitions of a topic, those of all topics together.
    """
    if members > partitions.per_topic:
        least, rest = divmod(len(partitions), members)
        return least <= owned <= least + (1 if rest else 0)
    least, rest = divmod(partitions.per_topic, members)
    topics = len(partitions.topics)
    return topics * least <= owned <= topics * (least + (1 if rest else 0))


class Joining(Protocol):
    """State of a member while its group settles."""

    name: str
    owned: int | None
    trouble: str | None


def await_settled(members: Sequence[Joining], plan: TrialPlan) -> None:
    """Wait until every member owns its fair share of the partitions.

    Members of other tasks join when their task has opened its connections.

    Raises:
        GroupError: a member could not join, or it takes longer than a task may take to open.
    """
    timeout_s, size = plan.open_timeout_s, plan.pattern.consumers.members
    deadline_s = time.monotonic() + timeout_s
    while not all(
        each.owned is not None and is_fair_share(each.owned, plan.partitions, size)
        for each in members
    ):
        for member in members:
            if member.trouble is not None:
                raise GroupError(f"consumer group member {member.trouble}")
        if time.monotonic() > deadline_s:
            shares = ", ".join(f"{each.name}: {each.owned}" for each in members)
            raise GroupError(
                f"consumer groups did not settle within {timeout_s:.0f} s; partitions owned: "
                f"{shares}"
            )
        time.sleep(_TURN_S)
