"""A process with its own Spark session that writes the rows of a run to the tables.

`python -m tests.support.table_writer TABLES RUN_ID TRIALS` prints `ready` when Spark has started.
When it reads a line, it opens the tables, appends rows and compacts.
"""

from __future__ import annotations

import sys
import time

from jobs.spark.session import close_session, local_session
from metrics.tables import store
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from tests.support.evidence import sample
from tests.support.rows import BOUNDARY, trial

NAMES = ("testbed", "demo", "default")


def main(base: str, run_id: str, trials: int) -> None:
    store.COMPACT_FROM_FILES = 2  # all runs compact at the same time
    session = local_session(1, run_id)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    tables = store.TableStore(session, base).open()
    tables.append_run(RunRow(run_id, "started", time.time(), *NAMES))
    for number in range(1, trials + 1):
        tables.append_trial(trial(number, run_id), [sample(0), sample(1)])
    tables.append_boundary(BoundaryRow(run_id, time.time(), *NAMES[:2], BOUNDARY))
    tables.append_run(RunRow(run_id, "finished", time.time(), *NAMES, status="done"))
    tables.compact()
    close_session(session)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
