"""The comparison of found limits with planted disks and links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.planted import Point, conclusion, points_of, table

SUMMARY: dict[str, Any] = {
    "boundaries": [
        {
            "bpm": 1_000, "np_planted": 200.0, "gave_up": None, "np_sustained": 196,
            "np_overloaded": 200, "np_estimate": 197.5, "limited_by": "disk", "trials": 6,
        },
        {
            "bpm": 10_000, "np_planted": 200.0, "gave_up": "invalid", "np_sustained": 0,
            "np_overloaded": None, "limited_by": None, "trials": 4,
        },
    ]
}  # fmt: skip


def test_a_point_is_right_near_the_limit_and_with_its_cause() -> None:
    near, none = points_of(SUMMARY, "disk", "10MB/s")
    assert near.off_by == pytest.approx(-0.02) and near.is_right
    assert none.off_by == -1.0 and not none.is_right
    assert not Point(**{**vars(near), "limited_by": "cpu"}).is_right
    assert not Point(**{**vars(near), "sustained": 189}).is_right
    assert table([near, none])[2:] == [
        "| disk | 10MB/s | 1 kB | 200.0 | 196-200 | -2.0% | 197.5 | -1.2% | disk | 6 |",
        "| disk | 10MB/s | 10 kB | 200.0 | none- | -100.0% | ? | ? | none | 4 |",
    ]
    again = Point(**{**vars(near), "repeat": 2, "sustained": 198, "low": 190.0, "high": 199.0})
    assert table([again, near])[-1] == (
        "| disk | 10MB/s | 1 kB | 200.0 200.0 | 198-200 196-200 | -1.0% -2.0% | 197.5 197.5 | "
        "-1.2% -1.2% | disk disk | 6 6 |"
    )
    assert " | ".join(conclusion([near, none, again], 4)) == (
        "2 of 4 points within 5% of the planted limit, 2 with the right cause; median distance "
        "1.5%, largest 2.0%, 6.0 trials a point | "
        "runs on equal brokers differ by 1.0% at the median, 1.0% at most, from their lowest "
        "answer to their highest | "
        "median distance of the best estimate 1.2%, largest 1.2% | "
        "the interval at 90 % contains the planted limit in 0 of 1"
    )
    assert conclusion([none], 1) == ["0 of 1 points have an answer"]
    assert not Point(**{**vars(near), "planted": None}).is_right
    assert Point(**{**vars(near), "kind": "handlers", "limited_by": "cpu"}).is_right
