"""The statistics of comparisons reach their stated rates on simulated measurements."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from metrics.comparing.effects import (
    NIGHT_ALPHA,
    PAIRS_MIN,
    Effect,
    holm,
    night_effect,
    night_spread,
    paired_effect,
)

pytestmark = pytest.mark.computes

MADE = 800
"""Simulated comparisons; a rate of 5 % is then known to 2.3 % (three standard errors)."""


def pairs(chance: random.Random, ratio: float, count: int = 6) -> list[tuple[float, float]]:
    """Pairs on a machine whose speed drifts by half; B is `ratio` times A, with 3 % noise."""

    def noise() -> float:
        return chance.lognormvariate(0, 0.03)

    machines = (chance.uniform(0.5, 1.5) for _ in range(count))
    return [(machine * noise(), machine * ratio * noise()) for machine in machines]


def test_intervals_and_alarms_have_their_stated_rates() -> None:
    chance = random.Random(1)
    effects = [paired_effect(pairs(chance, 0.9)) for _ in range(MADE)]
    held = fmean(each is not None and each.low <= 0.9 <= each.high for each in effects)
    assert held == pytest.approx(0.95, abs=0.023)
    chance = random.Random(2)
    effects = [paired_effect(pairs(chance, 1.0)) for _ in range(MADE)]
    alarms = fmean(each is not None and each.p_value < 0.05 for each in effects)
    assert alarms == pytest.approx(0.05, abs=0.023)


def test_the_smallest_visible_loss_is_seen_four_times_in_five() -> None:
    chance = random.Random(3)
    usual = [paired_effect(pairs(chance, 1.0)) for _ in range(MADE)]
    visible = fmean(each.smallest_visible for each in usual if each is not None)
    lost = [paired_effect(pairs(chance, 1.0 - visible)) for _ in range(MADE)]
    seen = fmean(each is not None and each.high < 1.0 for each in lost)
    assert 0.72 <= seen <= 0.95


def test_too_few_pairs_are_no_effect() -> None:
    few = [(1.0, 1.0)] * (PAIRS_MIN - 1)
    assert paired_effect(few) is None
    same = paired_effect([*few, (2.0, 2.0)])
    assert same == Effect(1.0, 1.0, 1.0, 1.0, 0.0, PAIRS_MIN)


@pytest.mark.parametrize("before", [1, 2, 5, 20])
def test_nights_raise_alarms_at_the_stated_rate_with_any_length_of_history(before: int) -> None:
    chance = random.Random(before)
    alarms = 0
    for _ in range(MADE):
        nights = [chance.lognormvariate(3.0, 0.05) for _ in range(before + 1)]
        effect = night_effect(nights[-1], nights[:-1], night_spread(nights[:-1], 0.05, 8))
        alarms += effect is not None and effect.high < 1.0
    error = (NIGHT_ALPHA / 2 / MADE) ** 0.5
    assert alarms / MADE <= NIGHT_ALPHA / 2 + 3 * error  # one side of two


@pytest.mark.parametrize(("before", "least"), [(2, 0.70), (20, 0.94)])
def test_nights_show_a_loss_of_a_fifth(before: int, least: float) -> None:
    chance = random.Random(7)
    seen = 0
    for _ in range(MADE):
        nights = [chance.lognormvariate(3.0, 0.05) for _ in range(before)]
        effect = night_effect(
            0.8 * chance.lognormvariate(3.0, 0.05), nights, night_spread(nights, 0.05, 8)
        )
        seen += effect is not None and effect.high < 1.0
    assert seen / MADE >= least


def test_the_history_of_nights_decides_the_interval() -> None:
    def against(night: float, nights: list[float]) -> Effect | None:
        return night_effect(night, nights, night_spread(nights, 0.05, 8))

    assert against(100.0, []) is None, "the first night has no comparison"
    third = against(95.0, [100.0, 100.0])  # two nights that happen to agree
    assert third is not None and third.high > 1.0 and third.count == 2
    calm, wild = against(100.0, [99, 101] * 10), against(100.0, [70, 140] * 10)
    assert calm is not None and wild is not None
    assert wild.high / wild.low > 2 * calm.high / calm.low


def test_the_spread_is_that_of_the_nights_between_losses_and_outliers() -> None:
    chance = random.Random(11)
    for loss in (lambda night: 1.0, lambda night: 0.998**night, lambda night: 0.8 ** (night > 50)):
        nights = [100 * loss(night) * chance.lognormvariate(0, 0.02) for night in range(100)]
        assert night_spread(nights, 0.02, 1).sd == pytest.approx(0.02, rel=0.2)
    assert night_spread([*nights, 5.0, *nights], 0.02, 1).sd == pytest.approx(0.02, rel=0.2)
    assert night_spread([100.0] * 30, 0.02, 8).freedom == pytest.approx(8 + 0.6 * 29)


def test_several_cases_share_one_chance_of_a_false_alarm() -> None:
    assert holm([0.04]) == (True,)
    assert holm([0.04, 0.5]) == (False, False)
    assert holm([0.5, 0.001, 0.02]) == (False, True, True)
    assert holm([]) == ()
