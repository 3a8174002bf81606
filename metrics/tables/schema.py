"""The schemas of the Delta tables, derived from the dataclasses of their rows.

If a column has a unit, the name of the column ends in the unit. A column without a unit is a count,
a ratio or a name. Tables store integer counts, and readers compute rates from them. Null means that
a value is not known. New versions only add columns, so tables accept rows of older and newer
versions.

The page docs/reference/tables.md lists all columns. The docstring of a dataclass describes its
columns. The unit of a column is in brackets in the description, or at the end of the column's name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

import pyarrow as pa

from metrics.arrow_schema import arrow_type, ddl_type, schema_of
from metrics.columns import Column, ColumnField, Flat, Moment, columns_of
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import CaseRow, HeadroomRow, SweepCase
from metrics.traffic.clients import ConsumerOptions, ProducerPattern
from metrics.traffic.pattern import TopicOptions
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Reason, part_label
from metrics.trial.trial import Trial


@dataclass(frozen=True)
class PartRow:
    """One part of a mix in one trial.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        part: name of the part.
        scale: offered traffic of the part, divided by the part's traffic at scale 1 [ratio].
        producers: number of the part's producers, rounded; their rates compensate for the rounding.
        producer: traffic of each producer of the part.
        topic: options of the part's topics.
        consumers: the part's consumer groups.
        client: counts of the part's clients.
        reasons: the reasons of the trial's verdict that are about this part.
    """

    run_id: str
    trial: int
    part: str
    scale: float
    producers: Annotated[int, Column("np")]
    producer: Annotated[ProducerPattern, Flat()]
    topic: Annotated[TopicOptions, Flat("topic_")]
    consumers: Annotated[ConsumerOptions, Flat("consumer_")]
    client: Annotated[ClientWindow, Flat()]
    reasons: tuple[Reason, ...] = ()


def part_rows(trial: Trial) -> list[PartRow]:
    """One row for each part of a trial, if the part's clients reported. The result is empty if the
    trial's traffic is not a mix.
    """
    accounts = trial.evidence.client.parts
    return [
        PartRow(
            trial.run_id,
            trial.number,
            part.part,
            part.records_per_s / (part.at_scale_1 or part).records_per_s,
            part.producers,
            part.producer,
            part.topic,
            part.consumers,
            accounts[part.part],
            tuple(each for each in trial.reasons if each.text.startswith(part_label(part.part))),
        )
        for part in trial.pattern.parts
        if part.part in accounts
    ]


@dataclass(frozen=True)
class RunRow:
    """A run. Each run has one row for its start and one row for its end.

    Attributes:
        run_id: id of the run in all tables.
        event: `started` or `finished`.
        at_s: time of the event.
        cluster, workload, goal: name of the configuration file.
        brokers: number of brokers.
        status: `running`, then the status in summary.json, such as `done` or `no conclusion`.
        exit_code: exit code of the command; null while the command runs.
        error: the error message that the user saw, or null.
        config: the complete resolved configuration without secrets, as JSON.
        environment: facts that a comparison of runs needs, such as versions, cores and memory.
        caveat: a restriction of the cluster, for example that it is not real hardware.
        sweep_case: the case of a sweep that the run measures.
        measurement: the measurement that the run makes: `limit`, `load`, `fill`, `drain`,
            `failover` or the name of an installed measurement; null for a night, a side of a
            comparison, and runs of older versions.
    """

    run_id: str
    event: str
    at_s: Annotated[float, Moment(), Column("at")]
    cluster: str
    workload: str
    goal: str
    brokers: int | None = None
    status: str = "running"
    exit_code: int | None = None
    error: str | None = None
    config: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    caveat: str | None = None
    sweep_case: Annotated[SweepCase, Flat()] = field(default_factory=SweepCase)
    measurement: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration: kind of the file → flat key → value; empty if the row has no
        configuration.
        """
        kept: dict[str, Any] = json.loads(self.config or "{}")
        return kept


@dataclass(frozen=True)
class SampleRow:
    """One sample of one broker or controller.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        sample: the readings.
    """

    run_id: str
    trial: int
    sample: Annotated[BrokerSample, Flat()]


@dataclass(frozen=True)
class HostRow:
    """One sample of one host. Brokers or the generator run on this host.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        sample: the readings.
    """

    run_id: str
    trial: int
    sample: Annotated[HostSample, Flat()]


ROWS: Mapping[str, type[Any]] = {
    "runs": RunRow,
    "trials": Trial,
    "parts": PartRow,
    "samples": SampleRow,
    "hosts": HostRow,
    "boundaries": BoundaryRow,
    "cases": CaseRow,
    "headroom": HeadroomRow,
}
"""Table → the dataclass of its rows."""

SCHEMAS: Mapping[str, pa.Schema] = {table: schema_of(row) for table, row in ROWS.items()}
"""Table → its Arrow schema."""


_SUFFIXES = (
    ("_mbit_per_s", "Mbit/s"),
    ("mb_per_s", "MB/s"),
    ("_bytes_per_s", "B/s"),
    ("_per_s", "1/s"),
    ("_bytes", "B"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_share", "ratio"),
    ("_records", "records"),
)


_NUMBERED = frozenset({"trial", "exit_code", "group", "partition"})
"""Columns whose integers identify something, for example a trial. These integers are not counts."""


@dataclasses.dataclass(frozen=True)
class DescribedColumn:
    """A column with its meaning. `kind` is Spark's name of the type, or a link to a struct."""

    name: str
    kind: str
    unit: str
    meaning: str


def described(row: type[Any]) -> dict[str, str]:
    """Attribute → its description, from `Attributes:` in the docstring of a class."""
    return attributes_of(inspect.getdoc(row) or "")


def attributes_of(docstring: str) -> dict[str, str]:
    """Attribute → its description, from a docstring without common indentation."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.splitlines():
        item = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.+)", line)
        if item:
            names = item[1].split(", ")
            found.update(dict.fromkeys(names, item[2]))
        elif line.startswith(" " * 8):
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        else:
            names = []
    return found


def described_columns(row: type[Any]) -> Iterator[DescribedColumn]:
    """The columns of a dataclass, including those of its flat parts.

    Raises:
        ValueError: a column has no description or no unit.
    """
    for column in columns_of(row):
        kind, name = _kind(column.field.hint), column.name
        text = ": ".join(_meaning(home, item).rstrip(".;") for home, item in column.homes)
        text = re.sub(r"\b(None|NaN)\b", "null", text)
        unit = _unit(column.homes[-1][0], name, kind, text)
        is_moment = column.field.is_moment
        text = re.sub(r" \[[^]]+\]", "", text) if is_moment else text.replace(f" [{unit}]", "")
        yield DescribedColumn(name, kind, unit, text)


def _meaning(home: type[Any], item: ColumnField) -> str:
    if item.is_derived:
        text = summary_of(getattr(home, item.attribute))
        return text[:1].lower() + text[1:] if text[1:2].islower() else text
    meaning = described(home).get(item.attribute, "")
    if not meaning:
        raise ValueError(
            f"the column {home.__name__}.{item.attribute} has no description; expected a line "
            f"`{item.attribute}: …` under Attributes of the docstring; add it"
        )
    return meaning


def _kind(hint: Any) -> str:
    struct = struct_of(hint)
    if struct is None:
        return ddl_type(arrow_type(hint))
    name, arrow = f"[{struct.__name__}](#{struct.__name__.lower()})", arrow_type(hint)
    if pa.types.is_map(arrow):
        return f"map of {ddl_type(arrow.key_type)} to {name}"
    return f"array of {name}" if pa.types.is_list(arrow) else name


def struct_of(hint: Any) -> type[Any] | None:
    """The first dataclass in an annotation; None if the annotation has no dataclass."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for part in get_args(hint) if (found := struct_of(part))), None)


def _unit(row: type[Any], name: str, kind: str, meaning: str) -> str:
    is_number = kind in ("bigint", "double", "array<bigint>") or kind.startswith("map<")
    if not is_number or name in _NUMBERED or name.endswith("_id"):
        return "–"
    units = re.findall(r"\[([^\]]+)\]", meaning)
    if units:
        return str(units[-1])
    for suffix, unit in _SUFFIXES:
        if name.endswith(suffix):
            return unit
    if kind == "double":
        raise ValueError(
            f"the number {row.__name__}.{name} has no unit; expected one at the end of its "
            f"description, such as [ratio], or of its name; add it, such as {name}_ms"
        )
    return "count" if kind == "bigint" else "–"


def summary_of(row: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(row) or "").split("\n\n")[0].split())
