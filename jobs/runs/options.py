"""The command-line options that the jobs share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """The options of a job that loads a cluster; `redline doctor` checks a run with these options.

    Attributes:
        out: the folder that contains the run's own folder.
        tables: path or catalog name of the Delta tables; None for a folder in `out`.
        slots: number of tasks that share the load; None for as many tasks as Spark can run at once.
        dry_run: whether the job only shows its plan.
        yes: whether the job skips the question for consent, which it otherwise asks before it loads
            a cluster with other users.
        locks: whether the run takes the clusters' locks.
        metrics_at: host and port of the live metrics for Prometheus; None without live metrics.
        notify_from: the places that contain the addresses for messages; each place has the form
            `env:NAME` or `file:PATH`.
        json_file: the file of `--json` for a copy of the answer; None without this option.
        until_s: the time by which each load ends [s since the epoch]; None for no such time.
    """

    out: Path
    tables: str | None = None
    slots: int | None = None
    dry_run: bool = False
    yes: bool = False
    locks: bool = True
    metrics_at: tuple[str, int] | None = None
    notify_from: tuple[str, ...] = ()
    json_file: Path | None = None
    until_s: float | None = None

    @property
    def tables_or_default(self) -> str:
        """The path or catalog name of the Delta tables; by default a folder in `out`."""
        return self.tables or str(self.out.absolute() / "tables")
