"""The commands `redline testbed up`, `status` and `down`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from jobs.testbed.cleanup import CleanupReport
from jobs.testbed.cpu_groups import cpu_groups
from jobs.testbed.delay_line import read_counts, round_trip_s
from jobs.testbed.detached import DetachedTestbed, down, failed_logs, status, up
from jobs.testbed.handle import Testbed
from jobs.testbed.handler_time import limit_lines
from jobs.testbed.launcher import cluster_file, submit_line
from jobs.testbed.listeners import FOLDER
from jobs.testbed.model import HOST, Spec, State, available_cores, cores_of
from jobs.testbed.places import line_counts
from jobs.testbed.planted_devices import RATE_FILE
from jobs.testbed.profile import BROKERS_MAX
from jobs.testbed.spark import SPARK_WORKERS_MAX, WORKER_SLOTS
from metrics.common.errors import ConfigError
from metrics.units import format_duration

_name_option = click.option(
    "--name", default="default", show_default=True, metavar="NAME", help="Name of the testbed."
)


@click.group()
def testbed() -> None:
    """Real Kafka brokers on this machine, for trials.

    The brokers are a small cluster: their limits do not apply to other hardware.
    """


@testbed.command("up")
@click.option(
    "--profile",
    default="disk-bound",
    show_default=True,
    metavar="NAME|FILE",
    help="Testbed profile: a file of conf/testbed by its name, or a path.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    metavar="WHOLE NUMBER",
    help="Number of brokers; one controller is added. [default: the profile's number]",
)
@click.option(
    "--kafka-version",
    metavar="VERSION",
    help="Kafka's release, 2.8.0 or later. [default: the profile's release]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a broker property (Kafka's name), or a key of the profile: heap_mb, jvm_options, "
    "log_dirs, cpus, racks, produce_handler_ms, or a key of the link or the disk such as "
    "link.delay or disk.write_rate. May be repeated.",
)
@click.option(
    "--spark-workers",
    type=click.IntRange(0, SPARK_WORKERS_MAX),
    default=0,
    show_default=True,
    metavar="WHOLE NUMBER",
    help=f"Number of workers of a standalone Spark cluster; each has {WORKER_SLOTS} slots.",
)
@click.option(
    "--link",
    metavar="KEY=VALUE,…",
    help="Emulated link between brokers and clients, with the keys delay (one way), jitter, rate, "
    "loss, queue_bytes, mtu, seed and the maximum sizes of TCP buffers; for example delay=25ms. "
    "Requires root and iproute2.",
)
@_name_option
def up_command(
    profile: str,
    brokers: int | None,
    kafka_version: str | None,
    settings: Sequence[str],
    spark_workers: int,
    link: str | None,
    name: str,
) -> None:
    """Start brokers, and optionally Spark, that run until `redline testbed down`."""
    started = up(
        profile,
        brokers=brokers,
        kafka_version=kafka_version,
        overrides={**({"link": link} if link else {}), **parse_settings(settings)},
        name=name,
        spark_workers=spark_workers,
    )
    for line in up_lines(started):
        click.echo(line)


@testbed.command("status")
def status_command() -> None:
    """Show the running testbeds, and the remaining files of crashed testbeds."""
    for line in status_lines(status(), failed_logs()):
        click.echo(line)


@testbed.command("down")
@_name_option
def down_command(name: str) -> None:
    """Stop a testbed and delete its data; delete the files of crashed testbeds."""
    done = down(name)
    if done.stopped is not None:
        click.echo(f"stopped {_title(done.stopped)}")
    for cleaned in done.cleaned:
        click.echo(cleanup_line(cleaned))
    if done.stopped is None and not done.cleaned:
        click.echo(f'no testbed "{name}" runs, and there is nothing to clean up')


def parse_settings(settings: Sequence[str]) -> dict[str, object]:
    """The overrides in `KEY=VALUE` options.

    Raises:
        ConfigError: an option does not have the form KEY=VALUE.
    """
    parsed: dict[str, object] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {text} is not of the form KEY=VALUE; expected for example "
                "--set num.io.threads=4; correct it"
            )
        parsed[key.strip()] = value.strip()
    return parsed


def up_lines(started: Testbed) -> list[str]:
    """The output of `up`: the brokers' addresses, and the command that stops them."""
    return [
        f"{_title(started.state)} is up",
        f"  bootstrap servers  {','.join(started.bootstrap_servers)}",
        *(f"  JMX of broker {each}    {at}" for each, at in started.jmx_endpoints.items()),
        f"  logs               {started.folder}",
        f"  cluster file       {cluster_file(started.folder)}",
        *_security_lines(started),
        *resource_lines(started.state.spec),
        *limit_lines(started.state.spec),
        *disk_lines(started.state.spec),
        *link_lines(started.state),
        *_spark_lines(started),
        f"stop it with: redline testbed down --name {started.name}",
    ]


def disk_lines(spec: Spec) -> list[str]:
    """The output lines about planted disks and their limit; empty without planted disks."""
    if spec.disk is None:
        return []
    together = spec.disk.write_bytes_per_s * spec.brokers / 1e6
    disks = "disk" if spec.brokers == 1 else f"{spec.brokers} disks"
    limit = f"  limit of disks     {together:g} MB/s for the {disks}, divided by the number of "
    return [
        f"  planted disks      {spec.disk.words()}; by loop devices and {RATE_FILE.name}",
        f"{limit}replicas, including headers of records and batches",
    ]


def link_lines(state: State) -> list[str]:
    """The output lines about the link, with a measured round trip; empty without a link."""
    link, line = state.spec.link, state.line
    if link is None or line is None or not state.brokers:
        return []
    broker = state.brokers[0]
    try:
        took_s = round_trip_s(state.network_namespace, broker.host, broker.port)
        seen = f"a round trip takes {took_s * 1000:.1f} ms"
    except OSError as error:
        seen = f"the round trip could not be measured ({error})"
    lines = [f"  link               {link.words()}; {seen}"]
    if link.rate is not None:
        lines.append(
            f"  rate of the link   bursts of at most {link.rate_burst_bytes:,} B, and a queue of "
            f"at most {link.rate_queue_bytes:,} B"
        )
        lines.append(
            f"  limit of the link  {link.rate} from the producers to all brokers together, "
            "including headers of records, batches, requests and packets"
        )
    return lines


def packet_lines(state: State) -> list[str]:
    """The output lines with the numbers of packets on the link, one line for each direction."""
    counts = read_counts(line_counts(state.line)) if state.line else {}
    return [
        f"  {name.replace('_', ' '):17}  {each.packets:,} packets, {each.bytes / 1e6:,.1f} MB; "
        f"{each.lost:,} lost on purpose"
        for name, each in counts.items()
    ]


def _spark_lines(started: Testbed) -> list[str]:
    """The output lines about the Spark master, with a command that runs a job there."""
    state = started.state
    if state.spark_master is None:
        return []
    slots = state.spec.spark_workers * WORKER_SLOTS
    return [
        f"  Spark master       {state.spark_master} ({slots} slots)",
        f"  Spark's web page   http://{HOST}:{state.spark[0].web_port}",
        "run a job there, after make dist, with:",
        f"  {submit_line(state, cluster_file(started.folder))}",
    ]


def _security_lines(started: Testbed) -> list[str]:
    """The output lines about secured listeners and the folder of the keys; empty if nothing is
    secured.
    """
    spec = started.state.spec
    if not spec.security and not spec.jmx_secured:
        return []
    protocols = ", ".join(spec.security) or "PLAINTEXT"
    jmx = ", JMX with a password and TLS" if spec.jmx_secured else ""
    return [f"  security           {protocols}{jmx}; keys and users in {started.folder / FOLDER}"]


def resource_lines(spec: Spec) -> list[str]:
    """The output lines about each broker's cores and log directories, if the profile limits
    them.
    """
    dirs = [f"  log directories    {spec.log_dirs} a broker, on one disk"] * (spec.log_dirs > 1)
    if spec.cpus is None:
        return dirs
    if cpu_groups() is not None:
        return [
            f"  cores              {spec.cpus:g} a broker, by the CPU quota of a control group",
            *dirs,
        ]
    cores = (
        ", ".join(map(str, cores_of(broker, spec.cpus, available_cores())))
        for broker in range(1, spec.brokers + 1)
    )
    own = [f"  cores, broker {n}    {each} (by CPU affinity)" for n, each in enumerate(cores, 1)]
    return [*own, *dirs]


def status_lines(reports: Sequence[DetachedTestbed], failed: Sequence[Path]) -> list[str]:
    """The output of `status`."""
    lines = []
    for report in reports:
        state, spec = report.state, report.state.spec
        kind = "stops when its command ends" if spec.owned else "runs until `redline testbed down`"
        if not report.is_alive:
            lines.append(f"{_title(state)}: crashed; `redline testbed down` cleans it up")
            continue
        used, limit = report.data_bytes / 1e6, spec.disk_limit_bytes / 1e6
        lines += [
            f"{_title(state)}: {state.status.value} for {format_duration(report.age_s)}, {kind}",
            f"  bootstrap servers  {','.join(state.bootstrap_servers) or 'not yet known'}",
            f"  memory             {report.memory_bytes / 1e6:.0f} MB",
            f"  disk               {used:.0f} MB of at most {limit:.0f} MB",
            f"  logs               {report.folder}",
            *disk_lines(spec),
            *link_lines(state),
            *packet_lines(state),
        ]
        if state.spark_master is not None:
            lines.append(f"  Spark master       {state.spark_master}")
    if not reports:
        lines.append("no testbed runs; start one with `redline testbed up`")
    if failed:
        lines.append(f"logs of {len(failed)} failed testbeds are kept; the latest: {failed[-1]}")
    return lines


def cleanup_line(cleaned: CleanupReport) -> str:
    """The output line of `down` about one testbed that was cleaned up."""
    line = (
        f"cleaned up after testbed {cleaned.name}: {cleaned.processes} processes ended, "
        f"{cleaned.data_bytes / 1e6:.0f} MB deleted"
    )
    return f"{line}; its logs are in {cleaned.logs}" if cleaned.logs else line


def _title(state: State) -> str:
    about = state.spec.description
    return f"{state.spec.title}, {about}" if about else state.spec.title
