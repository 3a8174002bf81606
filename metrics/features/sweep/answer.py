"""The answer of a sweep: effects, best cases and judged claims, for sweep.json and for people."""

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
"""For the aim `both`: a figure is near the highest figure if it is at most this much
lower [share].
"""
THROUGHPUT, LATENCY, BOTH = "throughput", "latency", "both"


@dataclass(frozen=True)
class CaseMedians:
    """A case at one message size, with the medians of its repeats.

    Attributes:
        settings: full path of each varied key → its value.
        message_bytes: message size [B].
        value: the middle of the figure's interval; the figure itself if no interval is known.
        low, high: ends of the 90 % interval; None if no interval is known.
        p99_ms: 99th percentile of the latency at the load of the figure [ms].
        run_ids: ids of the runs, one for each repeat.
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    value: float
    low: float | None
    high: float | None
    p99_ms: float | None
    run_ids: tuple[str, ...]

    def is_apart_from(self, other: CaseMedians) -> bool:
        """Whether two cases' figures differ significantly; False without intervals."""
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
        aim: `throughput` means the best result, such as the highest limit; `latency` means the
            lowest p99 latency; `both` means the lowest p99 latency among cases whose result is near
            the highest result.
        best: the best case.
        alike: settings of the cases whose figures do not differ significantly from the figure of
            the best case, without the best case itself; empty unless the aim is `throughput`.
    """

    aim: str
    best: CaseMedians
    alike: tuple[Mapping[str, str], ...] = ()


def recommendations(
    results: Sequence[Result], less_is_better: bool = False
) -> Iterator[Recommendation]:
    """The best case for each aim, at each message size with at least two figures.

    Args:
        less_is_better: True if a lower figure is better, as for times. If True, `throughput` is the
            only aim.
    """
    for message_bytes in sorted({each.message_bytes for each in results}):
        cases = list(_cases([each for each in results if each.message_bytes == message_bytes]))
        if len(cases) > 1:
            quickest = Recommendation(THROUGHPUT, min(cases, key=lambda one: one.value))
            yield from [quickest] if less_is_better else _best(cases)


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
"""A change up to this size agrees with a study that reports no difference [share]."""


class CaseSettings(Checked):
    """The settings of a case."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and documents."""
        return "keys by their full paths, such as workload.producer.acks: all"

    def accepts(self, value: Any) -> bool:
        """Whether the value is a map."""
        return isinstance(value, Mapping)


class CaseTexts(CaseSettings):
    """The settings of a case.

    When the settings are read, each value is converted to text, so that it can be compared with the
    settings of a `Result`, which are texts.
    """

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a map with values of any type."""
        return {**super().for_editors(), "additionalProperties": True}

    def _check(self, value: Any) -> Any:
        return {key: setting_text(each) for key, each in super()._check(value).items()}


@dataclass(frozen=True)
class Claim:
    """A claim of a published study about two cases of an experiment.

    Attributes:
        source: name of the study, such as "Heroku 2016".
        says: the claim, as a clause without a full stop.
        of: settings of the case that the claim is about (full path of a key → value). A case with a
            name has only the key "case", with this name as the value.
        against: settings of the reference case, in the same form as `of`.
        change: the claimed direction: "less", "more" or "same"; "same" means a difference of at
            most 10 %.
        by: the published size of the change [share]; null if the study states no figure.
        reading: the compared reading, such as "p99_ms"; empty for the figure of the sweep.
    """

    source: str
    says: str
    of: Annotated[Mapping[str, str], CaseTexts()]
    against: Annotated[Mapping[str, str], CaseTexts()]
    change: Literal["less", "more", "same"]
    by: Annotated[float, Number(-1, 1_000, "of the other case", above=True)] | None = None
    reading: str = ""


class Verdict(str, Enum):
    """The result of the comparison of a claim with the measured figures."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict.

    Attributes:
        effect: the measured effect; None if too few figures have an interval.
        seen: mean ratio of the results of the two cases, also known if too few results have an
            interval; None if no pair of results was measured.
        lacks: settings of the case without a figure; empty if both cases have figures.
    """

    claim: Claim
    verdict: Verdict
    effect: Effect | None = None
    seen: float | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)


def judge_claim(claim: Claim, results: Sequence[Result]) -> ClaimVerdict:
    """Compare a claim with the results of a sweep.

    The verdict is `agrees` if the whole interval of the effect lies in the claimed range. The
    verdict is `differs` if the whole interval lies outside the claimed range. A claim may also
    state the size of the change. If the interval does not contain this size, the verdict is
    `differs`.
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
        claims: the claims of published studies, each about two cases.
    """

    claims: tuple[Claim, ...] = ()

    @cached_property
    def effects(self) -> tuple[AxisEffect, ...]:
        """The effect of each value of each axis on the figure."""
        return effects_of(self.results, self.axes, less_is_better=self.kind.less_is_better)

    @cached_property
    def recommended(self) -> tuple[Recommendation, ...]:
        """The best case for throughput, for latency and for both aims, at each message size."""
        return tuple(recommendations(self.results, less_is_better=self.kind.less_is_better))

    @cached_property
    def verdicts(self) -> tuple[ClaimVerdict, ...]:
        """The published claims, each with its verdict."""
        return tuple(judge_claim(each, self.results) for each in self.claims)

    def document(self) -> str:
        """The text of sweep.json, as docs/experiments.md describes it."""
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
        """Column heading → function that formats a result's cell. A column appears only if some
        result has a value for it.
        """
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
        """The column headings of `rows`."""
        return (*map(short, self.axes), *(heading for heading, _ in self._cells))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The table rows, one for each figure."""
        return tuple(
            (*map(each.settings.__getitem__, self.axes), *(cell(each) for _, cell in self._cells))
            for each in self.results
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each value: its effect, compared with the first value of its axis."""
        return tuple(map(self.sentence, self.effects))

    def sentence(self, each: AxisEffect) -> str:
        """The effect of one value, compared with the first value of its axis, as a sentence."""
        return sentence(each, less_is_better=self.kind.less_is_better, is_time=self._is_time)

    @property
    def _is_time(self) -> bool:
        return self.unit in _TIME_UNITS

    @property
    def advices(self) -> tuple[str, ...]:
        """Sentences that recommend a case: one sentence for each recommendation."""
        return tuple(map(self.advice, self.recommended))

    def advice(self, each: Recommendation) -> str:
        """A sentence with the best case for an aim, and with the cases that do not differ
        significantly from it.
        """
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
        if alike and best.low is None:  # without intervals all cases count as alike
            return f"{text}; the comparisons show how certain this is"
        return f"{text}; no significant difference from {'; '.join(alike)}" if alike else text

    @property
    def claim_sentences(self) -> tuple[str, ...]:
        """One sentence for each published claim: its verdict and the measured change."""
        return tuple(map(self.claim_sentence, self.verdicts))

    def claim_sentence(self, each: ClaimVerdict) -> str:
        """A sentence with a published claim, its verdict and the measured change."""
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
            f"{head} {name}{seen}, without an interval; at least {PAIRS_MIN} repeats show whether "
            "this is chance"
        )

    @property
    def meanings(self) -> tuple[str, ...]:
        """One sentence for each named case: its settings."""
        return tuple(f"{name}: {case_words(own)}" for name, own in self.named.items())

    @property
    def caveats(self) -> tuple[str, ...]:
        """A sentence about the standard deviation that is assumed for the intervals; empty if the
        repeats measure this deviation.
        """
        if all(each.effect is None or each.by_repeats for each in self.effects):
            return ()
        text = (
            f"with {self.repeats} {'repeat' if self.repeats == 1 else 'repeats'} the intervals "
            f"assume a standard deviation of {BETWEEN_STARTS_SD:.0%} between measurements of "
            f"the same case; at least {PAIRS_MIN} repeats measure this deviation"
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
