"""A search with a budget of trials, time and bytes. The search ends when the budget is used up.

The search at each message size leaves a part of the budget for every later size. So a message size
that needs many trials does not use up the budget of later message sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search.closing import Checking
from search.model import (
    Change,
    Decision,
    Done,
    GaveUp,
    Interval,
    Measure,
    Observation,
    Searcher,
    bracket_of,
)

_THE = "the budget of "
KEPT = 0.75
"""While one message size is measured, a part of the remaining budget is kept for each later message
size. This part is the equal share of a message size, multiplied by this value [ratio]. The equal
share is the remaining budget, divided by the number of message sizes that are not finished."""


@dataclass(frozen=True)
class Spent:
    """The cost of trials: their number, time [s] and payload [B]."""

    trials: int = 0
    seconds: float = 0.0
    bytes: float = 0.0

    def plus(self, history: Sequence[Observation], bytes_per_s: float) -> Spent:
        """This cost plus the cost of the trials of one message size.

        Args:
            history: all trials of this size, including INVALID trials.
            bytes_per_s: payload rate of one producer [B/s].
        """
        return Spent(
            self.trials + len(history),
            self.seconds + sum(seen.duration_s for seen in history),
            self.bytes + sum(seen.load * bytes_per_s * seen.duration_s for seen in history),
        )


@dataclass(frozen=True)
class Budget:
    """The highest cost of a run. None means that a cost has no limit.

    A trial starts only if no limit is reached yet. So the last trial may exceed the limits of time
    and payload.

    Attributes:
        trials: number of trials of all message sizes.
        duration_s: time of all trials [s].
        payload_bytes: payload offered in all trials, without replicas [B].
    """

    trials: int | None = None
    duration_s: float | None = None
    payload_bytes: int | None = None

    def exhausted(self, spent: Spent) -> str | None:
        """The limit of the budget that is reached, in words; None if no limit is reached."""
        if self.trials is not None and spent.trials >= self.trials:
            return f"{_THE}{self.trials} trials"
        if self.duration_s is not None and spent.seconds >= self.duration_s:
            return f"{_THE}{self.duration_s:.0f} s"
        if self.payload_bytes is not None and spent.bytes >= self.payload_bytes:
            return f"{_THE}{self.payload_bytes / 1e6:.0f} MB"
        return None

    def part(self, before: Spent, later: int) -> Budget:
        """The budget of the message size that is measured next. A part of the remaining budget is
        kept for each message size that is measured later (see `KEPT`).

        Args:
            before: cost of the run before the first trial at the message size.
            later: number of message sizes that are measured later.
        """

        def cut(limit: float | None, used: float) -> int | None:
            if limit is None or limit <= used:
                return None  # `exhausted` of the whole budget reports it
            return math.ceil(limit - KEPT * later / (later + 1) * (limit - used))

        return Budget(
            cut(self.trials, before.trials),
            cut(self.duration_s, before.seconds),
            cut(self.payload_bytes, before.bytes),
        )


class Budgeted:
    """A searcher with a budget. When the budget is used up, the search ends with the narrowest
    bracket so far.

    Args:
        searcher: makes the decisions while the budget is not used up.
        budget: highest cost of the run, including `before`.
        before: cost of the run before this search.
        bytes_per_s: payload rate of one producer [B/s].
        searched: function that takes all trials and returns the trials on which the result of the
            search is based.
        later: number of message sizes that are measured after this search.
    """

    def __init__(
        self,
        searcher: Searcher,
        budget: Budget,
        before: Spent,
        bytes_per_s: float,
        searched: Callable[[Sequence[Observation]], Sequence[Observation]] = tuple,
        later: int = 0,
    ) -> None:
        self._searcher = searcher
        self._budget = budget
        self._before = before
        self._bytes_per_s = bytes_per_s
        self._searched = searched
        self._part = budget.part(before, later)

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The searcher's decision, or the end of the search if the budget is used up."""
        decision = self._searcher.decide(history)
        used_up = self._used_up(self._before.plus(history, self._bytes_per_s))
        if used_up is None or isinstance(decision, (Done, GaveUp)):
            return decision
        if decision.checks and isinstance(self._searcher, Checking):
            return self._searcher.unchecked(history, f"{used_up} is used up")
        why = f"{used_up} is used up; {self._more(history, decision)}"
        counted, changed = history, tuple[Change, ...]()
        if isinstance(self._searcher, Checking):
            counted, changed = self._searcher.searched(history), self._searcher.changes(history)
        bracket = bracket_of(self._searched(counted))
        return GaveUp(bracket, why, self.interval(history), changed)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval of the limit; None if there is no interval."""
        return self._searcher.interval(history)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """The searcher's estimate of the number of remaining trials, at most the number that the
        budget allows.
        """
        left = self._searcher.trials_left(history)
        spent = self._before.plus(history, self._bytes_per_s)
        if self._used_up(spent) is not None:
            return 0
        return left if self._part.trials is None else min(left, self._part.trials - spent.trials)

    def _used_up(self, spent: Spent) -> str | None:
        """The limit of the budget that is reached, in words; None if no limit is reached."""
        whole, part = self._budget.exhausted(spent), self._part.exhausted(spent)
        return whole or (part and f"this size's part of the budget, {part.removeprefix(_THE)},")

    def _more(self, history: Sequence[Observation], decision: Measure) -> str:
        left = max(1, self._searcher.trials_left(history))
        spent = self._before.plus(history, self._bytes_per_s)
        each_s = spent.seconds / max(1, spent.trials)
        size = decision.load * self._bytes_per_s * each_s / 1e6
        return (
            f"about {left} more trials of {each_s:.0f} s and {size:.0f} MB each would finish "
            f"this point; raise the budget and resume"
        )
