"""The comparison of found limits with planted disks and links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import planted
from tests.bench.planted import KINDS, Point, conclusion, points_of, table

SUMMARY: dict[str, Any] = {
    "boundaries": [
        {
            "bpm": 1_000,
            "np_planted": 200.0,
            "gave_up": None,
            "np_sustained": 196,
            "np_overloaded": 200,
            "np_estimate": 197.5,
            "limited_by": "disk",
            "trials": 6,
        },
        {
            "bpm": 10_000,
            "np_planted": 200.0,
            "gave_up": "invalid",
            "np_sustained": 0,
            "np_overloaded": None,
            "limited_by": None,
            "trials": 4,
        },
    ]
}


def test_a_point_is_right_near_the_limit_and_with_its_cause() -> None:
    near, none = points_of(SUMMARY, "disk", "10MB/s")
    assert near.off_by == pytest.approx(-0.02) and near.is_right
    assert none.off_by == -1.0 and not none.is_right
    assert not Point(**{**vars(near), "limited_by": "cpu"}).is_right
    assert not Point(**{**vars(near), "sustained": 189}).is_right
    assert table([near, none])[2:] == [
        "| disk | 10MB/s | 1 kB | 200.0 | 196-200 | -2.0% | disk | 6 |",
        "| disk | 10MB/s | 10 kB | 200.0 | none- | -100.0% | none | 4 |",
    ]
    assert conclusion([near, none], 3) == (
        "1 of 3 points within 5% of the planted limit, 1 with the right cause; median distance "
        "51.0%, largest 100.0%"
    )


def test_only_missing_runs_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def measure(kind: str, rate: str) -> list[Point]:
        made.append((kind, rate))
        sizes = (100, 1_000, 10_000)
        return [Point(kind, rate, size, 100.0, 99, 102, 100.0, "disk", 5) for size in sizes]

    monkeypatch.setattr(planted, "measure", measure)
    arguments = ["--kind", "disk", "--rates", "6MB/s,8MB/s", "--json", str(tmp_path / "disk.json")]
    assert planted.main(arguments) == 0
    assert planted.main([*arguments[:3], "6MB/s,10MB/s", *arguments[4:]]) == 1, "8MB/s is kept"
    assert made == [("disk", "6MB/s"), ("disk", "8MB/s"), ("disk", "10MB/s")]
    assert len(json.loads((tmp_path / "disk.json").read_text())) == 9
    assert all(3 * len(kind.rates) == 12 for kind in KINDS.values())
