"""How many times today's traffic fits, by the use of resources and by rates."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.headroom.answer import (
    Answer,
    hold_against_run,
    hold_against_thresholds,
    limit_for_size,
    measured_capacity,
    nearest_limit,
    row_of,
)
from metrics.features.headroom.growth import answer_words, table_rows, times_words
from metrics.features.headroom.limits import (
    RunLimit,
    TrafficLimit,
    answers_of,
    fit_line,
    others_of,
    run_limit,
)
from metrics.features.headroom.loads import BYTES_PER_S, RATIO, ResourceLoad, Today, loads_of
from metrics.judging.thresholds import Indicators
from metrics.tables.rows import ResourceHeadroom
from metrics.trial.others import OtherLoad
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.use import Resource
from tests.support.headroom import (
    AT_LIMIT,
    LIMIT,
    REST,
    STORED_BYTES,
    boundary,
    today_at,
    trials_at,
    use_at,
    window_at,
    windows_at,
)

LIMITS = Indicators()
HANDLERS = (Resource.REQUEST_HANDLERS, RATIO)


def measured(*loads: int, **changes: object) -> RunLimit:
    return run_limit(boundary(**changes), trials_at(*(loads or (40, 80, 100, 105))), LIMITS)


def answer_at(*loads: float, limit: RunLimit | None = None, today: Today | None = None) -> Answer:
    found = hold_against_run(today or today_at(*loads), [limit or measured()], LIMITS)
    assert found is not None
    return found


# --- lines --------------------------------------------------------------------


def test_a_line_finds_the_use_at_rest_from_loads_that_are_apart() -> None:
    line = fit_line([(load, use_at(load)) for load in (20, 50, 80, 100)], 100.0)
    assert line is not None
    assert line.at_rest == pytest.approx(REST, abs=0.005)
    assert line.at_load == pytest.approx(AT_LIMIT, rel=0.01)


def test_loads_near_the_limit_alone_leave_the_use_at_rest_open() -> None:
    near = fit_line([(load, use_at(load)) for load in (98, 100, 102)], 100.0)
    apart = fit_line([(load, use_at(load)) for load in (20, 60, 100)], 100.0)
    assert near is not None and apart is not None
    assert near.rest_error > 3 * apart.rest_error
    assert near.at_load == pytest.approx(AT_LIMIT, rel=0.02)


def test_a_use_at_rest_is_never_negative() -> None:
    line = fit_line([(50.0, 0.2), (100.0, 0.8)], 100.0)
    assert line is not None and line.at_rest == 0.0


def test_a_scattered_line_has_a_larger_error() -> None:
    points = [(load, use_at(load)) for load in (20, 50, 80, 100)]
    off = [(load, use + 0.08 * (-1) ** n) for n, (load, use) in enumerate(points)]
    sure, unsure = fit_line(points, 100.0), fit_line(off, 100.0)
    assert sure is not None and unsure is not None
    assert unsure.load_error > 2 * sure.load_error


def test_windows_without_load_are_no_line() -> None:
    assert fit_line([(0.0, 0.1)], 100.0) is None
    unused = fit_line([(10.0, 0.0)], 100.0)
    assert unused is not None and unused.at_load == 0.0


# --- uses ---------------------------------------------------------------------


def test_the_cpu_of_other_programs_does_not_grow_with_the_traffic() -> None:
    window = window_at(100, cpu_process_share=0.2, cpu_machine_share=0.5)
    load = loads_of([window], (), LIMITS)[1][Resource.CPU, RATIO]
    assert load.used == 0.2
    assert load.most == pytest.approx(0.9 - 0.3)


def test_brokers_on_one_machine_share_its_cpu() -> None:
    both = [window_at(50, each, cpu_process_share=0.2, cpu_machine_share=0.5) for each in (1, 2)]
    apart = loads_of(both, (), LIMITS, {1: "a", 2: "b"})[1][Resource.CPU, RATIO]
    together = loads_of(both, (), LIMITS, {1: "a", 2: "a"})[1][Resource.CPU, RATIO]
    assert (apart.used, together.used) == (0.2, 0.4)
    assert together.most == pytest.approx(0.9 - 0.1)


def test_brokers_that_share_an_address_may_have_machines_of_their_own() -> None:
    """Three brokers that use 40 % each cannot be on a machine of which 50 % are in use."""
    brokers = [
        window_at(50, each, cpu_process_share=0.4, cpu_machine_share=0.5) for each in (1, 2, 3)
    ]
    load = loads_of(brokers, (), LIMITS, dict.fromkeys((1, 2, 3), "balancer"))[1]
    assert load[Resource.CPU, RATIO].used == 0.4
    assert load[Resource.CPU, RATIO].most == pytest.approx(0.9 - 0.1)


def test_an_unknown_share_of_the_process_is_that_of_the_machine() -> None:
    window = window_at(100, cpu_process_share=None, cpu_machine_share=0.5)
    load = loads_of([window], (), LIMITS)[1][Resource.CPU, RATIO]
    assert (load.used, load.most) == (0.5, 0.9)


def test_hosts_show_disks_and_interfaces() -> None:
    disk = DiskWindow("sda", busy_share=0.6)
    link = InterfaceWindow("eth0", 50.0, 20.0, speed_bytes_per_s=100.0)
    host = HostWindow("h", (1,), False, True, disks=(disk,), interfaces=(link,))
    loads = loads_of([window_at(50)], [host], LIMITS)[1]
    assert loads[Resource.DISK, RATIO].used == 0.6
    assert loads[Resource.NETWORK, RATIO].used == 0.5
    assert loads[Resource.DISK, BYTES_PER_S].most is None


def test_a_quota_shows_only_while_it_throttles() -> None:
    assert (Resource.QUOTA, RATIO) not in loads_of([window_at(50)], (), LIMITS)[1]
    slow = window_at(50)
    slow = replace(slow, produce=replace(slow.produce, throttle_ms=20.0))
    assert loads_of([slow], (), LIMITS)[1][Resource.QUOTA, RATIO].used == 1.0


# --- limits of a run ----------------------------------------------------------


def test_a_run_shows_the_use_at_its_limit() -> None:
    found = measured()
    assert found.binding == HANDLERS
    line = found.line_of(1, HANDLERS)
    assert line is not None and line.at_load == pytest.approx(AT_LIMIT, rel=0.02)
    tail = 1.645 * 0.06  # runs on other days differ
    assert found.low == pytest.approx(math.exp(-math.hypot(math.log(1 / 0.95), tail)), rel=1e-3)
    assert found.high == pytest.approx(math.exp(math.hypot(math.log(1.06), tail)), rel=1e-3)
    assert found.traffic is not None
    assert found.traffic.stored_bytes == pytest.approx(STORED_BYTES)
    assert found.traffic.bytes_per_s == pytest.approx(LIMIT * 10 * STORED_BYTES)


def test_the_limit_that_disks_were_proven_to_write_counts_where_it_is_lower() -> None:
    burst = boundary(proven_on_disk=False, steady_load=LIMIT / 4)
    found = run_limit(burst, trials_at(20, 40, 80, 100), LIMITS)
    assert found.limited_by is Resource.DISK
    line, whole = found.line_of(1, HANDLERS), measured().line_of(1, HANDLERS)
    assert line is not None and whole is not None
    assert line.at_load - line.at_rest == pytest.approx(
        (whole.at_load - whole.at_rest) / 4, rel=0.1
    )


def test_overloads_far_beyond_the_limit_do_not_count() -> None:
    trials = [*trials_at(40, 80, 100), *trials_at(300, handler_idle=0.0)]
    line = run_limit(boundary(), trials, LIMITS).line_of(1, HANDLERS)
    assert line is not None and line.at_load == pytest.approx(AT_LIMIT, rel=0.02)


def test_trials_of_another_size_or_goal_do_not_count() -> None:
    trials = trials_at(40, 80, 100)
    with pytest.raises(NoConclusionError, match="show no use of the brokers' resources"):
        run_limit(boundary(goal="strict"), trials, LIMITS)
    with pytest.raises(NoConclusionError, match="10 kB"):
        run_limit(boundary(message_bytes=10_000), trials, LIMITS)


def test_a_broker_that_the_run_had_not_is_like_the_mean_of_the_others() -> None:
    found = measured()
    other, own = found.line_of(9, HANDLERS), found.line_of(1, HANDLERS)
    assert other is not None and own is not None
    assert other.at_load == pytest.approx(own.at_load)
    answer = answer_at(limit=found, today=today_at(10.0, 10.0, 50.0))
    assert answer.first.broker_id == 3
    assert any("no broker 3" in note for note in answer.notes)


def test_others_beside_a_run_belong_to_the_load_of_its_brokers() -> None:
    beside = OtherLoad(1_000.0, 30e6, 0.0, 0.0, 2_000.0, 90e6)
    (trial,) = trials_at(60)
    shared = replace(trial, evidence=replace(trial.evidence, others=beside))
    assert others_of(trial) == 0.0
    assert others_of(shared) == pytest.approx(30.0)


def test_a_run_beside_production_leads_to_the_same_answer() -> None:
    """The handlers' use of 20 producers' worth of others is no use at rest."""
    trials = []
    for trial in trials_at(60, 80, 100):
        load = trial.load
        own = load - 20
        beside = OtherLoad(1_000.0, 20e6, 0.0, 0.0, 2_000.0, 20e6 * load / 20)
        pattern = replace(trial.pattern, producers=own, load=own)
        trials.append(
            replace(trial, pattern=pattern, evidence=replace(trial.evidence, others=beside))
        )
    point = boundary(load_estimate=80.0, load_sustained=80, load_low=76.0, load_high=85.0)
    answer = answer_at(20.0, 20.0, limit=run_limit(point, trials, LIMITS))
    assert answer.times == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("goal", [None, "loose"])
def test_a_goal_is_named_where_a_run_has_several(goal: str | None) -> None:
    points = [boundary(goal="default"), boundary(goal="strict")]
    with pytest.raises(ConfigError, match=r"default, strict.*--goal"):
        answers_of(points, "run-1", goal)
    assert answers_of(points, "run-1", "strict") == points[1:]


@pytest.mark.parametrize(
    "points",
    [
        [],
        [boundary(gave_up="the budget is spent")],
        [boundary(state="1 broker offline")],
        [boundary(axis="message_bytes")],
    ],
)
def test_a_run_without_a_limit_is_no_answer(points: list[object]) -> None:
    with pytest.raises(NoConclusionError, match=r"run-1 has no closed bracket.*--resume"):
        answers_of(points, "run-1", None)  # type: ignore[arg-type]


# --- answers ------------------------------------------------------------------


@pytest.mark.parametrize("load", [10.0, 30.0, 60.0, 90.0])
def test_todays_traffic_fits_as_often_as_the_load_does(load: float) -> None:
    answer = answer_at(load, load / 2)
    assert answer.times == pytest.approx(LIMIT / load, rel=0.04)
    assert answer.times_low < LIMIT / load < answer.times_high
    assert (answer.first.broker_id, answer.first.resource) == (1, "request handlers")
    assert not answer.is_estimate


def test_traffic_beyond_the_limit_is_named() -> None:
    answer = answer_at(120.0, 60.0)
    assert answer.times < 1
    assert "beyond the limit" in answer_words(answer)


def test_the_interval_has_that_of_the_limit_and_the_scatter_of_the_window() -> None:
    steady = answer_at(today=today_at(50.0, 20.0, parts=[(50.0, 20.0)] * 6))
    scattered = answer_at(
        today=today_at(50.0, 20.0, parts=[(at, 20.0) for at in (30, 70, 40, 60, 35, 65)])
    )
    width = math.log(steady.times_high / steady.times_low)
    assert width >= math.log(106 / 95)
    assert math.log(scattered.times_high / scattered.times_low) > 1.5 * width
    wider = answer_at(50.0, 20.0, limit=measured(load_low=70.0, load_high=140.0))
    assert math.log(wider.times_high / wider.times_low) >= math.log(2.0)


def test_a_scattered_small_use_leaves_the_interval_of_the_answer_alone() -> None:
    """Network threads that are busy for 1 % in some parts and for 6 % in others."""
    quiet = today_at(50.0, 20.0, network_idle=0.98, parts=[(50.0, 20.0)] * 6)
    parts = [
        windows_at((50.0, 20.0), network_idle=1.0 - use) for use in (0.0, 0.06, 0.0, 0.06, 0.0, 0.0)
    ]
    answer = answer_at(today=replace(quiet, parts=parts))
    row = next(row for row in answer.rows if row.resource == "network threads")
    assert row.times_low is not None and row.times_low > 5
    assert row.times_high is not None and row.times_high <= 100.0 * 1.1
    assert answer.times_low == answer.first.times_low


def test_another_resource_gives_out_first_where_production_uses_more_of_it() -> None:
    readers = today_at(20.0, 20.0, network_idle=0.3)
    answer = answer_at(today=readers)
    assert answer.first.resource == "network threads"
    assert answer.times == pytest.approx(0.8 / 0.7, rel=0.05)


def test_throttled_production_has_no_headroom() -> None:
    today = today_at(20.0)
    window = today.whole.brokers[0]
    slow = replace(window, produce=replace(window.produce, throttle_ms=5.0))
    throttled = replace(today, whole=replace(today.whole, brokers=(slow,)))
    answer = answer_at(today=throttled)
    assert (answer.first.resource, answer.times) == ("quota", 1.0)


def test_a_disk_without_a_known_share_is_measured_in_bytes() -> None:
    trials = trials_at(40, 80, 100, handler_idle=0.7)
    limit = run_limit(boundary(limited_by="disk"), trials, LIMITS)
    answer = answer_at(limit=limit, today=today_at(25.0, 20.0, handler_idle=0.9))
    assert (answer.first.resource, answer.first.unit) == ("disk", "B/s")
    assert answer.times == pytest.approx(4.0, rel=0.05)


def test_a_limit_by_an_unknown_resource_is_that_of_the_handlers_there() -> None:
    """The handlers were half busy at the limit, far from their threshold of 80 %."""
    trials = trials_at(100, handler_idle=0.5)
    limit = run_limit(boundary(limited_by="replication"), trials, LIMITS)
    assert limit.binding is None
    answer = answer_at(limit=limit, today=today_at(50.0, 20.0, handler_idle=0.75))
    assert answer.first.resource == "request handlers"
    assert answer.times == pytest.approx(2.0, rel=0.05)
    assert any("limited by replication" in note for note in answer.notes)


def test_a_run_may_use_more_of_a_resource_than_its_threshold() -> None:
    """Network threads were busy for 90 %, and the request handlers were the limit."""
    limit = run_limit(boundary(), trials_at(100, network_idle=0.1), LIMITS)
    answer = answer_at(limit=limit, today=today_at(10.0, network_idle=0.4))
    assert answer.first.resource == "network threads"
    assert answer.times == pytest.approx(0.9 / 0.6, rel=0.05)


def test_a_doubtful_limit_is_named() -> None:
    answer = answer_at(50.0, 20.0, limit=measured(interval_max=0.05))
    assert any("doubtful" in note for note in answer.notes)


def test_an_idle_cluster_has_no_answer() -> None:
    idle = today_at(0.0, 0.0)
    assert idle.is_idle and not today_at(1.0).is_idle
    quiet = replace(
        idle,
        whole=replace(
            idle.whole,
            brokers=tuple(
                replace(each, bytes_in_per_s=None, messages_in_per_s=None, handler_idle=1 - REST)
                for each in idle.whole.brokers
            ),
        ),
    )
    assert not quiet.is_idle, "its input is not known"
    assert hold_against_run(quiet, [measured()], LIMITS) is None


# --- rates --------------------------------------------------------------------


def test_rates_are_shown_and_do_not_count_beside_uses() -> None:
    answer = answer_at(25.0, 20.0)
    rates = [row for row in answer.rows if row.resource == "measured traffic"]
    assert [row.counts for row in rates] == [False, False]
    assert rates[0].times == pytest.approx(4.0, rel=0.02)
    assert answer.notes == ()


def test_rates_count_where_no_use_is_known() -> None:
    blind: dict[str, Any] = {"handler_idle": None, "network_idle": None, "cpu_machine_share": None,
             "cpu_process_share": None, "cpu_cores": None}  # fmt: skip
    answer = answer_at(today=today_at(25.0, 20.0, **blind))
    assert answer.first.resource == "measured traffic"
    assert answer.times == pytest.approx(4.0, rel=0.02)


def test_rates_that_disagree_are_named() -> None:
    costly = today_at(25.0, 25.0, handler_idle=0.4)
    (note,) = answer_at(today=costly).notes
    assert "4.0 times" in note


def test_requests_that_carry_fewer_messages_are_named() -> None:
    today = today_at(25.0)
    (window,) = today.whole.brokers
    small = replace(window, produce=replace(window.produce, per_s=250.0))
    answer = answer_at(today=replace(today, whole=replace(today.whole, brokers=(small,))))
    assert any("1 messages today and 10 in the run" in note for note in answer.notes)


ONE, TEN = TrafficLimit(1_000.0, 10e6), TrafficLimit(10_000.0, 40e6)


def test_sizes_between_measured_ones_follow_the_boundary_line() -> None:
    """10,000 and 4,000 messages/s: 100 and 250 µs, so 133.3 µs at 3 kB."""
    found, note = limit_for_size([ONE, TEN], 3_000.0)
    assert found == pytest.approx(3_000 / 133.33e-6, rel=1e-3)
    assert "interpolated" in note


@pytest.mark.parametrize(
    ("stored", "bytes_per_s"), [(1_050.0, 10e6), (500.0, 5e6), (50_000.0, 40e6)]
)
def test_sizes_beside_measured_ones(stored: float, bytes_per_s: float) -> None:
    found, note = limit_for_size([ONE, TEN], stored)
    assert found == pytest.approx(bytes_per_s)
    assert bool(note) == (stored != 1_050.0)


def test_sizes_that_differ_from_broker_to_broker_are_one_note() -> None:
    today = today_at(25.0, 20.0)
    one, two = today.whole.brokers
    large = [replace(one, bytes_in_per_s=4e6), replace(two, bytes_in_per_s=3.3e6)]
    answer = answer_at(today=replace(today, whole=replace(today.whole, brokers=tuple(large))))
    assert len([note for note in answer.notes if "in the brokers' logs" in note]) == 1


def test_the_limit_of_the_nearest_size_counts() -> None:
    small, large = measured(), replace(measured(), message_bytes=10_000, traffic=TEN)
    assert nearest_limit(today_at(50.0), [large, small]) is small


# --- without a run ------------------------------------------------------------


def test_without_a_run_the_answer_is_an_estimate_and_much_wider() -> None:
    today = today_at(40.0, 20.0, parts=[(at, at / 2) for at in (36, 38, 40, 42, 44, 40)])
    found = hold_against_thresholds(today, LIMITS)
    assert found is not None and found.is_estimate
    assert found.times == pytest.approx(2.5, rel=0.05)
    assert found.times_high / found.times_low > 1.9
    assert "62 % and 125 %" in found.assumption
    held = answer_at(today=today)
    assert found.times_high / found.times_low > 1.5 * held.times_high / held.times_low


# --- words --------------------------------------------------------------------


def test_the_answer_is_a_sentence(snapshot: SnapshotAssertion) -> None:
    answer = answer_at(25.0, 20.0)
    assert answer_words(answer).startswith("4.0 times today's traffic fits (")
    assert answer_words(answer) == snapshot
    assert answer.assumption == snapshot
    assert table_rows(answer) == snapshot


def test_many_brokers_are_shown_by_the_tightest_of_each_resource() -> None:
    answer = answer_at(today=today_at(*(10.0 + n for n in range(30))))
    rows = table_rows(answer)
    assert len(rows) <= 5
    assert {row[0] for row in rows} == {"30"}


@pytest.mark.parametrize(
    ("times", "text"), [(None, "over 100"), (0.951, "0.95"), (3.21, "3.2"), (45.6, "46")]
)
def test_times_in_words(times: float | None, text: str) -> None:
    assert times_words(times) == text


# --- recorded loads of real brokers -------------------------------------------

LADDERS = Path(__file__).parents[1] / "data" / "ladders"
"""Idle handlers of real brokers over the load, see `tests.bench.ladders`."""


def recorded(name: str, limited_by: str) -> list[tuple[float, ResourceHeadroom]]:
    """The share of the limit and the answer of each load below it, by the loads near the limit."""
    found = []
    for ladder in json.loads((LADDERS / f"{name}.json").read_text())["ladders"]:
        limit = ladder["limit_np"]
        uses = [(rung["np"], 1.0 - rung["idle"]) for rung in ladder["rungs"]]
        line = fit_line([each for each in uses if 0.5 * limit <= each[0] <= 1.1 * limit], limit)
        assert line is not None
        run = replace(measured(), lines={1: {HANDLERS: line}}, limited_by=Resource(limited_by))
        for load, use in uses:
            if 0.25 * limit <= load <= 0.97 * limit:
                seen = ResourceLoad(Resource.REQUEST_HANDLERS, RATIO, use)
                capacity = measured_capacity(run, 1, seen)
                assert capacity is not None
                found.append((load / limit, row_of(1, seen, capacity, 0.0)))
    return found


@pytest.mark.parametrize(
    "name", ["calibrated", "calibrated-1-broker", "slow-broker", "slow-follower"]
)
def test_recorded_brokers_with_a_planted_limit_are_within_10_percent(name: str) -> None:
    rows = recorded(name, "request handlers")
    assert len(rows) >= 4
    for share, row in rows:
        assert row.times == pytest.approx(1 / share, rel=0.10), share


def test_the_interval_holds_on_recorded_brokers_whose_requests_grow() -> None:
    """Each append waits for a disk, and the line alone is off by up to 44 %."""
    names = ("disk-bound", "disk-bound-1-broker", "disk-bound-acks-all", "secured")
    rows = [each for name in names for each in recorded(name, "disk")]
    outside = [
        share
        for share, row in rows
        if not (row.times_low or 0) <= 1 / share <= (row.times_high or 0)
    ]
    assert len(rows) >= 25
    assert outside == []
