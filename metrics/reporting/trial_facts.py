"""What a trial offered, achieved and found, in words: the head of its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metrics.columns import restored
from metrics.reporting.notebook_display import Shown, table_html
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
"""The columns of a broker's window that explain most; docs/tables.md has all of them."""


def window_s(trial: Mapping[str, Any]) -> float:
    """Length of the measured window of a row of `trials` [s]."""
    passed: float = (trial["window_end"] - trial["window_start"]).total_seconds()
    return passed


def points_over_time(
    samples: Iterable[Mapping[str, Any]], trial: Mapping[str, Any]
) -> list[SeriesPoint]:
    """What the brokers of a row of `trials` showed over time, from its run's rows of `samples`."""
    evidence = trial_from(trial).evidence
    kept = (restored(SampleRow, row) for row in samples)
    own = (each.sample for each in kept if each.trial == trial["trial"])
    brokers = {window.broker_id for window in evidence.brokers}
    return series_points(own, brokers, evidence.client.start_s)


def trial_facts(trial: Mapping[str, Any]) -> Shown:
    """A row of `trials` as a table of sentences and figures."""
    passed_s = window_s(trial)
    facts = (
        ("Trial", f"{trial['trial']} of run {trial['run_id']}"),
        ("Verdict", trial["verdict"]),
        ("Reasons", [reason["text"] for reason in trial["reasons"] or ()]),
        ("What bound the brokers", trial["limited_by"] or "–"),
        ("Evidence", trial["attribution"] or "–"),
        ("Pattern", _pattern(trial)),
        ("Offered", _offered(trial, passed_s)),
        ("Achieved", _achieved(trial, passed_s)),
        ("Failed", f"{format_count(trial['failed_total'])} records over the whole trial"),
        ("Accounting", _accounting(trial)),
        ("Generator", _generator(trial)),
        ("Measured for", format_duration(passed_s)),
        ("Metrics by", trial["metrics_source"]),
    )
    return Shown(table_html(("what", "value"), facts))


def _offered(trial: Mapping[str, Any], passed_s: float) -> str:
    if trial.get("closed_loop"):
        return "as fast as it was let: closed loop, latencies leave out waiting before the send"
    return _rates(trial["offered_records"], trial["offered_bytes"], passed_s)


def _pattern(trial: Mapping[str, Any]) -> str:
    told = trial["rate_records_per_s"]
    rate = "in a closed loop" if told is None else f"of {format_count(told)} records/s each"
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
    return f"{_rates(trial['acked_records'], trial['acked_bytes'], passed_s)}, {share} of it"


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
        f"{UNKNOWN if late is None else f'{late:.1f}'} ms late in the worst hundredth"
    )
