"""The JSON Schema of summary.json, generated from `RunSummary`.

`python -m metrics.reporting.summary_schema docs/summary.schema.json` updates the file; a test
fails while it is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from metrics.columns import fields_of
from metrics.reporting.summary import DERIVED, SCHEMA_VERSION, RunSummary
from metrics.tables.boundary import Boundary

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def summary_schema() -> dict[str, Any]:
    """The schema of every summary.json of this version; readers ignore unknown keys."""
    schema = TypeAdapter(RunSummary).json_schema()
    for each in (schema, *schema.get("$defs", {}).values()):
        text = each.get("description", "")
        each["description"] = " ".join(text.split("\n\nAttributes:")[0].split())
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    schema["required"].append("schema_version")
    boundary = schema["$defs"]["Boundary"]
    names = {each.attribute: each.name for each in fields_of(Boundary)}
    boundary["properties"] = {names[key]: item for key, item in boundary["properties"].items()}
    boundary["required"] = [names[key] for key in boundary["required"]]
    for name in DERIVED:
        boundary["properties"].setdefault(
            name, {"description": "derived from other keys; null if not known"}
        )
    return {"$schema": DRAFT, **_without_titles(schema)}


def _without_titles(part: Any) -> Any:
    """Remove the titles, which only repeat the names of the keys."""
    if isinstance(part, list):
        return [_without_titles(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_titles(value)
        for key, value in part.items()
        if not (key == "title" and isinstance(value, str))
    }


def schema_text() -> str:
    """The content of docs/summary.schema.json."""
    return json.dumps(summary_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
