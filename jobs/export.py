"""`redline export`: exports a run's limit to Cruise Control, Kafka's quotas or Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.options import COUNT_MAX, Amount, ConfName, Count, OutputFile, RunId, out_option
from metrics.common.errors import ConfigError
from metrics.traffic.payload import MESSAGE_BYTES_MAX

FORMATS = ("capacity", "quotas", "alerts")
"""The formats: Cruise Control's capacity.json, kafka-configs.sh commands, Prometheus rules."""


@click.command("export")
@click.argument("run_id", type=RunId())
@click.option("--as", "form", required=True, type=click.Choice(FORMATS),
              help="Cruise Control's capacity.json, commands that set Kafka's quotas, or alert "
                   " rules for Prometheus.")  # fmt: skip
@out_option
@click.option("--goal", metavar="NAME", help="The goal to export, where the run has several.")
@click.option("--message-bytes", type=Count(1, MESSAGE_BYTES_MAX),
              help="Size of a message.  "
                   "[default: the size with the lowest limit in bytes]")  # fmt: skip
@click.option("--safety", type=Amount(0, 1, min_open=True), default=0.7,
              show_default=True, help="Share of the limit that may be used.")  # fmt: skip
@click.option("--disk-mb", type=Amount(min=0, min_open=True),
              help="capacity: disk space for logs on each broker; no run measures it.")  # fmt: skip
@click.option("--tenants", type=Count(1, COUNT_MAX), default=1, show_default=True,
              help="quotas: users that share a broker.")  # fmt: skip
@click.option("--bootstrap-server", default="localhost:9092", show_default=True,
              metavar="HOST:PORT", help="quotas: address of a broker of the cluster.")  # fmt: skip
@click.option("--rules", type=ConfName("prometheus"), default="kafka-kraft", show_default=True,
              metavar="NAME|FILE",
              help="alerts: the names of the exporter's series, a file of conf/prometheus, or a "
                   "path.")  # fmt: skip
@click.option("--headroom", "times_least", type=Amount(min=0, min_open=True), default=1.5,
              show_default=True, metavar="TIMES",
              help="alerts: number of times that a broker's traffic has to fit into its "
                   "limit.")  # fmt: skip
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
    # Imported here, as --help and shell completion need none of it.
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
            "no size, as each part has its own; omit it"
        )
    limit = lowest_limit(limits) if message_bytes is None else limit_at(limits, message_bytes)[0]
    if limit.doubt and limit.parts:
        raise ConfigError(
            f"the limit of the mix is doubtful ({limit.doubt}); expected a reliable limit; measure "
            "it again"
        )
    if limit.doubt:
        raise ConfigError(
            f"the limit at {format_size(limit.message_bytes)} is doubtful ({limit.doubt}); "
            "expected a reliable limit; measure that size again, or name another with "
            "--message-bytes"
        )
    allowance = Allowance(summary.run_id, limit, safety, summary.caveat)
    if form == "capacity":
        if disk_mb is None:
            raise ConfigError(
                "--as capacity needs each broker's disk space for logs; expected --disk-mb MB; add "
                "it"
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
    """The goal's threshold of the request handlers, or the default goal's where it has no file."""
    from jobs.config.loading import load_goal

    try:
        return load_goal(goal).indicators.request_handler_idle_min
    except ConfigError:
        return load_goal("default").indicators.request_handler_idle_min
