"""docs/tables.md, written from the dataclasses that the tables are made of.

`python -m metrics.tables.docs docs/tables.md` renews it; a test says when that is due. What a
column means stands in its dataclass' docstring, its unit there in brackets or in its name.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from metrics.tables.columns import arrow_type, ddl_type
from metrics.tables.schema import ROWS, SCHEMAS

_HEAD = """# Tables

Five Delta tables under `--tables` (default `OUT/tables`), all runs together. `run_id` joins
them, and with `trial` the samples to their trial. Columns are only ever added: a table takes
rows of older and newer versions, and what a version did not know yet is null. Null means not
known, never 0. Times are UTC. A rate is per second of the measured window. MB is 10⁶ bytes of
payload.

Read them with Spark, `spark.read.format("delta").load("out/tables/trials")`, also through
Spark Connect; or without Spark, `deltalake.DeltaTable("out/tables/trials").to_pandas()`.

This page is made from the code by `python -m metrics.tables.docs docs/tables.md`.
"""

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
"""Whole numbers that name something and count nothing."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A line of the page; `kind` is the type as Spark names it, or a struct of the page."""

    name: str
    kind: str
    unit: str
    meaning: str


def described(row: type[Any]) -> dict[str, str]:
    """Attribute → what the `Attributes:` of a docstring say of it."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (inspect.getdoc(row) or "").splitlines():
        item = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.+)", line)
        if item:
            names = item[1].split(", ")
            found.update(dict.fromkeys(names, item[2]))
        elif line.startswith(" " * 8):
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        else:
            names = []
    return found


def columns_of(row: type[Any], skip: frozenset[str] = frozenset()) -> Iterator[Column]:
    """The columns that a dataclass gives.

    Raises:
        ValueError: one is not described, or its unit is not known.
    """
    hints, meanings = get_type_hints(row), described(row)
    for item in dataclasses.fields(row):
        if item.name in skip:
            continue
        if item.name not in meanings:
            raise ValueError(
                f"{row.__name__}.{item.name} is a column without a meaning; expected a line "
                f"`{item.name}: …` under Attributes of its docstring; add one"
            )
        kind, told = _kind(hints[item.name]), meanings[item.name].rstrip(".;")
        told = re.sub(r"\bNone\b", "null", told)
        unit = _unit(row, item.name, kind, told)
        yield Column(item.name, kind, unit, told.removesuffix(f" [{unit}]"))


def _kind(hint: Any) -> str:
    struct = struct_of(hint)
    if struct is None:
        return ddl_type(arrow_type(hint))
    name, arrow = f"[{struct.__name__}](#{struct.__name__.lower()})", arrow_type(hint)
    if pa.types.is_map(arrow):
        return f"map of {ddl_type(arrow.key_type)} to {name}"
    return f"array of {name}" if pa.types.is_list(arrow) else name


def struct_of(hint: Any) -> type[Any] | None:
    """The dataclass in an annotation, or None."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for part in get_args(hint) if (found := struct_of(part))), None)


def _unit(row: type[Any], name: str, kind: str, meaning: str) -> str:
    is_number = kind in ("bigint", "double", "array<bigint>") or kind.startswith("map<")
    if not is_number or name in _NUMBERED or name.endswith("_id"):
        return "–"
    told = re.findall(r"\[([^\]]+)\]", meaning)
    if told:
        return str(told[-1])
    for suffix, unit in _SUFFIXES:
        if name.endswith(suffix):
            return unit
    if kind == "double":
        raise ValueError(
            f"{row.__name__}.{name} is a number without a unit; expected one at the end of its "
            f"meaning, such as [ratio], or of its name, such as {name}_ms"
        )
    return "count" if kind == "bigint" else "–"


def _structs(rows: Mapping[str, tuple[tuple[type[Any], frozenset[str]], ...]]) -> list[type[Any]]:
    """The dataclasses inside the rows', each after what first holds it."""
    found: list[type[Any]] = []
    queue = [row for parts in rows.values() for row, _ in parts]
    while queue:
        row = queue.pop(0)
        for hint in get_type_hints(row).values():
            struct = struct_of(hint)
            if struct is not None and struct not in found:
                found.append(struct)
                queue.append(struct)
    return found


def _section(title: str, summary: str, columns: list[Column]) -> list[str]:
    lines = [f"## {title}", "", summary, "", "| column | type | unit | meaning |"]
    lines.append("| --- | --- | --- | --- |")
    lines += [f"| `{c.name}` | {c.kind} | {c.unit} | {c.meaning} |" for c in columns]
    return [*lines, ""]


def markdown() -> str:
    """The whole page."""
    lines = [_HEAD]
    for table, parts in ROWS.items():
        columns = [column for row, skip in parts for column in columns_of(row, skip)]
        order = {name: place for place, name in enumerate(SCHEMAS[table].names)}
        columns.sort(key=lambda column: order[column.name])
        lines += _section(table, _summary(parts[0][0]), columns)
    for struct in _structs(ROWS):
        lines += _section(struct.__name__, _summary(struct), list(columns_of(struct)))
    return "\n".join(lines).rstrip() + "\n"


def _summary(row: type[Any]) -> str:
    return " ".join((inspect.getdoc(row) or "").split("\n\n")[0].split())


def main() -> None:
    """Write the page to the path that is given."""
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
