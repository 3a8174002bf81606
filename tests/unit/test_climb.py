"""A load that grows: when its producers begin, and how the driver ends its growth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from jobs.engine.batches.pool import pool_of
from jobs.engine.producing.growth import GrowthEnd
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import schedule_for
from jobs.engine.task.control_channel import DriverChannel
from metrics.traffic.climb import Climb
from tests.support.patterns import pattern

CLIMB = Climb(first=3, step_s=2.0)


def test_each_step_has_twice_the_producers_of_the_one_before() -> None:
    assert [CLIMB.start_s(index) for index in range(13)] == [0.0] * 3 + [2.0] * 3 + [4.0] * 6 + [
        6.0
    ]
    for step in range(5):
        begun = [index for index in range(100) if CLIMB.start_s(index) <= step * 2.0]
        assert len(begun) == CLIMB.producers_in(step, 100)
    assert CLIMB.producers_in(9, 100) == 100


@pytest.mark.parametrize(("first", "most", "steps"), [(1, 1, 1), (1, 2, 2), (3, 12, 3), (3, 13, 4)])
def test_the_last_step_has_all_producers(first: int, most: int, steps: int) -> None:
    climb = Climb(first, 1.0)
    assert climb.steps(most) == steps
    assert climb.producers_in(steps - 1, most) == most
    assert steps == 1 or climb.producers_in(steps - 2, most) < most


@pytest.mark.parametrize(("load_s", "step"), [(-1.0, 0), (0.0, 0), (1.99, 0), (2.0, 1), (7.0, 3)])
def test_a_step_lasts_its_time(load_s: float, step: int) -> None:
    assert CLIMB.step_at(load_s) == step


def producers(start_s: float = 100.0) -> list[Producer]:
    """Twelve producers of a load that begins at 100 s."""
    load = pattern(12, rate_records_per_s=10.0)
    pool = pool_of(load.producer)
    return [
        Producer(
            index,
            load.producer,
            pool.section_of(index),
            range(4),
            schedule_for(load, index, start_s + CLIMB.start_s(index)),
        )
        for index in range(12)
    ]


def test_producers_offer_nothing_before_they_begin() -> None:
    due = [each.records_due_between(100.0, 106.0) for each in producers()]
    assert due == [60] * 3 + [40] * 3 + [20] * 6


def test_an_end_of_the_growth_withdraws_only_producers_that_have_not_begun() -> None:
    load, driver = producers(), SimpleNamespace(climb_end_s=None)
    growth = GrowthEnd(cast(DriverChannel, driver), 100.0)
    growth.apply(load)
    assert sum(each.records_due_between(100.0, 106.0) for each in load) == 420
    driver.climb_end_s = 3.5
    growth.apply(load)
    assert [each.records_due_between(100.0, 106.0) for each in load] == [60] * 3 + [40] * 3 + [
        0
    ] * 6
    assert all(each.ready_s == each.scheduled_s == float("inf") for each in load[6:])
    driver.climb_end_s = 0.0
    growth.apply(load)
    assert sum(each.records_due_between(100.0, 106.0) for each in load) == 300, "once is enough"


def test_without_a_driver_nothing_is_withdrawn() -> None:
    load = producers()
    GrowthEnd(None, 100.0).apply(load)
    assert sum(each.records_due_between(100.0, 106.0) for each in load) == 420
