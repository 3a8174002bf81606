"""Invented production and runs, for tests of headroom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metrics.features.headroom.growth import DAY_S, HOUR_S, History
from metrics.features.headroom.limits import Today, Windows
from metrics.tables.boundary import Boundary
from metrics.tables.rows import HeadroomRow, ResourceHeadroom
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow, RequestWindow
from search.model import Verdict
from tests.support.evidence import START_S, broker
from tests.support.rows import OVERLOADED, traffic, trial

LIMIT = 100
"""The limit of the run on each axis [producers]."""
REST, AT_LIMIT = 0.02, 0.80
"""Use of the request handlers without load and at the limit [ratio]."""
STORED_BYTES = 1_100.0


def use_at(load: float) -> float:
    """The use of the request handlers at a load [ratio]."""
    return REST + (AT_LIMIT - REST) * load / LIMIT


def window_at(load: float, broker_id: int = 1, **changes: Any) -> BrokerWindow:
    """A broker under a load, each unit of which is 10 messages/s."""
    per_s = max(load, 1e-9) * 10.0
    window = broker(
        broker_id,
        handler_idle=1.0 - use_at(load),
        network_idle=1.0 - 0.3 * load / LIMIT,
        cpu_process_share=0.2 * load / LIMIT,
        cpu_machine_share=0.2 * load / LIMIT + 0.1,
        flush_threads=None,
        messages_in_per_s=per_s,
        bytes_in_per_s=per_s * STORED_BYTES,
        produce=RequestWindow(per_s=per_s / 10, throttle_ms=0.0),
    )
    return replace(window, **changes)


def windows_at(loads: Sequence[float], **changes: Any) -> Windows:
    """The windows of brokers 1, 2, … under these loads."""
    return Windows(tuple(window_at(load, n + 1, **changes) for n, load in enumerate(loads)))


def today_at(*loads: float, parts: Sequence[Sequence[float]] = (), **changes: Any) -> Today:
    """Production on brokers 1, 2, … for a minute.

    Args:
        parts: the loads in each part of the minute.
    """
    whole = windows_at(loads, **changes)
    return Today(
        "driver-jvm", START_S, START_S + 60, whole, [windows_at(each, **changes) for each in parts]
    )


SUSTAINED = Judgement(Verdict.SUSTAINED, (), {}, None, "")


def trials_at(*loads: int, brokers: int = 2, **changes: Any) -> list[Trial]:
    """Trials of 1 kB at these loads on equal brokers; those beyond the limit are overloads."""
    return [
        trial(
            number,
            pattern=traffic(load, 1_000, brokers=brokers, axis="np", load=load),
            brokers=windows_at([load] * brokers, **changes).brokers,
            judgements={"default": SUSTAINED if load <= LIMIT else OVERLOADED},
        )
        for number, load in enumerate(loads, start=1)
    ]


def boundary(**changes: Any) -> Boundary:
    """The limit of 1 kB at 100 producers, 95 to 106, by the request handlers."""
    point = Boundary(
        message_bytes=1_000,
        np_sustained=LIMIT,
        np_overloaded=105,
        mps=LIMIT * 10.0 * 2,
        mb_per_s=LIMIT * 0.01 * 2,
        mb_per_s_per_broker=LIMIT * 0.01,
        overload_reasons=(),
        limited_by="request handlers",
        trials=6,
        goal="default",
        load_sustained=LIMIT,
        load_overloaded=105,
        load_low=95.0,
        load_high=106.0,
        load_estimate=100.0,
    )
    return replace(point, **changes)


def headroom_row(run_id: str | None, **changes: Any) -> HeadroomRow:
    """The first row of an answer, with fields of the row or of its resource changed."""
    used = ResourceHeadroom(1, "request handlers", "ratio", 0.26, 0.02, 0.8, 3.25, 2.9, 3.6)
    own = {name: changes.pop(name) for name in list(changes) if hasattr(used, name)}
    row = HeadroomRow(
        run_id, "h1", START_S, "prod", "cluster-1", "default", "driver-jvm", 60.0,
        replace(used, **own), is_first=True,
        messages_in_per_s=1_000.0, bytes_in_per_s=1.1e6, assumption="a",
        growth_per_day=0.007, full_at_s=START_S + 74 * DAY_S, full_low_at_s=START_S + 60 * DAY_S,
    )  # fmt: skip
    return replace(row, **changes)


def history_of(seed: int, steps_per_day: float = 0.0) -> tuple[History, float, float]:
    """A seeded history with growth, days, weeks, scatter and holes.

    Args:
        steps_per_day: mean number of steps of the level, of 5 % each (sigma) [1/day].

    Returns:
        The share of the limit in use for most hours of 28 to 90 days, the days from its end until
        an hour is over the limit for the first time, and the growth [ratio per day].
    """
    chance = np.random.default_rng(seed)
    days, growth = int(chance.integers(28, 91)), chance.uniform(0.004, 0.015)
    hours = np.concatenate(
        [
            chance.uniform(0.3, 0.5) * np.ones(7),
            np.linspace(0.6, 1.0, 4),
            np.ones(7) * chance.uniform(0.9, 1.0),
            np.linspace(0.9, 0.5, 6),
        ]
    )
    weekdays = [1.0, 1.0, 1.0, 1.0, chance.uniform(0.85, 1), *chance.uniform(0.4, 0.8, 2)]
    memory, deviation = chance.uniform(0, 0.7), chance.uniform(0.02, 0.08)
    level, left = math.log(chance.uniform(0.15, 0.45)), chance.normal() / math.sqrt(1 - memory**2)
    hole_from = int(chance.integers(5, days - 8))
    hole = range(hole_from, hole_from + int(chance.integers(0, 5)))
    start_s = 19_676 * DAY_S
    found, first_s = [], math.inf
    for day in range(20 * days):
        level += chance.normal(0, 0.05) * (chance.random() < steps_per_day)
        for hour in range(24):
            use = level + growth * (day + (hour + 0.5) / 24) + deviation * left
            use += math.log(hours[hour]) + math.log(weekdays[(19_676 + day) % 7])
            use += chance.normal(0, 0.03)
            at_s = start_s + day * DAY_S + (hour + 0.5) * HOUR_S
            if day >= days and use >= 0:
                first_s = min(first_s, at_s)
            elif day < days and chance.random() >= 0.15 and day not in hole:
                found.append((at_s, math.exp(use)))
        if first_s < math.inf:
            break
        left = memory * left + chance.normal()
    return found, (first_s - found[-1][0]) / DAY_S, math.expm1(growth)
