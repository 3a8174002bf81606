"""Being a member of a consumer group: joining, rebalances, heartbeats and commits.

kafka-python's coordinator does all of it, on threads of its own, and never fetches; the
engine reads what it is assigned. Private parts of kafka-python are used, whose exact
version is pinned; tests against real brokers fail when they change.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from jobs.engine.task.partitions import Partitions
from jobs.engine.task.plan import TrialPlan
from metrics.common.errors import RedlineError

HEARTBEAT_MS = 1_000
"""Members hear of a rebalance within this time [ms]."""

SESSION_MS = 10_000
POLL_S = 1.0
"""So long a member waits for the cluster at a time, before it looks whether to leave [s]."""
_TURN_S = 0.05
_PAUSE_S = 1.0
_COMMIT_TIMEOUT_MS = 5_000


class GroupError(RedlineError):
    """A consumer group could not be joined, or was lost."""


@dataclass(frozen=True)
class Assigned:
    """The member owns these partitions from now on: partition → offset to begin at."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Revoked:
    """The member owns nothing; reading must stop before `done` is set."""

    done: threading.Event


@dataclass(frozen=True)
class Moved:
    """What the cluster says of partitions that could not be read where they were expected.

    Attributes:
        leaders: partition → broker that leads it now.
        starts: partition → first offset that there still is, where that was asked for.
    """

    leaders: Mapping[int, int]
    starts: Mapping[int, int]


Change = Assigned | Revoked | Moved


class AssignmentCounter(ConsumerRebalanceListener):  # type: ignore[misc] # it has no types
    """Counts assignments, as two in a row may name the same partitions.

    Args:
        on_assigned: called with what was assigned, on kafka-python's thread.
    """

    def __init__(self, on_assigned: Callable[[set[TopicPartition]], None]) -> None:
        self.assignments = 0
        self._on_assigned = on_assigned

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing: whoever reads finds out by the next assignment, or was told before."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """One more."""
        self._on_assigned(assigned)
        self.assignments += 1


class Member:
    """One member of one group, on a thread of its own.

    Args:
        wake: called when there is a change to take, from the member's thread.

    Attributes:
        changes: what became of the assignment, oldest first; the reader takes them.
        positions: partition → next offset; the reader writes, commits take it from here.
        owned: how many partitions the member owns; None until it has joined.
        trouble: why membership ended, or None.
    """

    def __init__(self, plan: TrialPlan, group: int, member: int, wake: Callable[[], None]) -> None:
        self.group = group
        self.client_id = plan.member_id(group, member)
        self.changes: deque[Change] = deque()
        self.positions: dict[int, int] = {}
        self.owned: int | None = None
        self.trouble: str | None = None
        self._plan = plan
        self._options = group_options(plan, group, member)
        self._wake = wake
        self._leaving = threading.Event()
        self._lookups: deque[tuple[int, bool]] = deque()
        self._assignment_counter = AssignmentCounter(lambda assigned: None)
        self._assignments = 0
        self._thread = threading.Thread(target=self._run, name=self.client_id, daemon=True)

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()

    def leave(self) -> None:
        """Begin to leave: commit, and let the others have the partitions."""
        self._leaving.set()

    def look_up(self, partition: int, start: bool) -> None:
        """Ask who leads a partition now and, if `start`, where it starts; `Moved` answers."""
        self._lookups.append((partition, start))

    def join(self, timeout_s: float) -> None:
        """Wait until the member has left, at most so long [s]."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # --- on the member's thread -------------------------------------------------

    def _run(self) -> None:
        consumer: Any = None
        try:
            consumer = KafkaConsumer(**self._options)
            consumer.subscribe(list(self._plan.topics), listener=self._assignment_counter)
            while not self._leaving.wait(_TURN_S):
                self._poll(consumer)
        except (KafkaError, OSError, ValueError, AssertionError) as error:
            self.trouble = f"{self.client_id}: {type(error).__name__}: {error}"
        finally:
            self._end(consumer)

    def _poll(self, consumer: Any) -> None:
        coordinator = consumer._coordinator
        if coordinator.need_rejoin():
            self._pause_reader()
        self._set_positions(consumer)
        coordinator.poll(timeout_ms=int(POLL_S * 1000))
        resume_join(coordinator)
        if (
            self._assignment_counter.assignments != self._assignments
            and not coordinator.need_rejoin()
        ):
            self._assignments = self._assignment_counter.assignments
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

    def _pause_reader(self) -> None:
        """Have the reader stop, so that what is committed is exactly what was read."""
        if self.owned is None:
            return
        self.owned = None
        revoked = Revoked(threading.Event())
        self.changes.append(revoked)
        self._wake()
        revoked.done.wait(_PAUSE_S)

    def _take(self, consumer: Any) -> None:
        offsets = begin_offsets(consumer, self._plan, sorted(consumer.assignment()))
        self.positions = dict(offsets)
        self._set_positions(consumer)
        self.changes.append(Assigned(offsets))
        self.owned = len(offsets)
        self._wake()

    def _set_positions(self, consumer: Any) -> None:
        """What automatic commits take their offsets from."""
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
            self.trouble = self.trouble or f"{self.client_id}: {type(error).__name__}: {error}"
        finally:
            self._wake()


def resume_join(coordinator: Any) -> None:
    """Have kafka-python go on with a join that it would forget; to call after each poll.

    A leader that rejoins as it learned of more partitions has no more reason to, in the eyes of
    `need_rejoin`, from its assignment on. A poll that ends before the cluster's answer to that is
    the last to wait for it, and the leader sends no heartbeats from then on.
    """
    if coordinator._join_task is not None and not coordinator.need_rejoin():
        coordinator.request_rejoin()


def topic_partition(plan: TrialPlan, number: int) -> TopicPartition:
    """The partition of this number as kafka-python calls it."""
    return TopicPartition(*plan.partitions.of(number))


def number_of(plan: TrialPlan, each: TopicPartition) -> int:
    """The number of a partition of the trial's topics."""
    number = plan.partitions.number(each.topic, each.partition)
    assert number is not None, "only topics of the trial are subscribed to"
    return number


def group_options(plan: TrialPlan, group: int, member: int) -> dict[str, object]:
    """KafkaConsumer's configuration as a member that commits what it has read."""
    return {
        **plan.client_options,
        "bootstrap_servers": plan.servers,
        "client_id": plan.member_id(group, member),
        "group_id": plan.group_id(group),
        "enable_auto_commit": True,
        "auto_commit_interval_ms": plan.pattern.consumers.auto_commit_interval_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "allow_auto_create_topics": False,  # a straggler must not bring a deleted topic back
        "metrics_enabled": False,
    }


def begin_offsets(consumer: Any, plan: TrialPlan, owned: list[TopicPartition]) -> dict[int, int]:
    """Partition → where another member left off, or where the group starts."""
    if not owned:
        return {}
    committed = consumer._coordinator.fetch_committed_offsets(set(owned))
    left = {number_of(plan, each): at.offset for each, at in committed.items() if at.offset >= 0}
    fresh = [each for each in owned if number_of(plan, each) not in left]
    return left | start_offsets(consumer, plan, fresh)


def start_offsets(
    consumer: Any, plan: TrialPlan, partitions: list[TopicPartition]
) -> dict[int, int]:
    """Where a group starts that has committed nothing: partition → offset."""
    is_asked = bool(partitions) and plan.pattern.consumers.start != "latest"
    firsts = consumer.beginning_offsets(partitions) if is_asked else dict.fromkeys(partitions, 0)
    numbered = {number_of(plan, each): offset for each, offset in firsts.items()}
    return {number: plan.start_offset(number, first) for number, first in numbered.items()}


def is_fair_share(owned: int, partitions: Partitions, members: int) -> bool:
    """True when a member owns what it does once all members of its group have joined.

    Kafka's range assignor hands out each topic's partitions evenly, up to one.
    """
    least, rest = divmod(partitions.per_topic, members)
    topics = len(partitions.topics)
    return topics * least <= owned <= topics * (least + (1 if rest else 0))


SETTLING = 3
"""Rebalances in which a group settles: each may take as long as a connection to a broker."""


class Joining(Protocol):
    """What is known of a member while its group settles."""

    client_id: str
    owned: int | None
    trouble: str | None


def await_settled(members: Sequence[Joining], plan: TrialPlan) -> None:
    """Return when every member owns its fair share of the partitions.

    Raises:
        GroupError: a member could not join, or it takes longer than `SETTLING` allows.
    """
    timeout_s, size = SETTLING * plan.connect_timeout_s, plan.pattern.consumers.members
    deadline_s = time.monotonic() + timeout_s
    while not all(
        each.owned is not None and is_fair_share(each.owned, plan.partitions, size)
        for each in members
    ):
        for member in members:
            if member.trouble is not None:
                raise GroupError(f"consumer group member {member.trouble}")
        if time.monotonic() > deadline_s:
            shares = ", ".join(f"{each.client_id}: {each.owned}" for each in members)
            raise GroupError(
                f"consumer groups did not settle within {timeout_s:.0f} s; partitions owned: "
                f"{shares}"
            )
        time.sleep(_TURN_S)
