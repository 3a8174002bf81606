"""The answer of a sweep: its results, as one record for files and pages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jobs.campaigns.sweep.cases import Sweep
from jobs.cluster.leftovers import begun_s
from jobs.runs.estimate import caveat_of
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome
from metrics.comparing.sweeps import CASE, Result
from metrics.reporting.sweep.answer import SweepAnswer
from metrics.units import iso_utc


def axes_of(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """The axes by which cases differ, as paths or `CASE`, with their values as ordered texts."""
    return {
        path: tuple(dict.fromkeys(case.shown[path] for case in sweep.cases))
        for path in sweep.cases[0].shown
    }


def answer_of(
    run: RunState, outcome: RunOutcome, sweep: Sweep, results: Sequence[Result]
) -> SweepAnswer:
    """The answer of a sweep with this outcome."""
    sweep_id, experiment = run.order.run_id, sweep.experiment
    return SweepAnswer(
        sweep_id,
        # The id contains the start, also that of a resumed sweep.
        iso_utc(begun_s(sweep_id) or run.started_s),
        iso_utc(time.time()),
        outcome.status,
        outcome.exit_code,
        outcome.error,
        caveat_of(sweep.cases[0].config),
        experiment.name,
        experiment.description,
        experiment.published,
        sweep.measurement.name,
        sweep.measurement.unit_on(sweep.cases[0].config.goal.search.axis),
        sweep.measurement.figure,
        axes_of(sweep),
        experiment.repeats,
        tuple(in_order(sweep, results)),
        {case.name: case.settings for case in sweep.cases if CASE in case.shown},
    )


def in_order(sweep: Sweep, results: Sequence[Result]) -> list[Result]:
    """Results in the order of the experiment's cases, sizes and repeats."""
    place = {tuple(sorted(case.shown.items())): i for i, case in enumerate(sweep.cases)}
    return sorted(
        results, key=lambda r: (place[tuple(sorted(r.settings.items()))], r.message_bytes, r.repeat)
    )
