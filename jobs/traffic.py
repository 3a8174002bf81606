"""`redline traffic`: one traffic pattern at a fixed load, for soaks and as a test context.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/traffic.py …
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from jobs.config import load
from jobs.console.events import PlanShown
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import load_options, pattern_options, run_options
from jobs.runs.consent import require_consent
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import RunOrder, execute, new_run_id
from search.errors import ConfigError


@click.command("traffic")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="What counts as sustained: a file of conf/goals, or a path.")  # fmt: skip
@click.option("--message-bytes", type=click.IntRange(min=1),
              help="Size of a message.  [default: the workload's first]")  # fmt: skip
@click.option("--np", "--load", "amount", required=True, type=click.IntRange(min=1),
              help="Producers; or the load on the goal's axis, where it is another.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1),
              help="How many trials, one after another.  [default: 1]")  # fmt: skip
@click.option("--duration", "duration_s", type=click.FloatRange(min=0, min_open=True),
              metavar="S", help="Instead: trials for so long, the last one in full.")  # fmt: skip
@run_options
@load_options
def traffic(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    message_bytes: int | None,
    amount: int,
    trials: int | None,
    duration_s: float | None,
    overrides: tuple[str, ...],
    out: Path,
    tables: str | None,
    slots: int | None,
    dry_run: bool,
    yes: bool,
    locks: bool,
) -> int:
    """Hold one traffic pattern at a fixed load, trial after trial, each judged on its own.

    Nothing is searched for: use it to soak a cluster, or to see what one load does to it.
    """
    if trials is not None and duration_s is not None:
        raise ConfigError(
            f"--trials {trials} and --duration {duration_s:g} are both given; expected one of "
            "them; leave one out"
        )
    sized = () if message_bytes is None else (f"workload.message_bytes=[{message_bytes}]",)
    config = load(cluster, workload, goal, (*overrides, *sized)).in_full
    held = FixedLoad(config.workload.message_bytes[0], amount, trials or 1, duration_s)
    body = FixedLoadRun(config, held)
    with make_reporter() as reporter:
        if dry_run:
            reporter.report(PlanShown(body.plan(out)))
            return 0
        deed = f"hold {config.axis.amount(amount)} on it"
        require_consent(config, reporter, yes, deed)
        where = tables or str(out.absolute() / "tables")
        run_id = new_run_id(time.time())
        order = RunOrder(reporter, out.absolute(), where, run_id, slots, locks=locks)
        return execute(body, order)


if __name__ == "__main__":
    run(traffic)
