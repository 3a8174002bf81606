"""How a task with consumers follows the driver and the tasks with producers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs.engine.consumers.client import consumer_of, is_fair_share
from jobs.engine.consumers.pattern import ConsumerPattern
from jobs.engine.consumers.role import Acknowledged
from jobs.engine.consumers.timing import WindowClock
from jobs.engine.conversation import EndMissedError
from jobs.engine.driver_line import OrphanedError
from jobs.engine.partitions import Partitions
from jobs.engine.pattern import ProducerPattern, TrialPlan
from metrics.trial.task import TaskReport
from search.errors import ConfigError
from tests.support.threads_barrier import ThreadsBarrier, run_stage


def plan(**fields: Any) -> TrialPlan:
    """Two tasks with producers and one with consumers, without brokers."""
    values: dict[str, Any] = {
        "trial_id": "x",
        "topics": ("t",),
        "pattern": ProducerPattern(message_bytes=100, rate_records_per_s=100.0),
        "np": 2,
        "tasks": 2,
        "leaders": (1, 1, 1),
        "brokers": {1: ("127.0.0.1", 1)},
        "warmup_s": 2.0,
        "measure_s": 10.0,
        "connect_timeout_s": 1.0,
        "consumers": ConsumerPattern(groups=1),
        "consumer_tasks": 1,
        "end_offsets": {0: 100, 1: 200, 2: 0},
    }
    return TrialPlan(**(values | fields))


class SomeLine:
    """The line of a driver that says when the window ends, or is gone."""

    def __init__(self, end_after_s: float | None = None, is_gone: bool = False) -> None:
        self.end_after_s = end_after_s
        self._is_gone = is_gone

    def listen(self) -> None:
        if self._is_gone:
            raise OrphanedError("the driver has ended")


def window(line: SomeLine | None) -> WindowClock:
    """A window from 102 to 112 s."""
    return WindowClock(plan(), 100.0, line)  # type: ignore[arg-type]


def test_the_window_is_the_plans_until_the_driver_ends_it() -> None:
    for line in (None, SomeLine()):
        clock = window(line)
        clock.listen(103.0)
        assert (clock.start_s, clock.end_s) == (102.0, 112.0)
    clock = window(SomeLine(end_after_s=4.0))
    clock.listen(105.0)
    assert (clock.start_s, clock.end_s) == (102.0, 106.0)
    clock.listen(107.0)
    assert clock.end_s == 106.0, "heard in time, once is enough"


def test_an_end_that_has_passed_is_an_error_and_so_is_a_driver_that_is_gone() -> None:
    with pytest.raises(EndMissedError, match=r"1\.00 s before"):
        window(SomeLine(end_after_s=4.0)).listen(107.0)
    with pytest.raises(OrphanedError):
        window(SomeLine(is_gone=True)).listen(103.0)


def test_consumers_learn_what_was_acknowledged_when_all_tasks_have_finished() -> None:
    tasks = [Acknowledged(plan(), barrier.allGather) for barrier in ThreadsBarrier.of(3)]
    tasks[0].mine, tasks[1].mine = {0: 5, 1: 7}, {1: 3}
    with ThreadPoolExecutor(3) as pool:
        assert tasks[2].targets() is None
        first = pool.submit(tasks[0].finish)
        assert tasks[2].targets() is None
        pool.submit(tasks[1].finish).result(10)
        first.result(10)
        pool.submit(tasks[2].finish).result(10)
    assert tasks[2].targets() == {0: 105, 1: 210, 2: 0}


@pytest.mark.parametrize("fields", [{}, {"np": 1, "tasks": 1}])
def test_a_group_without_brokers_is_a_row_of_each_task(fields: dict[str, Any]) -> None:
    rows = run_stage(plan(**fields))
    assert [type(row) for row in rows] == [TaskReport] * (fields.get("tasks", 2) + 1)
    assert all("127.0.0.1:1" in str(row.error) for row in rows)


def test_a_member_has_its_fair_share_only_when_all_have_joined() -> None:
    assert [owned for owned in range(31) if is_fair_share(owned, Partitions(("t",), 30), 4)] == [
        7,
        8,
    ]
    assert [owned for owned in range(31) if is_fair_share(owned, Partitions(("t",), 30), 3)] == [10]


def test_an_unknown_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected wire, kafka-python or librdkafka"):
        consumer_of(plan(consumers=ConsumerPattern(groups=1, client="sarama")), 0)
