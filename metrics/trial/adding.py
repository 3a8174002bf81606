"""Adding up what tasks counted; how a field adds up stands with the field.

Numbers are summed, maps key by key, tuples are joined, histograms and dataclasses added.
`Annotated` says where it is otherwise, with one of the words below.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

LARGEST = "largest"
"""Of all tasks the largest value counts."""
SMALLEST = "smallest"
"""Of all tasks the smallest value counts."""
FIRST = "first"
"""All tasks say the same, or nothing."""
POINT_BY_POINT = "point by point"
"""A series: sums of the points with the same place, as far as all series go."""
_WORDS = (LARGEST, SMALLEST, FIRST, POINT_BY_POINT)

Part = TypeVar("Part")


def total(parts: Iterable[Part]) -> Part:
    """All parts together, of the type of each.

    Raises:
        ValueError: there is none.
    """
    listed = list(parts)
    if not listed:
        raise ValueError("there is nothing to add up; expected one part at least")
    found: Part = _added(listed, None)
    return found


def _added(parts: Sequence[Any], rule: str | None) -> Any:
    known = [part for part in parts if part is not None]
    if not known or rule == FIRST:
        return known[0] if known else None
    if rule == LARGEST:
        return max(known)
    if rule == SMALLEST:
        return min(known)
    first = known[0]
    if isinstance(first, tuple):
        if rule == POINT_BY_POINT:
            return tuple(sum(point) for point in zip(*known, strict=False))
        return tuple(each for part in known for each in part)
    if isinstance(first, Mapping):
        return _maps_added(known)
    if hasattr(first, "plus"):
        return reduce(lambda one, other: one.plus(other), known)
    if dataclasses.is_dataclass(first):
        kind: Any = type(first)
        rules = _rules(kind)
        values = {
            item.name: _added([getattr(part, item.name) for part in known], rules[item.name])
            for item in dataclasses.fields(kind)
        }
        return kind(**values)
    return sum(known[1:], start=first)


def _maps_added(maps: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, list[Any]] = {}
    for each in maps:
        for key, value in each.items():
            found.setdefault(key, []).append(value)
    return {key: _added(values, None) for key, values in found.items()}


@functools.cache
def _rules(kind: Any) -> dict[str, str | None]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _rule(hint) for name, hint in hints.items()}


def _rule(hint: Any) -> str | None:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next(
        (mark for mark in marks if mark in (LARGEST, SMALLEST, FIRST, POINT_BY_POINT)), None
    )
