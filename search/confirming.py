"""Holding a limit before it is an answer: one window after another, and a new search if it fails.

A limit is found by short trials on brokers that rest in between. While a load is held for longer,
segments roll, retention deletes, pages are written back and old heaps are collected. So
`Confirming` requests windows at the limit that a search ended with, and judges the hold by all of
them:

* A hold *fails* when more than half of its windows are overloaded, or as soon as more than three
  quarters of a stretch are. A stretch is a quarter of the hold's windows in a row, at least 3 and
  at most 15 of them. So single overloaded windows, which every load near the limit has, decide
  nothing, and a lasting change is detected soon.
* After a failed hold, a new search begins below it. Loads that were sustained before do not count
  any more, as the brokers have changed. The new search starts from the overloads of the hold,
  whose readings guide it.
* A hold that continues or that lasted is not a trial of the search: its windows move no bound.

The decision follows from the history alone, in which held windows are marked, so that a resumed
run decides the same.

The steady limit: the load that disks write, below a burst limit that memory may carry.

One load is held at a time, the burst limit first, until the hold proves that disks write it or
shows how much of it they do. The next load is what they wrote. It decides from the holds alone, so
that a resumed run decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from search.limits import Limits
from search.model import (
    Decision,
    Done,
    GaveUp,
    Interval,
    Measure,
    Observation,
    Searcher,
    Trials,
    Verdict,
)

HOLDS_MAX = 3
"""Number of failed holds at one point after which the search gives up."""

STRETCH_SHARE = 0.25
STRETCH_MIN, STRETCH_MAX = 3, 15
MOST = 0.75
"""Share of overloaded windows beyond which a stretch is overloaded as a whole [ratio]."""


@dataclass(frozen=True)
class Confirmation:
    """The length of a hold.

    Attributes:
        windows: valid windows of a hold; 0 disables holds.
        window_s: load time of each window, its warm-up included [s].
    """

    windows: int = 0
    window_s: float = 0.0

    @classmethod
    def lasting(cls, duration_s: float | None, window_s: float) -> Confirmation:
        """A hold of at least this duration [s]; None disables holds."""
        return cls(math.ceil(duration_s / window_s - 1e-9) if duration_s else 0, window_s)

    @property
    def stretch(self) -> int:
        """Number of windows in a row that can decide that a hold failed."""
        quarter = math.ceil(STRETCH_SHARE * self.windows)
        return min(self.windows, max(STRETCH_MIN, min(STRETCH_MAX, quarter)))


@dataclass(frozen=True)
class Hold:
    """Windows in a row at one load.

    Attributes:
        load: the load that was held.
        windows: the windows, oldest first, INVALID ones included.
        plan: the planned length.
    """

    load: int
    windows: tuple[Observation, ...]
    plan: Confirmation

    @property
    def valid(self) -> list[Observation]:
        """The windows that are not INVALID."""
        return [each for each in self.windows if each.verdict is not Verdict.INVALID]

    @property
    def overloads(self) -> list[int]:
        """The positions of the overloaded windows among the valid ones, from 0."""
        return [i for i, each in enumerate(self.valid) if each.verdict is Verdict.OVERLOADED]

    @property
    def broke_at(self) -> int | None:
        """The position of the first overloaded window that made the hold fail, from 0, or None."""
        overloads, stretch = self.overloads, self.plan.stretch
        for last in overloads:
            within = [i for i in overloads if last - stretch < i <= last]
            if len(within) > MOST * stretch:
                return within[0]
        return overloads[0] if 2 * len(overloads) > self.plan.windows else None

    @property
    def has_lasted(self) -> bool:
        """True when the hold reached its end without failing."""
        return len(self.valid) >= self.plan.windows and self.broke_at is None

    @property
    def held_s(self) -> float:
        """Load time of its valid windows [s]."""
        return len(self.valid) * self.plan.window_s

    @property
    def lasted_s(self) -> float:
        """Load time before the windows that made it fail, or of all windows [s]."""
        return self.held_s if self.broke_at is None else self.broke_at * self.plan.window_s


@dataclass(frozen=True)
class SplitHistory:
    """A history, split into trials of the search and holds.

    Attributes:
        searched: the trials that the search uses.
        failed: the failed holds of limits that were the answer at that time, oldest first.
        last: the latest hold since then that continues or lasted, or None.
        is_under_way: the history ends with a window of `last`.
    """

    searched: tuple[Observation, ...]
    failed: tuple[Hold, ...] = ()
    last: Hold | None = None
    is_under_way: bool = False


def split_history(history: Sequence[Observation], plan: Confirmation) -> SplitHistory:
    """Split the history of one point into trials of the search and holds.

    A hold above the answer of that time was requested by another goal and is left out.
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
        elif load <= Trials(split.searched).bracket.sustained:
            over = [each for each in hold.valid if each.verdict is Verdict.OVERLOADED]
            # Two votes: the search repeats a single doubtful overload, and a hold is not doubtful.
            split = SplitHistory(tuple((over * 2)[-2:]), (*split.failed, hold))
        else:
            split = replace(split, is_under_way=False)
    return split


class Confirming:
    """A searcher whose answer is held before it counts.

    Args:
        searcher: finds the limit; of held windows, its history contains only the overloads of
            failed holds.
        limits: limits of the searcher.
        plan: length of the hold of each answer.
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
            failure = self._describe(split.failed[-1])
            return replace(decision, reason=f"{failure}; {decision.reason}")
        if not isinstance(decision, Done) or not decision.bracket.sustained:
            return decision
        load = decision.bracket.sustained
        hold = split.last if split.last is not None and split.last.load == load else None
        if hold is not None and hold.has_lasted:
            return replace(decision, confirmed_s=hold.held_s)
        if len(split.failed) >= HOLDS_MAX:
            failures = "; ".join(map(self._describe, split.failed))
            reason = (
                f"{failures}; the next limit of {self._limits.words.amount(load)} was not held, as "
                f"at most {HOLDS_MAX} limits are; find what changes while a load is held"
            )
            return GaveUp(decision.bracket, reason, decision.interval)
        return self._window(decision, hold if split.is_under_way else None)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval, where it states one."""
        return self._searcher.interval(split_history(history, self._plan).searched)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Trials until the end when the present hold, or the next one, lasts."""
        split = split_history(history, self._plan)
        left = self._searcher.trials_left(split.searched)
        last = split.last
        decision = self._decided(split.searched)
        answer = decision.bracket.sustained if isinstance(decision, Done) else None
        if left or last is None or last.load != answer:
            return left + self._plan.windows
        if last.has_lasted:
            return 0
        return self._plan.windows - (len(last.valid) if split.is_under_way else 0)

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

    def _describe(self, hold: Hold) -> str:
        return f"{self._limits.words.amount(hold.load)} did not last: {describe_failure(hold)}"

    def _decided(self, searched: tuple[Observation, ...]) -> Decision:
        """The searcher's decision, cached as every window of a hold needs it."""
        if self._known is None or self._known[0] != searched:
            self._known = (searched, self._searcher.decide(searched))
        return self._known[1]


def describe_failure(hold: Hold) -> str:
    """The failure of a hold, such as "3 of 5 windows were overloaded from 40 s of load on"."""
    first = hold.broke_at or 0
    over, since = len(hold.overloads), len(hold.valid) - first
    late = sum(1 for i in hold.overloads if i >= first)
    from_when = f"from {hold.lasted_s:.0f} s of load on" if first else "from the start"
    return f"{late} of {since} windows were overloaded {from_when}" + (
        "" if over == late else f", and {over - late} before"
    )


REPEATS_MAX = 1
"""Number of repeats of an INVALID hold."""
MARGIN = 0.97
"""The next load over what disks wrote [ratio], as a disk that is full cannot catch up."""
STEP_DOWN = 0.8
"""The next load over one that was overloaded although disks wrote it [ratio]."""
LEAST = 0.05
"""The next load over the last one at least [ratio]."""


@dataclass(frozen=True)
class SteadyHold:
    """One hold.

    Attributes:
        load: the load that was held.
        is_valid: False where the trial was INVALID, so that it shows nothing.
        is_proven: True where disks wrote the load.
        written_share: share of the load that disks wrote; None where that is not the reason why the
            load is not steady [ratio].
    """

    load: int
    is_valid: bool
    is_proven: bool = False
    written_share: float | None = None


def next_hold(burst: int, holds: Sequence[SteadyHold]) -> int | None:
    """The load to hold next, or None at the end of the search.

    Args:
        burst: the burst limit.
        holds: the holds so far, oldest first.
    """
    if not holds:
        return burst if burst >= 1 else None
    last = holds[-1]
    invalid = sum(1 for each in holds if not each.is_valid)
    if not last.is_valid:
        return last.load if invalid <= REPEATS_MAX else None
    if last.is_proven or len(holds) - invalid >= HOLDS_MAX:
        return None
    share = STEP_DOWN if last.written_share is None else MARGIN * last.written_share
    below = min(last.load - 1, int(last.load * max(LEAST, min(share, 1.0))))
    return below if below >= 1 else None
