"""A process with its own Spark session that writes the rows of a run to the tables.

`python -m tests.support.table_writer TABLES RUN_ID` prints `ready` when Spark has started. When it
reads a line, it opens the tables, appends rows and compacts.
"""

from __future__ import annotations

import sys

from jobs.spark.session import close_session, local_session
from metrics.tables import store
from tests.support.table_exchange import append

if __name__ == "__main__":
    _, base, run_id = sys.argv
    store.COMPACT_FROM_FILES = 2  # all runs compact at the same time
    session = local_session(1, run_id)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    append(store.TableStore(session, base).open(), run_id)
    close_session(session)
