"""The look for a change of the limit while it was measured, at the end of a search.

A limit is found by trials one after the other, so an answer combines what the cluster was at
different times. `Checking` repeats one early trial after the search has ended, and compares all
trials over time (`search.checking`):

* Where the trials show no change, the answer stands. The repeat moves no bound.
* Where they raise suspicion, up to `MORE_MAX` further trials at this load decide. They count for
  the answer, too, so that a bound which they contradict is measured again. The new answer is
  checked once more.
* Where the limit changed, the trials before the change do not count any more: the search goes on
  with those after it, and its new answer is checked in turn.

The load that is repeated is the sustained bound of the answer: it is near the limit, and its
reading tells most, as past the threshold readings are compressed. A bound that the readings
contradict comes before it; without a reading, the bound that was measured first is repeated. Where
repeats confirm an overload, and the sustained bound below it is older, that bound is repeated next:
a limit that fell in between explains both.

The decision follows from the history alone, in which these trials are marked, so that a resumed
run decides the same.

The probability that the limit changed while it was measured, and when.

Two hypotheses are compared for the valid trials of a point, in their order: one limit for all of
them, or one limit up to some trial and another one from there on, which differs by `LEAST` or more.
As in `search.posterior`, each trial has a limit of its own: the limit times a random scatter, whose
size is unknown. Readings may be strays and verdicts may be flukes, so a single trial that differs
is no change. Limits are on a grid; the noise and the gain of the curve are each on a coarse one,
and both hypotheses are summed over them.

Trials far from the limit are at the beginning of a search, and the curve's form is not known. So
residuals alone do not tell a change from a curve that bends; a trial that repeats an early load
does, as both have the same error of the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul, sub
from statistics import fmean

from search.estimate import Curve
from search.guide import Guide
from search.guided import Guided
from search.model import (
    PRODUCERS,
    Bracket,
    Change,
    Decision,
    Done,
    GaveUp,
    Interval,
    LoadWords,
    Measure,
    Observation,
    Searcher,
    Trials,
    Verdict,
    invalid_in_a_row,
)
from search.posterior import FLUKE, STRAY, STRAY_SPREAD, Posterior, TrialEvidence, evidence_of

LEAST = 0.06
"""Smallest change of the limit that counts as one [ln]."""
PROBABLE = 0.1
"""Probability of a change in a run, before its trials."""
NOISE_MEDIAN, NOISE_SPREAD = 0.022, 0.8
"""The noise before any trial: its median [ratio], and the σ of its logarithm."""
NEAR = 0.5
"""Size up to which half of all changes are expected to be [ln]."""
_NOISES = (0.01, 0.018, 0.032, 0.057)
_GAIN_STEPS = (-1.5, -0.75, 0.0, 0.75, 1.5)
_TAIL = 0.05
_STEP = 0.02
_REACH = 0.5
_ROOT_2 = math.sqrt(2.0)


def suspicion(trials: Sequence[TrialEvidence], curve: Curve) -> Change:
    """The probable change in the trials of a point; its positions are among these trials.

    Args:
        trials: evidence of the valid trials, oldest first.
        curve: the curve with which they were read; its gain is the middle of those tried.
    """
    count = len(trials)
    if count < 2:
        return Change(0, 0, 0.0)
    grid = _grid(trials, curve)
    steady = 0.0
    splits = [0.0] * count
    sides = []
    share = 1.0 / len(grid)
    for weight, rows in _layers(trials, curve, grid):
        firsts = list(accumulate(rows, _times))
        lasts = list(accumulate(reversed(rows), _times))[::-1]
        steady += weight * share * sum(firsts[-1])
        for split in range(1, count):
            splits[split] += weight * share * sum(map(mul, firsts[split - 1], _apart(lasts[split])))
        sides.append((weight, firsts, lasts))
    prior = PROBABLE / (count - 1)
    changed = prior * sum(splits)
    total = changed + (1.0 - PROBABLE) * steady
    if total <= 0.0:
        return Change(0, 0, 0.0)
    likeliest = max(range(1, count), key=splits.__getitem__)
    before, after = [0.0] * len(grid), [0.0] * len(grid)
    for weight, firsts, lasts in sides:
        one, other = firsts[likeliest - 1], lasts[likeliest]
        before = _plus(before, weight, _times(one, _apart(other)))
        after = _plus(after, weight, _times(other, _apart(one)))
    return Change(
        _split_at(splits, _TAIL) - 1,
        _split_at(splits, 1.0 - _TAIL),
        changed / total,
        _interval(grid, before),
        _interval(grid, after),
    )


def _plus(sums: Sequence[float], weight: float, row: Sequence[float]) -> list[float]:
    return [total + weight * each for total, each in zip(sums, row, strict=True)]


def _split_at(splits: Sequence[float], share: float) -> int:
    """The first trial before which the change happened with this probability."""
    total, found = sum(splits), 0.0
    for split, weight in enumerate(splits):
        found += weight
        if weight > 0.0 and found >= share * total:
            return split
    return len(splits) - 1


def _grid(trials: Sequence[TrialEvidence], curve: Curve) -> list[float]:
    """Values of ln limit that reach beyond all limits that the trials show."""
    centers = [one.load if one.met is None else one.met - curve.gain * one.slope for one in trials]
    near = sorted(centers)
    low, high = near[0] - _REACH, near[-1] + _REACH
    cells = max(2, math.ceil((high - low) / _STEP))
    return [low + (high - low) * (cell + 0.5) / cells for cell in range(cells)]


def _layers(
    trials: Sequence[TrialEvidence], curve: Curve, grid: Sequence[float]
) -> Iterator[tuple[float, list[list[float]]]]:
    """The likelihood of each trial on the grid, for each noise and gain, with its weight."""
    spread = max(0.15, curve.gain_spread / curve.gain)
    gains = [curve.gain * math.exp(spread * away) for away in _GAIN_STEPS]
    for noise in _NOISES:
        own = _bell(math.log(noise / NOISE_MEDIAN) / NOISE_SPREAD)
        for gain, away in zip(gains, _GAIN_STEPS, strict=True):
            rows = [_row(one, noise, gain, grid) for one in trials]
            yield own * _bell(away), rows


def _row(trial: TrialEvidence, noise: float, gain: float, grid: Sequence[float]) -> list[float]:
    """The likelihood of a trial for each limit."""
    if trial.met is None:
        spread = _ROOT_2 * math.hypot(noise, trial.error) * (1.0 if trial.held else -1.0)
        edge = trial.load - gain * trial.slope
        return [0.5 * FLUKE + (1.0 - FLUKE) * 0.5 * math.erfc((edge - x) / spread) for x in grid]
    met = trial.met - gain * trial.slope
    spread = math.hypot(noise, trial.error)
    wide = math.hypot(spread, STRAY_SPREAD)
    unit = gain if trial.by_curve else 1.0
    close, far = unit * (1.0 - STRAY) / spread, unit * STRAY / wide
    exp, narrow, broad = math.exp, -0.5 / spread**2, -0.5 / wide**2
    aways = [x - met for x in grid]
    return [
        close * exp(narrow * square) + far * exp(broad * square)
        for square in map(mul, aways, aways)
    ]


def _apart(row: Sequence[float]) -> list[float]:
    """For each limit, the mean over the limits that differ from it by `LEAST` or more.

    Half of the weight is on those that differ by at most `NEAR`.
    """
    least, near, count = round(LEAST / _STEP), round(NEAR / _STEP), len(row)
    sums = [0.0] * near + list(accumulate(row, initial=0.0))
    total = sums[-1]
    sums += [total] * near
    close, far = 0.25 / (near - least), 0.5 / count
    outer = map(sub, sums[2 * near :], sums[1:])
    inner = map(sub, sums[near + least :], sums[near - least + 1 :])
    return [
        close * (both - same) + far * (total - same)
        for both, same, _ in zip(outer, inner, row, strict=False)
    ]


def _times(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return list(map(mul, one, other))


def _interval(grid: Sequence[float], weights: Sequence[float]) -> Interval | None:
    total, step = sum(weights), grid[1] - grid[0]
    if total <= 0.0:
        return None
    shares = tuple(weight / total for weight in weights)
    return Posterior(grid[0] - 0.5 * step, step, shares).interval()


def _bell(away: float) -> float:
    return math.exp(-0.5 * away * away)


MORE_MAX = 3
"""Highest number of trials after the first repeat, where that raises suspicion."""
SUSPECT, SUSPECT_IF_APART = 0.12, 0.03
"""Probability of a change from which further trials decide; the second one where the repeats differ
from the early trial."""
SUSPECT_BESIDE_OVERLOAD = 0.08
"""The first one where repeats confirmed an overload that is newer than the sustained bound."""
APART = 0.055
"""Difference between the limits that the repeats and the early trial at their load show [ln]."""
SURE = 0.9
"""Probability of a change from which no further trial is needed."""
CERTAIN = 0.99
"""Probability of a change from which it is one even if readings near the limit do not differ."""
LIKELY = 0.2
"""Probability of a change, after all further trials, from which it is one: as they repeat one load
and agree with each other, the model, which allows for noise of any size, understates it."""
BY_THEMSELVES = 0.5
"""Probability of a change by the trials of a search alone, from which it needs a repeat."""
NEAR_LIMIT = 0.2
"""Distance of a utilization from that at the limit up to which the curve's form counts little [ln].
"""
CHANGES_MAX = 3
"""Number of changes after which an answer is not checked any more."""
INVALID_MAX = 2
"""Number of INVALID repeats in a row after which the answer stands unchecked."""


@dataclass(frozen=True)
class CheckedHistory:
    """A history, split at the changes of the limit.

    Attributes:
        start: position of the first trial that counts for the present limit.
        plain: number of trials from the beginning whose marks do not count any more, as all of
            them are trials of the search.
        changes: the changes, oldest first.
        found: the evidence of a change since the last one, by the trials that look for it; None
            without such trials.
        is_suspicious: True when `found` needs further trials.
        is_checked: True when no further trial is needed for these trials.
        looks: number of looks without a change whose trials count for the answer.
    """

    start: int = 0
    plain: int = 0
    changes: tuple[Change, ...] = ()
    found: Change | None = None
    is_suspicious: bool = False
    is_checked: bool = False
    looks: int = 0


class Checking:
    """A searcher whose answer is checked for a change of the limit before it counts.

    Args:
        searcher: finds the limit; its history contains no trials that look for a change.
        guide: reads the trials.
        words: the unit of a load in words.
        is_first: False for a goal that leaves the first repeat to another one.
        answer: the trials of a search that has ended, and its end; None while it goes on.
    """

    def __init__(
        self,
        searcher: Searcher,
        guide: Guide,
        words: LoadWords = PRODUCERS,
        is_first: bool = True,
        answer: tuple[Sequence[Observation], Done | GaveUp] | None = None,
    ) -> None:
        self._searcher = searcher
        self._guide = guide
        self._words = words
        self._is_first = is_first
        self._answer = answer
        self._known: tuple[tuple[Observation, ...], CheckedHistory] = ((), CheckedHistory())

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The searcher's next step, or a trial that looks for a change after its end."""
        split = self._split(history)
        decision = self._decided(history, split)
        if isinstance(decision, Measure):
            if split.changes and len(history) <= split.plain:
                change = describe(split.changes[-1], self._words)
                decision = replace(decision, reason=f"{change}; {decision.reason}")
            return decision
        if isinstance(decision, GaveUp) or not self._trials_wanted(history, split):
            return self._ended(decision, split, _is_spoiled(history[split.plain :]))
        load = self._load(history, split, decision.bracket)
        reason = f"repeating {self._words.amount(load)}"
        if split.found is None or not split.is_suspicious:
            reason += " to see whether the limit changed since"
        else:
            share = f"{100 * split.found.probability:.0f} %"
            reason = f"the limit may have changed ({share}); {reason}"
        return Measure(load, reason, checks=True)

    def unchecked(self, history: Sequence[Observation], why: str) -> Decision:
        """The decision without a further trial that looks for a change."""
        split = self._split(history)
        decision = self._decided(history, split)
        if isinstance(decision, Done):
            note = f"not checked for a change of the limit, as {why}"
            decision = replace(decision, notes=(*decision.notes, note))
        return decision if isinstance(decision, Measure) else self._ended(decision, split)

    def searched(self, history: Sequence[Observation]) -> tuple[Observation, ...]:
        """The trials that count for the present limit and do not look for a change."""
        return self._searched(history, self._split(history))

    def changes(self, history: Sequence[Observation]) -> tuple[Change, ...]:
        """The changes of the limit so far, oldest first."""
        return self._split(history).changes

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval, where it states one."""
        return self._searcher.interval(self.searched(history))

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Trials until the end when no change is found."""
        split = self._split(history)
        is_answered = not isinstance(self._decided(history, split), Measure)
        searched = self._searched(history, split)
        left = 0 if is_answered else self._searcher.trials_left(searched)
        return left + self._trials_wanted(history, split)

    def _decided(self, history: Sequence[Observation], split: CheckedHistory) -> Decision:
        """The searcher's decision, or the known answer until its trials are not all that counts."""
        searched = self._searched(history, split)
        if self._answer is not None and searched == tuple(self._answer[0]):
            return self._answer[1]
        return self._searcher.decide(searched)

    def _trials_wanted(self, history: Sequence[Observation], split: CheckedHistory) -> bool:
        """True where the answer needs a (further) trial that looks for a change."""
        is_new = _is_answered_anew(history, split)
        if (split.is_checked and not is_new) or len(split.changes) >= CHANGES_MAX:
            return False
        checks = [seen for seen in history[split.plain :] if seen.checks]
        if _is_spoiled(history[split.plain :]):
            return False
        return bool(checks) or self._is_first or is_new

    def _split(self, history: Sequence[Observation]) -> CheckedHistory:
        known, split = self._known
        history = tuple(history)
        if history[: len(known)] != known:
            known, split = (), CheckedHistory()
        for count in range(len(known), len(history)):
            if history[count].checks and history[count].verdict is not Verdict.INVALID:
                split = self._checked(history[: count + 1], split)
        self._known = (history, split)
        return split

    def _checked(self, history: tuple[Observation, ...], split: CheckedHistory) -> CheckedHistory:
        """The split after one more trial that looks for a change."""
        positions = [
            position
            for position in range(split.start, len(history))
            if history[position].verdict is not Verdict.INVALID and not history[position].held
        ]
        trials = [history[position] for position in positions]
        found = suspicion_of(trials, self._guide)
        checks = [
            history[each] for each in positions if each >= split.plain and history[each].checks
        ]
        is_last, is_alone = len(checks) > MORE_MAX, len(positions) - found.since < 2
        if is_alone or found.probability < self._enough(trials, found, len(checks)):
            is_suspicious = self._is_suspicious(trials, found, len(checks))
            is_checked = is_last or not is_suspicious
            plain = len(history) if is_checked and len(checks) > 1 else split.plain
            return replace(
                split,
                found=found,
                plain=plain,
                is_suspicious=is_suspicious,
                is_checked=is_checked,
                looks=split.looks + (plain > split.plain),
            )
        change = replace(
            found,
            last_before=positions[found.last_before],
            since=positions[found.since],
            probability=round(found.probability, 3),
        )
        return CheckedHistory(change.since, len(history), (*split.changes, change))

    def _is_suspicious(self, trials: Sequence[Observation], found: Change, checks: int) -> bool:
        """True where a change is probable, or possible and the repeats do not speak against it."""
        if found.probability >= SUSPECT or found.probability < SUSPECT_IF_APART:
            return found.probability >= SUSPECT
        if found.probability >= SUSPECT_BESIDE_OVERLOAD and (
            _confirms_newer_overload(trials, checks)
        ):
            return True
        apart = self._apart(trials, checks)
        if apart is not None:
            return apart > APART
        early = zip(trials[:-checks], self._limits_shown(trials)[:-checks], strict=True)
        was_read = any(one is not None and seen.load == trials[-1].load for seen, one in early)
        return was_read and checks == 1

    def _enough(self, trials: Sequence[Observation], found: Change, checks: int) -> float:
        """The probability of a change from which it is one.

        Where readings near the limit, or at the load that is repeated, do not differ, only trials
        far from the limit speak for a change, and so may the form of the curve.
        """
        shown = self._limits_shown(trials)
        near = [None if one is None or abs(one[1]) > NEAR_LIMIT else one[0] for one in shown]
        same = self._apart(trials, checks)
        around = _difference(near[: found.since], near[found.since :])
        known = [side for side in (same, around) if side is not None]
        if known and max(known) <= APART:
            return SURE if around is None else CERTAIN
        if checks <= MORE_MAX:
            return SURE
        return LIKELY if known else BY_THEMSELVES

    def _apart(self, trials: Sequence[Observation], checks: int) -> float | None:
        """The difference between the limits that the repeats and early trials at their load show
        [ln]; None where readings do not show it.
        """
        load = trials[-1].load
        shown = [
            None if one is None or seen.load != load else one[0]
            for seen, one in zip(trials, self._limits_shown(trials), strict=True)
        ]
        return _difference(shown[:-checks], shown[-checks:])

    def _limits_shown(self, trials: Sequence[Observation]) -> list[tuple[float, float] | None]:
        """The limit that each reading shows [ln], and its distance from the load; None without
        one.
        """
        curve = self._guide.curve_by_overloads(trials)
        return [
            (one.met - curve.gain * one.slope, one.slope)
            if one.by_curve and one.met is not None
            else None
            for one in evidence_of(trials, self._guide.signals, curve)
        ]

    def _searched(
        self, history: Sequence[Observation], split: CheckedHistory
    ) -> tuple[Observation, ...]:
        counted = [
            replace(seen, checks=False)
            for position, seen in enumerate(history)
            if position >= split.start and (position < split.plain or not seen.checks)
        ]
        return tuple(counted)

    def _load(self, history: Sequence[Observation], split: CheckedHistory, bracket: Bracket) -> int:
        """The load to repeat: that of the checks so far, or the bound that tells most."""
        valid = _valid(self._searched(history, split))
        begun = _valid([seen for seen in history[split.plain :] if seen.checks])
        if begun and _confirms_newer_overload([*valid, *begun], len(begun)):
            return bracket.sustained
        if begun:
            return begun[-1].load
        doubt = self._guide.find_doubt(Trials(valid), bracket)
        if doubt is not None and doubt[0] in (bracket.sustained, bracket.overloaded):
            return doubt[0]
        loads = [seen.load for seen in valid]
        curve = self._guide.curve_by_overloads(valid)
        shown = zip(loads, evidence_of(valid, self._guide.signals, curve), strict=True)
        if any(load == bracket.sustained and one.by_curve for load, one in shown):
            return bracket.sustained
        bounds = [each for each in (bracket.sustained, bracket.overloaded) if each in loads]
        return min(bounds, key=loads.index) if bounds else max(1, bracket.sustained)

    def _ended(
        self, end: Done | GaveUp, split: CheckedHistory, is_spoiled: bool = False
    ) -> Done | GaveUp:
        if isinstance(end, Done) and is_spoiled:
            note = "not checked for a change of the limit, as the repeats at the end were INVALID"
            end = replace(end, notes=(*end.notes, note))
        if isinstance(end, Done) and split.found and split.is_suspicious:
            share = f"{100 * split.found.probability:.0f} %"
            note = (
                f"the limit may have changed while it was measured, with a probability of {share}"
            )
            end = replace(end, notes=(*end.notes, note))
        return replace(end, changed=split.changes)


def _valid(trials: Iterable[Observation]) -> list[Observation]:
    """The trials with a verdict whose load was offered anew."""
    return [each for each in trials if each.verdict is not Verdict.INVALID and not each.held]


def _confirms_newer_overload(trials: Sequence[Observation], checks: int) -> bool:
    """True where the last trials all repeat an overload that was first seen after the sustained
    bound below it was last measured.

    Args:
        trials: valid trials, oldest first.
        checks: number of trials at the end that look for a change.
    """
    early, repeats = trials[:-checks], trials[-checks:]
    load = repeats[-1].load
    if any(each.load != load or each.verdict is not Verdict.OVERLOADED for each in repeats):
        return False
    loads = [each.load for each in early]
    below = [each.load for each in early if each.verdict is Verdict.SUSTAINED and each.load < load]
    if load not in loads or not below:
        return False
    bound = max(below)
    return max(i for i, each in enumerate(loads) if each == bound) < loads.index(load)


def _difference(one: Iterable[float | None], other: Iterable[float | None]) -> float | None:
    """The difference of two means without missing values; None where one has none."""
    left, right = ([x for x in side if x is not None] for side in (one, other))
    return abs(fmean(left) - fmean(right)) if left and right else None


def _is_answered_anew(history: Sequence[Observation], split: CheckedHistory) -> bool:
    """True where the repeats of the first look contradicted the answer, so that the search went on,
    and no trial has looked for a change since.
    """
    if split.looks != 1:
        return False
    newer = history[split.plain :]
    searched = [i for i, seen in enumerate(newer) if not seen.checks and not seen.held]
    return bool(searched) and not any(
        seen.checks and seen.verdict is not Verdict.INVALID for seen in newer[searched[-1] :]
    )


def _is_spoiled(history: Sequence[Observation]) -> bool:
    """True where the trials that look for a change came back INVALID too often in a row."""
    checks = [seen for seen in history if seen.checks]
    return bool(checks) and invalid_in_a_row(checks) >= INVALID_MAX


def describe(change: Change, words: LoadWords = PRODUCERS) -> str:
    """A change in words, such as "the limit changed from 387 to 198 producers"."""
    if change.before is None or change.after is None:
        return f"the limit {change.verb}"
    before, after = (round(one.median or one.high) for one in (change.before, change.after))
    return f"the limit {change.verb} from {before:,} to {words.amount(after)}"


def suspicion_of(trials: Sequence[Observation], guide: Guide) -> Change:
    """The evidence of a change in the trials of a point, oldest first."""
    valid = [seen for seen in trials if seen.verdict is not Verdict.INVALID]
    curve = guide.curve_by_overloads(valid)
    return suspicion(evidence_of(valid, guide.signals, curve), curve)


def guide_of(searcher: Searcher) -> Guide:
    """The guide by which a searcher reads trials; a new one for other searchers."""
    return searcher.guide if isinstance(searcher, Guided) else Guide()
