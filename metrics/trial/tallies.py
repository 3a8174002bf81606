"""Adding up what tasks counted: maps of counts, and maps of such maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Errors = Mapping[str, int]
"""Kafka error name → records."""


def summed(maps: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    """Counts of all maps together."""
    total: Counter[Any] = Counter()
    for one in maps:
        total.update(one)
    return dict(total)


def errors_summed(maps: Iterable[Mapping[int, Errors]]) -> dict[int, dict[str, int]]:
    """The errors of partitions, or of producers, of all maps together."""
    found: dict[int, list[Errors]] = {}
    for one in maps:
        for number, errors in one.items():
            found.setdefault(number, []).append(errors)
    return {number: summed(each) for number, each in found.items()}


def errors_from(value: Any) -> dict[int, dict[str, int]]:
    """Such a map as Spark's and Arrow's rows give it; Arrow lists a map's pairs."""
    return {number: dict(errors) for number, errors in dict(value or {}).items()}
