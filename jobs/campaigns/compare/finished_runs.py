"""The comparison of two finished runs by their limits, without any load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobs.console.events import Reporter, Table, note
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from metrics.columns import as_document
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.comparing.effects import Conclusion, conclude
from metrics.comparing.nightly import Noise
from metrics.comparing.release import changed_release, release_of
from metrics.comparing.sweeps import AxisEffect, Result, effects_of
from metrics.reporting.files import write_file
from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.answer import figure, sentence
from metrics.reporting.sweep.results import limit_result
from metrics.tables.boundary import Boundary
from metrics.tables.environment import Difference, difference
from metrics.traffic.axes import MESSAGE_BYTES, axis_named
from metrics.units import UNKNOWN, format_size

AXIS = "run"
SEARCHED = 0
"""Stands for the message size of limits that searched along the size."""
DIFFERENCES_SHOWN = 12
BETWEEN_NIGHTS = Noise().cv
"""Assumed difference between two runs of the same brokers, beyond the intervals of their limits
[ratio]. It is the default for nights, as two runs do not show it."""

Kind = tuple[str, str, str]
"""The kind of a limit: its goal, the state of the cluster, and the axis of the search. Limits of
different kinds do not compare."""


def compare_finished(
    run_ids: Sequence[str], out: Path, min_effect: float, json_file: Path | None, reporter: Reporter
) -> None:
    """Compare the limits of two runs, and show the differences with their intervals.

    Args:
        run_ids: the ids of two runs in `out`.
        min_effect: the smallest loss that counts [ratio].

    Raises:
        ConfigError: a run does not exist, both ids are equal, the runs have no limit of the same
            goal, state and size, or the file cannot be written.
        NoConclusionError: no size has a limit with an interval in both runs.
        RegressionError: a limit of the second run is lower.
    """
    if len(set(run_ids)) < len(run_ids):
        raise ConfigError(
            f"the run {run_ids[0]} is given twice; expected two different runs; name another"
        )
    first, second = (load_summary(out / run_id / "summary.json") for run_id in run_ids)
    names = (first.run_id, second.run_id)
    results = _results_in_common(first, second)
    if not results:
        raise ConfigError(
            f"{names[0]} and {names[1]} have 0 limits with the same goal, cluster state and "
            "message size; expected two runs of redline find-limit with at least 1; name other runs"
        )
    effects = _effects(results, names, min_effect)
    changed = difference(first.environment, second.environment)
    columns = ("run", *(("goal", "state") if len(results) > 1 else ()), "size", "sustained",
               "limit at 90 %")  # fmt: skip
    reporter.report(Table("Limits", columns, tuple(_rows(results))))
    reasons = (f"{each.settings[AXIS]}, {_size(each.message_bytes)}: {each.why}"
               for own in results.values() for each in own if each.why)  # fmt: skip
    for text in (*reasons, *_sentences(first, second, effects, changed)):
        note(reporter, text)
    caveats = tuple(_caveats(first, second))
    write = partial(_write, json_file, names, effects, changed, caveats)
    finish(_outcome(effects), reporter, write)


def _limits(run: RunSummary) -> dict[tuple[Kind, int], Boundary]:
    """The limits of a run by their kind and size [B]; early versions stored no goal.

    `SEARCHED` stands for the size of a limit that searched along the size.
    """
    return {
        (
            (each.goal or run.goal, each.state, each.axis),
            SEARCHED if each.along is MESSAGE_BYTES else each.message_bytes,
        ): each
        for each in run.boundaries
    }


def _size(message_bytes: int) -> str:
    return format_size(message_bytes) if message_bytes else "the searched size"


def _results_in_common(first: RunSummary, second: RunSummary) -> dict[Kind, list[Result]]:
    """The results of both runs at their common sizes, by kind."""
    common = _limits(first).keys() & _limits(second).keys()
    found: dict[Kind, list[Result]] = {}
    for run in (first, second):
        for (kind, message_bytes), limit in _limits(run).items():
            if (kind, message_bytes) in common:
                made = limit_result(limit)
                own = replace(made, settings={AXIS: run.run_id}, message_bytes=message_bytes,
                              brokers=run.brokers, run_id=run.run_id)  # fmt: skip
                found.setdefault(kind, []).append(own)
    return found


def _effects(
    results: Mapping[Kind, Sequence[Result]], names: tuple[str, str], min_effect: float
) -> list[AxisEffect]:
    """The effect at each kind and size, with conclusions corrected for their number."""
    found = [
        replace(each, where=_where(kind) if len(results) > 1 else {})
        for kind, own in results.items()
        for each in effects_of(own, {AXIS: names}, between_sd=BETWEEN_NIGHTS)
    ]
    conclusions = conclude([each.effect for each in found], min_effect)
    return [
        replace(each, conclusion=conclusion)
        for each, conclusion in zip(found, conclusions, strict=True)
    ]


def _where(kind: Kind) -> dict[str, str]:
    goal, state, _ = kind
    return {"goal": goal, "state": state}


def _rows(results: Mapping[Kind, Sequence[Result]]) -> Iterator[tuple[str, ...]]:
    for kind, own in results.items():
        unit = axis_named(kind[-1]).unit
        for each in own:
            interval = f"{figure(each.low)} to {figure(each.high)} {unit}"
            yield (
                each.settings[AXIS],
                *(_where(kind).values() if len(results) > 1 else ()),
                _size(each.message_bytes),
                f"{figure(each.value)} {unit}" if each.value else "no conclusion",
                interval if each.has_interval else UNKNOWN,
            )


def _sentences(
    first: RunSummary,
    second: RunSummary,
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
) -> Iterator[str]:
    yield from map(sentence, effects)
    for name in ("cluster", "workload"):
        before, after = getattr(first, name), getattr(second, name)
        if before != after:
            yield f"the runs differ in the {name}: {before} in the first, {after} in the second"
    upgrade = changed_release(release_of(first.environment), release_of(second.environment))
    if upgrade is not None:
        yield f"the brokers of the first run were {upgrade[0]}, of the second {upgrade[1]}"
    yield from _caveats(first, second)
    before, after = _limits(first), _limits(second)
    if alone := [each for each in (*before, *after) if (each in before) != (each in after)]:
        limits = "; ".join(
            f"{goal}, {state}, {_size(message_bytes)}" for (goal, state, _), message_bytes in alone
        )
        yield f"not compared, as only one run has the limit: {limits}"
    for each in changed[:DIFFERENCES_SHOWN]:
        yield f"differs: {each.name} {each.before} → {each.after}"
    if len(changed) > DIFFERENCES_SHOWN:
        yield f"{len(changed) - DIFFERENCES_SHOWN} more facts of the environments differ"
    yield (
        f"the intervals include the precision of each limit, and assume {BETWEEN_NIGHTS:.0%} "
        "(standard deviation) between runs; redline compare --a … --b … loads both sides in turns, "
        "and needs no such assumption"
    )


def _caveats(first: RunSummary, second: RunSummary) -> Iterator[str]:
    """The caveats of both runs; once where they are the same."""
    if first.caveat == second.caveat:
        found = {"both runs": first.caveat}
    else:
        found = {run.run_id: run.caveat for run in (first, second)}
    yield from (f"caveat of {which}: {text}" for which, text in found.items() if text)


def _write(
    path: Path | None,
    names: tuple[str, str],
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
    caveats: Sequence[str],
) -> None:
    if path is None:
        return
    document = {
        "runs": names,
        "effects": [as_document(each) | {"words": sentence(each)} for each in effects],
        "differences": [as_document(each) for each in changed],
        "caveats": list(caveats),
    }
    write_file("--json", path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _outcome(effects: Sequence[AxisEffect]) -> RunOutcome:
    worse = [each for each in effects if each.conclusion is Conclusion.REGRESSION]
    if worse:
        return outcome_of(RegressionError(sentence(worse[0])))
    if all(each.effect is None for each in effects):
        return outcome_of(NoConclusionError("no size has a limit with an interval in both runs"))
    return RunOutcome()
