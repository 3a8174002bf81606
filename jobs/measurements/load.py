"""The measurement `load`: the readings of a case at a fixed load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mode
from typing import Any

from jobs.runs.fixed_load import FixedLoadRun
from jobs.runs.lifecycle import Body
from jobs.runs.measurement import Case, Measurement, why_invalid
from metrics.comparing import figures
from metrics.comparing.figures import Result
from metrics.reporting.summary import RunSummary


class Load(Measurement):
    """The acknowledged rate of a fixed load, with its latency and its costs."""

    name = "load"
    figure = figures.ACKNOWLEDGED
    unit = "MB/s"
    takes = frozenset({"load", "trials"})

    def body(self, case: Case) -> Body:
        """Make trials at the fixed load; none ends early, and INVALID trials are repeated."""
        return FixedLoadRun(case.config.in_full, replace(case.held, repeats_invalid=True))

    def results(self, summary: RunSummary) -> Iterator[Result]:
        """The median of each reading over the valid trials, and the resource that most often
        limited the load in these trials.
        """
        if summary.trials:
            yield _rate_result(summary.trials)


def _rate_result(trials: Sequence[Mapping[str, Any]]) -> Result:
    valid = [each for each in trials if not why_invalid(each)]
    message_bytes = int(trials[0]["bpm"])
    if not valid:
        return Result({}, 1, message_bytes, None, why=why_invalid(trials[-1]))

    def middle(key: str) -> float | None:
        return figures.middle(each.get(key) for each in valid)

    bound = [each["limited_by"] for each in valid if each["limited_by"]]
    return Result(
        {},
        1,
        message_bytes,
        middle("achieved_mb_per_s"),
        p50_ms=middle("latency_p50_ms"),
        p99_ms=middle("latency_p99_ms"),
        p999_ms=middle("latency_p999_ms"),
        limited_by=mode(bound) if bound else None,
        cpu_s_per_mb=middle("producer_cpu_s_per_mb"),
        broker_cpu_s_per_mb=middle("broker_cpu_s_per_mb"),
        commit_ms=middle("commit_mean_ms"),
        log_bytes_per_byte=middle("log_bytes_per_byte"),
        broker_resident_bytes=middle("broker_resident_bytes"),
        page_cache_bytes=middle("page_cache_bytes"),
    )


MEASUREMENT = Load
