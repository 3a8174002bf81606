"""The guide of a search. The guide estimates the limit, and finds verdicts that contradict the
estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from search.estimate import (
    READABLE_MIN,
    Curve,
    Estimate,
    LoadEquation,
    Prior,
    below,
    delivered_readings,
    readings,
    solve,
)
from search.model import PRODUCERS, Bracket, Interval, LoadWords, Observation, Trials, Verdict
from search.posterior import Odds, Posterior, evidence, initial_odds, posterior
from search.signals import SATURATED_UTILIZATION, Signals

DOUBT = 2.5
"""A verdict is doubtful if the distance between its load and the estimate is above this value
[standard deviations]."""
SHORT = -0.8
"""A result (the highest sustained load) is accepted if ln(estimate · (1 - resolution) / result) is
at most this value times the noise."""
CEILING_SPREAD = 0.05
"""Error of the utilization at the limit if this utilization is read from overloads [standard
deviation of the logarithm]."""
STEP_DOWN = 3.0
"""If brokers had almost no idle time in an overload, and there is no other evidence, the next load
is the overloaded load divided by this value [ratio].

Brokers without idle time acknowledge one to eight times the load of their limit, so this value is
about the geometric mean of one and eight."""
STEP_SHORT = 2.0
"""This value replaces `STEP_DOWN` if the brokers acknowledged clearly less than the overloaded
load. The next load is then the acknowledged load divided by this value [ratio]."""
LEAP = 4.0
"""After a load at which brokers are almost idle, the next load is higher by this factor [ratio]."""
DOUBTFUL_USE = 0.8
"""An overload is doubtful if its utilization divided by the utilization at the limit is below this
value [ratio]."""
OTHER_RESOURCE = 0.1
"""Prior probability that the limiting resource has no indicator that grows smoothly with the load
[ratio]."""
SIMILAR = 1.1
"""Two utilizations count as equal if the larger one divided by the smaller one is at most this
value [ratio]."""
HINT_ERROR = 0.15
"""Error of a limit that is estimated from the utilization during the warm-up of brokers [standard
deviation of ln of the limit]."""
CONTRADICTIONS_MIN = 3
"""A bound from a single trial is doubtful if all later trials contradict the bound, and there are
at least this number of later trials.

The number is used only if utilizations and neighboring message sizes give no estimate of the limit.
"""


@dataclass(frozen=True)
class Guide:
    """The evidence that guides a search, in addition to the trials of the search.

    Attributes:
        signals: the indicators that show the distance to the limit.
        curve: the growth of utilization with load.
        prior: the limit that is predicted from neighboring message sizes; None if there is no
            prediction.
        noise: assumed scatter of the limit from trial to trial, as a relative standard deviation
            [ratio].
        words: the unit of a load in words.
        odds: odds of each noise (scatter of the limit) and each gain of the curve, according to the
            trials at finished message sizes; None if no size is finished. `odds` is used to compute
            the interval of the limit.
        hint: the observation of a warm-up load; None if there is no such observation. The hint
            determines the first load, but the hint is not a bound.
        states_interval: False if results need no interval, for example in a forecast. A search
            without intervals takes a third of the computing time of a search with intervals. Both
            searches choose the same loads if `Limits.interval_max` is None.
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
        """A copy of this guide that also uses the utilization at a warm-up load as evidence. The
        utilization at a warm-up load does not set a bound.

        The utilization at a warm-up load has a lower weight than the utilization in a trial,
        because brokers may not be warm yet.
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
        """True if the warm-up load left the brokers no idle time."""
        return (
            self.hint is not None
            and (self.signals.highest(self.hint) or 0.0) >= SATURATED_UTILIZATION
        )

    def expectation(self, trials: Trials) -> Estimate | None:
        """The estimate of the limit from the utilization in trials, and from the limits of
        neighboring message sizes. Verdicts are not used.

        The prediction from neighboring sizes is ignored if the utilization in trials contradicts
        it.
        """
        curve = self.curve_of(trials.history)
        return self._solved(self._readings(trials, curve), self.prior, curve)

    def _readings(self, trials: Trials, curve: Curve) -> list[LoadEquation]:
        """The equations for the limit that follow from the utilization in credible trials.

        The cause of a wrong verdict (a stall, a cold JVM) also affects the utilization. So a trial
        is ignored if other trials at the same load outvote the trial and had another utilization. A
        trial that is outvoted is still used if the other trials at the same load had a similar
        utilization.
        """
        believed: dict[int, list[float]] = {}
        for seen in trials.history:
            used = self.signals.utilization(seen)
            if used and seen.verdict is trials.verdicts[seen.load].verdict:
                believed.setdefault(seen.load, []).append(math.log(used))
        credible = (
            seen
            for seen in trials.history
            if not self._is_outvoted(seen, believed.get(seen.load, ()))
        )
        return readings(credible, self.signals, curve, self.noise)

    def _is_outvoted(self, seen: Observation, believed: Sequence[float]) -> bool:
        used = self.signals.utilization(seen)
        if not used or not believed:
            return False
        return abs(math.log(used) - fmean(believed)) > DOUBT * self.noise * math.sqrt(2.0)

    def curve_of(self, history: Sequence[Observation]) -> Curve:
        """The curve of utilization against load. In some overloads, brokers acknowledge far less
        than the offered load. If the utilization of the brokers in such an overload was clearly
        below `curve.at_limit`, this utilization replaces `curve.at_limit`.

        An overload is ignored if a sustained trial had a higher utilization, because a stall
        probably caused the overload.
        """
        found = [self.signals.ceiling(seen) for seen in history]
        ceiling = min((used for used in found if used is not None), default=1.0)
        held = [self.signals.utilization(s) for s in history if s.verdict is Verdict.SUSTAINED]
        highest = max((used for used in held if used is not None), default=0.0)
        if not 0.05 < ceiling < 0.9 * self.curve.at_limit or highest > 1.05 * ceiling:
            return self.curve
        return replace(self.curve, at_limit=ceiling, at_limit_spread=CEILING_SPREAD)

    def estimate(self, trials: Trials) -> Estimate | None:
        """The estimate of the limit from readings and verdicts."""
        curve, prior = self._curve_below(trials), None
        if curve is None:
            curve, prior = self.curve_of(trials.history), self.prior
        found = self._readings(trials, curve) + delivered_readings(trials.overloads, self.signals)
        return self._solved(found, prior, curve)

    def _solved(
        self, found: Sequence[LoadEquation], prior: Prior | None, curve: Curve
    ) -> Estimate | None:
        """The solution of the equations for the limit. The prior is ignored if the equations for
        the limit contradict it.
        """
        if prior is not None and found:
            alone = solve(found, None, curve)
            if alone is not None and abs(math.log(alone.load / prior.load)) > DOUBT * math.hypot(
                alone.spread, prior.spread
            ):
                return alone
        return solve(found, prior, curve)

    def posterior(self, history: Sequence[Observation]) -> Posterior | None:
        """The probability of each limit; None if the trials do not determine the probabilities."""
        if not self.states_interval:
            return None
        trials = Trials(history)
        odds = initial_odds(self.curve) if self.odds is None else self.odds
        curves = self._curves(trials)
        return posterior(history, trials.bracket, self.signals, curves, odds, self.prior)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit.

        The interval starts at 0 if no load was sustained and no trial has a reading.
        """
        if not self.states_interval:
            return None
        found = self.posterior(history)
        if found is not None:
            return found.interval()
        bracket = Trials(history).bracket
        if bracket.overloaded is None or bracket.sustained > 0:
            return None
        return Interval(0.0, float(bracket.overloaded))

    def evidence(self, history: Sequence[Observation]) -> Odds:
        """The odds of each noise (scatter of the limit) and each gain of the curve, according to
        the trials at one message size.
        """
        return evidence(history, self.signals, self._curve_believed(Trials(history)))

    def curve_by_overloads(self, history: Sequence[Observation]) -> Curve:
        """The most probable curve of utilization against load. If utilization was low in most
        overloads, the median utilization of the overloads replaces the curve's utilization at the
        limit.

        At least two overloads are needed, because a single verdict may be wrong by chance. A low
        utilization in most overloads means that a resource without a smooth indicator limits the
        brokers.
        """
        curve = self._curve_believed(Trials(history))
        overloads = [seen for seen in history if seen.verdict is Verdict.OVERLOADED]
        found = [self.signals.highest(seen) for seen in overloads]
        used = [each for each in found if each is not None]
        if len(used) < 2 or not 0.05 < (usual := median(used)) < DOUBTFUL_USE * curve.at_limit:
            return curve
        return replace(curve, at_limit=usual, at_limit_spread=CEILING_SPREAD)

    def bounded_estimate(self, trials: Trials) -> Estimate | None:
        """The estimate of the limit under the condition that the limit is below an upper bound. The
        upper bound is `bound`, or slightly above the highest sustained load if `bound` is lower.
        """
        estimate, bound = self.estimate(trials), self.bound(trials)
        if estimate is None or bound is None:
            return estimate
        return below(estimate, max(bound, trials.bracket.sustained + 0.5))

    def leap(self, trials: Trials) -> float | None:
        """The next load if the trials show only whether the limit is above or below their loads,
        but not how far; otherwise None.
        """
        low, bound = float(trials.bracket.sustained), self.bound(trials)
        if not trials.history and self.hint is not None:
            return self.hint.load / STEP_DOWN if self.is_hint_saturated else self.hint.load * LEAP
        if bound is None:
            # At the highest sustained load, handlers may have been too idle for a reading.
            found = [self.signals.utilization(each) for each in trials.history if each.load == low]
            is_at_rest = all(used is not None and used < READABLE_MIN for used in found)
            return low * LEAP if found and is_at_rest else None
        step = STEP_SHORT if bound < 0.97 * trials.bracket.upper < math.inf else STEP_DOWN
        return math.sqrt(bound * max(low, bound / step**2))

    def bound(self, trials: Trials) -> float | None:
        """The upper bound of the limit according to overloads in which handlers had no idle time;
        None if there are no such overloads.
        """
        found = [self.signals.at_most(seen) for seen in trials.overloads]
        return min((most for most in found if most is not None), default=None)

    def find_doubt(self, trials: Trials, bracket: Bracket) -> tuple[int, str] | None:
        """A bound that should be measured again, with the reason; None if no bound is doubtful. A
        bound is doubtful if the verdict of its only trial contradicts other evidence.
        """
        high, low, history = bracket.overloaded, bracket.sustained, trials.history
        expected, verdicts = self.expectation(trials), trials.verdicts
        if high is not None and len(verdicts[high].votes) == 1 and self._is_alone(trials, high):
            reading = self.signals.describe(next(seen for seen in history if seen.load == high))
            return high, f"overloaded at {self.words.amount(high)} with {reading}, in one trial"
        sides = ((high, "overloaded", 1.0, "sustained"), (low, "sustained", -1.0, "overloaded"))
        for load, verdict, sign, others in sides:
            if not load or len(verdicts[load].votes) != 1:
                continue
            if expected is not None and sign * self._distance(expected, load) > DOUBT:
                return load, self._why(history, load, expected, verdict)
            if expected is None and _is_contradicted(history, load):
                amount = self.words.amount(load)
                return load, f"{verdict} at {amount} in one trial, and all later loads {others}"
        return None

    def find_low_answer(self, trials: Trials, resolution: float) -> tuple[int, str] | None:
        """The overloaded load of a closed bracket, with the reason, if this load should be measured
        again; otherwise None.

        Measured limits tend to be too low, because verdicts scatter and the lowest overload becomes
        the upper bound. The overloaded load is measured again if the estimate of the limit is
        clearly more than one `resolution` above the highest sustained load.
        """
        high, low = trials.bracket.overloaded, trials.bracket.sustained
        estimate = self.estimate(trials)
        if high is None or low <= 0 or estimate is None or len(trials.verdicts[high].votes) > 1:
            return None
        if math.log(estimate.load * (1.0 - resolution) / low) <= SHORT * self.noise:
            return None
        amount = self.words.amount(high)
        return high, f"overloaded at {amount}, but the fit expects the limit at {estimate.load:.0f}"

    def explain(self, history: Sequence[Observation], estimate: Estimate) -> str:
        """The evidence on which the next step is based, in words.

        Example: "idle 0.41 at 96 producers, the fit expects 0.20 at 131".
        """
        read = [s for s in history if self.signals.utilization(s) is not None]
        if not read:
            source = "trials" if self.prior is None or history else self.prior.source
            return f"{source} put the limit near {estimate.load:.0f}"
        nearest = min(read, key=lambda s: abs(math.log(s.load / estimate.load)))
        reading = f"{self.signals.describe(nearest)} at {self.words.amount(nearest.load)}"
        expected = self.signals.describe_limit(estimate.at_limit)
        return f"{reading}, the fit expects {expected} at {estimate.load:.0f}"

    def _is_alone(self, trials: Trials, load: int) -> bool:
        """True if a load was overloaded in its only trial although the handlers were far from their
        threshold.

        The result is False if the handlers had a similarly low utilization in an overload at a
        higher load, because another resource may limit the brokers in these overloads.
        """
        found = [self.signals.highest(s) for s in trials.history if s.load == load]
        used = max((each for each in found if each is not None), default=math.inf)
        if used >= DOUBTFUL_USE * self.curve_of(trials.history).at_limit:
            return False
        others = [s for s in trials.overloads if s.load > load]
        return not any((self.signals.highest(s) or 9.9) <= SIMILAR * used for s in others)

    def describe_load(self, history: Sequence[Observation], load: int) -> str:
        """The reading of the latest trial at a load, such as "idle 0.01 at 64 producers"."""
        if not history and self.hint is not None:
            reading = self.signals.describe(self.hint)
            return f"{reading} at {self.words.amount(self.hint.load)} in the warm-up"
        last = next(seen for seen in reversed(history) if seen.load == load)
        return f"{self.signals.describe(last)} at {self.words.amount(load)}"

    def _distance(self, estimate: Estimate, load: int) -> float:
        """The distance of the estimate above a load [standard deviations].

        The assumed noise from trial to trial is multiplied by `estimate.scatter`, which is at least
        1 and grows with the observed scatter of the readings.
        """
        spread = math.hypot(estimate.spread, self.noise * estimate.scatter)
        return math.log(estimate.load / load) / spread

    def _curve_believed(self, trials: Trials) -> Curve:
        """The curve according to all readings and verdicts of one point."""
        return self._curve_below(trials) or self.curve_of(trials.history)

    def _curves(self, trials: Trials) -> dict[Curve, float]:
        """Each possible curve of utilization against load, with its probability. If utilization was
        low in an overload, a second curve has this utilization at the limit.
        """
        curve = self._curve_believed(trials)
        found = [self.signals.highest(seen) for seen in trials.overloads]
        lowest = min((used for used in found if used is not None), default=1.0)
        if not 0.05 < lowest < DOUBTFUL_USE * curve.at_limit:
            return {curve: 1.0}
        other = replace(curve, at_limit=lowest, at_limit_spread=CEILING_SPREAD)
        return {curve: 1.0 - OTHER_RESOURCE, other: OTHER_RESOURCE}

    def _curve_below(self, trials: Trials) -> Curve | None:
        """The curve of utilization against load, if the lowest overload is far below the limit that
        utilizations show; None if the lowest overload is not far below this limit.

        If the lowest overload is far below the limit that utilizations show, the limiting resource
        has no smooth indicator. The curve's utilization at the limit is the utilization in the
        lowest overload.
        """
        expected, high = self.expectation(trials), trials.bracket.overloaded
        if expected is None or high is None or self._distance(expected, high) <= DOUBT:
            return None
        at_bound = [self.signals.utilization(s) for s in trials.overloads if s.load == high]
        found = [used for used in at_bound if used is not None]
        if not found or min(found) <= 0.0:
            return self.curve
        at_limit = min(self.curve.at_limit, sum(found) / len(found))
        return replace(self.curve, at_limit=at_limit, at_limit_spread=0.1)

    def _why(
        self, history: Sequence[Observation], load: int, expected: Estimate, verdict: str
    ) -> str:
        last = next((s for s in reversed(history) if s.load == load), None)
        reading = "" if last is None else f" with {self.signals.describe(last)}"
        limit = f"the limit is expected near {expected.load:.0f}"
        return f"{verdict} at {self.words.amount(load)}{reading}, but {limit}"


def _is_contradicted(history: Sequence[Observation], bound: int) -> bool:
    """True if enough trials were made after the bound was set, and all of them contradict the
    bound.
    """
    valid = [seen for seen in history if seen.verdict is not Verdict.INVALID]
    index = max(i for i, seen in enumerate(valid) if seen.load == bound)
    since = valid[index + 1 :]
    opposite = {seen.verdict for seen in since} == (
        {Verdict.SUSTAINED} if valid[index].verdict is Verdict.OVERLOADED else {Verdict.OVERLOADED}
    )
    return len(since) >= CONTRADICTIONS_MIN and opposite
