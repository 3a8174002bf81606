"""The check at the end of a search. The check shows whether the limit changed during the
measurement.

The cluster may change between the first and the last trial of a search. So `Checking` repeats an
early load after the search has ended. The repeat of an early load is the closing trial. After the
closing trial, `Checking` compares all trials over time. There are three results:

* No change: the result of the search is final. The closing trial does not change the highest
  sustained or the lowest overloaded load.
* A suspected change: `Checking` repeats the load of the closing trial up to `MORE_MAX` more times.
  These repeats also count as trials of the search. If repeats contradict a bound of the bracket,
  the search measures this bound again. The new result of the search is checked once more.
* A change: the search continues with only the trials after the change of the limit. The new result
  of the search is also checked.

The closing trial usually repeats the highest sustained load. The highest sustained load is near the
limit, and the utilization at this load shows the limit most precisely. The utilization at higher
loads is less precise, because utilization hardly grows above the threshold. There are three
exceptions:

* If utilizations contradict the verdict of one side of the bracket, the closing trial repeats the
  load of this side.
* If no trial at the highest sustained load shows a usable utilization, the closing trial repeats
  the side of the bracket that was measured first.
* If repeats confirm an overload that is newer than the highest sustained load, the next repeat is
  at the highest sustained load. The limit may have fallen after the trial at the highest sustained
  load.

The history marks closing trials. Each decision depends only on the history, so a resumed run makes
the same decisions as a run that was not interrupted.

The probability of a change follows from two hypotheses about the valid trials, oldest first. The
first hypothesis is one limit for all trials. The second hypothesis is one limit before some trial,
and another limit from this trial on. These two limits differ by at least `LEAST`. As in
`search.posterior`, the limit during each trial is the true limit times a random factor, whose
spread (the noise) is unknown. A single utilization may be an outlier, and a single verdict may be
wrong by chance, so one trial that differs from all other trials is not a change. The model has a
fine grid of limits, a coarse grid of the noise, and a coarse grid of the gain. The gain belongs to
the curve of utilization against load. The probability of each of the two hypotheses is the sum over
all limits, noises and gains of these grids.

The first trials of a search are far from the limit, and the form of the curve of utilization
against load is unknown. If a trial far from the limit does not fit the curve, either the limit
changed or the curve has another form. A repeat of an early load shows whether the limit changed,
because an error of the curve has the same effect on all trials of one load.
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
"""Smallest difference of two limits that counts as a change [ln]."""
PROBABLE = 0.1
"""Prior probability of a change during a search."""
NOISE_MEDIAN, NOISE_SPREAD = 0.022, 0.8
"""Prior distribution of the noise: its median [ratio], and the standard deviation of its
logarithm."""
NEAR = 0.5
"""In the prior distribution, half of all changes are at most this large [ln]."""
_NOISES = (0.01, 0.018, 0.032, 0.057)
_GAIN_STEPS = (-1.5, -0.75, 0.0, 0.75, 1.5)
_TAIL = 0.05
_STEP = 0.02
_REACH = 0.5
_ROOT_2 = math.sqrt(2.0)


def suspicion(trials: Sequence[TrialEvidence], curve: Curve) -> Change:
    """The most probable change of the limit in the trials of a point. The positions in the result
    are indexes in `trials`.

    Args:
        trials: evidence of the valid trials, oldest first.
        curve: the curve that converted the readings to limits. The grid of gains has the curve's
            gain in its middle.
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
    """The first position at which the sum of all `splits` up to this position is at least `share`
    of the total. `splits` has, for each position, the weight of a change that begins there.
    """
    total, found = sum(splits), 0.0
    for split, weight in enumerate(splits):
        found += weight
        if weight > 0.0 and found >= share * total:
            return split
    return len(splits) - 1


def _grid(trials: Sequence[TrialEvidence], curve: Curve) -> list[float]:
    """A grid of values of ln limit. The grid covers the limits that the trials show, with a margin
    at both ends.
    """
    centers = [one.load if one.met is None else one.met - curve.gain * one.slope for one in trials]
    near = sorted(centers)
    low, high = near[0] - _REACH, near[-1] + _REACH
    cells = max(2, math.ceil((high - low) / _STEP))
    return [low + (high - low) * (cell + 0.5) / cells for cell in range(cells)]


def _layers(
    trials: Sequence[TrialEvidence], curve: Curve, grid: Sequence[float]
) -> Iterator[tuple[float, list[list[float]]]]:
    """A pair (weight, likelihoods of the trials) for each combination of a noise of `_NOISES` and a
    gain of the curve.

    There is one row of likelihoods for each trial, with one value for each limit of the grid.
    """
    spread = max(0.15, curve.gain_spread / curve.gain)
    gains = [curve.gain * math.exp(spread * away) for away in _GAIN_STEPS]
    for noise in _NOISES:
        own = _bell(math.log(noise / NOISE_MEDIAN) / NOISE_SPREAD)
        for gain, away in zip(gains, _GAIN_STEPS, strict=True):
            rows = [_row(one, noise, gain, grid) for one in trials]
            yield own * _bell(away), rows


def _row(trial: TrialEvidence, noise: float, gain: float, grid: Sequence[float]) -> list[float]:
    """The likelihood of a trial for each limit of the grid."""
    if trial.met is None:
        spread = _ROOT_2 * math.hypot(noise, trial.error) * (1.0 if trial.is_sustained else -1.0)
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
    """For each limit of the grid, the weighted mean of `row` over all other limits that differ from
    this limit by at least `LEAST`.

    In the weighted mean for a limit, half of the weight is spread over the other limits that differ
    from this limit by at most `NEAR`. The other half of the weight is spread over all other limits.
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
"""Highest number of further repeats of an early load, if its first repeat suggests that the limit
changed."""
SUSPECT, SUSPECT_IF_APART = 0.12, 0.03
"""After a repeat of an early load, the load is repeated again if the probability of a change of the
limit is at least `SUSPECT` [ratio].

If the repeats of the load differ from the early trials of this load (see `APART`), a probability of
at least `SUSPECT_IF_APART` is enough."""
SUSPECT_BESIDE_OVERLOAD = 0.08
"""This probability is enough instead of `SUSPECT` if repeats confirm an overload that was measured
after the highest sustained load [ratio]."""
APART = 0.055
"""Two groups of trials, such as the repeats and the early trials of a load, differ if the means of
the limits that they show differ by more than this value [ln]."""
SURE = 0.9
"""A change of the limit is accepted without further trials if its probability is at least this
value [ratio]."""
CERTAIN = 0.99
"""A change of the limit is accepted if its probability is at least this value, even if trials near
the limit show equal limits before and after the change [ratio]."""
LIKELY = 0.2
"""After the last possible repeat of an early load, a change of the limit is accepted if its
probability is at least this value [ratio].

The value is low, because the model underestimates the probability of a change: the model also
considers a noise that is larger than the small scatter of the repeats."""
BY_THEMSELVES = 0.5
"""If no early load was repeated yet, and the trials of a search show a change of the limit with at
least this probability, an early load is repeated to check the limit [ratio]. After the last
possible repeat, this value replaces `LIKELY` if no limits before and after the change can be
compared."""
NEAR_LIMIT = 0.2
"""A trial is near the limit if its utilization and the utilization at the limit differ by at most
this value [ln]. A trial near the limit shows almost the same limit for every form of the curve of
utilization against load."""
CHANGES_MAX = 3
"""Number of changes after which a result is no longer checked."""
INVALID_MAX = 2
"""If this number of successive repeats of an early load are INVALID, no further repeat checks the
result of a search."""


@dataclass(frozen=True)
class CheckedHistory:
    """A history, split at the changes of the limit.

    Attributes:
        start: position of the first trial after the last change.
        plain: number of trials at the beginning of the history that count as trials of the search,
            including the trials that repeated a load to check the limit.
        changes: the changes, oldest first.
        found: the most probable change of the limit in the trials from `start` on; None if no
            repeat has checked the limit since `start`.
        is_suspicious: True if `found` is so probable that a load must be repeated to check the
            limit again.
        is_checked: True if the present result was checked for a change of the limit.
        looks: number of checks that repeated a load at least twice and found no change of the
            limit.
    """

    start: int = 0
    plain: int = 0
    changes: tuple[Change, ...] = ()
    found: Change | None = None
    is_suspicious: bool = False
    is_checked: bool = False
    looks: int = 0


class Checking:
    """A searcher whose result is checked for a change of the limit. A closing trial is a repeat of
    an early load for this check.

    Args:
        searcher: finds the limit from the trials, without the repeats that only check the limit.
        guide: converts readings to distances from the limit.
        words: the unit of a load in words.
        is_first: False if the searcher of another goal requests the first closing trial.
        answer: the trials and the result of a search that has ended; None for a search that has not
            ended.
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
        """The searcher's decision or, if the search has ended, a repeat of an early load that
        checks the limit.
        """
        split = self._split(history)
        decision = self._decided(history, split)
        if isinstance(decision, Measure):
            if split.changes and len(history) <= split.plain:
                change = describe(split.changes[-1], self._words)
                decision = replace(decision, reason=f"{change}; {decision.reason}")
            return decision
        if isinstance(decision, GaveUp) or not self._trials_wanted(history, split):
            return self._ended(decision, split, _are_invalid(history[split.plain :]))
        load = self._load(history, split, decision.bracket)
        reason = f"repeating {self._words.amount(load)}"
        if split.found is None or not split.is_suspicious:
            reason += " to check whether the limit has changed"
        else:
            share = f"{100 * split.found.probability:.0f} %"
            reason = f"the limit may have changed ({share}); {reason}"
        return Measure(load, reason, checks=True)

    def unchecked(self, history: Sequence[Observation], why: str) -> Decision:
        """The decision if the limit cannot be checked, because no load can be repeated any more.

        Args:
            history: all trials, oldest first.
            why: the reason why no further repeat is possible, as a clause.
        """
        split = self._split(history)
        decision = self._decided(history, split)
        if isinstance(decision, Done):
            note = f"not checked for a change of the limit, because {why}"
            decision = replace(decision, notes=(*decision.notes, note))
        return decision if isinstance(decision, Measure) else self._ended(decision, split)

    def searched(self, history: Sequence[Observation]) -> tuple[Observation, ...]:
        """The trials since the last change of the limit, without the repeats that only check the
        limit.
        """
        return self._searched(history, self._split(history))

    def changes(self, history: Sequence[Observation]) -> tuple[Change, ...]:
        """The changes of the limit in `history`, oldest first."""
        return self._split(history).changes

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The searcher's interval of the limit; None if there is no interval."""
        return self._searcher.interval(self.searched(history))

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Number of remaining trials if the check at the end of the search finds no change of the
        limit.
        """
        split = self._split(history)
        is_answered = not isinstance(self._decided(history, split), Measure)
        searched = self._searched(history, split)
        left = 0 if is_answered else self._searcher.trials_left(searched)
        return left + self._trials_wanted(history, split)

    def _decided(self, history: Sequence[Observation], split: CheckedHistory) -> Decision:
        """The known result if no trial of the search was added since this result; otherwise the
        searcher's decision.
        """
        searched = self._searched(history, split)
        if self._answer is not None and searched == tuple(self._answer[0]):
            return self._answer[1]
        return self._searcher.decide(searched)

    def _trials_wanted(self, history: Sequence[Observation], split: CheckedHistory) -> bool:
        """True if a repeat of an early load must check the result of the search."""
        is_new = _is_answered_anew(history, split)
        if (split.is_checked and not is_new) or len(split.changes) >= CHANGES_MAX:
            return False
        checks = [seen for seen in history[split.plain :] if seen.checks]
        if _are_invalid(history[split.plain :]):
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
        """The split of `history`, whose last trial is a new repeat that checks the limit. `split`
        is the split before this repeat.
        """
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
        """True if a change of the limit is so probable that a load must be repeated again. A lower
        probability is enough if the repeats of the load support a change of the limit.
        """
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
        """The minimum probability at which a change of the limit is accepted.

        The minimum probability is higher if two comparisons show hardly any change of the limit:
        the comparison of the trials near the limit, and the comparison of the trials at the
        repeated load. A change that only trials far from the limit show is doubtful, because a
        curve of another form can also explain such trials.
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
        """The difference [ln] between two limits: the limit that the repeats of a load show, and
        the limit that the early trials of this load show. None if the repeats or the early trials
        have no usable utilization.
        """
        load = trials[-1].load
        shown = [
            None if one is None or seen.load != load else one[0]
            for seen, one in zip(trials, self._limits_shown(trials), strict=True)
        ]
        return _difference(shown[:-checks], shown[-checks:])

    def _limits_shown(self, trials: Sequence[Observation]) -> list[tuple[float, float] | None]:
        """For each trial, a pair of logarithms; None for a trial without a usable utilization. The
        first value is ln of the limit that the trial's utilization shows. The second value is ln of
        (utilization / utilization at the limit).
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
        """The load of the next repeat that checks the limit. If there are earlier repeats, the load
        is usually their load. The load of the first repeat is the side of the bracket that shows
        the limit most precisely.
        """
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
        self, end: Done | GaveUp, split: CheckedHistory, are_invalid: bool = False
    ) -> Done | GaveUp:
        if isinstance(end, Done) and are_invalid:
            note = "not checked for a change of the limit, because the closing trials were INVALID"
            end = replace(end, notes=(*end.notes, note))
        if isinstance(end, Done) and split.found and split.is_suspicious:
            share = f"{100 * split.found.probability:.0f} %"
            note = (
                f"the limit may have changed during the measurement, with a probability of {share}"
            )
            end = replace(end, notes=(*end.notes, note))
        return replace(end, changed=split.changes)


def _valid(trials: Iterable[Observation]) -> list[Observation]:
    """The valid trials, without windows of holds (long loads that confirm a limit)."""
    return [each for each in trials if each.verdict is not Verdict.INVALID and not each.held]


def _confirms_newer_overload(trials: Sequence[Observation], checks: int) -> bool:
    """True if repeats confirm an overload, and this overload was measured after the highest
    sustained load below the overload.

    Args:
        trials: valid trials, oldest first.
        checks: number of trials at the end of `trials` that repeat a load to check the limit.
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
    """The difference of two means of known values; None if one of the two has no known value."""
    left, right = ([x for x in side if x is not None] for side in (one, other))
    return abs(fmean(left) - fmean(right)) if left and right else None


def _is_answered_anew(history: Sequence[Observation], split: CheckedHistory) -> bool:
    """True if the first check led to a new result of the search, and the new result is not checked
    yet.
    """
    if split.looks != 1:
        return False
    newer = history[split.plain :]
    searched = [i for i, seen in enumerate(newer) if not seen.checks and not seen.held]
    return bool(searched) and not any(
        seen.checks and seen.verdict is not Verdict.INVALID for seen in newer[searched[-1] :]
    )


def _are_invalid(history: Sequence[Observation]) -> bool:
    """True if too many successive closing trials were INVALID."""
    checks = [seen for seen in history if seen.checks]
    return bool(checks) and invalid_in_a_row(checks) >= INVALID_MAX


def describe(change: Change, words: LoadWords = PRODUCERS) -> str:
    """A change in words, such as "the limit changed from 387 to 198 producers"."""
    if change.before is None or change.after is None:
        return f"the limit {change.verb}"
    before, after = (round(one.median or one.high) for one in (change.before, change.after))
    return f"the limit {change.verb} from {before:,} to {words.amount(after)}"


def suspicion_of(trials: Sequence[Observation], guide: Guide) -> Change:
    """The evidence of a change of the limit; `trials` has all trials of a point, oldest first."""
    valid = [seen for seen in trials if seen.verdict is not Verdict.INVALID]
    curve = guide.curve_by_overloads(valid)
    return suspicion(evidence_of(valid, guide.signals, curve), curve)
