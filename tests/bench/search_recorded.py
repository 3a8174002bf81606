"""The search beside plain bisection on what real brokers read, with noise.

`tests.bench.ladders` recorded the readings at loads from a tenth to eight times the limit. A
cluster here replays one of these ladders at a capacity of its own: what a trial reads depends on
the load over the capacity alone. Constants of the search may be chosen on half of the ladders;
the others say only how well it works.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from search.bisect import Bisection
from search.guided import Guided
from search.model import Searcher
from search.simulate import (
    ACHIEVED_MIN,
    IDLE_MIN,
    ClusterSpec,
    SimulatedCluster,
    SimulatedEnd,
    run_on,
)
from tests.bench.search_overloads import LIMITS_NP, START, WRONG_BY, limits_from

FOLDER = Path(__file__).parents[1] / "data" / "ladders"
"""Where the recorded ladders lie."""
STARTS = {"cold": None, "high": WRONG_BY, "low": 1 / WRONG_BY}
"""How far the first load lies from the limit [ratio]; None is the usual start."""
AT_REST = 0.02
"""Utilization of the handlers' threshold at no load."""
POINTS = 300
"""Searches of a ladder and a start."""


@dataclass(frozen=True)
class Ladder:
    """What brokers read over the load. Readings never fall as the load grows.

    Attributes:
        name: of the brokers and the size.
        loads: over the limit [ratio], ascending.
        handlers: utilization of the idle threshold.
        shortfall: share of the offered bytes that was not delivered [ratio].
        isr: ISR changes, over their threshold.
        is_held_out: True when it had no part in choosing constants.
    """

    name: str
    loads: tuple[float, ...]
    handlers: tuple[float, ...]
    shortfall: tuple[float, ...]
    isr: tuple[float, ...]
    is_held_out: bool

    def indicators(self, ratio: float) -> dict[str, float]:
        """What a load reads, between its two neighbours.

        Below the lightest rung it falls to that of brokers at rest; past the heaviest, no more
        is delivered than there.

        Args:
            ratio: the load over the limit.
        """
        delivered = np.multiply(self.loads, np.subtract(1.0, self.shortfall))
        through = _between(ratio, self.loads, delivered, 0.0)
        return {
            "request_handler_idle": _between(ratio, self.loads, self.handlers, AT_REST),
            "achieved": max(0.0, 1.0 - through / ratio) / (1.0 - ACHIEVED_MIN),
            "isr": _between(ratio, self.loads, self.isr, 0.0),
        }


def _between(ratio: float, loads: Sequence[float], values: Any, at_rest: float) -> float:
    return float(np.interp(ratio, (0.0, *loads), (at_rest, *values)))


ISR_SHARE_MAX = 0.5
"""Share of samples with an ISR change from which a trial is overloaded."""
CHOSEN_ON = frozenset(
    {
        "calibrated 1 kB",
        "calibrated-1-broker 1 kB",
        "disk-bound 1 kB",
        "disk-bound 10 kB",
        "disk-bound-acks-all 1 kB",
        "slow-broker 1 kB",
    }
)


@cache
def ladders(folder: Path = FOLDER) -> tuple[Ladder, ...]:
    """The ladders of a folder that reach an overload, by file and size."""
    found = []
    for path in sorted(folder.glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        found += [_ladder(recorded["name"], each) for each in recorded["ladders"]]
    return tuple(one for one in found if one is not None)


def _ladder(brokers: str, recorded: dict[str, Any]) -> Ladder | None:
    """None where no rung is overloaded. Rungs that were INVALID say nothing."""
    rungs = [rung for rung in recorded["rungs"] if rung["verdict"] != "INVALID"]
    if not any(rung["verdict"] == "OVERLOADED" for rung in rungs):
        return None
    size = recorded["bpm"]
    name = f"{brokers} {size // 1000} kB" if size >= 1000 else f"{brokers} {size} B"
    read = Ladder(
        name,
        tuple(float(rung["np"]) for rung in rungs),
        _rising((1.0 - (rung["idle"] or 0.0)) / (1.0 - IDLE_MIN) for rung in rungs),
        _rising(max(0.0, 1.0 - rung["achieved"]) for rung in rungs),
        _rising((rung["isr"] or 0.0) / ISR_SHARE_MAX for rung in rungs),
        name not in CHOSEN_ON,
    )
    limit = _limit_of(read)
    return Ladder(
        name,
        tuple(load / limit for load in read.loads),
        read.handlers,
        read.shortfall,
        read.isr,
        read.is_held_out,
    )


def _rising(values: Iterable[float]) -> tuple[float, ...]:
    """The nearest readings that never fall, as noise made some of them do."""
    return tuple(map(float, isotonic_regression(list(values)).x))


def _limit_of(ladder: Ladder) -> float:
    """The load at which the first of the readings reaches its threshold."""
    low, high = ladder.loads[0] / 100.0, ladder.loads[-1]
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        if max(ladder.indicators(middle).values()) >= 1.0:
            high = middle
        else:
            low = middle
    return low


class RecordedCluster(SimulatedCluster):
    """A cluster that reads what a ladder says; noise and false alarms are those of its spec."""

    def __init__(self, ladder: Ladder, spec: ClusterSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self._ladder = ladder

    def _indicators(self, ratio: float, reading: float) -> dict[str, float]:
        read = self._ladder.indicators(ratio)
        noisy = read["request_handler_idle"] + self.spec.reading_noise * reading / (1.0 - IDLE_MIN)
        read["request_handler_idle"] = min(max(0.0, noisy), 1.0 / (1.0 - IDLE_MIN))
        return read


@dataclass(frozen=True)
class Replayed:
    """One method on one ladder.

    Attributes:
        trials: of a search, mean.
        off_10: share of searches that are off by more than 10 %, or by more than one producer
            where that is more [ratio].
        held: share of the intervals that hold the limit [ratio].
    """

    ladder: Ladder
    start: str
    method: str
    trials: float
    off_10: float
    held: float


def replay(
    of: Iterable[Ladder], starts: Iterable[str] = STARTS, points: int = POINTS
) -> Iterator[Replayed]:
    """Bisection and ours on each ladder, as they are done."""
    for start in starts:
        for ladder in of:
            for method, make in (("plain bisection", Bisection), ("redline", Guided)):
                ends = [_end(ladder, start, make, seed) for seed in range(points)]
                yield Replayed(
                    ladder,
                    start,
                    method,
                    sum(end.trials for end in ends) / points,
                    sum(end.is_off(0.10) for end in ends) / points,
                    sum(_holds(end) for end in ends) / points,
                )


def _holds(end: SimulatedEnd) -> bool:
    interval = end.result.interval
    return interval is not None and interval.low <= end.true_limit <= interval.high


def _end(
    ladder: Ladder, start: str, make: type[Bisection] | type[Guided], seed: int
) -> SimulatedEnd:
    chance = random.Random(f"{ladder.name} {start} {seed}")
    capacity = math.exp(chance.uniform(*map(math.log, LIMITS_NP)))
    wrong = STARTS[start]
    first = START if wrong is None else max(1, round(capacity * wrong))
    spec = ClusterSpec(capacity, noise=0.02, reading_noise=0.005, false_alarm=0.02)
    searcher: Searcher = make(limits_from(first))
    return run_on(searcher, RecordedCluster(ladder, spec, seed))
