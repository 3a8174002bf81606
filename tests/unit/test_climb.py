"""A load that grows: when its producers begin, and how the driver ends its growth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.engine.batches.pool import pool_of
from jobs.engine.producing.loop import GrowthEnd, growing_schedule
from jobs.engine.producing.producer import Producer
from jobs.engine.task.control_channel import DriverChannel
from jobs.trials.context import RunContext
from jobs.trials.running_load import NOTICE_S
from jobs.trials.warm_up import READ_S, AtRest, ClimbWatch, FirstLoads, climb_within, is_read
from metrics.judging.running import ENOUGH
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.sample import BrokerSample
from metrics.traffic.profile import Climb
from metrics.trial.trial import WarmUp
from search.model import Verdict
from tests.support.patterns import pattern, plan
from tests.support.running_loads import START_S, SentChannel, running

CLIMB = Climb(first=3, step_s=2.0)


def test_each_step_has_twice_the_producers_of_the_one_before() -> None:
    starts_s = [CLIMB.start_s(index) for index in range(13)]
    assert starts_s == [0.0] * 3 + [2.0] * 3 + [4.0] * 6 + [6.0]
    for step in range(5):
        begun = [index for index in range(100) if CLIMB.start_s(index) <= step * 2.0]
        assert len(begun) == CLIMB.load_in(step, 100)
    assert CLIMB.load_in(9, 100) == 100
    assert [CLIMB.step_at(load_s) for load_s in (-1.0, 0.0, 1.99, 2.0, 7.0)] == [0, 0, 0, 1, 3]
    for first, most, steps in ((1, 1, 1), (1, 2, 2), (3, 12, 3), (3, 13, 4)):
        climb = Climb(first, 1.0)
        assert climb.steps(most) == steps
        assert climb.load_in(steps - 1, most) == most
        assert steps == 1 or climb.load_in(steps - 2, most) < most


GROWING = plan(pattern=pattern(12, rate_records_per_s=10.0), climb=CLIMB)


def test_an_end_of_the_growth_withdraws_only_producers_that_have_not_begun() -> None:
    pool, given = pool_of(GROWING.pattern.producer), GROWING.pattern.producer
    load = [
        Producer(n, given, pool.section_of(n), range(4), growing_schedule(GROWING, n, 100.0))
        for n in range(12)
    ]

    def due() -> list[int]:
        return [each.records_due_between(100.0, 106.0) for each in load]

    assert due() == [60] * 3 + [40] * 3 + [20] * 6, "they offer nothing before they begin"
    driver = SimpleNamespace(climb_end_s=None)
    growth = GrowthEnd(cast(DriverChannel, driver), GROWING, 100.0)
    for each in (GrowthEnd(None, GROWING, 100.0), growth):
        each.apply(load)
        assert sum(due()) == 420
    driver.climb_end_s = 3.5
    growth.apply(load)
    assert due() == [60] * 3 + [40] * 3 + [0] * 6
    assert all(each.ready_s == each.scheduled_s == float("inf") for each in load[6:])
    driver.climb_end_s = 0.0
    growth.apply(load)
    assert sum(due()) == 300, "once is enough"


LOAD = pattern(64, rate_records_per_s=100.0, linger_ms=0.0)
LONG = replace(LOAD.phases, warmup_s=0.0, measure_s=100.0)
IDLE_MIN = 0.2


class Brokers:
    """Two brokers whose handlers are busy in proportion to the load, and take `capacity` at most.

    Args:
        limit: producers at which the busier broker's handlers have no idle time left.
        capacity: producers whose records are acknowledged at most.
        theirs: busy fraction of its handlers by others.
    """

    def __init__(
        self,
        limit: float,
        capacity: float = 1e9,
        most: int = 64,
        first: int = 1,
        theirs: float = 0.0,
    ) -> None:
        self._limit, self._capacity, self._theirs = limit, capacity, theirs
        self.channel, self.samples = SentChannel(), list[BrokerSample]()
        self._idle_s, self._written = 0.0, 0.0
        self.climb = Climb(first, 2.0)
        context = SimpleNamespace(
            reporter=RecordingReporter(),
            source=SimpleNamespace(nodes={n: SimpleNamespace(roles=[Role.BROKER]) for n in (1, 2)}),
            config=SimpleNamespace(
                goal=SimpleNamespace(indicators=SimpleNamespace(request_handler_idle_min=IDLE_MIN))
            ),
        )
        whole, at_rest = replace(LOAD, producers=most, phases=LONG), 1.0 - theirs
        self.load = running(whole, self.channel, context, self.samples, climb=self.climb)
        self.watch = ClimbWatch(self.load.context, whole, self.climb, is_read, idle_at_rest=at_rest)
        self.highest = 0

    def run(self) -> float:
        """Let the load grow until its end is set; returns its length [s]."""
        grows, step_s = True, 0.25
        for look in range(1, 400):
            load_s = look * step_s
            grows = grows and not self.channel.sent_as("climb_end_s")
            if grows:
                step = self.climb.step_at(load_s - step_s)
                load = self.climb.load_in(step, self.watch.pattern.producers)
                self.highest = max(self.highest, load)
            self._written += min(self.highest, self._capacity) * 100.0 * step_s
            self._idle_s += max(0.0, 1.0 - self._theirs - self.highest / self._limit) * step_s
            self.channel.receive(0, {"written": int(self._written)})
            if look % 2 == 0:
                for broker, idle_s in ((1, self._idle_s), (2, load_s)):
                    values = {HANDLER_IDLE_NS: 1e9 * idle_s}
                    self.samples.append(BrokerSample(broker, START_S + load_s, values))
            if self.watch.look(self.load, START_S + load_s) is None:
                break
        return self.channel.ends_s[0]


@pytest.mark.parametrize("theirs", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("limit", [12.0, 30.0, 100.0])
def test_a_climb_stays_where_its_reading_shows_the_limit(limit: float, theirs: float) -> None:
    brokers = Brokers(limit, theirs=theirs)
    length_s = brokers.run()
    at_limit = (1 - IDLE_MIN - theirs) * limit
    assert ENOUGH / 2 * at_limit <= brokers.watch.load == brokers.highest <= at_limit
    assert not brokers.watch.was_too_large
    assert brokers.watch.same_since_s is not None
    assert length_s - (brokers.watch.same_since_s - START_S) >= READ_S


def test_a_climb_that_meets_no_limit_reads_its_last_step() -> None:
    brokers = Brokers(10_000.0)
    brokers.run()
    assert brokers.watch.load == 64
    assert not brokers.channel.sent_as("climb_end_s")
    # A first step that is too large ends at once.
    brokers = Brokers(limit=10.0, first=16)
    assert brokers.run() <= 2.0 + NOTICE_S
    assert brokers.watch.was_too_large and brokers.watch.load == 16


@pytest.mark.parametrize("capacity", [3.0, 10.0, 40.0])
def test_a_step_that_brokers_do_not_take_ends_the_load(capacity: float) -> None:
    """The handlers stay idle, as on a slow disk or network."""
    brokers = Brokers(10_000.0, capacity)
    length_s = brokers.run()
    watch = brokers.watch
    assert watch.was_too_large and watch.is_short
    assert capacity < watch.load <= 4 * capacity
    first_large = next(n for n in range(9) if brokers.climb.load_in(n, 64) > capacity)
    assert length_s - NOTICE_S - 2.0 * first_large <= 4.0


def test_a_climb_fits_into_its_time() -> None:
    for most, load_max_s, first_max, first, last in (
        (64, 60.0, None, 1, 64),
        (64, 12.0, None, 8, 64),  # four steps
        (64, 12.0, 2, 2, 16),
        (64, 12.0, 0, 1, 8),
        (3, 60.0, 0, 1, 3),
        (64, 1.0, None, 64, 64),
    ):
        climb, found = climb_within(most, load_max_s, 4.0, 2.0, first_max)
        assert (climb.first, found) == (first, last)


class Climbs:
    """A replacement of climbs, with the (producers, idle fraction, is short) of each in turn."""

    def __init__(self, *found: tuple[int, float | None, bool]) -> None:
        self._found = iter(found)
        self.offered: list[tuple[str, float, int | None]] = []
        self.reporter = RecordingReporter()
        indicators = SimpleNamespace(request_handler_idle_min=IDLE_MIN)
        config = SimpleNamespace(goal=SimpleNamespace(indicators=indicators))
        self._context = cast(RunContext, SimpleNamespace(config=config, reporter=self.reporter))

    def once(
        self,
        _topics: object,
        name: str,
        _at_rest: AtRest,
        load_max_s: float,
        load_most: int | None,
        _is_cold: bool,
    ) -> tuple[float, ClimbWatch]:
        self.offered.append((name, load_max_s, load_most))
        watch = ClimbWatch(self._context, LOAD, CLIMB, is_read)
        watch.load, watch.idle, watch.is_short = next(self._found)
        watch.was_too_large = watch.is_short
        return 12.0, watch

    def run(self, monkeypatch: pytest.MonkeyPatch, load_max_s: float = 60.0) -> tuple[float, bool]:
        none: Any = None
        first = FirstLoads(self._context, load_max_s)
        monkeypatch.setattr(first, "_climb_once", self.once)
        return first._climb(none, "climb", AtRest())


def test_a_step_that_falls_short_of_idle_brokers_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    climbs = Climbs((2, 0.8, True), (2, 0.9, False))
    assert climbs.run(monkeypatch) == (24.0, True)
    assert climbs.offered == [("climb", 60.0, None), ("climb-again", 48.0, 2)]
    (phase,) = climbs.reporter.events
    assert isinstance(phase, PhaseStarted)
    assert phase.text == snapshot
    climbs = Climbs((2, 0.8, True), (2, 0.8, True))
    assert climbs.run(monkeypatch) == (24.0, False)
    # Not where the brokers are busy or unknown, the step is not short, or no time is left.
    for idle, is_short, load_max_s in (
        (0.5, True, 60.0), (None, True, 60.0), (0.9, False, 60.0), (0.9, True, 20.0)
    ):  # fmt: skip
        climbs = Climbs((8, idle, is_short))
        assert climbs.run(monkeypatch, load_max_s) == (12.0, not is_short)
        assert len(climbs.offered) == 1


def test_a_reading_that_is_short_is_a_saturated_hint() -> None:
    assert WarmUp(8, 0.95, is_short=False).hint(0.2) != WarmUp(8, 0.95, is_short=True).hint(0.2)
    short = WarmUp(8, None, is_short=True).hint(0.2)
    assert short is not None and short.verdict is Verdict.OVERLOADED
    assert WarmUp(8, None).hint(0.2) is None
