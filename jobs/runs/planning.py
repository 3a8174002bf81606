"""The number of brokers that a load needs, and the smallest measured set-up that carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jobs.console.events import Level, Notice, Table
from jobs.console.printing import make_reporter
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from metrics.columns import as_document
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.planning.provisioning import Demand, MeasuredLimit, Provision, provision
from metrics.planning.setups import DAY_S, setups_of, smallest_setup
from metrics.reporting.files import write_file
from metrics.reporting.limit_words import AT_LEVEL, doubt_words
from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.answer import case_words, load_answer, short
from metrics.tables.boundary import Boundary
from metrics.trial.state import ALL_BROKERS
from metrics.units import format_count, format_mb_per_s, format_ratio, format_size


def plan_brokers(
    folder: Path | None,
    goal: str | None,
    limit_mb_per_s: float | None,
    demand: Demand,
    json_file: Path | None,
) -> None:
    """Calculate and show how many brokers the demand needs.

    Args:
        folder: the folder of the run with the limits; None for `limit_mb_per_s`.
        goal: the run's goal to plan by; None where the run has one.
        limit_mb_per_s: a known limit of a broker [MB/s].
        json_file: a file for the answer for programs; None without one.

    Raises:
        ConfigError: as `limits_of` raises, or a file cannot be read or written.
    """
    caveat = ""
    if folder is not None:
        summary = load_summary(folder / "summary.json")
        caveat = summary.caveat
        limits = limits_of(summary, goal)
    else:
        assert limit_mb_per_s is not None, "checked above"
        limits = [
            MeasuredLimit(
                demand.message_bytes,
                limit_mb_per_s,
                None,
                demand.replication_factor,
                demand.consumer_groups,
            )
        ]
    answer = provision(limits, demand)
    with make_reporter() as reporter:
        reporter.report(_table(answer, demand))
        for sentence in (*answer.assumptions, *([caveat] if caveat else [])):
            reporter.report(Notice(Level.NOTE, sentence))
    _write(
        json_file, {"demand": as_document(demand), "answer": as_document(answer), "caveat": caveat}
    )


def choose_setup(folder: Path, demand: Demand, json_file: Path | None) -> None:
    """Show which set-up of a sweep carries the demand with its growth and headroom.

    Args:
        folder: the folder of the sweep.
        json_file: a file for the answer for programs; None without one.

    Raises:
        ConfigError: the sweep does not exist, or does not ask for limits.
        NoConclusionError: none of the set-ups carries the demand.
    """
    answer = load_answer(folder / "sweep.json")
    if answer.asks != "limit" or answer.unit != "MB/s":
        raise ConfigError(
            f"the sweep {answer.sweep_id} states {answer.figure}; expected a sweep of limits in "
            "MB/s; name a sweep of an experiment with asks: limit"
        )
    if demand.offline or demand.link_mbit_per_s is not None:
        raise ConfigError(
            "--offline or --link-mbit-per-s is given with --sweep; expected them with --run or "
            "--limit, as a sweep measures whole set-ups; omit them, or use --headroom"
        )
    setups = setups_of(answer.results, demand.message_bytes)
    wanted = demand.mb_per_s * (1 + demand.growth) / (1 - demand.headroom)
    found = smallest_setup(setups, wanted)
    rows = tuple(
        (
            *(one.settings[path] for path in answer.axes),
            format_mb_per_s(one.mb_per_s),
            f"{one.gb_per_day:,.0f}",
            format_count(one.messages_per_minute),
            "the smallest" if one is found else "yes" if one.mb_per_s >= wanted else "no",
        )
        for one in setups
    )
    head = (*map(short, answer.axes), f"MB/s {AT_LEVEL}", "GB a day", "messages/min", "carries it")
    title = f"{format_mb_per_s(wanted)} MB/s, {wanted * DAY_S / 1e3:,.0f} GB a day"
    conclusion = (
        "none of the measured set-ups carries this load"
        if found is None
        else f"smallest measured set-up that carries this load: {case_words(found.settings)}"
    )
    document = {
        "demand": as_document(demand),
        "mb_per_s_wanted": wanted,
        "smallest": None if found is None else as_document(found),
        "setups": [as_document(one) for one in setups],
        "caveat": answer.caveat,
    }
    outcome = RunOutcome()
    if found is None:
        largest = format_mb_per_s(max(s.mb_per_s for s in setups))
        outcome = outcome_of(
            NoConclusionError(
                f"{conclusion}: the largest carries {largest} of {format_mb_per_s(wanted)} MB/s; "
                "measure larger set-ups"
            )
        )
    with make_reporter() as reporter:
        reporter.report(Table(title, head, rows))
        for sentence in (conclusion, *([answer.caveat] if answer.caveat else [])):
            reporter.report(Notice(Level.NOTE, sentence))
        finish(outcome, reporter, partial(_write, json_file, document))


def _write(json_file: Path | None, document: Mapping[str, Any]) -> None:
    if json_file is not None:
        write_file("--json", json_file, json.dumps(document, indent=2, allow_nan=False) + "\n")


def limits_of(summary: RunSummary, goal: str | None) -> list[MeasuredLimit]:
    """The limits of a run that planning can use.

    Raises:
        ConfigError: the run has several goals and `goal` names none of them, or it has no limits
            along np.
    """
    goals = list(dict.fromkeys(boundary.goal for boundary in summary.boundaries))
    chosen = goal if goal is not None else goals[0] if len(goals) == 1 else None
    if chosen not in goals:
        raise ConfigError(
            f"run {summary.run_id} has the goals {', '.join(goals) or 'none'}, and --goal is "
            f"{goal or 'missing'}; expected one of them; name it with --goal"
        )
    points = [b for b in summary.boundaries if b.goal == chosen and _is_answer(b)]
    if any(boundary.parts for boundary in summary.boundaries):
        raise ConfigError(
            f"run {summary.run_id} measured a mix, whose limit is a scale and not a rate of one "
            "kind of traffic; expected limits along np; measure the part that matters as a "
            "workload of its own"
        )
    if summary.replication_factor < 1:
        raise ConfigError(
            f"the summary of run {summary.run_id} has no replication factor, as an older version "
            "wrote it; expected a newer summary; run redline find-limit again"
        )
    if not points:
        raise ConfigError(
            f"run {summary.run_id} ({summary.status}) has no closed bracket to plan with; expected "
            "limits along np; finish it with redline find-limit --resume"
        )
    return [
        MeasuredLimit(
            point.message_bytes,
            point.mb_per_s_per_broker,
            point.limited_by,
            summary.replication_factor,
            summary.consumer_groups,
            point.mb_per_s_per_broker_low,
            doubt_words(point),
        )
        for point in points
    ]


def _is_answer(boundary: Boundary) -> bool:
    is_whole = boundary.axis == "np" and boundary.state == ALL_BROKERS
    return boundary.gave_up is None and is_whole and boundary.mb_per_s > 0


def _table(answer: Provision, demand: Demand) -> Table:
    low = answer.low_mb_per_s_per_broker
    rows = [
        ("brokers to buy", f"{answer.brokers}"),
        *([("brokers for the limit itself", f"{answer.brokers_for_limit}")] if low else []),
        ("binds first", answer.binds_first),
        (
            f"limit of a broker at {format_size(demand.message_bytes)}",
            f"{format_mb_per_s(answer.limit_mb_per_s_per_broker)} MB/s",
        ),
        *([(f"its lower end {AT_LEVEL}", f"{format_mb_per_s(low)} MB/s")] if low else []),
        ("to plan with, per broker", f"{format_mb_per_s(answer.plan_mb_per_s_per_broker)} MB/s"),
        ("load of each broker", f"{format_mb_per_s(answer.mb_per_s_per_broker)} MB/s"),
        ("headroom, all up", format_ratio(answer.headroom)),
        (
            f"headroom, {format_ratio(demand.offline)} offline",
            format_ratio(answer.headroom_offline),
        ),
    ]
    needs = [(f"brokers for the {need.resource}", f"{need.brokers}") for need in answer.needs]
    title = f"{format_mb_per_s(demand.mb_per_s * (1 + demand.growth))} MB/s needs"
    return Table(title, ("what", "value"), tuple(rows + (needs if len(needs) > 1 else [])))
