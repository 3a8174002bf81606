"""Report of a task with producers for a window."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from jobs.engine.batches.pool import pool_of
from jobs.engine.network.tcp_info import kernel_buffers
from jobs.engine.producing.account import Account
from jobs.engine.producing.producer import Producer
from jobs.engine.task.plan import TrialPlan
from metrics.trial.over_time import SlicedTimes
from metrics.trial.producer_shares import ProducerShares
from metrics.trial.task import ProducerReport, TaskReport


def producer_report(
    plan: TrialPlan,
    task: int,
    account: Account,
    producers: Iterable[Producer],
    wall_offset_s: float,
) -> TaskReport:
    """The row of a task with producers.

    Args:
        account: the account of a window that is over.
        producers: the schedules that were followed.
        wall_offset_s: what to add to the engine's clock for seconds since the epoch.
    """
    pool, counts, window = pool_of(plan.pattern.producer), account.counts, account.window
    due = {}
    for each in producers:
        due[each.index] = each.records_due_between(window.start_s, window.end_s)
        whole = each.records_due_between(window.since_s, window.end_s)
        counts.by_producer.offered[each.index] = whole
    counts.offered_records = sum(due.values())
    counts.offered_bytes = round(counts.offered_records * pool.mean_payload_bytes)
    counts.compression_ratio = pool.compression_ratio
    if account.last_acked_s is not None:
        counts.last_acked_s = account.last_acked_s - window.start_s
    shares = ProducerShares.of(
        (index, account.acked_in_window[index], records) for index, records in due.items()
    )
    produced = ProducerReport(
        counts,
        account.latency.histogram,
        account.lateness.histogram,
        shares,
        account.sockets,
        SlicedTimes(account.slice_s, account.latency.by_slice),
    )
    begin_s = window.start_s + wall_offset_s
    return TaskReport(
        task,
        socket.gethostname(),
        begin_s,
        begin_s + window.duration_s,
        produced,
        kernel_buffers=kernel_buffers(),
    )
