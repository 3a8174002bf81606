"""The boundary line: the order in which message sizes are measured, and the prediction of each
limit from finished sizes.

Each message size whose search has ended refines two models. The first model is the brokers' costs
per batch and per byte, which predict the limit at the next size. The second model is the curve of
utilization against load, which converts a utilization to a distance from the limit. The largest and
the smallest size are measured first, because the ratio of the cost per batch to the cost per byte
differs most between these two sizes. When the largest and the smallest size are finished, the next
size is always the size with the largest distance to its nearest finished size. The two models are
computed again from the finished sizes, so a resumed run makes the same decisions as a run that was
not interrupted.

Brokers handle batches, not records. For each batch, brokers handle a request and an append, and
perhaps a flush. If brokers spend the time `per_batch` on a batch and `per_byte` on each byte, the
limit is

    producers = brokers / (per_batch · batches/s + per_byte · bytes/s)

with the batches/s and bytes/s of one producer. The boundary line bends at a batch size of per_batch
/ per_byte bytes, where the cost of a batch equals the cost of its bytes. A producer's number of
batches per second at a message size follows from its rate, `linger.ms` and `batch.size`. The batch
size at the bend is unknown, so the model has a grid of possible values from 10 B to 1 MB. On this
grid, each batch size is larger than the previous one by the same factor. Before any measurement,
all batch sizes of the grid have equal weights. Measured limits change the weight of each batch size
of the grid according to its fit to these limits. One measured limit is enough to predict the limits
at all other message sizes, because the standard deviation of each prediction includes all batch
sizes of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from search.bisect import Bisection
from search.budget import Budget, Budgeted, Spent
from search.closing import BY_THEMSELVES, Checking, suspicion_of
from search.confirming import Confirmation, Confirming, split_history
from search.estimate import Curve, Estimate, Prior
from search.guide import Guide
from search.guided import ALLOWANCE, Guided
from search.limits import Limits
from search.model import Done, GaveUp, Observation, Searcher, Trials
from search.posterior import Odds, initial_odds

_BENDS = tuple(10.0 ** (1.0 + 5.0 * step / 40) for step in range(41))


@dataclass(frozen=True)
class ProducerRate:
    """The fixed rate of one producer, which is stated either in records/s or in B/s.

    Attributes:
        linger_s: time that a batch waits for more records if it is not full [s]; 0 if each batch
            has one record.
        batch_bytes: size of a full batch [B].
    """

    records_per_s: float | None = None
    bytes_per_s: float | None = None
    linger_s: float = 0.0
    batch_bytes: float = math.inf

    def __post_init__(self) -> None:
        if (self.records_per_s is None) == (self.bytes_per_s is None):
            raise ValueError(
                f"a producer's rate is records_per_s {self.records_per_s} and bytes_per_s "
                f"{self.bytes_per_s}; expected exactly one of them; leave out the other"
            )

    def records(self, message_bytes: int) -> float:
        """Rate of records of one producer at a message size [1/s]."""
        if self.records_per_s is not None:
            return self.records_per_s
        return (self.bytes_per_s or 0.0) / message_bytes

    def bytes(self, message_bytes: int) -> float:
        """Payload rate of one producer at a message size [B/s]."""
        return self.records(message_bytes) * message_bytes

    def batches(self, message_bytes: int) -> float:
        """Rate of batches of one producer, if the brokers keep up with the load [1/s]."""
        records = self.records(message_bytes)
        return records / max(
            1.0, min(int(records * self.linger_s) + 1, self.batch_bytes / message_bytes)
        )


@dataclass(frozen=True)
class Point:
    """A measured limit [producers] at a message size [B], with its standard deviation [ratio]."""

    message_bytes: int
    limit: float
    spread: float


@dataclass(frozen=True)
class BoundaryModel:
    """The probability of each possible bend of a boundary line, with the cost per byte that fits
    this bend. A bend is the batch size at which the cost of a batch equals the cost of its bytes.

    Attributes:
        rate: rate of one producer.
        brokers: number of brokers that share the load evenly.
        bends: (probability, batch size at the bend [B], broker-seconds per byte) for each possible
            bend of the line. The probabilities sum to 1.
        misfit: scatter of real points around the line, as a relative standard deviation [ratio].
    """

    rate: ProducerRate
    brokers: int
    bends: tuple[tuple[float, float, float], ...]
    misfit: float

    def predict(self, message_bytes: int) -> tuple[float, float]:
        """The expected limit at a message size [producers], and its standard deviation [ratio]."""
        mean = square = 0.0
        for weight, bend, per_byte in self.bends:
            log_producers = math.log(
                self.brokers / (per_byte * _load_of_one(self.rate, message_bytes, bend))
            )
            mean += weight * log_producers
            square += weight * log_producers**2
        return math.exp(mean), math.sqrt(max(0.0, square - mean * mean) + self.misfit**2)

    def prior(self, message_bytes: int, points: int) -> Prior:
        """The predicted limit in the form of a prior. `points` is the number of finished sizes."""
        limit, spread = self.predict(message_bytes)
        sizes = "1 size" if points == 1 else f"{points} sizes"
        return Prior(max(1.0, limit), spread, f"costs fitted to {sizes}")


def fit(
    points: Sequence[Point], rate: ProducerRate, brokers: int, misfit: float = 0.05
) -> BoundaryModel | None:
    """Fit the brokers' cost per batch and cost per byte to measured limits. The result is None if
    there is no measured limit.

    Args:
        points: measured limits above zero.
        rate: rate of one producer.
        brokers: number of brokers that share the load evenly.
        misfit: expected scatter of real points around the line, as a relative standard deviation
            [ratio].
    """
    if not points:
        return None
    scored = []
    for bend in _BENDS:
        weights = [1.0 / (point.spread**2 + misfit**2) for point in points]
        # For this bend, ln of the cost per byte that fits each point.
        fitted = [
            math.log(brokers / (point.limit * _load_of_one(rate, point.message_bytes, bend)))
            for point in points
        ]
        total = sum(weights)
        center = sum(w * x for w, x in zip(weights, fitted, strict=True)) / total
        misses = sum(w * (x - center) ** 2 for w, x in zip(weights, fitted, strict=True))
        scored.append((-0.5 * misses, bend, math.exp(center)))
    best = max(score for score, _, _ in scored)
    total = sum(math.exp(score - best) for score, _, _ in scored)
    bends = tuple((math.exp(score - best) / total, bend, cost) for score, bend, cost in scored)
    return BoundaryModel(rate, brokers, bends, misfit)


def _load_of_one(rate: ProducerRate, message_bytes: int, bend: float) -> float:
    """The cost of one producer to the brokers, expressed as a rate of bytes [B/s]. A batch costs as
    much as `bend` bytes.
    """
    return rate.batches(message_bytes) * bend + rate.bytes(message_bytes)


Method = Literal["guided", "bisection"]

BEND_MIN = 0.1
"""A point is added if the slope of the line changes by at least this value. The slope is the change
of ln(bytes/s) divided by the change of ln(message bytes)."""
VAGUE = 0.5
"""A predicted limit is not used if its standard deviation is above this value, because the
utilization in the first trial shows the limit more precisely [ratio]."""


@dataclass(frozen=True)
class FinishedPoint:
    """A message size whose search has ended.

    Attributes:
        message_bytes: the size [B].
        result: the result of the search.
        history: all trials, oldest first.
        checked: True if a repeat of an early load has checked whether the limit changed.
    """

    message_bytes: int
    result: Done | GaveUp
    history: tuple[Observation, ...]
    checked: bool = False

    @property
    def counted(self) -> tuple[Observation, ...]:
        """The trials since the last change of the limit."""
        changed = self.result.changed
        return self.history[changed[-1].since :] if changed else self.history


@dataclass(frozen=True)
class Line:
    """The plan of a boundary line. `search.lines` carries out the decisions of the plan.

    Attributes:
        sizes: message sizes to measure [B].
        rate: rate of one producer.
        limits: bounds, resolution and repeats of the search at every size.
        brokers: number of brokers that share the load evenly.
        budget: highest cost of the whole line.
        refine_max: highest number of message sizes that are added where the slope of the boundary
            line changes.
        guide: the evidence about the limits before the first trial of the line, such as the
            expected curve of utilization against load.
        method: `guided`, or `bisection` for comparisons; bisection does not use readings and
            neighboring sizes.
        confirmation: length of the hold that confirms each limit.
        before: cost of the run before the first trial of the line.
        hint: reading of a warm-up load at the size that is measured first; None if there is no such
            reading.
        bound: function of a message size [B]; None if the run has no guards. The function returns
            the highest load that the run's guards allow now, and the name of the guard that sets
            this load.
        check_for_change: True if a closing trial, which repeats an early load, checks the limits
            for a change, see `search.closing`.
    """

    sizes: tuple[int, ...]
    rate: ProducerRate
    limits: Limits
    brokers: int = 1
    budget: Budget = field(default_factory=Budget)
    refine_max: int = 0
    guide: Guide = field(default_factory=Guide)
    method: Method = "guided"
    confirmation: Confirmation = field(default_factory=Confirmation)
    before: Spent = field(default_factory=Spent)
    hint: Observation | None = None
    bound: Callable[[int], tuple[int, str]] | None = None
    check_for_change: bool = True

    @property
    def checks_at_once(self) -> bool:
        """True if the line has only one size, which is checked as soon as its limit is found."""
        return self.check_for_change and len(set(self.sizes)) == 1

    def next_message_bytes(self, finished: Sequence[FinishedPoint]) -> int | None:
        """The size to measure next [B]; None if the line is complete."""
        done = {point.message_bytes for point in finished}
        left = sorted(set(self.sizes) - done)
        if not left:
            added = len(done - set(self.sizes))
            is_ended = added >= self.refine_max or self.is_used_up(finished)
            return None if is_ended else bend_of(self.points(finished), self.rate)
        for extreme in (max(self.sizes), min(self.sizes)):
            if extreme in left:
                return extreme
        return max(left, key=lambda message_bytes: (_gap(message_bytes, done), message_bytes))

    def searcher(
        self,
        message_bytes: int,
        finished: Sequence[FinishedPoint],
        allowance: int = ALLOWANCE,
        is_first: bool = True,
    ) -> Searcher:
        """The searcher of one message size. The limits of finished sizes help the searcher to
        choose loads, and the budget limits the number of its trials.

        Args:
            message_bytes: the size [B].
            finished: all finished points.
            allowance: highest number of trials in addition to the trials of plain bisection, see
                `search.guided.Guided`.
            is_first: False if the searcher of another goal requests the first closing trial.
        """
        guide = self.guide_for(message_bytes, finished)
        limits = self._limits_at(message_bytes)
        if finished:
            # Without a usable prior, bisection's first load can be many times the limit.
            sustained = max(each.result.bracket.sustained for each in finished)
            is_bound = self.method == "guided" and guide.prior is None and sustained > 0
            limits = replace(limits, first_max=sustained if is_bound else None)
        searcher = self._searcher(limits, guide, allowance)
        if self.checks_at_once:
            checking = Checking(searcher, guide, self.limits.words, is_first)
            return self._budgeted(checking, message_bytes, self.spent(finished))
        later = len(set(self.sizes) - {point.message_bytes for point in finished}) - 1
        return self._budgeted(searcher, message_bytes, self.spent(finished), max(0, later))

    def checker(
        self,
        point: FinishedPoint,
        finished: Sequence[FinishedPoint],
        allowance: int = ALLOWANCE,
        is_first: bool = True,
    ) -> Searcher:
        """The searcher that checks whether the limit at a finished message size has changed. If the
        limit has changed, this searcher also finds the new limit.

        The guide of this searcher uses only message sizes that were already checked for a change,
        because the limits at other sizes may have changed.

        Args:
            point: the message size to check, with the result and the trials of its search.
            finished: all finished points, including `point`.
            allowance, is_first: as in `searcher`.
        """
        others = [each for each in finished if each.message_bytes != point.message_bytes]
        guide = self.guide_for(point.message_bytes, [each for each in others if each.checked])
        answer = (point.history, point.result)
        searcher = self._searcher(self._limits_at(point.message_bytes), guide, allowance)
        checking = Checking(searcher, guide, self.limits.words, is_first, answer)
        return self._budgeted(checking, point.message_bytes, self.spent(others))

    def is_suspicious(self, point: FinishedPoint, finished: Sequence[FinishedPoint]) -> bool:
        """True if the trials at a message size show a probable change of the limit, although no
        load was repeated to check the limit.

        The curve of utilization against load is computed from all finished message sizes. In the
        trials of a single size, a change of the limit can look like another utilization at the
        limit.
        """
        if isinstance(point.result, GaveUp):
            return False
        guide = replace(self.guide, curve=self._curve(finished))
        return suspicion_of(self.searched(point.history), guide).probability >= BY_THEMSELVES

    def _budgeted(self, searcher: Searcher, size: int, spent: Spent, later: int = 0) -> Budgeted:
        rate = self.rate.bytes(size)
        return Budgeted(searcher, self.budget, spent, rate, self.searched, later)

    def _limits_at(self, message_bytes: int) -> Limits:
        return self.limits if self.bound is None else self.limits.capped(*self.bound(message_bytes))

    def _searcher(self, limits: Limits, guide: Guide, allowance: int) -> Searcher:
        searcher: Searcher = Bisection(limits, guide)
        if self.method == "guided":
            searcher = Guided(limits, guide, allowance)
        if self.confirmation.windows:
            searcher = Confirming(searcher, limits, self.confirmation)
        return searcher

    def spent(self, finished: Sequence[FinishedPoint]) -> Spent:
        """The cost of the run before this boundary line, plus the cost of the trials at finished
        sizes.
        """
        spent = self.before
        for point in finished:
            spent = spent.plus(point.history, self.rate.bytes(point.message_bytes))
        return spent

    def is_used_up(self, finished: Sequence[FinishedPoint]) -> bool:
        """True if the budget allows no further trial."""
        return self.budget.exhausted(self.spent(finished)) is not None

    def guide_for(self, message_bytes: int, finished: Sequence[FinishedPoint]) -> Guide:
        """The guide of the search at one message size, with the evidence from finished sizes."""
        points = self.points(finished)
        model = fit(points, self.rate, self.brokers)
        guide = replace(self.guide, curve=self._curve(finished), odds=self._odds(finished))
        if not finished and self.hint is not None:
            return guide.with_hint(self.hint)
        if model is None or (prior := model.prior(message_bytes, len(points))).spread > VAGUE:
            return guide
        return replace(guide, prior=prior)

    def points(self, finished: Sequence[FinishedPoint]) -> list[Point]:
        """The limits of the finished sizes, each with its standard deviation."""
        found = []
        for point in finished:
            estimate = self._estimate(point)
            if estimate is not None:
                found.append(Point(point.message_bytes, estimate.load, estimate.spread))
        return found

    def searched(self, history: Sequence[Observation]) -> tuple[Observation, ...]:
        """The trials in `history` on which the search bases the limit. Windows of holds (long loads
        that confirm a limit) are left out, except overloaded windows of a failed hold.
        """
        return split_history(history, self.confirmation).searched

    def _estimate(self, point: FinishedPoint) -> Estimate | None:
        """The estimate of a limit: the estimate from readings, or the middle of the bracket if that
        estimate is outside the bracket.
        """
        bracket = point.result.bracket
        if not isinstance(point.result, Done) or bracket.sustained < 1:
            return None
        high = float(bracket.overloaded or bracket.sustained)
        guess = self.guide.estimate(Trials(self.searched(point.counted)))
        middle = math.sqrt(bracket.sustained * high)
        if guess is None:
            return Estimate(middle, 0.03, 1.0, 1.0)
        inside = min(max(guess.load, float(bracket.sustained)), high)
        return replace(guess, load=inside, spread=max(0.015, min(guess.spread, 0.03)))

    def _curve(self, finished: Sequence[FinishedPoint]) -> Curve:
        """The curve of utilization against load that fits the trials at all finished sizes."""
        start = self.guide.curve
        weight, total = 1.0 / start.gain_spread**2, start.gain / start.gain_spread**2
        ceilings = []
        for point in finished:
            estimate = self._estimate(point)
            if estimate is None:
                continue
            ceilings.append(estimate.at_limit)
            for seen in self.searched(point.counted):
                used = self.guide.signals.utilization(seen)
                if used is None or not 0.04 <= used <= 1.12 * estimate.at_limit:
                    continue
                slope = math.log(used / estimate.at_limit)
                error = math.hypot(0.03, 0.15 * slope)
                weight += (slope / error) ** 2
                total += slope * math.log(seen.load / estimate.load) / error**2
        if not ceilings:
            return start
        gain, spread = max(0.1, total / weight), max(0.08, 1.0 / math.sqrt(weight))
        at_limit = sorted(ceilings)[len(ceilings) // 2]
        differ = max(ceilings) - min(ceilings) > 0.1
        return Curve(gain, spread, at_limit, 0.1 if differ else 0.03 if at_limit < 1.0 else 0.0)

    def _odds(self, finished: Sequence[FinishedPoint]) -> Odds | None:
        """The odds of each noise (scatter of the limit) and each gain of the curve, according to
        the trials at finished message sizes.
        """
        if not finished or not self.guide.states_interval:
            return None
        guide = replace(self.guide, curve=self._curve(finished))
        return initial_odds(self.guide.curve).after(
            guide.evidence(self.searched(each.counted)) for each in finished
        )


def bend_of(points: Sequence[Point], rate: ProducerRate) -> int | None:
    """The size to add near the largest bend of the line [B]; None if no bend is large enough.

    Args:
        points: measured limits.
        rate: rate of one producer.
    """
    line = sorted(
        (math.log(p.message_bytes), math.log(p.limit * rate.bytes(p.message_bytes))) for p in points
    )
    best: tuple[float, float] | None = None
    for left, here, right in zip(line, line[1:], line[2:], strict=False):
        before = (here[1] - left[1]) / (here[0] - left[0])
        after = (right[1] - here[1]) / (right[0] - here[0])
        wide = left if here[0] - left[0] > right[0] - here[0] else right
        if abs(after - before) >= BEND_MIN and abs(wide[0] - here[0]) > math.log(1.5):
            score = abs(after - before) * abs(wide[0] - here[0])
            if best is None or score > best[0]:
                best = (score, (wide[0] + here[0]) / 2.0)
    if best is None:
        return None
    message_bytes = round(math.exp(best[1]))
    return None if any(point.message_bytes == message_bytes for point in points) else message_bytes


def _gap(message_bytes: int, done: set[int]) -> float:
    """The distance from a message size to the nearest finished size [ln]. The distance is rounded,
    so that equal distances have equal values.
    """
    return round(min((abs(math.log(message_bytes / other)) for other in done), default=0.0), 6)
