"""`redline sweep`: an experiment, each of whose cases is measured like a run of its own.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/sweep.py …
"""

from __future__ import annotations

import click

from jobs.entry import run
from jobs.options import Amount, ConfName, Count, RunId, run_options
from jobs.runs.options import RunOptions


@click.command("sweep")
@click.argument("experiment", metavar="EXPERIMENT", type=ConfName("experiments"))
@click.option("--cluster", metavar="NAME|FILE",
              help="The brokers, instead of the experiment's.")  # fmt: skip
@click.option("--quick", is_flag=True,
              help="With the settings by which the experiment's file makes it short.")  # fmt: skip
@click.option("--repeats", type=Count(1, 100),
              help="How often each case is measured, instead of the experiment's; from 3 on "
                   "the intervals know what changes from start to start.")  # fmt: skip
@click.option("--budget-s", type=Amount(min=0, min_open=True), metavar="SECONDS",
              help="Begin no case that would end later, instead of the experiment's.")  # fmt: skip
@click.option("--resume", metavar="SWEEP_ID", type=RunId(),
              help="Go on with a sweep that stopped: no case is measured twice.")  # fmt: skip
@run_options
def sweep(
    experiment: str,
    cluster: str | None,
    quick: bool,
    repeats: int | None,
    budget_s: float | None,
    resume: str | None,
    overrides: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Measure the cases of an experiment, and say what each thing that varies does.

    EXPERIMENT is a file of conf/experiments, or a path. Exit code 3 when a case has no answer.
    """
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.config.experiment import load_sweep
    from jobs.runs.sweep.command import execute_sweep

    loaded = load_sweep(experiment, overrides, cluster, quick=quick, repeats=repeats)
    return execute_sweep(loaded, options, resume, budget_s)


if __name__ == "__main__":
    run(sweep)
