"""The open resources of a run: Spark, the cluster, its metrics and the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.cluster.broker_outage import BrokerOutage
from jobs.cluster.opening import OpenCluster
from jobs.cluster.topics import Topics
from jobs.config import Configuration, Workload
from jobs.console.events import Reporter
from jobs.spark.log_stores import require_safe_commits
from jobs.trials.canaries import Canaries
from jobs.trials.control_server import ControlServer
from jobs.trials.guards import Guards
from jobs.trials.history import TrialHistory
from jobs.trials.load import Generator
from metrics.judging.thresholds import Thresholds
from metrics.sources.hosts.source import HostSource, NoHosts
from metrics.sources.source import MetricsSource
from metrics.tables.run_tables import RunTables
from metrics.tables.store import TableStore
from metrics.tables.sweep_case import SweepCase
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import ClusterFacts
from metrics.trial.state import ALL_BROKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Session:
    """A Spark session, and the server to which its tasks connect.

    Attributes:
        stores: the tables that were opened with this session, by location.
    """

    spark: SparkSession
    control: ControlServer
    stores: dict[str, TableStore] = field(default_factory=dict)

    def tables(self, location: str) -> TableStore:
        """Return the tables at a location; the first call opens them in the background.

        Raises:
            ConfigError: two runs that write at the same time would lose commits there.
        """
        if location not in self.stores:
            require_safe_commits(self.spark, location)
            self.stores[location] = TableStore(self.spark, location).open()
        return self.stores[location]


@dataclass(frozen=True)
class RunContext:
    """The open resources and settings that the trials of a run share.

    A part of the run with another configuration, or with fewer brokers, has a copy made by
    `dataclasses.replace`; all copies share the `history`.

    Attributes:
        session: runs the load of the trials.
        cluster: the cluster under load; both sides of a comparison may share it.
        config: the configuration by which trials are made and judged.
        guards: end the run to protect the cluster.
        addresses: broker id → advertised (host, port).
        hosts: the metrics of the brokers' machines.
        facts: properties of the cluster by which trials are judged, beside the thresholds.
        caveats: what the metrics cannot show, a sentence each.
        state: the state of the cluster that the rows of trials state.
        broker_outage: takes brokers out of service; None where the cluster offers no way to.
        open_metrics_without: opens the cluster's metrics without some brokers.
        sweep_case: the case of a sweep that the run measures.
        history: the finished trials; the only part that changes while the run lasts.
        canaries: clients that show what the loads do to others; None on a cluster without others.
        sample_interval_min_s: shortest time between two samples of a broker that the sources of the
            metrics can keep; it holds for each `config` [s].
    """

    run_id: str
    session: Session
    cluster: OpenCluster
    config: Configuration
    reporter: Reporter
    generator: Generator
    topics: Topics
    guards: Guards
    addresses: Mapping[int, tuple[str, int]]
    source: MetricsSource
    tables: RunTables
    environment: Mapping[str, str]
    hosts: HostSource = field(default_factory=NoHosts)
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    caveats: tuple[str, ...] = ()
    state: str = ALL_BROKERS
    broker_outage: BrokerOutage | None = None
    open_metrics_without: Callable[[frozenset[int]], MetricsSource] | None = None
    sweep_case: SweepCase = field(default_factory=SweepCase)
    history: TrialHistory = field(default_factory=TrialHistory)
    canaries: Canaries | None = None
    sample_interval_min_s: float = 0.0

    def __post_init__(self) -> None:
        """Replace an interval between samples that the sources cannot keep."""
        if self.sample_interval_min_s:
            kept = self.config.sampled_every(self.sample_interval_min_s)
            object.__setattr__(self, "config", kept)

    @property
    def all_caveats(self) -> tuple[str, ...]:
        """What the metrics cannot show, what the leaders of the topics mean for the figures, and
        the bounds of the cluster's owner.
        """
        owner = filter(None, [self.guards.owner_words])
        return (*self.caveats, *self.history.series_caveats, *self.topics.caveats, *owner)

    @property
    def workload(self) -> Workload:
        """The workload of the configuration."""
        return self.config.workload

    @property
    def thresholds(self) -> Mapping[str, Thresholds]:
        """Goal → its thresholds, the first goal first; all of them judge a trial."""
        return {goal.name: goal.thresholds for goal in self.config.goals}

    def pattern(self, message_bytes: int, load: int) -> TrafficPattern:
        """The traffic at a load; see `Configuration.pattern`."""
        return self.config.pattern(message_bytes, load, self.brokers)

    @property
    def brokers(self) -> int:
        """The number of brokers of the cluster."""
        return len(self.addresses)
