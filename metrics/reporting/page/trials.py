"""The trials of a run as a report lists them, with the brackets that rest on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow
from search.model import Verdict

BROKERS_MAX = 12
"""Brokers whose windows a trial shows at most: those with the least idle handlers."""
WINDOWS_MAX = 1_000
"""Windows in a report; in a long run each trial shows fewer brokers, but one at least."""
REASONS_MAX = 8
"""Reasons of a verdict that are told in full: a hundred brokers can give as many."""

LIMIT, TOO_MUCH = "sustained side", "overloaded side"

Sides = tuple[tuple[str, str], ...]
"""Where a bracket rests on a trial: `LIMIT` or `TOO_MUCH`, with the goal."""


@dataclass(frozen=True)
class GoalVerdict:
    """What one goal says of a trial: its verdict, its reasons as sentences, and what bound it."""

    goal: str
    verdict: str
    reasons: tuple[str, ...]
    limited_by: str
    attribution: str


@dataclass(frozen=True)
class ListedTrial:
    """One trial on the page.

    Attributes:
        trial: itself.
        sides: where a bracket rests on it.
        brokers_shown: of how many brokers the windows are shown.
    """

    trial: Trial
    sides: Sides
    brokers_shown: int

    @property
    def verdicts(self) -> tuple[GoalVerdict, ...]:
        """One for each goal that the run judges by."""
        return tuple(
            GoalVerdict(
                goal,
                said.verdict.value,
                shortened([reason.text for reason in said.reasons]),
                said.limited_by.value if said.limited_by else "",
                said.attribution,
            )
            for goal, said in self.trial.judgements.items()
        )

    @property
    def verdict(self) -> str:
        """The verdict of all goals, or of each where they differ."""
        return " / ".join(dict.fromkeys(each.verdict for each in self.verdicts))

    @property
    def reason(self) -> str:
        """The most telling reason of the first goal."""
        return next((text for each in self.verdicts for text in each.reasons), "")

    @property
    def windows(self) -> tuple[BrokerWindow, ...]:
        """Of the brokers with the least idle handlers."""
        order = sorted(self.trial.evidence.brokers, key=_idle_or_one)
        return tuple(sorted(order[: self.brokers_shown], key=lambda each: each.broker_id))


def listed_trials(
    trials: Sequence[Trial], boundaries: Sequence[Boundary]
) -> tuple[ListedTrial, ...]:
    """A run's trials in their order, with what the boundaries rest on."""
    ordered = sorted(trials, key=lambda each: each.number)
    sides = _sides(ordered, boundaries)
    shown = max(1, min(BROKERS_MAX, WINDOWS_MAX // max(1, len(ordered))))
    return tuple(ListedTrial(each, sides.get(each.number, ()), shown) for each in ordered)


def belongs_to(trial: Trial, boundary: Boundary) -> bool:
    """True when a trial was made for this point."""
    is_of_size = trial.point_bpm == boundary.bpm or boundary.along is MESSAGE_BYTES
    return is_of_size and trial.state == boundary.state


def _sides(trials: Sequence[Trial], boundaries: Sequence[Boundary]) -> dict[int, Sides]:
    """Trial number → what of which goal's bracket rests on it; the last trial at a load counts."""
    found: dict[tuple[str, int, str], int] = {}
    for trial in trials:
        for boundary in (each for each in boundaries if belongs_to(trial, each)):
            # The first versions of the tables name no goal.
            said = trial.judgements.get(boundary.goal) or trial.judgements.get("")
            low, over = boundary.loads
            ends = ((low, Verdict.SUSTAINED, LIMIT), (over, Verdict.OVERLOADED, TOO_MUCH))
            for load, verdict, side in ends:
                if trial.load == load and said is not None and said.verdict is verdict:
                    found[boundary.goal, boundary.bpm, side] = trial.number
    sides: dict[int, Sides] = {}
    for (goal, _, side), number in found.items():
        sides[number] = (*sides.get(number, ()), (side, goal))
    return sides


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first reasons, and how many more there are."""
    more = len(reasons) - REASONS_MAX
    return (*reasons[:REASONS_MAX], *([f"and {more} more"] if more > 0 else []))


def _idle_or_one(window: BrokerWindow) -> float:
    return 1.0 if window.handler_idle is None else window.handler_idle
