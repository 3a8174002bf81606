"""A load waits for its slots, which Spark may have lost with an executor since the last load."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.engine.task.plan import TrialPlan
from jobs.spark.session import await_slots
from jobs.trials import load
from jobs.trials.control_server import TaskChannel
from jobs.trials.load import SLOTS_WAIT_S, Generator, GeneratorError, Load
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


def load_of(producers: int) -> Load:
    topics = TopicSet(("topic",), 100, {0: (1,)})
    return Load("t", topics, pattern(producers), {1: ("127.0.0.1", 1)})


def offer(spark: LosingSpark, producers: int = 20) -> list[str]:
    """Begin a load on 8 slots, and return what was said before."""
    said: list[str] = []
    generator = Generator(spark, 8, {}, Control(), report=said.append)  # type: ignore[arg-type]
    with pytest.raises(Began) as began:
        generator.offer(load_of(producers))
    assert began.value.args == (min(8, producers), 0)
    return said


def test_a_load_waits_for_the_slots_of_a_new_executor() -> None:
    assert offer(LosingSpark([3]), producers=3) == [], "it needs no more"
    whole, spark = LosingSpark([8]), LosingSpark([6, 6, 6, 7, 8])
    assert (offer(whole), whole.asked) == ([], 1)
    assert offer(spark) == ["waiting for 2 of 8 slots, because Spark lost an executor"]
    assert spark.asked == 5


def test_slots_that_do_not_come_back_are_a_failed_trial_with_a_remedy() -> None:
    missing = rf"2 of 8 slots are missing after {SLOTS_WAIT_S:.0f} s.*--slots"
    with pytest.raises(GeneratorError, match=missing):
        offer(LosingSpark([6]))


@pytest.mark.parametrize(("slots", "lead_s"), [(1, 0.502), (500, 1.5)])
def test_many_tasks_get_more_time_between_the_signal_and_the_start(
    slots: int, lead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[TrialPlan] = []
    monkeypatch.setattr(Generator, "_run", lambda _, stage, _channel: plans.extend(stage.plans))
    generator = Generator(LosingSpark([500]), slots, {}, SilentControl())  # type: ignore[arg-type]
    generator.offer(load_of(1_000))
    assert [each.start_lead_s for each in plans] == [pytest.approx(lead_s)]
