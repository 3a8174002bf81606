"""Nights and their history: the nights that are compared, and the significance of changes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from metrics.comparing import effects
from metrics.comparing.effects import night_effect, night_spread
from metrics.features.nightly.judging import (
    NightComparison,
    NightRule,
    Noise,
    comparison_text,
    judge_night,
)
from metrics.tables.rows import CaseRow, Outcome
from metrics.units import format_ratio
from tests.bench.nights import fast_tail, simulate
from tests.support.nights import DAY_S, ENVIRONMENT, case_row

CV = 0.05
RULE = NightRule({"limit": Noise(CV, 8.0), "load": Noise(CV, 8.0)}, min_effect=0.05, history_max=30)
EVEN = [case_row(night) for night in range(1, 6)]


def judged(value: float, history: Sequence[CaseRow] = EVEN, **changes: object) -> NightComparison:
    (found,) = judge_night([case_row(9, value, **changes)], history, RULE)
    return found


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(12.0, Outcome.REGRESSION), (19.5, Outcome.NO_CHANGE), (30.0, Outcome.IMPROVEMENT)],
)
def test_a_significant_change_is_reported(value: float, outcome: Outcome) -> None:
    found = judged(value)
    assert found.outcome is outcome
    assert found.nights == ("n1", "n2", "n3", "n4", "n5")
    spread = night_spread([20.0] * 5, CV, 8.0)
    assert found.effect == night_effect(value, [20.0] * 5, spread)


def test_a_higher_cost_is_a_regression() -> None:
    costs = [replace(row, measure="handler_s_per_mb", value=0.02) for row in EVEN]
    found = judged(0.04, costs, measure="handler_s_per_mb")
    assert found.outcome is Outcome.REGRESSION
    assert found.effect is not None
    assert found.effect.change == pytest.approx(-0.5)


def test_a_small_loss_is_no_regression_even_when_significant() -> None:
    sure = NightRule({"limit": Noise(0.001, 1_000.0)}, min_effect=0.05, history_max=30)
    (small,) = judge_night([case_row(9, 19.2)], EVEN, sure)
    assert small.effect is not None and small.effect.high < 1.0
    assert small.outcome is Outcome.NO_CHANGE
    (large,) = judge_night([case_row(9, 18.9)], EVEN, sure)
    assert large.outcome is Outcome.REGRESSION


def test_several_cases_share_the_chance_of_a_false_alarm() -> None:
    # A loss that is significant alone, and not as the better one of two.
    value = next(v / 100 for v in range(2000, 1000, -1) if _p_value(v / 100) < 0.03)
    rule = replace(RULE, min_effect=0.01)
    other = [replace(row, case="load") for row in EVEN]
    (alone,) = judge_night([case_row(9, value)], EVEN, rule)
    first, _ = judge_night(
        [case_row(9, value), case_row(9, 20.0, case="load")], [*EVEN, *other], rule
    )
    assert (alone.outcome, first.outcome) == (Outcome.REGRESSION, Outcome.NO_CHANGE)


def _p_value(value: float) -> float:
    nights = [row.value for row in EVEN]
    found = night_effect(value, nights, night_spread(nights, CV, 8.0))
    assert found is not None
    return found.p_value


def test_nights_with_another_instrument_are_left_out_and_named() -> None:
    drifted = [
        replace(row, value=40.0, environment={**ENVIRONMENT, "driver.cores": "2"})
        for row in EVEN[:3]
    ]
    found = judged(20.0, [*drifted, *EVEN[3:]])
    assert (found.outcome, found.nights) == (Outcome.NO_CHANGE, ("n4", "n5"))
    (left,) = found.left_out
    assert left.nights == ("n1", "n2", "n3")
    assert left.text == "3 nights left out: driver.cores was 2, is 4"
    only_drifted = judged(20.0, drifted)
    assert (only_drifted.outcome, only_drifted.effect) == (Outcome.NO_HISTORY, None)
    acks = [replace(row, settings={"workload.producer.acks": "all"}) for row in EVEN]
    assert judged(20.0, acks).left_out[0].why == "workload.producer.acks was all, is 1"
    packages = ENVIRONMENT | {f"package.{name}": "1" for name in "abcde"}
    many = judged(20.0, [replace(EVEN[0], environment=packages)])
    assert many.left_out[0].why.endswith("package.c was 1, is –; and 2 more")


def test_a_changed_subject_separates_no_nights_and_is_reported() -> None:
    for name in ("broker.config.num.io.threads", "series.handler_idle_ns"):
        history = [replace(row, environment={**ENVIRONMENT, name: "8"}) for row in EVEN]
        slow = {**ENVIRONMENT, name: "1", "cluster.id": "two"}
        found = judged(10.0, history, environment=slow)
        assert found.outcome is Outcome.REGRESSION
        changes = [(each.name, each.before, each.after) for each in found.changes]
        assert changes == [(name, "8", "1")]
    commit = judged(20.0, environment={**ENVIRONMENT, "redline.commit": "bbbb"})
    assert (len(commit.nights), commit.changes) == (5, ())
    assert commit.notes == ("redline.commit was aaaa, is bbbb",)


def test_memory_of_machines_of_one_kind_is_the_same() -> None:
    def with_memory(size_bytes: int) -> dict[str, str]:
        return {**ENVIRONMENT, "driver.memory_bytes": str(size_bytes)}

    history = [replace(row, environment=with_memory(16 * 2**30)) for row in EVEN]
    alike = judged(20.0, history, environment=with_memory(16 * 2**30 - 50_000_000))
    assert (len(alike.nights), alike.left_out) == (5, ())
    half = judged(20.0, history, environment=with_memory(8 * 2**30))
    assert half.left_out[0].why == "driver.memory_bytes was 16 GiB, is 8 GiB"


def test_nights_with_a_change_are_no_history_until_accepted() -> None:
    history = [*EVEN, case_row(6, 10.0, event="judged", outcome="regression")]
    found = judged(10.0, history)
    assert found.outcome is Outcome.REGRESSION
    assert found.nights[-1] == "n5"
    assert "regression" in found.left_out[0].why
    assert "history_since" in found.left_out[0].why
    # Accepted: earlier nights no longer count, so a new history begins.
    since = replace(RULE, since_s=6.5 * DAY_S)
    accepted = [*history, case_row(7, 10.0), case_row(8, 10.0)]
    (settled,) = judge_night([case_row(9, 10.0)], accepted, since)
    assert (settled.outcome, settled.nights) == (Outcome.NO_CHANGE, ("n7", "n8"))


def test_only_earlier_nights_of_the_same_case_count() -> None:
    others = [
        case_row(1, 90.0, case="load"),
        case_row(2, 90.0, suite="other"),
        case_row(3, 90.0, cluster="elsewhere"),
        case_row(4, 90.0, run_id="r9"),  # an earlier attempt of tonight itself
        case_row(12, 90.0),
    ]
    assert judged(20.0, others).outcome is Outcome.NO_HISTORY
    (found,) = judge_night([case_row(9)], EVEN[::-1], replace(RULE, history_max=2))
    assert (found.nights, found.before) == (("n4", "n5"), EVEN[-1]), "the newest"


def test_a_night_that_stands_out_counts_for_the_spread_and_not_for_the_mean() -> None:
    def found(outcome: str | None) -> NightComparison:
        other = case_row(3, 15.0, event="judged", outcome=outcome)
        return judged(20.0, [EVEN[0], EVEN[1], other, *EVEN[3:]])

    def width(comparison: NightComparison) -> float:
        assert comparison.effect is not None
        return math.log(comparison.effect.high / comparison.effect.low)

    stands_out = found("regression")
    assert stands_out.effect is not None
    assert stands_out.effect.ratio == pytest.approx(1.0)
    assert stands_out.effect.count == 4
    assert width(stands_out) > 1.4 * width(judged(20.0))


def nightly(values: Sequence[float], noise: Noise) -> list[NightComparison]:
    """One case in successive nights, each judged against the judged nights before."""
    rule = NightRule({"limit": noise}, min_effect=0.05, history_max=30)
    rows: list[CaseRow] = []
    found = []
    for night, value in enumerate(values, 1):
        (judged_one,) = judge_night([case_row(night, value)], rows, rule)
        rows.append(case_row(night, value, outcome=judged_one.outcome.value))
        found.append(judged_one)
    return found


@pytest.mark.computes
def test_a_slow_loss_is_a_regression_that_says_since_when() -> None:
    chance = random.Random(3)
    healthy = [20.0 * chance.lognormvariate(0.0, 0.02) for _ in range(30)]
    losing = [20.0 * 0.998**night * chance.lognormvariate(0.0, 0.02) for night in range(1, 61)]
    found = nightly([*healthy, *losing], Noise(0.02, 8.0))
    alarms = [number for number, each in enumerate(found) if each.slow_loss is not None]
    assert 30 <= alarms[0] < 70
    assert all(each.outcome is Outcome.REGRESSION for each in found[-20:]), "until it is accepted"
    first = found[alarms[0]]
    assert first.outcome is Outcome.REGRESSION
    assert first.slow_loss is not None
    assert first.slow_loss.loss >= 0.05
    loss = format_ratio(first.slow_loss.loss)
    words = f": regression, slow loss over many nights: {loss} since the night of n"
    assert words in comparison_text(first)
    assert int(first.slow_loss.since[1:]) in range(25, alarms[0] + 2)


def test_a_loss_that_ended_is_no_slow_loss() -> None:
    values = [20.0, 20.2] * 15 + [15.0] * 10 + [20.0, 20.2] * 2
    found = nightly(values, Noise(0.02, 8.0))
    assert [each.outcome for each in found[30:]] == (
        [Outcome.REGRESSION] * 10 + [Outcome.NO_CHANGE] * 4
    )
    assert not any(each.slow_loss for each in found)


@pytest.mark.computes
def test_a_suite_of_five_cases_has_rare_false_alarms_and_finds_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The short form of `make bench-decisions`."""
    monkeypatch.setattr(effects, "student_tail", fast_tail)
    made = [simulate(0.02, 0.02, seed) for seed in range(8)]
    alarms = sum(has_alarm for _, has_alarm, _ in made)
    assert sum(nights for nights, _, _ in made) >= 60 * alarms
    assert median(until["5 % at once"] for _, _, until in made) <= 3
    assert median(until["10 % at once"] for _, _, until in made) <= 1
    assert median(until["0.2 % a night"] for _, _, until in made) <= 40


NIGHTS_JUDGED = 300


@pytest.mark.computes
@pytest.mark.parametrize("nights", [1, 2, 5, 20])
def test_false_alarms_are_rare_with_short_and_long_histories(nights: int) -> None:
    """Two cases with the stated noise: at most 5 % of nights report a change."""
    alarms, made = _alarms(nights, loss=0.0, count=NIGHTS_JUDGED)
    assert alarms / made <= 0.05


@pytest.mark.computes
@pytest.mark.parametrize(("nights", "least"), [(3, 0.6), (10, 0.8)])
def test_a_loss_of_a_fifth_is_seen(nights: int, least: float) -> None:
    alarms, made = _alarms(nights, loss=0.2, count=NIGHTS_JUDGED)
    assert alarms / made >= least


@pytest.mark.computes
def test_a_long_history_replaces_a_wrong_noise_of_the_suite() -> None:
    """Real noise of twice what is stated: many false alarms at first, few in the end."""
    early, made = _alarms(2, loss=0.0, count=NIGHTS_JUDGED, cv=2 * CV)
    late, _ = _alarms(25, loss=0.0, count=NIGHTS_JUDGED, cv=2 * CV)
    assert late / made < 0.09 < early / made


def _alarms(nights: int, loss: float, count: int, cv: float = CV) -> tuple[int, int]:
    """The number of nights that stand out after equal nights, and `count`."""
    chance = random.Random(7)

    def value() -> float:
        return 20.0 * chance.lognormvariate(0.0, cv)

    alarms = 0
    for _ in range(count):
        history = [
            case_row(night, value(), case=case)
            for night in range(1, nights + 1)
            for case in ("limit", "load")
        ]
        tonight = [
            case_row(90, value() * (1 - loss), case="limit"),
            case_row(90, value(), case="load"),
        ]
        found = judge_night(tonight, history, RULE)
        alarms += any(each.outcome.stands_out for each in found)
    return alarms, count
