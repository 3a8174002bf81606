"""The bounds, resolution and repeats that all searchers share, and the rules for loads that cannot
be measured.

An INVALID trial gives no evidence, so its load never bounds the limit. The search continues at a
lower load, because the cause of an INVALID trial may depend on the load. There are two cases:

* The generator was too slow. After one INVALID trial, the search continues at a lower load, unless
  a trial with the same or a higher load was valid. If the generator was too slow, the next load is
  the load that the generator offered, because it can probably offer this load again. If the
  generator cannot offer the next load either, lower loads follow, down to one unit of load, until a
  trial is valid. If the generator offered almost the whole load of a trial, the trial is repeated
  once, because the generator may have been busy only for a moment.
* A trial is INVALID for another reason than a slow generator. The search first repeats the load of
  the INVALID trial. If all repeats of a load are INVALID, the next load is between the load of the
  INVALID trials and the highest sustained load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.model import (
    PRODUCERS,
    Bracket,
    Decision,
    Done,
    GaveUp,
    LoadWords,
    Measure,
    Observation,
    Trials,
    Verdict,
    bracket_of,
    invalid_in_a_row,
)

OFFERED_MAX = 0.9
"""An INVALID trial is repeated once if the generator offered at least this share of its load
[ratio]."""
OFFERED_STEPS = (0.9, 0.75, 0.5)
"""Highest value of the next load, divided by the load that the generator could not offer [ratio].

The three values apply to the first, the second and each further load in a row that the generator
could not offer."""
IN_A_ROW_MAX, IN_A_ROW_FIRST_MAX = 4, 2
"""The search ends if this number of loads in a row could not be measured, because all their trials
were INVALID.

`IN_A_ROW_FIRST_MAX` replaces `IN_A_ROW_MAX` if no load was sustained yet. `IN_A_ROW_FIRST_MAX` does
not apply if the trials are INVALID because the generator was too slow."""
STEP_DOWN = 4
"""The next load is the load that could not be measured, divided by this value [ratio]. This step
applies if no load was sustained yet, and if the cause is not a slow generator."""
REPEATS_LATER = 1
"""Highest number of repeats of an INVALID trial if an earlier load could not be measured."""


@dataclass(frozen=True)
class Ceiling:
    """The lowest load that could not be measured.

    Attributes:
        load: the load.
        cause: the cause of the INVALID trials at this load, in words.
        offered_share: if the trials were INVALID because the generator was too slow, the
            acknowledged load divided by the planned load [ratio]; None if the trials were INVALID
            for another reason.
        in_a_row: number of loads that could not be measured since the last valid trial.
    """

    load: int
    cause: str
    offered_share: float | None
    in_a_row: int

    def next_load(self, sustained: int) -> int:
        """The load that is tried after this load, and that is lower than this load. If no load is
        left to try, the result is at most `sustained`.
        """
        if self.offered_share is None and not sustained:
            return max(self.load // STEP_DOWN, min(1, self.load - 1))
        if self.offered_share is None:
            middle = (sustained + self.load) // 2
            return min(middle, max(sustained + 1, math.isqrt(sustained * self.load)))
        most = OFFERED_STEPS[min(self.in_a_row, len(OFFERED_STEPS)) - 1]
        below = max(1, math.floor(self.load * min(self.offered_share, most)))
        return min(below, self.load - 1)

    def is_final(self, sustained: int, resolution: float) -> bool:
        """True if the search tries no further load between the highest sustained load and this
        load.
        """
        if self.next_load(sustained) <= sustained:
            return True
        if self.offered_share is not None:
            return bool(sustained) and self.in_a_row >= IN_A_ROW_MAX
        in_a_row_max = IN_A_ROW_MAX if sustained else IN_A_ROW_FIRST_MAX
        return self.in_a_row >= in_a_row_max or Bracket(sustained, self.load).is_closed(resolution)


def ceiling_of(history: Sequence[Observation], repeats_max: int) -> Ceiling | None:
    """The lowest load that could not be measured; None if all loads could be measured.

    A valid trial at this load or at a higher load shows that the load can be measured.

    Args:
        history: the trials of a point, oldest first.
        repeats_max: highest number of repeats of an INVALID trial.
    """
    found: list[Ceiling] = []
    highest_valid = tries = in_a_row = 0
    allowed, last = repeats_max, 0
    for seen in history:
        if seen.verdict is not Verdict.INVALID:
            highest_valid = max(highest_valid, seen.load)
            found = [each for each in found if each.load > seen.load]
            tries = in_a_row = last = 0
            continue
        tries, last = (tries + 1 if seen.load == last else 1), seen.load
        share = seen.offered_share if seen.load > highest_valid else None
        by_generator = 0 if share is None or share < OFFERED_MAX else min(1, repeats_max)
        if tries <= (allowed if share is None else by_generator):
            continue
        if not found or found[-1].load != seen.load:
            in_a_row += 1
        found = [each for each in found if each.load < seen.load]
        found.append(Ceiling(seen.load, seen.cause, share, in_a_row))
        allowed = min(repeats_max, REPEATS_LATER)
    return min(found, key=lambda each: each.load, default=None)


@dataclass(frozen=True)
class Limits:
    """Bounds, resolution and repeats of a search along one axis. The load grows along this axis.

    Attributes:
        load_start_max: first guess of a load above the limit. If this load is sustained, the search
            tries higher loads.
        load_cap: highest load that may be offered.
        resolution: relative width at which a bracket is narrow enough to be a boundary point
            [ratio].
        invalid_repeats_max: highest number of repeats of an INVALID trial in a row.
        words: the unit of a load in words: producers, partitions, consumer groups.
        cap_by: name of the option or guard that sets `load_cap`.
        other_way: another option that can be raised if `load_cap` is sustained, as a noun phrase.
        interval_max: highest accepted relative width of the 90 % interval [ratio]. If the 90 %
            interval is wider than this value, the search makes further trials. With None, any width
            is accepted.
        first_max: highest load before the first valid trial; None if any load is allowed. The value
            is the load that the generator offered in the warm-up, or a load that was sustained at
            another message size.
    """

    load_start_max: int
    load_cap: int
    resolution: float
    invalid_repeats_max: int
    words: LoadWords = PRODUCERS
    cap_by: str = "search.load_cap"
    other_way: str = ""
    interval_max: float | None = None
    first_max: int | None = None

    def capped(self, load: int, by: str) -> Limits:
        """These limits with `load` as `load_cap`. The limits are unchanged if `load` is not lower
        than `load_cap`.

        Args:
            load: highest load that may be offered.
            by: name of the option or guard that sets this load.
        """
        if load >= self.load_cap:
            return self
        start = min(load, self.load_start_max)
        return replace(self, load_start_max=start, load_cap=load, cap_by=by, other_way="")

    def top(self, bracket: Bracket) -> int:
        """The highest load that may be offered to narrow a bracket."""
        over = bracket.overloaded
        return self.load_cap if over is None else min(self.load_cap, over - 1)

    def settle_invalid(self, history: Sequence[Observation]) -> Measure | GaveUp | None:
        """The decision after an INVALID trial: a repeat or the end.

        The decision is None if the last trial was valid, or if its load is now above `load_cap`.
        """
        invalid = invalid_in_a_row(history)
        if not invalid or history[-1].load > self.load_cap:
            return None
        load = history[-1].load
        if invalid > self.invalid_repeats_max:
            return GaveUp(
                bracket_of(history),
                f"{invalid} invalid trials in a row at {self.words.amount(load)}, "
                f"and search.invalid_repeats_max allows {self.invalid_repeats_max} repeats; remove "
                "the cause (the reasons are in the trials table) and run again",
            )
        repeat = f"{invalid} of {self.invalid_repeats_max}"
        return Measure(
            load, f"the trial at {self.words.amount(load)} was invalid; repeating it ({repeat})"
        )

    def settle_unmeasured(
        self, history: Sequence[Observation], bracket: Bracket
    ) -> Measure | GaveUp | None:
        """The decision after INVALID trials: a repeat, a lower load, or the end of the search.

        The decision is None if the last trial was valid and every load inside the bracket can be
        measured.

        Args:
            history: all trials, oldest first.
            bracket: the bracket of the valid trials.
        """
        ceiling = ceiling_of(history, self.invalid_repeats_max)
        if (
            ceiling is None
            or not bracket.sustained < ceiling.load < bracket.upper
            or bracket.is_closed(self.resolution)
            or (invalid_in_a_row(history) and history[-1].load < ceiling.load)
        ):
            return self.settle_invalid(history)
        if ceiling.is_final(bracket.sustained, self.resolution):
            return self._end_below(ceiling, bracket)
        load, amount = ceiling.next_load(bracket.sustained), self.words.amount(ceiling.load)
        cause = ceiling.cause or "its trials were INVALID"
        if ceiling.offered_share is None:
            return Measure(load, f"{amount} could not be measured ({cause}); trying {load} below")
        below = " below" if ceiling.in_a_row > 1 else ", the most that it can offer"
        return Measure(load, f"{cause}, at {amount}; trying {load}{below}")

    def begin(self, step: Measure, history: Sequence[Observation]) -> Measure:
        """The step. Before the first valid trial, the load of the step is reduced to at most
        `first_max`.
        """
        most = self.first_max
        if most is None or step.load <= most or Trials(history).verdicts:
            return step
        reason = f"{step.reason}; starting at {most}, the highest load that was offered before"
        return replace(step, load=most, reason=reason)

    def _end_below(self, ceiling: Ceiling, bracket: Bracket) -> GaveUp:
        """The end of a search, because the search tries no further load below `ceiling`. `ceiling`
        is the lowest load that could not be measured.
        """
        cause = ceiling.cause or "its trials were INVALID"
        if ceiling.offered_share is not None:
            return GaveUp(bracket, f"{cause}; use more executors or cores")
        where = f"above {ceiling.load:,}"
        if not bracket.sustained:
            where = f"of {self.words.amount(ceiling.load)} or more"
        elif bracket.overloaded is not None:
            where = f"between {bracket.sustained:,} and the overload at {bracket.overloaded:,}"
        return GaveUp(
            bracket,
            f"no load {where} could be measured: {cause}; remove the cause (the reasons of the "
            "invalid trials are in the trials table) and run again; search.invalid_repeats_max "
            f"allows {self.invalid_repeats_max} repeats",
        )

    def settle_bracket(self, bracket: Bracket) -> Done | GaveUp | None:
        """The end of the search if the bracket is closed or reaches `load_cap`; otherwise None."""
        if bracket.is_closed(self.resolution):
            return Done(bracket)
        if bracket.sustained >= self.load_cap:
            return GaveUp(
                bracket,
                f"{self.cap_by} allows no more than {self.words.amount(self.load_cap)}; "
                f"raise it{f', or {self.other_way}' if self.other_way else ''}",
            )
        return None

    def settle(self, history: Sequence[Observation]) -> Decision | None:
        """The next decision if it needs no new load; otherwise None."""
        bracket = bracket_of(history)
        return self.settle_unmeasured(history, bracket) or self.settle_bracket(bracket)
