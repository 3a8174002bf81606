"""What a sweep found: one record, of which sweep.json, tables, sentences and the page are made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from metrics.common.errors import ConfigError
from metrics.comparing.effects import BETWEEN_STARTS_SD, CONFIDENCE, PAIRS_MIN, Conclusion
from metrics.comparing.recommending import (
    BOTH,
    LATENCY,
    THROUGHPUT,
    Recommendation,
    recommendations,
)
from metrics.comparing.sweeps import CASE, AxisEffect, Result, effects_of
from metrics.units import UNKNOWN, format_megabytes, format_ms, format_size

SCHEMA_VERSION = 1
AIMS = {THROUGHPUT: "throughput", LATENCY: "latency", BOTH: "throughput and latency"}
TIMED = ("fill", "drain", "failover")
"""What is asked where the figure is a time, so that less is better."""
MANIFOLD = 2.0
"""From this ratio on people read times as much, and no percent."""
_OF_BROKERS = "cluster.testbed.properties."
_WORDS = {"workload.np": "producers", "workload.message_bytes": "bytes per message"}


@dataclass(frozen=True)
class SweepAnswer:
    """A sweep however it ended.

    Attributes:
        sweep_id: names it and its folder.
        started_at, finished_at: ISO 8601, UTC.
        status, exit_code, error, caveat: as in a run's summary.
        experiment: its name.
        description, published: its question, and what a published study saw.
        asks: what is asked of each case.
        unit: of the figures.
        axes: full path of each key that varies → its values, the one that others are held
            against first.
        repeats: how often each case was to be measured.
        results: figures in the order of the experiment's cases.
        named: what each case sets, where cases have names: name → full path → value.
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
    axes: Mapping[str, tuple[str, ...]]
    repeats: int
    results: tuple[Result, ...]
    named: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def effects(self) -> tuple[AxisEffect, ...]:
        """What each value of each axis does to the figure."""
        return effects_of(self.results, self.axes, less_is_better=self.asks in TIMED)

    @cached_property
    def recommended(self) -> tuple[Recommendation, ...]:
        """The best case for throughput, for latency and for both, at each size."""
        return recommendations(self.results, less_is_better=self.asks in TIMED)

    @property
    def figure(self) -> str:
        """What was found of each case, with its unit."""
        word = {"limit": "limit", "load": "acknowledged"}.get(self.asks, "time")
        return f"{word} [{self.unit}]"

    def document(self) -> str:
        """The text of sweep.json; docs/experiments.md describes it."""
        effects = [
            asdict(each) | {"conclusion": each.conclusion.value, "words": self.sentence(each)}
            for each in self.effects
        ]
        told = {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "confidence": CONFIDENCE,
            "effects": effects,
            "recommended": [
                asdict(each) | {"words": self.advice(each)} for each in self.recommended
            ],
        }
        return json.dumps(told, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    # --- for people ---------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of `rows`."""
        figure = ("sustained", "limit at 90 %") if self.asks == "limit" else ("", "at 90 %")
        cost = ("CPU-s/MB", "broker CPU-s/MB", "log B/B") if self.asks == "load" else ()
        commits = ("commit ms",) if self._tells_commits else ()
        memory = ("broker MB", "page cache MB") if self._tells_memory else ()
        return (*map(short, self.axes), "size", "repeat", f"{figure[0]} {self.unit}".strip(),
                figure[1], "p50 ms", "p99 ms", *commits, *cost, *memory, "bound by")  # fmt: skip

    @cached_property
    def _tells_memory(self) -> bool:
        """Whether the hosts of any case told the memory that brokers took."""
        return any(each.broker_resident_bytes for each in self.results)

    @cached_property
    def _tells_commits(self) -> bool:
        """Whether any case had transactions."""
        return any(each.commit_ms for each in self.results)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A row for each figure."""
        return tuple(self._row(each) for each in self.results)

    def _row(self, each: Result) -> tuple[str, ...]:
        interval = f"{figure(each.low)} to {figure(each.high)}" if each.has_interval else UNKNOWN
        costs = (each.cpu_s_per_mb, each.broker_cpu_s_per_mb, each.log_bytes_per_byte)
        memory = (each.broker_resident_bytes, each.page_cache_bytes)
        return (
            *(each.settings[path] for path in self.axes),
            format_size(each.bpm),
            str(each.repeat),
            figure(each.value),
            interval if each.value is not None else each.why,
            format_ms(each.p50_ms),
            format_ms(each.p99_ms),
            *((format_ms(each.commit_ms),) if self._tells_commits else ()),
            *(map(figure, costs) if self.asks == "load" else ()),
            *(map(format_megabytes, memory) if self._tells_memory else ()),
            each.limited_by or UNKNOWN,
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each value does, against the first of its axis."""
        return tuple(map(self.sentence, self.effects))

    def sentence(self, each: AxisEffect) -> str:
        """What a value does, against the first of its axis; see `sentence`."""
        return sentence(each, is_time=self.asks in TIMED)

    @property
    def advices(self) -> tuple[str, ...]:
        """The best cases in sentences."""
        return tuple(map(self.advice, self.recommended))

    def advice(self, each: Recommendation) -> str:
        """The best case for an aim, and which cannot be told from it."""
        best, many = each.best, len({one.bpm for one in self.results}) > 1
        at = f" at {format_size(best.bpm)}" if many else ""
        interval = (
            f", {figure(best.low)} to {figure(best.high)} at 90 %" if best.low and best.high else ""
        )
        latency = f", p99 {format_ms(best.p99_ms)} ms" if best.p99_ms else ""
        aim = "the shortest time" if self.asks in TIMED else f"best for {AIMS[each.aim]}"
        alike = [case_words(settings) for settings in each.alike]
        text = (
            f"{aim}{at}: {case_words(best.settings)} "
            f"({figure(best.value)} {self.unit}{interval}{latency})"
        )
        if alike and best.low is None:  # then they are alike only as nobody knows
            return f"{text}; how sure that is, the comparisons say"
        return f"{text}; not to be told from {'; or '.join(alike)}" if alike else text

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each case with a name sets."""
        return tuple(f"{name}: {case_words(own)}" for name, own in self.named.items())

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader has to know of the intervals."""
        return tuple(self._caveats())

    def _caveats(self) -> Iterator[str]:
        if any(each.effect is not None and not each.by_repeats for each in self.effects):
            yield (
                f"with {self.repeats} {'repeat' if self.repeats == 1 else 'repeats'} the intervals "
                f"know how sure each figure is, and assume {BETWEEN_STARTS_SD:.0%} (standard "
                "deviation) for what changes from one measurement to the next; "
                "repeats: 3 or more find that out"
            )


def load_answer(path: Path) -> SweepAnswer:
    """Read sweep.json; keys that a newer version added are ignored.

    Raises:
        ConfigError: the file is missing or is none.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        told.setdefault("named", {})  # which an older version did not write
        own = {name: told[name] for name in (item.name for item in fields(SweepAnswer))}
        known = {item.name for item in fields(Result)}
        results = ({k: v for k, v in each.items() if k in known} for each in told["results"])
        own["axes"] = {path: tuple(values) for path, values in told["axes"].items()}
        return SweepAnswer(**own | {"results": tuple(Result(**each) for each in results)})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not the answer of a sweep ({type(error).__name__}: {error}); expected "
            "OUT/SWEEP_ID/sweep.json as redline sweep writes it"
        ) from error


def sentence(each: AxisEffect, is_time: bool = False) -> str:
    """What a value does, against the first of its axis.

    Args:
        is_time: the figures are times, so that more of it is worse.
    """
    with_ = f" with {case_words(each.where)}" if each.where else ""
    names = ", ".join(map(short, each.axis.split(", ")))
    size = f", {format_size(each.bpm)}" if each.bpm else ""
    between = f"{each.after} against {each.before}"
    where = f"{between if each.axis == CASE else f'{names} {between}'}{with_}{size}"
    effect = each.effect
    if effect is None and each.seen is not None:
        times = f"{each.seen:.3g} times as {'long' if is_time else 'much'}"
        change = times if each.seen >= MANIFOLD else f"{each.seen - 1:+.1%}"
        return (
            f"{where}: {change}, with {each.count} of each measured, which says "
            f"nothing of chance; {PAIRS_MIN} repeats or more do"
        )
    if effect is None:
        return f"{where}: no answer, as too few cases have one"
    interval = f"{CONFIDENCE:.0%} interval {effect.low - 1:+.1%} to {effect.high - 1:+.1%}"
    if each.conclusion is Conclusion.NONE_SEEN:
        return (
            f"{where}: no effect seen ({effect.change:+.1%}, {interval}); a "
            f"{'change' if is_time else 'loss'} of {effect.smallest_visible:.0%} would have been"
        )
    if effect.ratio >= MANIFOLD:
        span = f"{effect.low:.3g} to {effect.high:.3g}"
        much = "long" if is_time else "much"
        return (
            f"{where}: {effect.ratio:.3g} times as {much}, {CONFIDENCE:.0%} interval {span} times"
        )
    word = _WORDS_OF_TIME if is_time else _WORDS_OF_LOAD
    return f"{where}: {abs(effect.change):.1%} {word[effect.change < 0]}, {interval}"


_WORDS_OF_LOAD = {True: "less", False: "more"}
_WORDS_OF_TIME = {True: "shorter", False: "longer"}


def short(path: str) -> str:
    """A key as people know it: a word, Kafka's name of a property, or the last part of the path."""
    if path in _WORDS:
        return _WORDS[path]
    of_broker = path.removeprefix(_OF_BROKERS)
    return of_broker if of_broker != path else path.rsplit(".", 1)[-1]


def figure(value: float | None) -> str:
    """A figure without its unit, to three digits or a whole number."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def case_words(settings: Mapping[str, Any]) -> str:
    """The settings of a case in a line: `acks all, num.io.threads 2`; of one with a name that."""
    return ", ".join(
        value if path == CASE else f"{short(path)} {value}" for path, value in settings.items()
    )
