"""Two sides measured in pairs: how they differ, how sure that is, and what one may call it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean

from metrics.comparing.effects import CONFIDENCE, Effect, holm, paired_effect
from metrics.tables.schema import Trial
from metrics.windows.broker import BrokerWindow


class Side(str, Enum):
    """One of the two that are compared; B is judged against A."""

    A = "A"
    B = "B"

    @property
    def other(self) -> Side:
        """The side that it is compared with."""
        return Side.B if self is Side.A else Side.A


@dataclass(frozen=True)
class Measure:
    """What is compared.

    Attributes:
        name: as compare.json has it, with its unit.
        title: for people.
        unit: of the values, for people.
        is_more_better: True when a larger value is the better one.
    """

    name: str
    title: str
    unit: str
    is_more_better: bool


CAPACITY = Measure("capacity_mb_per_s_per_broker", "capacity", "MB/s/broker", True)
"""What brokers acknowledge while more is offered than they take; the measure that decides."""

HANDLERS_BUSY = Measure("handlers_busy", "request handlers busy", "", False)
CPU_PER_MB = Measure("broker_cpu_ms_per_mb", "broker CPU per MB", "ms", False)
LATENCY_P50 = Measure("latency_p50_ms", "latency p50", "ms", False)
LATENCY_P99 = Measure("latency_p99_ms", "latency p99", "ms", False)
STEADY = (HANDLERS_BUSY, CPU_PER_MB, LATENCY_P50, LATENCY_P99)
"""What is compared at a load that both sides sustain; it explains and decides nothing."""


def achieved_mb_per_s(trial: Trial) -> float:
    """What was acknowledged in the window, whole cluster [MB/s]."""
    client = trial.client
    return client.acked_bytes / client.duration_s / 1e6 if client.duration_s > 0 else 0.0


def achieved_share(trial: Trial) -> float:
    """Acknowledged over offered [ratio]."""
    client = trial.client
    return client.acked_bytes / client.offered_bytes if client.offered_bytes else 0.0


def _busiest(brokers: Sequence[BrokerWindow]) -> float | None:
    idle = [window.handler_idle for window in brokers if window.handler_idle is not None]
    return 1.0 - min(idle) if idle else None


def _cpu_ms_per_mb(trial: Trial) -> float | None:
    cores = [window.cpu_cores for window in trial.brokers if window.cpu_cores is not None]
    rate = achieved_mb_per_s(trial)
    return 1000.0 * sum(cores) / rate if len(cores) == len(trial.brokers) and rate > 0 else None


def reading(measure: Measure, trial: Trial) -> float | None:
    """A trial's value of a measure; None where it is not known or not above zero."""
    client, brokers = trial.client, max(1, trial.pattern.brokers)
    value = {
        CAPACITY.name: achieved_mb_per_s(trial) / brokers,
        HANDLERS_BUSY.name: _busiest(trial.brokers),
        CPU_PER_MB.name: _cpu_ms_per_mb(trial),
        LATENCY_P50.name: client.latency_p50_ms,
        LATENCY_P99.name: client.latency_p99_ms,
    }[measure.name]
    return value if value is not None and math.isfinite(value) and value > 0 else None


@dataclass(frozen=True)
class TrialPair:
    """Two trials of the same load, one after the other."""

    a: Trial
    b: Trial

    def of(self, side: Side) -> Trial:
        """The trial of one side."""
        return self.a if side is Side.A else self.b


@dataclass(frozen=True)
class Compared:
    """A measure on both sides.

    Attributes:
        pairs: (a, b) of the pairs in which both are known, in the order of time.
        effect: of B against A; None with too few pairs.
    """

    measure: Measure
    pairs: tuple[tuple[float, float], ...]
    effect: Effect | None

    def mean(self, side: Side) -> float | None:
        """Geometric mean of one side, so that the means' ratio is the effect's."""
        values = [pair[0 if side is Side.A else 1] for pair in self.pairs]
        return math.exp(fmean(math.log(value) for value in values)) if values else None


def compared(measure: Measure, pairs: Sequence[TrialPair]) -> Compared:
    """A measure over pairs of trials."""
    found = [(reading(measure, pair.a), reading(measure, pair.b)) for pair in pairs]
    known = tuple((a, b) for a, b in found if a is not None and b is not None)
    return Compared(measure, known, paired_effect(known))


class Conclusion(str, Enum):
    """What one may call the difference of the capacities at one message size."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SMALL = "smaller than the least that matters"
    NONE_SEEN = "no difference seen"
    NO_ANSWER = "no answer"


def conclude(effects: Sequence[Effect | None], min_effect: float) -> tuple[Conclusion, ...]:
    """What to call each of the effects on capacity of B against A.

    A difference is called one when it is not chance by Holm's rule over all cases, and when
    it is larger than the least that matters.

    Args:
        effects: one for each case; None where there were too few pairs.
        min_effect: the least change that matters, such as 0.05 [share].
    """
    known = [effect for effect in effects if effect is not None]
    is_seen = iter(holm([effect.p_value for effect in known], 1.0 - CONFIDENCE))
    return tuple(
        Conclusion.NO_ANSWER if effect is None else _called(effect, next(is_seen), min_effect)
        for effect in effects
    )


def _called(effect: Effect, is_seen: bool, min_effect: float) -> Conclusion:
    if not is_seen:
        return Conclusion.NONE_SEEN
    # As much up as down, on the logarithm: a loss of a tenth is undone by a gain of a ninth.
    if effect.ratio <= 1.0 - min_effect:
        return Conclusion.REGRESSION
    if effect.ratio >= 1.0 / (1.0 - min_effect):
        return Conclusion.IMPROVEMENT
    return Conclusion.SMALL
