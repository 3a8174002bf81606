"""Sums of what tasks counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.trial.adding import FIRST, LARGEST, POINT_BY_POINT, Histogram, ProducerShares, total


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


def test_numbers_are_summed_and_maps_key_by_key_at_any_depth() -> None:
    parts = [Part(2, errors={1: {"A": 1, "B": 2}}), Part(3, errors={1: {"B": 3}, 2: {"A": 4}})]
    found = total(parts)
    assert found.records == 5
    assert found.errors == {1: {"A": 1, "B": 5}, 2: {"A": 4}}


def test_adding_up_changes_no_part() -> None:
    one, other = Part(errors={1: Counter(A=1)}), Part(errors={1: Counter(A=2)})
    found = total([one, other])
    found.errors[1]["A"] += 10
    assert (one.errors, other.errors) == ({1: {"A": 1}}, {1: {"A": 2}})
    alone = total([one])
    alone.errors[1]["A"] += 10
    assert one.errors == {1: {"A": 1}}


def test_marked_fields_have_the_largest_or_the_first_value() -> None:
    found = total([Part(busy=0.3), Part(busy=0.9, name="x"), Part(busy=0.5, name="x")])
    assert (found.busy, found.name) == (0.9, "x")


def test_series_are_added_point_by_point_and_other_tuples_are_joined() -> None:
    found = total([Part(lags=(1, 2, 3), notes=("a",)), Part(lags=(10, 20), notes=("b", "a"))])
    assert found.lags == (11, 22)
    assert found.notes == ("a", "b", "a")


def test_histograms_are_added() -> None:
    times = total([Part(times=Histogram([1.0, 5.0])), Part(times=Histogram([9.0]))]).times
    assert times == Histogram([1.0, 5.0, 9.0])


def test_fields_that_are_none_are_left_out() -> None:
    assert total([Part(), Part(inner=Inner(2)), Part(inner=Inner(3))]).inner == Inner(5)
    assert total([Part(), Part()]).inner is None


def test_one_part_is_its_own_total() -> None:
    part = Part(1, 0.5, "x", (1, 2), ("a",), {1: {"A": 1}}, Histogram([2.0]), Inner(3))
    assert total([part]) == part


def test_a_part_with_a_sum_of_its_own_uses_it() -> None:
    """The lowest share of all is no sum of the lowest ones."""
    shares = [ProducerShares.of([(0, 9, 10), (1, 8, 10)]), ProducerShares.of([(2, 11, 10)])]
    found = total(shares)
    assert (found.lowest, found.highest, found.worst) == (0.8, 1.1, 1)
    assert found.parts.count == 3


def test_a_sum_needs_at_least_one_part(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError, match="expected at least one") as error:
        total([])
    assert str(error.value) == snapshot
