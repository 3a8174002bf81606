"""Guided bracketing. The utilization in earlier trials suggests the next load. The result is the
bracket: the highest sustained load and the lowest overloaded load.

Each step chooses the load with the highest probability that a trial at this load closes the
bracket. The choice uses two kinds of evidence: how far each trial was from its thresholds, and the
limits of neighboring sizes on the boundary line. Two safeguards limit the cost of a misleading
guide:

* Worst case. The search needs at most `ALLOWANCE` = 2 trials more than plain bisection. If a trial
  at the suggested load could lead to more than `ALLOWANCE` additional trials, the load is moved
  towards the next load of plain bisection. Repeats also count as additional trials. The search
  never needs more than `ALLOWANCE` additional trials if no verdicts contradict each other, whatever
  the utilizations and the verdicts are. If trials of one load contradict each other, they count as
  one trial. The trials between a wrong verdict and its correction do not count. Until a load is
  overloaded, the maximum of the next load (`EXCEED_MAX`) has priority over `ALLOWANCE`. This
  priority of `EXCEED_MAX` can cost one more trial for each doubling of the load.
* Wrong verdicts. If utilizations contradict the verdict of a load, the load is measured again
  before the verdict counts. A load is judged by the majority of its trials. In a tie, the last
  trial decides.

This docstring proves that the search needs at most `ALLOWANCE` trials more than plain bisection.
ITP (Oliveira and Takahashi, "An Enhancement of the Bisection Method Average Performance Preserving
Minmax Optimality", ACM TOMS 47(1), 2020) interpolates and truncates its estimate. Then ITP projects
the estimate onto the loads that keep the worst case of bisection. This module projects the load
like ITP, but separately for each possible limit, and also while no load is overloaded and the
highest load can still be doubled.

Let B(l) be the loads that plain bisection tries if the limit is l. The verdicts of all loads
outside of the present bracket (low, high) are already known. So a search that continues like plain
bisection needs trials only at the loads of B(l) inside the bracket. The number of these loads is
inside(l), and the number of loads of B(l) outside of the bracket is outside(l). After `used`
trials, the total number of trials is at most

    used + inside(l)  =  |B(l)| + used - outside(l),

where |B(l)| is the number of trials that plain bisection needs. `excess` is the largest value of
`used - outside(l)` for all limits l that are still possible. A load is allowed if `excess` is at
most `ALLOWANCE` after a SUSTAINED verdict and after an OVERLOADED verdict. An allowed load always
exists, because the first load of B(l) inside of the bracket is equal for all limits l inside of the
bracket. A trial at the first load of B(l) does not increase `excess`, because after the trial this
load lies outside of the bracket.
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
"""A trial that sets a lower bound of the limit has a load this far below the estimate of the limit
[standard deviations]."""
SURE = 0.5
"""Minimum distance between the estimate and a load that closes the bracket [standard
deviations].
"""

FAR = 0.2
"""An overload is no useful upper bound of the limit if ln(overloaded load / estimated limit) is
above this value."""
LIGHT = 0.06
"""A load that is almost certainly sustained is at least this far below the estimate of the limit
[ln]."""
ASSURED = 1.2
"""The verdict of a trial is almost certain if its load is at least this far from the estimate of
the limit [standard deviations]."""


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
    """The most useful next load, strictly inside a bracket that is not closed.

    The first load is a little below the estimate, to set a lower bound of the limit. If the lower
    bound is set, the next load is the highest load whose OVERLOADED verdict closes the bracket.

    Args:
        bracket: a bracket that is not closed.
        estimate: the probable limit. If the probable limit is outside of the bracket, the nearest
            side of the bracket replaces it.
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
        return Aim(min(above, ceiling), "bound the limit from above")
    if load > low:
        return Aim(load, "set a lower bound of the limit")
    if low > 0:
        return Aim(max(low + 1, min(highest_closing(low, resolution), ceiling)), "end the search")
    return Aim(1, "set a lower bound of the limit")


def is_open_above(bracket: Bracket, estimate: Estimate) -> bool:
    """True if the lowest overload is far above the estimate, or no load was overloaded."""
    return bracket.upper > estimate.load * math.exp(FAR)


def _closing(bracket: Bracket, limit: float, resolution: float) -> tuple[Aim, float] | None:
    """The load with the highest probability that a trial at this load closes the bracket, and the
    distance from the load to the estimate of the limit [ln]. The distance is positive if the
    estimate expects the verdict that closes the bracket.
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
    """A load below `wish` that is almost certainly sustained; `wish` if there is no such load. The
    lower load is needed if no load was sustained yet, and an overload at `wish` would use up the
    allowance of additional trials.
    """
    back = max(LIGHT, ASSURED * min(estimate.spread, 0.5))
    load = math.floor(estimate.load * math.exp(-back))
    return Aim(load, "bound the limit from below") if 0 < load < wish.load else wish


class Shadow:
    """Counts the additional trials of a search in the worst case, compared with plain bisection.

    Args:
        bisection: plain bisection with the bounds and the resolution of the search.
        hint_load: a warm-up load at which brokers had no idle time; None if there is no such load.
            The limit is assumed to be below this load until a trial sustains the load. If the limit
            is above `hint_load`, the search can need one trial more than without the hint.
    """

    def __init__(self, bisection: Bisection, hint_load: int | None = None) -> None:
        self._bisection = bisection
        self._hint_load = hint_load
        self._limits = bisection.limits
        # Bracket → result of `_fewest`, cached because several candidate loads need it.
        self._known: dict[Bracket, int] = {}

    def next_load(self, bracket: Bracket) -> int:
        """The next load of plain bisection inside the bracket. Plain bisection starts from its own
        first load, and ignores all trials that it would not make.
        """
        low, high = bracket.sustained, bracket.upper
        shadow = Bracket(0, None)
        while True:
            load = self._bisection.next_load(shadow)
            if low < load < high:
                return load
            shadow = _after(shadow, load, load <= low)

    def excess(self, used: int, bracket: Bracket) -> int:
        """The largest number of trials that the search can need in addition to the trials of plain
        bisection, if all further loads are loads of plain bisection.

        Args:
            used: number of valid trials so far.
            bracket: the bracket of the valid trials so far.
        """
        hint = self._hint_load
        if hint is not None and bracket.overloaded is None and bracket.sustained < hint:
            bracket = Bracket(bracket.sustained, hint)
        if bracket not in self._known:
            is_settled = self._limits.settle_bracket(bracket) is not None
            self._known[bracket] = self._fewest(Bracket(0, None), bracket, is_settled)
        return used - self._known[bracket]

    def excess_after(self, used: int, bracket: Bracket, load: int) -> int:
        """The larger of two values of `excess`: after a SUSTAINED trial at `load`, and after an
        OVERLOADED trial at `load`.
        """
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
"""Highest number of trials that a search may need in addition to the trials of plain bisection, if
its guide is misleading."""
EXTRA_MAX = 4
"""Highest number of trials that narrow an interval to `search.interval_max`."""
EXCEED_MAX = 2.0
"""Until a load is overloaded, the next load is at most this multiple of the load that the
utilization in trials suggests [ratio]."""
_STEPS_TO_BISECTION = 8


class Guided:
    """A searcher like `search.bisect.Bisection`, with a guide.

    Args:
        limits: bounds, resolution and repeats.
        guide: the evidence from the utilization in trials, and from the limits of neighboring
            message sizes. Without any evidence, the search bisects.
        allowance: highest number of trials in addition to the trials of plain bisection. A search
            of several goals needs a larger allowance, because trials that other goals request also
            count.
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
        """The next trial or the end of the search, according to the bracket. A result of this
        method has no confidence and no interval.
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
        why = self.guide.explain(trials.history, estimate)
        if load == wish.load:
            return Measure(load, f"{why}; probing {load} to {wish.purpose}")
        return Measure(load, f"{why}; probing {load}, nearer to bisection's load, to save trials")

    def _leap(self, trials: Trials, used: int, fallback: int) -> Measure:
        """The next load, if no trial has shown the distance to the limit yet."""
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
        """`wish`, or a safer load.

        A safer load replaces `wish` if an unexpected verdict at `wish` would use up the allowance
        of additional trials.
        """
        low, high = bracket.sustained, bracket.overloaded
        if low > 0 and is_open_above(bracket, estimate):
            if self._shadow.excess(used + 1, Bracket(wish.load, high)) >= self._allowance:
                # One more sustained trial would use up the allowance. An upper bound is now worth
                # more than a narrow bracket, so choose a load that is probably overloaded.
                safe = math.ceil(estimate.load * math.exp(ASSURED * min(estimate.spread, 0.1)))
                load = min(self.limits.top(bracket), safe)
                return wish if load <= wish.load else Aim(load, "bound the limit from above")
            return wish
        if low > 0 or high is None:
            return wish
        if self._shadow.excess(used + 1, Bracket(0, wish.load)) >= self._allowance:
            return bound_from_below(wish, estimate)
        return wish

    def _affordable(self, used: int, bracket: Bracket, wish: int, fallback: int) -> int:
        """The load nearest to `wish` at which the search stays within its allowance of additional
        trials, both after a SUSTAINED verdict and after an OVERLOADED verdict.

        Until a load is overloaded, the next load of plain bisection can be many times the limit of
        the brokers. So if loads were sustained and no load was overloaded, the result is at most
        `EXCEED_MAX` times `wish`, even if the search then needs more additional trials than
        allowed.
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
    """The integer in the bracket, including its ends, that is nearest to `load`."""
    low = max(1, bracket.sustained)
    return min(max(round(load), low), max(low, bracket.overloaded or low))


def _trials_counted(trials: Trials) -> int:
    """The number of trials of a search, for the comparison with plain bisection.

    If the trials of a load contradict each other, they count as one trial, because the cluster and
    not the guide caused the contradiction. Trials between a wrong verdict and its correction do not
    count.
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
