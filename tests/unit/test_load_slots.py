"""A load waits for its slots, which Spark may have lost with an executor since the last load."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engine.task.plan import TrialPlan
from jobs.spark.session import await_slots
from jobs.trials import load
from jobs.trials.control_server import TaskChannel
from jobs.trials.load import SLOTS_WAIT_S, Generator, StageFailedError, Target
from tests.support.patterns import pattern


class LosingSpark:
    """A session whose executors come and go, on a clock of the test.

    Attributes:
        sparkContext: the part of Spark's context that counts slots.
        asked: number of times that the slots were counted.
    """

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self.asked = 0
        profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
        java = SimpleNamespace(
            maxNumConcurrentTasks=self._count, resourceProfileManager=lambda: profiles
        )
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java))

    def _count(self, _profile: str) -> int:
        self.asked += 1
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]


class Began(Exception):  # noqa: N818 - not an error
    """The load began."""


class Control:
    """A server of control channels that ends the test where a load begins."""

    def channel(self, tasks: int, consumer_tasks: int = 0) -> Any:
        raise Began(tasks, consumer_tasks)


class SilentControl:
    """A server of control channels without tasks."""

    def channel(self, tasks: int, consumer_tasks: int = 0) -> Any:
        return nullcontext(TaskChannel("127.0.0.1", 1, tasks, lambda _: None, consumer_tasks))


@pytest.fixture(autouse=True)
def _fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    def awaited(count: Any, wanted: int | None, deadline_s: float) -> Any:
        return await_slots(count, wanted, deadline_s, lambda: now[0], pause)

    monkeypatch.setattr(load, "await_slots", awaited)


def offer(spark: LosingSpark, said: list[str]) -> None:
    generator = Generator(spark, 8, {}, Control(), report=said.append)  # type: ignore[arg-type]
    generator.offer("t", Target(("topic",), (1,), {1: ("127.0.0.1", 1)}), pattern(20))


def test_a_load_begins_at_once_where_all_slots_are_there() -> None:
    spark, said = LosingSpark([8]), []  # type: ignore[var-annotated]
    with pytest.raises(Began):
        offer(spark, said)
    assert (spark.asked, said) == (1, [])


def test_a_load_waits_for_the_slots_of_a_new_executor() -> None:
    spark, said = LosingSpark([6, 6, 6, 7, 8]), []  # type: ignore[var-annotated]
    with pytest.raises(Began) as began:
        offer(spark, said)
    assert began.value.args == (8, 0)
    assert said == ["waiting for 2 of 8 slots, as Spark lost an executor"]
    assert spark.asked == 5


def test_slots_that_do_not_come_back_are_a_failed_trial_with_a_remedy() -> None:
    with pytest.raises(StageFailedError) as failed:
        offer(LosingSpark([6]), [])
    assert f"2 of 8 slots are missing after {SLOTS_WAIT_S:.0f} s" in str(failed.value)
    assert "--slots" in str(failed.value)


@pytest.mark.parametrize(("slots", "lead_s"), [(1, 0.502), (500, 1.5)])
def test_many_tasks_get_more_time_between_the_signal_and_the_start(
    slots: int, lead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[TrialPlan] = []
    monkeypatch.setattr(Generator, "_run", lambda _, stage, _channel: plans.extend(stage.plans))
    generator = Generator(LosingSpark([500]), slots, {}, SilentControl())  # type: ignore[arg-type]
    generator.offer("t", Target(("topic",), (1,), {1: ("127.0.0.1", 1)}), pattern(1_000))
    assert [each.start_lead_s for each in plans] == [pytest.approx(lead_s)]


def test_a_load_of_few_producers_needs_no_more_slots_than_producers() -> None:
    generator = Generator(LosingSpark([3]), 8, {}, Control())  # type: ignore[arg-type]
    with pytest.raises(Began):
        generator.offer("t", Target(("topic",), (1,), {1: ("127.0.0.1", 1)}), pattern(3))
