"""Reads tables that other releases of Spark wrote, and appends to them.

`python -m tests.support.table_exchange NAME FOLDER…` prints, as one line of JSON, the rows that it
found in each folder, and appends the rows of a run NAME to those folders that lack them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jobs.spark.session import close_session, local_session
from metrics.columns import as_document
from metrics.tables import store
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from metrics.tables.views import latest_boundaries, resource_rows
from tests.support.evidence import sample
from tests.support.rows import BOUNDARY, trial

NAMES = ("testbed", "demo", "default")
TRIALS = 2
AT_S = 1_700_000_000.25


def rows_in(tables: TableStore) -> dict[str, Any]:
    """Run → what the tables have of it, through every kind of query that a job makes."""
    limits = latest_boundaries(tables.read("boundaries"))
    return {
        row.run_id: {
            "status": row.status,
            "at": row.at.timestamp(),
            "trials": [as_document(each) for each in tables.trials_of(row.run_id)],
            "samples": sum(map(len, tables.samples_of(row.run_id).values())),
            "resources": resource_rows(tables.trials(row.run_id)).count(),
            "limits": limits.where(limits.run_id == row.run_id).count(),
        }
        for row in tables.runs().orderBy("run_id").collect()
    }


def append(tables: TableStore, run_id: str) -> None:
    tables.append_run(RunRow(run_id, "started", AT_S, run_id, *NAMES[1:]), is_new=True)
    for number in range(1, TRIALS + 1):
        tables.append_trial(trial(number, run_id), [sample(0), sample(1)])
    tables.append_boundary(BoundaryRow(run_id, AT_S, run_id, NAMES[1], BOUNDARY))
    tables.append_run(RunRow(run_id, "finished", AT_S, run_id, *NAMES[1:], status="done"))
    tables.compact()


def main(name: str, folders: list[str]) -> None:
    store.COMPACT_FROM_FILES = 2  # each release also compacts the files of the others
    session = local_session(1, name)
    found = {}
    for folder in folders:
        tables = TableStore(session, folder)
        is_there = (Path(folder) / "runs").is_dir()
        found[Path(folder).name] = rows = rows_in(tables) if is_there else {}
        if name not in rows:
            append(tables.open(), name)
            tables.close()
    close_session(session)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
