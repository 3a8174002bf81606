"""The JSON Schemas of configuration files list the keys that exist, with types and bounds."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.support.commands import ROOT
from tests.support.schemas import MODELS, schema_of, schema_text

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
