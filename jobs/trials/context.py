"""All that is open while a run lasts: Spark, the cluster, its metrics, the tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.cluster.opening import OpenCluster
from jobs.cluster.outage import Outage
from jobs.cluster.topics import Topics
from jobs.config import Configuration, Workload
from jobs.console.events import Reporter
from jobs.trials.driver_line import ControlServer
from jobs.trials.guards import Guards
from jobs.trials.load import Generator
from metrics.judging.thresholds import Thresholds
from metrics.reporting.page.series import SeriesOfRun
from metrics.sources.hosts.source import HostSource, NoHosts
from metrics.sources.source import MetricsSource
from metrics.tables.membership import Membership
from metrics.tables.store import TableStore
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import ClusterFacts
from metrics.trial.state import ALL_BROKERS
from metrics.trial.trial import Trial
from metrics.trial.warm_up import WarmUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Session:
    """A Spark session, and where its tasks report to this driver.

    Attributes:
        stores: tables that were opened with it, by where they are.
    """

    spark: SparkSession
    control: ControlServer
    stores: dict[str, TableStore] = field(default_factory=dict)

    def tables(self, where: str) -> TableStore:
        """The tables there, opened once; their creation goes on while all else is opened."""
        if where not in self.stores:
            self.stores[where] = TableStore(self.spark, where).open()
        return self.stores[where]


@dataclass
class RunContext:
    """What trials share.

    Attributes:
        session: that runs their loads.
        cluster: whose brokers are loaded; sides of a comparison may share it.
        config: what the run was told.
        guards: what ends the run to protect the cluster.
        addresses: broker id → advertised (host, port).
        hosts: of the brokers.
        facts: what trials are judged by beside the thresholds.
        numbers: numbers the trials of the run, from 1.
        trials: the finished ones, oldest first.
        series: what their brokers showed over time.
        caveats: what the metrics cannot show, a sentence each.
        state: of the cluster, as trials tell it.
        warm_up: what the warm-up before the first trial read.
        outage: takes brokers away on purpose; None where nobody asks for it.
        without: opens the metrics of the cluster without some brokers.
        member: which case of a sweep the run measures.
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
    tables: TableStore
    environment: dict[str, str]
    hosts: HostSource = field(default_factory=NoHosts)
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    caveats: tuple[str, ...] = ()
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    trials: list[Trial] = field(default_factory=list)
    series: SeriesOfRun = field(default_factory=SeriesOfRun)
    state: str = ALL_BROKERS
    warm_up: WarmUp = field(default_factory=WarmUp)
    outage: Outage | None = None
    without: Callable[[frozenset[int]], MetricsSource] | None = None
    member: Membership = field(default_factory=Membership)

    @property
    def workload(self) -> Workload:
        """What is offered."""
        return self.config.workload

    @property
    def thresholds(self) -> Mapping[str, Thresholds]:
        """Goal → its numbers, the first goal first; a trial is judged by all."""
        return {goal.name: goal.thresholds for goal in self.config.goals}

    def pattern(self, bpm: int, load: int) -> TrafficPattern:
        """The traffic at a load; see `Configuration.pattern`."""
        return self.config.pattern(bpm, load, self.brokers)

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has."""
        return len(self.addresses)
