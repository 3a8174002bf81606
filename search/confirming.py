"""Holding a limit before it is an answer: window after window, and the search below if it fails.

A limit is found by short trials on brokers that rest in between. Held for longer, segments roll,
retention deletes, pages are written back and old heaps are collected. So `Confirming` asks for
windows at the limit that a search ended with, and judges the hold by all of them:

* A hold *fails* when more than half of its windows are overloaded, and as soon as more than three
  quarters of a stretch are. A stretch is a quarter of the hold's windows in a row, at least 3 and
  at most 15 of them. So single windows, of which every load near the limit has some, decide
  nothing, and a change that stays is seen soon.
* After a hold that failed the search begins anew below it. What was sustained before proves
  nothing any more, as the brokers are not what they were; the overloads of the hold are what the
  new search has, and their readings guide it.
* A hold that goes on or that lasted is no trial of the search: its windows move no bound.

All of it is told by the history alone, in which held windows are marked, so that a resumed run
decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from search.interval import Interval
from search.limits import Limits
from search.load_verdicts import bracket_of_verdicts, load_verdicts_of
from search.model import (
    Decision,
    Done,
    GaveUp,
    IntervalSearcher,
    Measure,
    Observation,
    Searcher,
    Verdict,
)

HOLDS_MAX = 3
"""Limits of one point that may fail while they are held, before the search gives up."""

STRETCH_SHARE = 0.25
STRETCH_MIN, STRETCH_MAX = 3, 15
MOST = 0.75
"""Share of a stretch's windows beyond which it was overloaded as a whole [ratio]."""


@dataclass(frozen=True)
class Confirmation:
    """How long a limit is held.

    Attributes:
        windows: valid windows of a hold; 0 holds nothing.
        window_s: load of each, its warm-up included [s].
    """

    windows: int = 0
    window_s: float = 0.0

    @classmethod
    def lasting(cls, duration_s: float | None, window_s: float) -> Confirmation:
        """As many windows as load the brokers for so long [s]; None holds nothing."""
        return cls(math.ceil(duration_s / window_s - 1e-9) if duration_s else 0, window_s)

    @property
    def stretch(self) -> int:
        """Windows in a row of which more than half decide that a hold failed."""
        quarter = math.ceil(STRETCH_SHARE * self.windows)
        return min(self.windows, max(STRETCH_MIN, min(STRETCH_MAX, quarter)))


@dataclass(frozen=True)
class Hold:
    """Windows in a row at one load.

    Attributes:
        load: that was held.
        windows: the windows, oldest first, INVALID ones too.
        plan: how long it was to be.
    """

    load: int
    windows: tuple[Observation, ...]
    plan: Confirmation

    @property
    def valid(self) -> list[Observation]:
        """The windows that are an answer."""
        return [each for each in self.windows if each.verdict is not Verdict.INVALID]

    @property
    def overloads(self) -> list[int]:
        """Which of the valid windows were overloaded, counted from 0."""
        return [i for i, each in enumerate(self.valid) if each.verdict is Verdict.OVERLOADED]

    @property
    def broke_at(self) -> int | None:
        """The first overloaded window of those by which it failed, from 0; or None."""
        overloads, stretch = self.overloads, self.plan.stretch
        for last in overloads:
            within = [i for i in overloads if last - stretch < i <= last]
            if len(within) > MOST * stretch:
                return within[0]
        return overloads[0] if 2 * len(overloads) > self.plan.windows else None

    @property
    def has_lasted(self) -> bool:
        """True when it was held to its end without failing."""
        return len(self.valid) >= self.plan.windows and self.broke_at is None

    @property
    def held_s(self) -> float:
        """Load of its valid windows [s]."""
        return len(self.valid) * self.plan.window_s

    @property
    def lasted_s(self) -> float:
        """Load before the windows by which it failed, or all of it [s]."""
        return self.held_s if self.broke_at is None else self.broke_at * self.plan.window_s


@dataclass(frozen=True)
class SplitHistory:
    """A history, told apart.

    Attributes:
        searched: the trials that the search goes by.
        failed: holds at what was the answer then, and that failed, oldest first.
        last: the hold that was under way or lasted since then, or None.
        is_under_way: the history ends with a window of `last`.
    """

    searched: tuple[Observation, ...]
    failed: tuple[Hold, ...] = ()
    last: Hold | None = None
    is_under_way: bool = False


def split_history(history: Sequence[Observation], plan: Confirmation) -> SplitHistory:
    """What a history of one point says of holds, and what is left to search by.

    A hold above the answer of its time, which another goal asked for, says nothing.
    """
    split = SplitHistory(())
    for (is_held, load), group in groupby(
        history, lambda each: (each.held, each.held and each.load)
    ):
        windows = tuple(group)
        if not is_held:
            split = replace(split, searched=split.searched + windows, is_under_way=False)
            continue
        hold = Hold(load, windows, plan)
        if hold.broke_at is None:
            split = replace(split, last=hold, is_under_way=True)
        elif load <= bracket_of_verdicts(load_verdicts_of(split.searched)).sustained:
            over = [each for each in hold.valid if each.verdict is Verdict.OVERLOADED]
            # Two votes: the search measures a lone doubtful overload again, and a hold is none.
            split = SplitHistory(tuple((over * 2)[-2:]), (*split.failed, hold))
        else:
            split = replace(split, is_under_way=False)
    return split


class Confirming:
    """A searcher whose answer is held before it counts.

    Args:
        searcher: finds the limit; its history has no held windows but the overloads of holds
            that failed.
        limits: its limits.
        plan: how long each answer is held.
    """

    def __init__(self, searcher: Searcher, limits: Limits, plan: Confirmation) -> None:
        self._searcher = searcher
        self._limits = limits
        self._plan = plan
        self._known: tuple[tuple[Observation, ...], Decision] | None = None

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The searcher's next step, or a window of the hold after its end."""
        split = split_history(history, self._plan)
        decision = self._decided(split.searched)
        if isinstance(decision, Measure) and split.failed and len(split.searched) == 2:
            return replace(decision, reason=f"{self._said(split.failed[-1])}; {decision.reason}")
        if not isinstance(decision, Done) or not decision.bracket.sustained:
            return decision
        load = decision.bracket.sustained
        hold = split.last if split.last is not None and split.last.load == load else None
        if hold is not None and hold.has_lasted:
            return replace(decision, confirmed_s=hold.held_s)
        if len(split.failed) >= HOLDS_MAX:
            said = "; ".join(map(self._said, split.failed))
            reason = (
                f"{said}; {self._limits.words.amount(load)} found then and not held, as no more "
                f"than {HOLDS_MAX} limits are; find what changes while a load is held"
            )
            return GaveUp(decision.bracket, reason, decision.interval)
        return self._window(decision, hold if split.is_under_way else None)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval, where it states one."""
        if isinstance(self._searcher, IntervalSearcher):
            return self._searcher.interval(split_history(history, self._plan).searched)
        return None

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Trials until the end when the present hold, or the next one, lasts."""
        split = split_history(history, self._plan)
        left = self._searcher.trials_left(split.searched)
        last = split.last
        if left or last is None or last.load != self._answer(split.searched):
            return left + self._plan.windows
        if last.has_lasted:
            return 0
        return self._plan.windows - (len(last.valid) if split.is_under_way else 0)

    def _answer(self, searched: tuple[Observation, ...]) -> int | None:
        decision = self._decided(searched)
        return decision.bracket.sustained if isinstance(decision, Done) else None

    def _window(self, decision: Done, hold: Hold | None) -> Decision:
        load, windows = decision.bracket.sustained, self._plan.windows
        amount = self._limits.words.amount(load)
        invalid = None if hold is None else self._limits.settle_invalid(hold.windows)
        if isinstance(invalid, GaveUp):
            reason = f"the limit of {amount} could not be confirmed: {invalid.reason}"
            return GaveUp(decision.bracket, reason, decision.interval)
        if isinstance(invalid, Measure):
            return replace(invalid, holds=True)
        number = 1 if hold is None else len(hold.valid) + 1
        return Measure(load, f"holding {amount}, window {number} of {windows}", holds=True)

    def _said(self, hold: Hold) -> str:
        return f"{self._limits.words.amount(hold.load)} did not last: {describe_failure(hold)}"

    def _decided(self, searched: tuple[Observation, ...]) -> Decision:
        """The searcher's decision, which a hold asks for again and again."""
        if self._known is None or self._known[0] != searched:
            self._known = (searched, self._searcher.decide(searched))
        return self._known[1]


def describe_failure(hold: Hold) -> str:
    """Of a hold that failed, from when on: "3 of 5 windows overloaded from 40 s of load on"."""
    first = hold.broke_at or 0
    over, since = len(hold.overloads), len(hold.valid) - first
    late = sum(1 for i in hold.overloads if i >= first)
    from_when = f"from {hold.lasted_s:.0f} s of load on" if first else "from the start"
    return f"{late} of {since} windows were overloaded {from_when}" + (
        "" if over == late else f", and {over - late} before"
    )
