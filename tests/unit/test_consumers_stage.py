"""Groups are shared out over tasks, which follow the driver and the tasks with producers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.config import load_workload
from jobs.engine.consuming.group_member import GroupMember, await_settled
from jobs.engine.task.client import AcknowledgedOffsets
from jobs.engine.task.control_channel import OrphanedError
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import BeginMissedError, EndMissedError, Window
from jobs.trials.load import require_room
from metrics.common.errors import ConfigError
from metrics.traffic.clients import ConsumerOptions
from metrics.trial.client import TaskReport
from tests.support import patterns
from tests.support.processes import PATIENCE_S
from tests.support.threads_barrier import ThreadsBarrier, run_stage


def plan(**fields: Any) -> TrialPlan:
    """Two tasks with producers and one with consumers, without brokers."""
    values: dict[str, Any] = {
        "rate_records_per_s": 100.0,
        "producers": 2,
        "tasks": 2,
        "leaders": (1, 1, 1),
        "brokers": {1: ("127.0.0.1", 1)},
        "warmup_s": 2.0,
        "measure_s": 10.0,
        "connect_timeout_s": 1.0,
        "consumers": ConsumerOptions(groups=1),
        "consumer_tasks": 1,
        "end_offsets": {0: 100, 1: 200, 2: 0},
    }
    return patterns.plan(**(values | fields))


class FakeDriver:
    """A control channel to a driver that begins or ends the window, or that has ended.

    Attributes:
        messages: messages of the task.
    """

    def __init__(
        self,
        end_after_s: float | None = None,
        is_gone: bool = False,
        begin_after_s: float | None = None,
    ) -> None:
        self.begin_after_s = begin_after_s
        self.end_after_s = end_after_s
        self._is_gone = is_gone
        self.messages: list[dict[str, object]] = []

    def receive(self) -> None:
        if self._is_gone:
            raise OrphanedError("the driver has ended")

    def report_over(self) -> None:
        self.is_over = True

    def send(self, **message: object) -> None:
        self.messages.append(message)


def window(driver: FakeDriver | None) -> Window:
    """A window from 102 to 112 s."""
    return Window.of(plan().pattern.phases, 100.0, driver)  # type: ignore[arg-type]


def test_the_window_is_the_plans_until_the_driver_begins_or_ends_it() -> None:
    for driver, now, expected in (
        (None, 103.0, (102.0, 112.0)),
        (FakeDriver(), 103.0, (102.0, 112.0)),
        (FakeDriver(end_after_s=4.0), 105.0, (102.0, 106.0)),
        (FakeDriver(begin_after_s=1.5), 101.0, (101.5, 111.5)),
        (FakeDriver(begin_after_s=1.5, end_after_s=4.0), 101.0, (101.5, 105.5)),
        (FakeDriver(begin_after_s=3.0), 101.0, (102.0, 112.0)),  # it is never moved back
    ):
        seen = window(driver)
        seen.check_in(now)
        seen.check_in(now + 0.2)  # once is enough
        assert (seen.start_s, seen.end_s, seen.load_end_s) == (*expected, expected[1])


def test_only_producers_report_progress_and_before_the_window_the_written_bytes() -> None:
    driver = FakeDriver()
    seen = window(driver)
    seen.check_in(103.0)
    for now in (101.0, 102.5, 112.0):
        seen.check_in(now, acked=7, written=9, refused=2)
    progress = {"written": 9, "refused": 2}
    assert driver.messages == [{}, progress, {"at_s": 0.5, "acked": 7, **progress}]


def test_a_moment_in_the_past_and_a_lost_driver_are_errors() -> None:
    with pytest.raises(BeginMissedError, match=r"0\.30 s before"):
        window(FakeDriver(begin_after_s=1.5)).check_in(101.8)
    with pytest.raises(EndMissedError, match=r"1\.00 s before"):
        window(FakeDriver(end_after_s=4.0)).check_in(107.0)
    with pytest.raises(OrphanedError):
        window(FakeDriver(is_gone=True)).check_in(103.0)


def test_consumers_get_the_acknowledged_offsets_when_all_tasks_have_finished() -> None:
    tasks = [AcknowledgedOffsets(plan(), barrier.allGather) for barrier in ThreadsBarrier.of(3)]
    tasks[0].own_offsets, tasks[1].own_offsets = {0: 5, 1: 7}, {1: 3}
    with ThreadPoolExecutor(3) as pool:
        assert tasks[2]() is None
        first = pool.submit(tasks[0].finish)
        assert tasks[2]() is None
        pool.submit(tasks[1].finish).result(PATIENCE_S)
        first.result(PATIENCE_S)
        pool.submit(tasks[2].finish).result(PATIENCE_S)
    assert tasks[2]() == {0: 105, 1: 210, 2: 0}


def test_a_group_without_brokers_is_a_row_of_each_task() -> None:
    for number in (1, 2):
        rows = run_stage(plan(producers=number, tasks=number))
        assert [type(row) for row in rows] == [TaskReport] * (number + 1)
        assert all("127.0.0.1:1" in str(row.error) for row in rows)


def test_a_group_waits_for_members_whose_task_still_opens_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    trial = plan(connect_timeout_s=20.0, consumers=ConsumerOptions(groups=1, members=2))
    member = GroupMember(trial, 0, 0)

    def sleep(_seconds: float) -> None:  # the others join when their connections are open
        nonlocal now_s
        now_s += 10.0
        member.owned = 4 if now_s < 200.0 else 2

    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=sleep)
    monkeypatch.setattr("jobs.engine.consuming.group_member.time", clock)
    await_settled([member], trial)
    assert now_s == 200.0


# --- distribution of groups -------------------------------------------------------


def test_slots_are_shared_out_by_bytes_and_members_over_the_tasks() -> None:
    for groups, members, slots, tasks in (
        (0, 1, 8, 0), (1, 1, 1, 0), (1, 1, 2, 1), (5, 2, 2, 1), (1, 4, 8, 4), (3, 9, 16, 12)
    ):  # fmt: skip
        options = ConsumerOptions(groups=groups, members=members)
        assert options.tasks(slots) == tasks
        spread = [member for task in range(tasks) for member in options.members_of(task, tasks)]
        assert len(set(spread)) == len(spread) == (groups * members if tasks else 0)


def test_groups_without_room_are_refused() -> None:
    pattern = load_workload("demo", ["workload.consumers.groups=2"]).pattern(1_000, brokers=3)
    require_room(pattern, 2)
    with pytest.raises(ConfigError, match="Spark has 1 slot; expected 2 slots"):
        require_room(pattern, 1)
    crowded = ["workload.consumers.groups=2", "workload.consumers.members=31"]
    with pytest.raises(ConfigError, match="31 and the topics have 30 partitions"):
        require_room(load_workload("demo", crowded).pattern(1_000, brokers=3), 2)
    several = load_workload("demo", [*crowded, "workload.topic.count=2"])
    require_room(several.pattern(1_000, brokers=3), 2)
    require_room(load_workload("demo").pattern(1_000, brokers=3), 1)


def test_a_group_begins_at_the_first_record_at_the_end_or_its_backlog_before_it() -> None:
    """A backlog of ten records on four partitions is three records of each that has as many."""
    for group, offsets in (
        (ConsumerOptions(groups=1, start="latest"), [100, 7, 0, 0]),
        (ConsumerOptions(groups=1, start="earliest"), [5, 5, 5, 5]),
        (ConsumerOptions(groups=1, start="backlog", backlog_records=10), [97, 5, 5, 5]),
    ):
        trial = patterns.plan(consumers=group, end_offsets={0: 100, 1: 7})
        assert [trial.start_offset(partition, first=5) for partition in range(4)] == offsets
