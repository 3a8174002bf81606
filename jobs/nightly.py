"""`redline nightly`: measures a suite and compares it with earlier nights.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/nightly.py …
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from jobs.entry import run
from jobs.options import Amount, ConfName, OutputFile, run_options
from jobs.runs.options import RunOptions
from metrics.common.errors import ConfigError


@click.command("nightly")
@click.option("--suite", type=ConfName("suites"), default="testbed", show_default=True,
              metavar="NAME|FILE",
              help="The suite with the cases: a name in conf/suites, or a path.")  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE",
              help="The cluster; replaces the cluster of the suite.")  # fmt: skip
@click.option("--night", metavar="NAME",
              help="The name of the night, such as its date. A second run with this name measures "
                   "the missing cases of the night.  [default: the run's id]")  # fmt: skip
@click.option("--budget-s", type=Amount(min=0, min_open=True), metavar="SECONDS",
              help="Begin no case that would end after this time; replaces the budget of the "
                   "suite.")  # fmt: skip
@click.option("--junit", metavar="FILE", type=OutputFile(),
              help="Also write JUnit XML for a CI server.")  # fmt: skip
@click.option("--accept", is_flag=True,
              help="Measure nothing, and make the newest night the reference, for example after an "
                   "upgrade. Later nights are compared only with the accepted night and the nights "
                   "after it.")  # fmt: skip
@run_options
def nightly(
    suite: str,
    cluster: str | None,
    night: str | None,
    budget_s: float | None,
    junit: Path | None,
    accept: bool,
    overrides: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Measure the cases of a suite, and report which of them are worse than before.

    Exit codes: 4 for a regression, 3 if no case has a conclusion, 0 otherwise. The first night has
    no earlier night for a comparison, so it cannot end with 4.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.config.base import is_name
    from jobs.features.nightly.night_run import NightRun, accept_night
    from jobs.features.nightly.suite import configuration_of, load_suite
    from jobs.runs.launch import launch
    from jobs.runs.lifecycle import new_run_id

    loaded = load_suite(suite)
    config = configuration_of(loaded, cluster, overrides)
    if accept:
        if night is not None:
            raise ConfigError(
                f"--accept and --night {night} are given; expected one of them, because --accept "
                "applies to the newest night; omit one of them"
            )
        return accept_night(loaded, config.cluster.name, options)
    if night is not None and not is_name(night):
        raise ConfigError(
            f"--night is {night!r}; expected a name of at most 80 letters, digits, dots, dashes "
            "and underscores, such as 2026-11-21"
        )
    run_id = new_run_id(time.time()) if night is None else f"{loaded.name}-{night}"
    body = NightRun(loaded, config, night or run_id, budget_s, junit)
    return launch(body, options, run_id=run_id, resumes=night is not None)


if __name__ == "__main__":
    run(nightly)
