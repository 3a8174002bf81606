"""The results of a sweep: the figures of its finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from jobs.runs.measurement import Measurement, explaining
from metrics.comparing.sweeps import Result
from metrics.reporting.summary import RunSummary, load_summary

CONCLUDED = ("done", "no conclusion")
"""Statuses of runs that ended with an answer, or with the reason why there is none."""


def finished(folder: Path) -> RunSummary | None:
    """The summary of a finished run; None for an unfinished one."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = load_summary(path)
    return summary if summary.status in CONCLUDED else None


def results_of(
    measurement: Measurement, settings: Mapping[str, str], repeat: int, summary: RunSummary
) -> Iterator[Result]:
    """A case's figure at each message size.

    Args:
        settings: full path of each key that varies → its value.
        repeat: number of the measurement of this case, from 1.
    """
    with explaining(measurement):
        found = list(measurement.results(summary))
    for each in found:
        yield replace(each, settings=settings, repeat=repeat, brokers=summary.brokers,
                      run_id=summary.run_id)  # fmt: skip
