"""Guided bracketing: readings determine the next load, a bracket of verdicts decides.

Each step aims at the load that most probably closes the bracket, given the distance of the
trials from their thresholds and the prediction from neighbors on the boundary line. Two
safeguards keep a misleading guide harmless:

* Worst case. A step is taken only when, whatever its verdict, finishing like plain
  bisection would leave the search at most `ALLOWANCE` = 2 trials above bisection for
  every limit still possible; otherwise the aim moves towards bisection's own next load
  until it fits (`search.shadow` has the argument, and ITP is the model). Repeats
  count against the same allowance, so the bound holds for every monotone sequence of
  verdicts and any readings. Only trials that contradict each other raise it, and the trials
  that an outvoted verdict led astray do not count.
* Flukes. A verdict that the readings contradict is measured again before it counts;
  a load is judged by the majority of its trials, at most three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search.aim import CLIMB_MAX, Aim, aim, bound_from_above, bound_from_below, is_open_above
from search.bisect import Bisection
from search.estimate import Estimate
from search.guide import Guide
from search.interval import LEVEL, Interval
from search.limits import Limits
from search.load_verdicts import LoadVerdict, bracket_of_verdicts, load_verdicts_of, notes_of
from search.model import Bracket, Decision, Done, GaveUp, Measure, Observation, Verdict
from search.shadow import Shadow

ALLOWANCE = 2
"""Highest number of trials above plain bisection that misleading guidance may cost."""
EXTRA_MAX = 4
"""Highest number of trials after the bracket to narrow an interval to `search.interval_max`."""
_STEPS_TO_BISECTION = 8


class Guided:
    """A searcher like `search.bisect.Bisection`, with a guide.

    Args:
        limits: bounds, resolution and repeats.
        guide: the evidence from readings and neighbors; without either, the search bisects.
        allowance: trials above plain bisection that a misleading guide may cost. A search
            that also receives the trials of other goals needs more, as these count, too.
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
        """The next step, from the trials of this point alone (oldest first)."""
        decision = self._by_bracket(history)
        if isinstance(decision, GaveUp):
            return replace(decision, interval=self.interval(history))
        return self._with_interval(decision, history) if isinstance(decision, Done) else decision

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit by these trials, or None where they do not show it."""
        return self.guide.interval(history)

    def _extra(self, history: Sequence[Observation]) -> int:
        """Number of valid trials since the bracket was first closed."""
        for count in range(len(history)):
            if isinstance(self._by_bracket(history[:count]), Done):
                return len(_without_invalid(history[count:]))
        return 0

    def _by_bracket(self, history: Sequence[Observation]) -> Decision:
        """The next step by the bracket alone; an end has no confidence and no interval."""
        verdicts = load_verdicts_of(history)
        bracket = bracket_of_verdicts(verdicts)
        unmeasured = self.limits.settle_unmeasured(history, bracket)
        if unmeasured is not None:
            return unmeasured
        used = _trials_counted(history, verdicts)
        settled = self.limits.settle_bracket(bracket)
        doubt = self.guide.find_doubt(history, verdicts, bracket)
        if doubt is None and isinstance(settled, Done):
            doubt = self.guide.find_low_answer(history, verdicts, bracket, self.limits.resolution)
        if doubt is not None and self._shadow.excess(used + 1, bracket) <= self._allowance:
            load, why = doubt
            return Measure(load, f"{why}; repeating it")
        if isinstance(settled, Done):
            return self._done(verdicts, bracket, doubt)
        return settled or self.limits.begin(self._probe(history, verdicts, bracket, used), history)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Trials until the end if all verdicts are as the guide expects."""
        bracket = bracket_of_verdicts(load_verdicts_of(history))
        if isinstance(self.limits.settle_unmeasured(history, bracket), Measure):
            return 1 + self.trials_left(_without_invalid(history))
        imagined, count = list(history), 0
        # Without `interval_max`, intervals do not affect the loads.
        decide = self._by_bracket if self.limits.interval_max is None else self.decide
        while count < 30:
            decision = decide(imagined)
            if not isinstance(decision, Measure):
                break
            count += 1
            imagined.append(self._foreseen(imagined, decision.load))
        return count

    def _done(
        self, verdicts: dict[int, LoadVerdict], bracket: Bracket, doubt: tuple[int, str] | None
    ) -> Done:
        notes = notes_of(verdicts, bracket, self.limits.words)
        if doubt is not None:
            notes += (f"{doubt[1]}; not repeated, as the allowance of trials is used up",)
        return Done(bracket, notes=notes)

    def _with_interval(self, done: Done, history: Sequence[Observation]) -> Done | Measure:
        """The answer with its confidence and interval, or one more trial to narrow the interval."""
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

    def _probe(
        self,
        history: Sequence[Observation],
        verdicts: dict[int, LoadVerdict],
        bracket: Bracket,
        used: int,
    ) -> Measure:
        fallback = self._shadow.next_load(bracket)
        estimate = self.guide.bounded_estimate(history, verdicts, bracket)
        if estimate is None:
            return self._leap(history, verdicts, bracket, used)
        climb = CLIMB_MAX if self.guide.prior is None else 2 * CLIMB_MAX
        wish = aim(bracket, estimate, self.limits.resolution, self.limits.load_cap, climb)
        wish = self._bound_in_time(used, bracket, estimate, wish)
        load = self._affordable(used, bracket, wish.load, fallback)
        evidence = self.guide.explain(history, estimate)
        if load == wish.load:
            return Measure(load, f"{evidence}; probing {load} to {wish.purpose}")
        return Measure(load, f"{evidence}; probing {load}, nearer to bisection, to limit the cost")

    def _leap(
        self,
        history: Sequence[Observation],
        verdicts: dict[int, LoadVerdict],
        bracket: Bracket,
        used: int,
    ) -> Measure:
        """The next load while no trial shows the distance to the limit."""
        fallback = self._shadow.next_load(bracket)
        leap = self.guide.leap(history, verdicts, bracket)
        if leap is None:
            amount = self.limits.words.amount(fallback)
            return Measure(fallback, f"no reading to use yet; bisecting at {amount}")
        wish = min(max(round(leap), bracket.sustained + 1), self.limits.top(bracket))
        load = self._affordable(used, bracket, wish, fallback)
        is_lower = bracket.overloaded is not None or (not history and self.guide.is_hint_saturated)
        way = "lower" if is_lower else "higher"
        reading = self.guide.describe_load(history, bracket.overloaded or bracket.sustained)
        return Measure(load, f"{reading} shows only that the limit is {way}; probing {load}")

    def _bound_in_time(self, used: int, bracket: Bracket, estimate: Estimate, wish: Aim) -> Aim:
        """The wish, or a safer one where an unexpected verdict would use up the allowance."""
        low, high = bracket.sustained, bracket.overloaded
        if low > 0 and is_open_above(bracket, estimate):
            if self._shadow.excess(used + 1, Bracket(wish.load, high)) >= self._allowance:
                return bound_from_above(wish, estimate, self.limits.top(bracket))
            return wish
        if low > 0 or high is None:
            return wish
        if self._shadow.excess(used + 1, Bracket(0, wish.load)) >= self._allowance:
            return bound_from_below(wish, estimate)
        return wish

    def _affordable(self, used: int, bracket: Bracket, wish: int, fallback: int) -> int:
        for step in range(_STEPS_TO_BISECTION):
            load = wish + round((fallback - wish) * step / _STEPS_TO_BISECTION)
            if self._shadow.excess_after(used, bracket, load) <= self._allowance:
                return load
        return fallback

    def _foreseen(self, history: Sequence[Observation], load: int) -> Observation:
        """The expected observation of a trial."""
        verdicts = load_verdicts_of(history)
        bracket = bracket_of_verdicts(verdicts)
        estimate = self.guide.estimate(history, verdicts, bracket)
        if estimate is None:
            curve = self.guide.curve
            estimate = Estimate(0.75 * self.limits.load_start_max, 1.0, curve.gain, curve.at_limit)
        high = float("inf") if bracket.overloaded is None else bracket.overloaded - 0.5
        limit = min(max(estimate.load, bracket.sustained + 0.5), high)
        verdict = Verdict.SUSTAINED if load <= limit else Verdict.OVERLOADED
        reading = {name: estimate.utilization_at(load) for name in self.guide.signals.smooth[:1]}
        return Observation(load, verdict, reading)


def _inside(bracket: Bracket, load: float) -> int:
    """The whole load nearest to `load` within the bracket, its ends included."""
    low = max(1, bracket.sustained)
    return min(max(round(load), low), max(low, bracket.overloaded or low))


def _trials_counted(history: Sequence[Observation], verdicts: dict[int, LoadVerdict]) -> int:
    """The number of trials that count against the allowance.

    Contradictory trials are caused by the cluster, not by the guide: those of one load count once.
    The trials between an outvoted trial and the one that outvoted it, which it led astray, do not
    count.
    """
    valid = _without_invalid(history)
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
