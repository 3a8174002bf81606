"""Names that programs read. New names may be added; published names never change.

    python -m tests.support.frozen

writes tests/data/frozen.json from the code, and refuses to drop a name of that file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from jobs.cli import redline
from jobs.config.base import all_keys
from jobs.console.events import PlanShown
from jobs.console.printing import plain_event
from metrics.common import errors
from metrics.common.errors import RedlineError, TerminatedError
from metrics.reporting.summary import summary_schema
from metrics.tables.schema import SCHEMAS
from metrics.tables.views import VIEWS
from tests.support.run_events import PLAN, RUN
from tests.support.schemas import MODELS

FILE = Path(__file__).parents[1] / "data" / "frozen.json"
_KEY = re.compile(r"(?:^| )([a-z_]+)=")
_QUOTED = re.compile(r'"[^"]*"')


def names() -> dict[str, list[str]]:
    """Kind of names → all names of that kind, sorted."""
    found: dict[str, Iterator[str]] = {
        "configuration keys": _configuration_keys(),
        "command-line options": _options(),
        "exit codes": _exit_codes(),
        "fields of plain events": _event_fields(),
        "columns": _columns(),
        "columns of views": _view_columns(),
        "keys of summary.json": _schema_keys(summary_schema(), "summary"),
    }
    return {kind: sorted(set(each)) for kind, each in found.items()}


def frozen() -> dict[str, list[str]]:
    read: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def lost_keys(file: str, document: Any) -> set[str]:
    """Published keys of a JSON file that are missing in a document with all parts."""
    return set(frozen()[f"keys of {file}"]) - keys_of(document)


def keys_of(document: Any, where: str = "") -> set[str]:
    """Paths of all keys of a JSON document; `[]` stands for the items of a list."""
    if isinstance(document, list):
        return set().union(*(keys_of(each, f"{where}[]") for each in document), ())
    if not isinstance(document, Mapping):
        return set()
    own = {f"{where}.{key}".lstrip(".") for key in document}
    return own.union(
        *(keys_of(each, f"{where}.{key}".lstrip(".")) for key, each in document.items())
    )


def _configuration_keys() -> Iterator[str]:
    for kind, model in MODELS.items():
        yield from (".".join((kind, *keys)) for keys in all_keys(model))


def _schema_keys(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    """`section.key` of a JSON Schema and of all its definitions."""
    for section, each in {name: schema, **schema.get("$defs", {})}.items():
        for key in each.get("properties", {}):
            yield f"{name} {key}" if section == name else f"{name} {section}.{key}"


def _options() -> Iterator[str]:
    context = click.Context(redline)
    for name in redline.list_commands(context):
        command = redline.get_command(context, name)
        commands = {name: command}
        if isinstance(command, click.Group):
            commands = {f"{name} {sub}": each for sub, each in command.commands.items()}
        for full, each in commands.items():
            for parameter in each.params if each is not None else ():
                yield from (f"{full} {option}" for option in parameter.opts)


def _exit_codes() -> Iterator[str]:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, (RedlineError, TerminatedError)):
            yield f"{name} {kind.exit_code}"


def _event_fields() -> Iterator[str]:
    for event in (*RUN, PlanShown(PLAN)):
        name, _, rest = (plain_event(event) or "").partition(" ")
        yield from (f"{name} {key}" for key in _KEY.findall(_QUOTED.sub("", rest)))


def _columns() -> Iterator[str]:
    """Columns with their types; each field of a structure on its own, as some may be added."""
    for table, schema in SCHEMAS.items():
        for field in schema:
            yield from _fields(f"{table}.{field.name}", field.type)


def _fields(place: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(f"{place}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _fields(f"{place}[]", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _fields(f"{place}[{kind.key_type}]", kind.item_type)
    else:
        yield f"{place} {kind}"


def _view_columns() -> Iterator[str]:
    for view, (_, query) in VIEWS.items():
        chosen = query.partition("FROM")[0].replace("SELECT", "")
        for column in re.split(r",\s*(?![^()]*\))", chosen):
            yield f"{view}.{column.split()[-1]}"


def main() -> None:
    """Write the file, unless a published name is missing in the code."""
    now, before = names(), frozen() if FILE.exists() else {}
    gone = [
        f"{kind}: {name}"
        for kind, old in before.items()
        for name in old
        if name not in now.get(kind, old)
    ]
    if gone:
        sys.exit("these published names are missing in the code:\n" + "\n".join(gone))
    kept = {kind: sorted({*before.get(kind, ()), *now.get(kind, ())}) for kind in {**before, **now}}
    FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
