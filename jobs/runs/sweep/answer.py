"""What a sweep found: sweep.json for programs, tables and sentences for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.config.experiment import Experiment, Sweep
from jobs.console.events import Table
from metrics.comparing.effects import CONFIDENCE, Conclusion
from metrics.comparing.sweeps import AxisEffect, Result, effects_of
from metrics.reporting.summary import write_atomic
from metrics.traffic.axes import axis_named
from metrics.units import UNKNOWN, format_size

SCHEMA_VERSION = 1


def unit_of(sweep: Sweep) -> str:
    """Of the figure: MB/s, or what a load on the goal's axis counts."""
    axis = axis_named(sweep.cases[0].config.goal.search.axis)
    return "MB/s" if sweep.experiment.asks == "load" or axis.grows_payload else axis.words


def axes_of(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Full path of each key that varies → its values as text, in the order of the cases."""
    return {
        path: tuple(dict.fromkeys(case.settings[path] for case in sweep.cases))
        for path in sweep.experiment.varied
    }


def write_answer(
    sweep: Sweep,
    results: Sequence[Result],
    effects: Sequence[AxisEffect],
    head: Mapping[str, Any],
    path: Path,
) -> None:
    """Write sweep.json; docs/experiments.md describes it.

    Args:
        head: how the sweep began and ended.
    """
    experiment = sweep.experiment
    document = {
        "schema_version": SCHEMA_VERSION,
        **head,
        "experiment": experiment.name,
        "description": experiment.description,
        "published": experiment.published,
        "asks": experiment.asks,
        "unit": unit_of(sweep),
        "confidence": CONFIDENCE,
        "axes": {path: list(values) for path, values in axes_of(sweep).items()},
        "results": [asdict(each) for each in results],
        "effects": [_effect(each) for each in effects],
    }
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False, default=str)
    write_atomic(path, text + "\n")


def _effect(each: AxisEffect) -> dict[str, Any]:
    return asdict(each) | {"conclusion": each.conclusion.value}


def effects_in(sweep: Sweep, results: Sequence[Result]) -> tuple[AxisEffect, ...]:
    """What each axis does to the figure."""
    return effects_of(results, axes_of(sweep))


def results_table(sweep: Sweep, results: Sequence[Result]) -> Table:
    """Each case's figure, in the experiment's order."""
    paths, unit = sweep.experiment.varied, unit_of(sweep)
    place = {tuple(sorted(case.settings.items())): i for i, case in enumerate(sweep.cases)}
    ordered = sorted(
        results, key=lambda r: (place[tuple(sorted(r.settings.items()))], r.bpm, r.repeat)
    )
    head = (*map(short, paths), "size", "repeat", unit, "90 % interval", "p50 ms", "p99 ms",
            "bound by")  # fmt: skip
    rows = tuple(_row(paths, each) for each in ordered)
    return Table(sweep.experiment.name, head, rows)


def _row(paths: Sequence[str], each: Result) -> tuple[str, ...]:
    known = each.value is not None
    interval = f"{_figure(each.low)} to {_figure(each.high)}" if each.low and each.high else UNKNOWN
    return (
        *(each.settings[path] for path in paths),
        format_size(each.bpm),
        str(each.repeat),
        _figure(each.value),
        interval if known else each.why,
        _figure(each.p50_ms),
        _figure(each.p99_ms),
        each.limited_by or UNKNOWN,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def short(path: str) -> str:
    """A key as people know it: Kafka's name of a property, or the last part of the path."""
    of_broker = path.removeprefix("cluster.testbed.properties.")
    return of_broker if of_broker != path else path.rsplit(".", 1)[-1]


def sentences(effects: Sequence[AxisEffect]) -> Iterator[str]:
    """What each value does, against the first of its axis."""
    for each in effects:
        where = f"{short(each.axis)} {each.after} against {each.before}, {format_size(each.bpm)}"
        effect = each.effect
        if effect is None:
            yield f"{where}: no answer, as too few cases have one"
            continue
        interval = f"{CONFIDENCE:.0%} interval {effect.low - 1:+.1%} to {effect.high - 1:+.1%}"
        if each.conclusion is Conclusion.NONE_SEEN:
            yield (
                f"{where}: no effect seen ({effect.change:+.1%}, {interval}); a loss of "
                f"{effect.smallest_visible:.0%} would have been"
            )
            continue
        word = "less" if effect.change < 0 else "more"
        yield f"{where}: {abs(effect.change):.1%} {word}, {interval}"


def caveats(experiment: Experiment, effects: Sequence[AxisEffect]) -> Iterator[str]:
    """What a reader has to know of the intervals."""
    if any(each.effect is not None and not each.by_repeats for each in effects):
        yield (
            f"with {experiment.repeats} {'repeat' if experiment.repeats == 1 else 'repeats'} the "
            "intervals know how sure each figure is, and not what changes from one start of the "
            "brokers to the next; repeats: 3 or more say that too"
        )
