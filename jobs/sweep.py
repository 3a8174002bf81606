"""`redline sweep`: measures an experiment, each case as a run.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/sweep.py …
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.entry import run
from jobs.options import Amount, ConfName, Count, RunId, run_options
from jobs.runs.options import RunOptions


@click.command("sweep")
@click.argument("experiment", metavar="EXPERIMENT", type=ConfName("experiments"))
@click.option("--cluster", metavar="NAME|FILE",
              help="The cluster; replaces the cluster of the experiment.")  # fmt: skip
@click.option("--quick", is_flag=True,
              help="Use the experiment's settings for a short sweep.")  # fmt: skip
@click.option("--repeats", type=Count(1, 100),
              help="Number of measurements of each case; replaces the experiment's number. With 3 "
                   "or more repeats, the intervals include the spread between broker "
                   "starts.")  # fmt: skip
@click.option("--budget-s", type=Amount(min=0, min_open=True), metavar="SECONDS",
              help="Begin no case that would end after this time; replaces the budget of the "
                   "experiment.")  # fmt: skip
@click.option("--resume", metavar="SWEEP_ID", type=RunId(),
              help="Continue a stopped sweep; no case is measured twice.")  # fmt: skip
@run_options
def sweep(
    experiment: str, budget_s: float | None, resume: str | None, options: RunOptions, **given: Any
) -> int:
    """Measure the cases of an experiment, and report the effect of each varied setting.

    EXPERIMENT is a name in conf/experiments, or a path. The exit code is 3 if a case has no answer.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.features.sweep.cases import load_sweep
    from jobs.features.sweep.sweep_run import SweepRun, require_begun
    from jobs.runs.launch import launch

    loaded = load_sweep(experiment, **given)
    is_begun = None if resume is None else partial(require_begun, options.out.absolute() / resume)
    return launch(
        SweepRun(loaded, budget_s),
        options,
        run_id=resume,
        resumes=resume is not None,
        check=is_begun,
    )


if __name__ == "__main__":
    run(sweep)
