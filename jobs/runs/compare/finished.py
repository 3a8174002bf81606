"""Two runs that are finished, against each other: their limits, and nothing is loaded for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from jobs.console.events import Reporter, Table, note
from metrics.comparing.effects import Conclusion
from metrics.comparing.sweeps import AxisEffect, effects_of
from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.answer import figure, sentence
from metrics.reporting.sweep.results import results_of
from metrics.tables.environment import Difference, difference
from metrics.units import format_size
from search.errors import ConfigError, NoConclusionError, RegressionError

AXIS = "run"
DIFFERENCES_SHOWN = 12


def compare_finished(
    run_ids: Sequence[str], out: Path, min_effect: float, json_file: Path | None, reporter: Reporter
) -> None:
    """Say whether the second run's limits are below the first one's, and how sure that is.

    Args:
        run_ids: two, in OUT.
        min_effect: the least loss that matters [share].

    Raises:
        ConfigError: there is no such run, or the two have no size in common.
        NoConclusionError: no size has a limit with an interval in both.
        RegressionError: the second one takes less.
    """
    first, second = (load_summary(out / run_id / "summary.json") for run_id in run_ids)
    names = (first.run_id, second.run_id)
    results = [each for run in (first, second) for each in results_of({AXIS: run.run_id}, 1, run)]
    sizes = {each.bpm for each in first.boundaries} & {each.bpm for each in second.boundaries}
    if not sizes:
        raise ConfigError(
            f"{names[0]} and {names[1]} have the limit of no message size in common; expected two "
            "runs of redline find-limit with one at least; name others"
        )
    effects = effects_of([each for each in results if each.bpm in sizes], {AXIS: names}, min_effect)
    changed = difference(first.environment, second.environment)
    if json_file is not None:
        _write(json_file, names, effects, changed)
    rows = (
        (
            each.settings[AXIS],
            format_size(each.bpm),
            figure(each.value),
            f"{figure(each.low)} to {figure(each.high)}",
        )
        for each in results
        if each.bpm in sizes
    )
    columns = ("run", "size", "sustained MB/s", "limit at 90 %")
    reporter.report(Table("Limits", columns, tuple(rows)))
    for text in _sentences(first, second, effects, changed):
        note(reporter, text)
    _end(effects)


def _sentences(
    first: RunSummary,
    second: RunSummary,
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
) -> Iterator[str]:
    yield from map(sentence, effects)
    for name in ("cluster", "workload", "goal"):
        before, after = getattr(first, name), getattr(second, name)
        if before != after:
            yield f"read with care: {name} {before} in the first run, {after} in the second"
    for each in changed[:DIFFERENCES_SHOWN]:
        yield f"differs: {each.name} {each.before} → {each.after}"
    if len(changed) > DIFFERENCES_SHOWN:
        yield f"and {len(changed) - DIFFERENCES_SHOWN} more facts of the environments differ"
    yield (
        "the intervals know how sure each limit is, and not what changes from hour to hour, for "
        "which redline compare --a … --b … loads both sides in turns"
    )


def _write(
    path: Path,
    names: tuple[str, str],
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
) -> None:
    told = {
        "runs": names,
        "effects": [asdict(each) | {"words": sentence(each)} for each in effects],
        "differences": [asdict(each) for each in changed],
    }
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _end(effects: Sequence[AxisEffect]) -> None:
    worse = [each for each in effects if each.conclusion is Conclusion.REGRESSION]
    if worse:
        raise RegressionError(sentence(worse[0]))
    if all(each.effect is None for each in effects):
        raise NoConclusionError("no size has a limit with an interval in both runs")
