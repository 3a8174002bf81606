"""The pages of docs/reference, written from the code that defines what they list.

`python -m tests.support.reference` writes them; a unit test fails when a page differs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import click
from pydantic import BaseModel
from ruamel.yaml import YAML

from jobs.cli import JOBS, redline
from jobs.config.base import all_keys, model_at
from jobs.config.client_property_names import KNOWN, LIBRDKAFKA, REFUSED, WITHOUT_EFFECT
from jobs.testbed.profile import Profile
from metrics.columns import columns_of
from metrics.common.bounds import kafka_properties
from metrics.sources.beans import EVERY_BEAN, Bean, Kind
from metrics.sources.hosts import host_sample
from metrics.tables.schema import ROWS, attributes_of, described_columns, struct_of, summary_of
from tests.support.commands import ROOT, job
from tests.support.schemas import MODELS, OF_KAFKA

PAGES = ROOT / "docs" / "reference"
NOTE = "*Written by `make generate` from the code; edit the code, not this page.*"


def page(title: str, *parts: str) -> str:
    """A page: its title, the note that it is generated, and its parts."""
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown; choices such as NAME|FILE are joined by "or", as a bar ends a cell."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    cells = ([cell.replace("|", " or ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def linked(text: str) -> str:
    """A text whose names of pages, such as docs/mixes.md, are links."""
    return re.sub(r"docs/((?:[\w-]+/)*([\w-]+))\.md(#[\w-]+)?", r"[\2](../\1.md\3)", text)


def plain(text: str) -> str:
    """A text in which no browser sees a tag: a type or a bound with angle brackets is code."""
    return re.sub(r"\[[^\[\]]*[<>][^\[\]]*\]|^\w+<.*>$", r"`\g<0>`", text)


def commands() -> str:
    """The arguments and options of each command, and the exit codes."""
    exit_codes = inspect.cleandoc(redline.help or "").split("Exit codes: ")[1].rstrip(".")
    codes = re.findall(r"(\d+) ([^,(]+(?:\([^)]*\))?)", " ".join(exit_codes.split()))
    head = "`redline --help` lists the commands, and `redline COMMAND --help` describes one."
    ends = table(("code", "meaning"), ((code, text.strip()) for code, text in codes))
    of_each = (command_part(f"redline {name}", job(name), 2) for name in sorted(JOBS))
    return page("Commands", head, "## Exit codes", ends, *chain(*of_each))


def command_part(name: str, command: click.Command, level: int) -> Iterator[str]:
    """The parts about a command and its subcommands."""
    context = click.Context(command, info_name=name)
    yield f"{'#' * level} {name}"
    yield from (" ".join(each.split()) for each in (command.help or "").split("\n\n"))
    if isinstance(command, click.Group):
        for each in sorted(command.commands.items()):
            yield from command_part(f"{name} {each[0]}", each[1], level + 1)
        return
    yield f"`{' '.join([name, *command.collect_usage_pieces(context)])}`"
    records = [each.get_help_record(context) for each in command.get_params(context)]
    rows = [(f"`{form}`", plain(" ".join(text.split()))) for form, text in filter(None, records)]
    yield table(("option", "meaning"), (row for row in rows if "--help" not in row[0]))


FILES: Mapping[str, type[BaseModel]] = {
    **{kind.title(): model for kind, model in MODELS.items() if kind != "profile"},
    "Profile of a load": MODELS["profile"],
    "Profile of a testbed": Profile,
}


def configuration() -> str:
    """The keys of each kind of configuration file, with values, defaults and meanings."""
    parts = []
    for title, model in FILES.items():
        parts += [f"## {title}", summary_of(model)]
        sections: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for path in all_keys(model):
            sections.setdefault(path[:-1], []).append(key_row(model, path))
        for section, rows in sections.items():
            parts += [f"### `{'.'.join(section)}`"] if section else []
            parts.append(table(("key", "meaning", "values", "default"), rows))
    return page("Keys of configuration files", *parts)


def key_row(model: type[BaseModel], path: tuple[str, ...]) -> tuple[str, ...]:
    """The row of one key.

    Raises:
        ValueError: the docstring of its class does not describe it.
    """
    parent = model_at(model, path[:-1])
    assert parent is not None
    name, schema, field = path[-1], parent.model_json_schema(), parent.model_fields[path[-1]]
    meaning = meanings_of(parent).get(name)
    if meaning is None:
        raise ValueError(f"{parent.__name__}.{name} is not described; add it to the docstring")
    if kafkas := kafka_properties(OF_KAFKA.get(parent.__name__, type(None))).get(name):
        meaning = f"`{kafkas}`: {meaning}"
    values = values_text(schema["properties"][name], schema.get("$defs", {}))
    if name.endswith("_from"):
        values = "env:NAME or file:PATH"
    default = default_text(field.get_default(call_default_factory=True))
    if field.is_required():
        default = "the file's name" if path == ("name",) else "required"
    values = re.sub(r"\{.*?\}", r"`\g<0>`", values)  # as an attribute list, it would not show
    return f"`{name}`", linked(meaning), values, default


def meanings_of(model: type[BaseModel]) -> dict[str, str]:
    """Key → its description in the docstring of its class or of a base class."""
    found: dict[str, str] = {}
    for each in reversed(inspect.getmro(model)):
        found |= attributes_of(inspect.cleandoc(each.__doc__ or ""))
    return {key: text.rstrip(".") for key, text in found.items()}


def values_text(schema: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    """The accepted values of a JSON Schema as a noun phrase."""
    if text := schema.get("description"):
        return str(text)
    if choices := schema.get("anyOf"):
        texts = (values_text(each, named) for each in choices if each.get("type") != "null")
        return " or ".join(dict.fromkeys(texts))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(map(str, choices))
    kind = schema.get("type")
    if kind == "array" and "items" in schema:
        return f"a list, each {values_text(schema['items'], named)}"
    return {"object": "a map", "boolean": "true or false", "integer": "a whole number"}.get(
        str(kind), f"a {kind}".replace("string", "text").replace("array", "list")
    )


def default_text(default: Any) -> str:
    """A default as a file would state it."""
    if default in (None, "", {}, ()):
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.12g}" if isinstance(default, (int, float)) else str(default)


def client_properties() -> str:
    """Every known property of Kafka's clients and of librdkafka, with its effect."""
    why = {key: reason for reason, keys in WITHOUT_EFFECT.items() for key in keys}
    found: dict[tuple[str, str], list[str]] = {}
    for key in KNOWN:
        kind = "refused" if key in REFUSED else "without effect" if key in why else "used"
        means = f"expected {REFUSED[key]}" if key in REFUSED else why.get(key, "")
        means = f"as `{LIBRDKAFKA[key]}`" if key in LIBRDKAFKA else means
        found.setdefault((kind, means), []).append(f"`{key}`")
    head = "[client.properties](../client-properties.md) describes the properties that are used."
    rows = sorted((kind, means, ", ".join(keys)) for (kind, means), keys in found.items())
    return page("Properties of clients", head, table(("effect", "why", "properties"), rows))


def metrics() -> str:
    """The beans that are read, the rule sets that show them, and the readings of hosts."""
    rules = {
        path.stem: YAML(typ="safe").load(path.read_text(encoding="utf-8"))["readings"]
        for path in sorted((ROOT / "conf" / "prometheus").glob("*.yaml"))
    }
    heads = ("reading", "kind", "bean", "attribute", *rules)
    beans = {(bean.name, bean.object_name): bean for bean in EVERY_BEAN}.values()
    source = inspect.getsource(host_sample)
    stated = re.findall(r'^\w+ = "(\w+)"\n"""(.*?)\.?"""', source, re.M | re.S)
    hosts = ((f"`{name}`", " ".join(meaning.split())) for name, meaning in stated)
    return page(
        "Readings",
        "[Metrics](../metrics.md) describes the sources. A reading's name ends in its unit.",
        "## Of brokers and controllers",
        "The last columns state whether the rule sets of conf/prometheus show the reading.",
        table(heads, (bean_row(bean, rules.values()) for bean in beans)),
        "## Of hosts",
        table(("reading", "meaning"), hosts),
    )


def bean_row(bean: Bean, rules: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The row of a bean; a cell of a rule set is yes, no, or the part that it shows."""
    names = {each.name for each in bean.readings()}
    shown = ({*names} & {*each} for each in rules)
    cells = ("no" if not found else "yes" if found == names else "count" for found in shown)
    attribute = "Count, Mean" if bean.kind is Kind.HISTOGRAM else bean.attribute
    form = ".".join(filter(None, (attribute, bean.key)))
    form += f", earlier {bean.earlier}" if bean.earlier else ""
    return f"`{bean.name}`", bean.kind.value, f"`{bean.object_name}`", form, *cells


_TABLES = """Eight Delta tables under `--tables` (default `OUT/tables`) hold the rows of all runs. \
Join them by `run_id`, and samples with trials by `run_id` and `trial`. Times are UTC, rates are \
per second of the measured window, and MB is 10⁶ bytes of payload. Null means not known, never 0.

Read them with `spark.read.format("delta").load("out/tables/trials")`, also through Spark Connect, \
or with `deltalake.DeltaTable("out/tables/trials").to_pandas()`. In a catalog \
(`--tables main.redline`) there are also the views `latest_limits`, `nights` and `effects`."""


def tables() -> str:
    """The columns of the Delta tables and of the structs in them."""
    parts = [_TABLES]
    for title, row in {**ROWS, **{each.__name__: each for each in structs(ROWS.values())}}.items():
        columns = (
            (f"`{c.name}`", plain(c.kind), c.unit, c.meaning) for c in described_columns(row)
        )
        rows = table(("column", "type", "unit", "meaning"), columns)
        parts += [f"## {title}", summary_of(row), rows]
    return page("Tables", *parts)


def structs(rows: Iterable[type[Any]]) -> list[type[Any]]:
    """The dataclasses inside the rows, in breadth-first order."""
    found = [*rows]
    for row in found:  # grows while it is read
        inner = (struct_of(column.field.hint) for column in columns_of(row))
        found += [each for each in dict.fromkeys(inner) if each and each not in found]
    return found[len(ROWS) :]


WRITERS: Mapping[str, Callable[[], str]] = {
    "client-properties": client_properties,
    "commands": commands,
    "configuration": configuration,
    "metrics": metrics,
    "tables": tables,
}
"""Name of a page of docs/reference → the function that writes its text."""


if __name__ == "__main__":
    for name, write in WRITERS.items():
        (PAGES / f"{name}.md").write_text(write(), encoding="utf-8")
