"""The answer of a sweep: one record for sweep.json, tables, sentences and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from metrics.columns import as_document
from metrics.comparing.axis_effects import (
    AxisEffect,
    change_words,
    effects_of,
    seen_words,
    sentence,
)
from metrics.comparing.effects import BETWEEN_STARTS_SD, CONFIDENCE, PAIRS_MIN
from metrics.comparing.figures import Result, SweepRecord, case_words, figure, short
from metrics.features.sweep.findings import (
    BOTH,
    LATENCY,
    THROUGHPUT,
    Claim,
    ClaimVerdict,
    Recommendation,
    judge_claim,
    recommendations,
)
from metrics.reporting.files import json_text
from metrics.units import UNKNOWN, format_megabytes, format_ms, format_size

SCHEMA_VERSION = 1
AIMS = {THROUGHPUT: "throughput", LATENCY: "latency", BOTH: "throughput and latency"}


@dataclass(frozen=True)
class SweepAnswer(SweepRecord):
    """The answer of a sweep in words.

    Attributes:
        claims: the published claims, each about one case and another.
    """

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
        return json_text(document)

    # --- for people ---------------------------------------------------------

    @cached_property
    def _cells(self) -> tuple[tuple[str, Callable[[Result], str]], ...]:
        """Headings beside the axes, each with the cell of a result; some where any is known."""
        commits = any(each.commit_ms for each in self.results)
        memory = any(each.broker_resident_bytes for each in self.results)
        return (
            ("size", lambda each: format_size(each.message_bytes)),
            ("repeat", lambda each: str(each.repeat)),
            (f"{self.kind.heading} {self.unit}".strip(), lambda each: figure(each.estimate)),
            (self.kind.interval_heading, _interval_or_why),
            ("p50 ms", lambda each: format_ms(each.p50_ms)),
            ("p99 ms", lambda each: format_ms(each.p99_ms)),
            *((("commit ms", lambda each: format_ms(each.commit_ms)),) if commits else ()),
            *((name, partial(_reading, key)) for name, key in self.kind.columns.items()),
            *(_MEMORY if memory else ()),
            ("bound by", lambda each: each.limited_by or UNKNOWN),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of `rows`."""
        return (*map(short, self.axes), *(heading for heading, _ in self._cells))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A table row for each figure."""
        return tuple(
            (*map(each.settings.__getitem__, self.axes), *(cell(each) for _, cell in self._cells))
            for each in self.results
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
        seen = seen_words(each.seen, self._is_time)
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


def _interval_or_why(each: Result) -> str:
    if each.value is None:
        return each.why
    return f"{figure(each.low)} to {figure(each.high)}" if each.has_interval else UNKNOWN


def _reading(name: str, each: Result) -> str:
    return figure(each.reading(name))


_MEMORY: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("broker MB", lambda each: format_megabytes(each.broker_resident_bytes)),
    ("page cache MB", lambda each: format_megabytes(each.page_cache_bytes)),
)
_TIME_UNITS = frozenset({"h", "min", "s", "ms", "µs", "us"})
