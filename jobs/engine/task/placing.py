"""Numbers of a part of a mix as numbers of the whole load, in the report of a task.

A task knows only its own part, whose partitions, producers and groups count from 0. The driver
numbers those of all parts through.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from jobs.engine.task.plan import TrialPlan
from metrics.trial.consumption import GroupShare
from metrics.trial.counts import Counts, ProducerAccounts
from metrics.trial.task import TaskReport

Numbered = TypeVar("Numbered", Counts, ProducerAccounts)


def placed(plan: TrialPlan, report: TaskReport) -> TaskReport:
    """The report with the numbers of the whole load; as it is where the load has one part."""
    if not plan.part:
        return report
    produced, consumed = report.produced, report.consumed
    if produced is not None:
        counts, worst = produced.counts, produced.shares.worst
        by_producer = _shifted(counts.by_producer, plan.first_producer)
        counts = _shifted(counts, plan.first_partition, "_by_partition")
        worst = None if worst is None else worst + plan.first_producer
        produced = replace(
            produced,
            counts=replace(counts, by_producer=by_producer),
            shares=replace(produced.shares, worst=worst),
        )
    if consumed is not None:
        groups = tuple(_group(plan, each) for each in consumed.groups)
        consumed = replace(consumed, groups=groups)
    task = plan.stage_task(report.task_id)
    return replace(report, task_id=task, part=plan.part, produced=produced, consumed=consumed)


def _shifted(counted: Numbered, first: int, ending: str = "") -> Numbered:
    """The counts with numbers from `first` on in all mappings whose names end like this."""
    shifted: dict[str, Any] = {
        each.name: {first + n: count for n, count in getattr(counted, each.name).items()}
        for each in fields(counted)
        if each.name.endswith(ending)
    }
    return replace(counted, **shifted)


def _group(plan: TrialPlan, share: GroupShare) -> GroupShare:
    ranges = (
        replace(each, partition=each.partition + plan.first_partition) for each in share.read_ranges
    )
    group = share.counts.group + plan.first_group
    return replace(share, counts=replace(share.counts, group=group), read_ranges=tuple(ranges))
