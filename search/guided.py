"""Guided bracketing. Readings suggest the next load, and the answer is the bracket of verdicts.

Each step chooses the load that most probably closes the bracket. The choice uses two kinds of
evidence: how far each trial was from its thresholds, and the limits of neighboring sizes on the
boundary line. Two safeguards limit the cost of a misleading guide:

* Worst case. The search needs at most `ALLOWANCE` = 2 trials more than plain bisection. If a step
  could exceed this allowance, its load is moved towards the next load of bisection until the step
  is within the allowance. Repeats also use up the allowance. So the bound is valid for any
  readings, and for any sequence of verdicts that do not contradict each other. A contradiction
  between trials of one load adds trials, and the trials between a wrong verdict and its correction
  do not count. Until a load is overloaded, `EXCEED_MAX` has priority. This can cost one more trial
  for each doubling of the load.
* Wrong verdicts. If readings contradict the verdict of a load, the load is measured again before
  the verdict counts. A load is judged by the majority of its trials, at most three.

The proof of the worst case compares the search with plain bisection. ITP (Oliveira and Takahashi,
"An Enhancement of the Bisection Method Average Performance Preserving Minmax Optimality", ACM TOMS
47(1), 2020) interpolates, truncates and then projects its estimate onto the loads that keep the
worst case of bisection. This module does this projection separately for each possible limit, and
also while the maximum can still be raised.

Let B(l) be the loads that plain bisection tries if the limit is l. The verdicts of all loads
outside of the present bracket (low, high) are already known. So if a search continues like
bisection, it needs only those loads of B(l) that are inside the bracket. After `used` trials the
total is at most

    used + inside(l)  =  |B(l)| + used - outside(l),

and `excess` is the largest `used - outside(l)` over all limits that are still possible. A step is
allowed if the excess stays within the allowance after either verdict. An allowed step always
exists: the first load of B inside of the bracket is the same for all remaining limits. After a
trial at this load, the load lies outside of the bracket, so the excess does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.bisect import Bisection
from search.estimate import Estimate
from search.guide import Guide
from search.limits import Limits
from search.model import (
    LEVEL,
    Bracket,
    Decision,
    Done,
    GaveUp,
    Interval,
    Measure,
    Observation,
    Trials,
    Verdict,
    notes_of,
)

CLIMB_MAX = 4.0
"""If no limit of a neighboring size is known, the next load is at most this multiple of the highest
sustained load [ratio].
"""
CAUTION = 0.4
"""Distance below the estimate at which the lower bound is set [standard deviations]."""
SURE = 0.5
"""Minimum distance between the estimate and a load that closes the bracket [standard
deviations].
"""

FAR = 0.2
"""Distance above the estimate beyond which an overload hardly bounds the limit [ln]."""
LIGHT = 0.06
"""Minimum distance below the estimate at which a load is expected to be sustained [ln]."""
ASSURED = 1.2
"""Distance from the estimate at which a verdict is almost certain [standard deviations]."""


@dataclass(frozen=True)
class Aim:
    """A load to try, with the purpose of the trial, such as "end the search"."""

    load: int
    purpose: str


def lowest_closing(overloaded: int, resolution: float) -> int:
    """The lowest load that closes the bracket if it is sustained."""
    load = max(1, min(overloaded - 1, math.floor(overloaded * (1.0 - resolution))))
    while not Bracket(load, overloaded).is_closed(resolution):
        load += 1
    return load


def highest_closing(sustained: int, resolution: float) -> int:
    """The highest load that closes the bracket if it is overloaded."""
    load = max(sustained + 1, math.ceil(sustained / (1.0 - resolution)))
    while not Bracket(sustained, load).is_closed(resolution):
        load -= 1
    return load


def aim(bracket: Bracket, estimate: Estimate, resolution: float, cap: int, climb_max: float) -> Aim:
    """The best load strictly inside a bracket that is not closed.

    A lower bound is set first, a little below the estimate. The load after this is the highest load
    that closes the bracket if it is overloaded.

    Args:
        bracket: a bracket that is not closed.
        estimate: the probable limit. The function moves it into the bracket if necessary.
        resolution: relative width that closes the bracket [ratio].
        cap: highest load that may be offered.
        climb_max: the load is at most this multiple of the highest sustained load [ratio].
    """
    low, high = bracket.sustained, bracket.overloaded
    ceiling = cap if high is None else min(cap, high - 1)
    if low > 0:
        ceiling = min(ceiling, max(low + 1, int(low * climb_max)))
    limit = max(float(low), min(estimate.load, bracket.upper))
    margin = SURE * min(estimate.spread, 0.1)
    closing = _closing(bracket, limit, resolution)
    enough = margin if high is None else 0.0
    if closing is not None and closing[1] >= enough and closing[0].load <= ceiling:
        return closing[0]
    step_back = max(resolution / 2.0, CAUTION * min(estimate.spread, 0.7))
    load = min(round(limit * math.exp(-step_back)), ceiling)
    if is_open_above(bracket, estimate) and low < load <= low * (1.0 + resolution):
        # A short step upward is worth a trial only once an upper bound exists.
        above = math.ceil(max(highest_closing(load, resolution), limit * math.exp(margin)))
        return Aim(min(above, ceiling), "bound it from above")
    if load > low:
        return Aim(load, "set the lower bound")
    if low > 0:
        return Aim(max(low + 1, min(highest_closing(low, resolution), ceiling)), "end the search")
    return Aim(1, "set the lower bound")


def is_open_above(bracket: Bracket, estimate: Estimate) -> bool:
    """True if the lowest overload is far above the estimate, or no load was overloaded."""
    return bracket.upper > estimate.load * math.exp(FAR)


def _closing(bracket: Bracket, limit: float, resolution: float) -> tuple[Aim, float] | None:
    """The load that most probably closes the bracket, and the distance of the estimate beyond this
    load [ln].
    """
    found: list[tuple[float, Aim]] = []
    if bracket.overloaded is not None:
        below = lowest_closing(bracket.overloaded, resolution)
        if below > bracket.sustained:
            found.append((math.log(limit / below), Aim(below, "end the search")))
    if bracket.sustained > 0:
        above = highest_closing(bracket.sustained, resolution)
        if above < bracket.upper:
            found.append((math.log(above / limit), Aim(above, "end the search")))
    if not found:
        return None
    gap, best = max(found, key=lambda one: one[0])
    return best, gap


def bound_from_below(wish: Aim, estimate: Estimate) -> Aim:
    """A lighter load for a step. The lighter load is used if an overload in the step would use up
    the allowance before there is a lower bound.
    """
    back = max(LIGHT, ASSURED * min(estimate.spread, 0.5))
    load = math.floor(estimate.load * math.exp(-back))
    return Aim(load, "bound it from below") if 0 < load < wish.load else wish


class Shadow:
    """Counts the trials by which a search may exceed plain bisection in the worst case.

    Args:
        bisection: plain bisection with the same limits.
        hint_load: a warm-up load at which brokers had no idle time; None if there is no such load.
            The limit is assumed to be below this load until a trial sustains the load. A wrong
            assumption can cost one more trial.
    """

    def __init__(self, bisection: Bisection, hint_load: int | None = None) -> None:
        self._bisection = bisection
        self._hint_load = hint_load
        self._limits = bisection.limits
        # Bracket → result of `_fewest`, cached because several candidate loads need it.
        self._known: dict[Bracket, int] = {}

    def next_load(self, bracket: Bracket) -> int:
        """The next load of bisection inside the bracket. Bisection considers only the trials that
        it would make itself.
        """
        low, high = bracket.sustained, bracket.upper
        shadow = Bracket(0, None)
        while True:
            load = self._bisection.next_load(shadow)
            if low < load < high:
                return load
            shadow = _after(shadow, load, load <= low)

    def excess(self, used: int, bracket: Bracket) -> int:
        """The largest number of trials by which the search exceeds plain bisection if it continues
        like bisection.

        Args:
            used: number of valid trials so far.
            bracket: the bracket of these trials.
        """
        hint = self._hint_load
        if hint is not None and bracket.overloaded is None and bracket.sustained < hint:
            bracket = Bracket(bracket.sustained, hint)
        if bracket not in self._known:
            is_settled = self._limits.settle_bracket(bracket) is not None
            self._known[bracket] = self._fewest(Bracket(0, None), bracket, is_settled)
        return used - self._known[bracket]

    def excess_after(self, used: int, bracket: Bracket, load: int) -> int:
        """The excess after a trial at `load`: the larger value of the two possible verdicts."""
        return max(
            self.excess(used + 1, Bracket(load, bracket.overloaded)),
            self.excess(used + 1, Bracket(bracket.sustained, load)),
        )

    def _fewest(self, shadow: Bracket, bracket: Bracket, count_inside: bool) -> int:
        """The smallest number of trials that bisection needs for any limit in `bracket`. If
        `count_inside` is False, only trials outside the bracket are counted.
        """
        low, high = bracket.sustained, bracket.upper
        if not count_inside and shadow.sustained >= low and shadow.upper <= high:
            return 0
        if self._limits.settle_bracket(shadow) is not None:
            return 0
        load = self._bisection.next_load(shadow)
        above = _after(shadow, load, sustained=True)
        below = _after(shadow, load, sustained=False)
        if load <= low:
            return 1 + self._fewest(above, bracket, count_inside)
        if load >= high:
            return 1 + self._fewest(below, bracket, count_inside)
        return int(count_inside) + min(
            self._fewest(below, bracket, count_inside), self._fewest(above, bracket, count_inside)
        )


def _after(shadow: Bracket, load: int, sustained: bool) -> Bracket:
    return Bracket(load, shadow.overloaded) if sustained else Bracket(shadow.sustained, load)


ALLOWANCE = 2
"""Highest number of trials above plain bisection that misleading guidance may cost."""
EXTRA_MAX = 4
"""Highest number of trials that narrow an interval to `search.interval_max`."""
EXCEED_MAX = 2.0
"""Until a load is overloaded, the next load is at most this multiple of the load that the readings
suggest [ratio].
"""
_STEPS_TO_BISECTION = 8


class Guided:
    """A searcher like `search.bisect.Bisection`, with a guide.

    Args:
        limits: bounds, resolution and repeats.
        guide: the evidence from readings and neighbors. Without any evidence, the search bisects.
        allowance: highest number of trials above plain bisection. A search of several goals needs a
            larger allowance, because trials that other goals request also count.
    """

    def __init__(
        self, limits: Limits, guide: Guide | None = None, allowance: int = ALLOWANCE
    ) -> None:
        self.limits = limits
        self._allowance = allowance
        self.guide = replace(guide or Guide(), words=limits.words)
        saturated = self.guide.hint if self.guide.is_hint_saturated else None
        self._shadow = Shadow(Bisection(limits), saturated.load if saturated else None)

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The next step after `history`, which has all trials of this point, oldest first."""
        decision = self._by_bracket(history)
        if isinstance(decision, GaveUp):
            return replace(decision, interval=self.interval(history))
        return self._with_interval(decision, history) if isinstance(decision, Done) else decision

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit; None if the trials do not determine an interval."""
        return self.guide.interval(history)

    def _extra(self, history: Sequence[Observation]) -> int:
        """Number of valid trials since the bracket was first closed."""
        for count in range(len(history)):
            if isinstance(self._by_bracket(history[:count]), Done):
                return len(_without_invalid(history[count:]))
        return 0

    def _by_bracket(self, history: Sequence[Observation]) -> Decision:
        """The next step according to the bracket. If the step is a result, it has no confidence and
        no interval yet.
        """
        trials = Trials(history)
        bracket = trials.bracket
        unmeasured = self.limits.settle_unmeasured(history, bracket)
        if unmeasured is not None:
            return unmeasured
        used = _trials_counted(trials)
        settled = self.limits.settle_bracket(bracket)
        doubt = self.guide.find_doubt(trials, bracket)
        if doubt is None and isinstance(settled, Done):
            doubt = self.guide.find_low_answer(trials, self.limits.resolution)
        if doubt is not None and self._shadow.excess(used + 1, bracket) <= self._allowance:
            load, why = doubt
            return Measure(load, f"{why}; repeating it")
        if isinstance(settled, Done):
            notes = notes_of(trials, self.limits.words)
            if doubt is not None:
                notes += (f"{doubt[1]}; not repeated, because the allowance of trials is used up",)
            return Done(bracket, notes=notes)
        return settled or self.limits.begin(self._probe(trials, used), history)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Number of remaining trials if all verdicts agree with the guide's expectation."""
        unmeasured = self.limits.settle_unmeasured(history, Trials(history).bracket)
        if isinstance(unmeasured, Measure):
            return 1 + self.trials_left(_without_invalid(history))
        imagined, count = list(history), 0
        # Without `interval_max`, the next load does not depend on intervals.
        decide = self._by_bracket if self.limits.interval_max is None else self.decide
        while count < 30:
            decision = decide(imagined)
            if not isinstance(decision, Measure):
                break
            count += 1
            imagined.append(self._foreseen(imagined, decision.load))
        return count

    def _with_interval(self, done: Done, history: Sequence[Observation]) -> Done | Measure:
        """The result, with its confidence and interval.

        If the interval is too wide, the decision is one more trial.
        """
        if not self.guide.states_interval:
            return done
        found = self.guide.posterior(history)
        sure = 0.0 if found is None else found.inside(done.bracket)
        interval = self.guide.interval(history) if found is None else found.interval()
        done = replace(done, confidence=round(sure, 3), interval=interval)
        most = self.limits.interval_max
        if interval is None or most is None or interval.relative_width <= most:
            return done
        low, high, many = interval.low, interval.high, self.limits.words.many
        span = f"between {low:.4g} and {high:.4g} {many} at {100 * LEVEL:.0f} %"
        if found is not None and self._extra(history) < EXTRA_MAX:
            load = _inside(done.bracket, found.quantile(0.5))
            return Measure(load, f"the limit is {span}; measuring {load} to narrow it")
        width = 100 * interval.relative_width
        wide = f"{width:.1f} % wide, and search.interval_max allows {100 * most:.3g} %"
        note = f"the limit stays doubtful: {span}, {wide}"
        return replace(done, notes=(*done.notes, note))

    def _probe(self, trials: Trials, used: int) -> Measure:
        bracket = trials.bracket
        fallback = self._shadow.next_load(bracket)
        estimate = self.guide.bounded_estimate(trials)
        if estimate is None:
            return self._leap(trials, used, fallback)
        climb = CLIMB_MAX if self.guide.prior is None else 2 * CLIMB_MAX
        wish = aim(bracket, estimate, self.limits.resolution, self.limits.load_cap, climb)
        wish = self._bound_in_time(used, bracket, estimate, wish)
        load = self._affordable(used, bracket, wish.load, fallback)
        evidence = self.guide.explain(trials.history, estimate)
        if load == wish.load:
            return Measure(load, f"{evidence}; probing {load} to {wish.purpose}")
        return Measure(load, f"{evidence}; probing {load}, nearer to bisection, to save trials")

    def _leap(self, trials: Trials, used: int, fallback: int) -> Measure:
        """The next load before any trial shows the distance to the limit."""
        history, bracket, leap = trials.history, trials.bracket, self.guide.leap(trials)
        if leap is None:
            amount = self.limits.words.amount(fallback)
            return Measure(fallback, f"no usable reading yet; bisecting at {amount}")
        wish = min(max(round(leap), bracket.sustained + 1), self.limits.top(bracket))
        load = self._affordable(used, bracket, wish, fallback)
        is_lower = bracket.overloaded is not None or (not history and self.guide.is_hint_saturated)
        way = "lower" if is_lower else "higher"
        reading = self.guide.describe_load(history, bracket.overloaded or bracket.sustained)
        return Measure(load, f"{reading} shows only that the limit is {way}; probing {load}")

    def _bound_in_time(self, used: int, bracket: Bracket, estimate: Estimate, wish: Aim) -> Aim:
        """The wish.

        If an unexpected verdict at the wished load would use up the allowance, a safer load
        replaces the wish.
        """
        low, high = bracket.sustained, bracket.overloaded
        if low > 0 and is_open_above(bracket, estimate):
            if self._shadow.excess(used + 1, Bracket(wish.load, high)) >= self._allowance:
                # One more sustained trial would use up the allowance. An upper bound is now worth
                # more than a narrow bracket, so choose a load that is probably overloaded.
                safe = math.ceil(estimate.load * math.exp(ASSURED * min(estimate.spread, 0.1)))
                load = min(self.limits.top(bracket), safe)
                return wish if load <= wish.load else Aim(load, "bound it from above")
            return wish
        if low > 0 or high is None:
            return wish
        if self._shadow.excess(used + 1, Bracket(0, wish.load)) >= self._allowance:
            return bound_from_below(wish, estimate)
        return wish

    def _affordable(self, used: int, bracket: Bracket, wish: int, fallback: int) -> int:
        """The load nearest to `wish` that the allowance permits.

        Until a load is overloaded, bisection's own next load can be many times the limit. So no
        load is more than `EXCEED_MAX` times the load that the readings suggest, even if this needs
        more trials than the allowance.
        """
        if bracket.sustained > 0 and bracket.overloaded is None:
            fallback = min(fallback, math.ceil(EXCEED_MAX * wish))
        for step in range(_STEPS_TO_BISECTION):
            load = wish + round((fallback - wish) * step / _STEPS_TO_BISECTION)
            if self._shadow.excess_after(used, bracket, load) <= self._allowance:
                return load
        return fallback

    def _foreseen(self, history: Sequence[Observation], load: int) -> Observation:
        """The expected observation of a trial."""
        trials = Trials(history)
        estimate, bracket = self.guide.estimate(trials), trials.bracket
        if estimate is None:
            curve = self.guide.curve
            estimate = Estimate(0.75 * self.limits.load_start_max, 1.0, curve.gain, curve.at_limit)
        limit = min(max(estimate.load, bracket.sustained + 0.5), bracket.upper - 0.5)
        verdict = Verdict.SUSTAINED if load <= limit else Verdict.OVERLOADED
        reading = {name: estimate.utilization_at(load) for name in self.guide.signals.smooth[:1]}
        return Observation(load, verdict, reading)


def _inside(bracket: Bracket, load: float) -> int:
    """The integer nearest to `load` that is not outside the bracket."""
    low = max(1, bracket.sustained)
    return min(max(round(load), low), max(low, bracket.overloaded or low))


def _trials_counted(trials: Trials) -> int:
    """The number of trials that count against the allowance.

    Contradictory trials are caused by the cluster and not by the guide. So if the trials of a load
    contradict each other, they count as one trial. Trials between a wrong verdict and its
    correction do not count.
    """
    valid, verdicts = _without_invalid(trials.history), trials.verdicts
    astray: set[int] = set()
    for load, one in verdicts.items():
        if one.is_contradictory:
            own = [i for i, seen in enumerate(valid) if seen.load == load]
            wrong = [i for i in own if valid[i].verdict is not one.verdict]
            righted = [i for i in own if i > wrong[0] and valid[i].verdict is one.verdict]
            astray.update(range(wrong[0] + 1, righted[0]) if righted else ())
    others = {
        i
        for i, seen in enumerate(valid)
        if i not in astray and not verdicts[seen.load].is_contradictory
    }
    return len(others) + sum(one.is_contradictory for one in verdicts.values())


def _without_invalid(history: Sequence[Observation]) -> list[Observation]:
    return [seen for seen in history if seen.verdict is not Verdict.INVALID]
