"""The answer of a sweep: one record for sweep.json, tables, sentences and the page.

The figure of a limit, from its boundary. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from metrics.columns import as_document, restored
from metrics.common.errors import ConfigError
from metrics.comparing.effects import BETWEEN_STARTS_SD, CONFIDENCE, PAIRS_MIN, Conclusion, Effect
from metrics.comparing.figures import FigureKind
from metrics.comparing.sweeps import (
    BOTH,
    CASE,
    LATENCY,
    THROUGHPUT,
    AxisEffect,
    Claim,
    ClaimVerdict,
    Recommendation,
    Result,
    effects_of,
    judge_claim,
    recommendations,
)
from metrics.planning.setups import PROPERTIES_PREFIX
from metrics.reporting.summary import figure_kind_of
from metrics.tables.boundary import Boundary
from metrics.units import UNKNOWN, format_megabytes, format_ms, format_size

SCHEMA_VERSION = 1
AIMS = {THROUGHPUT: "throughput", LATENCY: "latency", BOTH: "throughput and latency"}
MANIFOLD = 2.0
"""Ratio from which a change is written as `2 times as much` and not as a percentage."""
_WORDS = {"workload.np": "producers", "workload.message_bytes": "bytes per message"}


@dataclass(frozen=True)
class SweepAnswer:
    """The answer of a sweep.

    Attributes:
        sweep_id: name of the sweep and of its folder.
        started_at, finished_at: ISO 8601, UTC.
        status, exit_code, error, caveat: as in a run's summary.
        experiment: name of the experiment.
        description, published: its question, and the result of a published study.
        asks: the name of the measurement of each case.
        unit: unit of the figures.
        kind: how the figures are named and compared.
        axes: full path of each key that varies → its values; the first value is the reference.
        repeats: planned number of measurements per case.
        results: figures in the order of the experiment's cases.
        named: settings of cases that have names: name → full path → value.
        claims: the published claims, each about one case and another.
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
    claims: tuple[Claim, ...] = ()

    @cached_property
    def effects(self) -> tuple[AxisEffect, ...]:
        """The effect of each value of each axis on the figure."""
        return effects_of(self.results, self.axes, less_is_better=self.kind.less_is_better)

    @cached_property
    def recommended(self) -> tuple[Recommendation, ...]:
        """The best case for throughput, for latency and for both, at each size."""
        return recommendations(self.results, less_is_better=self.kind.less_is_better)

    @cached_property
    def verdicts(self) -> tuple[ClaimVerdict, ...]:
        """The published claims, held against the figures."""
        return tuple(judge_claim(each, self.results) for each in self.claims)

    @property
    def figure(self) -> str:
        """The name of the figure, with its unit."""
        return f"{self.kind.word} [{self.unit}]"

    def document(self) -> str:
        """The text of sweep.json; docs/experiments.md describes it."""
        effects = [
            as_document(each) | {"conclusion": each.conclusion.value, "words": self.sentence(each)}
            for each in self.effects
        ]
        document = {
            "schema_version": SCHEMA_VERSION,
            **as_document(self),
            "confidence": CONFIDENCE,
            "effects": effects,
            "verdicts": [
                {
                    "says": each.claim.says,
                    "verdict": each.verdict.value,
                    "words": self.claim_sentence(each),
                }
                for each in self.verdicts
            ],
            "recommended": [
                as_document(each) | {"words": self.advice(each)} for each in self.recommended
            ],
        }
        return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    # --- for people ---------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of `rows`."""
        commits = ("commit ms",) if self._has_commits else ()
        memory = ("broker MB", "page cache MB") if self._has_memory else ()
        heading = f"{self.kind.heading} {self.unit}".strip()
        return (*map(short, self.axes), "size", "repeat", heading, self.kind.interval_heading,
                "p50 ms", "p99 ms", *commits, *self.kind.columns, *memory, "bound by")  # fmt: skip

    @cached_property
    def _has_memory(self) -> bool:
        """True if the memory of the brokers is known for any case."""
        return any(each.broker_resident_bytes for each in self.results)

    @cached_property
    def _has_commits(self) -> bool:
        """True if any case had transactions."""
        return any(each.commit_ms for each in self.results)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A table row for each figure."""
        return tuple(self._row(each) for each in self.results)

    def _row(self, each: Result) -> tuple[str, ...]:
        interval = f"{figure(each.low)} to {figure(each.high)}" if each.has_interval else UNKNOWN
        memory = (each.broker_resident_bytes, each.page_cache_bytes)
        return (
            *(each.settings[path] for path in self.axes),
            format_size(each.message_bytes),
            str(each.repeat),
            figure(each.estimate),
            interval if each.value is not None else each.why,
            format_ms(each.p50_ms),
            format_ms(each.p99_ms),
            *((format_ms(each.commit_ms),) if self._has_commits else ()),
            *(figure(each.reading(name)) for name in self.kind.columns.values()),
            *(map(format_megabytes, memory) if self._has_memory else ()),
            each.limited_by or UNKNOWN,
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The effect of each value, compared with the first value of its axis."""
        return tuple(map(self.sentence, self.effects))

    def sentence(self, each: AxisEffect) -> str:
        """The effect of a value, compared with the first value of its axis; see `sentence`."""
        return sentence(each, less_is_better=self.kind.less_is_better, is_time=self._is_time)

    @property
    def _is_time(self) -> bool:
        return self.unit in _TIME_UNITS

    @property
    def advices(self) -> tuple[str, ...]:
        """The best cases in sentences."""
        return tuple(map(self.advice, self.recommended))

    def advice(self, each: Recommendation) -> str:
        """The best case for an aim, and the cases that do not differ from it significantly."""
        best, many = each.best, len({one.message_bytes for one in self.results}) > 1
        at = f" at {format_size(best.message_bytes)}" if many else ""
        interval = (
            f", {figure(best.low)} to {figure(best.high)} at 90 %" if best.low and best.high else ""
        )
        latency = f", p99 {format_ms(best.p99_ms)} ms" if best.p99_ms else ""
        less = f"the {'shortest' if self._is_time else 'lowest'} {self.kind.word}"
        aim = less if self.kind.less_is_better else f"best for {AIMS[each.aim]}"
        alike = [case_words(settings) for settings in each.alike]
        text = (
            f"{aim}{at}: {case_words(best.settings)} "
            f"({figure(best.value)} {self.unit}{interval}{latency})"
        )
        if alike and best.low is None:  # without intervals every case counts as alike
            return f"{text}; see the comparisons for its certainty"
        return f"{text}; no significant difference from {'; '.join(alike)}" if alike else text

    @property
    def claim_sentences(self) -> tuple[str, ...]:
        """Each published claim, and whether the figures agree with it."""
        return tuple(map(self.claim_sentence, self.verdicts))

    def claim_sentence(self, each: ClaimVerdict) -> str:
        """A published claim, and whether the figures agree with it."""
        claim = each.claim
        head = f"{each.verdict.value}: {claim.says} ({claim.source}); here"
        if each.lacks:
            return f"{head} {case_words(each.lacks)} has no figure"
        name = f"{claim.reading.removesuffix('_ms')} " if claim.reading else ""
        if each.effect is not None:
            return f"{head} {name}{change_words(each.effect, self._is_time)}"
        if each.seen is None:
            return f"{head} no pair of cases has this figure"
        seen = _seen_words(each.seen, self._is_time)
        return (
            f"{head} {name}{seen}, without an interval; {PAIRS_MIN} repeats or more show whether "
            "this is chance"
        )

    @property
    def meanings(self) -> tuple[str, ...]:
        """The settings of each case that has a name."""
        return tuple(f"{name}: {case_words(own)}" for name, own in self.named.items())

    @property
    def caveats(self) -> tuple[str, ...]:
        """Remarks on the intervals."""
        return tuple(self._caveats())

    def _caveats(self) -> Iterator[str]:
        if any(each.effect is not None and not each.by_repeats for each in self.effects):
            yield (
                f"with {self.repeats} {'repeat' if self.repeats == 1 else 'repeats'} the intervals "
                f"assume a standard deviation of {BETWEEN_STARTS_SD:.0%} between measurements of "
                f"the same case; {PAIRS_MIN} repeats or more measure it"
            )


def load_answer(path: Path) -> SweepAnswer:
    """Read sweep.json; keys that a newer version added are ignored.

    Raises:
        ConfigError: the file is missing or is not the answer of a sweep.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document.setdefault("named", {})  # older versions did not write it, the kind and claims
        document.setdefault("claims", [])
        document.setdefault("kind", as_document(figure_kind_of(document["asks"])))
        own = {name: document[name] for name in (item.name for item in fields(SweepAnswer))}
        results = tuple(restored(Result, each) for each in document["results"])
        own["axes"] = {path: tuple(values) for path, values in document["axes"].items()}
        kind = restored(FigureKind, document["kind"])
        claims = tuple(restored(Claim, each) for each in document["claims"])
        return SweepAnswer(**own | {"results": results, "kind": kind, "claims": claims})
    except (*(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError),) as error:
        raise ConfigError(
            f"{path} is not the answer of a sweep ({type(error).__name__}: {error}); expected "
            "OUT/SWEEP_ID/sweep.json as redline sweep writes it"
        ) from error


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
            f"{where}: {_seen_words(each.seen, is_time)}, from {each.count} "
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


def _seen_words(ratio: float, is_time: bool) -> str:
    times = f"{ratio:.3g} times as {'long' if is_time else 'much'}"
    return times if ratio >= MANIFOLD else f"{ratio - 1:+.1%}"


def _interval(effect: Effect) -> str:
    return f"{CONFIDENCE:.0%} interval {effect.low - 1:+.1%} to {effect.high - 1:+.1%}"


_TIME_UNITS = frozenset({"h", "min", "s", "ms", "µs", "us"})
_WORDS_OF_LOAD = {True: "less", False: "more"}
_WORDS_OF_TIME = {True: "shorter", False: "longer"}


def short(path: str) -> str:
    """A short name of a key: a word, Kafka's name of the property, or the last part of the path."""
    if path in _WORDS:
        return _WORDS[path]
    name = path.removeprefix(PROPERTIES_PREFIX)
    return name if name != path else path.rsplit(".", 1)[-1]


def figure(value: float | None) -> str:
    """A figure without its unit, with three digits or as a whole number."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def case_words(settings: Mapping[str, Any]) -> str:
    """The name of a case, or its settings on one line: `acks all, num.io.threads 2`."""
    return ", ".join(
        value if path == CASE else f"{short(path)} {value}" for path, value in settings.items()
    )


def limit_result(boundary: Boundary) -> Result:
    """The figure of a limit, without the settings of its case."""
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
