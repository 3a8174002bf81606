"""`redline traffic`: offers one traffic pattern at a fixed load, for example for soak tests.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/traffic.py …
"""

from __future__ import annotations

import click

from jobs.entry import run
from jobs.options import (
    COUNT_MAX,
    Count,
    Duration,
    Rate,
    pattern_options,
    require_one,
    run_options,
)
from jobs.runs.options import RunOptions
from metrics.common.bounds import OfferedRate
from metrics.common.errors import ConfigError
from metrics.traffic.payload import MESSAGE_BYTES_MAX


@click.command("traffic")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="The goal, which defines a sustained load: a name in conf/goals, or a "
                   "path.")  # fmt: skip
@click.option("--message-bytes", type=Count(1, MESSAGE_BYTES_MAX),
              help="Size of a message.  [default: the first size of the workload]")  # fmt: skip
@click.option("--rate", type=Rate(), metavar="RATE",
              help="Rate of all producers together: a payload such as 200MB/s, or messages such as "
                   "50000/s. The rate determines the number of producers.")  # fmt: skip
@click.option("--np", "--load", "amount", type=Count(1, COUNT_MAX),
              help="Instead of --rate: number of producers, or the load on another axis of the "
                   "goal.")  # fmt: skip
@click.option("--trials", type=Count(1, COUNT_MAX),
              help="Number of trials, one after another.  [default: 1]")  # fmt: skip
@click.option("--duration", "duration_s", type=Duration(), metavar="TIME",
              help="Instead of trials: one load without interruption for this time, such as 90 "
                   "(seconds), 30m or 8h. Each window is judged.")  # fmt: skip
@click.option("--profile", metavar="NAME|FILE",
              help="The change of the load over time: a name in conf/profiles, or a path. The "
                   "profile runs once, or is repeated for --duration.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(["overloaded"]),
              help="End with exit code 4 if a trial has this verdict.")  # fmt: skip
@run_options
def traffic(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    message_bytes: int | None,
    rate: OfferedRate | None,
    amount: int | None,
    trials: int | None,
    duration_s: float | None,
    profile: str | None,
    fail_on: str | None,
    overrides: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Offer one traffic pattern at a fixed load, in trials or without interruption.

    The answer is whether the cluster sustains the load: yes or no, with the reason, the latency and
    the unused share of the brokers.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.config import load
    from jobs.config.files import load_rate_profile
    from jobs.runs.fixed_load import FixedLoad, FixedLoadRun, at_rate
    from jobs.runs.launch import launch

    require_one(rate=rate, np=amount)
    if trials is not None and (duration_s is not None or profile is not None):
        other = f"--profile {profile}" if duration_s is None else f"--duration {duration_s:g}"
        raise ConfigError(
            f"--trials {trials} and {other} are both given; expected one of them; omit one of them"
        )
    changing = None if profile is None else load_rate_profile(profile)
    if changing is not None and duration_s is None:
        duration_s = changing.length_s
    sized = () if message_bytes is None else (f"workload.message_bytes=[{message_bytes}]",)
    config = load(cluster, workload, goal, (*overrides, *sized)).in_full
    size = config.workload.message_bytes[0]
    origin = ""
    if rate is not None:
        config, amount, origin = at_rate(config, size, rate)
    assert amount is not None, "exactly one of --rate and --np is given"
    held = FixedLoad(
        size, amount, trials or 1, duration_s, fail_on is not None, changing, origin=origin
    )
    action = f"load it with {'' if rate is None else f'{rate} from '}{config.axis.amount(amount)}"
    return launch(FixedLoadRun(config, held), options, action=action)


if __name__ == "__main__":
    run(traffic)
