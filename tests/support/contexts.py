"""A `RunContext` with only the parts that a test needs."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from jobs.trials.context import RunContext


def run_context(**parts: Any) -> RunContext:
    """A context with these parts, and None for each other part without a default."""
    given: dict[str, Any] = {
        each.name: None
        for each in fields(RunContext)
        if each.default is MISSING and each.default_factory is MISSING
    }
    return RunContext(**given | parts)
