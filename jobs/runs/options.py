"""What a command line says of a run itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """What the command line of any job that loads a cluster says of the run itself.

    Attributes:
        out: where the run's own folder is made.
        tables: path or catalog name of the Delta tables; None for a folder in `out`.
        slots: tasks that share the load; None for as many as Spark can run at once.
        dry_run: whether the plan is all that is wanted.
        yes: whether a cluster with other users may be loaded without asking.
        locks: whether the clusters' locks are taken.
        metrics_at: host and port where Prometheus reads live values; None for nowhere.
        notify_from: where the addresses of messages are, `env:NAME` or `file:PATH` each.
        json_file: where the answer is written besides its place in `out`; None for nowhere.
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

    @property
    def tables_or_default(self) -> str:
        """Where the tables are."""
        return self.tables or str(self.out.absolute() / "tables")
