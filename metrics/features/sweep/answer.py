"""The answer of a sweep: one record for sweep.json, tables, sentences and the page.

The best cases of a sweep, and the cases that do not differ from them significantly. Pure.

Published claims about an experiment's figure, held against the measured figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from statistics import median
from typing import Annotated, Any, Literal

from metrics.columns import Column, as_document
from metrics.common.bounds import Checked, Number
from metrics.comparing.effects import (
    BETWEEN_STARTS_SD,
    CONFIDENCE,
    PAIRS_MIN,
    Effect,
    interval_effect,
    paired_effect,
    spread_of,
)
from metrics.comparing.figures import (
    AxisEffect,
    Result,
    SweepRecord,
    case_words,
    change_words,
    effect_of,
    effects_of,
    figure,
    matches,
    mean_ratio,
    middle,
    pairs_of,
    seen_words,
    sentence,
    setting_text,
    short,
)
from metrics.reporting.files import json_text
from metrics.units import UNKNOWN, format_megabytes, format_ms, format_size

NEAR = 0.1
"""For the aim `both`: distance from the highest figure up to which a figure is near it [share]."""
THROUGHPUT, LATENCY, BOTH = "throughput", "latency", "both"


@dataclass(frozen=True)
class CaseMedians:
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

    def is_apart_from(self, other: CaseMedians) -> bool:
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
    best: CaseMedians
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
            quickest = Recommendation(THROUGHPUT, min(cases, key=lambda one: one.value))
            found.extend([quickest] if less_is_better else _best(cases))
    return tuple(found)


def _best(cases: Sequence[CaseMedians]) -> Iterator[Recommendation]:
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


def _cases(results: Sequence[Result]) -> Iterator[CaseMedians]:
    by_case: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for each in results:
        if each.value:
            by_case.setdefault(tuple(sorted(each.settings.items())), []).append(each)
    for own in by_case.values():
        yield CaseMedians(
            own[0].settings,
            own[0].message_bytes,
            median(each.estimate or 0.0 for each in own),
            middle(each.low for each in own),
            middle(each.high for each in own),
            middle(each.p99_ms for each in own),
            tuple(each.run_id for each in own),
        )


SAME_WITHIN = 0.10
"""Largest change that counts as none, for a study that reports no difference [share]."""


class CaseSettings(Checked):
    """The settings of a case."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return "keys by their full paths, such as workload.producer.acks: all"

    def accepts(self, value: Any) -> bool:
        """True for a map."""
        return isinstance(value, Mapping)


class CaseTexts(CaseSettings):
    """The settings of a case; their values become texts, as a result has them."""

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a map with values of any type."""
        return {**super().for_editors(), "additionalProperties": True}

    def _check(self, value: Any) -> Any:
        return {key: setting_text(each) for key, each in super()._check(value).items()}


@dataclass(frozen=True)
class Claim:
    """A published claim about one case of an experiment and another.

    Attributes:
        source: the study, such as "Heroku 2016".
        says: the claim, a clause without a full stop.
        of: full path or "case" → value of the case that the claim is about.
        against: full path or "case" → value of the case that it is compared with.
        change: "less", "more", or "same" for at most 10 % of a difference.
        by: the published change; null where the study has no figure [share].
        reading: the reading that is compared, such as "p99_ms"; empty for the figure.
    """

    source: str
    says: str
    of: Annotated[Mapping[str, str], CaseTexts()]
    against: Annotated[Mapping[str, str], CaseTexts()]
    change: Literal["less", "more", "same"]
    by: Annotated[float, Number(-1, 1_000, "of the other case", above=True)] | None = None
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
        if not any(matches(each, settings) for each in known):
            return ClaimVerdict(claim, Verdict.CANNOT_SAY, lacks=settings)
    pairs = pairs_of(known, claim.against, claim.of)
    if claim.reading:
        values = [(a.reading(claim.reading), b.reading(claim.reading)) for a, b in pairs]
        effect = paired_effect([(a, b) for a, b in values if a and b])
    else:
        values = [(a.estimate, b.estimate) for a, b in pairs]
        effect = effect_of(pairs)
    return ClaimVerdict(claim, _verdict(claim, effect), effect, mean_ratio(values))


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
        if all(each.effect is None or each.by_repeats for each in self.effects):
            return ()
        text = (
            f"with {self.repeats} {'repeat' if self.repeats == 1 else 'repeats'} the intervals "
            f"assume a standard deviation of {BETWEEN_STARTS_SD:.0%} between measurements of "
            f"the same case; {PAIRS_MIN} repeats or more measure it"
        )
        return (text,)


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
