"""The schedules: no record early, none twice, and the configured mean rate."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.producing.schedule import (
    EndingSchedule,
    EvenSchedule,
    FixedArrivals,
    Pace,
    PacedSchedule,
    due_between,
)
from metrics.traffic.clients import ProducerPattern
from tests.support.patterns import producer_pattern, schedule_of

START_S = 50.0


def _pattern(rate: float = 100.0, **options: Any) -> ProducerPattern:
    return producer_pattern(1_000, rate, **options)


PATTERNS = st.builds(
    _pattern,
    rate=st.floats(min_value=0.5, max_value=5_000),
    arrivals=st.sampled_from(["fixed", "poisson", "bursts"]),
    burst_on_s=st.floats(min_value=0.05, max_value=5),
    burst_off_s=st.floats(min_value=0.05, max_value=5),
    seed=st.integers(min_value=0, max_value=1),
)


@given(
    pattern=PATTERNS,
    index=st.integers(0, 500),
    ramp_up_s=st.sampled_from([0.0, 0.5, 20.0]),
    first=st.integers(0, 2_000_000),
)
def test_records_that_are_due_are_counted_and_no_later_ones(
    pattern: ProducerPattern, index: int, ramp_up_s: float, first: int
) -> None:
    schedule = schedule_of(pattern, index, START_S, ramp_up_s)
    slack_s = 3e-6 / pattern.rate_records_per_s + 1e-9
    for record in range(first, first + 30):
        due_s = schedule.due_s(record)
        assert START_S <= due_s <= schedule.due_s(record + 1)
        counted = schedule.due_until(due_s)
        assert counted > record
        assert schedule.due_s(counted - 1) <= due_s + slack_s, "none that is due later"


@given(
    pattern=PATTERNS,
    ramp_up_s=st.sampled_from([0.0, 30.0]),
    cuts=st.lists(st.floats(min_value=-5, max_value=120), min_size=2, max_size=6),
)
def test_windows_that_touch_add_up(
    pattern: ProducerPattern, ramp_up_s: float, cuts: list[float]
) -> None:
    schedule = schedule_of(pattern, 3, START_S, ramp_up_s)
    edges = [START_S + cut for cut in sorted(cuts)]
    parts = [due_between(schedule, a, b) for a, b in itertools.pairwise(edges)]
    assert sum(parts) == due_between(schedule, edges[0], edges[-1])
    assert min(parts) >= 0


@given(pattern=PATTERNS, ramp_up_s=st.sampled_from([0.0, 7.0]))
def test_a_count_is_the_number_of_due_times_inside(
    pattern: ProducerPattern, ramp_up_s: float
) -> None:
    schedule = schedule_of(pattern, 1, START_S, ramp_up_s)
    times = [schedule.due_s(record) for record in range(200)]
    from_s, to_s = times[20] - 1e-4 / pattern.rate_records_per_s, times[-1] + 1e-9
    inside = [t for t in times if from_s <= t < to_s]
    edge = len([t for t in times if abs(t - times[-1]) < 1e-5 / pattern.rate_records_per_s])
    near = len([t for t in times if abs(t - times[20]) < 2e-4 / pattern.rate_records_per_s])
    assert abs(due_between(schedule, from_s, to_s) - len(inside)) <= edge + near


def test_a_fixed_rate_is_exact() -> None:
    for rate, index in itertools.product((1.0, 7.3, 1_000_000.0), (0, 777)):
        schedule = schedule_of(_pattern(rate), index, START_S)
        offered = due_between(schedule, START_S + 60, START_S + 360)
        assert offered == pytest.approx(300 * rate, abs=1)
        assert isinstance(schedule, EvenSchedule)
    ramped = schedule_of(_pattern(1_000.0), 0, START_S, ramp_up_s=10.0)
    counts = [due_between(ramped, START_S + s, START_S + s + 1) for s in range(14)]
    assert counts == pytest.approx([1_000 * min(1.0, (s + 0.5) / 10) for s in range(14)], abs=1.5)


def test_the_fast_schedule_is_the_general_one_without_ramp_up() -> None:
    fast = EvenSchedule(70.0, START_S + 0.25 / 70.0)
    general = PacedSchedule(Pace(70.0), FixedArrivals(0.25), START_S)
    for record in (0, 1, 999, 1_000_003):
        assert fast.due_s(record) == pytest.approx(general.due_s(record), abs=1e-9)
        assert fast.due_until(fast.due_s(record)) == general.due_until(fast.due_s(record))
    assert due_between(fast, START_S, START_S + 99) == due_between(general, START_S, START_S + 99)


def test_bursts_keep_the_mean_and_pause() -> None:
    pattern = _pattern(1_000.0, arrivals="bursts", burst_on_s=0.5, burst_off_s=1.5)
    for index in (0, 5):
        schedule = schedule_of(pattern, index, START_S)
        for cycle in range(3):
            begin_s = START_S + 2.0 * cycle
            assert due_between(schedule, begin_s, begin_s + 2) == pytest.approx(2_000, abs=1)
            assert due_between(schedule, begin_s, begin_s + 0.25) == pytest.approx(1_000, abs=1)
            assert due_between(schedule, begin_s + 0.501, begin_s + 2) == 0
            assert schedule.due_until(begin_s + 1.9) == schedule.due_until(begin_s + 0.501)


@given(
    pattern=PATTERNS,
    records=st.integers(0, 300),
    ramp_up_s=st.sampled_from([0.0, 2.0]),
    at_s=st.floats(min_value=-1, max_value=500),
)
def test_a_volume_ends_after_its_records(
    pattern: ProducerPattern, records: int, ramp_up_s: float, at_s: float
) -> None:
    endless = schedule_of(pattern, 2, START_S, ramp_up_s)
    ending = EndingSchedule(endless, records)
    now = START_S + at_s
    assert ending.due_until(now) == min(records, endless.due_until(now))
    assert ending.due_until(now, -1e-6) == min(records, endless.due_until(now, -1e-6))
    assert due_between(ending, START_S, math.inf) == ending.due_until(math.inf) == records
    for record in range(records - 3, records):
        assert ending.due_s(max(0, record)) == endless.due_s(max(0, record)) or not records
    assert ending.due_s(records) == math.inf


def test_poisson_gaps_are_exponential_and_repeatable() -> None:
    pattern = _pattern(100.0, arrivals="poisson")
    one, again, other = (schedule_of(pattern, index, START_S) for index in (4, 4, 5))
    times = [one.due_s(record) for record in range(20_000)]
    assert times == [again.due_s(record) for record in range(20_000)]
    assert times[:100] != [other.due_s(record) for record in range(100)]
    gaps_s = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.mean(gaps_s) == pytest.approx(0.01, rel=0.03)
    assert statistics.pstdev(gaps_s) == pytest.approx(0.01, rel=0.05)
    share = sum(gap > 0.01 for gap in gaps_s) / len(gaps_s)
    assert share == pytest.approx(math.exp(-1), abs=0.015)
    counts = [due_between(one, START_S + s, START_S + s + 1) for s in range(200)]
    assert statistics.variance(counts) == pytest.approx(100, rel=0.35), "not evened out"


def test_the_poisson_process_continues_beyond_its_cycle() -> None:
    schedule = schedule_of(_pattern(100_000.0, arrivals="poisson"), 2, START_S)
    assert schedule.due_s(2_621_440) - schedule.due_s(0) == pytest.approx(26.2144, abs=1e-6)
    assert schedule.due_until(schedule.due_s(1_000_000)) == pytest.approx(1_000_001, abs=1)
