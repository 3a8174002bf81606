"""The figure of a case, from what its run concluded. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from metrics.comparing.sweeps import Result
from metrics.reporting.summary import RunSummary
from metrics.reporting.sweep.answer import TIMED
from metrics.tables.boundary import Boundary
from search.model import Verdict

CONCLUDED = ("done", "no conclusion")
"""How runs end that have an answer, or know why they have none."""


def results_of(
    settings: Mapping[str, str], repeat: int, summary: RunSummary, asks: str = "limit"
) -> Iterator[Result]:
    """A case's figure at each message size.

    Args:
        settings: full path of each key that varies → its value.
        repeat: which measurement of the case, from 1.
        asks: what was asked of it, as of `SweepAnswer`.
    """
    found = [_of_limit(each) for each in summary.boundaries]
    if not found and summary.trials:
        found = [_of_held(summary.trials, asks)]
    for each in found:
        yield replace(each, settings=settings, repeat=repeat, brokers=summary.brokers,
                      run_id=summary.run_id)  # fmt: skip


def _of_limit(boundary: Boundary) -> Result:
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "nothing was sustained")
    return Result(
        {},
        1,
        boundary.bpm,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
        broker_resident_bytes=boundary.broker_resident_bytes,
        page_cache_bytes=boundary.page_cache_bytes,
    )


def _of_held(trials: Sequence[Mapping[str, Any]], asks: str) -> Result:
    """Of trials of a fixed load: what a volume or a failover took, or what was acknowledged."""
    if asks == "failover":
        return _of_failover(trials[-1])
    return _of_volume(trials[-1], asks) if asks in TIMED else _of_trials(trials)


def _of_failover(trial: Mapping[str, Any]) -> Result:
    """Of a broker that was killed the time until every leader served again [s]."""
    invalid = _invalid(trial)
    back_s = None if invalid else trial.get("leaders_back_s")
    return Result(
        {},
        1,
        int(trial["bpm"]),
        back_s,
        p50_ms=trial["latency_p50_ms"],
        p99_ms=trial["latency_p99_ms"],
        p999_ms=trial["latency_p999_ms"],
        why=invalid or ("" if back_s else "not every leader served again while the load lasted"),
    )


def _of_volume(last: Mapping[str, Any], asks: str) -> Result:
    """Of a fixed volume the time that the last step took, writing or reading [s]."""
    is_writing = bool(last.get("volume_bytes"))
    invalid = _invalid(last)
    took_s = last.get("moved_s") if is_writing == (asks == "fill") and not invalid else None
    return Result(
        {},
        1,
        int(last["bpm"]),
        took_s,
        limited_by=last["limited_by"],
        why=invalid or ("" if took_s else "not all of the volume was moved in time"),
    )


def _invalid(trial: Mapping[str, Any]) -> str:
    """Why a trial is no answer; empty where it is one."""
    if trial["verdict"] != Verdict.INVALID.value:
        return ""
    return next(iter(trial["reasons"]), "the trial was INVALID")


def _of_trials(trials: Sequence[Mapping[str, Any]]) -> Result:
    """Of a fixed load what was acknowledged, the median of the valid trials."""
    valid = [each for each in trials if not _invalid(each)]
    bpm = int(trials[0]["bpm"])
    if not valid:
        return Result({}, 1, bpm, None, why=_invalid(trials[-1]))

    def middle(key: str) -> float | None:
        known = [float(each[key]) for each in valid if _is_known(each.get(key))]
        return median(known) if known else None

    bound = [each["limited_by"] for each in valid if each["limited_by"]]
    return Result(
        {},
        1,
        bpm,
        middle("achieved_mb_per_s"),
        p50_ms=middle("latency_p50_ms"),
        p99_ms=middle("latency_p99_ms"),
        p999_ms=middle("latency_p999_ms"),
        limited_by=bound[-1] if bound else None,
        cpu_s_per_mb=middle("producer_cpu_s_per_mb"),
        broker_cpu_s_per_mb=middle("broker_cpu_s_per_mb"),
        commit_ms=middle("commit_mean_ms"),
        log_bytes_per_byte=middle("log_bytes_per_byte"),
        broker_resident_bytes=middle("broker_resident_bytes"),
        page_cache_bytes=middle("page_cache_bytes"),
    )


def _is_known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
