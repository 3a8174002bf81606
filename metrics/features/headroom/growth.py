"""The forecast of the day on which a cluster is full, from the history of its use.

The history consists of pairs: a time, and the share of the limit that was in use at this time. The
logarithm of the history is the sum of four parts: a level, which grows by a constant and a random
step each day; a pattern of the hours; a pattern of the weekdays; and a remainder, which is
correlated with the remainder of the previous day. statsmodels' `UnobservedComponents` fits the
model. The model is a state-space model, whose Kalman filter accepts missing days. The cluster is
full on the first day whose busiest hour reaches the limit. The use varies between days and between
hours, so the cluster is full well before the mean use reaches the limit. A date is stated only if
the time until this date is at most three times the length of the history.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from statistics import fmean

import numpy as np

from metrics.comparing.effects import student_quantile
from metrics.units import format_ratio
from search.model import LEVEL

HOUR_S, DAY_S, WEEK_DAYS = 3_600.0, 86_400.0, 7
DAYS_LEAST = 14
"""A date is forecast only if the history is at least this long [days]: each weekday must occur
twice."""
DAYS_SEEN_LEAST = 10
"""A date is forecast only if at least this number of days in the history have a value [days]."""
HISTORIES_AHEAD = 3
"""A date is stated only if the time until this date is at most this multiple of the length of the
history.
"""
TENTH = 0.1
"""The early date is the date before which the cluster is full in this share of the simulated cases
[ratio].
"""
WALK_LEAST = 0.01
"""The level of the traffic changes by a random step each day. The standard deviation of this step
is at least this value [ln]. Traffic also grows in sudden steps, and a short history may contain
none.
"""
_NEARLY_BUSIEST = 0.1
"""An hour may be the busiest hour of some days if the mean use in this hour is at most this much
lower than the mean use in the busiest hour [ln].
"""
_DAYS_OF_SCATTER = 7
_DRAWS, _SEED = 4_000, 20_261_126
_HOURS_OF_DAY = 24
_USE_LEAST = 1e-4

History = Sequence[tuple[float, float]]
"""Pairs (time [s since the epoch], share of the limit in use [ratio]), in any order."""


class NoForecastLibraryError(Exception):
    """statsmodels, the library for time series, is not installed."""


@dataclass(frozen=True)
class Growth:
    """The growth of a history, and the forecast of the first day on which the cluster is full.

    Attributes:
        per_day: growth of the level [ratio per day].
        per_day_low, per_day_high: ends of the 90 % interval of `per_day`.
        days: time until the cluster is full [days], as the median over all simulations; None if
            this time is longer than `days_ahead`.
        days_low, days_high: ends of the 90 % interval of `days` [days]; None for an end that is
            larger than `days_ahead`.
        peak: expected use in the busiest hour of the busiest weekday, divided by the mean use of
            all hours [ratio].
        history_days: length of the history [days].
        days_tenth: time until the cluster is full [days], as the 10th percentile over all
            simulations; None if this time is longer than `days_ahead`.
    """

    per_day: float
    per_day_low: float
    per_day_high: float
    days: float | None
    days_low: float | None
    days_high: float | None
    peak: float
    history_days: float
    days_tenth: float | None = None

    @property
    def days_ahead(self) -> float:
        """A date is stated only if it is at most this far in the future [days]."""
        return HISTORIES_AHEAD * self.history_days


def is_long_enough(history: History) -> bool:
    """Whether a history has enough days for a forecast."""
    days = {int(at_s // DAY_S) for at_s, use in history if use > 0}
    return bool(days) and max(days) - min(days) + 1 >= DAYS_LEAST and len(days) >= DAYS_SEEN_LEAST


def growth_of(history: History, limit_low: float = 1.0, limit_high: float = 1.0) -> Growth | None:
    """The growth of a history, and the forecast; None if the history is too short.

    Args:
        limit_low, limit_high: ends of the limit's 90 % interval, divided by the best estimate of
            the limit [ratio].

    Raises:
        NoForecastLibraryError: statsmodels is not installed.
    """
    if not is_long_enough(history):
        return None
    known = sorted((at_s, math.log(max(use, _USE_LEAST))) for at_s, use in history if use > 0)
    last_s = known[-1][0]
    hours = _hours_of_day(known)
    first_day = int(known[0][0] // DAY_S)
    daily: list[list[float]] = [[] for _ in range(int(last_s // DAY_S) - first_day + 1)]
    for at_s, use in known:
        daily[int(at_s // DAY_S) - first_day].append(use - hours[_hour(at_s)])
    level = np.array([fmean(each) if each else math.nan for each in daily])
    state = _fitted(level)
    busiest_hour = max(hours[_hour(at_s)] for at_s, _ in known)
    left = _Scatter.of(known, hours, busiest_hour, state.fit, first_day)
    # The time from the middle of the last day to the last value.
    ahead_days = (last_s - (first_day + len(daily) - 0.5) * DAY_S) / DAY_S
    return _continued(state, left, busiest_hour, ahead_days, len(daily), (limit_low, limit_high))


@dataclass(frozen=True)
class _State:
    """The fitted state on the last day: mean and covariance of level, slope and weekday pattern.

    Attributes:
        fit: sum of level and weekday pattern, for each day of the history [ln].
        walk: standard deviation of a day's random step of the level [ln].
    """

    mean: np.ndarray
    covariance: np.ndarray
    freedom: float
    fit: np.ndarray
    walk: float


@dataclass(frozen=True)
class _Scatter:
    """The distribution of the differences of the daily peaks from the model. A difference [ln] is
    the highest use of a day minus the use that the model gives for the busiest hour.

    Attributes:
        mean, deviation: mean and standard deviation of the differences [ln].
        memory: correlation between the differences of two successive days.
        last: the difference on the last day [ln].
    """

    mean: float
    deviation: float
    memory: float
    last: float

    @classmethod
    def of(
        cls, known: History, hours: list[float], busiest_hour: float, fit: np.ndarray, first: int
    ) -> _Scatter:
        """The scatter of the daily peaks. If too few days are complete, the scatter of all values
        is returned.
        """
        busy = {hour for hour, each in enumerate(hours) if each >= busiest_hour - _NEARLY_BUSIEST}
        seen: dict[int, set[int]] = {}
        for at_s, _ in known:
            seen.setdefault(int(at_s // DAY_S) - first, set()).add(_hour(at_s))
        whole = {day for day, each in seen.items() if 2 * len(each & busy) >= len(busy)}
        are_whole = len(whole) >= _DAYS_OF_SCATTER
        highest = np.full(len(fit), -math.inf)
        for at_s, use in known:
            day = int(at_s // DAY_S) - first
            expected = busiest_hour if are_whole else hours[_hour(at_s)]
            if day in whole or not are_whole:
                highest[day] = max(highest[day], use - expected - fit[day])
        left = highest[np.isfinite(highest)]
        mean, deviation = float(left.mean()), float(left.std(ddof=1))
        apart = (highest - mean)[1:] * (highest - mean)[:-1]
        apart = apart[np.isfinite(apart)]
        memory = float(apart.mean()) / deviation**2 if len(apart) and deviation > 0 else 0.0
        return cls(mean, deviation, min(0.95, max(0.0, memory)), float(left[-1]))

    def draw(self, chance: np.random.Generator, before: np.ndarray) -> np.ndarray:
        """Random differences for one day, simulated from the differences of the day before."""
        kept = self.memory * (before - self.mean)
        new = chance.normal(0.0, self.deviation * math.sqrt(1 - self.memory**2), len(before))
        return self.mean + kept + new


def _hour(at_s: float) -> int:
    return int(at_s % DAY_S // HOUR_S)


def _hours_of_day(known: History) -> list[float]:
    """The pattern of the day: for each hour, the mean difference from the mean of the day [ln].

    The values of some hours may be missing, and the missing hours may differ from day to day. So
    the function repeats two steps. The first step subtracts the hours' differences from the values,
    and computes the mean of each day. The second step subtracts the days' means from the values,
    and computes the hours' differences.
    """
    hours = [0.0] * _HOURS_OF_DAY
    by_day: dict[int, list[tuple[int, float]]] = {}
    for at_s, use in known:
        by_day.setdefault(int(at_s // DAY_S), []).append((_hour(at_s), use))
    for _ in range(20):
        off: dict[int, list[float]] = {}
        for each in by_day.values():
            level = fmean(use - hours[hour] for hour, use in each)
            for hour, use in each:
                off.setdefault(hour, []).append(use - level)
        hours = [fmean(off[hour]) if hour in off else 0.0 for hour in range(_HOURS_OF_DAY)]
        middle = fmean(hours[hour] for hour in off)
        hours = [each - middle if hour in off else 0.0 for hour, each in enumerate(hours)]
    return hours


def _fitted(level: np.ndarray) -> _State:
    try:
        from statsmodels.tsa.statespace.structural import UnobservedComponents
    except ModuleNotFoundError as error:
        raise NoForecastLibraryError from error
    with warnings.catch_warnings():
        # The optimizer warns about a variance of 0, which is a valid result here.
        warnings.simplefilter("ignore")
        model = UnobservedComponents(
            level,
            level="random walk with drift",
            seasonal=WEEK_DAYS,
            stochastic_seasonal=False,
            autoregressive=1,
        )
        found = model.fit(disp=False, maxiter=200)
    places = 2 + WEEK_DAYS - 1
    mean = np.asarray(found.smoothed_state)[:places, -1]
    covariance = np.asarray(found.smoothed_state_cov)[:places, :places, -1]
    seen = int(np.isfinite(level).sum())
    walk = math.sqrt(max(WALK_LEAST**2, found.params[model.param_names.index("sigma2.level")]))
    fit = np.asarray(found.smoothed_state)[0] + np.asarray(found.smoothed_state)[2]
    return _State(mean, covariance, max(1.0, float(seen - places - 2)), fit, walk)


def _continued(
    state: _State,
    scatter: _Scatter,
    busiest_hour: float,
    ahead_days: float,
    days: int,
    limit: tuple[float, float],
) -> Growth:
    chance = np.random.default_rng(_SEED)
    shape = chance.multivariate_normal(
        np.zeros(len(state.mean)), state.covariance, _DRAWS, method="eigh"
    )
    # Student's t distribution, because the variance of a few days is uncertain.
    wider = np.sqrt(state.freedom / chance.chisquare(state.freedom, _DRAWS))
    drawn = state.mean + shape * wider[:, None]
    spread = (math.log(limit[1]) - math.log(limit[0])) / 2 / student_quantile(0.95, math.inf)
    limits = chance.normal(0.0, spread, _DRAWS) if spread > 0 else np.zeros(_DRAWS)
    patterns = _weekday_patterns(drawn)
    found = np.full(_DRAWS, math.inf)
    left, walked = np.full(_DRAWS, scatter.last), np.zeros(_DRAWS)
    for day in range(HISTORIES_AHEAD * days + 1):
        if day:
            left = scatter.draw(chance, left)
            walked = walked + chance.normal(0.0, state.walk, _DRAWS)
        level = drawn[:, 0] + day * drawn[:, 1] + patterns[:, -day % WEEK_DAYS]
        is_full = level + walked + busiest_hour + left >= limits
        found = np.where(is_full & np.isinf(found), day, found)
    tail = (1.0 - LEVEL) / 2.0
    low, tenth, half, high = (
        None if each > HISTORIES_AHEAD * days else max(0.0, float(each - ahead_days))
        for each in np.quantile(found, (tail, TENTH, 0.5, 1.0 - tail), method="nearest")
    )
    slope_low, slope_high = np.quantile(drawn[:, 1], (tail, 1.0 - tail))
    per_day, per_day_low, per_day_high = (
        math.expm1(float(each)) for each in (state.mean[1], slope_low, slope_high)
    )
    peak = math.exp(busiest_hour + float(_weekday_patterns(state.mean[None, :]).max()))
    return Growth(per_day, per_day_low, per_day_high, half, low, high, peak, float(days), tenth)


def _weekday_patterns(states: np.ndarray) -> np.ndarray:
    """The patterns of the seven weekdays. A state contains only six of the seven patterns, because
    all seven add up to 0.
    """
    return np.column_stack((states[:, 2:], -states[:, 2:].sum(axis=1)))


def growth_words(growth: Growth, at_s: float) -> str:
    """The growth and the forecast date as a sentence without a full stop.

    Args:
        at_s: the time of the answer [s since the epoch].
    """
    span = f"{format_ratio(growth.per_day_low)} to {format_ratio(growth.per_day_high)}"
    seen = (
        f"traffic grows by {format_ratio(growth.per_day)} a day ({span} at 90 %, "
        f"{growth.history_days:.0f} days of history)"
    )
    if growth.days_tenth is None:
        return f"{seen}: no overload is expected before {_date(at_s, growth.days_ahead)}"
    early = f"before {_date(at_s, growth.days_tenth)} with a probability of 10 %"
    if growth.days is None:
        beyond = _date(at_s, growth.days_ahead)
        return f"{seen}: the cluster is full {early}, and before {beyond} with less than 50 %"
    return (
        f"{seen}: the cluster is full before {_date(at_s, growth.days)} ({growth.days:.0f} days) "
        f"with a probability of 50 %, and {early} (full: a day's busiest hour reaches the limit)"
    )


def _date(at_s: float, days: float) -> str:
    return str((datetime.fromtimestamp(at_s, tz=timezone.utc) + timedelta(days=days)).date())


def short_history_words(days: int) -> str:
    """The reason for a missing forecast date."""
    return (
        f"no date: the history of this cluster has {days} day{'' if days == 1 else 's'}; expected "
        f"at least {DAYS_LEAST} days, with a call on most of these days; call this job every hour, "
        "or at least every day"
    )
