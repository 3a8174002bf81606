"""The rows of the Delta tables as dataclasses, from which the schemas are derived.

Names end in the unit; a column without a unit is a count, a ratio or a name. Tables store whole
counts, from which readers derive rates. Null means not known. New versions only add columns, so
tables accept rows of older and newer versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa

from metrics.arrow_schema import schema_of
from metrics.columns import Column, Flat, Moment
from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.cases import CaseRow
from metrics.tables.headroom import HeadroomRow
from metrics.tables.parts import PartRow
from metrics.tables.sweep_case import SweepCase
from metrics.trial.trial import Trial


@dataclass(frozen=True)
class RunRow:
    """A run: one row for its start and one for its end.

    Attributes:
        run_id: id of the run in all tables.
        event: `started` or `finished`.
        at_s: time of the event.
        cluster, workload, goal: name of the configuration file.
        brokers: number of brokers.
        status: `running`, then as in summary.json: `done`, `no conclusion`, …
        exit_code: exit code of the command; null while running.
        error: the error message that the user saw, or null.
        config: the complete resolved configuration without secrets, as JSON.
        environment: facts that a comparison of runs needs: versions, cores, memory, …
        caveat: a restriction of the cluster, for example that it is not real hardware.
        sweep_case: the case of a sweep that the run measures.
        measurement: the question that the run answers: `limit`, `load`, `fill`, `drain`, `failover`
            or the name of an installed one; null for a night, a side of a comparison, and runs of
            older versions.
    """

    run_id: str
    event: str
    at_s: Annotated[float, Moment(), Column("at")]
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
    sweep_case: Annotated[SweepCase, Flat()] = field(default_factory=SweepCase)
    measurement: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration: kind of the file → its flat keys; empty where the row has none."""
        kept: dict[str, Any] = json.loads(self.config or "{}")
        return kept


@dataclass(frozen=True)
class SampleRow:
    """One sample of one broker or controller.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        sample: the readings.
    """

    run_id: str
    trial: int
    sample: Annotated[BrokerSample, Flat()]


@dataclass(frozen=True)
class HostRow:
    """One sample of one host of brokers or of the generator.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        sample: the readings.
    """

    run_id: str
    trial: int
    sample: Annotated[HostSample, Flat()]


ROWS: Mapping[str, type[Any]] = {
    "runs": RunRow,
    "trials": Trial,
    "parts": PartRow,
    "samples": SampleRow,
    "hosts": HostRow,
    "boundaries": BoundaryRow,
    "cases": CaseRow,
    "headroom": HeadroomRow,
}
"""Table → the dataclass of its rows."""

SCHEMAS: Mapping[str, pa.Schema] = {table: schema_of(row) for table, row in ROWS.items()}
"""Arrow schema of each table, by its name."""
