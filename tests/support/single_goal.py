"""Searches of a single goal with a measurer that knows no goals, for simulations and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from search.closing import Checking
from search.guide import Guide
from search.guided import Guided
from search.line import FinishedPoint, Line
from search.lines import OnStep, run_goals, run_lines
from search.model import Decision, Done, GaveUp, Observation, Searcher, Verdict

OnOwnStep = Callable[[Decision, Sequence[Observation]], None]
"""`OnStep` for a single goal: (decision, its trials so far)."""
_GOAL = "goal"


class Measurer(Protocol):
    """A measurer that makes one trial per call. Trials differ only in the load."""

    def measure(self, load: int) -> Observation:
        """Offer `load` and return its observation."""
        ...


@runtime_checkable
class HoldingMeasurer(Protocol):
    """A measurer that can continue a load without a rest between windows."""

    def hold(self, load: int) -> Observation:
        """Hold the load for one window and return its observation."""
        ...


@runtime_checkable
class RecoveringMeasurer(Protocol):
    """A measurer that can wait until the cluster has recovered from an overload."""

    def recover(self) -> None:
        """Wait until the cluster has recovered from the last overload."""
        ...


class SingleGoalMeasurer:
    """A `GoalsMeasurer` for a search with a single goal; it recovers after an overload."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self._is_overloaded = self._is_holding = False

    def measure(self, load: int) -> dict[str, Observation]:
        """Offer the load and return its observation, under the name of the only goal."""
        self.recover()
        return self._seen(self._measurer.measure(load), is_holding=False)

    def hold(self, load: int) -> dict[str, Observation]:
        """Hold the load for one window, or make an ordinary trial if the measurer cannot hold."""
        if not self._is_holding:
            self.recover()
        if isinstance(self._measurer, HoldingMeasurer):
            return self._seen(self._measurer.hold(load), is_holding=True)
        return self._seen(self._measurer.measure(load), is_holding=True)

    def recover(self) -> None:
        """Wait until the cluster has recovered from an overload, if the measurer can."""
        if self._is_overloaded and isinstance(self._measurer, RecoveringMeasurer):
            self._measurer.recover()
        self._is_overloaded = False

    def _seen(self, seen: Observation, *, is_holding: bool) -> dict[str, Observation]:
        self._is_overloaded, self._is_holding = seen.verdict is Verdict.OVERLOADED, is_holding
        return {_GOAL: seen}


def guide_of(searcher: Searcher) -> Guide:
    """The guide of a `Guided` searcher; a guide without evidence for other searchers."""
    return searcher.guide if isinstance(searcher, Guided) else Guide()


def run_search(
    searcher: Searcher,
    measurer: Measurer,
    on_step: OnOwnStep | None = None,
    history: Sequence[Observation] = (),
    check_for_change: bool = True,
) -> Done | GaveUp:
    """Run `run_goals` for a single goal.

    Args:
        searcher: the searcher of the goal.
        measurer: makes the trials.
        on_step: called with every decision before it is carried out.
        history: finished trials of a resumed search, oldest first.
        check_for_change: True if a closing trial checks the limit for a change.
    """
    if check_for_change:
        searcher = Checking(searcher, guide_of(searcher))
    of_goal = SingleGoalMeasurer(measurer)
    ends = run_goals({_GOAL: searcher}, of_goal, _of_goal(on_step), {_GOAL: history})
    return ends[_GOAL].result


def run_line(
    line: Line,
    measurer_for: Callable[[int], Measurer],
    on_step: OnOwnStep | None = None,
    finished: Sequence[FinishedPoint] = (),
    begun: Sequence[Observation] = (),
) -> list[FinishedPoint]:
    """Run `run_lines` for a single goal; after each size, the cluster recovers."""
    used: list[SingleGoalMeasurer] = []

    def recover() -> None:
        for each in used[-1:]:
            each.recover()

    def at_size(message_bytes: int) -> SingleGoalMeasurer:
        recover()
        used.append(SingleGoalMeasurer(measurer_for(message_bytes)))
        return used[-1]

    points = run_lines(
        {_GOAL: line},
        at_size,
        _of_goal(on_step),
        {_GOAL: finished},
        {_GOAL: begun} if begun else None,
    )
    recover()
    return points[_GOAL]


def _of_goal(on_step: OnOwnStep | None) -> OnStep | None:
    """An `OnStep` that passes the trials of the only goal to `on_step`."""
    if on_step is None:
        return None
    return lambda decision, histories: on_step(decision, tuple(histories[_GOAL]))
