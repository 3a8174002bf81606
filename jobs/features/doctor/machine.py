"""Checks of this machine: Python, Java, jars, disk, memory, ports."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jobs.checks.finding import Finding, checked, ok, problem, problems_of, skipped, warning
from jobs.config.cluster import Cluster, TestbedOptions
from jobs.setup.jars import delta_jars
from jobs.setup.preflight import (
    MIN_DISK_BYTES,
    MIN_MEMORY_BYTES,
    available_memory_bytes,
    disk_problem,
    java_command,
    java_problem,
    java_version,
    memory_problem,
    python_problem,
    this_machine,
)
from jobs.testbed import facade
from metrics.common.errors import ConfigError
from metrics.common.extensions import APIS, installed_names, load_extension

SPARK = "Spark's release"
"""The check on which all others of Spark depend."""
RESULTS_BYTES = 500_000_000
"""Disk space for the tables and files of a run on brokers of other machines [B]."""
DRIVER_BYTES = 1_500_000_000
"""Memory of a driver: its JVM and this process [B]."""


def machine_findings(out: Path, cluster: Cluster | None) -> list[Finding]:
    """Findings about this machine: what it has and what it lacks for a run.

    Args:
        out: folder of the results.
        cluster: the cluster under load; None where its file is wrong.
    """
    machine = this_machine()
    testbed = None if cluster is None else cluster.testbed
    disk_bytes = RESULTS_BYTES if testbed is None else MIN_DISK_BYTES
    memory_bytes = DRIVER_BYTES if testbed is None else MIN_MEMORY_BYTES
    found = [
        _of("Python", python_problem(sys.version_info[:2]), platform.python_version),
        _of("Java", java_problem(machine), _java),
        _of("disk", disk_problem(out, disk_bytes), lambda: _room(out)),
        _of("memory", memory_problem(machine, memory_bytes), _memory),
    ]
    found += extension_findings()
    release = checked(SPARK, lambda: [ok(SPARK, _spark())])
    found += release
    if not problems_of(release):
        found += checked("jars of Delta", _delta)
    if testbed is not None:
        found += checked("jars of Kafka", lambda: _kafka(testbed))
        found += checked("ports", lambda: [ok("ports", facade.check_ports(testbed))])
    return found


def place_findings(out: Path, tables: str | None) -> list[Finding]:
    """Findings about the places of results and tables: whether they are writable.

    Args:
        out: folder of the results.
        tables: path or catalog name of the Delta tables; None for a folder of `out`.
    """
    found = [_writable("results", out)]
    if tables is None:
        return found
    if "/" not in tables or ":" in tables:
        return [*found, skipped("tables", f"only a run writes to {tables}")]
    return [*found, _writable("tables", Path(tables))]


def _writable(check: str, folder: Path) -> Finding:
    existing = _existing(folder)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return ok(check, str(folder))
    return problem(
        check,
        f"{folder} cannot be written, as {existing} is not a folder that this user may write to",
        "a folder for the results",
        "choose another with --out or --tables, or change its permissions",
    )


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    above = (folder.absolute(), *folder.absolute().parents)
    return next(each for each in above if each.exists())


def _of(check: str, trouble: str | None, describe: Callable[[], str]) -> Finding:
    return ok(check, describe()) if trouble is None else problem(check, trouble)


def _java() -> str:
    command = java_command()
    return f"{java_version(command)}, {command}"


def _spark() -> str:
    from jobs.spark.compatibility import require_supported_spark, used_spark

    pair = require_supported_spark()
    return f"{used_spark()}, as {pair}"


def _room(folder: Path) -> str:
    return f"{shutil.disk_usage(_existing(folder)).free / 1e9:.1f} GB free for {folder}"


def _memory() -> str:
    available = available_memory_bytes(this_machine())
    return "unknown" if available is None else f"{available / 1e9:.1f} GB available"


def _delta() -> list[Finding]:
    jars = delta_jars()
    return [ok("jars of Delta", f"{len(jars)} files in {jars[0].parent}")]


def _kafka(testbed: TestbedOptions) -> list[Finding]:
    found = [ok("jars of Kafka", facade.check_kafka(testbed))]
    for check, planted in (("link", facade.check_link), ("planted disks", facade.check_disk)):
        found += checked(check, partial(_planted, check, planted, testbed))
    return found


def _planted(
    check: str, planted: Callable[[TestbedOptions], str | None], testbed: TestbedOptions
) -> list[Finding]:
    text = planted(testbed)
    return [] if text is None else [ok(check, text)]


CHECK = "packages of others"


def extension_findings() -> list[Finding]:
    """A finding for each name that a package adds; a broken one matters where it is used."""
    found = []
    for group in APIS:
        for name in installed_names(group):
            try:
                package = load_extension(group, name).package
                found.append(ok(CHECK, f"{name} of {package} ({group})"))
            except ConfigError as error:
                found.append(warning(CHECK, str(error)))
    return found
