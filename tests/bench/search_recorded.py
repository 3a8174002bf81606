"""Comparison of the search with plain bisection on recorded readings of real brokers, with noise.

`tests.bench.ladders` recorded the readings at loads from a tenth to eight times the limit. A
simulated cluster replays one of these ladders at a random capacity: the readings of a trial depend
only on the load divided by the capacity. Constants of the search may be chosen on half of the
ladders; the others only measure its quality.

The closing trial of a run, which looks for a change of the limit, is left out for both.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from jobs.trials.warm_up import LOOKS_MAX
from metrics.trial.trial import WarmUp
from search.bisect import Bisection
from search.estimate import READABLE_MIN
from search.forecast import ACHIEVED_MIN, IDLE_MIN
from search.guide import Guide
from search.guided import Guided
from search.model import Searcher
from search.signals import SATURATED_IDLE, SATURATED_UTILIZATION
from tests.bench.search_methods import Case
from tests.bench.search_overloads import LIMITS_NP, START, WRONG_BY, even_in_log, limits_from
from tests.support.simulated_clusters import ClusterSpec, SimulatedCluster, SimulatedEnd, run_on

FOLDER = Path(__file__).parents[1] / "data" / "ladders"
"""Folder of the recorded ladders."""
STARTS = {"cold": None, "warm": None, "high": WRONG_BY, "low": 1 / WRONG_BY}
"""Ratio of the first load to the limit; None for the usual start. "warm" is the usual start with a
hint from the warm-up of cold brokers."""
COLD = 1.1
"""Utilization of brokers in the warm-up divided by that in a trial [ratio]."""
AT_REST = 0.02
"""Utilization of the handlers' threshold without a load [ratio]."""
POINTS = 1000
"""Number of searches per ladder and start."""


Readings = tuple[tuple[float, float], ...]
"""(load divided by the limit, reading) of each rung, ascending."""


@dataclass(frozen=True)
class Ladder:
    """Readings of brokers as functions of the load; they never fall as the load grows.

    Attributes:
        heaviest: heaviest offered load, divided by the limit [ratio].
        handlers: utilization of the idle threshold [ratio].
        shortfall: share of the offered bytes that was not delivered [ratio].
        isr: ISR changes, divided by their threshold [ratio].
        is_held_out: True if it was not used to choose constants.
    """

    name: str
    heaviest: float
    handlers: Readings
    shortfall: Readings
    isr: Readings
    is_held_out: bool

    def indicators(self, ratio: float) -> dict[str, float]:
        """The indicators of a load, interpolated between two rungs.

        Below the lightest rung they approach those of brokers at rest; above the heaviest, the
        delivered load does not grow.

        Args:
            ratio: the load divided by the limit.
        """
        at = min(ratio, self.heaviest)
        through = at * (1.0 - _between(at, self.shortfall, 0.0))
        return {
            "request_handler_idle": _between(at, self.handlers, AT_REST),
            "achieved": max(0.0, 1.0 - through / ratio) / (1.0 - ACHIEVED_MIN),
            "isr": _between(at, self.isr, 0.0),
        }


def _between(ratio: float, readings: Readings, at_rest: float) -> float:
    loads, values = zip(*readings, strict=True)
    return float(np.interp(ratio, (0.0, *loads), (at_rest, *values)))


ISR_SHARE_MAX = 0.5
"""Share of samples with an ISR change above which a trial is overloaded."""
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
def ladders() -> tuple[Ladder, ...]:
    """The recorded ladders that reach an overload, sorted by file and size."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        found += [_ladder(recorded["name"], each) for each in recorded["ladders"]]
    return tuple(one for one in found if one is not None)


def _ladder(brokers: str, recorded: dict[str, Any]) -> Ladder | None:
    """The ladder of recorded rungs without INVALID ones; None without an overloaded rung."""
    rungs = [rung for rung in recorded["rungs"] if rung["verdict"] != "INVALID"]
    if not any(rung["verdict"] == "OVERLOADED" for rung in rungs):
        return None
    size = recorded["bpm"]
    name = f"{brokers} {size // 1000} kB" if size >= 1000 else f"{brokers} {size} B"
    loads = [float(rung["np"]) for rung in rungs]
    busy = [(1.0 - (rung["idle"] or 0.0)) / (1.0 - IDLE_MIN) for rung in rungs]
    short = [max(0.0, 1.0 - rung["achieved"]) for rung in rungs]
    isr = [(rung["isr"] or 0.0) / ISR_SHARE_MAX for rung in rungs]
    read = Ladder(
        name,
        loads[-1],
        _rising(loads, _smoothed(loads, busy)),
        _rising(loads, short),
        _rising(loads, isr),
        name not in CHOSEN_ON,
    )
    limit = _limit_of(read, loads[0] / 100.0)
    return replace(
        read,
        heaviest=read.heaviest / limit,
        handlers=_over(limit, read.handlers),
        shortfall=_over(limit, read.shortfall),
        isr=_over(limit, read.isr),
    )


def _over(limit: float, readings: Readings) -> Readings:
    return tuple((load / limit, value) for load, value in readings)


def _smoothed(loads: Sequence[float], used: Sequence[float]) -> list[float]:
    """Utilizations without the scatter of single trials, which the replay adds again.

    Readable values are fitted by a parabola of their logarithm over the logarithm of the load.
    """
    read = [i for i, each in enumerate(used) if READABLE_MIN < each < SATURATED_UTILIZATION]
    where, what = np.log([loads[i] for i in read]), np.log([used[i] for i in read])
    fitted = np.exp(np.polyval(np.polyfit(where, what, 2), where))
    return [float(fitted[read.index(i)]) if i in read else each for i, each in enumerate(used)]


def _rising(loads: Sequence[float], values: Sequence[float]) -> Readings:
    """The isotonic regression of the readings, which never falls."""
    from scipy.optimize import isotonic_regression

    return tuple(zip(loads, map(float, isotonic_regression(values).x), strict=True))


def _limit_of(ladder: Ladder, low: float) -> float:
    """The load above `low` at which the first of the readings reaches its threshold."""
    high = ladder.heaviest
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        if max(ladder.indicators(middle).values()) >= 1.0:
            high = middle
        else:
            low = middle
    return low


class RecordedCluster(SimulatedCluster):
    """A cluster with the readings of a ladder, and the noise and false alarms of its spec."""

    def __init__(self, ladder: Ladder, spec: ClusterSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self._ladder = ladder

    def utilization(self, load: int) -> float:
        """Utilization of the handlers' threshold in a trial that does not count."""
        return self.measure(load).indicators["request_handler_idle"]

    def _indicators(self, ratio: float, reading: float) -> dict[str, float]:
        read = self._ladder.indicators(ratio)
        noisy = read["request_handler_idle"] + self.spec.reading_noise * reading / (1.0 - IDLE_MIN)
        read["request_handler_idle"] = min(max(0.0, noisy), 1.0 / (1.0 - IDLE_MIN))
        return read


def replay_cases(
    of: Iterable[Ladder], starts: Iterable[str] = STARTS, points: int = POINTS
) -> list[Case]:
    """Bisection and the search on each ladder, from each start."""
    return [
        Case(
            f"{each.name}, {start}",
            method,
            each.is_held_out,
            partial(_ends, each, start, make, points),
        )
        for start in starts
        for each in of
        for method, make in (("plain bisection", Bisection), ("redline", Guided))
    ]


def _ends(
    ladder: Ladder, start: str, make: type[Bisection] | type[Guided], points: int
) -> list[SimulatedEnd]:
    return [_end(ladder, start, make, seed) for seed in range(points)]


def _end(
    ladder: Ladder, start: str, make: type[Bisection] | type[Guided], seed: int
) -> SimulatedEnd:
    chance = random.Random(f"{ladder.name} {start} {seed}")
    capacity = even_in_log(chance, *LIMITS_NP)
    wrong = STARTS[start]
    first = START if wrong is None else max(1, round(capacity * wrong))
    spec = ClusterSpec(capacity, noise=0.02, reading_noise=0.005, false_alarm=0.02)
    cluster = RecordedCluster(ladder, spec, seed)
    searcher: Searcher = make(limits_from(first))
    if start == "warm" and make is Guided:
        warm_up = RecordedCluster(ladder, replace(spec, false_alarm=0.0), ~seed)
        load = first // 2
        for look in range(1 + LOOKS_MAX):
            idle = 1.0 - COLD * (1.0 - IDLE_MIN) * warm_up.utilization(load)
            if idle > SATURATED_IDLE or load == 1 or look == LOOKS_MAX:
                break
            load //= 2
        hint = WarmUp(load, max(0.0, idle)).hint(IDLE_MIN)
        assert hint is not None
        searcher = Guided(limits_from(first), Guide().with_hint(hint))
    return run_on(searcher, cluster, check_for_change=False)
