"""The effects of an experiment's axes on its figure.

The best cases of a sweep, and the cases that do not differ from them significantly. Pure.

Published claims about an experiment's figure, held against the measured figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median
from typing import Annotated, Literal

from metrics.columns import Column
from metrics.comparing.effects import (
    BETWEEN_STARTS_SD,
    PAIRS_MIN,
    Conclusion,
    Effect,
    are_alike,
    conclude,
    interval_effect,
    paired_effect,
    spread_of,
)

CASE = "case"
"""The only axis of an experiment whose cases have names; it stands for the keys that they set."""


@dataclass(frozen=True)
class Result:
    """The figure of one case in one repeat, at one message size.

    Attributes:
        settings: full path of each key that varies → its value.
        repeat: number of the repeat, from 1.
        message_bytes: message size [B].
        value: the figure; None if the case has no answer [MB/s].
        low, high: ends of the figure's 90 % interval; None if it is not known [MB/s].
        p50_ms, p99_ms, p999_ms: latencies at the figure.
        limited_by: the resource that bound the brokers, or None.
        why: reason why there is no answer; empty if there is one.
        brokers: number of brokers; 0 if it is not known.
        run_id: id of the case's run.
        cpu_s_per_mb: CPU time of the producers per MB of payload, at a fixed load [CPU-s/MB].
        broker_cpu_s_per_mb: CPU time of all brokers per MB of payload [CPU-s/MB].
        commit_ms: mean duration of a commit, at a fixed load with transactions.
        log_bytes_per_byte: bytes of record batches per byte of payload, at a fixed load [ratio].
        broker_resident_bytes, page_cache_bytes: highest memory of a broker's process, and of a
            host's page cache, at the figure; None if the hosts do not report it [B].
        readings: further readings of a measurement, by their names.
    """

    settings: Mapping[str, str]
    repeat: int
    message_bytes: Annotated[int, Column("bpm")]
    value: float | None
    low: float | None = None
    high: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    limited_by: str | None = None
    why: str = ""
    brokers: int = 0
    run_id: str = ""
    cpu_s_per_mb: float | None = None
    log_bytes_per_byte: float | None = None
    broker_resident_bytes: float | None = None
    page_cache_bytes: float | None = None
    broker_cpu_s_per_mb: float | None = None
    commit_ms: float | None = None
    readings: Mapping[str, float] = field(default_factory=dict)

    def reading(self, name: str) -> float | None:
        """A reading by the name of its attribute, or of `readings`; None if it is not known."""
        found: float | None = getattr(self, name, None)
        return self.readings.get(name) if found is None else found

    @property
    def has_interval(self) -> bool:
        """True if the interval of the figure is known."""
        return bool(self.low and self.high)

    @property
    def estimate(self) -> float | None:
        """The geometric middle of the interval, or the figure if no interval is known.

        A limit's figure is the highest sustained load, which can lie anywhere in a bracket that
        may be 15 % wide; the middle of the interval is the better estimate.
        """
        if self.value and self.low and self.high:
            return math.sqrt(self.low * self.high)
        return self.value


Pairs = list[tuple[Result, Result]]
"""Pairs of results that differ in one axis alone: its first value and another value."""


@dataclass(frozen=True)
class AxisEffect:
    """The effect of one value of an axis, compared with the first value.

    Attributes:
        axis: full path of the key.
        message_bytes: message size [B].
        before, after: the first value and the other value.
        effect: effect of `after`; None with too few measurements.
        conclusion: the conclusion, with one error rate for all comparisons of the sweep.
        count: number of pairs of cases that differ in this axis alone, within one repeat.
        by_repeats: True if the interval follows from the scatter of the pairs; otherwise it
            follows from the intervals of the figures and an assumed scatter between measurements.
        where: values of the other keys if the effect depends on them; otherwise empty.
        seen: mean ratio of the figures, also with too few measurements for an effect.
    """

    axis: str
    message_bytes: Annotated[int, Column("bpm")]
    before: str
    after: str
    effect: Effect | None
    conclusion: Conclusion
    count: int
    by_repeats: bool
    where: Mapping[str, str] = field(default_factory=dict)
    seen: float | None = None


_CONCLUSIONS_ON_TIMES = {
    Conclusion.REGRESSION: Conclusion.IMPROVEMENT,
    Conclusion.IMPROVEMENT: Conclusion.REGRESSION,
}
"""Conclusion → conclusion if less is better; all others are the same."""


def effects_of(
    results: Sequence[Result],
    axes: Mapping[str, Sequence[str]],
    min_effect: float = 0.0,
    less_is_better: bool = False,
    between_sd: float = BETWEEN_STARTS_SD,
) -> tuple[AxisEffect, ...]:
    """Compare each value of each axis with the axis's first value, at each message size.

    Args:
        results: results of all cases and repeats.
        axes: full path → its values; the first value is the reference.
        min_effect: the smallest change that matters [share].
        less_is_better: True if figures are times.
        between_sd: as in `interval_effect`.
    """
    found: list[AxisEffect] = []
    for axis, values in axes.items():
        for message_bytes in sorted({each.message_bytes for each in results}):
            own = [each for each in results if each.message_bytes == message_bytes and each.value]
            for value in values[1:]:
                found.extend(_against(own, axis, message_bytes, (values[0], value), between_sd))
    if not any(each.count for each in found):  # the cases change several keys at a time
        found = list(_between_cases(results, axes, between_sd)) or found
    conclusions = conclude([each.effect for each in found], min_effect)
    names = _CONCLUSIONS_ON_TIMES if less_is_better else {}
    return tuple(
        replace(each, conclusion=names.get(conclusion, conclusion))
        for each, conclusion in zip(found, conclusions, strict=True)
    )


def _against(
    results: Sequence[Result],
    axis: str,
    message_bytes: int,
    values: tuple[str, str],
    between_sd: float,
) -> Iterator[AxisEffect]:
    """Compare one value with the first value.

    Yields one effect over all values of the other axes or, if it depends on them, one for each.
    """
    before, after = values

    def axis_effect(pairs: Pairs, where: Mapping[str, str]) -> AxisEffect:
        by_repeats = len(pairs) >= PAIRS_MIN
        effect = effect_of(pairs, between_sd)
        known = (effect, Conclusion.NO_ANSWER, len(pairs), by_repeats, where)
        return AxisEffect(axis, message_bytes, before, after, *known, seen=_seen(pairs))

    pairs = _pairs(results, axis, before, after)
    places: dict[tuple[tuple[str, str], ...], Pairs] = {}
    for pair in pairs:
        rest = tuple((k, v) for k, v in pair[0].settings.items() if k != axis)
        places.setdefault(rest, []).append(pair)
    apart = [axis_effect(own, dict(rest)) for rest, own in places.items()]
    effects = [each.effect for each in apart if each.effect is not None]
    if len(apart) > 1 and len(effects) == len(apart) and not are_alike(effects):
        yield from apart
    else:
        yield axis_effect(pairs, {})


def _between_cases(
    results: Sequence[Result], axes: Mapping[str, Sequence[str]], between_sd: float
) -> Iterator[AxisEffect]:
    """Compare each case with the first case, if no two cases differ in one key alone."""
    for message_bytes in sorted({each.message_bytes for each in results}):
        by_case: dict[str, list[Result]] = {}
        for each in results:
            if each.message_bytes == message_bytes and each.value:
                by_case.setdefault(", ".join(each.settings[axis] for axis in axes), []).append(each)
        names = list(by_case)
        for name in names[1:]:
            first = {each.repeat: each for each in by_case[names[0]]}
            pairs = [(first[b.repeat], b) for b in by_case[name] if b.repeat in first]
            by_repeats = len(pairs) >= PAIRS_MIN
            known = (
                effect_of(pairs, between_sd),
                Conclusion.NO_ANSWER,
                len(pairs),
                by_repeats,
            )
            seen = _seen(pairs)
            yield AxisEffect(", ".join(axes), message_bytes, names[0], name, *known, seen=seen)


def _seen(pairs: Pairs) -> float | None:
    """The geometric mean of the ratios of the figures."""
    logs = [math.log(b.estimate / a.estimate) for a, b in pairs if a.estimate and b.estimate]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _pairs(results: Sequence[Result], axis: str, before: str, after: str) -> Pairs:
    """Pairs of results of the same repeat that differ in this axis alone."""

    def place(each: Result) -> tuple[object, ...]:
        rest = tuple(sorted((k, v) for k, v in each.settings.items() if k != axis))
        return each.repeat, rest

    first = {place(each): each for each in results if each.settings[axis] == before}
    return [
        (first[place(each)], each)
        for each in results
        if each.settings[axis] == after and place(each) in first
    ]


def effect_of(pairs: Pairs, between_sd: float = BETWEEN_STARTS_SD) -> Effect | None:
    """The effect over pairs of results; None with too few, or without intervals.

    Args:
        between_sd: as in `interval_effect`; unused if the scatter of the pairs is known.
    """
    if len(pairs) >= PAIRS_MIN:
        return paired_effect([(a.estimate or 0.0, b.estimate or 0.0) for a, b in pairs])
    spreads = [(_spread(a), _spread(b)) for a, b in pairs]
    if not pairs or any(math.isnan(a + b) for a, b in spreads):
        return None
    return interval_effect(
        [
            ((a.estimate or 0.0, of_a), (b.estimate or 0.0, of_b))
            for (a, b), (of_a, of_b) in zip(pairs, spreads, strict=True)
        ],
        between_sd,
    )


def _spread(result: Result) -> float:
    """The standard deviation of the figure's logarithm; NaN if no interval is known."""
    return spread_of(result.low, result.high) if result.low and result.high else math.nan


NEAR = 0.1
"""For the aim `both`: distance from the highest figure up to which a figure is near it [share]."""
THROUGHPUT, LATENCY, BOTH = "throughput", "latency", "both"


@dataclass(frozen=True)
class CaseFigure:
    """A case at one message size, the medians of its repeats.

    Attributes:
        settings: full path of each key that varies → its value.
        message_bytes: message size [B].
        value: the middle of the figure's interval, or the figure if no interval is known.
        low, high: ends of the 90 % interval; None if it is not known.
        p99_ms: latency at the figure [ms].
        run_ids: ids of the runs of its repeats.
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    value: float
    low: float | None
    high: float | None
    p99_ms: float | None
    run_ids: tuple[str, ...]

    def is_apart_from(self, other: CaseFigure) -> bool:
        """True if the figures differ significantly; False without intervals."""
        if not (self.low and self.high and other.low and other.high):
            return False
        ours = (self.value, spread_of(self.low, self.high))
        theirs = (other.value, spread_of(other.low, other.high))
        repeats = min(len(self.run_ids), len(other.run_ids))
        effect = interval_effect([(theirs, ours)] * repeats)
        return not effect.low <= 1.0 <= effect.high


@dataclass(frozen=True)
class Recommendation:
    """The best case for an aim.

    Attributes:
        aim: `throughput`: the highest figure; `latency`: the lowest p99 at the figure; `both`: the
            lowest p99 among the cases whose figure is near the highest.
        best: the best case.
        alike: for the aim `throughput`, settings of the cases whose figure does not differ
            significantly from the best one.
    """

    aim: str
    best: CaseFigure
    alike: tuple[Mapping[str, str], ...] = ()


def recommendations(
    results: Sequence[Result], less_is_better: bool = False
) -> tuple[Recommendation, ...]:
    """Find the best case for each aim at each message size with two or more figures.

    Args:
        less_is_better: True if figures are times; then throughput is the only aim.
    """
    found: list[Recommendation] = []
    for message_bytes in sorted({each.message_bytes for each in results}):
        cases = list(_cases([each for each in results if each.message_bytes == message_bytes]))
        if len(cases) > 1:
            found.extend(_quickest(cases) if less_is_better else _best(cases))
    return tuple(found)


def _quickest(cases: Sequence[CaseFigure]) -> Iterator[Recommendation]:
    yield Recommendation(THROUGHPUT, min(cases, key=lambda one: one.value))


def _best(cases: Sequence[CaseFigure]) -> Iterator[Recommendation]:
    highest = max(cases, key=lambda one: one.value)
    alike = tuple(
        one.settings for one in cases if one is not highest and not one.is_apart_from(highest)
    )
    yield Recommendation(THROUGHPUT, highest, alike)
    timed = [(one.p99_ms, one) for one in cases if one.p99_ms]
    if not timed:
        return
    yield Recommendation(LATENCY, min(timed, key=lambda pair: pair[0])[1])
    near = [pair for pair in timed if pair[1].value >= (1 - NEAR) * highest.value]
    if near:
        yield Recommendation(BOTH, min(near, key=lambda pair: pair[0])[1])


def _cases(results: Sequence[Result]) -> Iterator[CaseFigure]:
    by_case: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for each in results:
        if each.value:
            by_case.setdefault(tuple(sorted(each.settings.items())), []).append(each)
    for own in by_case.values():
        yield CaseFigure(
            own[0].settings,
            own[0].message_bytes,
            median(each.estimate or 0.0 for each in own),
            _middle([each.low for each in own]),
            _middle([each.high for each in own]),
            _middle([each.p99_ms for each in own]),
            tuple(each.run_id for each in own),
        )


def _middle(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


SAME_WITHIN = 0.10
"""Largest change that counts as the same, where a study publishes no difference [share]."""
SIZE = "workload.message_bytes"
"""The key of a claim for the message size, which is a field of a result."""


@dataclass(frozen=True)
class Claim:
    """A published claim: how the figure of one case compares with that of another.

    Attributes:
        source: the study, such as `Heroku 2016`.
        says: the claim, a clause without a full stop.
        of: full path → value of the case that the claim is about.
        against: full path → value of the case that it is compared with.
        change: `less`, `more`, or `same` for at most `SAME_WITHIN`.
        by: the published change, such as -0.33; None where the study has no figure [share].
        reading: the reading that is compared, such as `p99_ms`; empty for the figure.
    """

    source: str
    says: str
    of: Mapping[str, str]
    against: Mapping[str, str]
    change: Literal["less", "more", "same"]
    by: float | None = None
    reading: str = ""


class Verdict(str, Enum):
    """What the measured figures say of a claim."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict.

    Attributes:
        effect: the measured effect; None where too few figures have an interval.
        seen: the mean ratio of the figures, also without an effect; None if none was measured.
        lacks: settings that were not measured; empty if all were.
    """

    claim: Claim
    verdict: Verdict
    effect: Effect | None = None
    seen: float | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)


def judge_claim(claim: Claim, results: Sequence[Result]) -> ClaimVerdict:
    """Hold a claim against the results of a sweep.

    The claim agrees if the whole interval of the effect lies where the claim has it, and contains
    the published change, if there is one. It differs if no part of the interval does.
    """
    known = [each for each in results if each.value]
    for settings in (claim.of, claim.against):
        if not any(_matches(each, settings) for each in known):
            return ClaimVerdict(claim, Verdict.CANNOT_SAY, lacks=settings)
    pairs = _published_pairs(claim, known)
    if claim.reading:
        values = [(a.reading(claim.reading), b.reading(claim.reading)) for a, b in pairs]
        readings = [(a, b) for a, b in values if a and b]
        effect, logs = paired_effect(readings), [math.log(b / a) for a, b in readings]
    else:
        effect = effect_of(pairs)
        logs = [math.log((b.estimate or 1.0) / (a.estimate or 1.0)) for a, b in pairs]
    seen = math.exp(sum(logs) / len(logs)) if logs else None
    return ClaimVerdict(claim, _verdict(claim, effect), effect, seen)


def _verdict(claim: Claim, effect: Effect | None) -> Verdict:
    if effect is None:
        return Verdict.CANNOT_SAY
    margin = 1.0 + SAME_WITHIN
    regions = {"less": (0.0, 1.0), "more": (1.0, math.inf), "same": (1.0 / margin, margin)}
    low, high = regions[claim.change]
    excludes_figure = claim.by is not None and not effect.low <= 1.0 + claim.by <= effect.high
    if effect.high < low or effect.low > high or excludes_figure:
        return Verdict.DIFFERS
    return Verdict.AGREES if low <= effect.low and effect.high <= high else Verdict.CANNOT_SAY


def _published_pairs(claim: Claim, results: Sequence[Result]) -> Pairs:
    """Pairs of results of one repeat that differ in the keys of the claim alone."""
    keys = {*claim.of, *claim.against}

    def place(each: Result) -> tuple[object, ...]:
        rest = sorted(item for item in each.settings.items() if item[0] not in keys)
        return each.repeat, None if SIZE in keys else each.message_bytes, tuple(rest)

    first = {place(each): each for each in results if _matches(each, claim.against)}
    return [
        (first[place(each)], each)
        for each in results
        if _matches(each, claim.of) and place(each) in first
    ]


def _matches(result: Result, settings: Mapping[str, str]) -> bool:
    own = {**result.settings, SIZE: str(result.message_bytes)}
    return all(own.get(key) == value for key, value in settings.items())
