"""`redline nightly`: measure a suite and compare it with the nights before.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/nightly.py …
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
              help="The cases: a file of conf/suites, or a path.")  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE",
              help="The brokers, instead of the suite's.")  # fmt: skip
@click.option("--night", metavar="NAME",
              help="Names the night, such as its date: tried again, it goes on where it "
                   "stopped.  [default: the run's id]")  # fmt: skip
@click.option("--budget-s", type=Amount(min=0, min_open=True), metavar="SECONDS",
              help="Begin no case that would end later, instead of the suite's.")  # fmt: skip
@click.option("--junit", metavar="FILE", type=OutputFile(),
              help="Write JUnit XML for a CI server, too.")  # fmt: skip
@run_options
def nightly(
    suite: str,
    cluster: str | None,
    night: str | None,
    budget_s: float | None,
    junit: Path | None,
    overrides: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Measure the cases of a suite, and tell which of them are worse than before.

    Exit codes: 4 regression, 3 no case came to a conclusion, 0 none of both; the first night
    has nothing to compare with and ends with 0.
    """
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.config.base import is_name
    from jobs.config.suite import configuration_of, load_suite
    from jobs.runs.launch import launch
    from jobs.runs.lifecycle import new_run_id
    from jobs.runs.nightly.body import NightRun

    loaded = load_suite(suite)
    config = configuration_of(loaded, cluster, overrides)
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
