"""Consumer group members of a client library, which fetches, decodes, joins and commits.

Each member polls on a dedicated thread, as in an ordinary application. Like the engine's own
consumers, each member keeps a ledger of the records that it read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from kafka.errors import KafkaError as KafkaPythonError

from jobs.engine.clients.library import LibraryConsumer, Read
from jobs.engine.consuming.group_member import GroupMember, await_settled
from jobs.engine.consuming.ledger import SKIPPED, GroupLedger, Position, PositionBook
from jobs.engine.producing.account import window_report
from jobs.engine.task.client import Targets
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import Window
from metrics.common.errors import RedlineError
from metrics.trial.client import ConsumerReport, TaskReport
from metrics.trial.consumption import GroupShare

POLL_S = 0.1
_TURN_S = 0.05
_LEAVE_S = 15.0

_ERRORS = (KafkaPythonError, RedlineError, OSError, RuntimeError, ValueError, AssertionError)
"""Errors that libraries raise. Adapters turn other errors of a library into `ReadError`."""


class LibraryMember(PositionBook, GroupMember):
    """A group member that polls a client library on a thread of its own, and keeps a ledger."""

    def __init__(self, plan: TrialPlan, group: int, member: int, library: LibraryConsumer) -> None:
        super().__init__(plan, group, member)
        self.ledger = GroupLedger(group, 1, 0.0)
        self.positions = {}
        self.begin = threading.Event()
        self._library = library

    def has_reached(self, targets: Mapping[int, int]) -> bool:
        """True if the member has read each of its partitions up to the target offset."""
        return self.owned is not None and super().has_reached(targets)

    def share(self, targets: Mapping[int, int] | None) -> GroupShare:
        """The member's ledger.

        Args:
            targets: partition → offset that the member should have reached.
        """
        self.ledger.throttle_ms = self._library.throttle_ms
        return self.ledger.share(list(self.positions.values()), targets)

    # --- on the member's thread -------------------------------------------------

    def _run(self) -> None:
        library = self._library
        try:
            library.open()
            begun = False
            while not self._leaving.is_set():
                if not begun and self.begin.is_set():
                    library.begin()
                    begun = True
                records = list(library.poll(POLL_S))
                assigned = library.take_assignment()
                if assigned is not None:
                    records = self._apply_assignment(assigned, records)
                self._count(records)
                for partition, position in self.positions.items():
                    end = library.high_watermark(partition)
                    if end is not None:
                        position.high_watermark = max(end, position.offset)
        except _ERRORS as error:
            self._note(error)
        finally:
            try:
                library.close()
            except _ERRORS as error:
                self._note(error)

    def _apply_assignment(self, offsets: Mapping[int, int], records: list[Read]) -> list[Read]:
        """Apply a new assignment; return the records that belong to the new assignment.

        One poll may return records of the old and of the new assignment. A record belongs to the
        old assignment if its offset is the next offset that the member would read in the old
        assignment. The function counts records of the old assignment as read.
        """
        after: list[Read] = []
        for record in records:
            before = self.positions.get(record[0])
            if before is not None and before.offset == record[1]:
                self._count([record])
            else:
                after.append(record)
        if self.owned is not None:
            self.ledger.counts.rebalances += 1
        kept = {p: position.offset for p, position in self.positions.items()}
        for position in self.positions.values():
            self.ledger.close_read_range(position)
        self.positions = {p: Position(p, max(at, kept.get(p, at))) for p, at in offsets.items()}
        self.owned = len(offsets)
        return after

    def _count(self, records: Iterable[Read]) -> None:
        now, wall_s = time.monotonic(), time.time()
        for partition, offset, size, created_ms in records:
            position = self.positions.get(partition)
            if position is None or offset < position.offset:
                continue  # read before a rebalance
            if offset > position.offset:
                self.ledger.counts.errors[SKIPPED] += offset - position.offset
            position.advance(1, offset + 1)
            age_s = wall_s - created_ms / 1000.0 if created_ms >= 0 else None
            self.ledger.count_read(1, size, age_s, now)


class LibraryConsumers:
    """The group members of one task; a `TaskClient`.

    Args:
        task: index among the consumer tasks, from 0.
        make: function that makes the library consumer for (plan, group, member).

    Raises:
        LibraryError: the library is not installed on this host, or lacks an option.
    """

    def __init__(
        self, plan: TrialPlan, task: int, make: Callable[[TrialPlan, int, int], LibraryConsumer]
    ) -> None:
        self._plan, self._task, self._options = plan, plan.tasks + task, plan.pattern.consumers
        hosted = self._options.members_of(task, plan.consumer_tasks)
        self._members = [
            LibraryMember(plan, group, member, make(plan, group, member))
            for group, member in hosted
        ]

    def open(self) -> None:
        """Join the groups; see `TaskClient.open`."""
        for member in self._members:
            member.start()
        await_settled(self._members, self._plan)

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: Targets,
    ) -> TaskReport:
        """Read the topics' records until the load ends; see `TaskClient.run`."""
        window = Window.of(self._plan.pattern.phases, start_s, driver)
        for member in self._members:
            member.ledger.window = window
        if self._options.start != "latest":
            time.sleep(max(0.0, start_s - time.monotonic()))  # read the backlog under load only
        for member in self._members:
            member.begin.set()
        self._turn_until(window, lambda now: now >= window.start_s)
        self._turn_until(window, lambda now: now >= window.end_s)
        deadline_s = window.end_s + 2 * self._plan.pattern.phases.drain_timeout_s
        self._turn_until(window, lambda now: now >= deadline_s or self._has_reached(acknowledged()))
        shares = tuple(member.share(acknowledged()) for member in self._members)
        consumed = ConsumerReport(groups=shares)
        return window_report(self._task, window, wall_offset_s, consumed=consumed)

    def close(self) -> None:
        """Leave the groups; see `TaskClient.close`."""
        for member in self._members:
            member.leave()
        for member in self._members:
            member.join(_LEAVE_S)

    def _has_reached(self, goal: Mapping[int, int] | None) -> bool:
        return goal is not None and all(member.has_reached(goal) for member in self._members)

    def _turn_until(self, window: Window, is_over: Callable[[float], bool]) -> None:
        while not is_over(now := time.monotonic()):
            window.check_in(now)
            for member in self._members:
                member.check()
                member.ledger.sample_lag(member.lag, now)
            time.sleep(_TURN_S)
