"""The steady limits of a run: whether a hold is made, where it ends, and what all sizes state."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import Configuration, load
from jobs.runs.steady import (
    FAILED_S,
    FULL_SHARE,
    SteadyAnswer,
    as_hold,
    failed_after_s,
    has_failed,
    hold_steadily,
    is_over,
    largest,
    require_failure_allowed,
    steady_plan,
    with_proof,
)
from metrics.common.errors import ConfigError
from metrics.reporting.limit_answer import answer_of, proven_words, steady_words
from metrics.trial.adding import LatencySlice
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.trial import Trial
from search.budget import Spent
from search.model import Verdict
from tests.support.evidence import START_S, client
from tests.support.rows import traffic, trial
from tests.support.steady_trials import RATE, SUSTAINED, at, limit


def config(*changes: str) -> Configuration:
    return load("testbed", "1kB", "default", changes)


def plan(*changes: str, trials: tuple[Trial, ...] | None = None, spent: Spent | None = None) -> Any:
    return steady_plan(config(*changes), limit(), trials or (at(64),), spent or Spent())


def test_a_limit_that_could_fill_a_tenth_of_the_memory_is_held() -> None:
    assert plan().hold_s == pytest.approx(3.5 * 30.0)
    (window,) = at(64).evidence.write_back
    wide = replace(window, dirty_limit_bytes=70e9)
    small = plan(trials=(at(64, write_back=(wide,)),))
    assert small.hold_s == 0.0
    why = "in 1 min 45 s the load fills less than a tenth of the memory for dirty pages"
    assert small.why == why
    assert plan("goal.search.steady_s=70", trials=(at(64, write_back=(wide,)),)).hold_s == 70.0
    young = replace(window, dirty_expire_s=10.0)
    assert plan(trials=(at(64, write_back=(young,)),)).hold_s == pytest.approx(35.0)
    blind = plan(trials=(at(64, write_back=()),))
    why = "the brokers' hosts do not show the bytes that their disks write"
    assert (blind.hold_s, blind.why) == (0.0, why)
    proven = with_proof(limit(), [at(64, seconds=90.0)], "default")
    assert steady_plan(config(), proven, [at(64, seconds=90.0)], Spent()).hold_s == 0.0


def test_what_the_budget_does_not_allow_is_said() -> None:
    longer = "the budget of 180 s does not allow a hold of 1 min 45 s"
    trials, volume = "the budget of 5 trials does not allow", "the budget of 6000 MB does not allow"
    for change, spent, why in (
        ("steady_s=0", Spent(), "no hold was made, because search.steady_s is 0"),
        ("budget.duration_s=180", Spent(5, 80.0), longer),
        ("budget.duration_s=190", Spent(5, 80.0), ""),
        ("budget.trials=5", Spent(5, 80.0), trials),
        ("budget.trials=6", Spent(5, 80.0), ""),
        ("budget.payload_bytes=6000000000", Spent(), volume),
    ):
        found = plan(f"goal.search.{change}", spent=spent)
        assert found.why.startswith(why)
        assert bool(found.hold_s) is not bool(why)


def test_a_load_to_failure_needs_brokers_of_the_run_and_lasts_long_enough(
    snapshot: SnapshotAssertion,
) -> None:
    failing = config("goal.search.to_failure=true")
    require_failure_allowed(failing)
    with pytest.raises(ConfigError) as error:
        require_failure_allowed(load("example", "1kB", "default", ["goal.search.to_failure=true"]))
    assert str(error.value) == snapshot
    full_s = 4e9 / (64 * RATE)
    assert plan("goal.search.to_failure=true").hold_s == pytest.approx(2 * full_s + 105.0)


def held_answer(disk_bytes_per_s: float, producers: int = 64) -> tuple[SteadyAnswer, list[Trial]]:
    """The holds of a limit on a disk with a speed, and all trials."""
    holds = hold_steadily(
        limit(producers), (), lambda load: at(load, disk_bytes_per_s, 90.0, steady=True)
    )
    return SteadyAnswer(limit(producers), tuple(holds)), [at(producers), *holds]


def test_a_hold_that_ends_as_memory_fills_takes_the_highest_rate_of_the_disks() -> None:
    cut = at(64, 10e6, 40.0, steady=True)
    held = as_hold(cut, "default")
    assert held.is_proven is False
    assert held.written_share == pytest.approx(10 / 64)
    fast = as_hold(at(64, 300e6, 40.0, steady=True), "default")
    assert fast.written_share is None, "the disks are not the reason"
    over = Judgement(Verdict.OVERLOADED, SUSTAINED.reasons)
    overloaded = as_hold(at(64, seconds=90.0, judgements={"default": over}), "default")
    assert (overloaded.is_proven, overloaded.written_share) == (False, None)
    lost = Judgement(Verdict.INVALID, SUSTAINED.reasons)
    assert not as_hold(at(64, judgements={"default": lost}), "default").is_valid


def test_a_burst_limit_has_the_steady_limit_below_it_which_is_the_headline(
    snapshot: SnapshotAssertion,
) -> None:
    answer, trials = held_answer(10e6)
    found = answer.complete(with_proof(limit(), trials, "default"), traffic(64, 1_000, 1_000.0))
    assert (found.loads[0], found.np_sustained, found.lasted) == (64, 64, False)
    assert (found.steady_load, found.steady_mb_per_s) == (9.0, 9.0)
    assert found.proven_s == pytest.approx(90.0), "the hold at the burst limit"
    assert (found.answer_kind, found.answer_load, found.answer_mb_per_s) == ("limit", 9.0, 9.0)
    shown = answer_of(found)
    assert shown.figure == "9.00 MB/s"
    assert shown.caveat == "caveat: 64.0 MB/s (64 producers) was sustained only for a short time"
    other = answer.complete(limit(20, 100), traffic(20, 100, 10_000.0))
    assert other.answer_load == other.steady_load == other.lasting.loads[0]
    answer, trials = held_answer(100e6)
    whole = answer.complete(with_proof(limit(), trials, "default"), traffic(64, 1_000, 1_000.0))
    assert (whole.steady_load, whole.proven_on_disk, whole.steady_note) == (64.0, True, "")
    assert [
        *(say(each) for each in (found, whole) for say in (proven_words, steady_words)),
        *shown.lines,
        "Why",
        *shown.why,
    ] == snapshot


@pytest.mark.parametrize(("low", "over", "why", "lasted"), list(product(
    (0, 64), (None, 70), (None, "the budget is used up"), (None, False))))  # fmt: skip
def test_all_sentences_follow_from_the_kind_of_the_answer(
    low: int, over: int | None, why: str | None, lasted: bool | None
) -> None:
    found = replace(
        limit(64), np_sustained=low, load_sustained=low, np_overloaded=over, load_overloaded=over,
        mb_per_s=float(low), mps=1e3 * low, gave_up=why, lasted=lasted if low else None,
    )  # fmt: skip
    begins = {
        "limit": f"{found.answer_mb_per_s:.1f}"[:3],
        "lower bound": "at least ",
        "upper bound": "less than ",
        "none": "no load could be measured",
    }
    answer = answer_of(found)
    assert answer.figure.startswith(begins[found.answer_kind])
    assert ("at least" in " ".join(answer.lines)) == (found.answer_kind == "lower bound")
    assert len(answer.lines) <= 5
    assert (found.answer_kind in ("none", "upper bound")) == (found.answer_load == 0)


def test_other_sizes_rest_on_the_same_hold(snapshot: SnapshotAssertion) -> None:
    answer, _ = held_answer(100e6)
    small = traffic(20, 100, 10_000.0)
    lighter = answer.complete(limit(20, 100), small)
    assert (lighter.steady_load, lighter.steady_mb_per_s) == (20.0, 20.0)
    assert steady_words(lighter) == snapshot
    slow, _ = held_answer(10e6)
    heavier = slow.complete(limit(20, 100), small)
    assert heavier.steady_load is not None and 7 <= heavier.steady_load < 9, "more headers a byte"
    assert heavier.steady_mb_per_s == pytest.approx(heavier.steady_load)
    offline = limit(20, 100, state="1 broker offline")
    assert answer.complete(offline, small) == offline
    assert largest([limit(10, 100), limit(64), limit(30, 10_000), offline]) == limit(64)
    assert largest([limit(0), limit(99, state="1 broker offline")]) is None


def test_a_goal_with_a_lower_limit_at_the_same_size_rests_on_the_hold_above_it() -> None:
    answer, trials = held_answer(100e6)
    strict = {"default": SUSTAINED, "strict": Judgement(Verdict.OVERLOADED, SUSTAINED.reasons)}
    held = [replace(each, judgements=strict) for each in trials]
    answer = replace(answer, holds=tuple(held[1:]))
    lower = with_proof(limit(40, goal="strict"), held, "strict")
    assert lower.steady_load is None
    found = answer.complete(lower, traffic(40, 1_000, 1_000.0))
    assert (found.steady_load, found.steady_mb_per_s) == (40.0, 40.0)


def test_a_hold_that_failed_on_every_load_proves_nothing() -> None:
    over = Judgement(Verdict.OVERLOADED, (Reason("achieved", "too little", 0.5, 0.99),))
    failed = at(64, seconds=90.0, steady=True, judgements={"default": over})
    found = SteadyAnswer(limit(), (failed,)).complete(limit(), traffic(64, 1_000, 1_000.0))
    words = steady_words(found)
    assert words.startswith("steady: not proven; a hold of 64.0 MB/s for 1 min 30 s did not prove ")
    assert words.endswith("the brokers were overloaded")
    assert (found.answer_kind, found.answer_load, found.lasted) == ("upper bound", 0.0, False)


def test_a_hold_ends_once_it_is_proven_or_before_memory_is_full() -> None:
    (proven,) = at(64, seconds=90.0).evidence.write_back
    (slow,) = at(64, 10e6, 90.0).evidence.write_back
    assert is_over([proven], (1, 2), 90.0, 100.0)
    assert not is_over([slow], (1, 2), 90.0, 100.0)
    assert not is_over([proven], (1, 2), 90.0, 20.0), "retention deletes it before"
    nearly = replace(slow, unwritten_max_bytes=FULL_SHARE * 4e9)
    assert is_over([nearly], (1, 2), 90.0, 100.0)
    less = replace(slow, unwritten_max_bytes=0.99 * FULL_SHARE * 4e9)
    assert not is_over([less], (1, 2), 90.0, 100.0)


def test_a_load_has_failed_once_too_little_is_acknowledged_for_some_seconds() -> None:
    steady = [(float(second), 100 * second) for second in range(30)]
    assert not has_failed(steady, 100.0)
    assert not has_failed([], 100.0)
    stalled = [*steady, *((30.0 + n, 2_900 + 50 * n) for n in range(int(FAILED_S) + 1))]
    assert has_failed(stalled, 100.0)
    assert not has_failed([(1.0, 0), (6.0, 1)], 100.0), "too early to tell"


def slices(*records: int) -> tuple[LatencySlice, ...]:
    return tuple(
        LatencySlice(float(n), 1.0, count, 1.0, 1.0, 1.0)
        for n, count in enumerate(records)
        if count
    )


def test_the_time_to_failure_is_where_the_rate_falls_and_stays_low() -> None:
    offered = traffic(1, 1_000, 1_000.0)
    for records, failed_s in (
        ((1_000,) * 8, None),
        ((1_000,) * 5 + (100,) * 3, 5.0),
        ((1_000,) * 5 + (0,) * 3, 5.0),
        ((1_000, 0, 1_000, 1_000, 1_000, 800, 700, 890), 5.0),
        ((1_000, 0, 1_000, 1_000, 1_000, 1_000, 1_000, 900), None),
    ):
        seen = replace(client(), end_s=START_S + 8.0, latency_over_time=slices(*records))
        found = failed_after_s(trial(client=seen, pattern=offered))
        warm_up_s = offered.phases.warmup_s
        assert found == (None if failed_s is None else pytest.approx(warm_up_s + failed_s))


def test_a_measured_failure_is_part_of_the_answer() -> None:
    records = (64_000,) * 95 + (9_000,) * 6
    seen = replace(client(), end_s=START_S + 101.0, latency_over_time=slices(*records))
    over = Judgement(Verdict.OVERLOADED, (Reason("achieved", "too little", 0.5, 0.99),))
    failed = at(64, 10e6, 101.0, client=seen, steady=True, judgements={"default": over})
    answer = SteadyAnswer(limit(), (failed,))
    found = answer.complete(with_proof(limit(), [at(64), failed], "default"), failed.pattern)
    warm_up_s = failed.pattern.phases.warmup_s
    assert found.failed_after_s == pytest.approx(95.0 + warm_up_s)
    assert "measured: 64.0 MB/s for 1 min 3" in proven_words(found)
