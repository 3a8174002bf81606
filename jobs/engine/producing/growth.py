"""The schedules of producers while a load grows, and the end of its growth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import Schedule, schedule_for
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.profile import RateProfile

_ENDLESS_S = 1e9


def growing_schedule(
    plan: TrialPlan, index: int, start_s: float, last_step: int | None = None
) -> Schedule:
    """The schedule of a producer, which begins at its step where the load grows.

    Of a mix, one producer of each part offers a share of its rate, which grows with the steps; it
    has no bursts.

    Args:
        start_s: start of the load, on the engine's clock [s].
        last_step: the step at which the load stays; None while it grows.
    """
    if plan.climb is None:
        return schedule_for(plan.pattern, index, start_s)
    shares = plan.climb.shares(index, last_step)
    begin_s, first = shares[0]
    if first >= 1.0:
        return schedule_for(plan.pattern, index, start_s + begin_s)
    points, share = [(0.0, first)], first
    for at_s, later in shares[1:]:
        points += [(at_s - begin_s, share), (at_s - begin_s, later)]
        share = later
    growth = RateProfile("growth", (*points, (_ENDLESS_S, share)))
    return schedule_for(replace(plan.pattern, profile=growth), index, start_s + begin_s)


class GrowthEnd:
    """The end of a load's growth, which the driver sets while the load runs.

    Args:
        driver: control channel to the driver; None without one.
        plan: the plan of the load.
        start_s: start of the load, on the engine's clock [s].
    """

    def __init__(self, driver: DriverChannel | None, plan: TrialPlan, start_s: float) -> None:
        self._driver = driver
        self._plan = plan
        self._start_s = start_s

    def apply(self, producers: Iterable[Producer]) -> None:
        """Once the driver ends the growth, withdraw the producers that have not begun, and hold
        those with a share of their rate at it.
        """
        climb = self._plan.climb
        if self._driver is None or self._driver.climb_end_s is None or climb is None:
            return
        load_s, self._driver = self._driver.climb_end_s, None
        last_step = climb.step_at(load_s)
        for each in producers:
            share = climb.shares(each.index, last_step)[-1][1]
            if climb.start_s(each.index) > load_s:
                each.withdraw()
            elif share < 1.0:
                each.hold(growing_schedule(self._plan, each.index, self._start_s, last_step))
            elif each.due_s(0) > self._start_s + load_s:
                each.withdraw()
