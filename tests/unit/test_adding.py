"""Sums of what tasks counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from metrics.trial.adding import FIRST, LARGEST, POINT_BY_POINT, Histogram, total


@dataclass(frozen=True)
class Inner:
    records: int = 0


@dataclass(frozen=True)
class Part:
    """A field of each kind."""

    records: int = 0
    busy: Annotated[float, LARGEST] = 0.0
    name: Annotated[str | None, FIRST] = None
    lags: Annotated[tuple[int, ...], POINT_BY_POINT] = ()
    notes: tuple[str, ...] = ()
    errors: dict[int, dict[str, int]] = field(default_factory=dict)
    times: Histogram = field(default_factory=Histogram)
    inner: Inner | None = None


def test_each_field_is_added_by_its_kind() -> None:
    one = Part(2, 0.3, None, (1, 2, 3), ("a",), {1: {"A": 1, "B": 2}}, Histogram([1.0, 5.0]))
    other = Part(
        3, 0.9, "x", (10, 20), ("b", "a"), {1: {"B": 3}, 2: {"A": 4}}, Histogram([9.0]), Inner(2)
    )
    third = Part(1, 0.5, "x", (100, 200), inner=Inner(3))
    assert total([one, other, third]) == Part(
        6, 0.9, "x", (111, 222), ("a", "b", "a"), {1: {"A": 1, "B": 5}, 2: {"A": 4}},
        Histogram([1.0, 5.0, 9.0]), Inner(5),
    )  # fmt: skip
    assert total([one, one]).inner is None
    assert total([other]) == other
    with pytest.raises(ValueError, match="expected at least one"):
        total([])
    # Adding up changes no part.
    one, other = Part(errors={1: Counter(A=1)}), Part(errors={1: Counter(A=2)})
    for parts in ([one, other], [one]):
        total(parts).errors[1]["A"] += 10
        assert (one.errors, other.errors) == ({1: {"A": 1}}, {1: {"A": 2}})
