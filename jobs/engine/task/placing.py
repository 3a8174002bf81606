"""Numbers of a part of a mix as numbers of the whole load, in the report of a task.

A task knows only its own part, whose partitions, producers and groups count from 0. The driver
numbers those of all parts through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from jobs.engine.task.plan import TrialPlan
from metrics.trial.consumption import GroupShare
from metrics.trial.counts import Counts, ProducerAccounts
from metrics.trial.task import TaskReport

Counted = TypeVar("Counted")


def placed(plan: TrialPlan, report: TaskReport) -> TaskReport:
    """The report with the numbers of the whole load; as it is where the load has one part."""
    if not plan.part:
        return report
    produced, consumed = report.produced, report.consumed
    if produced is not None:
        shares = produced.shares
        worst = None if shares.worst is None else shares.worst + plan.first_producer
        produced = replace(
            produced,
            counts=_counts(plan, produced.counts),
            shares=replace(shares, worst=worst),
        )
    if consumed is not None:
        groups = tuple(_group(plan, each) for each in consumed.groups)
        consumed = replace(consumed, groups=groups)
    return replace(
        report,
        task_id=plan.stage_task(report.task_id),
        part=plan.part,
        produced=produced,
        consumed=consumed,
    )


def _counts(plan: TrialPlan, counts: Counts) -> Counts:
    first = plan.first_partition
    return replace(
        counts,
        acked_by_partition=_shifted(counts.acked_by_partition, first),
        sent_by_partition=_shifted(counts.sent_by_partition, first),
        errors_by_partition=_shifted(counts.errors_by_partition, first),
        retried_by_partition=_shifted(counts.retried_by_partition, first),
        duplicates_by_partition=_shifted(counts.duplicates_by_partition, first),
        control_records_by_partition=_shifted(counts.control_records_by_partition, first),
        by_producer=_accounts(plan.first_producer, counts.by_producer),
    )


def _accounts(first: int, accounts: ProducerAccounts) -> ProducerAccounts:
    return ProducerAccounts(
        offered=_shifted(accounts.offered, first),
        sent=_shifted(accounts.sent, first),
        acked=_shifted(accounts.acked, first),
        failed=_shifted(accounts.failed, first),
        retried=_shifted(accounts.retried, first),
        duplicates=_shifted(accounts.duplicates, first),
    )


def _group(plan: TrialPlan, share: GroupShare) -> GroupShare:
    ranges = (
        replace(each, partition=each.partition + plan.first_partition) for each in share.read_ranges
    )
    group = share.counts.group + plan.first_group
    return replace(share, counts=replace(share.counts, group=group), read_ranges=tuple(ranges))


def _shifted(by_number: Mapping[int, Counted], first: int) -> dict[int, Counted]:
    return {first + number: counted for number, counted in by_number.items()}
