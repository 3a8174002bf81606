"""Set-up's last step for Spark: a short session that writes an archive of its loaded classes.

With the archive, a local session with open tables is ready in half the time. `python -m
jobs.spark.prepare` runs while set-up installs other packages, so it uses only Spark, Delta and the
standard library.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.setup.places import write_options
from jobs.spark.session import close_session, local_session, session_archive
from metrics.common.errors import RedlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUMP_TIMEOUT_S = 120.0
"""Time limit for writing the archive [s]. On an idle machine, writing the archive takes 10 s."""


def make_archive() -> Path:
    """Make the class archive of local sessions if it does not exist; return its path.

    Raises:
        RedlineError: Spark did not start, or Delta's jars could not be downloaded.
        OSError: the archive cannot be written.
    """
    archive = session_archive()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent) as folder:
        draft = Path(folder) / archive.name
        session = local_session(2, "kafka-redline set-up", java_options=write_options(draft))
        try:
            _use(session, f"{folder}/table")
        finally:
            code = close_session(session, DUMP_TIMEOUT_S)
        if code == 0 and draft.exists():  # otherwise the archive may be truncated
            draft.replace(archive)
    return archive


def _use(session: SparkSession, table: str) -> None:
    """Do the work of a run: make a table, append to it, read it, run a barrier stage."""
    name = f"delta.`{table}`"
    columns = "run_id STRING, trial INT, at TIMESTAMP, loads MAP<STRING, DOUBLE>, ids ARRAY<INT>"
    session.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta")
    query = "SELECT 'a' run_id, 1 trial, now() at, map('a', 1D) loads, array(1) ids"
    for version in ("1", "2"):
        options = {"txnAppId": "redline", "txnVersion": version}
        session.sql(query).write.format("delta").mode("append").options(**options).save(table)
    session.read.format("delta").load(table).where("run_id = 'a'").orderBy("trial").collect()
    session.sql(f"DESCRIBE DETAIL {name}").select("numFiles").collect()
    session.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(list).collect()


def main() -> int:
    """Make the class archive of Spark sessions; return the exit code. Without the class archive,
    sessions start more slowly.
    """
    try:
        make_archive()
    except (RedlineError, OSError) as error:
        sys.stderr.write(f"the archive of Spark's classes was not made: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
