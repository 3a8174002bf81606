"""The times at which a cluster may be loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from metrics.planning.load_hours import LoadHours, LoadTimes, next_time


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver's time zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    """A moment of UTC [s since the epoch]."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        ("22:00-06:00", "2026-11-26T23:30", "2026-11-27T06:00"),
        ("22:00-06:00", "2026-11-26T05:59", "2026-11-26T06:00"),
        ("22:00-06:00", "2026-11-26T06:00", None),
        ("22:00-06:00", "2026-11-26T21:59", None),
        ("22:00-00:00", "2026-11-26T23:59", "2026-11-27T00:00"),
        ("09:30-11:00", "2026-11-26T09:30", "2026-11-26T11:00"),
        ("09:30-11:00", "2026-11-26T11:00", None),
        ("22:00-06:00 America/New_York", "2026-11-26T10:30", "2026-11-26T11:00"),
        ("22:00-06:00 America/New_York", "2026-11-26T23:30", None),
    ],
)
def test_hours_end_on_the_day_on_which_they_end(hours: str, now: str, end: str | None) -> None:
    found = LoadHours.parse(hours)
    assert found.end_after(at(now)) == (None if end is None else at(end))
    assert str(found) == hours


def test_other_texts_are_no_hours() -> None:
    for text, problem in (
        ("", "expected two times"),
        ("22-06", "expected two times"),
        ("22:00", "expected two times"),
        ("24:00-06:00", "hour must be"),
        ("22:00-22:00", "an end that differs"),
        ("22:00-06:00 Mars/Olympus", "not Mars/Olympus"),
    ):
        with pytest.raises(ValueError, match=problem):
            LoadHours.parse(text)


def test_a_load_must_end_in_time() -> None:
    times = LoadTimes(LoadHours.parse("22:00-06:00"), at("2026-11-27T05:30"))
    assert times.refusal(at("2026-11-27T05:29"), 60.0) is None
    assert times.refusal(at("2026-11-27T05:29"), 61.0) == (
        "the next load would end at 05:30:01, and no load may last beyond 05:30:00 (--until)"
    )
    assert times.refusal(at("2026-11-27T12:00"), 0.0) == (
        "it is 12:00, and the cluster's load_hours are 22:00-06:00"
    )
    only_hours = LoadTimes(LoadHours.parse("22:00-06:00"))
    assert only_hours.refusal(at("2026-11-27T05:59"), 90.0) == (
        "the next load would end at 06:00:30, and no load may last beyond 06:00:00 "
        "(the cluster's load_hours)"
    )
    assert LoadTimes().refusal(at("2026-11-27T05:59"), 1e9) is None


def test_a_time_of_day_is_the_next_one() -> None:
    for text, now, expected in (
        ("06:00", "2026-11-26T23:30", "2026-11-27T06:00"),
        ("06:00", "2026-11-26T05:30", "2026-11-26T06:00"),
        ("06:00", "2026-11-26T06:00", "2026-11-27T06:00"),
        ("2026-11-28T06:00", "2026-11-26T06:00", "2026-11-28T06:00"),
        ("2026-11-28T06:00+02:00", "2026-11-26T06:00", "2026-11-28T04:00"),
    ):
        assert next_time(text, at(now)) == at(expected)
    for text, problem in (
        ("6", "isoformat"),
        ("25:00", "hour must be"),
        ("soon", "isoformat"),
        ("2026-11-25T06:00", "it has passed"),
    ):
        with pytest.raises(ValueError, match=problem):
            next_time(text, at("2026-11-26T06:00"))
