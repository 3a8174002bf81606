"""The Delta tables: one dataclass per row, from which the table's schema is derived.

Units stand at the end of the names; a column without one is a count, a ratio or a name.
Rates are derived from whole counts by whoever reads. Null means not known. Columns are
only ever added, so an older table takes newer rows and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from metrics.reporting.summary import Boundary
from metrics.tables.cases import CaseRow
from metrics.tables.columns import fields_of
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Judgement, Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse
from search.model import Verdict


def utc(at_s: float) -> datetime:
    """A wall-clock time [s since the epoch] as a column holds it."""
    return datetime.fromtimestamp(at_s, tz=timezone.utc)


@dataclass(frozen=True)
class RunRow:
    """A run; one row when it starts and one when it ends, told apart by `event`.

    Attributes:
        run_id: names the run in all tables.
        event: `started` or `finished`.
        at: when.
        cluster, workload, goal: names of the configuration.
        brokers: number of brokers.
        status: `running`, then as in summary.json: `done`, `no conclusion`, …
        exit_code: what the command returned; null while running.
        error: the sentence that the user was shown, or null.
        config: the whole configuration as resolved, JSON, without secrets.
        environment: what one needs to compare runs: versions, cores, memory, …
        caveat: what a reader must know about the cluster (a testbed is not hardware).
    """

    run_id: str
    event: str
    at: datetime
    cluster: str
    workload: str
    goal: str
    brokers: int | None = None
    status: str = "running"
    exit_code: int | None = None
    error: str | None = None
    config: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    caveat: str | None = None


@dataclass(frozen=True)
class Pattern:
    """A traffic pattern, one column per parameter.

    Attributes:
        bpm: bytes per message [B].
        np: identical producers.
        rate_records_per_s: what each of them offers [1/s].
        acks: `0`, `1` or `all`.
        linger_ms: how long an unfilled batch waits for more records.
        batch_size_bytes: upper bound of a batch, one record excepted.
        max_in_flight: unanswered requests of a connection.
        buffer_memory_bytes: batches that may wait for a slow broker, of one producer.
        max_request_bytes: upper bound of a produce request, one batch excepted.
        request_timeout_ms: an unanswered request fails after this time.
        topics: that producers take in turns, one each.
        partitions_per_broker: that each broker leads, of each topic.
        replication_factor: replicas of each partition, the leader included.
        brokers: of the cluster.
        payload: kind of the values, `random` bytes by default.
        message_sizes: their distribution around `bpm`, `fixed` by default.
        key_bytes: size of a key, which is a part of `bpm`; 0 without keys.
        headers: of a message.
        compression: of the batches that producers send.
        arrivals: when messages are due, `fixed` at even distances by default.
        ramp_up_s: how long the rate grew evenly from 0, within the warm-up.
        consumer_groups: that each read everything.
        client: which producer client sent, `wire` by default.
        axis, load: what was searched along, and where on it this pattern lies.
        point_bpm: message size of the boundary point that it was offered for [B].
    """

    bpm: int
    np: int
    rate_records_per_s: float
    acks: str
    linger_ms: float
    batch_size_bytes: int
    max_in_flight: int
    buffer_memory_bytes: int
    max_request_bytes: int
    request_timeout_ms: int
    partitions_per_broker: int
    replication_factor: int
    brokers: int
    payload: str = "random"
    compression: str = "none"
    consumer_groups: int = 0
    client: str = "wire"
    axis: str = "np"
    load: int | None = None
    point_bpm: int | None = None
    message_sizes: str = "fixed"
    key_bytes: int = 0
    headers: int = 0
    arrivals: str = "fixed"
    ramp_up_s: float = 0.0
    topics: int = 1


@dataclass(frozen=True)
class Trial:
    """One trial with all that led to its verdict.

    Attributes:
        trial: number of the trial within the run, from 1.
        topic: that was written to; the first of several.
        started_at_s, finished_at_s: all phases [s since the epoch].
        pattern: what was offered.
        client: what the generator did.
        brokers, controllers: what the cluster did.
        judgement: what it means.
        metrics_source: `driver-jvm`, `jmxquery`, …
        end_offset_growth_records: growth of the end offsets over the trial, or None.
        recovery_s: from the end of an overload until the brokers were at rest [s]; None
            when it was no overload, or when they did not come to rest.
        verdicts: goal → its judgement, of all goals that the run judges by.
    """

    run_id: str
    trial: int
    topic: str
    started_at_s: float
    finished_at_s: float
    pattern: Pattern
    client: ClientWindow
    brokers: tuple[BrokerWindow, ...]
    judgement: Judgement
    metrics_source: str
    controllers: tuple[BrokerWindow, ...] = ()
    end_offset_growth_records: int | None = None
    recovery_s: float | None = None
    verdicts: Mapping[str, Judgement] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialHead:
    """One trial: what was offered, what the generator and the brokers did, what it means.

    Attributes:
        run_id: the run that it belongs to.
        trial: its number within the run, from 1.
        started_at, finished_at: all phases.
        topic: that was written to.
    """

    run_id: str
    trial: int
    started_at: datetime
    finished_at: datetime
    topic: str


@dataclass(frozen=True)
class TrialWindow:
    """The measured part of a trial.

    Attributes:
        window_start, window_end: the measured window, all counts below are of.
    """

    window_start: datetime
    window_end: datetime


@dataclass(frozen=True)
class TrialTail:
    """What a trial means, and the evidence.

    Attributes:
        verdict: `SUSTAINED`, `OVERLOADED` or `INVALID`.
        reasons: why, the most telling first.
        limited_by: the resource that bound the brokers, of an overload.
        attribution: the evidence for it in a sentence.
        utilization: indicator → how near it was to its threshold; 1 at it, above 1 beyond.
        broker_windows: what each broker did in the window.
        controller_windows: the same of controllers whose metrics are known.
        metrics_source: `driver-jvm`, `jmxquery`, …
        end_offset_growth_records: growth of the end offsets over the whole trial.
        resources: the USE table, a row for each resource of each broker.
        recovery_s: from the end of an overload until the brokers were at rest [s].
        verdicts: goal → its judgement, of all goals that the run judges by.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    limited_by: Resource | None
    attribution: str
    utilization: Mapping[str, float]
    broker_windows: tuple[BrokerWindow, ...]
    controller_windows: tuple[BrokerWindow, ...]
    metrics_source: str
    end_offset_growth_records: int | None
    resources: tuple[ResourceUse, ...]
    recovery_s: float | None
    verdicts: Mapping[str, Judgement]


@dataclass(frozen=True)
class SampleRow:
    """One poll of one broker or controller.

    Attributes:
        run_id: the run that it belongs to.
        trial: number of the trial within the run.
        broker_id: node id.
        at: the poll's middle.
        error: why the poll failed, or null.
        readings: by the names of `metrics.sources.beans`.
    """

    run_id: str
    trial: int
    broker_id: int
    at: datetime
    error: str | None
    readings: Mapping[str, float]


@dataclass(frozen=True)
class BoundaryHead:
    """The end of the search at one message size.

    Attributes:
        run_id: the run that it belongs to.
        at: when it ended.
        cluster, workload, goal: names of the configuration.
    """

    run_id: str
    at: datetime
    cluster: str
    workload: str
    goal: str


_ALL: frozenset[str] = frozenset()
CLIENT_SKIP = frozenset({"np", "start_s", "end_s"})
"""What a trial's row has of the pattern and of `TrialWindow` already."""

BOUNDARY_SKIP = frozenset({"goal"})
"""What a boundary's row has of `BoundaryHead` already."""

ROWS: Mapping[str, tuple[tuple[type[Any], frozenset[str]], ...]] = {
    "runs": ((RunRow, _ALL),),
    "trials": (
        (TrialHead, _ALL),
        (Pattern, _ALL),
        (TrialWindow, _ALL),
        (ClientWindow, CLIENT_SKIP),
        (TrialTail, _ALL),
    ),
    "samples": ((SampleRow, _ALL),),
    "boundaries": ((BoundaryHead, _ALL), (Boundary, BOUNDARY_SKIP)),
    "cases": ((CaseRow, _ALL),),
}
"""The dataclasses side by side in each table's rows, each with its fields that are left out."""

SCHEMAS: Mapping[str, pa.Schema] = {
    table: pa.schema([column for row, skip in parts for column in fields_of(row, skip)])
    for table, parts in ROWS.items()
}
"""Arrow schema of each table: `runs`, `trials`, `samples`, `boundaries`, `cases`."""
