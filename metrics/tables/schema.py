"""The Delta tables: one dataclass per row, from which the table's schema is derived.

Units stand at the end of the names; a column without one is a count, a ratio or a name.
Rates are derived from whole counts by whoever reads. Null means not known. Columns are
only ever added, so an older table takes newer rows and the other way round.
"""

from __future__ import annotations

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
from metrics.tables.membership import Membership
from metrics.trial.trial import Trial


@dataclass(frozen=True)
class RunRow:
    """A run; one row when it starts and one when it ends, told apart by `event`.

    Attributes:
        run_id: names the run in all tables.
        event: `started` or `finished`.
        at_s: when.
        cluster, workload, goal: names of the configuration.
        brokers: number of brokers.
        status: `running`, then as in summary.json: `done`, `no conclusion`, …
        exit_code: what the command returned; null while running.
        error: the sentence that the user was shown, or null.
        config: the whole configuration as resolved, JSON, without secrets.
        environment: what one needs to compare runs: versions, cores, memory, …
        caveat: what a reader must know about the cluster, such as that it is not real hardware.
        member: which case of which sweep it measured.
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
    member: Annotated[Membership, Flat()] = field(default_factory=Membership)


@dataclass(frozen=True)
class SampleRow:
    """One poll of one broker or controller.

    Attributes:
        run_id: the run that it belongs to.
        trial: number of the trial within the run.
        sample: what was read.
    """

    run_id: str
    trial: int
    sample: Annotated[BrokerSample, Flat()]


@dataclass(frozen=True)
class HostRow:
    """One look at one host, of brokers or of the generator.

    Attributes:
        run_id: the run that it belongs to.
        trial: number of the trial within the run.
        sample: what was read.
    """

    run_id: str
    trial: int
    sample: Annotated[HostSample, Flat()]


ROWS: Mapping[str, type[Any]] = {
    "runs": RunRow,
    "trials": Trial,
    "samples": SampleRow,
    "hosts": HostRow,
    "boundaries": BoundaryRow,
    "cases": CaseRow,
}
"""Table → the record that each of its rows is made of."""

SCHEMAS: Mapping[str, pa.Schema] = {table: schema_of(row) for table, row in ROWS.items()}
"""Arrow schema of each table: `runs`, `trials`, `samples`, `hosts`, `boundaries`, `cases`."""
