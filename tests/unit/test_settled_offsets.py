"""After a load, a trial awaits the high watermark, and keeps what it lacked at first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.trials import measure
from jobs.trials.measure import TrialMeasurer, written_records

BEFORE = {0: 100, 1: 50}


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A measurer whose clock advances by a second with each pause."""
    now = iter(range(1_000))
    clock = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda _: None)
    monkeypatch.setattr(measure, "time", clock)
    return object.__new__(TrialMeasurer)


def settled(measurer: Any, looks: Iterator[Mapping[int, int]]) -> tuple[Mapping[int, int], int]:
    topics = SimpleNamespace(end_offsets=lambda _topics: next(looks))
    measurer._context = SimpleNamespace(topics=topics)
    seen = SimpleNamespace(counts=SimpleNamespace(acked_total=30))
    found: tuple[Mapping[int, int], int] = measurer._settled_offsets(None, BEFORE, seen)
    return found


def test_records_above_the_high_watermark_are_counted_at_the_first_look(measurer: Any) -> None:
    looks = iter([{0: 110, 1: 50}, {0: 110, 1: 65}, {0: 115, 1: 65}])
    assert settled(measurer, looks) == ({0: 115, 1: 65}, 20)
    assert settled(measurer, iter([{0: 115, 1: 65}])) == ({0: 115, 1: 65}, 0)
    behind = {0: 110, 1: 50}
    assert settled(measurer, repeat(behind)) == (behind, 20), "the wait for followers ends"


def test_records_that_wait_for_followers_are_not_those_of_others() -> None:
    assert written_records(BEFORE, {0: 110, 1: 50}, 30) == 30
    assert written_records(BEFORE, {0: 115, 1: 70}, 30) == 35, "failed and repeated ones, too"
