"""The sum of the tasks' counts; the annotation of a field states how it adds up.

Numbers are summed, maps are summed key by key, tuples are joined, histograms and dataclasses are
added. `Annotated` with one of the words below states another rule.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

LARGEST = "largest"
"""The largest value of all tasks counts."""
SMALLEST = "smallest"
"""The smallest value of all tasks counts."""
FIRST = "first"
"""All tasks have the same value, or None."""
POINT_BY_POINT = "point by point"
"""Series are summed point by point, up to the end of the shortest."""
_WORDS = (LARGEST, SMALLEST, FIRST, POINT_BY_POINT)

Part = TypeVar("Part")


def total(parts: Iterable[Part]) -> Part:
    """The sum of all parts, of the type of each part.

    Raises:
        ValueError: there are no parts.
    """
    listed = list(parts)
    if not listed:
        raise ValueError("there are no parts to add up; expected at least one")
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
