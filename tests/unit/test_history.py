"""Runs go on where they stopped: what was decided is decided again from the records."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from jobs.trials.history import TrialRecord, differences, record_from, replay
from metrics.trial.judgement import Judgement
from metrics.windows.resource import Resource
from search.boundary_model import ProducerRate
from search.errors import ConfigError
from search.limits import Limits
from search.line import FinishedPoint, Line
from search.lines import run_line, run_lines
from search.model import Observation, Verdict

GOAL = "default"
SIZES = (100, 1_000, 10_000)
LINE = Line(SIZES, ProducerRate(bytes_per_s=250_000.0), Limits(128, 1_000, 0.05, 3), brokers=3)


class Cluster:
    """Handlers whose idle fraction falls with load, with a little noise."""

    def __init__(self, bpm: int, records: list[TrialRecord]) -> None:
        self._bpm = bpm
        self._records = records
        self._limit = {100: 41, 1_000: 57, 10_000: 66}[bpm]

    def measure(self, load: int) -> Observation:
        noise = random.Random(f"{self._bpm}/{load}/{len(self._records)}").gauss(1.0, 0.02)
        used = min(1.25, load / self._limit * noise)
        verdict = Verdict.OVERLOADED if used > 1 else Verdict.SUSTAINED
        judged = Judgement(verdict, (), {"request_handler_idle": used, "achieved": 0.0})
        number = len(self._records) + 1
        record = TrialRecord(number, self._bpm, load, 13.0, {GOAL: judged})
        self._records.append(record)
        return record.observation(GOAL)


def _measure(
    finished: list[FinishedPoint], begun: tuple[Observation, ...], records: list[TrialRecord]
) -> list[FinishedPoint]:
    return run_line(LINE, lambda bpm: Cluster(bpm, records), None, tuple(finished), begun)


def _replay(
    line: Line, records: list[TrialRecord]
) -> tuple[list[FinishedPoint], tuple[Observation, ...]]:
    finished, begun = replay({GOAL: line}, records)
    return finished[GOAL], begun[GOAL]


def test_a_run_cut_after_any_trial_ends_the_same_and_repeats_none() -> None:
    whole: list[TrialRecord] = []
    points = _measure([], (), whole)
    assert len(points) == len(SIZES)
    for cut in range(len(whole) + 1):
        records = whole[:cut]
        finished, begun = _replay(LINE, records)
        again = _measure(finished, begun, records)
        assert again == points
        assert [r.number for r in records] == list(range(1, len(whole) + 1))
        assert records == whole


def test_trials_of_another_plan_are_refused() -> None:
    records: list[TrialRecord] = []
    _measure([], (), records)
    other = Line((100,), LINE.rate, LINE.limits, brokers=3)
    with pytest.raises(ConfigError, match="run again without --resume"):
        _replay(other, records)


def test_a_row_of_the_table_is_the_record_again() -> None:
    began = datetime(2026, 11, 21, tzinfo=timezone.utc)
    reason = {
        "indicator": "isr",
        "text": "t",
        "value": 0.6,
        "threshold": 0.5,
        "broker_id": 1,
        "resource": "replication",
    }
    overloaded = {
        "verdict": "OVERLOADED",
        "reasons": [reason],
        "utilization": {"isr": 0.5},
        "limited_by": "disk",
        "attribution": "disk: flushes",
    }
    sustained: dict[str, Any] = {
        "verdict": "SUSTAINED",
        "reasons": [],
        "utilization": {"isr": 0.2},
        "limited_by": None,
        "attribution": None,
    }
    row: dict[str, Any] = {
        "trial": 4,
        "point_bpm": 100,
        "load": 7,
        "started_at": began,
        "finished_at": began + timedelta(seconds=12.5),
        "verdicts": {"strict": overloaded, "tolerant": sustained},
    }
    record = record_from(row)
    strict = record.judgements["strict"]
    assert record.observation("strict") == Observation(7, Verdict.OVERLOADED, {"isr": 0.5}, 12.5)
    assert record.observation("tolerant").verdict is Verdict.SUSTAINED
    assert (strict.limited_by, strict.attribution) == (Resource.DISK, "disk: flushes")
    assert strict.reasons[0].resource is Resource.REPLICATION


def test_two_goals_cut_after_any_trial_end_the_same() -> None:
    lines = {"strict": LINE, "tolerant": LINE}
    whole: list[TrialRecord] = []
    points = _measure_both(lines, {goal: [] for goal in lines}, None, whole)
    assert all(len(found) == len(SIZES) for found in points.values())
    for cut in range(len(whole) + 1):
        records = whole[:cut]
        finished, begun = replay(lines, records)
        assert _measure_both(lines, finished, begun, records) == points
        assert records == whole


def _measure_both(
    lines: dict[str, Line],
    finished: dict[str, list[FinishedPoint]],
    begun: dict[str, tuple[Observation, ...]] | None,
    records: list[TrialRecord],
) -> dict[str, list[FinishedPoint]]:
    return run_lines(lines, lambda bpm: TwoGoals(bpm, records), None, finished, begun)


class TwoGoals:
    """The cluster judged by a strict and by a tolerant goal."""

    def __init__(self, bpm: int, records: list[TrialRecord]) -> None:
        self._bpm = bpm
        self._records = records

    def measure(self, load: int) -> dict[str, Observation]:
        judgements = {}
        for goal, limit in (("strict", 40.5 + self._bpm / 500), ("tolerant", 75.5)):
            used = min(1.25, load / limit)
            verdict = Verdict.OVERLOADED if used > 1 else Verdict.SUSTAINED
            judgements[goal] = Judgement(verdict, (), {"request_handler_idle": used})
        record = TrialRecord(len(self._records) + 1, self._bpm, load, 13.0, judgements)
        self._records.append(record)
        return {goal: record.observation(goal) for goal in judgements}


def test_differences_name_file_and_key() -> None:
    then = {"goal": {"search.resolution": 0.05, "name": "default"}}
    now = {"goal": {"search.resolution": 0.1, "name": "default"}}
    assert differences(then, now) == ["goal.search.resolution was 0.05 and is 0.1"]
    assert differences(then, then) == []
    raised = {"goal": {**then["goal"], "guards.np_max": 9, "search.budget.trials": 5}}
    assert differences(then, {**then, **raised}) == []
