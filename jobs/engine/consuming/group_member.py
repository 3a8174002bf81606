"""A consumer group member, which joins, rebalances, sends heartbeats and commits.

The coordinator of kafka-python joins, rebalances, sends heartbeats and commits on its own threads,
but it never fetches. The engine fetches from the assigned partitions. The module uses internal
classes of kafka-python, whose exact version is pinned. Tests against real brokers fail if the
internal classes of kafka-python change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from jobs.engine.network.links import library_options
from jobs.engine.task.plan import Partitions, TrialPlan
from metrics.common.errors import RedlineError

_log = logging.getLogger(__name__)

HEARTBEAT_MS = 1_000
"""Interval of heartbeats, which is also the longest time until a member knows of a rebalance
[ms]."""

SESSION_MS = 10_000
POLL_S = 1.0
"""Longest time for which a member's thread polls the cluster before it checks whether the member
has to leave its group [s]."""
_TURN_S = 0.05
_PAUSE_S = 1.0
_COMMIT_TIMEOUT_MS = 5_000


class GroupError(RedlineError):
    """A member could not join its consumer group, or lost its membership."""


@dataclass(frozen=True)
class Assigned:
    """The member got an assignment. `offsets` maps each partition to its start offset."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Revoked:
    """The member lost all its partitions. The reader must stop and then set the event `done`."""

    done: threading.Event


@dataclass(frozen=True)
class Moved:
    """The result of a look-up of leaders and first offsets.

    Attributes:
        leaders: partition → broker id of the current leader.
        starts: partition → first offset of the log, for partitions whose first offset was
            requested.
    """

    leaders: Mapping[int, int]
    starts: Mapping[int, int]


Change = Assigned | Revoked | Moved


class GroupMember:
    """One member of one group, with a thread of its own.

    Attributes:
        owned: number of assigned partitions; None before the first assignment and during a
            rebalance.
        trouble: the error that ended the membership; None while the member runs.
    """

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self.name = plan.member_name(group, member)
        self.owned: int | None = None
        self.trouble: str | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the thread, which joins the group."""
        self._thread.start()

    def leave(self) -> None:
        """Tell the thread to commit, and to return the partitions to the group."""
        self._leaving.set()

    def join(self, timeout_s: float) -> None:
        """After `leave`, wait until the member has left its group, at most `timeout_s` [s]."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def check(self) -> None:
        """Check that the member still belongs to its group.

        Raises:
            GroupError: an error has ended the membership.
        """
        if self.trouble is not None:
            raise GroupError(f"consumer group member {self.name}: {self.trouble}")

    def _run(self) -> None:
        raise NotImplementedError

    def _note(self, error: BaseException) -> None:
        self.trouble = self.trouble or f"{type(error).__name__}: {error}"


class Member(GroupMember, AsyncConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """A group member whose partitions the engine reads.

    The member registers itself as kafka-python's rebalance listener. At a rebalance, the member
    commits exactly the offsets up to which it has read. The library kafka-python also commits just
    before a rebalance. But the heartbeat thread of kafka-python can start a rebalance at any
    moment, while the engine reads on another thread. The listener therefore pauses the reader, and
    then commits again while the member still owns the partitions.

    Args:
        wake: function that the member's thread calls when `changes` has a new element.

    Attributes:
        changes: changes of the assignment that the reader has not handled yet, oldest first.
        positions: partition → offset of the next record to read; each commit uses these offsets.
        has_reader: whether a reader handles `changes`; False before and after a load.
    """

    def __init__(self, plan: TrialPlan, group: int, member: int, wake: Callable[[], None]) -> None:
        super().__init__(plan, group, member)
        self.changes: deque[Change] = deque()
        self.positions: dict[int, int] = {}
        self.has_reader = False
        self._plan = plan
        self._options = group_options(plan, group, member)
        self._wake = wake
        self._lookups: deque[tuple[int, bool]] = deque()
        self._consumer: Any = None
        self._has_assignment = False

    def look_up(self, partition: int, start: bool) -> None:
        """Request the leader of a partition; if `start` is True, also request its first offset. A
        `Moved` follows.
        """
        self._lookups.append((partition, start))

    # --- on the member's thread -------------------------------------------------

    def _run(self) -> None:
        try:
            self._consumer = consumer = KafkaConsumer(**self._options)
            consumer.subscribe(list(self._plan.topics), listener=self)
            while not self._leaving.wait(_TURN_S):
                self._poll(consumer)
        except (KafkaError, OSError, ValueError, AssertionError) as error:
            self._note(error)
        finally:
            self._end(self._consumer)

    def _poll(self, consumer: Any) -> None:
        coordinator = consumer._coordinator
        self._set_positions(consumer)
        coordinator.poll(timeout_ms=int(POLL_S * 1000))
        resume_join(coordinator)
        if self._has_assignment and not coordinator.need_rejoin():
            self._has_assignment = False
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
        starts = {number_of(plan, *each): offset for each, offset in firsts.items()}
        self.changes.append(Moved(known, starts))
        self._wake()

    def _pause_reader(self) -> bool:
        """Pause the reader; return False if the member owns no partitions yet."""
        if self.owned is None:
            return False
        self.owned = None
        revoked = Revoked(threading.Event())
        self.changes.append(revoked)
        self._wake()
        if self.has_reader:
            revoked.done.wait(_PAUSE_S)
        return True

    async def on_partitions_lost(self, lost: Any) -> None:
        """Pause the reader; the group has taken the partitions away, so no commit is possible."""
        self._pause_reader()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Record that there is a new assignment, even if it equals the previous assignment."""
        self._has_assignment = True

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Pause the reader, and commit its offsets."""
        if not self._pause_reader():
            return
        consumer = self._consumer
        self._set_positions(consumer)
        offsets = consumer._subscription.all_consumed_offsets()
        try:
            await consumer._coordinator._commit_offsets_sync_async(offsets, _COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            _log.warning("%s did not commit; its last records are read again: %s", self.name, error)

    def _take(self, consumer: Any) -> None:
        offsets = begin_offsets(consumer, self._plan, sorted(consumer.assignment()))
        self.positions = dict(offsets)
        self._set_positions(consumer)
        self.changes.append(Assigned(offsets))
        self.owned = len(offsets)
        self._wake()

    def _set_positions(self, consumer: Any) -> None:
        """Set the consumer's positions, which automatic commits use."""
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
            self._note(error)
        finally:
            self._wake()


def resume_join(coordinator: Any) -> None:
    """Resume a join of the group that kafka-python would not finish; call this after each poll.

    A group leader rejoins when it learns of new partitions. When the new assignment arrives,
    `need_rejoin` becomes False. If a poll ends before the answer to the join arrives, no later poll
    waits for the answer, and the leader stops sending heartbeats.
    """
    if coordinator._join_task is not None and not coordinator.need_rejoin():
        coordinator.request_rejoin()


def topic_partition(plan: TrialPlan, number: int) -> TopicPartition:
    """The partition with this number, as kafka-python's type."""
    return TopicPartition(*plan.partitions.of(number))


def number_of(plan: TrialPlan, topic: str, partition: int) -> int:
    """The engine's number of a partition; the partition belongs to a topic of the trial."""
    number = plan.partitions.number(topic, partition)
    assert number is not None, "the partition does not belong to a topic of the trial"
    return number


def group_options(plan: TrialPlan, group: int, member: int) -> dict[str, object]:
    """KafkaConsumer's configuration for a group member that commits its offsets."""
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
        "allow_auto_create_topics": False,  # a late request must not recreate a deleted topic
        "metrics_enabled": False,
    }


def begin_offsets(consumer: Any, plan: TrialPlan, owned: list[TopicPartition]) -> dict[int, int]:
    """Partition → start offset: the committed offset, or else the group's start offset."""
    if not owned:
        return {}
    committed = consumer._coordinator.fetch_committed_offsets(set(owned))
    left = {number_of(plan, *each): at.offset for each, at in committed.items() if at.offset >= 0}
    fresh = [each for each in owned if number_of(plan, *each) not in left]
    is_asked = bool(fresh) and plan.pattern.consumers.start != "latest"
    firsts = consumer.beginning_offsets(fresh) if is_asked else dict.fromkeys(fresh, 0)
    numbered = {number_of(plan, *each): offset for each, offset in firsts.items()}
    return left | {number: plan.start_offset(number, at) for number, at in numbered.items()}


def is_fair_share(owned: int, partitions: Partitions, members: int) -> bool:
    """True if a member owns as many partitions as it must own after all members have joined.

    Kafka's range assignor divides the partitions of each topic evenly: the members' numbers of
    partitions differ by at most one. If a group has more members than a topic has partitions, the
    group uses the round-robin assignor. This assignor puts the partitions of all topics into one
    list, and divides the list evenly.
    """
    divided, times = partitions.per_topic, len(partitions.topics)
    if members > divided:
        divided, times = len(partitions), 1
    least, rest = divmod(divided, members)
    return times * least <= owned <= times * (least + (1 if rest else 0))


def await_settled(members: Sequence[GroupMember], plan: TrialPlan) -> None:
    """Wait until every member owns its fair share of the partitions.

    Members in other tasks join after their tasks have opened their connections.

    Raises:
        GroupError: a member could not join, or the wait exceeded the plan's `open_timeout_s`.
    """
    timeout_s, size = plan.open_timeout_s, plan.pattern.consumers.members
    deadline_s = time.monotonic() + timeout_s
    while not all(
        each.owned is not None and is_fair_share(each.owned, plan.partitions, size)
        for each in members
    ):
        for member in members:
            member.check()
        if time.monotonic() > deadline_s:
            shares = ", ".join(f"{each.name}: {each.owned}" for each in members)
            raise GroupError(
                f"consumer groups did not settle within {timeout_s:.0f} s; expected a fair share "
                f"of the partitions for each member; partitions owned: {shares}"
            )
        time.sleep(_TURN_S)
