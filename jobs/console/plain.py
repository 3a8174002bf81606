"""Events as lines for logs: `name key=value …`, one line per event. Prints nothing."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.console.events import (
    Event,
    Notice,
    PhaseStarted,
    PlanShown,
    PointFinished,
    RunFinished,
    RunStarted,
    Table,
    TrialFinished,
    TrialStarted,
)
from jobs.console.text import clean, offered_words, plan_rows, point_words, sentences
from metrics.traffic.axes import axis_named
from metrics.traffic.pattern import TrafficPattern
from metrics.units import UNKNOWN, format_duration, format_mb_per_s, format_ratio, format_size


def plain_event(event: Event) -> str | None:
    """An event as `name key=value …`; None for an event that only the live display shows.

    A notice has one line per sentence; every other event is one line.
    """
    if isinstance(event, PlanShown):
        return _pairs("plan", plan_rows(event.plan))
    if isinstance(event, RunStarted):
        return _pairs("run-started", [("run", event.run_id), *plan_rows(event.plan)])
    if isinstance(event, PhaseStarted):
        return _pairs("phase", [("doing", event.text)])
    if isinstance(event, TrialStarted):
        return _pairs("trial-started", _trial_started_pairs(event))
    if isinstance(event, TrialFinished):
        return _pairs("trial-finished", _trial_finished_pairs(event))
    if isinstance(event, PointFinished):
        return f"point-finished {point_words(event.boundary, event.goal)}"
    if isinstance(event, RunFinished):
        status, took = event.summary.status, format_duration(event.duration_s)
        pairs = [("run", event.summary.run_id), ("status", status), ("took", took)]
        return _pairs("run-finished", pairs)
    if isinstance(event, Notice):
        return _lines(event)
    if isinstance(event, Table):
        return clean(event.title)
    return None  # PhaseProgress and TrialProgress would flood a log


def _lines(notice: Notice) -> str:
    """One line for each sentence, each with its level."""
    return "\n".join(f"{notice.level.value}: {each}" for each in sentences(notice.text))


def _trial_started_pairs(event: TrialStarted) -> list[tuple[str, str]]:
    return [*_pattern_pairs(event.number, event.pattern), ("why", event.reason)]


def _pattern_pairs(number: int, pattern: TrafficPattern) -> list[tuple[str, str]]:
    return [
        ("trial", str(number)),
        ("size", format_size(pattern.message_bytes)),
        (axis_named(pattern.axis).key, str(pattern.on_axis)),
        ("offered", offered_words(pattern)),
    ]


def _trial_finished_pairs(event: TrialFinished) -> list[tuple[str, str]]:
    trial, evidence = event.trial, event.trial.evidence
    busiest, idle = evidence.busiest_broker, evidence.handler_idle_min
    pairs = [
        *_pattern_pairs(trial.number, trial.pattern),
        ("achieved", f"{format_mb_per_s(evidence.client.achieved_mb_per_s)} MB/s"),
        ("idle", UNKNOWN if idle is None else f"{idle:.2f}"),
        ("broker", UNKNOWN if busiest is None else str(busiest.broker_id)),
        ("isr", format_ratio(evidence.isr_changed_share)),
        ("verdict", trial.verdict.value),
        ("took", format_duration(event.duration_s)),
        ("trials_left", str(event.trials_left)),
        ("time_left", format_duration(event.time_left_s)),
    ]
    if trial.recovery_s is not None:
        pairs.append(("at_rest_after", format_duration(trial.recovery_s)))
    return [*pairs, ("reason", event.reason)] if event.reason else pairs


def _pairs(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    return " ".join([name, *(f"{key}={_quoted(value)}" for key, value in pairs)])


def _quoted(value: str) -> str:
    text = clean(value)
    if text and not set(text) & set(' "='):
        return text
    return '"' + text.replace('"', "'") + '"'
