"""The trials of a run as a report lists them, with the brackets that they decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow
from search.model import Verdict

BROKERS_MAX = 12
"""Maximum number of brokers in a trial's evidence: those with the least idle handlers."""
WINDOWS_MAX = 1_000
"""Maximum number of windows in a report; in a long run each trial shows fewer brokers."""
REASONS_MAX = 8
"""Maximum number of reasons that a verdict lists; each of a hundred brokers can give one."""

LIMIT, OVERLOAD = "sustained side", "overloaded side"

Sides = tuple[tuple[str, str], ...]
"""The sides of brackets that a trial decided: (`LIMIT` or `OVERLOAD`, goal)."""


@dataclass(frozen=True)
class GoalVerdict:
    """One goal's verdict on a trial, with its reasons and the limiting resource."""

    goal: str
    verdict: str
    reasons: tuple[str, ...]
    limited_by: str
    attribution: str


@dataclass(frozen=True)
class ListedTrial:
    """One trial on the page.

    Attributes:
        trial: the trial.
        sides: the sides of brackets that the trial decided.
        brokers_shown: number of brokers whose windows are shown.
    """

    trial: Trial
    sides: Sides
    brokers_shown: int

    @property
    def verdicts(self) -> tuple[GoalVerdict, ...]:
        """The verdicts of the run's goals."""
        return tuple(
            GoalVerdict(
                goal,
                judgement.verdict.value,
                shortened([reason.text for reason in judgement.reasons]),
                judgement.limited_by.value if judgement.limited_by else "",
                judgement.attribution,
            )
            for goal, judgement in self.trial.judgements.items()
        )

    @property
    def verdict(self) -> str:
        """The common verdict of all goals, or the different verdicts, separated by slashes."""
        return " / ".join(dict.fromkeys(each.verdict for each in self.verdicts))

    @property
    def reason(self) -> str:
        """The most important reason of the first goal that has one."""
        return next((text for each in self.verdicts for text in each.reasons), "")

    @property
    def windows(self) -> tuple[BrokerWindow, ...]:
        """The windows of the brokers with the least idle handlers."""
        order = sorted(self.trial.evidence.brokers, key=_idle_or_one)
        return tuple(sorted(order[: self.brokers_shown], key=lambda each: each.broker_id))


def listed_trials(
    trials: Sequence[Trial], boundaries: Sequence[Boundary]
) -> tuple[ListedTrial, ...]:
    """A run's trials in chronological order, with the sides of brackets that they decided."""
    ordered = sorted(trials, key=lambda each: each.number)
    sides = _sides(ordered, boundaries)
    shown = max(1, min(BROKERS_MAX, WINDOWS_MAX // max(1, len(ordered))))
    return tuple(ListedTrial(each, sides.get(each.number, ()), shown) for each in ordered)


def belongs_to(trial: Trial, boundary: Boundary) -> bool:
    """True if a trial was made for this boundary point."""
    is_of_size = (
        trial.point_message_bytes == boundary.message_bytes or boundary.along is MESSAGE_BYTES
    )
    return is_of_size and trial.state == boundary.state


def _sides(trials: Sequence[Trial], boundaries: Sequence[Boundary]) -> dict[int, Sides]:
    """Trial number → the sides that it decided; of several trials at a load the last counts."""
    found: dict[tuple[str, int, str], int] = {}
    for trial in trials:
        for boundary in (each for each in boundaries if belongs_to(trial, each)):
            # The first versions of the tables have no name of the goal.
            judgement = trial.judgements.get(boundary.goal) or trial.judgements.get("")
            low, over = boundary.loads
            ends = ((low, Verdict.SUSTAINED, LIMIT), (over, Verdict.OVERLOADED, OVERLOAD))
            for load, verdict, side in ends:
                has_verdict = judgement is not None and judgement.verdict is verdict
                if trial.load == load and has_verdict:
                    found[boundary.goal, boundary.message_bytes, side] = trial.number
    sides: dict[int, Sides] = {}
    for (goal, _, side), number in found.items():
        sides[number] = (*sides.get(number, ()), (side, goal))
    return sides


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first reasons, and the number of further ones."""
    more = len(reasons) - REASONS_MAX
    return (*reasons[:REASONS_MAX], *([f"and {more} more"] if more > 0 else []))


def _idle_or_one(window: BrokerWindow) -> float:
    return 1.0 if window.handler_idle is None else window.handler_idle
