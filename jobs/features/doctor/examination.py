"""All checks before any load, in order. A problem skips only the checks that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from jobs.checks.cluster import cluster_findings, metrics_findings
from jobs.checks.finding import Finding, checked, ok, problems_from, problems_of, skipped
from jobs.checks.session import check_session
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.permissions import require_throttling_seen
from jobs.cluster.sources import open_hosts, open_metrics
from jobs.config import Cluster, Configuration, Workload, load, load_cluster, load_workload
from jobs.config.loading import load_goals
from jobs.console.events import PhaseStarted, Reporter
from jobs.features.doctor.machine import SPARK, machine_findings, place_findings
from jobs.runs.context_factory import open_session
from jobs.runs.options import RunOptions
from jobs.spark.compatibility import require_safe_commits
from jobs.trials.context import Session
from jobs.trials.load import require_room
from metrics.common.errors import RedlineError

Opened = TypeVar("Opened")


@dataclass
class Examination:
    """Makes all checks, and collects their findings.

    Args:
        cluster, workload, goal, overrides: as in `jobs.config.load`.
        options: the places of the results, the requested tasks, and whether the run would take the
            cluster's lock.
        reporter: shows the progress.
        starts: whether to start brokers that a run would start, and stop them after the checks.
    """

    cluster: str
    workload: str
    goal: str
    overrides: Sequence[str]
    options: RunOptions
    reporter: Reporter
    starts: bool = False
    findings: list[Finding] = field(default_factory=list)

    def make(self) -> list[Finding]:
        """Make all checks, close what they opened, and return the findings in order."""
        cluster, workload, config = self._configuration()
        self._phase("checking this machine")
        out = self.options.out
        self.findings += machine_findings(out, cluster)
        self.findings += place_findings(out, self.options.tables)
        with ExitStack() as stack:
            opened = None if cluster is None else self._cluster(cluster, stack)
            if opened is not None and config is not None:
                self._phase("checking the cluster and its permissions")
                self.findings += cluster_findings(opened, config, self.options.locks)
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
            why = "a run starts these brokers itself; --start does it for these checks, too"
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
            return [ok("commits to tables", "several runs can write at the same time")]

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
