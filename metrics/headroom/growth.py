"""When the cluster will be full: growth, weekdays and hours of a history, and their continuation.

The history is the share of the limit in use. Its logarithm is the sum of a level that grows by the
same amount each day, a pattern of the day, a pattern of the week and what is left, which remembers
the day before (statsmodels' `UnobservedComponents`, a state-space model whose Kalman filter accepts
holes). The cluster is full when the busiest hour of the busiest weekday reaches the limit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from metrics.comparing.quantiles import student_quantile
from search.interval import LEVEL

HOUR_S, DAY_S, WEEK_DAYS = 3_600.0, 86_400.0, 7
DAYS_LEAST = 14
"""Shortest history with a date: two of each weekday [days]."""
DAYS_SEEN_LEAST = 10
"""Least number of days with a value in it [days]."""
DAYS_AHEAD = 365
"""Time within which a date is stated [days]."""
_DRAWS, _SEED = 4_000, 20_261_126
_HOURS_OF_DAY = 24
_USE_LEAST = 1e-4

History = Sequence[tuple[float, float]]
"""(time [s since the epoch], share of the limit in use), in any order."""


class NoForecastLibraryError(Exception):
    """The library for time series is not installed."""


@dataclass(frozen=True)
class Growth:
    """The growth of a history, and when the cluster is full.

    Attributes:
        per_day: growth of the level [ratio per day].
        per_day_low, per_day_high: its 90 % interval.
        days: time until the cluster is full; None beyond `DAYS_AHEAD` [days].
        days_low, days_high: its 90 % interval; None beyond `DAYS_AHEAD` [days].
        peak: the busiest hour of the busiest weekday over the level [ratio].
        history_days: length of the history [days].
    """

    per_day: float
    per_day_low: float
    per_day_high: float
    days: float | None
    days_low: float | None
    days_high: float | None
    peak: float
    history_days: float


def is_long_enough(history: History) -> bool:
    """Whether a history has days and weeks to continue."""
    days = {int(at_s // DAY_S) for at_s, use in history if use > 0}
    return bool(days) and max(days) - min(days) + 1 >= DAYS_LEAST and len(days) >= DAYS_SEEN_LEAST


def growth_of(history: History, limit_low: float = 1.0, limit_high: float = 1.0) -> Growth | None:
    """The growth of a history and its continuation; None for a history that is too short.

    Args:
        limit_low, limit_high: ends of the 90 % interval of the limit over its best estimate.

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
    ahead_s = (
        last_s - (first_day + len(daily) - 0.5) * DAY_S
    )  # the last value from its day's middle
    return _continued(state, busiest_hour, ahead_s / DAY_S, len(daily), (limit_low, limit_high))


@dataclass(frozen=True)
class _State:
    """Level, slope and weekday pattern on the last day: their mean and covariance."""

    mean: np.ndarray
    covariance: np.ndarray
    freedom: float


def _hour(at_s: float) -> int:
    return int(at_s % DAY_S // HOUR_S)


def _hours_of_day(known: History) -> list[float]:
    """The pattern of the day: for each hour the mean distance from the mean of its day.

    Days have different hours with values, so that distances and means of days are found in turns.
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
        # A variance at 0 is a good answer here, and the optimizer warns of it.
        warnings.simplefilter("ignore")
        model = UnobservedComponents(
            level,
            level="deterministic trend",
            seasonal=WEEK_DAYS,
            stochastic_seasonal=False,
            autoregressive=1,
        )
        found = model.fit(disp=False, maxiter=200)
    places = 2 + WEEK_DAYS - 1
    mean = np.asarray(found.smoothed_state)[:places, -1]
    covariance = np.asarray(found.smoothed_state_cov)[:places, :places, -1]
    seen = int(np.isfinite(level).sum())
    return _State(mean, covariance, max(1.0, float(seen - places - 2)))


def _continued(
    state: _State,
    busiest_hour: float,
    ahead_days: float,
    days: int,
    limit: tuple[float, float],
) -> Growth:
    chance = np.random.default_rng(_SEED)
    shape = chance.multivariate_normal(
        np.zeros(len(state.mean)), state.covariance, _DRAWS, method="eigh"
    )
    # Student's t for few days: the variance is known no better than that.
    wider = np.sqrt(state.freedom / chance.chisquare(state.freedom, _DRAWS))
    drawn = state.mean + shape * wider[:, None]
    spread = (math.log(limit[1]) - math.log(limit[0])) / 2 / student_quantile(0.95, math.inf)
    limits = chance.normal(0.0, spread, _DRAWS) if spread > 0 else np.zeros(_DRAWS)
    # The busiest weekday of each draw would be one that chance made, so it is that of the mean.
    weekday = int(np.argmax(_weekday_patterns(state.mean[None, :])))
    peaks = busiest_hour + _weekday_patterns(drawn)[:, weekday]
    found = _days_until(limits - drawn[:, 0] - peaks, drawn[:, 1])
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(found, (tail, 1.0 - tail), method="nearest") - ahead_days
    slope_low, slope_high = np.quantile(drawn[:, 1], (tail, 1.0 - tail))
    peak = busiest_hour + float(_weekday_patterns(state.mean[None, :])[0, weekday])
    best = _days_until(-state.mean[:1] - peak, state.mean[1:2])[0] - ahead_days
    per_day, per_day_low, per_day_high = (
        math.expm1(float(each)) for each in (state.mean[1], slope_low, slope_high)
    )
    return Growth(
        per_day,
        per_day_low,
        per_day_high,
        _within(float(best)),
        _within(float(low)),
        _within(float(high)),
        math.exp(peak),
        float(days),
    )


def _weekday_patterns(states: np.ndarray) -> np.ndarray:
    """The patterns of the seven weekdays, which add up to 0: a state has six of them."""
    return np.column_stack((states[:, 2:], -states[:, 2:].sum(axis=1)))


def _days_until(room: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Days until a level that grows by `slope` a day has grown by `room`."""
    ever = np.divide(room, slope, out=np.full(len(room), math.inf), where=slope > 0)
    return np.where(room > 0, ever, 0.0)


def _within(days: float) -> float | None:
    return None if days > DAYS_AHEAD else max(0.0, days)
