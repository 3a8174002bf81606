"""Validation of charts with Vega-Lite's schema, which takes too long within a run."""

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
    """Validate a specification with Vega-Lite's schema.

    Raises:
        jsonschema_rs.ValidationError: a part of the specification is not valid.
    """
    _validator().validate(json.loads(json.dumps(spec)))


@functools.cache
def _validator() -> Any:
    file = Path(alt.__file__).parent / "vegalite" / "v6" / "schema" / "vega-lite-schema.json"
    return jsonschema_rs.validator_for(_quoted(json.loads(file.read_text(encoding="utf-8"))))


def _quoted(part: Any) -> Any:
    """The schema with quoted references, as its names contain `<`, `>` and `|`."""
    if isinstance(part, list):
        return [_quoted(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: quote(value, safe="#/") if key == "$ref" else _quoted(value)
        for key, value in part.items()
    }
