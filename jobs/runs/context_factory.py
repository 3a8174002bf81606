"""The factory of a run's context: it opens all resources of the run after cheap checks."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.checks.cluster import permission_findings
from jobs.checks.finding import Severity, require_ready
from jobs.checks.session import SessionReport, check_session
from jobs.cluster.admin import AdminError
from jobs.cluster.given_topics import GivenTopic, fitted, given_topics, notes, warnings
from jobs.cluster.lock import ClusterLock, RunLocks
from jobs.cluster.opening import (
    OpenCluster,
    delete_delay_s,
    open_cluster,
    queue_limits,
    require_fitting,
    window_needed_s,
)
from jobs.cluster.permissions import require_throttling_seen
from jobs.cluster.sources import open_hosts, open_metrics, require_sources
from jobs.cluster.topic_plan import leftovers
from jobs.cluster.topics import Topics
from jobs.config import Configuration
from jobs.console.events import PhaseStarted, Reporter, note, warn
from jobs.runs.cluster_cleanup import delete_and_report
from jobs.runs.environment import environment_of
from jobs.runs.options import RunOptions
from jobs.spark.compatibility import is_submitted
from jobs.spark.session import close_session, local_session
from jobs.trials.canaries import open_canaries
from jobs.trials.context import RunContext, Session, TrialHistory
from jobs.trials.control_server import control_of
from jobs.trials.guards import open_guards
from jobs.trials.load import Generator, require_room
from metrics.sources.first_polls import least_interval_s, slower_sampling, take_first_polls
from metrics.sources.one_minute_rates import require_whole_ticks, window_least_s
from metrics.sources.shortcomings import is_blind, shortcomings
from metrics.sources.source import MetricsSource, sample_interval_of
from metrics.tables.rows import SweepCase
from metrics.traffic.pattern import SAMPLES_MIN
from metrics.trial.evidence import ClusterFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_spark(stack: ExitStack, slots: int | None = None, log: Path | None = None) -> SparkSession:
    """A Spark session. If this function starts the session, the exit of `stack` closes the session.
    A session that was already active stays open.
    """
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = local_session(slots, log=log)
    if is_ours:
        stack.callback(close_session, spark)
    return spark


def open_session(
    stack: ExitStack, slots: int | None, log: Path | None = None, slots_least: int = 1
) -> Session:
    """Open a Spark session, which both sides of a comparison can share. The exit of `stack` closes
    the session.

    Args:
        stack: closes the session.
        slots: number of tasks of a local session; None for one task per core.
        log: the log file of Spark and its Python workers; a temporary file by default.
        slots_least: minimum number of tasks of a local session, such as one for each part of a mix;
            has no effect if `slots` is given.
    """
    if slots is None and slots_least > max(2, os.cpu_count() or 2):
        slots = slots_least
    spark = open_spark(stack, slots, log)
    return Session(spark, stack.enter_context(control_of(spark)))


@dataclass(frozen=True)
class RunOrder(RunOptions):
    """The settings of a run: the options of its command line, its id and its reporter.

    Attributes:
        reporter: shows the run's events.
        run_id: the id of the run in tables and topics.
        resumes: whether the job may continue a run with this id, which an earlier process began.
        sweep_case: the case that the run measures in a sweep; empty outside of a sweep.
    """

    reporter: Reporter = field(kw_only=True)
    run_id: str = field(kw_only=True)
    resumes: bool = False
    sweep_case: SweepCase = field(default_factory=SweepCase)

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        return self.out.absolute() / self.run_id


@dataclass(frozen=True)
class ContextFactory:
    """Opens the context of a run, or of one side of a comparison.

    Attributes:
        config: the configuration of this run, or of this side of the comparison.
        order: the settings of the run. The mark on created topics contains the id of the run.
        run_id: the id of this run, or of this side of the comparison, in tables and topics.
        reporter: the reporter of this run, or of this side of the comparison.
        session: a session that this side shares with the other side of the comparison; None to open
            a session.
        cluster: an open cluster that this side shares with the other side of the comparison; None
            to open a cluster.
        locks: takes the cluster's lock before any load; None for a run without locks.
        history: the history of the trials; both sides of a comparison share one sequence of trial
            numbers.
    """

    config: Configuration
    order: RunOrder
    run_id: str
    reporter: Reporter
    session: Session | None = None
    cluster: OpenCluster | None = None
    locks: RunLocks | None = None
    history: TrialHistory = field(default_factory=TrialHistory)

    def open(self, stack: ExitStack) -> RunContext:
        """Open the cluster, the session, the metrics and the tables; the stack closes them.

        Raises:
            ConfigError: the configuration does not fit the cluster or the session, or the user
                lacks a permission.
            TryLaterError: another run has the cluster's lock.
            RedlineError: the cluster, the session or the tables cannot be opened.
        """
        config = self.config
        workload = config.workload
        session = self.session

        def open_spark() -> Session:
            nonlocal session
            if session is None:
                self._phase("starting Spark")
                log, slots = self.order.folder / "spark.log", self.order.slots
                session = open_session(stack, slots, log, workload.slots_least)
            return session

        opened = self.cluster or open_cluster(config.cluster, self.reporter, stack, open_spark)
        require_sources(config.cluster, opened)
        if not config.cluster.is_exclusive:
            require_ready(permission_findings(opened, config, self.run_id, self.locks is not None))
        if is_submitted():  # before the lock, because Spark may wait in a queue
            open_spark()
        lock = self._take_lock(opened, stack)
        given = self._given(opened)
        config = fitted(config, given)
        workload = config.workload
        # An earlier part of a resumed run may have left topics, which must not be used again.
        name = f"{self.run_id}-{secrets.token_hex(2)}" if self.order.resumes else self.run_id
        topics = Topics(
            opened.admin,
            name,
            prefix=config.cluster.name_prefix,
            owner=self.order.run_id,
            is_locked=self.locks is not None,
            given=given,
            release=opened.info.api_version,
            losable=config.goal.search.brokers_offline or 0,
        )
        for each in config.goals:
            require_fitting(opened, workload, each)
        for message_bytes in workload.message_bytes:
            topics.validate(config.heaviest(message_bytes))
        fitting = replace(self, config=config)
        context = fitting._context(opened, topics, stack, lock, open_spark())
        if lock is not None:
            lock.require()
            if self.order.resumes:  # under the lock no other process uses the run's topics
                self._delete_leftovers(opened, topics.name)
        return context

    def _take_lock(self, opened: OpenCluster, stack: ExitStack) -> ClusterLock | None:
        if self.locks is None:
            return None
        lock = self.locks.take(opened, partial(warn, self.reporter), stack)
        if self.config.cluster.topics:
            lock.require()  # another run may still write to these topics
        return lock

    def _given(self, opened: OpenCluster) -> tuple[GivenTopic, ...]:
        """Check and report the topics of `cluster.topics`."""
        cluster, written = self.config.cluster, opened.last_load.written
        given = given_topics(
            opened.admin, cluster, self.order.resumes or {*cluster.topics} <= written
        )
        written.update(cluster.topics)
        for text in notes(self.config, given):
            note(self.reporter, text)
        for text in warnings(given):
            warn(self.reporter, text)
        return given

    def _delete_leftovers(self, opened: OpenCluster, name: str) -> None:
        """Delete the topics and groups that a killed earlier part of this run left on the cluster.

        Args:
            name: beginning of the names that the current process uses. Topics and groups whose
                names have this beginning are kept, because canaries of the current process already
                use them.
        """
        admin = opened.admin
        try:
            prefix, owner = self.config.cluster.name_prefix, self.order.run_id
            begin = f"{prefix}{self.run_id}-"
            own = [
                each
                for each in leftovers(admin, prefix, self.config.cluster.topics)
                if each.run_id == owner
                and each.name.startswith(begin)
                and not each.name.startswith(name)
            ]
        except AdminError as error:
            warn(
                self.reporter,
                f"leftovers of an earlier part of the run stay on the cluster: {error}",
            )
            return
        if own:
            delete_and_report(admin, own, self.reporter, "of an earlier part of the run")

    def _phase(self, text: str) -> None:
        self.reporter.report(PhaseStarted(text))

    def _context(
        self,
        opened: OpenCluster,
        topics: Topics,
        stack: ExitStack,
        lock: ClusterLock | None,
        session: Session,
    ) -> RunContext:
        config, workload = self.config, self.config.workload
        spark, addresses = session.spark, opened.info.addresses
        tables = session.tables(self.order.tables_or_default)
        stack.callback(tables.close)
        ready = self._require_ready(session, opened)
        pattern = config.pattern(workload.message_bytes[0], 1, len(addresses))
        require_room(pattern, ready.slots)
        self._phase("connecting to the brokers' metrics")
        source = open_metrics(config.cluster, opened, getattr(spark, "_jvm", None))
        stack.callback(source.close)
        require_throttling_seen(opened, workload, source.nodes.values())
        hosts = open_hosts(config.cluster, opened)
        stack.callback(hosts.close)
        guards = open_guards(
            config,
            opened.admin,
            self.run_id,
            self.reporter,
            lock,
            self.order.until_s,
        )
        if guards.limits.canary_p99_ms_max and not config.cluster.is_exclusive:
            guards.canaries = open_canaries(
                opened.admin,
                topics.name,
                max(part.topic.replication_factor for part in workload.parts),
                opened.client_kwargs(),
                stack,
                partial(warn, self.reporter),
                topics.mark,
            )
            if guards.canaries is None and guards.limits.fail_closed:
                guards.require_or_warn("there are no canaries")
        if self.locks is None and not config.cluster.is_exclusive and guards.limits.fail_closed:
            guards.require_or_warn(
                "with --no-lock the run does not take the cluster's lock; omit --no-lock"
            )
        if self.order.resumes:
            guards.spent_bytes = tables.payload_bytes(self.run_id)
        polls = take_first_polls(source, hosts)
        interval_s = workload.trial.sample_interval_s
        least_s = least_interval_s(polls, workload.trial.measure_s, SAMPLES_MIN)
        require_whole_ticks(source.nodes, workload.trial.measure_s, max(interval_s, least_s))
        caveats = (
            *shortcomings(source.nodes, max(interval_s, least_s)),
            *slower_sampling(polls, interval_s, least_s),
        )
        for caveat in caveats:
            self._phase(caveat)
        return RunContext(
            run_id=self.run_id,
            session=session,
            cluster=opened,
            config=config,
            facts=self._facts(opened, source, max(interval_s, least_s)),
            reporter=self.reporter,
            generator=Generator(
                spark,
                ready.slots,
                opened.client_kwargs(),
                session.control,
                network_namespace=opened.network_namespace,
                interface_speeds=opened.interface_speeds,
                report=self._phase,
                name_prefix=config.cluster.name_prefix,
            ),
            topics=topics,
            guards=guards,
            addresses=addresses,
            source=source,
            hosts=hosts,
            tables=tables,
            environment={
                **environment_of(spark, source.nodes, opened, config),
                **ready.environment,
            },
            caveats=caveats,
            canaries=guards.canaries,
            sample_interval_min_s=least_s,
            sweep_case=self.order.sweep_case,
            history=self.history,
            broker_outage=opened.outage(self.reporter),
        )

    def _require_ready(self, session: Session, opened: OpenCluster) -> SessionReport:
        self._phase("checking Spark's executors, and opening the Delta tables")
        cluster, workload = self.config.cluster, self.config.workload
        report = check_session(
            session.spark,
            session.control,
            cluster,
            workload,
            opened.info.addresses,
            self.order.slots,
            opened.network_namespace,
        )
        require_ready(report.findings)
        for each in report.findings:
            if each.severity is Severity.WARNING:
                warn(self.reporter, each.sentence)
        return report

    def _facts(self, opened: OpenCluster, source: MetricsSource, interval_s: float) -> ClusterFacts:
        queues = (queue_limits(opened, goal) for goal in self.config.goals)
        return ClusterFacts(
            is_blind=is_blind(source.nodes),
            isr_window_s=window_needed_s(opened, self.config.workload),
            rate_window_s=max(
                window_least_s(source.nodes, interval_s) or 0.0,
                SAMPLES_MIN * sample_interval_of(source, 0.0),
            )
            or None,
            queued_max_requests=next((each for each in queues if each), {}),
            delete_delay_s=delete_delay_s(opened),
            followers=max(each.topic.replication_factor for each in self.config.workload.parts) - 1,
        )
