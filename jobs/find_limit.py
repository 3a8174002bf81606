"""`redline find-limit`: the boundary line of a cluster.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/find_limit.py …
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from jobs.config import Configuration, load
from jobs.console.events import PlanShown, Reporter
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import load_options, pattern_options, run_options
from jobs.runs.estimate import plan_of
from jobs.runs.limit import LimitRun, new_run_id
from jobs.trials.axes import require_axis
from search.errors import ConfigError


@click.command("find-limit")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="What counts as sustained: a file of conf/goals, or a path; several, "
                   "separated by commas, are judged from the same trials.")  # fmt: skip
@run_options
@click.option("--resume", metavar="RUN_ID",
              help="Go on with a run that stopped; same options as it had.")  # fmt: skip
@load_options
def find_limit(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    overrides: tuple[str, ...],
    out: Path,
    tables: str | None,
    slots: int | None,
    resume: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Find the highest load that a cluster sustains, for each message size.

    A binary search over the number of identical producers: each trial offers a load by one
    Spark stage, judges it by the brokers' own metrics, and is appended to the Delta tables.
    """
    config = load(cluster, workload, goal, overrides)
    require_axis(config)
    with make_reporter() as reporter:
        if dry_run:
            plan = plan_of(config.cluster, config.workload, config.goal, out)
            reporter.report(PlanShown(plan))
            return
        require_consent(config, reporter, yes)
        where = tables or str(out.absolute() / "tables")
        run_id = resume or new_run_id(time.time())
        resumes = resume is not None
        LimitRun(config, reporter, out.absolute(), where, run_id, slots, resumes).execute()


def require_consent(
    config: Configuration,
    reporter: Reporter,
    yes: bool,
    deed: str = "load it until it is overloaded",
) -> None:
    """Ask before a cluster is loaded that others may use.

    Args:
        deed: what would be done with it.

    Raises:
        ConfigError: there is nobody to ask, or the answer is no.
    """
    servers = config.cluster.bootstrap_servers
    if yes or servers is None:
        return
    told = f"cluster {config.cluster.name} at {', '.join(servers)} is no testbed"
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{told}, and this would {deed}; expected --yes, as nobody can be asked; see what "
            "it would do with --dry-run"
        )
    if not reporter.confirm(f"{told}: {deed}?"):
        raise ConfigError(f"{told}, and the answer was no; nothing was loaded")


if __name__ == "__main__":
    run(find_limit)
