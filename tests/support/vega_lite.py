"""What Vega-Lite takes: charts are not held against its schema while a run waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt


def fits_schema(spec: Mapping[str, Any]) -> None:
    """A specification with nothing in it that Vega-Lite does not know.

    Raises:
        jsonschema.ValidationError: there is.
    """
    alt.Chart.from_dict(dict(spec)).to_dict()
