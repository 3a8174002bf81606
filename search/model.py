"""The vocabulary of the search: loads, verdicts, brackets, and what to do next.

A load is a whole number on the axis being searched; for the boundary line it is np,
the number of identical producers. The words follow MLRsearch (FD.io CSIT): a selector
that only decides, and an injected measurer that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from search.interval import Interval


@dataclass(frozen=True)
class LoadWords:
    """What a load counts, for people: `many` of them, and `one` where that is another word."""

    many: str
    one: str = ""

    def amount(self, load: int) -> str:
        """`95 producers`, `1 producer`."""
        return f"{load:,} {self.one if load == 1 and self.one else self.many}"


PRODUCERS = LoadWords("producers", "producer")
"""What a load of the boundary line counts."""


class Verdict(str, Enum):
    """What a trial says about its load. INVALID is no answer, never an overload."""

    SUSTAINED = "SUSTAINED"
    OVERLOADED = "OVERLOADED"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Observation:
    """One finished trial, as much of it as the search needs.

    Attributes:
        load: the load that was offered, at least 1.
        verdict: what the trial says about the load.
        indicators: for evidence that a smooth signal can carry, its utilization of the
            threshold by name: 0 is idle, 1 is exactly at the threshold, above 1 is over
            it (handler idle 0.41 against a threshold of 0.20 gives (1-0.41)/(1-0.20)).
            Empty where a source has none.
        duration_s: how long the trial took, all phases [s].
        held: it is a window of a load that was held, see `search.confirming`.
    """

    load: int
    verdict: Verdict
    indicators: dict[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    held: bool = False


@dataclass(frozen=True)
class Bracket:
    """The highest sustained load and the lowest overloaded load above it.

    `sustained` 0 means that no load above zero was sustained; `overloaded` None that
    nothing above `sustained` was overloaded so far.
    """

    sustained: int
    overloaded: int | None

    @property
    def relative_width(self) -> float:
        """1 - sustained/overloaded; infinite while the bracket is open [ratio]."""
        if self.overloaded is None:
            return float("inf")
        return 1.0 - self.sustained / self.overloaded

    def is_closed(self, resolution: float) -> bool:
        """True when no wider than the resolution, or when no whole load lies between."""
        if self.overloaded is None:
            return False
        return self.overloaded - self.sustained <= 1 or self.relative_width <= resolution


@dataclass(frozen=True)
class Measure:
    """Measure this load next; `reason` is one sentence for people.

    `holds` asks for a window of a load that is held: in full, and soon after the window before.
    """

    load: int
    reason: str
    holds: bool = False


@dataclass(frozen=True)
class Done:
    """The bracket is a boundary point.

    Attributes:
        bracket: the answer; its value is the sustained side.
        confidence: the probability that the limit lies inside the bracket, or None when
            the searcher does not estimate it [ratio].
        interval: where the limit lies at 90 %, or None when the searcher does not say.
        notes: what a reader of the answer has to know, one sentence each; above all,
            every overload at or below the answer that was outvoted.
        confirmed_s: for how long the answer was held and lasted, or None when it was
            not held [s].
    """

    bracket: Bracket
    confidence: float | None = None
    interval: Interval | None = None
    notes: tuple[str, ...] = ()
    confirmed_s: float | None = None


@dataclass(frozen=True)
class GaveUp:
    """No boundary point; `reason` says why, `bracket` is the best so far.

    `interval` is where the limit lies at 90 %, or None where the trials do not say.
    """

    bracket: Bracket
    reason: str
    interval: Interval | None = None


Decision = Measure | Done | GaveUp


class Searcher(Protocol):
    """Decides from the history alone, so that a resumed run decides the same."""

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The next step after `history` (all trials of this point, oldest first)."""
        ...

    def trials_left(self, history: Sequence[Observation]) -> int:
        """An estimate of the trials still needed, for progress and plans."""
        ...


@runtime_checkable
class IntervalSearcher(Protocol):
    """A searcher that says where the limit lies, whether its search is over or not."""

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """Where the limit lies at 90 % by these trials, or None where they do not say."""
        ...


@runtime_checkable
class RecoveringMeasurer(Protocol):
    """A measurer that can bring the cluster back to rest after an overload."""

    def recover(self) -> None:
        """Wait until the cluster is as it was before the overload."""
        ...


@runtime_checkable
class HoldingMeasurer(Protocol):
    """A measurer that can go on with a load, without rest for the cluster before it."""

    def hold(self, load: int) -> Observation:
        """One window of a load that is held."""
        ...


class Measurer(Protocol):
    """Carries out one trial. Only the load varies between calls."""

    def measure(self, load: int) -> Observation:
        """Offer `load`, judge it, keep the evidence, and say what was seen."""
        ...
