"""`redline init`: writes a cluster's file from options, or from answers to questions.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/init.py …
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jobs.console.events import note
from jobs.entry import run
from jobs.options import Count, OutputFile
from metrics.common.errors import ConfigError
from metrics.reporting.files import require_new, write_file, yaml_text

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "GSSAPI")
SERVER = "prometheus-server"
METRICS = ("jmx", "prometheus", SERVER, "none")
PORTS = {"jmx": 9999, "prometheus": 9404}
"""Source of metrics → its usual port."""

_HEAD = """\
# Written by redline init. For all keys see conf/clusters/example.yaml and docs/configuration.md.
# Secrets are references, env:NAME or file:PATH. This file never contains the values of secrets.
"""


@click.command("init")
@click.argument("file", metavar="FILE", type=OutputFile())
@click.option("--servers", metavar="HOST:PORT,…", help="Addresses of some brokers.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="Security of the connections.")
@click.option("--mechanism", type=click.Choice(MECHANISMS),
              help="The SASL mechanism, for the SASL protocols.")  # fmt: skip
@click.option("--cafile", metavar="FILE",
              help="PEM file of trusted authorities for TLS; empty for the authorities of the "
                   "system.")  # fmt: skip
@click.option("--metrics", type=click.Choice(METRICS),
              help="The source of the brokers' metrics.")  # fmt: skip
@click.option("--metrics-port", type=Count(1, 65_535),
              help="Port of the metrics on every host.  "
                   "[default: 9999 for JMX, 9404 for Prometheus]")  # fmt: skip
@click.option("--metrics-server", metavar="URL",
              help="The Prometheus server that scrapes the brokers' exporters.")  # fmt: skip
@click.option("--metrics-selector", metavar="MATCHERS",
              help="Matchers that select the brokers' exporters on this server, such as "
                   "job=\"kafka\".")  # fmt: skip
@click.option("--broker-label", metavar="LABEL",
              help="The label that distinguishes brokers on this server, such as pod.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(
    file: Path,
    servers: str | None,
    protocol: str | None,
    mechanism: str | None,
    cafile: str | None,
    metrics: str | None,
    metrics_port: int | None,
    force: bool,
    **of_server: str | None,
) -> int:
    """Write a cluster file from the answers to a few questions, or from options.

    The job checks the file as a run does.
    """
    require_new("FILE", file, is_forced=force)
    if servers is None:
        servers = _prompt("Addresses of some brokers, with commas between them")
    if protocol is None:
        protocol = _choice("Security of the connections", PROTOCOLS)
    if "SASL" in protocol and mechanism is None:
        mechanism = _choice("SASL mechanism", MECHANISMS)
    if protocol.endswith("SSL") and cafile is None:
        question = "PEM file of the trusted authorities, empty for the authorities of the system"
        cafile = _prompt(question, default="", show_default=False)
    if metrics is None:
        metrics = _choice("Source of the brokers' metrics", METRICS)
        if metrics in PORTS and metrics_port is None:
            question = "Port of the metrics on every host"
            metrics_port = _prompt(question, type=Count(1, 65_535), default=PORTS[metrics])
    server = _server(**of_server) if metrics == SERVER else None
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.console.printing import make_reporter

    content = document(servers, protocol, mechanism, cafile, metrics, metrics_port, server)
    text = _HEAD + yaml_text(content)
    _check(file, text)
    with make_reporter() as reporter:
        note(reporter, f"written: {file}")
        for name in _environment_variables(content):
            note(reporter, f"set {name} in the environment of runs")
        note(reporter, f"next: redline doctor --cluster {file} --workload quick")
    return 0


def _server(
    metrics_server: str | None, metrics_selector: str | None, broker_label: str | None
) -> dict[str, str]:
    """The keys of a Prometheus server, from options and from answers."""
    if metrics_server is None:
        metrics_server = _prompt("URL of the Prometheus server")
    if metrics_selector is None:
        metrics_selector = _prompt("Matchers of the brokers' exporters", default='job="kafka"')
    if broker_label is None:
        broker_label = _prompt("Label that distinguishes the brokers", default="instance")
    return {"server": metrics_server, "selector": metrics_selector, "broker_label": broker_label}


def _choice(question: str, answers: Sequence[str]) -> str:
    return str(_prompt(question, type=click.Choice(answers), default=answers[0]))


def _prompt(question: str, **options: Any) -> Any:
    """The user's answer.

    Raises:
        ConfigError: standard input is not a terminal.
    """
    try:
        return click.prompt(question, **options)
    except click.Abort:
        if sys.stdin.isatty():  # the user pressed ^C
            raise
        raise ConfigError(
            f"the question {question!r} has no answer; expected a terminal, or all answers as "
            "options; see redline init --help"
        ) from None


def document(
    servers: str,
    protocol: str,
    mechanism: str | None,
    cafile: str | None,
    metrics: str,
    metrics_port: int | None = None,
    server: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The content of the cluster file.

    Args:
        server: the keys of a Prometheus server; None if the metrics have another source.
    """
    found: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in servers.split(",") if each.strip()]
    }
    if metrics == "jmx":
        found["jmx"] = {"port": metrics_port or PORTS[metrics]}
    elif metrics == "prometheus":
        found["metrics"] = {"prometheus": {"port": metrics_port or PORTS[metrics]}}
    elif server is not None:
        found["metrics"] = {"prometheus": server}
    else:
        found["metrics"] = {"client_only": True}
    security: dict[str, Any] = {} if protocol == "PLAINTEXT" else {"protocol": protocol}
    if mechanism is not None:
        security["sasl_mechanism"] = mechanism
    if mechanism not in (None, "GSSAPI"):
        security["username_from"] = "env:KAFKA_USERNAME"
        security["password_from"] = "env:KAFKA_PASSWORD"
    if cafile:
        security["cafile"] = cafile
    return {**found, "security": security} if security else found


def _environment_variables(content: dict[str, Any]) -> list[str]:
    """The names of the environment variables that the file refers to."""
    values = content.get("security", {}).values()
    return [each.removeprefix("env:") for each in values if str(each).startswith("env:")]


def _check(file: Path, text: str) -> None:
    """Write the file. If a run would refuse the file, restore the previous state.

    Raises:
        ConfigError: a run would refuse the file, or the file cannot be written.
    """
    from jobs.config.loading import load_cluster

    before = file.read_text(encoding="utf-8") if file.exists() else None
    write_file("FILE", file, text)
    try:
        load_cluster(str(file))
    except ConfigError:
        if before is None:
            file.unlink()
        else:
            write_file("FILE", file, before)
        raise


if __name__ == "__main__":
    run(init)
