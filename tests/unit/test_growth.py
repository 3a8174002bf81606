"""Growth of a history, and the date at which the cluster is full."""

from __future__ import annotations

import math
import sys
from datetime import datetime, timezone

import pytest
from syrupy.assertion import SnapshotAssertion

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
from tests.support.headroom import history_of

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
