"""Figures of measured cases, the record of a sweep, and the effects of varied keys on figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from metrics.columns import Column, restored
from metrics.common.errors import ConfigError
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
from metrics.tables.boundary import Boundary
from metrics.units import UNKNOWN, format_size


@dataclass(frozen=True)
class FigureKind:
    """The kind of a figure, without its unit.

    Attributes:
        word: name of the figure, such as `limit`.
        less_is_better: True if a smaller figure is better, as for a time.
        heading: word before the unit in the heading of the figure's column; can be empty.
        interval_heading: heading of the interval's column.
        columns: heading of each further column → name of the reading that the column shows.
    """

    word: str
    less_is_better: bool = False
    heading: str = ""
    interval_heading: str = "at 90 %"
    columns: Mapping[str, str] = field(default_factory=dict)


LIMIT = FigureKind("limit", heading="limit")
ACKNOWLEDGED = FigureKind(
    "acknowledged",
    columns={
        "CPU-s/MB": "cpu_s_per_mb",
        "broker CPU-s/MB": "broker_cpu_s_per_mb",
        "log B/B": "log_bytes_per_byte",
    },
)
TIME = FigureKind("time", less_is_better=True)

CASE = "case"
"""Name that replaces the varied key in an experiment with named cases, because each case sets
several keys."""


BROKERS_KEY = "cluster.testbed.brokers"
"""Full path of a key whose value is the number of brokers that a run starts."""
PROPERTIES_PREFIX = "cluster.testbed.properties."
"""Start of the full path of each key that sets a property of a testbed's brokers."""
_WORDS = {"workload.np": "producers", "workload.message_bytes": "bytes per message"}


@dataclass(frozen=True)
class Result:
    """The figure of one case in one repeat, at one message size.

    Attributes:
        settings: full path of each varied key → its value.
        repeat: number of the repeat, from 1.
        message_bytes: message size [B].
        value: the figure, in the unit of the sweep; None if the case has no answer.
        low, high: ends of the figure's 90 % interval, in the unit of the sweep; None if the
            interval is not known.
        p50_ms, p99_ms, p999_ms: latencies p50, p99 and p99.9 at the load of the figure [ms].
        limited_by: the limiting resource; None if it is not known.
        why: the reason for a missing answer; empty if there is an answer.
        brokers: number of brokers; 0 if the number is not known.
        run_id: id of the case's run.
        cpu_s_per_mb: CPU time of the producers per MB of payload, at a fixed load [CPU-s/MB].
        broker_cpu_s_per_mb: CPU time of all brokers per MB of payload [CPU-s/MB].
        commit_ms: mean duration of the commit of a transaction, at a fixed load with transactions
            [ms].
        log_bytes_per_byte: bytes of record batches per byte of payload, at a fixed load [ratio].
        broker_resident_bytes, page_cache_bytes: highest resident memory of any broker process [B],
            and largest page cache of any host [B], at the load of the figure; None if the hosts do
            not report the value.
        readings: name → value of further readings of the measurement.
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
        """The value with this name, from an attribute or from an entry in `readings`; None if the
        value is not known.
        """
        found: float | None = getattr(self, name, None)
        return self.readings.get(name) if found is None else found

    @property
    def has_interval(self) -> bool:
        """True if the interval of the figure is known."""
        return bool(self.low and self.high)

    @property
    def estimate(self) -> float | None:
        """The geometric middle of the interval; the figure itself if the interval is not known.

        If the figure is a limit, the figure is the highest sustained load. The limit itself may be
        up to 15 % higher than the highest sustained load, because the search ends with a bracket.
        So the middle of the limit's interval is a better estimate of the limit than the highest
        sustained load.
        """
        if self.value and self.low and self.high:
            return math.sqrt(self.low * self.high)
        return self.value


@dataclass(frozen=True)
class SweepRecord:
    """A sweep and its figures: the content of sweep.json.

    Attributes:
        sweep_id: name of the sweep and of its folder.
        started_at, finished_at: ISO 8601, UTC.
        status, exit_code, error, caveat: see `metrics.reporting.summary.RunSummary`.
        experiment: name of the experiment.
        description: question of the experiment.
        published: result of a published study on this question; empty if there is no such study.
        asks: name of the measurement that the sweep makes for each case, such as `limit`.
        unit: unit of the figures.
        kind: what the figures are, such as limits or times.
        axes: full path of each varied key → its values; each other value is compared with the first
            value.
        repeats: planned number of measurements per case.
        results: figures in the order of the experiment's cases.
        named: name of a case → (full path → value) for each key that the case sets.
    """

    sweep_id: str
    started_at: str
    finished_at: str
    status: str
    exit_code: int
    error: str | None
    caveat: str
    experiment: str
    description: str
    published: str
    asks: str
    unit: str
    kind: FigureKind
    axes: Mapping[str, tuple[str, ...]]
    repeats: int
    results: tuple[Result, ...]
    named: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def figure(self) -> str:
        """The name of the figure, with its unit."""
        return f"{self.kind.word} [{self.unit}]"


def load_sweep(path: Path) -> SweepRecord:
    """Read sweep.json. Keys that only a newer version has are ignored.

    Raises:
        ConfigError: the file is missing or does not contain the answer of a sweep.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        older = {"limit": LIMIT, "load": ACKNOWLEDGED}.get(document["asks"], TIME)
        # Older versions did not write the kind.
        return restored(SweepRecord, {"kind": asdict(older), **document})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not the answer of a sweep ({type(error).__name__}: {error}); expected "
            "a file OUT/SWEEP_ID/sweep.json that redline sweep has written; correct the path"
        ) from error


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known and finite; None if there is no such value."""
    known = [each for each in values if each is not None and math.isfinite(each)]
    return median(known) if known else None


def short(path: str) -> str:
    """A short name of a key.

    The short name of a Kafka property is Kafka's name. The short name of any other key is the last
    part of the key's path, except for the keys in `_WORDS`.
    """
    return _WORDS.get(path) or last_name(path)


def last_name(path: str) -> str:
    """The name of a Kafka property; for a key that is no Kafka property, the path's last part."""
    name = path.removeprefix(PROPERTIES_PREFIX)
    return name if name != path else path.rsplit(".", 1)[-1]


def figure(value: float | None) -> str:
    """A figure without its unit: three significant digits below 100, a whole number from 100."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def setting_text(value: Any) -> str:
    """The value of a setting as text, in the form of `Result.settings`."""
    return value if isinstance(value, str) else json.dumps(value)


def case_words(settings: Mapping[str, Any]) -> str:
    """The name of a case, or its settings on one line, such as `acks all, num.io.threads 2`."""
    return ", ".join(
        value if path == CASE else f"{short(path)} {value}" for path, value in settings.items()
    )


def values_of(settings: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Full path of each varied key → its values, in the order of the cases' settings."""
    return {path: tuple(dict.fromkeys(each[path] for each in settings)) for path in settings[0]}


def limit_result(boundary: Boundary) -> Result:
    """The result of a search for a limit. The settings of the result are empty."""
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "no load was sustained")
    return Result(
        {},
        1,
        boundary.message_bytes,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
        broker_resident_bytes=boundary.broker_resident_bytes,
        page_cache_bytes=boundary.page_cache_bytes,
    )


SIZE = "workload.message_bytes"
"""Key of the message size. A result has the message size in a field and not in its settings."""
MANIFOLD = 2.0
"""A change by this ratio or more is written as `2 times as much`; a smaller change is written as a
percentage."""
Pairs = list[tuple[Result, Result]]
"""Pairs of results whose settings differ in only one varied key: (result with the key's first
value, result with another value of the key)."""


@dataclass(frozen=True)
class AxisEffect:
    """The effect of one value of a varied key, compared with the first value of the key.

    Attributes:
        axis: full path of the key.
        message_bytes: message size [B].
        before, after: the first value and the compared value.
        effect: effect of `after` against `before`; None if there are too few measurements.
        conclusion: the conclusion about the effect; all comparisons of the sweep share one error
            rate.
        count: number of pairs of results.
        by_repeats: True if the interval of the effect follows from the scatter of the pairs; False
            if it follows from the figures' intervals and an assumed scatter.
        where: this effect holds only with these values of the other keys; empty if the effect does
            not depend on the other keys.
        seen: mean ratio of the figures with `after` to the figures with `before`; also known if
            there are too few measurements for `effect`.
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
"""Regressions and improvements are swapped if the results are times: a shorter time is better."""


def effects_of(
    results: Sequence[Result],
    axes: Mapping[str, Sequence[str]],
    less_is_better: bool = False,
    between_sd: float = BETWEEN_STARTS_SD,
) -> tuple[AxisEffect, ...]:
    """Compare each value of each axis with the axis's first value, at each message size.

    Args:
        results: results of all cases and repeats.
        axes: full path of each varied key → its values; each other value is compared with the first
            value.
        less_is_better: True if a smaller figure is better, because the figures are durations.
        between_sd: standard deviation over repeated measurements of one case, see
            `interval_effect`.
    """
    found: list[AxisEffect] = []
    for axis, values in axes.items():
        for message_bytes in sorted({each.message_bytes for each in results}):
            own = [each for each in results if each.message_bytes == message_bytes and each.value]
            for value in values[1:]:
                found.extend(_against(own, axis, message_bytes, (values[0], value), between_sd))
    if not any(each.count for each in found):  # cases differ in several keys at once
        found = list(_between_cases(results, axes, between_sd)) or found
    names = _CONCLUSIONS_ON_TIMES if less_is_better else {}
    return tuple(
        replace(each, conclusion=names.get(each.conclusion, each.conclusion))
        for each in concluded(found, min_effect=0.0)
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
    """Compare one value of a varied key with the first value of the key.

    If the effect does not depend on the other varied keys, the result is one effect over all values
    of these keys. If the effect depends on the other varied keys, the result is one effect for each
    combination of the values of these keys.
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
    """Compare each case with the first case.

    This comparison is used if no two cases differ in exactly one key.
    """
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
    """The effect over pairs of results, still without a conclusion."""
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
    """The geometric mean of second/first over pairs of figures; None if there are no pairs."""
    logs = [math.log(b / a) for a, b in pairs if a and b]
    return math.exp(sum(logs) / len(logs)) if logs else None


def matches(result: Result, settings: Mapping[str, str]) -> bool:
    """True if a result has these settings. The key `SIZE` means the message size."""
    return all(
        result.settings.get(key) == value or (key == SIZE and value == str(result.message_bytes))
        for key, value in settings.items()
    )


def pairs_of(results: Sequence[Result], against: Mapping[str, str], of: Mapping[str, str]) -> Pairs:
    """Pairs of results. The two results of a pair belong to the same repeat, and differ only in the
    keys of `against` and `of`.

    Args:
        results: all results.
        against, of: settings (full path → value) of the first and of the second result in each
            pair.
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
    """The effect over pairs of results. The effect is None if there are no pairs, or if there are
    fewer than `PAIRS_MIN` pairs and a figure has no interval.

    Args:
        pairs: the pairs.
        between_sd: standard deviation over repeated measurements of one case, see
            `interval_effect`; used only with fewer than `PAIRS_MIN` pairs.
    """
    if len(pairs) >= PAIRS_MIN:
        return paired_effect([(a.estimate or 0.0, b.estimate or 0.0) for a, b in pairs])
    measured = [(_with_spread(a), _with_spread(b)) for a, b in pairs]
    known = [(a, b) for a, b in measured if a and b]
    return interval_effect(known, between_sd) if known and len(known) == len(pairs) else None


def _with_spread(result: Result) -> tuple[float, float] | None:
    """The figure and the standard deviation of its logarithm; None if the interval is not known."""
    if not (result.low and result.high):
        return None
    return result.estimate or 0.0, spread_of(result.low, result.high)


def sentence(each: AxisEffect, less_is_better: bool = False, is_time: bool = False) -> str:
    """An effect as a sentence.

    Args:
        each: the effect.
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
            f"{'pair' if each.count == 1 else 'pairs'} of measurements; use "
            f"{PAIRS_MIN} or more repeats to see whether this change is chance"
        )
    if effect is None:
        return f"{where}: no answer, because too few cases have a result"
    if each.conclusion is Conclusion.NONE_SEEN:
        return (
            f"{where}: no significant effect ({effect.change:+.1%}, {_interval(effect)}); the "
            f"smallest detectable {'change' if less_is_better else 'loss'} is "
            f"{effect.smallest_visible:.0%}"
        )
    return f"{where}: {change_words(effect, is_time)}"


def change_words(effect: Effect, is_time: bool = False) -> str:
    """A change with its interval, such as `3.2% less, 95% interval -23.8% to +23.0%`."""
    if effect.ratio >= MANIFOLD:
        span = f"{effect.low:.3g} to {effect.high:.3g}"
        much = "long" if is_time else "much"
        return f"{effect.ratio:.3g} times as {much}, {CONFIDENCE:.0%} interval {span} times"
    less, more = ("shorter", "longer") if is_time else ("less", "more")
    word = less if effect.change < 0 else more
    return f"{abs(effect.change):.1%} {word}, {_interval(effect)}"


def seen_words(ratio: float, is_time: bool) -> str:
    """A change in words, without its interval, such as `+3.2%` or `2.1 times as much`."""
    times = f"{ratio:.3g} times as {'long' if is_time else 'much'}"
    return times if ratio >= MANIFOLD else f"{ratio - 1:+.1%}"


def _interval(effect: Effect) -> str:
    return f"{CONFIDENCE:.0%} interval {effect.low - 1:+.1%} to {effect.high - 1:+.1%}"
