"""The vocabulary of the search: loads, verdicts, brackets and decisions.

A load is a whole number on the axis that is searched. On the boundary line, a load is the number of
identical producers. The structure follows MLRsearch (FD.io CSIT): a selector only makes decisions,
and a measurer makes the trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

LEVEL = 0.90
"""The probability with which an interval contains the true limit [ratio]."""


@dataclass(frozen=True)
class Interval:
    """The interval that contains the limit with a probability of `LEVEL`.

    Attributes:
        low, high: ends of the interval [producers, or loads of the axis that is searched].
        median: the best estimate of the limit; None if the trials determine only the interval.
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
    """The unit of a load in words.

    `many` is the plural of the unit. `one` is the singular, if the singular differs from the
    plural.
    """

    many: str
    one: str = ""

    def amount(self, load: int) -> str:
        """A load in words, such as `95 producers` or `1 producer`."""
        return f"{load:,} {self.one if load == 1 and self.one else self.many}"


PRODUCERS = LoadWords("producers", "producer")
"""The unit of the loads of a boundary line."""


class Verdict(str, Enum):
    """The verdict of a trial about its load.

    An INVALID trial gives no evidence and never counts as an overload.
    """

    SUSTAINED = "SUSTAINED"
    OVERLOADED = "OVERLOADED"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Observation:
    """One finished trial, reduced to the facts that the search needs.

    Attributes:
        load: the load that was offered, at least 1.
        verdict: the verdict of the trial.
        indicators: name of an indicator → its utilization: 0 is idle, 1 is at the threshold, and a
            value above 1 is beyond the threshold. For example, a handler idle fraction of 0.41 with
            a threshold of 0.20 gives (1-0.41)/(1-0.20). The map is empty if the source has no
            indicator.
        duration_s: duration of the trial, all phases [s].
        held: True if the trial is a window of a hold, see `search.confirming`.
        checks: True if the trial is a closing trial, see `search.closing`.
        cause: the cause of an INVALID trial, in words; empty for other trials.
        offered_share: if the trial is INVALID because the generator was the limit, the acknowledged
            load divided by the planned load [ratio]; None for other trials.
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

    Attributes:
        sustained: the highest sustained load; 0 if no load was sustained.
        overloaded: the lowest overloaded load above `sustained`; None if there is none yet.
    """

    sustained: int
    overloaded: int | None

    @property
    def upper(self) -> float:
        """The overloaded load; infinity if no load was overloaded yet."""
        return float("inf") if self.overloaded is None else self.overloaded

    @property
    def relative_width(self) -> float:
        """The relative width: 1 - sustained/overloaded [ratio]; infinity if no load was overloaded
        yet.
        """
        return self.upper if self.overloaded is None else 1.0 - self.sustained / self.overloaded

    def is_closed(self, resolution: float) -> bool:
        """True if the bracket is not wider than the resolution or if there is no load between its
        sides.
        """
        return self.upper - self.sustained <= 1 or self.relative_width <= resolution


@dataclass(frozen=True)
class Measure:
    """The decision to measure a load next.

    Attributes:
        load: the load.
        reason: the reason why this load is next, in one sentence.
        holds: True if the trial is a window of a hold, which is a long load that confirms a limit.
            A window of a hold follows the previous window without a rest and does not end early.
        checks: True if the trial repeats an early load at the end of a search, to check whether the
            limit changed.
    """

    load: int
    reason: str
    holds: bool = False
    checks: bool = False


VERY_PROBABLE, PROBABLE = 0.9, 2.0 / 3.0
"""A change is reported as certain if its probability is at least the first value, and as probable
if it is at least the second value [ratio]."""


@dataclass(frozen=True)
class Change:
    """A change of the limit during the measurement.

    Attributes:
        last_before: position in the history, from 0, of the last trial that was very probably
            before the change.
        since: position of the first trial that was very probably after the change. The limit after
            the change is computed only from this trial and later trials.
        probability: probability of the change when it was found [ratio].
        before, after: interval of the limit before the change and after the change; None if the
            trials do not show it.
    """

    last_before: int
    since: int
    probability: float
    before: Interval | None = None
    after: Interval | None = None

    @property
    def verb(self) -> str:
        """The verb for this probability, such as "probably changed". docs/search.md lists the
        verbs.
        """
        if self.probability >= VERY_PROBABLE:
            return "changed"
        return "probably changed" if self.probability >= PROBABLE else "may have changed"


@dataclass(frozen=True)
class Done:
    """The end of a search with a boundary point.

    Attributes:
        bracket: the final bracket, whose sustained side is the limit.
        confidence: probability that the limit is inside the bracket [ratio]; None if the searcher
            does not estimate this probability.
        interval: the 90 % interval of the limit; None if the searcher does not estimate an
            interval.
        notes: notes for readers of the result, one sentence for each note. For example, if an
            overload at or below the limit was outvoted by other trials of its load, a note reports
            this overload.
        confirmed_s: duration of the hold at the limit [s]; None if there was no hold.
        changed: the changes of the limit during the measurement, oldest first. The result is the
            limit after the last change.
    """

    bracket: Bracket
    confidence: float | None = None
    interval: Interval | None = None
    notes: tuple[str, ...] = ()
    confirmed_s: float | None = None
    changed: tuple[Change, ...] = ()


@dataclass(frozen=True)
class GaveUp:
    """The end of a search without a boundary point.

    Attributes:
        bracket: the narrowest bracket that was reached.
        reason: the reason why the search ended.
        interval: the 90 % interval of the limit; None if the trials do not show an interval.
        changed: the changes of the limit, as in `Done`.
    """

    bracket: Bracket
    reason: str
    interval: Interval | None = None
    changed: tuple[Change, ...] = ()


Decision = Measure | Done | GaveUp


class Searcher(Protocol):
    """A selector of loads. The decisions depend only on the history, so a resumed run makes the
    same decisions.
    """

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The next step after `history`, which has all trials of this point, oldest first."""
        ...

    def trials_left(self, history: Sequence[Observation]) -> int:
        """An estimate of the number of remaining trials, for progress and for plans."""
        ...

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit; None if the trials do not determine an interval."""
        ...


def bracket_of(history: Iterable[Observation]) -> Bracket:
    """The bracket of the valid trials. The trials can be in any order.

    Trials that contradict each other are normal. The upper bound is the lowest overload, and the
    lower bound is the highest sustained load strictly below the upper bound. So a sustained trial
    above an overload never raises the limit.
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
    """The number of successive INVALID trials of one load at the end of the history."""
    count = 0
    for seen in reversed(history):
        if seen.verdict is not Verdict.INVALID or seen.load != history[-1].load:
            break
        count += 1
    return count


@dataclass(frozen=True)
class LoadVerdict:
    """The verdicts of all valid trials of one load. The verdict of each trial is a vote for the
    verdict of the load.

    A load is measured a second time only if other evidence contradicts the verdict of its first
    trial. Therefore, in a tie, the last trial decides.
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
        """True if the trials of this load have different verdicts."""
        return len(set(self.votes)) > 1


class Trials:
    """The trials of a point, with the verdict of each load and the bracket.

    Attributes:
        history: the trials, oldest first.
        verdicts: load → votes of its valid trials.
        bracket: the bracket of the loads' verdicts, according to the rule of `bracket_of`.
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
        """The overloaded trials of those loads whose majority verdict is OVERLOADED."""
        return [
            seen
            for seen in self.history
            if seen.verdict is Verdict.OVERLOADED
            and self.verdicts[seen.load].verdict is Verdict.OVERLOADED
        ]


def notes_of(trials: Trials, words: LoadWords = PRODUCERS) -> tuple[str, ...]:
    """One note for each load whose trials contradict the limit."""
    notes, bracket = [], trials.bracket
    for load, one in sorted(trials.verdicts.items()):
        over = one.votes.count(Verdict.OVERLOADED)
        if load <= bracket.sustained and over:
            notes.append(
                f"{words.amount(load)}: overloaded in {over} of {len(one.votes)} trials, but "
                f"counts as sustained; the limit is {bracket.sustained}"
            )
        elif bracket.overloaded is not None and load >= bracket.overloaded:
            fine = len(one.votes) - over
            if fine:
                notes.append(
                    f"{words.amount(load)}: sustained in {fine} of {len(one.votes)} trials, but "
                    f"the lowest overload is at {bracket.overloaded}"
                )
    return tuple(notes)
