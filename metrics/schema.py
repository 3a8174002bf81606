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

from metrics.columns import fields_of, plain
from metrics.evidence import BrokerSample, ClientWindow, Judgement, Reason, Resource
from metrics.summary import Boundary
from metrics.use import ResourceUse, use_table
from metrics.windows import BrokerWindow
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


@dataclass(frozen=True)
class Trial:
    """One trial with all that led to its verdict.

    Attributes:
        trial: number of the trial within the run, from 1.
        topic: that was written to.
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
class GoalVerdict:
    """What a goal says of a trial; `reason` is the first of its reasons, or empty."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class _TrialHead:
    run_id: str
    trial: int
    started_at: datetime
    finished_at: datetime
    topic: str


@dataclass(frozen=True)
class _TrialTail:
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
    verdicts: Mapping[str, GoalVerdict]


@dataclass(frozen=True)
class SampleRow:
    """One poll of one broker or controller.

    Attributes:
        trial: number of the trial within the run.
        broker_id: node id.
        at: the poll's middle.
        error: why the poll failed, or null.
        readings: by the names of `metrics.beans`.
    """

    run_id: str
    trial: int
    broker_id: int
    at: datetime
    error: str | None
    readings: Mapping[str, float]


@dataclass(frozen=True)
class _BoundaryHead:
    run_id: str
    at: datetime
    cluster: str
    workload: str
    goal: str


_CLIENT_SKIP = frozenset({"np", "start_s", "end_s"})
_CLIENT_WINDOW = (
    pa.field("window_start", pa.timestamp("us", tz="UTC")),
    pa.field("window_end", pa.timestamp("us", tz="UTC")),
)

SCHEMAS: Mapping[str, pa.Schema] = {
    "runs": pa.schema(fields_of(RunRow)),
    "trials": pa.schema(
        [
            *fields_of(_TrialHead),
            *fields_of(Pattern),
            *_CLIENT_WINDOW,
            *fields_of(ClientWindow, _CLIENT_SKIP),
            *fields_of(_TrialTail),
        ]
    ),
    "samples": pa.schema(fields_of(SampleRow)),
    "boundaries": pa.schema([*fields_of(_BoundaryHead), *fields_of(Boundary)]),
}
"""Arrow schema of each table: `runs`, `trials`, `samples`, `boundaries`."""


def run_record(row: RunRow) -> dict[str, Any]:
    """A row of `runs`."""
    record: dict[str, Any] = plain(row)
    return record


def trial_record(trial: Trial) -> dict[str, Any]:
    """A row of `trials`: pattern, client's account and judgement side by side."""
    head = _TrialHead(
        trial.run_id, trial.trial, utc(trial.started_at_s), utc(trial.finished_at_s), trial.topic
    )
    tail = _TrialTail(
        verdict=trial.judgement.verdict,
        reasons=trial.judgement.reasons,
        limited_by=trial.judgement.limited_by,
        attribution=trial.judgement.attribution,
        utilization=trial.judgement.utilization,
        broker_windows=trial.brokers,
        controller_windows=trial.controllers,
        metrics_source=trial.metrics_source,
        end_offset_growth_records=trial.end_offset_growth_records,
        resources=use_table(trial.brokers),
        recovery_s=trial.recovery_s,
        verdicts={
            goal: GoalVerdict(each.verdict, each.reasons[0].text if each.reasons else "")
            for goal, each in trial.verdicts.items()
        },
    )
    client = {k: v for k, v in plain(trial.client).items() if k not in _CLIENT_SKIP}
    window = {"window_start": utc(trial.client.start_s), "window_end": utc(trial.client.end_s)}
    return {**plain(head), **plain(trial.pattern), **window, **client, **plain(tail)}


def sample_record(run_id: str, trial: int, sample: BrokerSample) -> dict[str, Any]:
    """A row of `samples`."""
    row = SampleRow(run_id, trial, sample.broker_id, utc(sample.at_s), sample.error, sample.values)
    record: dict[str, Any] = plain(row)
    return record


def boundary_record(
    run_id: str, at_s: float, names: tuple[str, str, str], boundary: Boundary
) -> dict[str, Any]:
    """A row of `boundaries`; `names` are those of cluster, workload and goal."""
    return {**plain(_BoundaryHead(run_id, utc(at_s), *names)), **plain(boundary)}
