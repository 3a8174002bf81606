"""The port through which a run uses its tables; `TableStore` implements it with Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.cases import CaseRow
from metrics.tables.schema import RunRow
from metrics.traffic.axes import NP, Axis
from metrics.trial.trial import Trial


class RunTables(Protocol):
    """The tables of a run: appends in the background, and reads by run.

    An append that is repeated adds nothing. Each read waits for all appends before it.
    """

    def address(self, table: str) -> str:
        """The place of a table, for messages."""
        ...

    # --- appends ------------------------------------------------------------

    def append_run(self, row: RunRow, *, is_new: bool = False) -> None:
        """Append the start or the end of a run; `is_new` if the tables have no rows of it."""
        ...

    def append_trial(
        self,
        trial: Trial,
        samples: Sequence[BrokerSample] = (),
        hosts: Sequence[HostSample] = (),
    ) -> None:
        """Append a trial with its samples, in the order of the trials' numbers."""
        ...

    def append_boundary(self, row: BoundaryRow) -> None:
        """Append the result of the search at one message size, for one goal."""
        ...

    def append_case(self, row: CaseRow) -> None:
        """Append the measurement or the judgment of a case of a night."""
        ...

    def settle(self) -> None:
        """Wait until all appends are durable.

        Raises:
            ConfigError: an append failed.
        """
        ...

    def compact(self) -> None:
        """Merge small files, where the tables have any; called at the end of a run."""
        ...

    def close(self) -> None:
        """Wait for all appends; nothing is appended after it.

        Raises:
            ConfigError: an append failed.
        """
        ...

    # --- reads --------------------------------------------------------------

    def run_rows(self, run_id: str) -> list[RunRow]:
        """The newest row of a run; empty if the run does not exist."""
        ...

    def trials_of(self, run_id: str) -> list[Trial]:
        """The trials of a run in order, without the counts of single producers."""
        ...

    def next_trial(self, run_id: str) -> int:
        """The number after the run's last trial; 1 without trials."""
        ...

    def payload_bytes(self, run_id: str) -> float:
        """The payload that the trials of a run have written, including all replicas [B]."""
        ...

    def samples_of(self, run_id: str) -> Mapping[int, Sequence[BrokerSample]]:
        """Number of the trial → samples of the run's brokers."""
        ...

    def host_samples_of(self, run_id: str) -> Mapping[int, Sequence[HostSample]]:
        """Number of the trial → samples of the run's hosts."""
        ...

    def cases(self, suite: str, cluster: str) -> list[CaseRow]:
        """All nights of a suite on a cluster, one row for each case, the oldest first."""
        ...

    def latest_limit(
        self, cluster: str, workload: str, goal: str, message_bytes: int, axis: Axis = NP
    ) -> int | None:
        """The newest limit along an axis with these names; None without."""
        ...
