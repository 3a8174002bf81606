"""The figures of a sweep's cases, from the files that their runs left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from jobs.runs.sweep.turns import Turn
from metrics.comparing.sweeps import Result
from metrics.reporting.summary import RunSummary, load_summary
from metrics.tables.boundary import Boundary
from search.model import Verdict


def finished(folder: Path) -> RunSummary | None:
    """What the run of a turn concluded; None where it did not come to its end."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = load_summary(path)
    return summary if summary.status in ("done", "no conclusion") else None


def results_of(turn: Turn, summary: RunSummary) -> Iterator[Result]:
    """A case's figure at each message size."""
    for boundary in summary.boundaries:
        found = _of_limit(turn, boundary)
        yield replace(found, brokers=summary.brokers, run_id=summary.run_id)
    if not summary.boundaries and summary.trials:
        found = _of_trials(turn, summary)
        yield replace(found, brokers=summary.brokers, run_id=summary.run_id)


def _of_limit(turn: Turn, boundary: Boundary) -> Result:
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "nothing was sustained")
    return Result(
        turn.case.settings,
        turn.repeat,
        boundary.bpm,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
    )


def _of_trials(turn: Turn, summary: RunSummary) -> Result:
    """Of a fixed load what was acknowledged, the median of the valid trials."""
    valid = [each for each in summary.trials if each["verdict"] != Verdict.INVALID.value]
    bpm = int(summary.trials[0]["bpm"])
    if not valid:
        reasons = summary.trials[-1]["reasons"]
        why = reasons[0] if reasons else "no trial was valid"
        return Result(turn.case.settings, turn.repeat, bpm, None, why=why)

    def middle(key: str) -> float | None:
        known = [float(each[key]) for each in valid if _is_known(each[key])]
        return median(known) if known else None

    bound = [each["limited_by"] for each in valid if each["limited_by"]]
    return Result(
        turn.case.settings,
        turn.repeat,
        bpm,
        middle("achieved_mb_per_s"),
        p50_ms=middle("latency_p50_ms"),
        p99_ms=middle("latency_p99_ms"),
        p999_ms=middle("latency_p999_ms"),
        limited_by=bound[-1] if bound else None,
    )


def _is_known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
