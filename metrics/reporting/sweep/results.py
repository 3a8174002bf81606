"""The figure of a case, from the summary of its run. Pure."""

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
"""Statuses of runs that ended with an answer, or with the reason why there is none."""


def results_of(
    settings: Mapping[str, str], repeat: int, summary: RunSummary, asks: str = "limit"
) -> Iterator[Result]:
    """A case's figure at each message size.

    Args:
        settings: full path of each key that varies → its value.
        repeat: number of the measurement of this case, from 1.
        asks: the question, as in `SweepAnswer`.
    """
    found = [_limit_result(each) for each in summary.boundaries]
    if not found and summary.trials:
        found = [_load_result(summary.trials, asks)]
    for each in found:
        yield replace(each, settings=settings, repeat=repeat, brokers=summary.brokers,
                      run_id=summary.run_id)  # fmt: skip


def _limit_result(boundary: Boundary) -> Result:
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "no load was sustained")
    return Result(
        {},
        1,
        boundary.message_bytes,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
        broker_resident_bytes=boundary.broker_resident_bytes,
        page_cache_bytes=boundary.page_cache_bytes,
    )


def _load_result(trials: Sequence[Mapping[str, Any]], asks: str) -> Result:
    """The figure of a fixed load: the time of a volume or failover, or the achieved rate."""
    if asks == "failover":
        return _failover_result(trials[-1])
    return _volume_result(trials[-1], asks) if asks in TIMED else _rate_result(trials)


def _failover_result(trial: Mapping[str, Any]) -> Result:
    """The time from the kill of a broker until all partitions have a live leader [s]."""
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
        why=invalid or ("" if back_s else "some partitions had no leader until the load ended"),
    )


def _volume_result(last: Mapping[str, Any], asks: str) -> Result:
    """The time in which a fixed volume was written or read, in the last trial [s]."""
    is_writing = bool(last.get("volume_bytes"))
    invalid = _invalid(last)
    took_s = last.get("moved_s") if is_writing == (asks == "fill") and not invalid else None
    return Result(
        {},
        1,
        int(last["bpm"]),
        took_s,
        limited_by=last["limited_by"],
        why=invalid or ("" if took_s else "a part of the volume was left when the trial ended"),
    )


def _invalid(trial: Mapping[str, Any]) -> str:
    """The reason why a trial is INVALID; empty if it is valid."""
    if trial["verdict"] != Verdict.INVALID.value:
        return ""
    return next(iter(trial["reasons"]), "the trial was INVALID")


def _rate_result(trials: Sequence[Mapping[str, Any]]) -> Result:
    """The achieved rate of a fixed load, as the median of the valid trials."""
    valid = [each for each in trials if not _invalid(each)]
    message_bytes = int(trials[0]["bpm"])
    if not valid:
        return Result({}, 1, message_bytes, None, why=_invalid(trials[-1]))

    def middle(key: str) -> float | None:
        known = [float(each[key]) for each in valid if _is_known(each.get(key))]
        return median(known) if known else None

    bound = [each["limited_by"] for each in valid if each["limited_by"]]
    return Result(
        {},
        1,
        message_bytes,
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
