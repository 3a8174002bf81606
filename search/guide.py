"""From a history to the estimate that guides, and to the verdicts that it contradicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from search.estimate import (
    READABLE_MIN,
    Curve,
    Estimate,
    Prior,
    below,
    delivered_readings,
    readings,
    solve,
)
from search.interval import Interval
from search.load_verdicts import LoadVerdict, bracket_of_verdicts, load_verdicts_of
from search.model import PRODUCERS, Bracket, LoadWords, Observation, Verdict
from search.posterior import Odds, Posterior, evidence, initial_odds, posterior
from search.signals import SATURATED_UTILIZATION, Signals

DOUBT = 2.5
"""Standard deviations between reading and verdict from which a verdict is in doubt."""
SHORT = -0.8
"""How far, in units of the noise, the estimate may lie beyond a resolution above the answer."""
CEILING_SPREAD = 0.05
"""How well a ceiling tells the utilization at the limit [σ of its logarithm]."""
STEP_DOWN = 3.0
"""How far below a saturated overload the next load is, where nothing else is known [ratio].

Brokers deliver one to eight times their limit, so this is the middle."""
STEP_SHORT = 2.0
"""The same below what such an overload delivered, where that was less than was offered [ratio]."""
LEAP = 4.0
"""How far above a load that hardly showed in the readings the next one is [ratio]."""
UNLIKELY = 0.8
"""Utilization of an overload, of that at the limit, below which one trial is not enough."""
SOMETHING_ELSE = 0.1
"""How probable it is that something without a smooth reading binds, before the verdicts."""
SIMILAR = 1.1
"""How much more two trials may be utilized and still show the same [ratio]."""
HINT_ERROR = 0.15
"""How far a reading of brokers that are hardly warm is off [σ of the load's logarithm]."""
PUSHES = 3
"""Trials that ran up against a bound of one trial, from which it is in doubt."""


@dataclass(frozen=True)
class Guide:
    """All that guidance rests on besides the history.

    Attributes:
        signals: how indicators are read.
        curve: how utilization grows with load, as far as known.
        prior: what the neighbours say, or None.
        noise: scatter of the limit from trial to trial that choices rest on [σ, ratio].
        words: what a load counts, for people.
        odds: what finished sizes say of noise and gain, for the interval; None without any.
        hint: what a load read that is no trial; it chooses the first load, and no bound.
        states_interval: False where only loads and trials count, as in a forecast: answers have no
            interval then, which takes two thirds of the time and chooses no load, unless
            `Limits.interval_max` asks for a narrow one.
    """

    signals: Signals = field(default_factory=Signals)
    curve: Curve = field(default_factory=Curve)
    prior: Prior | None = None
    noise: float = 0.02
    words: LoadWords = PRODUCERS
    odds: Odds | None = None
    hint: Observation | None = None
    states_interval: bool = True

    def with_hint(self, seen: Observation) -> Guide:
        """The same with what a load read that is no trial: it may choose loads, and no bound.

        Brokers may have been colder under it than in a trial, so it is worth less.
        """
        used = self.signals.highest(seen)
        if used is None:
            return self
        if not READABLE_MIN <= used < SATURATED_UTILIZATION:
            return replace(self, hint=seen)
        slope = math.log(used)
        load = seen.load * math.exp(-self.curve.gain * slope)
        spread = math.hypot(HINT_ERROR, self.curve.gain_spread * slope)
        return replace(self, hint=seen, prior=Prior(load, spread, "the warm-up"))

    @property
    def is_hint_saturated(self) -> bool:
        """True when the hint's load left no idle time."""
        return (
            self.hint is not None
            and (self.signals.highest(self.hint) or 0.0) >= SATURATED_UTILIZATION
        )

    def expectation(self, history: Sequence[Observation]) -> Estimate | None:
        """The estimate from smooth readings and neighbours, no verdict considered.

        Neighbours that the cluster's own readings contradict are left out.
        """
        curve = self.curve_of(history)
        found = readings(self._credible(history), self.signals, curve, self.noise)
        if self.prior is not None and found:
            alone = solve(found, None, curve)
            if alone is not None and self._contradicts(alone, self.prior):
                return alone
        return solve(found, self.prior, curve)

    def _credible(self, history: Sequence[Observation]) -> list[Observation]:
        """The trials whose readings count.

        What made a trial's verdict a fluke (a stall, a cold JVM) is in its reading too. So a
        trial that was outvoted at its load is left out where its reading contradicts theirs
        who outvoted it; where both lie close to the threshold, both count.
        """
        verdicts = load_verdicts_of(history)
        believed: dict[int, list[float]] = {}
        for seen in history:
            used = self.signals.utilization(seen)
            if used and seen.verdict is verdicts[seen.load].verdict:
                believed.setdefault(seen.load, []).append(math.log(used))
        return [
            seen for seen in history if not self._is_outvoted(seen, believed.get(seen.load, ()))
        ]

    def _is_outvoted(self, seen: Observation, believed: Sequence[float]) -> bool:
        used = self.signals.utilization(seen)
        if not used or not believed:
            return False
        return abs(math.log(used) - fmean(believed)) > DOUBT * self.noise * math.sqrt(2.0)

    def curve_of(self, history: Sequence[Observation]) -> Curve:
        """The curve, with a lower ceiling where an overload stood still below it.

        A sustained trial above that ceiling shows that it was a stall.
        """
        found = [self.signals.ceiling(seen) for seen in history]
        ceiling = min((used for used in found if used is not None), default=1.0)
        held = [self.signals.utilization(s) for s in history if s.verdict is Verdict.SUSTAINED]
        highest = max((used for used in held if used is not None), default=0.0)
        if not 0.05 < ceiling < 0.9 * self.curve.at_limit or highest > 1.05 * ceiling:
            return self.curve
        return replace(self.curve, at_limit=ceiling, at_limit_spread=CEILING_SPREAD)

    def estimate(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict], bracket: Bracket
    ) -> Estimate | None:
        """The estimate once verdicts have been believed."""
        curve, prior = self.curve_of(history), self.prior
        believed = [s for s in history if _stands_overloaded(s, verdicts)]
        recalibrated = self._curve_below(history, believed, bracket)
        if recalibrated is not None:
            curve, prior = recalibrated, None
        found = readings(self._credible(history), self.signals, curve, self.noise)
        found += delivered_readings(believed, self.signals)
        if prior is not None and found:
            alone = solve(found, None, curve)
            if alone is not None and self._contradicts(alone, prior):
                prior = None
        return solve(found, prior, curve)

    def posterior(self, history: Sequence[Observation]) -> Posterior | None:
        """How probable each limit is, or None where the trials say nothing of it."""
        if not self.states_interval:
            return None
        verdicts = load_verdicts_of(history)
        curves = self._curves(history, verdicts)
        odds = initial_odds(self.curve) if self.odds is None else self.odds
        bracket = bracket_of_verdicts(verdicts)
        return posterior(history, bracket, self.signals, curves, odds, self.prior)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """Where the limit lies at 90 %; from 0 on where nothing held and nothing was read."""
        if not self.states_interval:
            return None
        found = self.posterior(history)
        if found is not None:
            return found.interval()
        bracket = bracket_of_verdicts(load_verdicts_of(history))
        if bracket.overloaded is None or bracket.sustained > 0:
            return None
        return Interval(0.0, float(bracket.overloaded))

    def evidence(self, history: Sequence[Observation]) -> Odds:
        """What the trials of one point say of noise and gain."""
        curve = self._curve_believed(history, load_verdicts_of(history))
        return evidence(history, self.signals, curve)

    def bounded_estimate(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict], bracket: Bracket
    ) -> Estimate | None:
        """Where the limit is best looked for: the estimate, below every saturated overload."""
        estimate = self.estimate(history, verdicts, bracket)
        bound = self.bound(history, verdicts)
        if estimate is None or bound is None:
            return estimate
        return below(estimate, max(bound, bracket.sustained + 0.5))

    def leap(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict], bracket: Bracket
    ) -> float | None:
        """The load to try where trials say only "higher" or "lower", unknown how far, or None."""
        low, bound = float(bracket.sustained), self.bound(history, verdicts)
        if not history and self.hint is not None:
            return self.hint.load / STEP_DOWN if self.is_hint_saturated else self.hint.load * LEAP
        if bound is None:
            return low * LEAP if self._is_at_rest(history, low) else None
        is_short = bracket.overloaded is not None and bound < 0.97 * bracket.overloaded
        step = STEP_SHORT if is_short else STEP_DOWN
        return math.sqrt(bound * max(low, bound / step**2))

    def _is_at_rest(self, history: Sequence[Observation], low: float) -> bool:
        """True when the highest sustained load left the handlers too idle to be read."""
        found = [self.signals.utilization(seen) for seen in history if seen.load == low]
        return bool(found) and all(used is not None and used < READABLE_MIN for used in found)

    def bound(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict]
    ) -> float | None:
        """The load that the limit is below, by overloads that left no idle time, or None."""
        believed = [s for s in history if _stands_overloaded(s, verdicts)]
        found = [self.signals.at_most(seen) for seen in believed]
        return min((most for most in found if most is not None), default=None)

    def find_doubt(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict], bracket: Bracket
    ) -> tuple[int, str] | None:
        """The bound that rests on one trial which the evidence contradicts, and why."""
        high, low = bracket.overloaded, bracket.sustained
        expected = self.expectation(history)
        if high is not None and len(verdicts[high].votes) == 1:
            if self._is_alone(history, verdicts, high):
                last = next(seen for seen in history if seen.load == high)
                reading = self.signals.describe(last)
                return high, f"overloaded at {self.words.amount(high)} with {reading}, in one trial"
            if expected is not None and self._is_far_above(expected, high):
                return high, self._why(history, high, expected, "overloaded")
            if expected is None and _pushed(history, high):
                amount = self.words.amount(high)
                return high, f"the overload at {amount} rests on one trial, and all since held"
        if low > 0 and len(verdicts[low].votes) == 1:
            if expected is not None and self._is_far_below(expected, low):
                return low, self._why(history, low, expected, "sustained")
            if expected is None and _pushed(history, low):
                amount = self.words.amount(low)
                return low, f"sustained at {amount}, once, and all loads above it failed"
        return None

    def find_low_answer(
        self,
        history: Sequence[Observation],
        verdicts: Mapping[int, LoadVerdict],
        bracket: Bracket,
        resolution: float,
    ) -> tuple[int, str] | None:
        """The overload that makes a closed bracket fall short of the estimate, and why.

        Verdicts scatter too, and the lowest overload wins, so that answers tend to be
        low. Where the limit is rather more than a resolution above the sustained side
        than less, the overload is measured once more.
        """
        high, low = bracket.overloaded, bracket.sustained
        estimate = self.estimate(history, verdicts, bracket)
        if high is None or low <= 0 or estimate is None or len(verdicts[high].votes) > 1:
            return None
        if math.log(estimate.load * (1.0 - resolution) / low) <= SHORT * self.noise:
            return None
        return (
            high,
            f"overloaded at {self.words.amount(high)}, but fit expects it near {estimate.load:.0f}",
        )

    def observed_noise(self, estimate: Estimate | None) -> float:
        """The scatter of the limit from trial to trial, or more where the readings show more."""
        return self.noise if estimate is None else self.noise * estimate.scatter

    def explain(self, history: Sequence[Observation], estimate: Estimate) -> str:
        """What guides the next step: "idle 0.41 at 96 producers, fit says 0.20 at 131"."""
        read = [s for s in history if self.signals.utilization(s) is not None]
        if not read:
            source = "trials" if self.prior is None or history else self.prior.source
            return f"{source} put the limit near {estimate.load:.0f}"
        nearest = min(read, key=lambda s: abs(math.log(s.load / estimate.load)))
        seen = f"{self.signals.describe(nearest)} at {self.words.amount(nearest.load)}"
        expected = self.signals.describe_limit(estimate.at_limit)
        return f"{seen}, fit says {expected} at {estimate.load:.0f}"

    def _is_alone(
        self, history: Sequence[Observation], verdicts: Mapping[int, LoadVerdict], load: int
    ) -> bool:
        """True when handlers far from their threshold contradict the only trial of an overload.

        Where something else binds, a heavier overload that left them as idle supports it.
        """
        found = [self.signals.highest(s) for s in history if s.load == load]
        used = max((each for each in found if each is not None), default=math.inf)
        if used >= UNLIKELY * self.curve_of(history).at_limit:
            return False
        others = [s for s in history if s.load > load and _stands_overloaded(s, verdicts)]
        return not any((self.signals.highest(s) or 9.9) <= SIMILAR * used for s in others)

    def describe_load(self, history: Sequence[Observation], load: int) -> str:
        """What the last trial of a load showed: "idle 0.01 at 64 producers"."""
        if not history and self.hint is not None:
            reading = self.signals.describe(self.hint)
            return f"{reading} at {self.words.amount(self.hint.load)} in the warm-up"
        last = next(seen for seen in reversed(history) if seen.load == load)
        return f"{self.signals.describe(last)} at {self.words.amount(load)}"

    def _is_far_above(self, estimate: Estimate, load: int) -> bool:
        distance = math.log(estimate.load / load)
        return distance > DOUBT * math.hypot(estimate.spread, self.observed_noise(estimate))

    def _is_far_below(self, estimate: Estimate, load: int) -> bool:
        distance = math.log(load / estimate.load)
        return distance > DOUBT * math.hypot(estimate.spread, self.observed_noise(estimate))

    def _contradicts(self, alone: Estimate, prior: Prior) -> bool:
        distance = abs(math.log(alone.load / prior.load))
        return distance > DOUBT * math.hypot(alone.spread, prior.spread)

    def _curve_believed(
        self, history: Sequence[Observation], verdicts: dict[int, LoadVerdict]
    ) -> Curve:
        """The curve once verdicts have been believed."""
        believed = [s for s in history if _stands_overloaded(s, verdicts)]
        below_it = self._curve_below(history, believed, bracket_of_verdicts(verdicts))
        return below_it or self.curve_of(history)

    def _curves(
        self, history: Sequence[Observation], verdicts: dict[int, LoadVerdict]
    ) -> dict[Curve, float]:
        """The curve that is believed, and another where overloads left their handlers idle."""
        curve = self._curve_believed(history, verdicts)
        believed = [s for s in history if _stands_overloaded(s, verdicts)]
        found = [self.signals.highest(seen) for seen in believed]
        lowest = min((used for used in found if used is not None), default=1.0)
        if not 0.05 < lowest < UNLIKELY * curve.at_limit:
            return {curve: 1.0}
        other = replace(curve, at_limit=lowest, at_limit_spread=CEILING_SPREAD)
        return {curve: 1.0 - SOMETHING_ELSE, other: SOMETHING_ELSE}

    def _curve_below(
        self, history: Sequence[Observation], believed: Sequence[Observation], bracket: Bracket
    ) -> Curve | None:
        """The curve where a believed overload is far below what readings expect, or None.

        Something without a smooth reading binds then, and the utilization of that overload
        becomes the one that shows the limit.
        """
        expected, high = self.expectation(history), bracket.overloaded
        if expected is None or high is None or not self._is_far_above(expected, high):
            return None
        return self._recalibrated(believed, high)

    def _recalibrated(self, believed: Sequence[Observation], high: int) -> Curve:
        at_bound = [self.signals.utilization(s) for s in believed if s.load == high]
        found = [used for used in at_bound if used is not None]
        if not found or min(found) <= 0.0:
            return self.curve
        at_limit = min(self.curve.at_limit, sum(found) / len(found))
        return replace(self.curve, at_limit=at_limit, at_limit_spread=0.1)

    def _why(self, history: Sequence[Observation], load: int, expected: Estimate, said: str) -> str:
        last = next((s for s in reversed(history) if s.load == load), None)
        seen = "" if last is None else f" with {self.signals.describe(last)}"
        limit = f"the limit is expected near {expected.load:.0f}"
        return f"{said} at {self.words.amount(load)}{seen}, but {limit}"


def _stands_overloaded(seen: Observation, verdicts: Mapping[int, LoadVerdict]) -> bool:
    if seen.verdict is not Verdict.OVERLOADED:
        return False
    return verdicts[seen.load].verdict is Verdict.OVERLOADED


def _pushed(history: Sequence[Observation], bound: int) -> bool:
    """True when the trials since the bound was set all went towards it, enough of them."""
    valid = [seen for seen in history if seen.verdict is not Verdict.INVALID]
    index = max(i for i, seen in enumerate(valid) if seen.load == bound)
    since = valid[index + 1 :]
    opposite = {seen.verdict for seen in since} == (
        {Verdict.SUSTAINED} if valid[index].verdict is Verdict.OVERLOADED else {Verdict.OVERLOADED}
    )
    return len(since) >= PUSHES and opposite
