"""The open resources of a run (Spark, the cluster, the metrics, the tables), and its finished
trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from jobs.cluster.broker_outage import BrokerOutage
from jobs.cluster.opening import OpenCluster
from jobs.cluster.topics import Topics
from jobs.config import Configuration, Workload
from jobs.console.events import Reporter
from jobs.spark.compatibility import require_safe_commits
from jobs.trials.canaries import Canaries
from jobs.trials.control_server import ControlServer
from jobs.trials.guards import Guards
from jobs.trials.load import Generator
from metrics.judging.thresholds import Thresholds
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.hosts.host_sample import HostSample, HostSource, NoHosts
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource, named_brokers
from metrics.tables.rows import SweepCase
from metrics.tables.store import TableStore
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import ClusterFacts
from metrics.trial.trial import ALL_BROKERS, RunSeries, Trial, WarmUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class TrialHistory:
    """The finished trials of one run. All copies of a `RunContext` share one history.

    Attributes:
        numbers: yields the number of the next trial. The first number is 1; in a resumed run, the
            first number follows the last number in the tables. Both sides of a comparison share
            this iterator.
        trials: the finished trials, oldest first.
        series: the readings of the finished trials over time.
        warm_up: the reading of the last warm-up, which the rows of later trials contain; empty
            before the first warm-up.
        series_doubt: the reason why the exporters' series are still in doubt; empty if a load has
            shown that the series are correct; None before the first load.
        idle_unproven: broker id → a bound for the idle fraction of the request handlers [ratio]. If
            the idle fraction in a trial is below this bound, the broker's series of the idle time
            is correct. A broker is in the map only if the first load did not test this series.
    """

    numbers: Iterator[int] = field(default_factory=partial(count, 1))
    trials: list[Trial] = field(default_factory=list)
    series: RunSeries = field(default_factory=RunSeries)
    warm_up: WarmUp = field(default_factory=WarmUp)
    series_doubt: str | None = None
    idle_unproven: Mapping[int, float] = field(default_factory=dict)

    @property
    def series_caveats(self) -> tuple[str, ...]:
        """Sentences about those series of the exporters that are still in doubt: no load has shown
        that these series are correct.
        """
        shown = {
            window.broker_id
            for trial in self.trials
            for window in trial.evidence.brokers
            if window.handler_idle is not None
            and window.handler_idle < self.idle_unproven.get(window.broker_id, 0.0)
        }
        left = sorted(self.idle_unproven.keys() - shown)
        found = [self.series_doubt] if self.series_doubt else []
        if left:
            found.append(
                f"the series that the run chose on the exporters' pages for {HANDLER_IDLE_NS} is "
                f"not tested, because no load lowered the idle time enough ({named_brokers(left)})"
            )
        return tuple(found)

    def add(
        self, trial: Trial, samples: Iterable[BrokerSample], hosts: Iterable[HostSample] = ()
    ) -> None:
        """Add a finished trial with the samples of its brokers and hosts."""
        self.trials.append(trial)
        self.series.add(trial, samples, hosts)

    def resume(self, trials: Sequence[Trial], series: RunSeries, next_number: int) -> None:
        """Replace the history with the trials of the resumed run.

        Args:
            trials: the finished trials of the resumed run, oldest first.
            series: the readings of these trials over time.
            next_number: number of the next trial, which the tables do not contain yet.
        """
        self.trials, self.series, self.numbers = list(trials), series, count(next_number)


@dataclass(frozen=True)
class Session:
    """A Spark session, with the control server to which the session's tasks connect.

    Attributes:
        spark: the Spark session.
        control: the control server on the driver.
        stores: location → the tables that were opened there with this session.
    """

    spark: SparkSession
    control: ControlServer
    stores: dict[str, TableStore] = field(default_factory=dict)

    def tables(self, location: str) -> TableStore:
        """Return the tables at a location; the first call for a location opens them in the
        background.

        Raises:
            ConfigError: two runs that write at this location at the same time could lose commits.
        """
        if location not in self.stores:
            require_safe_commits(self.spark, location)
            self.stores[location] = TableStore(self.spark, location).open()
        return self.stores[location]


@dataclass(frozen=True)
class RunContext:
    """The open resources and settings that the trials of a run share.

    If a part of the run has another configuration or fewer brokers, this part has a copy of the
    context, made by `dataclasses.replace`. All copies share one `history`.

    Attributes:
        run_id: the id of the run, or of one side of a comparison, in tables and topics.
        session: the Spark session that runs the load of the trials.
        cluster: the cluster under load; both sides of a comparison may share it.
        config: the configuration of the trials and of their judgement.
        reporter: shows the run's events.
        generator: offers the loads of the trials.
        topics: creates and deletes the topics of the run.
        guards: the guards, which end the run to protect the cluster.
        addresses: broker id → advertised (host, port).
        source: the metrics of brokers and controllers.
        tables: the Delta tables of the run.
        environment: facts for a comparison with other runs: versions, properties, cores, memory.
        hosts: the metrics of the brokers' machines.
        facts: properties of the cluster that the judgement of a trial needs.
        caveats: sentences about what the metrics cannot show.
        state: the state of the cluster for the rows of trials, such as `1 broker offline`.
        broker_outage: takes brokers out of service; None if the cluster does not support it.
        sweep_case: the case that the run measures in a sweep; empty outside of a sweep.
        history: the finished trials. During the run, this is the only attribute that changes.
        canaries: small clients that measure how the loads affect other clients; None on a cluster
            without other clients.
        sample_interval_min_s: shortest supported time between two samples of a broker's metrics
            [s], which every `config` of the run respects.
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
    environment: Mapping[str, str]
    hosts: HostSource = field(default_factory=NoHosts)
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    caveats: tuple[str, ...] = ()
    state: str = ALL_BROKERS
    broker_outage: BrokerOutage | None = None
    sweep_case: SweepCase = field(default_factory=SweepCase)
    history: TrialHistory = field(default_factory=TrialHistory)
    canaries: Canaries | None = None
    sample_interval_min_s: float = 0.0

    def __post_init__(self) -> None:
        """Lengthen the sampling interval of the configuration if the metrics sources need a longer
        one.
        """
        if self.sample_interval_min_s:
            kept = self.config.sampled_every(self.sample_interval_min_s)
            object.__setattr__(self, "config", kept)

    @property
    def all_caveats(self) -> tuple[str, ...]:
        """Sentences about what the metrics cannot show, about the leaders of the topics, and about
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
        """Goal → its thresholds, in the order of the goals; each trial is judged by all goals."""
        return {goal.name: goal.thresholds for goal in self.config.goals}

    def pattern(self, message_bytes: int, load: int) -> TrafficPattern:
        """The traffic pattern at a load; see `Configuration.pattern`."""
        return self.config.pattern(message_bytes, load, self.brokers)

    @property
    def brokers(self) -> int:
        """The number of brokers of the cluster."""
        return len(self.addresses)
