"""A backlog that consumer groups begin with: written before the trial whose groups read it."""

from __future__ import annotations

import math
from dataclasses import replace

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.unscored_load import offer_unscored
from metrics.traffic.consumers import ConsumerOptions
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.judgement import Reason

LOADS_MAX = 10
"""Largest number of loads by which a backlog is built."""
SPARE_S = 1.0
"""Time by which a load is longer than the missing records take at its rate [s]."""
CLOSED_LOOP_S = 30.0
"""Length of a load of producers without a rate [s]."""
LOAD_MAX_S = 86_400.0


def build_backlog(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, number: int
) -> tuple[bool, Reason | None]:
    """Write the records that the topics lack for the pattern's backlog, at the pattern's rate.

    Args:
        number: number of the trial that reads the backlog.

    Returns:
        Whether a load was offered, and the reason why the backlog could not be built, or None.

    Raises:
        GuardStopError: a guard tripped.
    """
    if pattern.parts:
        return _of_parts(context, topics, pattern, number)
    wanted = pattern.consumers.backlog_records if pattern.consumers.groups else 0
    if not wanted:
        return False, None
    try:
        held = _held(context, topics)
        for load in range(LOADS_MAX):
            if held >= wanted:
                return load > 0, None
            named = f"{number}-{pattern.part}-{load}" if pattern.part else f"{number}-{load}"
            _write(context, topics, pattern, wanted - held, named)
            before, held = held, _held(context, topics)
            if held <= before:
                break
    except (StageFailedError, GeneratorError, AdminError) as error:
        return True, Reason("task_failed", f"the backlog was not built: {error}", 1.0, 0.0)
    if held >= wanted:
        return True, None
    text = f"the backlog was not built: {held:,} of {wanted:,} messages are in the topics"
    return True, Reason("task_failed", text, 1.0, 0.0)


def _of_parts(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, number: int
) -> tuple[bool, Reason | None]:
    """Build the backlogs of the parts of a mix, one after the other, each at its own rate."""
    is_loaded = False
    for own, part in zip(topics.parts, pattern.parts, strict=True):
        offered, problem = build_backlog(context, own, part, number)
        is_loaded = is_loaded or offered
        if problem is not None:
            return is_loaded, problem
    return is_loaded, None


def _held(context: RunContext, topics: TopicSet) -> int:
    """The records that were written to the topics of the run, which began empty."""
    return sum(context.topics.end_offsets(topics).values())


def _write(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, records: int, name: str
) -> None:
    length_s = CLOSED_LOOP_S
    if math.isfinite(pattern.records_per_s):
        length_s = min(LOAD_MAX_S, math.ceil(records / pattern.records_per_s) + SPARE_S)
    context.reporter.report(
        PhaseStarted(f"building a backlog of {records:,} messages, about {length_s:,.0f} s")
    )
    phases = replace(
        pattern.phases,
        ramp_up_s=0.0,
        warmup_s=0.0,
        measure_s=length_s,
        volume_bytes=None,
        early_end_error_rate=0.0,
    )
    load = replace(pattern, phases=phases, consumers=ConsumerOptions(), profile=None)
    offer_unscored(context, topics, load, f"backlog-{name}")
