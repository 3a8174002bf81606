"""Two runs that are finished, against each other: their limits, and nothing is loaded for it."""

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
from metrics.comparing.sweeps import AxisEffect, Result, effects_of
from metrics.reporting.files import write_file
from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.answer import figure, sentence
from metrics.reporting.sweep.results import results_of
from metrics.tables.boundary import Boundary
from metrics.tables.environment import Difference, difference
from metrics.traffic.axes import MESSAGE_BYTES, axis_named
from metrics.units import UNKNOWN, format_size

AXIS = "run"
SEARCHED = 0
"""The message size of limits whose search went along it."""
DIFFERENCES_SHOWN = 12
BETWEEN_NIGHTS = Noise().cv
"""How much two runs of the same brokers differ beyond the intervals of their limits: nobody knows,
so it is what nights are taken to differ by where nothing is stated [ratio]."""

Kind = tuple[str, str, str]
"""What a limit is one of: its goal, the state of the cluster, and the axis of the search. Limits of
different kinds do not compare."""


def compare_finished(
    run_ids: Sequence[str], out: Path, min_effect: float, json_file: Path | None, reporter: Reporter
) -> None:
    """Say whether the second run's limits are below the first one's, and how sure that is.

    Args:
        run_ids: two, in OUT.
        min_effect: the least loss that matters [share].

    Raises:
        ConfigError: there is no such run, it is the same one twice, the two have no limit of one
            goal, state and size in common, or the file cannot be written.
        NoConclusionError: no size has a limit with an interval in both.
        RegressionError: the second one takes less.
    """
    if len(set(run_ids)) < len(run_ids):
        raise ConfigError(f"the run {run_ids[0]} is given twice; expected two runs; name another")
    first, second = (load_summary(out / run_id / "summary.json") for run_id in run_ids)
    names = (first.run_id, second.run_id)
    results = _results_in_common(first, second)
    if not results:
        raise ConfigError(
            f"{names[0]} and {names[1]} have no limit of one goal, state of the cluster and "
            "message size in common; expected two runs of redline find-limit with one at least; "
            "name others"
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
    finish(_outcome(effects), reporter, partial(_write, json_file, names, effects, changed))


def _limits(run: RunSummary) -> dict[tuple[Kind, int], Boundary]:
    """Its limits by their kind and size [B]; those of the first versions name no goal.

    Where the size itself was searched, it is what was found, and `SEARCHED` stands for it.
    """
    return {
        (
            (each.goal or run.goal, each.state, each.axis),
            SEARCHED if each.along is MESSAGE_BYTES else each.message_bytes,
        ): each
        for each in run.boundaries
    }


def _size(message_bytes: int) -> str:
    return format_size(message_bytes) if message_bytes else "the size searched"


def _results_in_common(first: RunSummary, second: RunSummary) -> dict[Kind, list[Result]]:
    """The figures of both runs at the sizes that both have, each kind by itself."""
    common = _limits(first).keys() & _limits(second).keys()
    found: dict[Kind, list[Result]] = {}
    for run in (first, second):
        for (kind, message_bytes), limit in _limits(run).items():
            if (kind, message_bytes) in common:
                one = replace(run, boundaries=(limit,))
                made = results_of({AXIS: run.run_id}, 1, one)
                found.setdefault(kind, []).extend(
                    replace(each, message_bytes=message_bytes) for each in made
                )
    return found


def _effects(
    results: Mapping[Kind, Sequence[Result]], names: tuple[str, str], min_effect: float
) -> list[AxisEffect]:
    """Of each kind and size, called what they are among all of them."""
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
            yield f"read with care: {name} {before} in the first run, {after} in the second"
    before, after = _limits(first), _limits(second)
    if alone := [each for each in (*before, *after) if (each in before) != (each in after)]:
        told = "; ".join(
            f"{goal}, {state}, {_size(message_bytes)}" for (goal, state, _), message_bytes in alone
        )
        yield f"not compared, as only one of the runs has it: {told}"
    for each in changed[:DIFFERENCES_SHOWN]:
        yield f"differs: {each.name} {each.before} → {each.after}"
    if len(changed) > DIFFERENCES_SHOWN:
        yield f"and {len(changed) - DIFFERENCES_SHOWN} more facts of the environments differ"
    yield (
        f"the intervals know how sure each limit is, and assume {BETWEEN_NIGHTS:.0%} (standard "
        "deviation) for what changes from one run to the next; redline compare --a … --b … loads "
        "both sides in turns and finds that out"
    )


def _write(
    path: Path | None,
    names: tuple[str, str],
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
) -> None:
    if path is None:
        return
    told = {
        "runs": names,
        "effects": [as_document(each) | {"words": sentence(each)} for each in effects],
        "differences": [as_document(each) for each in changed],
    }
    write_file("--json", path, json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def _outcome(effects: Sequence[AxisEffect]) -> RunOutcome:
    worse = [each for each in effects if each.conclusion is Conclusion.REGRESSION]
    if worse:
        return outcome_of(RegressionError(sentence(worse[0])))
    if all(each.effect is None for each in effects):
        return outcome_of(NoConclusionError("no size has a limit with an interval in both runs"))
    return RunOutcome()
