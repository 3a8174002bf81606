"""`redline plan`: calculates how many brokers a load needs, from the limits of a run."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.options import COUNT_MAX, Amount, Count, RunPlace, json_option, out_option, place_of
from metrics.common.errors import ConfigError
from metrics.features.plan.setups import DAY_S
from metrics.traffic.payload import MESSAGE_BYTES_MAX


@click.command("plan")
@click.option(
    "--run",
    "run_id",
    metavar="RUN_ID|DIR",
    type=RunPlace(),
    help="A finished run of --out, or its folder, whose limits to plan with.",
)
@click.option(
    "--limit",
    "limit_mb_per_s",
    type=Amount(min=0, min_open=True),
    metavar="MB/S",
    help="A known limit per broker, instead of --run.",
)
@click.option(
    "--sweep",
    "sweep_id",
    metavar="SWEEP_ID|DIR",
    type=RunPlace(),
    help="A sweep of --out, or its folder; the answer is the smallest set-up that suffices.",
)
@click.option("--goal", metavar="NAME", help="The goal to plan by, where the run has several.")
@click.option(
    "--mb-per-s",
    type=Amount(min=0, min_open=True),
    help="Today's payload from producers, all brokers together.",
)
@click.option(
    "--gb-per-day",
    type=Amount(min=0, min_open=True),
    help="The same as payload per day, in 10⁹ bytes, evenly over the day.",
)
@click.option(
    "--scale",
    type=Amount(min=0, min_open=True),
    metavar="TIMES",
    help="Today's payload of a run with a mix instead: how many times the mix of its workload.",
)
@click.option(
    "--message-bytes",
    type=Count(1, MESSAGE_BYTES_MAX),
    help="Size of a message; omit it for a mix.",
)
@click.option(
    "--replication-factor",
    type=Count(1, COUNT_MAX),
    show_default="3, or those of the mix",
    help="Replicas of a partition.",
)
@click.option(
    "--consumer-groups",
    type=Count(0, COUNT_MAX),
    show_default="1, or those of the mix",
    help="Consumer groups that each read everything.",
)
@click.option(
    "--growth",
    type=Amount(min=0),
    default=0.0,
    show_default=True,
    help="Growth of the payload until the next purchase of brokers; 0.5 is growth by half.",
)
@click.option(
    "--offline",
    type=Amount(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of the brokers that may be offline, rounded up to whole brokers; 0.2 is a fifth.",
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
    help="Speed of a broker's network interface, to check whether it binds first.",
)
@click.option(
    "--retention-hours",
    type=Amount(min=0, min_open=True),
    metavar="H",
    help="Time for which records stay, to check whether storage binds first; with --disk-gb.",
)
@click.option(
    "--disk-gb",
    type=Amount(min=0, min_open=True),
    metavar="GB",
    help="Room of a broker's disks for records, in 10⁹ bytes.",
)
@click.option(
    "--compression-ratio",
    type=Amount(min=1),
    default=1.0,
    show_default=True,
    help="Size of records before over that after compression, for storage and zones.",
)
@click.option(
    "--zones",
    type=Count(2, 100),
    help="Zones over which the brokers are spread, of which a whole one may be lost.",
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
    scale: float | None,
    message_bytes: int | None,
    replication_factor: int | None,
    consumer_groups: int | None,
    growth: float,
    offline: float,
    headroom: float,
    link_mbit_per_s: float | None,
    retention_hours: float | None,
    disk_gb: float | None,
    compression_ratio: float,
    zones: int | None,
    out: Path,
    json_file: Path | None,
) -> None:
    """Calculate how many brokers a load needs, with their headroom and what binds first.

    The limits come from a run (--run), by the lower ends of their 90 % ranges on any day, or from
    --limit. A run with a mix answers for its parts in their proportions, at --scale times the mix
    or at a payload of all parts. With --sweep the answer is the smallest of the measured set-ups
    that carries the load.
    """
    # Imported here, as --help and shell completion need none of it.
    from jobs.features.plan.planning import AskedDemand, choose_setup, plan_brokers

    given = 3 - [mb_per_s, gb_per_day, scale].count(None)
    if given != 1:
        raise ConfigError(
            f"{given} of --mb-per-s, --gb-per-day and --scale are given; expected exactly one of "
            "them; correct the options"
        )
    asked = AskedDemand(
        (gb_per_day or 0.0) * 1e3 / DAY_S if mb_per_s is None else mb_per_s,
        scale,
        message_bytes,
        replication_factor,
        consumer_groups,
        {
            "growth": growth,
            "offline": offline,
            "headroom": headroom,
            "link_mbit_per_s": link_mbit_per_s,
            "retention_hours": retention_hours,
            "disk_gb": disk_gb,
            "compression_ratio": compression_ratio,
            "zones": zones,
        },
    )
    given = 3 - [run_id, limit_mb_per_s, sweep_id].count(None)
    if given != 1:
        raise ConfigError(
            f"{given} of --run, --limit and --sweep are given; expected exactly one of them; "
            "correct the options"
        )
    if sweep_id is not None:
        choose_setup(place_of(out, sweep_id), asked, json_file)
        return
    folder = None if run_id is None else place_of(out, run_id)
    plan_brokers(folder, goal, limit_mb_per_s, asked, json_file)
