"""A load that grows along the scale of a mix: each part offers the scale of each step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cluster.topic_plan import Assignment
from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load as load_config
from jobs.console.events import PhaseProgress, RecordingReporter
from jobs.engine.producing.loop import GrowthEnd, growing_schedule
from jobs.engine.producing.schedule import EvenSchedule, due_between
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.trials.context import RunContext
from jobs.trials.load import plans_of_parts
from jobs.trials.warm_up import ClimbWatch, can_climb, is_read
from metrics.planning.load_needs import share_slots
from metrics.traffic.axes import SCALE
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from tests.support import mixes
from tests.support.contexts import run_context
from tests.support.driven_delivery import DrivenDelivery
from tests.support.mixes import MIX
from tests.support.patterns import pattern, plan
from tests.support.running_loads import START_S, SentChannel, running

MOST = 96
WHOLE = SCALE.apply(mixes.WHOLE, MOST)
CLIMB = Climb(first=3, step_s=2.0)
"""3, 6, 12, 24, 48 and 96 % of the mix."""


def plans(climb: Climb) -> tuple[TrialPlan, ...]:
    """The plans of the parts, in one task for the producers of each."""
    shares = share_slots(WHOLE, 4, reads=False)
    whole = plan(pattern=WHOLE, tasks=sum(each.tasks for each in shares), climb=climb)
    placed: Assignment = dict.fromkeys(range(4), (7,))
    topics = TopicSet.of_parts([TopicSet(("t",), 1, placed) for _ in WHOLE.parts], 1)
    return plans_of_parts(whole, topics, shares)


# --- the steps --------------------------------------------------------------------------


@pytest.mark.parametrize("producers", [1, 2, 3, 7, 40, 1_000])
@pytest.mark.parametrize(("first", "most"), [(1, 1), (1, 64), (3, 96), (5, 64), (64, 64), (7, 900)])
def test_each_part_offers_the_scale_of_each_step(producers: int, first: int, most: int) -> None:
    climb = Climb(first, 2.0).of_part(producers, most)
    for step in range(climb.steps(most)):
        at_s, whole, begun = step * 2.0, 0.0, 0
        for index in range(producers):
            shares = climb.shares(index)
            assert shares[0][0] == climb.start_s(index)
            assert [share for _, share in shares] == sorted(share for _, share in shares)
            assert 0 < shares[0][1] <= shares[-1][1] == 1.0
            now = [share for start_s, share in shares if start_s <= at_s]
            whole += now[-1] if now else 0.0
            begun += bool(now) and now[-1] < 1.0
        assert whole / producers == pytest.approx(climb.load_in(step, most) / most)
        assert begun <= 1, "one producer makes up for the rest"


def test_a_load_of_one_pattern_grows_by_whole_producers() -> None:
    climb = Climb(3, 2.0)
    for index in range(100):
        assert climb.shares(index) == [(climb.start_s(index), 1.0)]
    single = plan(pattern=pattern(12, rate_records_per_s=10.0), climb=climb)
    assert isinstance(growing_schedule(single, 7, 100.0), EvenSchedule)
    assert plans_of_parts(single, TopicSet(("t",), 1, {}), [])[0].climb is climb


def test_the_end_of_the_growth_holds_each_part_at_its_share() -> None:
    """The load ends to grow in step 2, at 12 % of the mix; an eighth of what it would be."""
    for own in plans(replace(CLIMB, step_s=200.0)):
        driver = SimpleNamespace(climb_end_s=None)
        driven = [FakeProducer(own, index) for index in range(own.pattern.producers)]
        growth = GrowthEnd(cast(DriverChannel, driver), own, 100.0)
        growth.apply(driven)  # type: ignore[arg-type]  # as far as it uses them
        assert not any(each.is_withdrawn or each.is_held for each in driven)
        before = [due_between(each.schedule, 100.0, 650.0) for each in driven]
        driver.climb_end_s = 550.0
        growth.apply(driven)  # type: ignore[arg-type]
        for each, expected in zip(driven, before, strict=True):
            now = 0 if each.is_withdrawn else due_between(each.schedule, 100.0, 650.0)
            assert now == expected, "what is over stays as it is"
        left = [each for each in driven if not each.is_withdrawn]
        later = sum(due_between(each.schedule, 1_100.0, 2_100.0) for each in left)
        held = 1_000 * own.pattern.records_per_s * 12 / MOST
        assert abs(later - held) <= len(left) + 0.02 * held, own.part
        assert sum(each.is_held for each in driven) <= 1


class FakeProducer:
    """A producer as the end of the growth sees it."""

    def __init__(self, own: TrialPlan, index: int) -> None:
        self.index = index
        self.schedule = growing_schedule(own, index, 100.0)
        self.is_withdrawn = self.is_held = False

    def due_s(self, record: int) -> float:
        return self.schedule.due_s(record)

    def withdraw(self) -> None:
        self.is_withdrawn = True

    def hold(self, schedule: EvenSchedule) -> None:
        self.schedule, self.is_held = schedule, True


def test_a_producer_that_is_held_sends_each_record_once() -> None:
    """Record 21 is due later by the other schedule, and the delivery has a time for it already."""
    driven = DrivenDelivery(end_s=40.0, rate=2.0, acks="0")
    producer = driven.producer
    producer.hold(EvenSchedule(2.0, 0.0))
    assert len(driven.until(10.0)) == producer.opened == 21
    producer.hold(EvenSchedule(1.0, -10.25))  # record 21 is due at 10.75 instead of 10.5
    assert driven.until(10.7) == []
    assert len(driven.until(10.8)) == 1
    driven.until(39.9)
    assert producer.opened == 21 + 30
    assert driven.counts.sent_by_partition == {0: 51}


def test_tasks_offer_the_scale_of_each_step() -> None:
    """On a broker of this process: a quarter of the mix, a half of it, and all of it."""
    phases: dict[str, Any] = {
        "warmup_s": 0.0, "measure_s": 1.0, "linger_ms": 2.0, "pool_bytes": 200_000
    }  # fmt: skip
    parts = [
        pattern(4, rate_records_per_s=160.0, **phases).as_part("orders"),
        pattern(1, rate_records_per_s=320.0, **phases).as_part("images"),
    ]
    window, broker = mixes.run_parts(parts, 2, Climb(25, 0.25))
    passed_s = 0.25 * (0.25 + 0.5 + 1.0 + 1.0)
    orders, images = (each.counts for each in window.parts.values())
    assert orders.offered_records == pytest.approx(4 * 160 * passed_s, abs=8)
    assert images.offered_records == pytest.approx(320 * passed_s, abs=3)
    assert window.counts.acked_total == broker.records


# --- the driver -------------------------------------------------------------------------


def watch_of(whole: TrafficPattern) -> ClimbWatch:
    indicators = SimpleNamespace(request_handler_idle_min=0.2)
    config = SimpleNamespace(goal=SimpleNamespace(indicators=indicators))
    context = run_context(
        reporter=RecordingReporter(), source=SimpleNamespace(nodes={}), config=config
    )
    return ClimbWatch(context, whole, CLIMB, is_read)


@pytest.mark.parametrize(("missing_s", "is_short"), [(0.3, False), (1.2, True)])
def test_brokers_that_take_less_of_a_mix_end_its_growth(missing_s: float, is_short: bool) -> None:
    """Records may wait for the linger, in the mean over all of them, and 0.75 s more."""
    watch, channel = watch_of(WHOLE), SentChannel()
    load = running(WHOLE, channel, watch.context, climb=CLIMB)
    linger_s = (2_500 * 1.0 + 1_000 * 0.1) / 3_520  # images have no linger
    per_s = WHOLE.records_per_s
    for look in range(1, 60):
        load_s, offered = look * 0.25, 0.0
        for tick in range(look):
            offered += 0.25 * per_s * CLIMB.load_in(int(tick * 0.25 / 2 + 1e-9), MOST) / MOST
        rate = per_s * CLIMB.load_in(int(load_s / 2 + 1e-9), MOST) / MOST
        channel.receive(0, {"written": max(0, int(offered - (linger_s + missing_s) * rate))})
        if watch.look(load, START_S + load_s) is None:
            break
    assert watch.was_too_large == watch.is_short == is_short
    assert is_short or watch.load == MOST
    progress = cast(RecordingReporter, watch.context.reporter).events[0]
    assert isinstance(progress, PhaseProgress) and progress.detail == "0.03 times the mix"


def test_a_mix_grows_along_its_scale() -> None:
    for workload, overrides, grows in (
        (MIX, [], True),
        (MIX, ["goal.search.axis=scale.orders"], False),
        ("demo", ["goal.search.axis=rate", "workload.np=4"], False),
    ):
        config = load_config("testbed", workload, "default", overrides)
        context = cast(RunContext, SimpleNamespace(config=config, pattern=config.pattern))
        assert can_climb(context, config.workload.message_bytes[0]) is grows
