"""The facts of a trial in words: what it offered, what was achieved, and its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metrics.columns import restored
from metrics.reporting.notebook_display import NotebookOutput, table_html
from metrics.tables.schema import SampleRow
from metrics.tables.trials import trial_from
from metrics.units import (
    UNKNOWN,
    format_count,
    format_duration,
    format_mb_per_s,
    format_ratio,
    format_size,
)
from metrics.windows.series import SeriesPoint, series_points

WINDOW_COLUMNS = (
    "broker_id",
    "handler_idle",
    "network_idle",
    "cpu_machine_share",
    "cpu_cores",
    "gc_share",
    "flush_threads",
    "flush_ms",
    "request_queue_max",
    "messages_in_per_s",
    "bytes_in_per_s",
    "replication_bytes_in_per_s",
    "disk_write_bytes_per_s",
    "isr_shrinks",
    "under_replicated_max",
    "replica_lag_max_records",
    "produce.per_s",
    "produce.total_ms",
    "produce.request_queue_ms",
    "produce.local_ms",
    "produce.remote_ms",
)
"""The most informative columns of a broker's window; docs/tables.md lists all columns."""


def window_s(trial: Mapping[str, Any]) -> float:
    """Length of the measured window of a row of `trials` [s]."""
    passed: float = (trial["window_end"] - trial["window_start"]).total_seconds()
    return passed


def points_over_time(
    samples: Iterable[Mapping[str, Any]], trial: Mapping[str, Any]
) -> list[SeriesPoint]:
    """The readings of a trial's brokers over time.

    Args:
        samples: rows of the table `samples` of the trial's run.
        trial: the trial's row of the table `trials`.
    """
    evidence = trial_from(trial).evidence
    kept = (restored(SampleRow, row) for row in samples)
    own = (each.sample for each in kept if each.trial == trial["trial"])
    brokers = {window.broker_id for window in evidence.brokers}
    return series_points(own, brokers, evidence.client.start_s)


def trial_facts(trial: Mapping[str, Any]) -> NotebookOutput:
    """A table of sentences and figures about a row of `trials`."""
    passed_s = window_s(trial)
    facts = (
        ("Trial", f"{trial['trial']} of run {trial['run_id']}"),
        ("Verdict", trial["verdict"]),
        ("Reasons", [reason["text"] for reason in trial["reasons"] or ()]),
        ("Limiting resource", trial["limited_by"] or "–"),
        ("Evidence", trial["attribution"] or "–"),
        ("Pattern", _pattern(trial)),
        ("Offered", _offered(trial, passed_s)),
        ("Achieved", _achieved(trial, passed_s)),
        ("Failed", f"{format_count(trial['failed_total'])} records over the whole trial"),
        ("Accounting", _accounting(trial)),
        ("Generator", _generator(trial)),
        ("Measured for", format_duration(passed_s)),
        ("Source of metrics", trial["metrics_source"]),
    )
    return NotebookOutput(table_html(("what", "value"), facts))


def _offered(trial: Mapping[str, Any], passed_s: float) -> str:
    if trial.get("closed_loop"):
        return "no fixed rate: in a closed loop, latencies exclude the wait before the send"
    return _rates(trial["offered_records"], trial["offered_bytes"], passed_s)


def _pattern(trial: Mapping[str, Any]) -> str:
    records_per_s = trial["rate_records_per_s"]
    rate = (
        "in a closed loop"
        if records_per_s is None
        else f"of {format_count(records_per_s)} records/s each"
    )
    return (
        f"{format_count(trial['np'])} producers {rate}, messages of "
        f"{format_size(trial['bpm'])}, acks={trial['acks']}, compression {trial['compression']}, "
        f"{trial['replication_factor']} replicas, {_partitions(trial)} on "
        f"each of {trial['brokers']} brokers, consumer groups: {trial['consumer_groups']}"
    )


def _partitions(trial: Mapping[str, Any]) -> str:
    topics = trial.get("topics") or 1
    of_topics = f" of each of {topics} topics" if topics > 1 else ""
    return f"{trial['partitions_per_broker']} partitions{of_topics}"


def _rates(records: int, size_bytes: int, passed_s: float) -> str:
    if passed_s <= 0:
        return UNKNOWN
    mb_per_s = format_mb_per_s(size_bytes / passed_s / 1e6)
    return f"{format_count(records / passed_s)} messages/s, {mb_per_s} MB/s"


def _achieved(trial: Mapping[str, Any], passed_s: float) -> str:
    offered = trial["offered_records"]
    if trial.get("closed_loop"):
        return _rates(trial["acked_records"], trial["acked_bytes"], passed_s)
    share = format_ratio(trial["acked_records"] / offered) if offered else UNKNOWN
    rates = _rates(trial["acked_records"], trial["acked_bytes"], passed_s)
    return f"{rates}, {share} of the offered records"


def _accounting(trial: Mapping[str, Any]) -> str:
    grown = trial["end_offset_growth_records"]
    acked = format_count(trial["acked_total"])
    if grown is None:
        return f"{acked} acknowledged; the growth of the end offsets is not known"
    return f"{acked} acknowledged, and the end offsets grew by {format_count(grown)}"


def _generator(trial: Mapping[str, Any]) -> str:
    late = trial["lateness_p99_ms"]
    return (
        f"busiest task {format_ratio(trial['loop_busy'])}, "
        f"lateness p99 {UNKNOWN if late is None else f'{late:.1f}'} ms"
    )
