"""`redline init`: writes a cluster file from the answers to at most five questions.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/init.py …
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jobs.console.events import note
from jobs.entry import run
from jobs.options import Count, OutputFile
from metrics.common.errors import ConfigError
from metrics.reporting.files import write_file

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "GSSAPI")
METRICS = ("jmx", "prometheus", "none")

_HEAD = """\
# Written by redline init. All keys: conf/clusters/example.yaml and docs/configuration.md.
# Secrets are references, env:NAME or file:PATH, and never written here.
"""


@click.command("init")
@click.argument("file", metavar="FILE", type=OutputFile())
@click.option("--servers", metavar="HOST:PORT,…", help="Addresses of some brokers.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="Security of the connections.")
@click.option("--mechanism", type=click.Choice(MECHANISMS),
              help="The login, where the protocol has one.")  # fmt: skip
@click.option("--cafile", metavar="FILE",
              help="Whom to trust, where the protocol has TLS; empty: the system's.")  # fmt: skip
@click.option("--metrics", type=click.Choice(METRICS),
              help="Where the brokers show their metrics.")  # fmt: skip
@click.option("--metrics-port", type=Count(1, 65_535),
              help="On every host.  [default: 9999 of JMX, 9404 of Prometheus]")  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(
    file: Path,
    servers: str | None,
    protocol: str | None,
    mechanism: str | None,
    cafile: str | None,
    metrics: str | None,
    metrics_port: int | None,
    force: bool,
) -> int:
    """Write a cluster file from the answers to at most five questions, or from options.

    The file is checked as a run would check it, before it is written.
    """
    if file.exists() and not force:
        raise ConfigError(
            f"{file} is there already; expected a new file; name another, or give --force"
        )
    if servers is None:
        servers = _asked("Addresses of some brokers, with commas between them")
    if protocol is None:
        protocol = _choice("Security of the connections", PROTOCOLS)
    if "SASL" in protocol and mechanism is None:
        mechanism = _choice("The login", MECHANISMS)
    if protocol.endswith("SSL") and cafile is None:
        asked = "The authority's PEM file, empty for those that the system trusts"
        cafile = _asked(asked, default="", show_default=False)
    if metrics is None:
        metrics = _choice("Where the brokers show their metrics", METRICS)
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.console.printing import make_reporter

    told = document(servers, protocol, mechanism, cafile, metrics, metrics_port)
    text = _HEAD + _yaml(told)
    _check(file, text)
    with make_reporter() as reporter:
        note(reporter, f"written: {file}")
        for name in _named(told):
            note(reporter, f"set {name} where runs start")
        note(reporter, f"next: redline doctor --cluster {file} --workload quick")
    return 0


def _choice(question: str, answers: Sequence[str]) -> str:
    return _asked(question, type=click.Choice(answers), default=answers[0])


def _asked(question: str, **options: Any) -> str:
    """What somebody answers.

    Raises:
        ConfigError: nobody can.
    """
    try:
        answer: str = click.prompt(question, **options)
    except click.Abort:
        if sys.stdin.isatty():  # somebody who wants no more of it
            raise
        raise ConfigError(
            f"nobody answers {question!r}; expected a terminal, or all answers as options; see "
            "redline init --help"
        ) from None
    return answer


def document(
    servers: str,
    protocol: str,
    mechanism: str | None,
    cafile: str | None,
    metrics: str,
    metrics_port: int | None = None,
) -> dict[str, Any]:
    """The cluster file as a map."""
    found: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in servers.split(",") if each.strip()]
    }
    if metrics == "jmx":
        found["jmx"] = {"port": metrics_port or 9999}
    elif metrics == "prometheus":
        rules = {"port": metrics_port or 9404, "rules": "kafka-kraft"}
        found["metrics"] = {"prometheus": rules}
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


def _yaml(told: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(told, stream)
    return stream.getvalue()


def _named(told: dict[str, Any]) -> list[str]:
    """Environment variables that the file points at."""
    values = told.get("security", {}).values()
    return [each.removeprefix("env:") for each in values if str(each).startswith("env:")]


def _check(file: Path, text: str) -> None:
    """Write the file, and take it back where a run would refuse it.

    Raises:
        ConfigError: it would; or it cannot be written.
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
