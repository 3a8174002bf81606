"""`redline find-limit`: the boundary line of a cluster.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/find_limit.py …
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from jobs.config import load
from jobs.console.events import PlanShown
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import duration_s, load_options, pattern_options, run_options
from jobs.runs.consent import require_consent
from jobs.runs.lifecycle import RunOrder, execute, new_run_id
from jobs.runs.limit import LimitRun


@click.command("find-limit")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="What counts as sustained: a file of conf/goals, or a path; several, "
                   "separated by commas, are judged from the same trials.")  # fmt: skip
@click.option("--confirm", "confirm_s", type=duration_s, metavar="TIME",
              help="Hold each limit for so long, such as 30m, before it is an answer; the same "
                   "as --set goal.search.confirm_s=SECONDS.")  # fmt: skip
@click.option("--offline", type=click.IntRange(min=1), metavar="BROKERS",
              help="Also find the limits while so many brokers are away, and hold them while "
                   "these catch up; as --set goal.search.brokers_offline=BROKERS.")  # fmt: skip
@run_options
@click.option("--resume", metavar="RUN_ID",
              help="Go on with a run that stopped; same options as it had.")  # fmt: skip
@load_options
def find_limit(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    confirm_s: float | None,
    offline: int | None,
    overrides: tuple[str, ...],
    out: Path,
    tables: str | None,
    slots: int | None,
    resume: str | None,
    dry_run: bool,
    yes: bool,
    locks: bool,
) -> int:
    """Find the highest load that a cluster sustains, for each message size.

    A binary search over the number of identical producers: each trial offers a load by one
    Spark stage, judges it by the brokers' own metrics, and is appended to the Delta tables.
    """
    held = () if confirm_s is None else (f"goal.search.confirm_s={confirm_s:g}",)
    away = () if offline is None else (f"goal.search.brokers_offline={offline}",)
    config = load(cluster, workload, goal, (*overrides, *held, *away))
    body = LimitRun(config)
    with make_reporter() as reporter:
        if dry_run:
            reporter.report(PlanShown(body.plan(out)))
            return 0
        require_consent(config, reporter, yes)
        where = tables or str(out.absolute() / "tables")
        run_id = resume or new_run_id(time.time())
        resumes = resume is not None
        order = RunOrder(reporter, out.absolute(), where, run_id, slots, resumes, locks)
        return execute(body, order)


if __name__ == "__main__":
    run(find_limit)
