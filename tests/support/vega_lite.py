"""Vega-Lite's schema: tests hold charts against it, as a run would wait for that too long."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import jsonschema_rs


def fits_schema(spec: Mapping[str, Any]) -> None:
    """Check that Vega-Lite knows everything in a specification.

    Raises:
        jsonschema_rs.ValidationError: Vega-Lite does not know a part of it.
    """
    _validator().validate(json.loads(json.dumps(spec)))


@functools.cache
def _validator() -> Any:
    file = Path(alt.__file__).parent / "vegalite" / "v6" / "schema" / "vega-lite-schema.json"
    return jsonschema_rs.validator_for(_quoted(json.loads(file.read_text(encoding="utf-8"))))


def _quoted(part: Any) -> Any:
    """The schema with references that are valid URIs: its names have `<`, `>` and `|`."""
    if isinstance(part, list):
        return [_quoted(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: quote(value, safe="#/") if key == "$ref" else _quoted(value)
        for key, value in part.items()
    }
