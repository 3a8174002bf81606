"""Holds. A hold confirms a limit by a long load. If the hold fails, a new search begins.

A search finds a limit with short trials, and brokers rest between trials. During a longer load,
segments roll, retention deletes records, the kernel writes pages back, and the JVM collects old
heaps. So `Confirming` requests a hold at the limit that a search found. A hold is a series of
windows without a rest of the brokers between the windows. The hold is judged by all of its windows:

* A hold *fails* if more than half of its windows are overloaded. A hold also fails as soon as more
  than three quarters of the windows in a stretch are overloaded. A stretch consists of successive
  windows: a quarter of the windows of the whole hold, but at least 3 and at most 15 windows. At any
  load near the limit, a few windows are overloaded by chance, so a few overloaded windows do not
  make a hold fail. A stretch soon shows an overload that lasts.
* After a failed hold, a new search begins at lower loads. Loads that were sustained before the hold
  no longer count, because the brokers have changed. The new search starts from two overloaded
  windows of the failed hold, and the utilization in these windows helps to choose the next load.
* The windows of a hold that has not failed are not trials of the search, so they do not change the
  bracket.

The history marks the windows of holds. Each decision depends only on the history, so a resumed run
makes the same decisions as a run that was not interrupted.

The steady limit is the highest load whose data the disks can write. The burst limit may be higher,
because during a burst the page cache absorbs a part of the data. `next_hold` chooses one load after
the other, beginning with the burst limit. A hold either proves that disks write all data of the
load, or shows the share of the data that disks write. The load of the next hold follows from the
share of the data that disks write.
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
"""Number of failed holds at one message size after which the search gives up."""

STRETCH_SHARE = 0.25
STRETCH_MIN, STRETCH_MAX = 3, 15
MOST = 0.75
"""A stretch is overloaded if its share of overloaded windows is above this value [ratio]."""


@dataclass(frozen=True)
class Confirmation:
    """The length of a hold.

    Attributes:
        windows: number of valid windows of a hold; 0 disables holds.
        window_s: time under load of each window, including the window's warm-up [s].
    """

    windows: int = 0
    window_s: float = 0.0

    @classmethod
    def lasting(cls, duration_s: float | None, window_s: float) -> Confirmation:
        """The length of a hold that lasts at least `duration_s` [s], in windows of `window_s` [s].

        If `duration_s` is None, limits are not confirmed by holds.
        """
        return cls(math.ceil(duration_s / window_s - 1e-9) if duration_s else 0, window_s)

    @property
    def stretch(self) -> int:
        """Length of a stretch: the number of successive windows that can make a hold fail."""
        quarter = math.ceil(STRETCH_SHARE * self.windows)
        return min(self.windows, max(STRETCH_MIN, min(STRETCH_MAX, quarter)))


@dataclass(frozen=True)
class Hold:
    """Successive windows at one load, without a rest between them.

    Attributes:
        load: the load that was held.
        windows: all windows, including INVALID windows, oldest first.
        plan: the planned length of the hold.
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
        """The positions of overloaded windows in `valid`, from 0."""
        return [i for i, each in enumerate(self.valid) if each.verdict is Verdict.OVERLOADED]

    @property
    def broke_at(self) -> int | None:
        """The position in `valid`, from 0, of the first window that made the hold fail; None if the
        hold did not fail.
        """
        overloads, stretch = self.overloads, self.plan.stretch
        for last in overloads:
            within = [i for i in overloads if last - stretch < i <= last]
            if len(within) > MOST * stretch:
                return within[0]
        return overloads[0] if 2 * len(overloads) > self.plan.windows else None

    @property
    def has_lasted(self) -> bool:
        """True if the hold reached its planned length and did not fail."""
        return len(self.valid) >= self.plan.windows and self.broke_at is None

    @property
    def held_s(self) -> float:
        """Total time under load of the valid windows [s]."""
        return len(self.valid) * self.plan.window_s

    @property
    def lasted_s(self) -> float:
        """Time under load before the first window that made the hold fail [s].

        If the hold did not fail, the result is the time of all windows.
        """
        return self.held_s if self.broke_at is None else self.broke_at * self.plan.window_s


@dataclass(frozen=True)
class SplitHistory:
    """A history, split into the trials of the search, and the holds (long loads that confirm a
    limit).

    Attributes:
        searched: the trials of the present search.
        failed: the failed holds at limits of this goal, oldest first.
        last: the latest hold that has not failed; None if there is no such hold. A hold that is
            older than a hold in `failed` does not count.
        is_under_way: True if the history ends with a window of the hold in `last`.
    """

    searched: tuple[Observation, ...]
    failed: tuple[Hold, ...] = ()
    last: Hold | None = None
    is_under_way: bool = False


def split_history(history: Sequence[Observation], plan: Confirmation) -> SplitHistory:
    """Split the history of one message size into the trials of the search, and the holds (long
    loads that confirm a limit).

    A failed hold above the limit of this goal is ignored, because another goal requested this hold.
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
            # Two overloads, because a search repeats a single one, and a failed hold is certain.
            split = SplitHistory(tuple((over * 2)[-2:]), (*split.failed, hold))
        else:
            split = replace(split, is_under_way=False)
    return split


class Confirming:
    """A searcher whose limit is confirmed by a hold, which is a long load at the limit.

    Args:
        searcher: finds the limit from the trials and, after a failed hold, from overloaded windows
            of this hold.
        limits: bounds, resolution and repeats of the searcher.
        plan: length of the hold at each limit.
    """

    def __init__(self, searcher: Searcher, limits: Limits, plan: Confirmation) -> None:
        self._searcher = searcher
        self._limits = limits
        self._plan = plan
        self._known: tuple[tuple[Observation, ...], Decision] | None = None

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The searcher's decision or, if the search has found a limit, the next window of the long
        load that confirms this limit.
        """
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
                f"{failures}; the next limit of {self._limits.words.amount(load)} was not held, "
                f"because {HOLDS_MAX} holds failed; find out what changes on brokers during a hold"
            )
            return GaveUp(decision.bracket, reason, decision.interval)
        return self._window(decision, hold if split.is_under_way else None)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval of the limit; None if there is no interval."""
        return self._searcher.interval(split_history(history, self._plan).searched)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Number of remaining trials, including windows of holds, if no further hold fails."""
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
        return f"a hold of {self._limits.words.amount(hold.load)} failed: {describe_failure(hold)}"

    def _decided(self, searched: tuple[Observation, ...]) -> Decision:
        """The searcher's decision.

        The decision is cached, because it is needed for every window of a hold.
        """
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
"""Load of the next hold, divided by the load whose data the disks wrote in the last hold [ratio].
The ratio is below 1, because a disk at its limit cannot catch up."""
STEP_DOWN = 0.8
"""Load of the next hold, divided by the load of the last hold, if the last hold was overloaded for
another reason than slow disks [ratio]."""
LEAST = 0.05
"""Smallest load of the next hold, divided by the load of the last hold [ratio]."""


@dataclass(frozen=True)
class SteadyHold:
    """One hold of the search for the steady limit.

    Attributes:
        load: the load of the hold.
        is_valid: False if the hold was INVALID. An INVALID hold gives no evidence.
        is_proven: True if the hold proves that the disks write all data of the load.
        written_share: share of the load's data that the disks wrote [ratio]; None if the load is
            too high for another reason than slow disks.
    """

    load: int
    is_valid: bool
    is_proven: bool = False
    written_share: float | None = None


def next_hold(burst: int, holds: Sequence[SteadyHold]) -> int | None:
    """The load of the next hold; None if the search for the steady limit has ended.

    Args:
        burst: the burst limit.
        holds: the earlier holds (long loads) of the search for the steady limit, oldest first.
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
