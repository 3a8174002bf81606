"""The trials of a comparison: which side is loaded next, and how much.

Decides and asks for trials; what a trial is, it does not know. The sides take turns A B B A,
so that a machine that grows slower, or faster, hits both alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from metrics.common.errors import NoConclusionError
from metrics.comparing.pairs import Side, TrialPair, achieved_share
from metrics.trial.trial import Trial
from search.model import Verdict

SATURATED_ACHIEVED_SHARE = 0.85
"""Share of the offered load below which brokers take all that they can [ratio]."""
EXCESS = 1.5
"""Load of the pairs over the higher capacity of the two."""
STEADY_SHARE = 0.6
"""First guess of a load that both sides sustain, over the lower capacity [ratio]."""
STEADY_LOWER = 0.5
"""The next guess over the one that a side did not sustain. Saturated brokers get fuller batches, so
what they take then can be several times what they sustain [ratio]."""
STEADY_LOWERS_MAX = 4
PROBES_MAX = 12
RAISES_MAX = 6
RAISE = 1.25
"""How many times as much is offered at least after a side was not saturated."""
ALL_TAKEN = 0.97
"""Share of the offered load from which on nothing tells how much more would be taken [ratio]."""


class Hold(Protocol):
    """Holds a load on one side; for the whole cluster, so that sides of any size compare."""

    def __call__(self, side: Side, load_per_broker: float, reason: str) -> Trial:
        """One trial, appended to the tables.

        Args:
            load_per_broker: producers for each broker of the side.
            reason: why this trial is made, for progress.
        """
        ...


@dataclass(frozen=True)
class Effort:
    """How much is spent on one case.

    Attributes:
        pairs: of saturated trials, which decide.
        steady_pairs: of trials at a load that both sides sustain, which explain.
        repeats_max: how often a trial or pair that is no answer is made again.
    """

    pairs: int
    steady_pairs: int
    repeats_max: int = 2

    @property
    def trials(self) -> int:
        """Trials of a case when nothing is repeated, three of them to find the load."""
        return 3 + 2 * (self.pairs + self.steady_pairs)


@dataclass
class ComparedSize:
    """All that was measured at one message size.

    Attributes:
        message_bytes: message size [B].
        load: producers per broker in the saturated trials, the last of them.
        steady_load: producers per broker in the steady trials; lowered until both sustain it.
        saturated, steady: the pairs, in the order of time.
        notes: what a reader of the answer has to know.
    """

    message_bytes: int
    load: float | None = None
    steady_load: float | None = None
    saturated: list[TrialPair] = field(default_factory=list)
    steady: list[TrialPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def order_of(pair: int) -> tuple[Side, Side]:
    """Which side of a pair goes first: A B, B A, A B, …"""
    return (Side.A, Side.B) if pair % 2 == 0 else (Side.B, Side.A)


class CaseComparer:
    """Measures one message size on both sides.

    Args:
        hold: makes a trial.
        effort: how much is spent.
        load_start, load_cap: producers per broker to begin with, and at most.
        has_time: False when nothing more is to be begun, with what it would be.
    """

    def __init__(
        self,
        hold: Hold,
        effort: Effort,
        load_start: float,
        load_cap: float,
        has_time: Callable[[], bool] = lambda: True,
    ) -> None:
        self._hold = hold
        self._effort = effort
        self._load_start = load_start
        self._load_cap = load_cap
        self._has_time = has_time

    def measure(self, case: ComparedSize) -> None:
        """Fill the case; what was measured before an error or an interrupt stays in it.

        Raises:
            NoConclusionError: no load was found that saturates both sides.
        """
        case.load = self._saturating_load()
        self._saturated_pairs(case)
        capacities = [
            median(achieved_share(pair.of(side)) * _load_of(pair.of(side)) for pair in pairs)
            for side in Side
            if (pairs := case.saturated)
        ]
        if not capacities:
            return
        case.steady_load = STEADY_SHARE * min(capacities)
        self._steady_pairs(case)
        self._note_overloads(case)

    # --- finding the load ---------------------------------------------------

    def _saturating_load(self) -> float:
        """Load a side until it takes clearly less than it is offered, then the other."""
        load, capacities = self._load_start, list[float]()
        probes = 0
        for side in Side:
            while True:
                probes += 1
                trial = self._valid(side, load, "finding a load that neither side takes")
                if trial is None or probes > PROBES_MAX:
                    raise NoConclusionError(
                        f"no load saturates side {side.value}: the trials at {load:g} producers a "
                        "broker are no answer; see their reasons in the table trials"
                    )
                share = achieved_share(trial)
                if is_full(trial):
                    capacities.append(share * _load_of(trial))
                    break
                if load >= self._load_cap:
                    raise NoConclusionError(
                        f"side {side.value} still takes {share:.0%} of {load:g} producers a "
                        "broker, and no more may be offered; raise goal.search.load_cap"
                    )
                load = min(2.0 * load, self._load_cap)
        return min(EXCESS * max(capacities), self._load_cap)

    # --- pairs --------------------------------------------------------------

    def _saturated_pairs(self, case: ComparedSize) -> None:
        assert case.load is not None, "found before"
        failures = raises = 0
        while len(case.saturated) < self._effort.pairs:
            if not self._is_time_left(case, len(case.saturated), self._effort.pairs):
                return
            number = len(case.saturated)
            trials = self._pair(number, case.load, f"saturated, pair {number + 1}", is_full)
            unsaturated = next((trial for trial in trials.values() if not is_full(trial)), None)
            if unsaturated is not None:
                raises += 1
                case.load = self._raised(case.load, unsaturated)
            elif len(trials) == len(Side):
                case.saturated.append(TrialPair(trials[Side.A], trials[Side.B]))
            else:
                failures += 1
            if failures > self._effort.repeats_max or raises > RAISES_MAX:
                case.notes.append(
                    f"no more pairs were tried after {failures} with trials that were INVALID "
                    f"and {raises} with a side that was not saturated"
                )
                return

    def _raised(self, load: float, unsaturated: Trial) -> float:
        """More than a side took that was offered too little to be saturated."""
        share = achieved_share(unsaturated)
        factor = 2.0 if share > ALL_TAKEN else max(RAISE, EXCESS * share)
        return min(factor * load, self._load_cap)

    def _steady_pairs(self, case: ComparedSize) -> None:
        """Pairs at one load; it is lowered while the first pair shows an overload."""
        assert case.steady_load is not None, "set before"
        lowers = number = 0
        while number < self._effort.steady_pairs:
            if not self._is_time_left(case, number, self._effort.steady_pairs):
                return
            may_lower = not case.steady and lowers < STEADY_LOWERS_MAX
            is_good = _is_sustained if may_lower else _any
            trials = self._pair(number, case.steady_load, f"steady, pair {number + 1}", is_good)
            if may_lower and not all(map(_is_sustained, trials.values())):
                lowers += 1
                case.steady_load *= STEADY_LOWER
                continue
            number += 1
            if len(trials) == len(Side):
                case.steady.append(TrialPair(trials[Side.A], trials[Side.B]))

    def _note_overloads(self, case: ComparedSize) -> None:
        for side in Side:
            verdicts = [pair.of(side).judgement.verdict for pair in case.steady]
            overloads = verdicts.count(Verdict.OVERLOADED)
            if overloads:
                case.notes.append(
                    f"side {side.value} was OVERLOADED in {overloads} of {len(verdicts)} steady "
                    "trials, so it did not sustain that load"
                )

    def _is_time_left(self, case: ComparedSize, done: int, wanted: int) -> bool:
        if self._has_time():
            return True
        case.notes.append(f"the budget ended after {done} of {wanted} pairs")
        return False

    def _pair(
        self, number: int, load: float, reason: str, is_good: Callable[[Trial], bool]
    ) -> dict[Side, Trial]:
        """A trial of each side; fewer when the first of them is no answer or not good."""
        trials: dict[Side, Trial] = {}
        for side in order_of(number):
            trial = self._valid(side, load, reason)
            if trial is None:
                return trials
            trials[side] = trial
            if not is_good(trial):
                return trials
        return trials

    def _valid(self, side: Side, load: float, reason: str) -> Trial | None:
        """A trial that is an answer, made again where it was none; None after too many."""
        for _ in range(1 + self._effort.repeats_max):
            trial = self._hold(side, load, reason)
            if trial.judgement.verdict is not Verdict.INVALID:
                return trial
        return None


def is_full(trial: Trial) -> bool:
    """True when the brokers took clearly less than they were offered."""
    return achieved_share(trial) <= SATURATED_ACHIEVED_SHARE


def _is_sustained(trial: Trial) -> bool:
    return trial.judgement.verdict is Verdict.SUSTAINED


def _any(_trial: Trial) -> bool:
    return True


def _load_of(trial: Trial) -> float:
    """Producers per broker that a trial had."""
    return trial.pattern.producers / max(1, trial.pattern.brokers)


def count_producers(load_per_broker: float, brokers: int) -> int:
    """Producers for a whole cluster."""
    return max(1, math.ceil(load_per_broker * brokers))
