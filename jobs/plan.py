"""`redline plan` and `redline export`, the jobs that use the limits of a run.

`plan` calculates how many brokers a load needs. `export` writes a limit for Cruise Control, for
Kafka's quotas or for Prometheus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.options import (
    COUNT_MAX,
    Amount,
    ConfName,
    Count,
    OutputFile,
    RunId,
    RunPlace,
    json_option,
    out_option,
    place_of,
    require_one,
)
from metrics.common.errors import ConfigError
from metrics.traffic.payload import MESSAGE_BYTES_MAX


@click.command("plan")
@click.option("--run", "run_id", metavar="RUN_ID|DIR", type=RunPlace(),
              help="The finished run with the limits: its id in --out, or its folder.")  # fmt: skip
@click.option("--limit", "limit_mb_per_s", type=Amount(min=0, min_open=True), metavar="MB/S",
              help="A known limit per broker, instead of --run.")  # fmt: skip
@click.option("--sweep", "sweep_id", metavar="SWEEP_ID|DIR", type=RunPlace(),
              help="A sweep in --out, or its folder. The answer is the smallest set-up that "
                   "carries the load.")  # fmt: skip
@click.option("--goal", metavar="NAME",
              help="The goal whose limits are used, if the run has several goals.")  # fmt: skip
@click.option("--mb-per-s", type=Amount(min=0, min_open=True),
              help="Today's payload from producers, all brokers together.")  # fmt: skip
@click.option("--gb-per-day", type=Amount(min=0, min_open=True),
              help="Today's payload per day, in 10⁹ bytes, at an even rate.")  # fmt: skip
@click.option("--scale", type=Amount(min=0, min_open=True), metavar="TIMES",
              help="For a run with a mix: today's payload as a multiple of the mix of the "
                   "workload.")  # fmt: skip
@click.option("--message-bytes", type=Count(1, MESSAGE_BYTES_MAX),
              help="Size of a message; omit this option for a mix.")  # fmt: skip
@click.option("--replication-factor", type=Count(1, COUNT_MAX),
              show_default="3, or the mix's values",
              help="Replicas of a partition.")  # fmt: skip
@click.option("--consumer-groups", type=Count(0, COUNT_MAX), show_default="1, or the mix's values",
              help="Number of consumer groups; each group reads all records.")  # fmt: skip
@click.option("--growth", type=Amount(min=0), default=0.0, show_default=True,
              help="Growth of the payload until the next purchase of brokers; 0.5 means growth "
                   "by half.")  # fmt: skip
@click.option("--offline", type=Amount(0, 1, max_open=True), default=0.0, show_default=True,
              help="Share of the brokers that may be offline, rounded up to whole "
                   "brokers; 0.2 means a fifth.")  # fmt: skip
@click.option("--headroom", type=Amount(0, 1, max_open=True), default=0.0, show_default=True,
              help="Share of each broker's limit to keep free.")  # fmt: skip
@click.option("--link-mbit-per-s", type=Amount(min=0, min_open=True),
              help="Speed of a broker's network interface, to check whether the network is the "
                   "limiting resource.")  # fmt: skip
@click.option("--retention-hours", type=Amount(min=0, min_open=True), metavar="H",
              help="Time for which records are stored, to check whether storage is the limiting "
                   "resource; requires --disk-gb.")  # fmt: skip
@click.option("--disk-gb", type=Amount(min=0, min_open=True), metavar="GB",
              help="Disk space of a broker for records, in 10⁹ bytes.")  # fmt: skip
@click.option("--compression-ratio", type=Amount(min=1), default=1.0, show_default=True,
              help="Size of records before compression divided by their size after it; used for "
                   "storage and zones.")  # fmt: skip
@click.option("--zones", type=Count(2, 100),
              help="Number of zones over which the brokers are spread. A whole zone may "
                   "fail.")  # fmt: skip
@out_option
@json_option
def plan(
    run_id: str | None,
    limit_mb_per_s: float | None,
    sweep_id: str | None,
    goal: str | None,
    gb_per_day: float | None,
    out: Path,
    json_file: Path | None,
    **asked: Any,
) -> None:
    """Calculate how many brokers a load needs, with the headroom and the limiting resource.

    The limits come from a run (--run) or from --limit. If the limits come from a run, the job uses
    the lower end of each limit's 90 % range, which contains the limit on 90 % of days. The limit of
    a mix applies to the parts of the mix in their measured proportions. For a mix, --scale states
    the load as a multiple of the mix, and --mb-per-s or --gb-per-day states the payload of all
    parts together. With --sweep the answer is the smallest measured set-up that carries the load.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.features.plan.planning import DAY_S, choose_setup, plan_brokers

    require_one(mb_per_s=asked["mb_per_s"], gb_per_day=gb_per_day, scale=asked["scale"])
    require_one(run=run_id, limit=limit_mb_per_s, sweep=sweep_id)
    if gb_per_day is not None:
        asked["mb_per_s"] = gb_per_day * 1e3 / DAY_S
    if sweep_id is not None:
        choose_setup(place_of(out, sweep_id), asked, json_file)
        return
    folder = None if run_id is None else place_of(out, run_id)
    plan_brokers(folder, goal, limit_mb_per_s, asked, json_file)


FORMATS = ("capacity", "quotas", "alerts")
"""The export formats: Cruise Control's capacity.json, commands for kafka-configs.sh, and Prometheus
rules.
"""


@click.command("export")
@click.argument("run_id", type=RunId())
@click.option("--as", "form", required=True, type=click.Choice(FORMATS),
              help="Cruise Control's capacity.json, commands that set Kafka's quotas, or alert "
                   "rules for Prometheus.")  # fmt: skip
@out_option
@click.option(
    "--goal", metavar="NAME", help="The goal whose limit is exported, if the run has several goals."
)
@click.option("--message-bytes", type=Count(1, MESSAGE_BYTES_MAX),
              help="Size of a message.  "
                   "[default: the size with the lowest limit in bytes]")  # fmt: skip
@click.option("--safety", type=Amount(0, 1, min_open=True), default=0.7,
              show_default=True, help="Share of the limit that may be used.")  # fmt: skip
@click.option("--disk-mb", type=Amount(min=0, min_open=True),
              help="For --as capacity: disk space for logs on each broker.")  # fmt: skip
@click.option("--tenants", type=Count(1, COUNT_MAX), default=1, show_default=True,
              help="For --as quotas: number of users that share the brokers.")  # fmt: skip
@click.option("--bootstrap-server", default="localhost:9092", show_default=True,
              metavar="HOST:PORT",
              help="For --as quotas: address of a broker of the cluster.")  # fmt: skip
@click.option("--rules", type=ConfName("prometheus"), default="kafka-kraft", show_default=True,
              metavar="NAME|FILE",
              help="For --as alerts: rule set with the exporter's names of series; a name in "
                   "conf/prometheus, or a path.")  # fmt: skip
@click.option("--headroom", "times_least", type=Amount(min=0, min_open=True), default=1.5,
              show_default=True, metavar="TIMES",
              help="For --as alerts: minimum number of times that a broker's traffic must fit "
                   "into its limit.")  # fmt: skip
@click.option("--to", "target", metavar="FILE", type=OutputFile(),
              help="The file to write.  [default: standard output]")  # fmt: skip
def export(  # noqa: PLR0913, PLR0917 - one for each option
    run_id: str,
    form: str,
    out: Path,
    goal: str | None,
    message_bytes: int | None,
    safety: float,
    disk_mb: float | None,
    tenants: int,
    bootstrap_server: str,
    rules: str,
    times_least: float,
    target: Path | None,
) -> None:
    """Export a run's limit for Cruise Control, Kafka's quotas or Prometheus.

    Each figure is the lower end of the limit's 90 % interval, multiplied by --safety.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.config.metrics_registry import load_rules
    from jobs.features.plan.planning import limits_of
    from metrics.features.plan.exports import Allowance, alert_rules, capacity, lowest_limit, quotas
    from metrics.planning.provisioning import limit_at
    from metrics.reporting.files import write_file
    from metrics.reporting.summary import load_summary
    from metrics.units import format_size

    file = out / run_id / "summary.json"
    if not file.exists():
        raise ConfigError(
            f"{file} does not exist; expected the id of a finished run in {out}; correct the id, "
            "or name the folder of the run with --out"
        )
    summary = load_summary(file)
    limits = limits_of(summary, goal)
    if limits[0].parts and message_bytes is not None:
        raise ConfigError(
            f"--message-bytes is {message_bytes} and run {summary.run_id} measured a mix; expected "
            "no message size, because each part has its own; omit --message-bytes"
        )
    limit = lowest_limit(limits) if message_bytes is None else limit_at(limits, message_bytes)[0]
    if limit.doubt:
        which, remedy = "of the mix", "measure the mix again"
        if not limit.parts:
            which = f"at {format_size(limit.message_bytes)}"
            remedy = "measure this size again, or name another size with --message-bytes"
        raise ConfigError(
            f"the limit {which} is doubtful ({limit.doubt}); expected a reliable limit; {remedy}"
        )
    allowance = Allowance(summary.run_id, limit, safety, summary.caveat)
    if form == "capacity":
        if disk_mb is None:
            raise ConfigError(
                "--as capacity is given without --disk-mb; expected the disk space for logs on "
                "each broker; add --disk-mb MB"
            )
        text = capacity(allowance, disk_mb)
    elif form == "quotas":
        text = quotas(allowance, tenants, bootstrap_server)
    else:
        chosen = goal or summary.boundaries[0].goal
        text = alert_rules(allowance, _idle_min(chosen), load_rules(rules), times_least)
    if target is None:
        click.echo(text, nl=False)
    else:
        write_file("--to", target, text)


def _idle_min(goal: str) -> float:
    """The lowest idle fraction of request handlers that a goal permits. For a goal without a file,
    the result is the value of the default goal.
    """
    from jobs.config.loading import load_goal

    try:
        return load_goal(goal).indicators.request_handler_idle_min
    except ConfigError:
        return load_goal("default").indicators.request_handler_idle_min
