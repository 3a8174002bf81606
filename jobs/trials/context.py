"""All that is open while a run lasts: Spark, the cluster, its metrics, the tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.cluster.topics import Topics
from jobs.config import Goal, Workload
from jobs.console.events import Reporter
from jobs.trials.driver_line import ControlServer
from jobs.trials.guards import Guards
from jobs.trials.load import Generator
from metrics.judging.thresholds import Thresholds
from metrics.sources.source import MetricsSource
from metrics.tables.store import TableStore
from metrics.trial.evidence import ClusterFacts
from metrics.trial.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Session:
    """A Spark session, and where its tasks report to this driver."""

    spark: SparkSession
    control: ControlServer


@dataclass
class RunContext:
    """What trials share.

    Attributes:
        session: that runs their loads.
        goal: the first goal, whose axis is searched along.
        thresholds: goal → its numbers, the first goal first; a trial is judged by all.
        guards: what ends the run to protect the cluster.
        check_cluster: raises when the cluster has ended by itself.
        addresses: broker id → advertised (host, port).
        facts: what trials are judged by beside the thresholds.
        link_mbit_per_s: stated speed of the brokers' interfaces, or None [Mbit/s].
        numbers: numbers the trials of the run, from 1.
        trials: the finished ones, oldest first.
        caveats: what the metrics cannot show, a sentence each.
    """

    run_id: str
    session: Session
    workload: Workload
    goal: Goal
    thresholds: Mapping[str, Thresholds]
    reporter: Reporter
    generator: Generator
    topics: Topics
    guards: Guards
    check_cluster: Callable[[], None]
    addresses: Mapping[int, tuple[str, int]]
    source: MetricsSource
    tables: TableStore
    environment: dict[str, str]
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    link_mbit_per_s: float | None = None
    caveats: tuple[str, ...] = ()
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    trials: list[Trial] = field(default_factory=list)

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has."""
        return len(self.addresses)
