"""All checks of `redline doctor`, in order. If a check fails, only the checks that depend on it are
skipped.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from jobs.checks.cluster import cluster_findings, metrics_findings
from jobs.checks.finding import (
    Finding,
    checked,
    ok,
    problem,
    problems_from,
    problems_of,
    skipped,
    warning,
)
from jobs.checks.session import check_session
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.permissions import require_throttling_seen
from jobs.cluster.sources import open_hosts, open_metrics
from jobs.config import Cluster, Configuration, Workload, load, load_cluster, load_workload
from jobs.config.cluster import TestbedOptions
from jobs.config.loading import load_goals
from jobs.console.events import PhaseStarted, Reporter
from jobs.runs.context_factory import open_session
from jobs.runs.options import RunOptions
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
from jobs.spark.compatibility import require_safe_commits
from jobs.testbed import facade
from jobs.trials.context import Session
from jobs.trials.load import require_room
from metrics.common.errors import ConfigError, RedlineError
from metrics.common.extensions import APIS, installed_names, load_extension

SPARK = "Spark's release"
"""Name of the check that all other checks of Spark depend on."""
RESULTS_BYTES = 500_000_000
"""Disk space for the tables and files of a run whose brokers are on other machines [B]."""
DRIVER_BYTES = 1_500_000_000
"""Memory for the Spark driver: its JVM and this process [B]."""


def machine_findings(out: Path, cluster: Cluster | None) -> list[Finding]:
    """Findings about this machine: Python, Java, disk, memory, packages, jars and ports.

    Args:
        out: folder of the results.
        cluster: the cluster that a run would load; None if its file is invalid.
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
    """Findings about the folders of the results and the tables: whether this user can write to
    them.

    Args:
        out: folder of the results.
        tables: path or catalog schema of the Delta tables; None for the default folder in `out`.
    """
    found = [_writable("results", out)]
    if tables is None:
        return found
    if "/" not in tables or ":" in tables:
        return [*found, skipped("tables", f"only a run can check whether {tables} is writable")]
    return [*found, _writable("tables", Path(tables))]


def _writable(check: str, folder: Path) -> Finding:
    existing = _existing(folder)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return ok(check, str(folder))
    return problem(
        check,
        f"{folder} cannot be written, because {existing} is not a folder that this user may write "
        "to",
        "a folder for the results",
        "choose another folder with --out or --tables, or change its permissions",
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
    """One finding for each installed extension. A broken extension is only a warning, because not
    every run uses every extension.
    """
    found = []
    for group in APIS:
        for name in installed_names(group):
            try:
                package = load_extension(group, name).package
                found.append(ok(CHECK, f"{name} of {package} ({group})"))
            except ConfigError as error:
                found.append(warning(CHECK, str(error)))
    return found


Opened = TypeVar("Opened")


@dataclass
class Examination:
    """Makes all checks, and collects their findings.

    Args:
        cluster, workload, goal, overrides: as in `jobs.config.load`.
        options: the folders of the results, the number of tasks, and whether a run would take the
            cluster's lock.
        reporter: shows the progress of the checks.
        starts: whether to start the testbed's brokers, and to stop them after the checks.
        probes: whether to create topics as a run does, and to write a record to each broker.
    """

    cluster: str
    workload: str
    goal: str
    overrides: Sequence[str]
    options: RunOptions
    reporter: Reporter
    starts: bool = False
    probes: bool = False
    findings: list[Finding] = field(default_factory=list)

    def make(self) -> list[Finding]:
        """Make all checks, close all connections, and return the findings in order."""
        cluster, workload, config = self._configuration()
        self._phase("checking this machine")
        out = self.options.out
        self.findings += machine_findings(out, cluster)
        self.findings += place_findings(out, self.options.tables)
        with ExitStack() as stack:
            opened = None if cluster is None else self._cluster(cluster, stack)
            if opened is not None and config is not None:
                self._phase("checking the cluster and its permissions")
                self.findings += cluster_findings(opened, config, self.options.locks, self.probes)
            session = self._session(stack, workload)
            if session is not None:
                self._commits(session)
            if session is not None and cluster is not None and workload is not None:
                self._executors(session, cluster, workload, opened)
            if opened is not None and cluster is not None and workload is not None:
                self._metrics(cluster, workload, opened, session, stack)
        return self.findings

    def _configuration(self) -> tuple[Cluster | None, Workload | None, Configuration | None]:
        check, given = "configuration", self.overrides
        cluster = self._try(check, lambda: load_cluster(self.cluster, given))
        workload = self._try(check, lambda: load_workload(self.workload, given))
        goals = self._try(check, lambda: load_goals(self.goal, given))
        if cluster is None or workload is None or goals is None:
            return cluster, workload, None
        config = self._try(check, lambda: load(self.cluster, self.workload, self.goal, given))
        if config is not None:
            names = f"{cluster.name}, {workload.name}, {config.goal_names}"
            self.findings.append(ok(check, names))
        return cluster, workload, config

    def _cluster(self, cluster: Cluster, stack: ExitStack) -> OpenCluster | None:
        check = "cluster"
        if cluster.starts_brokers and not self.starts:
            why = "a run starts these brokers; give --start to start them for the checks"
            self.findings.append(skipped(check, why))
            return None
        opened = self._try(check, lambda: open_cluster(cluster, self.reporter, stack))
        if opened is not None:
            pinned = "as pinned" if cluster.cluster_id else "not pinned by cluster_id"
            found = f"connected; its id is {opened.info.cluster_id}, {pinned}"
            self.findings.append(ok(check, found))
        return opened

    def _session(self, stack: ExitStack, workload: Workload | None) -> Session | None:
        if any(each.check == SPARK for each in problems_of(self.findings)):
            return None
        self._phase("starting Spark")
        least = 1 if workload is None else workload.slots_least
        slots = self.options.slots
        return self._try("Spark", lambda: open_session(stack, slots, slots_least=least))

    def _commits(self, session: Session) -> None:
        def commits() -> list[Finding]:
            require_safe_commits(session.spark, self.options.tables_or_default)
            return [
                ok("commits to tables", "several runs can write to the tables at the same time")
            ]

        self.findings += checked("commits to tables", commits)

    def _executors(
        self, session: Session, cluster: Cluster, workload: Workload, opened: OpenCluster | None
    ) -> None:
        addresses = opened.info.addresses if opened else {}
        self._phase("checking Spark's executors")
        report = self._try(
            "Spark's executors",
            lambda: check_session(
                session.spark,
                session.control,
                cluster,
                workload,
                addresses,
                self.options.slots,
                opened.network_namespace if opened else "",
            ),
        )
        if report is None:
            return
        self.findings += report.findings
        if opened is not None and report.slots:
            pattern = workload.pattern(workload.message_bytes[0], len(addresses))
            self._try("consumer groups", lambda: require_room(pattern, report.slots))

    def _metrics(
        self,
        cluster: Cluster,
        workload: Workload,
        opened: OpenCluster,
        session: Session | None,
        stack: ExitStack,
    ) -> None:
        check, jvm = "brokers' metrics", getattr(session.spark, "_jvm", None) if session else None
        self._phase("reading the brokers' metrics")
        hosts = self._try("brokers' hosts", lambda: open_hosts(cluster, opened))
        if hosts is not None:
            stack.callback(hosts.close)
        source = self._try(check, lambda: open_metrics(cluster, opened, jvm))
        if source is not None:
            stack.callback(source.close)
            self.findings += checked(check, lambda: metrics_findings(source, hosts, workload.trial))
            nodes = source.nodes.values()
            self._try("quotas", lambda: require_throttling_seen(opened, workload, nodes))

    def _try(self, check: str, make: Callable[[], Opened]) -> Opened | None:
        try:
            return make()
        except RedlineError as error:
            self.findings += problems_from(check, error)
            return None

    def _phase(self, text: str) -> None:
        self.reporter.report(PhaseStarted(text))
