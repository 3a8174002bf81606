"""The vocabulary of the search: loads, verdicts, brackets and decisions.

A load is a whole number on the axis being searched; for the boundary line it is
the number of identical producers. The words follow MLRsearch (FD.io CSIT): a selector
that only decides, and an injected measurer that does.

The interval of a limit, which contains the true limit in 90 % of all points.

The bracket that a history of trials supports.

The verdict of a load by the majority of its trials, so that one fluke is not a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

LEVEL = 0.90
"""Share of points whose interval contains the true limit."""


@dataclass(frozen=True)
class Interval:
    """The limit's interval at `LEVEL` [producers, or the load of the axis that is searched].

    `median` is the best estimate of the limit, above and below which it lies with the same
    probability; None where the trials show only the interval.
    """

    low: float
    high: float
    median: float | None = None

    @property
    def relative_width(self) -> float:
        """1 - low/high [ratio]."""
        return 1.0 - self.low / self.high


@dataclass(frozen=True)
class LoadWords:
    """The unit of a load in words: `many` is the plural, `one` the singular if it differs."""

    many: str
    one: str = ""

    def amount(self, load: int) -> str:
        """A load in words: `95 producers`, `1 producer`."""
        return f"{load:,} {self.one if load == 1 and self.one else self.many}"


PRODUCERS = LoadWords("producers", "producer")
"""The unit of the loads of a boundary line."""


class Verdict(str, Enum):
    """The verdict of a trial about its load. INVALID is not an answer and never an overload."""

    SUSTAINED = "SUSTAINED"
    OVERLOADED = "OVERLOADED"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Observation:
    """One finished trial, reduced to what the search needs.

    Attributes:
        load: the load that was offered, at least 1.
        verdict: the verdict of the trial.
        indicators: name of an indicator → its utilization of the threshold: 0 is idle, 1 is
            exactly at the threshold, above 1 is beyond it (handler idle 0.41 against a
            threshold of 0.20 gives (1-0.41)/(1-0.20)). Empty where a source has none.
        duration_s: duration of the trial, all phases [s].
        held: True for a window of a load that is held, see `search.confirming`.
        checks: True for a trial that looks for a change of the limit, see `search.checking`.
        cause: what made an INVALID trial so, in words for people; empty for other trials.
        offered_share: share of the load that the generator offered in a trial that is INVALID
            because the generator was the limit; None for other trials [ratio].
    """

    load: int
    verdict: Verdict
    indicators: dict[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    held: bool = False
    cause: str = ""
    offered_share: float | None = None
    checks: bool = False


@dataclass(frozen=True)
class Bracket:
    """The highest sustained load and the lowest overloaded load above it.

    `sustained` is 0 where no load was sustained; `overloaded` is None where no load above
    `sustained` was overloaded so far.
    """

    sustained: int
    overloaded: int | None

    @property
    def upper(self) -> float:
        """The overloaded load; infinite while the bracket is open."""
        return float("inf") if self.overloaded is None else self.overloaded

    @property
    def relative_width(self) -> float:
        """1 - sustained/overloaded; infinite while the bracket is open [ratio]."""
        return self.upper if self.overloaded is None else 1.0 - self.sustained / self.overloaded

    def is_closed(self, resolution: float) -> bool:
        """True when the bracket is no wider than the resolution or contains no other whole load."""
        return self.upper - self.sustained <= 1 or self.relative_width <= resolution


@dataclass(frozen=True)
class Measure:
    """The decision to measure a load next; `reason` is one sentence for people.

    `holds` requests a window of a load that is held: it is not ended early and follows the window
    before it soon. `checks` requests a trial that looks for a change of the limit.
    """

    load: int
    reason: str
    holds: bool = False
    checks: bool = False


VERY_PROBABLE, PROBABLE = 0.9, 2.0 / 3.0
"""Probabilities from which something is said as a fact, and as probable [ratio]."""


@dataclass(frozen=True)
class Change:
    """A change of the limit while it was measured.

    Positions are those of trials in the history of the point, from 0.

    Attributes:
        last_before: the last trial that was very probably before the change.
        since: the first trial that was very probably after it; earlier ones do not count for the
            present limit.
        probability: probability that the limit changed, by the trials that decided [ratio].
        before, after: the limit on either side, as known when the change was found; None where
            the trials do not show it.
    """

    last_before: int
    since: int
    probability: float
    before: Interval | None = None
    after: Interval | None = None

    @property
    def verb(self) -> str:
        """What is said of the limit, by the scale of words of docs/search.md."""
        if self.probability >= VERY_PROBABLE:
            return "changed"
        return "probably changed" if self.probability >= PROBABLE else "may have changed"


@dataclass(frozen=True)
class Done:
    """The end of a search with a boundary point.

    Attributes:
        bracket: the answer; its value is the sustained side.
        confidence: the probability that the limit lies inside the bracket, or None when
            the searcher does not estimate it [ratio].
        interval: the 90 % interval of the limit, or None when the searcher does not state it.
        notes: notes for the reader of the answer, one sentence each; above all, every
            outvoted overload at or below the answer.
        confirmed_s: the time for which the answer was held, or None when it was not held [s].
        changed: the changes of the limit while it was measured, oldest first; the answer is the
            limit after the last one.
    """

    bracket: Bracket
    confidence: float | None = None
    interval: Interval | None = None
    notes: tuple[str, ...] = ()
    confirmed_s: float | None = None
    changed: tuple[Change, ...] = ()


@dataclass(frozen=True)
class GaveUp:
    """The end of a search without a boundary point, for `reason`; `bracket` is the best so far.

    `interval` is the 90 % interval of the limit, or None where the trials do not show it;
    `changed` has the changes of the limit, as in `Done`.
    """

    bracket: Bracket
    reason: str
    interval: Interval | None = None
    changed: tuple[Change, ...] = ()


Decision = Measure | Done | GaveUp


class Searcher(Protocol):
    """A selector that decides from the history alone, so that a resumed run decides the same."""

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The next step after `history` (all trials of this point, oldest first)."""
        ...

    def trials_left(self, history: Sequence[Observation]) -> int:
        """An estimate of the trials still needed, for progress and plans."""
        ...

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit by these trials, or None where they do not show it."""
        ...


@runtime_checkable
class RecoveringMeasurer(Protocol):
    """A measurer that can bring the cluster back to rest after an overload."""

    def recover(self) -> None:
        """Wait until the cluster is as it was before the overload."""
        ...


@runtime_checkable
class HoldingMeasurer(Protocol):
    """A measurer that can continue a load without a rest for the cluster."""

    def hold(self, load: int) -> Observation:
        """Hold the load for one window and return what was observed."""
        ...


class Measurer(Protocol):
    """A measurer that makes one trial per call. Only the load varies between calls."""

    def measure(self, load: int) -> Observation:
        """Offer `load`, judge it, keep the evidence, and return what was observed."""
        ...


def bracket_of(history: Iterable[Observation]) -> Bracket:
    """The bracket that the valid trials support, whatever their order.

    Results that contradict each other are normal. The upper bound is the lowest
    overload, and the lower bound is the highest sustained load strictly below it, so a
    sustained trial above an overload never raises the answer.
    """
    history = list(history)
    return _bracket(
        (seen.load for seen in history if seen.verdict is Verdict.SUSTAINED),
        (seen.load for seen in history if seen.verdict is Verdict.OVERLOADED),
    )


def _bracket(sustained: Iterable[int], overloaded: Iterable[int]) -> Bracket:
    upper = min(overloaded, default=None)
    below = (load for load in sustained if upper is None or load < upper)
    return Bracket(max(below, default=0), upper)


def invalid_in_a_row(history: Sequence[Observation]) -> int:
    """The number of INVALID trials of one load that end the history."""
    count = 0
    for seen in reversed(history):
        if seen.verdict is not Verdict.INVALID or seen.load != history[-1].load:
            break
        count += 1
    return count


@dataclass(frozen=True)
class LoadVerdict:
    """The votes of the trials of one load.

    A load is measured again only when its verdict is in doubt. So the evidence supports a repeat
    that contradicts the first trial: in a tie the last one wins.
    """

    load: int
    votes: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the majority, SUSTAINED or OVERLOADED."""
        over = self.votes.count(Verdict.OVERLOADED)
        fine = len(self.votes) - over
        if over == fine:
            return self.votes[-1]
        return Verdict.OVERLOADED if over > fine else Verdict.SUSTAINED

    @property
    def is_contradictory(self) -> bool:
        """True when the trials of this load disagree."""
        return len(set(self.votes)) > 1


class Trials:
    """The trials of a point, oldest first, and what they show together.

    Attributes:
        history: the trials.
        verdicts: the verdict of every load with a valid trial.
        bracket: the bracket as by `bracket_of`, with one vote per load.
    """

    def __init__(self, history: Sequence[Observation]) -> None:
        self.history = history
        votes: dict[int, list[Verdict]] = {}
        for seen in history:
            if seen.verdict is not Verdict.INVALID:
                votes.setdefault(seen.load, []).append(seen.verdict)
        self.verdicts = {load: LoadVerdict(load, tuple(cast)) for load, cast in votes.items()}
        self.bracket = _bracket(
            self._loads_that_are(Verdict.SUSTAINED), self._loads_that_are(Verdict.OVERLOADED)
        )

    def _loads_that_are(self, verdict: Verdict) -> list[int]:
        return [load for load, one in self.verdicts.items() if one.verdict is verdict]

    @property
    def overloads(self) -> list[Observation]:
        """The overloaded trials of loads that the majority of their trials overloaded."""
        return [
            seen
            for seen in self.history
            if seen.verdict is Verdict.OVERLOADED
            and self.verdicts[seen.load].verdict is Verdict.OVERLOADED
        ]


def notes_of(trials: Trials, words: LoadWords = PRODUCERS) -> tuple[str, ...]:
    """Notes for the reader about trials that contradict the answer."""
    notes, bracket = [], trials.bracket
    for load, one in sorted(trials.verdicts.items()):
        over = one.votes.count(Verdict.OVERLOADED)
        if load <= bracket.sustained and over:
            notes.append(
                f"{words.amount(load)}: overloaded in {over} of {len(one.votes)} trials, but "
                f"counts as sustained, at or below the answer of {bracket.sustained}"
            )
        elif bracket.overloaded is not None and load >= bracket.overloaded:
            fine = len(one.votes) - over
            if fine:
                notes.append(
                    f"{words.amount(load)}: sustained in {fine} of {len(one.votes)} trials, above "
                    f"the overload at {bracket.overloaded}"
                )
    return tuple(notes)
