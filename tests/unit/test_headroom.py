"""How many times today's traffic fits, by the use of resources and by rates.

Growth of a history, and the date at which the cluster is full.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.headroom.answer import (
    Answer,
    answer_words,
    hold_against_run,
    hold_against_thresholds,
    limit_for_size,
    measured_capacity,
    nearest_limit,
    row_of,
    table_rows,
    times_words,
)
from metrics.features.headroom.growth import (
    DAY_S,
    HOUR_S,
    Growth,
    NoForecastLibraryError,
    growth_of,
    growth_words,
    is_long_enough,
    short_history_words,
)
from metrics.features.headroom.limits import (
    BYTES_PER_S,
    RATIO,
    ResourceLoad,
    RunLimit,
    Today,
    TrafficLimit,
    answers_of,
    fit_line,
    loads_of,
    others_of,
    run_limit,
)
from metrics.judging.thresholds import Indicators
from metrics.tables.rows import ResourceHeadroom
from metrics.trial.others import OtherLoad
from metrics.windows.broker import RequestWindow
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.use import Resource
from tests.support.headroom import (
    AT_LIMIT,
    LIMIT,
    REST,
    boundary,
    history_of,
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


def fitted(points: list[tuple[float, float]]) -> Any:
    line = fit_line(points, 100.0)
    assert line is not None
    return line


# --- lines --------------------------------------------------------------------


def test_a_line_finds_the_use_at_rest_from_loads_that_are_apart() -> None:
    points = [(load, use_at(load)) for load in (20.0, 50.0, 80.0, 100.0)]
    line = fitted(points)
    assert line.at_rest == pytest.approx(REST, abs=0.005)
    assert line.at_load == pytest.approx(AT_LIMIT, rel=0.01)
    near = fitted([(load, use_at(load)) for load in (98.0, 100.0, 102.0)])
    assert near.rest_error > 3 * line.rest_error
    assert near.at_load == pytest.approx(AT_LIMIT, rel=0.02)
    scattered = fitted([(load, use + 0.08 * (-1) ** n) for n, (load, use) in enumerate(points)])
    assert scattered.load_error > 2 * line.load_error
    assert fitted([(50.0, 0.2), (100.0, 0.8)]).at_rest == 0.0, "never negative"
    assert fitted([(10.0, 0.0)]).at_load == 0.0
    assert fit_line([(0.0, 0.1)], 100.0) is None, "no load"


# --- uses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "machine", "machines", "used", "most"),
    [
        (0.2, 0.5, ["a"], 0.2, 0.9 - 0.3),
        (None, 0.5, ["a"], 0.5, 0.9),
        (0.2, 0.5, ["a", "b"], 0.2, 0.9 - 0.3),
        (0.2, 0.5, ["a", "a"], 0.4, 0.9 - 0.1),
        # Three brokers that use 40 % each cannot be on a machine of which 50 % are in use.
        (0.4, 0.5, ["balancer"] * 3, 0.4, 0.9 - 0.1),
    ],
)
def test_brokers_on_one_machine_share_its_cpu_and_others_leave_less_of_it(
    process: float | None, machine: float, machines: list[str], used: float, most: float
) -> None:
    on = dict(enumerate(machines, 1))
    shares = {"cpu_process_share": process, "cpu_machine_share": machine}
    load = loads_of([window_at(50, each, **shares) for each in on], (), LIMITS, on)[1]
    assert load[Resource.CPU, RATIO].used == used
    assert load[Resource.CPU, RATIO].most == pytest.approx(most)


def test_hosts_show_disks_and_interfaces() -> None:
    disk = DiskWindow("sda", busy_share=0.6)
    link = InterfaceWindow("eth0", 50.0, 20.0, speed_bytes_per_s=100.0)
    host = HostWindow("h", (1,), False, True, disks=(disk,), interfaces=(link,))
    loads = loads_of([window_at(50)], [host], LIMITS)[1]
    assert loads[Resource.DISK, RATIO].used == 0.6
    assert loads[Resource.NETWORK, RATIO].used == 0.5
    assert loads[Resource.DISK, BYTES_PER_S].most is None


# --- limits of a run ----------------------------------------------------------


def test_the_limit_that_disks_were_proven_to_write_counts_where_it_is_lower() -> None:
    burst = boundary(proven_on_disk=False, steady_load=LIMIT / 4)
    found = run_limit(burst, trials_at(20, 40, 80, 100), LIMITS)
    assert found.limited_by is Resource.DISK
    line, whole = (each.lines[1][HANDLERS] for each in (found, measured()))
    part = (whole.at_load - whole.at_rest) / 4
    assert line.at_load - line.at_rest == pytest.approx(part, rel=0.1)


def test_trials_of_another_size_or_goal_or_far_beyond_the_limit_do_not_count() -> None:
    trials = [*trials_at(40, 80, 100), *trials_at(300, handler_idle=0.0)]
    line = run_limit(boundary(), trials, LIMITS).lines[1][HANDLERS]
    assert line.at_load == pytest.approx(AT_LIMIT, rel=0.02)
    with pytest.raises(NoConclusionError, match="have no readings of the brokers' resources"):
        run_limit(boundary(goal="strict"), trials, LIMITS)
    with pytest.raises(NoConclusionError, match="10 kB"):
        run_limit(boundary(message_bytes=10_000), trials, LIMITS)


def test_a_broker_that_the_run_had_not_is_like_the_mean_of_the_others() -> None:
    answer = answer_at(today=today_at(10.0, 10.0, 50.0))
    assert answer.first.broker_id == 3
    assert answer.times == pytest.approx(2.0, rel=0.04)
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


def test_a_goal_is_named_where_a_run_has_several_and_no_limit_is_no_answer() -> None:
    points = [boundary(goal="default"), boundary(goal="strict")]
    for goal in (None, "loose"):
        with pytest.raises(ConfigError, match=r"default, strict.*--goal"):
            answers_of(points, "run-1", goal)
    assert answers_of(points, "run-1", "strict") == points[1:]
    odd = (
        {"gave_up": "the budget is spent"},
        {"state": "1 broker offline"},
        {"axis": "message_bytes"},
    )
    for without in ([], *([boundary(**each)] for each in odd)):
        with pytest.raises(NoConclusionError, match=r"run-1 has no closed bracket.*--resume"):
            answers_of(without, "run-1", None)


# --- answers ------------------------------------------------------------------


@pytest.mark.parametrize("load", [10.0, 30.0, 60.0, 90.0, 120.0])
def test_todays_traffic_fits_as_often_as_the_load_does(load: float) -> None:
    answer = answer_at(load, load / 2)
    assert answer.times == pytest.approx(LIMIT / load, rel=0.04)
    assert answer.times_low < LIMIT / load < answer.times_high
    assert (answer.first.broker_id, answer.first.resource) == (1, "request handlers")
    assert ("exceeds the limit" in answer_words(answer)) == (load > LIMIT)


def test_the_interval_has_that_of_the_limit_and_the_scatter_of_the_window() -> None:
    tail = 1.645 * 0.06  # runs on other days differ
    assert measured().low == pytest.approx(math.exp(-math.hypot(math.log(1 / 0.95), tail)), 1e-3)
    assert measured().high == pytest.approx(math.exp(math.hypot(math.log(1.06), tail)), 1e-3)

    def width(limit: RunLimit | None = None, parts: tuple[int, ...] = (50,) * 6) -> float:
        found = answer_at(
            limit=limit, today=today_at(50.0, 20.0, parts=[(float(at), 20.0) for at in parts])
        )
        return math.log(found.times_high / found.times_low)

    assert width() >= math.log(106 / 95)
    assert width(parts=(30, 70, 40, 60, 35, 65)) > 1.5 * width()
    assert width(measured(load_low=70.0, load_high=140.0)) >= math.log(2.0)


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
    """In the second run, network threads were busy for 90 %, beyond their threshold."""
    busy = run_limit(boundary(), trials_at(100, network_idle=0.1), LIMITS)
    for limit, today, times in (
        (None, today_at(20.0, 20.0, network_idle=0.3), 0.8 / 0.7),
        (busy, today_at(10.0, network_idle=0.4), 0.9 / 0.6),
    ):
        answer = answer_at(limit=limit, today=today)
        assert answer.first.resource == "network threads"
        assert answer.times == pytest.approx(times, rel=0.05)


def test_throttled_production_has_no_headroom() -> None:
    answer = answer_at(today=today_at(20.0, produce=RequestWindow(per_s=20.0, throttle_ms=5.0)))
    assert (answer.first.resource, answer.times) == ("quota", 1.0)
    assert not [row for row in answer_at(20.0).rows if row.resource == "quota"]


def test_a_disk_without_a_known_share_is_measured_in_bytes() -> None:
    trials = trials_at(40, 80, 100, handler_idle=0.7)
    limit = run_limit(boundary(limited_by="disk"), trials, LIMITS)
    answer = answer_at(limit=limit, today=today_at(25.0, 20.0, handler_idle=0.9))
    assert (answer.first.resource, answer.first.unit) == ("disk", "B/s")
    assert answer.times == pytest.approx(4.0, rel=0.05)


def test_a_limit_by_an_unknown_resource_is_that_of_the_handlers_there() -> None:
    """The handlers were half busy at the limit, far from their threshold of 80 %."""
    trials = trials_at(100, handler_idle=0.5)
    limit = run_limit(boundary(limited_by="replication", interval_max=0.05), trials, LIMITS)
    assert limit.binding is None
    answer = answer_at(limit=limit, today=today_at(50.0, 20.0, handler_idle=0.75))
    assert answer.first.resource == "request handlers"
    assert answer.times == pytest.approx(2.0, rel=0.05)
    for words in ("limited by replication", "doubtful"):
        assert any(words in note for note in answer.notes)


def test_an_idle_cluster_has_no_answer() -> None:
    assert today_at(0.0, 0.0).is_idle and not today_at(1.0).is_idle
    rates: dict[str, Any] = {"bytes_in_per_s": None, "messages_in_per_s": None}
    quiet = today_at(0.0, 0.0, handler_idle=1 - REST, **rates)
    assert not quiet.is_idle, "its input is not known"
    assert hold_against_run(quiet, [measured()], LIMITS) is None


# --- rates --------------------------------------------------------------------


def test_rates_are_shown_and_count_only_where_no_use_is_known() -> None:
    answer = answer_at(25.0, 20.0)
    rates = [row for row in answer.rows if row.resource == "measured traffic"]
    assert [row.counts for row in rates] == [False, False]
    assert rates[0].times == pytest.approx(4.0, rel=0.02)
    assert answer.notes == ()
    (note,) = answer_at(today=today_at(25.0, 25.0, handler_idle=0.4)).notes
    assert "4.0 times" in note, "rates that disagree"
    few = today_at(25.0, produce=RequestWindow(per_s=250.0, throttle_ms=0.0))
    notes = answer_at(today=few).notes
    assert any("1 messages today and 10 in the run" in note for note in notes)
    blind: dict[str, Any] = {"handler_idle": None, "network_idle": None, "cpu_machine_share": None,
             "cpu_process_share": None, "cpu_cores": None}  # fmt: skip
    answer = answer_at(today=today_at(25.0, 20.0, **blind))
    assert answer.first.resource == "measured traffic"
    assert answer.times == pytest.approx(4.0, rel=0.02)


ONE, TEN = TrafficLimit(1_000.0, 10e6), TrafficLimit(10_000.0, 40e6)


@pytest.mark.parametrize(
    ("stored", "bytes_per_s", "words"),
    [
        (1_050.0, 10e6, ""),
        (500.0, 5e6, "B"),
        (50_000.0, 40e6, "B"),
        # 10,000 and 4,000 messages/s: 100 and 250 µs, so 133.3 µs at 3 kB
        (3_000.0, 3_000 / 133.33e-6, "interpolated"),
    ],
)
def test_sizes_between_measured_ones_follow_the_boundary_line(
    stored: float, bytes_per_s: float, words: str
) -> None:
    found, note = limit_for_size([ONE, TEN], stored)
    assert found == pytest.approx(bytes_per_s, rel=1e-3)
    assert words in note and bool(note) == bool(words)
    small, large = measured(), replace(measured(), message_bytes=10_000, traffic=TEN)
    assert nearest_limit(today_at(50.0), [large, small]) is small


def test_sizes_that_differ_from_broker_to_broker_are_one_note() -> None:
    today = today_at(25.0, 20.0)
    one, two = today.whole.brokers
    large = [replace(one, bytes_in_per_s=4e6), replace(two, bytes_in_per_s=3.3e6)]
    answer = answer_at(today=replace(today, whole=replace(today.whole, brokers=tuple(large))))
    assert len([note for note in answer.notes if "in the brokers' logs" in note]) == 1


# --- without a run ------------------------------------------------------------


def test_without_a_run_the_answer_is_an_estimate_and_much_wider() -> None:
    today = today_at(40.0, 20.0, parts=[(at, at / 2) for at in (36, 38, 40, 42, 44, 40)])
    found = hold_against_thresholds(today, LIMITS)
    assert found is not None and found.is_estimate
    assert found.times == pytest.approx(2.5, rel=0.05)
    assert found.times_high / found.times_low > 1.9
    assert "62 % to 125 %" in found.assumption
    held = answer_at(today=today)
    assert found.times_high / found.times_low > 1.5 * held.times_high / held.times_low


# --- words --------------------------------------------------------------------


def test_the_answer_is_a_sentence(snapshot: SnapshotAssertion) -> None:
    answer = answer_at(25.0, 20.0)
    assert answer_words(answer) == snapshot
    assert answer.assumption == snapshot
    assert table_rows(answer) == snapshot
    for times, text in ((None, "over 100"), (0.951, "0.95"), (3.21, "3.2"), (45.6, "46")):
        assert times_words(times) == text


def test_many_brokers_are_shown_by_the_tightest_of_each_resource() -> None:
    answer = answer_at(today=today_at(*(10.0 + n for n in range(30))))
    rows = table_rows(answer)
    assert len(rows) <= 5
    assert {row[0] for row in rows} == {"30"}


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
    assert len(rows) >= 25
    for share, row in rows:
        assert (row.times_low or 0) <= 1 / share <= (row.times_high or 0), share


START_S = 19_676 * DAY_S
QUICK, ALL = range(8), range(500)


def _early(seed: int, steps_per_day: float = 0.0) -> tuple[bool, bool]:
    """Whether the first overload comes before the early date, and before that of half the cases."""
    history, days, _ = history_of(seed, steps_per_day)
    found = growth_of(history)
    assert found is not None
    ahead = found.days_ahead
    stated = (ahead if each is None else each for each in (found.days_tenth, found.days))
    tenth, half = (min(days, ahead) < each for each in stated)
    return tenth, half


@pytest.mark.computes
def test_few_overloads_come_before_the_early_date() -> None:
    """Eight of the five hundred; chance decides nothing, as the seeds are fixed."""
    assert sum(tenth for tenth, _ in map(_early, QUICK)) <= 2


@pytest.mark.long
@pytest.mark.computes
@pytest.mark.parametrize("steps_per_day", [0.0, 1 / 45])
def test_one_of_ten_overloads_comes_before_the_early_date(steps_per_day: float) -> None:
    early = [_early(seed, steps_per_day) for seed in ALL]
    assert 0.05 <= sum(tenth for tenth, _ in early) / len(ALL) <= 0.15
    assert 0.4 <= sum(half for _, half in early) / len(ALL) <= 0.6


def steady_history(days: int, growth: float = 0.01, use: float = 0.3) -> list[tuple[float, float]]:
    """A use at noon of each day that grows evenly, without days and weeks in it."""
    return [
        (
            START_S + day * DAY_S + 12.5 * HOUR_S,
            use * math.exp(growth * day) * (1 + 1e-3 * (-1) ** day),
        )
        for day in range(days)
    ]


def test_an_even_growth_is_continued() -> None:
    history = steady_history(28, use=0.5)
    found = growth_of(history)
    assert found is not None and found.days is not None
    assert found.per_day == pytest.approx(math.expm1(0.01), rel=0.05)
    assert found.days == pytest.approx(math.log(1 / 0.5) / 0.01 - 27, rel=0.15)
    assert found.peak == pytest.approx(1.0, abs=0.01)
    assert growth_of(history[::-1]) == found


def test_a_cluster_beyond_its_limit_is_full_now_and_one_whose_use_falls_never() -> None:
    now, never = (growth_of(each) for each in (
        steady_history(28, use=1.2), steady_history(28, growth=-0.01)))  # fmt: skip
    assert now is not None and never is not None
    assert (now.days, now.days_low, now.days_high) == (0.0, 0.0, 0.0)
    assert (never.days, never.days_high) == (None, None)
    assert never.per_day_high < 0


@pytest.mark.computes
def test_an_uncertain_limit_makes_the_date_uncertain() -> None:
    sure, unsure = (
        growth_of(steady_history(28, use=0.6), *each) for each in ((1.0, 1.0), (0.85, 1.15))
    )
    assert sure is not None and unsure is not None
    assert sure.days_low is not None and sure.days_high is not None
    assert unsure.days_low is not None and unsure.days_high is not None
    assert unsure.days_high - unsure.days_low > 2 * (sure.days_high - sure.days_low)


def test_two_weeks_are_needed() -> None:
    for days in (range(0), range(13), range(14), range(0, 28, 7), range(0, 28, 2)):
        history = [steady_history(40)[day] for day in days]
        assert is_long_enough(history) == (len(days) == 14), days
        assert len(days) == 14 or growth_of(history) is None


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.tsa.statespace.structural", None)
    with pytest.raises(NoForecastLibraryError):
        growth_of(steady_history(20))


NOW_S = datetime(2026, 11, 26, 12, tzinfo=timezone.utc).timestamp()
FULL = Growth(0.007, 0.006, 0.008, 74.0, 60.0, 95.0, 1.8, 35.0, 62.0)


def test_the_date_is_in_words(snapshot: SnapshotAssertion) -> None:
    open_end = Growth(0.002, -0.001, 0.005, None, 85.0, None, 1.8, 35.0, 97.0)
    never = Growth(-0.002, -0.004, 0.0, None, None, None, 1.8, 35.0)
    texts = [growth_words(each, NOW_S) for each in (FULL, open_end, never)]
    assert [*texts, short_history_words(1), short_history_words(3)] == snapshot
