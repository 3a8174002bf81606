"""JSON Schemas of the configuration files, for editors, generated from the models.

`python -m tests.support.schemas conf/schemas` writes the files; a test fails when they are
outdated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jobs.config.cluster import Cluster
from jobs.config.files import Profile
from jobs.config.goal import Goal
from jobs.config.workload import MIX, OF_PARTS, Workload
from jobs.features.nightly.suite import Suite
from jobs.features.sweep.cases import Experiment
from metrics.common.bounds import kafka_properties
from metrics.tables.schema import attributes_of
from metrics.traffic.clients import ConsumerOptions, ProducerOptions

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MODELS: Mapping[str, type[BaseModel]] = {
    "cluster": Cluster,
    "workload": Workload,
    "goal": Goal,
    "suite": Suite,
    "experiment": Experiment,
    "profile": Profile,
}
"""Kind of a file, which is its folder in conf without the s → its model."""

OF_KAFKA: Mapping[str, type[Any]] = {
    "ProducerOptions": ProducerOptions,
    "ConsumerOptions": ConsumerOptions,
}
"""The sections whose keys may have Kafka's own names."""


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of a kind of file.

    It has the keys, their types and their bounds. Values are checked against each other when a
    file is read.
    """
    schema = MODELS[kind].model_json_schema()
    sections = {kind: schema, **schema.get("$defs", {})}
    for name, section in sections.items():
        _describe(section)
        if name in OF_KAFKA:
            _name_as_kafka_does(section, kafka_properties(OF_KAFKA[name]))
    required = [key for key in schema.get("required", []) if key != "name"]
    schema["required"] = required
    if kind == "workload":  # the parts of a mix have these keys instead
        of_parts = [key for key in required if key in OF_PARTS]
        schema["required"] = [key for key in required if key not in OF_PARTS]
        schema["anyOf"] = [{"required": of_parts}, {"required": [MIX]}]
    title = f"kafka-redline: {kind}"
    return {"$schema": DRAFT, **_plain(schema), "title": title}


def _describe(section: dict[str, Any]) -> None:
    """Put the docstring's text on each key before the description of its values."""
    whole = section.get("description", "")
    meanings = attributes_of(whole)
    for key, each in section.get("properties", {}).items():
        if meaning := meanings.get(key):
            values = each.get("description")
            each["description"] = f"{meaning.rstrip('.')}. {values or ''}".strip()
    if whole:
        section["description"] = " ".join(whole.split("\n\nAttributes:")[0].split())


def _name_as_kafka_does(section: dict[str, Any], names: Mapping[str, str]) -> None:
    """Add Kafka's names of the keys that are properties of Kafka."""
    properties = section["properties"]
    for own, kafkas in names.items():
        if kafkas != own:
            properties[kafkas] = {**properties[own], "description": f"as {own}"}


def _plain(part: Any) -> Any:
    """The schema without titles that only repeat names, and without defaults of null."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _plain(value)
        for key, value in part.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }


def schema_text(kind: str) -> str:
    return json.dumps(schema_of(kind), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all schemas into the folder that is the first argument."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in MODELS:
        (folder / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
