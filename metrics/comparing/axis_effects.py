"""The effects of the axes of several cases on their figure, and their words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from metrics.columns import Column
from metrics.comparing.effects import (
    BETWEEN_STARTS_SD,
    CONFIDENCE,
    PAIRS_MIN,
    Conclusion,
    Effect,
    are_alike,
    conclude,
    interval_effect,
    paired_effect,
    spread_of,
)
from metrics.comparing.figures import CASE, Result, case_words, short
from metrics.units import format_size

SIZE = "workload.message_bytes"
"""The key for the message size, which is a field of a result."""
MANIFOLD = 2.0
"""Ratio from which a change is written as `2 times as much` and not as a percentage."""
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
    names = _CONCLUSIONS_ON_TIMES if less_is_better else {}
    return tuple(
        replace(each, conclusion=names.get(each.conclusion, each.conclusion))
        for each in concluded(found, min_effect)
    )


def concluded(effects: Sequence[AxisEffect], min_effect: float) -> list[AxisEffect]:
    """The effects with their conclusions, which are corrected for the number of effects."""
    conclusions = conclude([each.effect for each in effects], min_effect)
    return [
        replace(each, conclusion=conclusion)
        for each, conclusion in zip(effects, conclusions, strict=True)
    ]


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
    pairs = pairs_of(results, {axis: values[0]}, {axis: values[1]})
    places: dict[tuple[tuple[str, str], ...], Pairs] = {}
    for pair in pairs:
        rest = tuple((k, v) for k, v in pair[0].settings.items() if k != axis)
        places.setdefault(rest, []).append(pair)
    known = (axis, message_bytes, *values)
    apart = [_effect(*known, own, between_sd, dict(rest)) for rest, own in places.items()]
    effects = [each.effect for each in apart if each.effect is not None]
    if len(apart) > 1 and len(effects) == len(apart) and not are_alike(effects):
        yield from apart
    else:
        yield _effect(*known, pairs, between_sd)


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
            yield _effect(", ".join(axes), message_bytes, names[0], name, pairs, between_sd)


def _effect(
    axis: str,
    message_bytes: int,
    before: str,
    after: str,
    pairs: Pairs,
    between_sd: float,
    where: Mapping[str, str] | None = None,
) -> AxisEffect:
    """The effect over pairs, before the conclusions of all effects are drawn."""
    return AxisEffect(
        axis,
        message_bytes,
        before,
        after,
        effect_of(pairs, between_sd),
        Conclusion.NO_ANSWER,
        len(pairs),
        len(pairs) >= PAIRS_MIN,
        where or {},
        mean_ratio((a.estimate, b.estimate) for a, b in pairs),
    )


def mean_ratio(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """The geometric mean of the ratios of two figures; None without any."""
    logs = [math.log(b / a) for a, b in pairs if a and b]
    return math.exp(sum(logs) / len(logs)) if logs else None


def matches(result: Result, settings: Mapping[str, str]) -> bool:
    """Whether a result has these settings; `SIZE` stands for its message size."""
    return all(
        result.settings.get(key) == value or (key == SIZE and value == str(result.message_bytes))
        for key, value in settings.items()
    )


def pairs_of(results: Sequence[Result], against: Mapping[str, str], of: Mapping[str, str]) -> Pairs:
    """Pairs of results of one repeat that differ in these settings alone.

    Args:
        against, of: full path → value, in the first and in the second result of each pair.
    """
    keys = {*against, *of}

    def place(each: Result) -> tuple[object, ...]:
        rest = sorted(item for item in each.settings.items() if item[0] not in keys)
        return each.repeat, None if SIZE in keys else each.message_bytes, tuple(rest)

    first = {place(each): each for each in results if matches(each, against)}
    return [
        (first[place(each)], each) for each in results if matches(each, of) and place(each) in first
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


def sentence(each: AxisEffect, less_is_better: bool = False, is_time: bool = False) -> str:
    """The effect of a value, compared with the first value of its axis, in a sentence.

    Args:
        less_is_better: True if a smaller figure is better.
        is_time: True if the figures are times.
    """
    with_ = f" with {case_words(each.where)}" if each.where else ""
    names = ", ".join(map(short, each.axis.split(", ")))
    size = f", {format_size(each.message_bytes)}" if each.message_bytes else ""
    between = f"{each.after} against {each.before}"
    where = f"{between if each.axis == CASE else f'{names} {between}'}{with_}{size}"
    effect = each.effect
    if effect is None and each.seen is not None:
        return (
            f"{where}: {seen_words(each.seen, is_time)}, from {each.count} "
            f"{'measurement' if each.count == 1 else 'measurements'} of each; "
            f"{PAIRS_MIN} repeats or more show whether this is chance"
        )
    if effect is None:
        return f"{where}: no answer, as too few cases have a figure"
    if each.conclusion is Conclusion.NONE_SEEN:
        return (
            f"{where}: no significant effect ({effect.change:+.1%}, {_interval(effect)}); the "
            f"smallest detectable {'change' if less_is_better else 'loss'} is "
            f"{effect.smallest_visible:.0%}"
        )
    return f"{where}: {change_words(effect, is_time)}"


def change_words(effect: Effect, is_time: bool = False) -> str:
    """A change with its interval: `3.2% less, 95% interval -23.8% to +23.0%`."""
    if effect.ratio >= MANIFOLD:
        span = f"{effect.low:.3g} to {effect.high:.3g}"
        much = "long" if is_time else "much"
        return f"{effect.ratio:.3g} times as {much}, {CONFIDENCE:.0%} interval {span} times"
    word = _WORDS_OF_TIME if is_time else _WORDS_OF_LOAD
    return f"{abs(effect.change):.1%} {word[effect.change < 0]}, {_interval(effect)}"


def seen_words(ratio: float, is_time: bool) -> str:
    """A change without an interval."""
    times = f"{ratio:.3g} times as {'long' if is_time else 'much'}"
    return times if ratio >= MANIFOLD else f"{ratio - 1:+.1%}"


def _interval(effect: Effect) -> str:
    return f"{CONFIDENCE:.0%} interval {effect.low - 1:+.1%} to {effect.high - 1:+.1%}"


_WORDS_OF_LOAD = {True: "less", False: "more"}
_WORDS_OF_TIME = {True: "shorter", False: "longer"}
