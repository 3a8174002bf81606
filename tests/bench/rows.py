"""The benchmark's answer: one row for each role, client, variant and size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from jobs.console.events import Table
from metrics.columns import Column, as_document
from metrics.comparing.effects import Effect, paired_effect
from tests.bench.meter import Repeat

JAVA = "java"
SOCKET = "plain socket"
KERNEL = "C loop"
OURS = "wire"
SURE = 0.10
"""Largest distance of the ends of an interval from a ratio that is certain enough [share]."""


@dataclass(frozen=True)
class Row:
    """One client at one size.

    Attributes:
        role: `producer` or `consumer`.
        variant: difference from the plain case; empty for the plain case.
        mb_per_cpu_s: median of the repeats, payload per CPU time of the client [MB/CPU-s].
        spread: (highest - lowest) / median of the repeats [ratio].
        mb_per_s: median of the payload per wall time, which the brokers limit [MB/s].
        repeats: each repeat [MB/CPU-s], in order.
        ratio_to_java: ratio to Java's row of the same role, size and variant, else to its plain
            row; None without Java.
        ratio_low, ratio_high: its interval with a confidence of 95 %, from the common turns; None
            with fewer than three.
        us_per_batch: median of the CPU time of a batch, of entries at a rate [CPU-us]; None for
            others. While the brokers keep up, a request holds one batch.
        kb_per_batch: median payload of a batch, of the same entries [kB]: clients that do the same
            send batches of the same size.
        late_p99_ms: median of the engine's p99 of the time by which batches were sent late, at a
            rate [ms].
    """

    role: str
    client: str
    variant: str
    message_bytes: Annotated[int, Column("bpm")]
    mb_per_cpu_s: float
    spread: float
    mb_per_s: float
    repeats: tuple[float, ...]
    ratio_to_java: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    us_per_batch: float | None = None
    kb_per_batch: float | None = None
    late_p99_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return as_document(self)


def of_commit(commit: str) -> str:
    """Name of the client with the engine of a commit."""
    return f"{OURS} of {commit}"


Key = tuple[str, str, str, int]
"""(role, client, variant, message bytes)."""

Found = Mapping[Key, Mapping[int, Repeat]]
"""Key → turn → repeat; the repeats of one turn ran one after the other."""


def ratio_of(ours: Mapping[int, Repeat], other: Mapping[int, Repeat]) -> Effect | None:
    """Ratio of the payloads per CPU time of two clients by turns; None with fewer than three."""
    turns = sorted(ours.keys() & other.keys())
    return paired_effect([(other[turn].mb_per_cpu_s, ours[turn].mb_per_cpu_s) for turn in turns])


def is_sure(ratio: Effect | None) -> bool:
    """True if the interval of a ratio is narrow enough to quote the ratio."""
    return ratio is not None and math.log(ratio.high / ratio.low) <= 2 * math.log(1 + SURE)


def rows_of(found: Found) -> list[Row]:
    """A row for each key with repeats, in the order of the keys."""
    return [_row(key, repeats, _java_of(key, found)) for key, repeats in found.items() if repeats]


def _java_of(key: Key, found: Found) -> Mapping[int, Repeat] | None:
    role, _client, variant, message_bytes = key
    return (
        found.get((role, JAVA, variant, message_bytes))
        or found.get((role, JAVA, "", message_bytes))
        or None
    )


def _row(key: Key, found: Mapping[int, Repeat], java: Mapping[int, Repeat] | None) -> Row:
    role, client, variant, message_bytes = key
    repeats = [found[turn] for turn in sorted(found)]
    values = tuple(repeat.mb_per_cpu_s for repeat in repeats)
    median = statistics.median(values)
    spread = (max(values) - min(values)) / median
    speed = statistics.median(each.payload_bytes / 1e6 / each.seconds for each in repeats)
    row = Row(
        role,
        client,
        variant,
        message_bytes,
        median,
        spread,
        speed,
        values,
        us_per_batch=_median(each.us_per_batch for each in repeats),
        kb_per_batch=_median(each.kb_per_batch for each in repeats),
        late_p99_ms=_median(each.late_ms for each in repeats),
    )
    if java is None:
        return row
    ratio = None if client == JAVA else ratio_of(found, java)
    if ratio is not None:
        return replace(row, ratio_to_java=ratio.ratio, ratio_low=ratio.low, ratio_high=ratio.high)
    of_java = statistics.median(repeat.mb_per_cpu_s for repeat in java.values())
    return replace(row, ratio_to_java=median / of_java)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def table_of(rows: Iterable[Row]) -> Table:
    columns = (
        "role",
        "client",
        "message",
        "repeats",
        "MB/CPU-s",
        "spread",
        "x Java",
        "MB/s",
        "us/batch",
        "kB/batch",
        "late p99",
    )
    return Table(
        "payload per CPU-second of the client, medians of repeats in turns",
        columns,
        tuple(
            (
                row.role,
                f"{row.client}, {row.variant}" if row.variant else row.client,
                f"{row.message_bytes:,} B",
                str(len(row.repeats)),
                f"{row.mb_per_cpu_s:,.0f}",
                f"{row.spread:.0%}",
                _words(row.ratio_to_java, row.ratio_low, row.ratio_high, ".1f"),
                f"{row.mb_per_s:,.0f}",
                "" if row.us_per_batch is None else f"{row.us_per_batch:,.0f}",
                "" if row.kb_per_batch is None else f"{row.kb_per_batch:,.1f}",
                "" if row.late_p99_ms is None else f"{row.late_p99_ms:.1f} ms",
            )
            for row in rows
        ),
    )


def _words(ratio: float | None, low: float | None, high: float | None, form: str) -> str:
    if ratio is None:
        return ""
    if low is None or high is None:
        return f"{ratio:{form}}"
    return f"{ratio:{form}} ({low:{form}} to {high:{form}})"


@dataclass(frozen=True)
class Aim:
    """A ratio that is an aim of the engine.

    Attributes:
        role, message_bytes: role and message size of the rows.
        other: the client that the engine is compared with.
        at_least: smallest ratio that reaches the aim.
    """

    role: str
    message_bytes: Annotated[int, Column("bpm")]
    other: str
    at_least: float

    @property
    def ours(self) -> Key:
        return (self.role, OURS, "", self.message_bytes)

    @property
    def theirs(self) -> Key:
        return (self.role, self.other, "", self.message_bytes)

    def ratio(self, found: Found) -> Effect | None:
        """The measured ratio; None with fewer than three turns."""
        return ratio_of(found.get(self.ours, {}), found.get(self.theirs, {}))


AIMS = (
    Aim("producer", 100, JAVA, 35.0),
    Aim("producer", 1_000, JAVA, 20.0),
    Aim("producer", 1_000, "librdkafka", 7.0),
    Aim("producer", 1_000, SOCKET, 0.85),
    Aim("consumer", 1_000, "librdkafka", 4.0),
    Aim("consumer", 1_000, SOCKET, 0.70),
)


def unsure_of(found: Found) -> list[Key]:
    """The keys of rows that need more turns, as the ratio of an aim is still uncertain."""
    aims = [aim for aim in AIMS if found.get(aim.ours) and found.get(aim.theirs)]
    keys = [key for aim in aims if not is_sure(aim.ratio(found)) for key in (aim.ours, aim.theirs)]
    return list(dict.fromkeys(keys))


def sentences_of(found: Found) -> list[str]:
    """A sentence for each aim whose clients were both measured."""
    sentences = []
    for aim in AIMS:
        ratio = aim.ratio(found)
        if ratio is None:
            continue
        verb = "reached" if ratio.ratio >= aim.at_least else "missed"
        sentences.append(
            f"{aim.role} at {aim.message_bytes:,} B: "
            f"{_words(ratio.ratio, ratio.low, ratio.high, '.2f')} x {aim.other} in "
            f"{ratio.count} turns; the aim of {aim.at_least:g} is {verb}"
        )
    return sentences


def changes_of(found: Found, commit: str) -> list[str]:
    """A sentence for each row of the engine that was measured with a commit's code, too."""
    sentences = []
    for (role, client, variant, message_bytes), ours in found.items():
        older = found.get((role, of_commit(commit), variant, message_bytes), {})
        ratio = ratio_of(ours, older) if client == OURS else None
        if ratio is not None:
            sentences.append(
                f"{role}{f', {variant}' if variant else ''} at {message_bytes:,} B: "
                f"{_words(ratio.ratio, ratio.low, ratio.high, '.2f')} x {of_commit(commit)} "
                f"in {ratio.count} turns"
            )
    return sentences
