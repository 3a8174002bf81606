"""docs/configuration.md and the JSON Schemas list the keys that exist, with defaults and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import jsonschema
import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from jobs.config import Cluster, Goal, Workload
from jobs.config.base import all_keys, model_at
from jobs.features.nightly.suite import Suite
from metrics.common.bounds import Checked
from tests.support.commands import ROOT
from tests.support.schemas import MODELS, schema_of, schema_text

PAGE = ROOT / "docs" / "configuration.md"
DOCUMENTED = (Cluster, Workload, Goal, Suite)


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Key → (value, default) of each row of a section of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): (row[1], row[2]) for row in rows}


def checks(annotation: Any) -> Iterator[Checked]:
    """The checks of a value, without those of the items of a list or map."""
    if get_origin(annotation) in (tuple, Mapping):
        return
    if isinstance(annotation, Checked):
        yield annotation
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from checks(part)


def default_text(default: Any) -> str:
    if default is None or default in ("", {}, ()):
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.12g}" if isinstance(default, (int, float)) else str(default)


@pytest.mark.parametrize("model", DOCUMENTED)
def test_the_page_gives_the_real_keys_defaults_and_bounds(model: type[BaseModel]) -> None:
    rows, compared = documented(model.__name__), 0
    assert list(rows) == [".".join(path) for path in all_keys(model)]
    for key, (bounds, default) in rows.items():
        path = key.split(".")
        parent = model_at(model, path[:-1])
        assert parent is not None
        field = parent.model_fields[path[-1]]
        real = "required" if field.is_required() else field.get_default(call_default_factory=True)
        # The loader takes the name from the file's name.
        assert key == "name" or default == default_text(real), key
        found = [*(each for each in field.metadata if isinstance(each, Checked))]
        found += checks(field.annotation)
        if len(found) == 1:
            assert bounds == found[0].expected(), key
            compared += 1
    assert compared >= 4, "the page's columns have moved"


FOLDER = ROOT / "conf" / "schemas"
FILES = [(kind, path) for kind in MODELS for path in sorted((ROOT / "conf" / f"{kind}s").iterdir())]


def checked(kind: str, data: Any) -> list[str]:
    """The values that an editor would underline, by their paths."""
    found = jsonschema.Draft202012Validator(schema_of(kind)).iter_errors(data)
    return [error.json_path for error in found]


@pytest.mark.parametrize("kind", MODELS)
def test_the_file_is_that_of_the_models(kind: str) -> None:
    due = "renew them: python -m tests.support.schemas conf/schemas"
    assert (FOLDER / f"{kind}.schema.json").read_text(encoding="utf-8") == schema_text(kind), due
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda each: getattr(each, "stem", each))
def test_the_schema_accepts_the_files_of_the_project(kind: str, path: Any) -> None:
    data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    assert checked(kind, data) == []


WORKLOAD: dict[str, Any] = {
    "message_bytes": ["1 kB"],
    "producer": {"rate_bytes_per_s": "2 MB/s", "linger.ms": 5, "acks": "all"},
    "topic": {"replication_factor": 3, "config": {"min.insync.replicas": 2}},
    "trial": {"warmup_s": "1m", "measure_s": 60},
}


def test_the_schema_knows_units_kafkas_names_and_variables_and_refuses_wrong_files() -> None:
    assert checked("workload", WORKLOAD) == []
    cluster = {"bootstrap_servers": ["${HOST}:9092"], "jmx": {"port": "${JMX}"}}
    assert checked("cluster", cluster) == []
    wrong: tuple[tuple[str, str, Any], ...] = (
        ("producer", "lingr_ms", 5),
        ("producer", "linger_ms", -1),
        ("producer", "acks", "some"),
        ("producer", "batch_size", 0.5),
        ("trial", "measure_s", "soon"),
        ("topic", "config", {"min.insync.replicas": [2]}),
    )
    for section, key, value in wrong:
        changed = {**WORKLOAD, section: {**WORKLOAD[section], key: value}}
        assert checked("workload", changed)[0].startswith(f"$.{section}")
