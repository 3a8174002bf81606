"""`redline traffic`: one traffic pattern at a fixed load, for soaks and as a test context.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/traffic.py …
"""

from __future__ import annotations

import click

from jobs.entry import run
from jobs.options import COUNT_MAX, Count, Lasting, pattern_options, run_options
from jobs.runs.options import RunOptions
from metrics.common.errors import ConfigError
from metrics.traffic.sizes import MESSAGE_BYTES_MAX


@click.command("traffic")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="What counts as sustained: a file of conf/goals, or a path.")  # fmt: skip
@click.option("--message-bytes", type=Count(1, MESSAGE_BYTES_MAX),
              help="Size of a message.  [default: the workload's first]")  # fmt: skip
@click.option("--np", "--load", "amount", required=True, type=Count(1, COUNT_MAX),
              help="Producers; or the load on the goal's axis, where it is another.")  # fmt: skip
@click.option("--trials", type=Count(1, COUNT_MAX),
              help="How many trials, one after another.  [default: 1]")  # fmt: skip
@click.option("--duration", "duration_s", type=Lasting(), metavar="TIME",
              help="Instead: one load without a gap, judged window by window, for so long, such "
                   "as 90 (seconds), 30m or 8h.")  # fmt: skip
@click.option("--profile", metavar="NAME|FILE",
              help="How the load changes over time: a file of conf/profiles, or a path; once "
                   "through it, or again and again for --duration.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(["overloaded"]),
              help="End with exit code 4 when the goal calls a trial so.")  # fmt: skip
@run_options
def traffic(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    message_bytes: int | None,
    amount: int,
    trials: int | None,
    duration_s: float | None,
    profile: str | None,
    fail_on: str | None,
    overrides: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Hold one traffic pattern at a fixed load: trials, or for hours without a gap.

    Nothing is searched for: use it to soak a cluster, or to see what one load does to it.
    """
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.config import load
    from jobs.config.profile import load_rate_profile
    from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
    from jobs.runs.launch import launch

    if trials is not None and (duration_s is not None or profile is not None):
        other = f"--profile {profile}" if duration_s is None else f"--duration {duration_s:g}"
        raise ConfigError(
            f"--trials {trials} and {other} are both given; expected one of them; leave one out"
        )
    changing = None if profile is None else load_rate_profile(profile)
    if changing is not None and duration_s is None:
        duration_s = changing.length_s
    sized = () if message_bytes is None else (f"workload.message_bytes=[{message_bytes}]",)
    config = load(cluster, workload, goal, (*overrides, *sized)).in_full
    size = config.workload.message_bytes[0]
    held = FixedLoad(size, amount, trials or 1, duration_s, fail_on is not None, changing)
    action = f"hold {config.axis.amount(amount)} on it"
    return launch(FixedLoadRun(config, held), options, action=action)


if __name__ == "__main__":
    run(traffic)
