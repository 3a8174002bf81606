"""The JSON Schema of summary.json, made from what writes it.

`python -m metrics.reporting.summary_schema docs/summary.schema.json` renews the file; a test says
when that is due.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from metrics.reporting.summary import DERIVED, SCHEMA_VERSION, RunSummary

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def summary_schema() -> dict[str, Any]:
    """What every summary.json of this version is; readers ignore keys that they do not know."""
    schema = TypeAdapter(RunSummary).json_schema()
    for each in (schema, *schema.get("$defs", {}).values()):
        text = each.get("description", "")
        each["description"] = " ".join(text.split("\n\nAttributes:")[0].split())
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    schema["required"].append("schema_version")
    boundary = schema["$defs"]["Boundary"]["properties"]
    for name in DERIVED:
        boundary.setdefault(name, {"description": "follows from the other keys; or null"})
    return {"$schema": DRAFT, **_without_titles(schema)}


def _without_titles(part: Any) -> Any:
    """Names of keys in other letters, which say nothing."""
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
    """The file."""
    return json.dumps(summary_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
