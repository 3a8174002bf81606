"""`redline plan`: how many brokers a load needs, from the limits that a run found."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.options import COUNT_MAX, Amount, Count, RunPlace, json_option, out_option, place_of
from metrics.common.errors import ConfigError
from metrics.planning.provisioning import Demand
from metrics.planning.setups import DAY_S
from metrics.traffic.sizes import MESSAGE_BYTES_MAX


@click.command("plan")
@click.option(
    "--run",
    "run_id",
    metavar="RUN_ID|DIR",
    type=RunPlace(),
    help="A finished run of --out, or the folder of one, whose limits to plan with.",
)
@click.option(
    "--limit",
    "limit_mb_per_s",
    type=Amount(min=0, min_open=True),
    metavar="MB/S",
    help="A limit per broker known otherwise, instead of --run.",
)
@click.option(
    "--sweep",
    "sweep_id",
    metavar="SWEEP_ID|DIR",
    type=RunPlace(),
    help="A sweep of --out, or the folder of one, of whose set-ups the smallest is wanted.",
)
@click.option("--goal", metavar="NAME", help="Of a run with several goals, the one to plan by.")
@click.option(
    "--mb-per-s",
    type=Amount(min=0, min_open=True),
    help="Payload from producers today, all brokers together.",
)
@click.option(
    "--gb-per-day",
    type=Amount(min=0, min_open=True),
    help="The same as the payload of a day, in 10⁹ bytes, spread evenly over it.",
)
@click.option(
    "--message-bytes",
    required=True,
    type=Count(1, MESSAGE_BYTES_MAX),
    help="Size of a message.",
)
@click.option(
    "--replication-factor",
    type=Count(1, COUNT_MAX),
    default=3,
    show_default=True,
    help="Replicas of a partition.",
)
@click.option(
    "--consumer-groups",
    type=Count(0, COUNT_MAX),
    default=1,
    show_default=True,
    help="Groups that each read everything.",
)
@click.option(
    "--growth",
    type=Amount(min=0),
    default=0.0,
    show_default=True,
    help="How much the payload grows until brokers are bought again; 0.5 is by half.",
)
@click.option(
    "--offline",
    type=Amount(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of brokers that may be offline; 0.2 is a fifth.",
)
@click.option(
    "--headroom",
    type=Amount(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of each broker's limit to keep free.",
)
@click.option(
    "--link-mbit-per-s",
    type=Amount(min=0, min_open=True),
    help="Speed of a broker's network interface, to see whether it binds first.",
)
@out_option
@json_option
def plan(  # noqa: PLR0913, PLR0917 - one for each option
    run_id: str | None,
    limit_mb_per_s: float | None,
    sweep_id: str | None,
    goal: str | None,
    mb_per_s: float | None,
    gb_per_day: float | None,
    message_bytes: int,
    replication_factor: int,
    consumer_groups: int,
    growth: float,
    offline: float,
    headroom: float,
    link_mbit_per_s: float | None,
    out: Path,
    json_file: Path | None,
) -> None:
    """Say how many brokers a load needs, with what headroom, and what binds first.

    The limits are those of a run (--run), of which it buys for the lower end of the 90 %
    interval, or one that you know (--limit). With --sweep it says which of the measured set-ups
    is the smallest that carries the load.
    """
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.runs.planning import choose_setup, plan_brokers

    if (mb_per_s is None) == (gb_per_day is None):
        raise ConfigError("expected exactly one of --mb-per-s and --gb-per-day; give one of them")
    demand = Demand(
        (gb_per_day or 0.0) * 1e3 / DAY_S if mb_per_s is None else mb_per_s,
        message_bytes,
        replication_factor,
        consumer_groups,
        growth,
        offline,
        headroom,
        link_mbit_per_s,
    )
    if [run_id, limit_mb_per_s, sweep_id].count(None) != 2:
        raise ConfigError(
            "expected exactly one of --run (of a search), --limit (MB/s per broker) and --sweep; "
            "give one of them"
        )
    if sweep_id is not None:
        choose_setup(place_of(out, sweep_id), demand, json_file)
        return
    folder = None if run_id is None else place_of(out, run_id)
    plan_brokers(folder, goal, limit_mb_per_s, demand, json_file)
