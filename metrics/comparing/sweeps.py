"""What the axes of an experiment do to its figure, with an interval over all comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

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
"""The one axis of an experiment whose cases have names, in place of the keys that they set."""


@dataclass(frozen=True)
class Result:
    """The figure of one case in one repeat, at one message size.

    Attributes:
        settings: full path of each key that varies → its value.
        repeat: from 1.
        message_bytes: message size [B].
        value: the figure; None where the case has no answer [MB/s].
        low, high: where it lies at 90 %; None where that is not known [MB/s].
        p50_ms, p99_ms, p999_ms: latencies at the figure.
        limited_by: the resource that bound the brokers, or None.
        why: why there is no answer; empty where there is one.
        brokers: of the cluster; 0 where that is not known.
        run_id: of the case's run.
        cpu_s_per_mb: of the producers for each MB of payload, at a fixed load [CPU-s/MB].
        broker_cpu_s_per_mb: the same of all brokers [CPU-s/MB].
        commit_ms: how long a commit took in the mean, at a fixed load with transactions.
        log_bytes_per_byte: of record batches for each byte of payload, at a fixed load [ratio].
        broker_resident_bytes, page_cache_bytes: the most memory of a broker's process, and of a
            host's page cache, at the figure; None where the hosts do not tell [B].
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

    @property
    def has_interval(self) -> bool:
        """Whether it is known how sure the figure is."""
        return bool(self.low and self.high)

    @property
    def estimate(self) -> float | None:
        """The middle of the interval: a limit's figure is the most that was sustained, which lies
        anywhere in a bracket that may be 15 % wide. The figure itself where no interval is known.
        """
        if self.value and self.low and self.high:
            return math.sqrt(self.low * self.high)
        return self.value


Pairs = list[tuple[Result, Result]]
"""Results that differ in one axis alone: with its first value, and with another one."""


@dataclass(frozen=True)
class AxisEffect:
    """One value of an axis against its first one.

    Attributes:
        axis: full path of the key.
        message_bytes: message size [B].
        before, after: the first value, and the other.
        effect: of `after`; None where too little was measured.
        conclusion: what to call it, among all comparisons of the sweep.
        count: pairs of cases, alike in all but this axis and measured in the same repeat.
        by_repeats: True where the interval is that of the pairs' scatter; else it follows from
            the intervals of the figures, and assumes what changes from start to start.
        where: the other keys that vary, and their values, where the effect is not the same for
            all of them; empty where it is over all.
        seen: the ratio of the figures, where too little was measured for an effect too.
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


_OF_TIMES = {
    Conclusion.REGRESSION: Conclusion.IMPROVEMENT,
    Conclusion.IMPROVEMENT: Conclusion.REGRESSION,
}
"""What a change is called where less is better; any other conclusion is the same."""


def effects_of(
    results: Sequence[Result],
    axes: Mapping[str, Sequence[str]],
    min_effect: float = 0.0,
    less_is_better: bool = False,
    between_sd: float = BETWEEN_STARTS_SD,
) -> tuple[AxisEffect, ...]:
    """Each value of each axis against the axis's first one, at each size.

    Args:
        results: of all cases and repeats.
        axes: full path → its values, the one that others are held against first.
        min_effect: the least change that matters [share].
        less_is_better: figures are times.
        between_sd: of `interval_effect`.
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
    names = _OF_TIMES if less_is_better else {}
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
    """One value against the first: over all that else varies, or apart where that differs."""
    before, after = values

    def told(pairs: Pairs, where: Mapping[str, str]) -> AxisEffect:
        by_repeats = len(pairs) >= PAIRS_MIN
        effect = _effect(pairs, by_repeats, between_sd)
        known = (effect, Conclusion.NO_ANSWER, len(pairs), by_repeats, where)
        return AxisEffect(axis, message_bytes, before, after, *known, seen=_seen(pairs))

    pairs = _pairs(results, axis, before, after)
    places: dict[tuple[tuple[str, str], ...], Pairs] = {}
    for pair in pairs:
        rest = tuple((k, v) for k, v in pair[0].settings.items() if k != axis)
        places.setdefault(rest, []).append(pair)
    apart = [told(own, dict(rest)) for rest, own in places.items()]
    effects = [each.effect for each in apart if each.effect is not None]
    if len(apart) > 1 and len(effects) == len(apart) and not are_alike(effects):
        yield from apart
    else:
        yield told(pairs, {})


def _between_cases(
    results: Sequence[Result], axes: Mapping[str, Sequence[str]], between_sd: float
) -> Iterator[AxisEffect]:
    """Each case against the first one, where no two of them differ in one key alone."""
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
                _effect(pairs, by_repeats, between_sd),
                Conclusion.NO_ANSWER,
                len(pairs),
                by_repeats,
            )
            seen = _seen(pairs)
            yield AxisEffect(", ".join(axes), message_bytes, names[0], name, *known, seen=seen)


def _seen(pairs: Pairs) -> float | None:
    """The mean ratio of the figures, however little is known of chance."""
    logs = [math.log(b.estimate / a.estimate) for a, b in pairs if a.estimate and b.estimate]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _pairs(results: Sequence[Result], axis: str, before: str, after: str) -> Pairs:
    """Results that differ in this axis alone, of the same repeat."""

    def place(each: Result) -> tuple[object, ...]:
        rest = tuple(sorted((k, v) for k, v in each.settings.items() if k != axis))
        return each.repeat, rest

    first = {place(each): each for each in results if each.settings[axis] == before}
    return [
        (first[place(each)], each)
        for each in results
        if each.settings[axis] == after and place(each) in first
    ]


def _effect(
    pairs: Sequence[tuple[Result, Result]], by_repeats: bool, between_sd: float
) -> Effect | None:
    if by_repeats:
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
    """See `spread_of`; NaN where no interval is known."""
    return spread_of(result.low, result.high) if result.low and result.high else math.nan
