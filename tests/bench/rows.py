"""The benchmark's answer: one row for each role, client, variant and size."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.console.events import Table
from tests.bench.meter import Repeat

JAVA = "java"


@dataclass(frozen=True)
class Row:
    """One client at one size.

    Attributes:
        role: `producer` or `consumer`.
        client: what did it.
        variant: how it differs from the plain case; empty when it does not.
        bpm: size of a message's value [B].
        mb_per_cpu_s: median of the repeats, payload per CPU time of the client [MB/CPU-s].
        spread: (highest - lowest) / median of the repeats [ratio].
        mb_per_s: median of the payload per wall time; the brokers bound it [MB/s].
        repeats: each repeat [MB/CPU-s], in order.
        ratio_to_java: over Java's row of the same role, size and variant, else over its
            plain one; None without Java.
    """

    role: str
    client: str
    variant: str
    bpm: int
    mb_per_cpu_s: float
    spread: float
    mb_per_s: float
    repeats: tuple[float, ...]
    ratio_to_java: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self)


Key = tuple[str, str, str, int]
"""(role, client, variant, bpm)."""


def rows_of(repeats: Mapping[Key, Sequence[Repeat]]) -> list[Row]:
    """A row for each key that has repeats, in their order."""
    rows = {key: _row(key, found) for key, found in repeats.items() if found}
    return [_compared(row, rows) for row in rows.values()]


def _row(key: Key, repeats: Sequence[Repeat]) -> Row:
    role, client, variant, bpm = key
    values = tuple(repeat.mb_per_cpu_s for repeat in repeats)
    median = statistics.median(values)
    spread = (max(values) - min(values)) / median
    speed = statistics.median(each.payload_bytes / 1e6 / each.seconds for each in repeats)
    return Row(role, client, variant, bpm, median, spread, speed, values)


def _compared(row: Row, rows: Mapping[Key, Row]) -> Row:
    java = rows.get((row.role, JAVA, row.variant, row.bpm)) or rows.get(
        (row.role, JAVA, "", row.bpm)
    )
    ratio = None if java is None else row.mb_per_cpu_s / java.mb_per_cpu_s
    return Row(**{**asdict(row), "ratio_to_java": ratio})


def table_of(rows: Iterable[Row], repeats: int) -> Table:
    """The rows for people."""
    columns = ("role", "client", "message", "MB/CPU-s", "spread", "x Java", "MB/s")
    return Table(
        f"payload per CPU-second of the client, medians of {repeats} interleaved repeats",
        columns,
        tuple(
            (
                row.role,
                f"{row.client}, {row.variant}" if row.variant else row.client,
                f"{row.bpm:,} B",
                f"{row.mb_per_cpu_s:,.0f}",
                f"{row.spread:.0%}",
                "" if row.ratio_to_java is None else f"{row.ratio_to_java:.1f}",
                f"{row.mb_per_s:,.0f}",
            )
            for row in rows
        ),
    )


@dataclass(frozen=True)
class Aim:
    """A ratio that the engine is built for.

    Attributes:
        role, bpm: which rows.
        other: the client that ours is compared with.
        at_least: ours over the other's [ratio].
    """

    role: str
    bpm: int
    other: str
    at_least: float


AIMS = (
    Aim("producer", 100, JAVA, 35.0),
    Aim("producer", 1_000, JAVA, 20.0),
    Aim("producer", 1_000, "librdkafka", 7.0),
    Aim("producer", 1_000, "plain socket", 0.55),
    Aim("consumer", 1_000, "librdkafka", 4.0),
)


def sentences_of(rows: Sequence[Row]) -> list[str]:
    """Each aim beside what was measured, where both clients were."""
    known = {(row.role, row.client, row.bpm): row for row in rows if not row.variant}
    said = []
    for aim in AIMS:
        ours = known.get((aim.role, "wire", aim.bpm))
        other = known.get((aim.role, aim.other, aim.bpm))
        if ours is None or other is None:
            continue
        ratio = ours.mb_per_cpu_s / other.mb_per_cpu_s
        verb = "reached" if ratio >= aim.at_least else "missed"
        said.append(
            f"{aim.role} at {aim.bpm:,} B: {ratio:.2f} x {aim.other}; "
            f"the aim of {aim.at_least:g} is {verb}"
        )
    return said
