"""`redline find-limit`: finds the highest load that a cluster sustains, for each message size.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/find_limit.py …
"""

from __future__ import annotations

from contextlib import ExitStack

import click
from click.core import ParameterSource

from jobs.entry import run
from jobs.options import COUNT_MAX, ConfName, Count, Duration, RunId, pattern_options, run_options
from jobs.runs.options import RunOptions


@click.command("find-limit")
@pattern_options
@click.option("--goal", type=ConfName("goals"), default="default", show_default=True,
              metavar="NAME|FILE",
              help="The goal, which defines a sustained load: a name in conf/goals, or a path. "
                   "Several goals, with commas between them, use the same trials.")  # fmt: skip
@click.option("--confirm", "confirm_s", type=Duration(), metavar="TIME",
              help="Confirm each limit with a load of this duration, such as 30m; the same as "
                   "--set goal.search.confirm_s=SECONDS.")  # fmt: skip
@click.option("--to-failure", is_flag=True,
              help="On a testbed, offer the load of the largest limit until the brokers are "
                   "overloaded, and state the time; the same as "
                   "--set goal.search.to_failure=true.")  # fmt: skip
@click.option("--offline", type=Count(1, COUNT_MAX), metavar="BROKERS",
              help="Also find the limits with this many brokers offline, and confirm them while "
                   "these brokers catch up; the same as "
                   "--set goal.search.brokers_offline=BROKERS.")  # fmt: skip
@run_options
@click.option("--resume", metavar="RUN_ID", type=RunId(),
              help="Continue a stopped run with its recorded options. The cluster's file is read "
                   "again, and --set may change the budget and the guards.")  # fmt: skip
def find_limit(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str | None,
    goal: str,
    confirm_s: float | None,
    to_failure: bool,
    offline: int | None,
    overrides: tuple[str, ...],
    resume: str | None,
    options: RunOptions,
) -> int:
    """Find the highest load that a cluster sustains, for each message size.

    The job runs a binary search over the number of identical producers. Each trial offers a load
    with one Spark stage. The brokers' own metrics decide the verdict, and the trial is appended to
    the Delta tables.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.config import load, load_recorded
    from jobs.runs.launch import launch
    from jobs.runs.limit import LimitRun
    from jobs.runs.recorded_runs import open_recorded_run

    held = () if confirm_s is None else (f"goal.search.confirm_s={confirm_s:g}",)
    outage = () if offline is None else (f"goal.search.brokers_offline={offline}",)
    failing = ("goal.search.to_failure=true",) if to_failure else ()
    changed = (*overrides, *held, *failing, *outage)
    if resume is not None:
        given = {"cluster": cluster, "workload": workload, "goal": goal}
        named = {name: value for name, value in given.items() if _is_named(name)}
        with ExitStack() as stack:
            session, settings = open_recorded_run(options, resume, stack)
            config = load_recorded(settings, **named, overrides=changed)
            return launch(LimitRun(config), options, run_id=resume, resumes=True, session=session)
    assert workload is not None, "pattern_options sets the workload of a new run"
    return launch(LimitRun(load(cluster, workload, goal, changed)), options)


def _is_named(option: str) -> bool:
    """Whether the command line contains this option."""
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


if __name__ == "__main__":
    run(find_limit)
