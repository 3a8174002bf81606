"""Delta tables of what runs saw: appended once however often it is tried, read by run.

An append that is tried again after a crash adds nothing. What a run appended is known by the
numbers of its trials, in the tables themselves; a run that is new has nothing there, and its tables
are not asked. A case of a night is known by a transaction of its own (`txnAppId`, `txnVersion`),
which Delta remembers. Appends never change the table's schema, so runs that append at the same time
do not disturb each other.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metrics.arrow_schema import ddl_type
from metrics.columns import restored, row_of
from metrics.common.errors import ConfigError
from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.cases import CaseRow
from metrics.tables.docs import described_columns
from metrics.tables.schema import ROWS, SCHEMAS, HostRow, RunRow, SampleRow
from metrics.tables.sql_views import VIEWS
from metrics.tables.trials import trial_from
from metrics.tables.views import newest_cases, newest_runs
from metrics.trial.state import ALL_BROKERS
from metrics.trial.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PROPERTIES = {
    # A checkpoint costs as much as ten appends; what a run appends is read well without.
    "delta.checkpointInterval": "100",
    # Tables are read by run_id, the first column; to know the extremes of 32 costs an eighth of an
    # append.
    "delta.dataSkippingNumIndexedCols": "1",
}
COMPACT_FROM_FILES = 32
"""A table of fewer files is read as fast as if it were compacted, which costs a second or two."""
_OF_TRIALS = ("trials", "samples", "hosts")
"""What a trial leaves, and one that was killed while it was kept may have left in part."""
_Point = tuple[str, int, str]
"""The goal, bytes of payload and the cluster's state, by which a run knows its boundary points."""
_TRIES = 8
_CROSSED = re.compile(
    "CONCURRENT|PROTOCOL_CHANGED|METADATA_CHANGED|ALREADY_EXISTS|Concurrent"
    "|NON_EMPTY_LOCATION|DELTA_TABLE_NOT_FOUND"  # while the first commit of another is on its way
)
"""What Delta says of a change that crossed another one."""
_log = logging.getLogger(__name__)
_CATALOG_NAME = re.compile(r"\w+(\.\w+)?")


def _with_comments(table: str, schema: pa.Schema) -> str:
    """The columns of a new table, each with what it means and its unit, as docs/tables.md has."""
    told = {column.name: column for column in described_columns(ROWS[table])}
    columns = []
    for field in schema:
        column = told[field.name]
        unit = "" if column.unit == "–" else f" [{column.unit}]"
        comment = _quoted(f"{column.meaning}{unit}")
        columns.append(f"`{field.name}` {ddl_type(field.type)} COMMENT {comment}")
    return ", ".join(columns)


def _quoted(text: str) -> str:
    """A text as SQL has it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class TableStore:
    """The tables under one path, or in one schema of a catalog.

    Nobody waits for what is appended, as that takes seconds: it is done in order, in the
    background, and `settle` waits until all of it is durable. Whatever is read from the same store
    settles first.

    Args:
        spark: a session with Delta's extension and catalog, see `jobs.spark.session`.
        base: any path that Spark writes to, with a slash in it, or the name of a schema
            such as `redline` or `main.redline`.
    """

    def __init__(self, spark: SparkSession, base: str) -> None:
        self._spark = spark
        self._is_path = "/" in base
        self._base = base.rstrip("/")
        self._pending: list[Future[None]] = []
        self._files_seen: dict[str, int] = {}
        self._last: dict[str, dict[str, int]] = {}  # run → as `_last_trials` has it
        self._points: dict[str, dict[_Point, int]] = {}  # run → as `_points_of` has it
        if not self._is_path and _CATALOG_NAME.fullmatch(base) is None:
            raise ConfigError(
                f"--tables is {base!r}; expected a path with a slash in it, such as ./tables or "
                f"s3a://bucket/tables, or the name of a schema, such as main.redline"
            )

    def address(self, table: str) -> str:
        """Path or full name of a table."""
        return f"{self._base}/{table}" if self._is_path else f"{self._base}.{table}"

    def _sql_name(self, table: str) -> str:
        if self._is_path:
            return f"delta.`{self.address(table).replace('`', '``')}`"
        return ".".join(f"`{part}`" for part in self.address(table).split("."))

    def open(self) -> TableStore:
        """Begin to create what is missing, and to add the columns that an older table lacks.

        Takes some seconds in a fresh session, in which something else can start; `settle` raises
        what it raises.
        """
        self._in_order(self._create_all)
        return self

    def _create_all(self) -> None:
        with _written(self._base):
            if not self._is_path:
                schema_ddl = f"CREATE SCHEMA IF NOT EXISTS {self._base}"
                self._until_alone(partial(self._spark.sql, schema_ddl))
            with ThreadPoolExecutor(len(SCHEMAS), thread_name_prefix="redline-create") as pool:
                created = [
                    pool.submit(self._until_alone, partial(self._create, table, schema))
                    for table, schema in SCHEMAS.items()
                ]
            for each in created:
                each.result()
            if not self._is_path:
                self._create_views()

    def _create_views(self) -> None:
        """Make the views of `metrics.tables.sql_views`; a run does without them."""
        names = {table: self._sql_name(table) for table in SCHEMAS}
        for view, (told, query) in VIEWS.items():
            try:
                self._spark.sql(
                    f"CREATE OR REPLACE VIEW {self._sql_name(view)} COMMENT {_quoted(told)} AS "
                    f"{query.format(**names)}"
                )
            except _spark_errors() as error:  # such as a user who may make tables and no views
                why = str(error).partition("\n")[0]
                _log.warning("the view %s was not made: %s", self.address(view), why)

    def _create(self, table: str, schema: pa.Schema) -> None:
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._sql_name(table)} ({_with_comments(table, schema)}) "
            f"USING delta TBLPROPERTIES ({properties})"
        )
        self._add_columns(table, schema)

    def _until_alone(self, change: Callable[[], object]) -> None:
        """Change a table's schema, anew where another run changed it at the same time."""
        for left in reversed(range(_TRIES)):
            try:
                change()
                return
            except _spark_errors() as error:
                if not left or _CROSSED.search(str(error)) is None:
                    raise
                time.sleep(random.uniform(0.1, 0.5))  # so that they do not meet again

    def _add_columns(self, table: str, schema: pa.Schema) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        present = {field.name: field.dataType for field in self._frame(table).schema.fields}
        wanted = from_arrow_schema(schema)
        if any(present.get(field.name) != field.dataType for field in wanted.fields):
            empty = self._spark.createDataFrame([], wanted)
            self._save(table, empty, {"mergeSchema": "true"})

    def _save(self, table: str, frame: DataFrame, options: dict[str, str]) -> None:
        writer = frame.write.format("delta").mode("append").options(**options)
        if self._is_path:
            writer.save(self.address(table))
        else:
            writer.saveAsTable(self.address(table))

    def _in_order(self, deed: Callable[..., object], *what: Any) -> None:
        """Do this in the background, after all that was begun before it."""
        before = self._pending[-1:]

        def next_deed() -> None:
            wait(before)
            deed(*what)

        pool = ThreadPoolExecutor(1, thread_name_prefix="redline-tables")
        self._pending.append(pool.submit(next_deed))
        pool.shutdown(wait=False)

    def settle(self) -> None:
        """Wait until all that was begun is durable.

        Raises:
            ConfigError: some of it could not be written.
        """
        while self._pending:
            first = self._pending[0]
            try:
                first.result()
            finally:
                if first.done():  # else an interrupt ended the wait, not the append
                    self._pending.remove(first)

    def close(self) -> None:
        """Wait for what is on its way, so that Spark can be closed.

        Raises:
            ConfigError: something that nobody settled could not be written.
        """
        wait(self._pending)
        self.settle()

    def _append(self, table: str, records: Sequence[Any], options: dict[str, str]) -> None:
        rows = pa.Table.from_pylist([row_of(each) for each in records], schema=SCHEMAS[table])
        frame = self._spark.createDataFrame(rows).coalesce(1)
        with _written(self.address(table)):
            self._save(table, frame, options)
        # One that was not looked at yet may have any number.
        self._files_seen[table] = self._files_seen.get(table, COMPACT_FROM_FILES) + 1

    def append_run(self, row: RunRow, *, is_new: bool = False) -> None:
        """Append the start or the end of a run; one that was resumed has several of each.

        Args:
            is_new: the tables cannot hold anything of this run, so that they need not be asked,
                which takes seconds in a fresh session.
        """
        if is_new:
            self._last[row.run_id] = dict.fromkeys(_OF_TRIALS, 0)
            self._points[row.run_id] = {}
        self._in_order(self._append, "runs", [row], {})

    def append_trial(
        self,
        trial: Trial,
        samples: Sequence[BrokerSample] = (),
        hosts: Sequence[HostSample] = (),
    ) -> None:
        """Append a trial's row, its samples and its looks at hosts, all at the same time.

        Trials of a run are appended in the order of their numbers, and by one process at a time:
        a lower number than the last counts as appended. A resumed run goes on with `next_trial`.
        """
        self._in_order(self._commit_trial, trial, samples, hosts)

    def _commit_trial(
        self, trial: Trial, samples: Sequence[BrokerSample], hosts: Sequence[HostSample]
    ) -> None:
        run_id, number = trial.run_id, trial.number
        with _written(self._base):  # if it fails, the tables have to be asked the next time
            last = self._last.pop(run_id, None) or self._last_trials(run_id)
        parts: dict[str, list[Any]] = {
            "trials": [trial],
            "samples": [SampleRow(run_id, number, sample) for sample in samples],
            "hosts": [HostRow(run_id, number, sample) for sample in hosts],
        }
        with ThreadPoolExecutor(len(parts), thread_name_prefix="redline-append") as pool:
            done = [
                pool.submit(self._append, table, rows, {})
                for table, rows in parts.items()
                if rows and number > last[table]
            ]
        for each in done:
            each.result()
        self._last[run_id] = {table: max(number, before) for table, before in last.items()}

    def _last_trials(self, run_id: str) -> dict[str, int]:
        """Table → the last trial of a run that left anything there; 0 where none did."""
        left = (
            self._of_run(table, run_id).selectExpr("trial", f"'{table}' table_name")
            for table in _OF_TRIALS
        )
        together = reduce(lambda some, more: some.union(more), left)
        found = together.groupBy("table_name").agg({"trial": "max"}).collect()
        return dict.fromkeys(_OF_TRIALS, 0) | {table: int(last) for table, last in found}

    def next_trial(self, run_id: str) -> int:
        """The number after the last trial of a run that left anything behind; 1 at first."""
        self.settle()
        self._last[run_id] = self._last_trials(run_id)
        return max(self._last[run_id].values()) + 1

    def payload_bytes(self, run_id: str) -> float:
        """Payload that the trials of a run wrote so far, all replicas counted [B]."""
        total = "sum((acked_total + failed_total) * bpm * replication_factor)"
        written = self.read("trials", run_id).selectExpr(total).collect()[0][0]
        return float(written or 0)

    def append_boundary(self, row: BoundaryRow) -> None:
        """Append the end of the search at one message size, for one goal.

        A search that went on after its end, with a larger budget, adds a newer row; one with no
        trial more counts as appended.
        """
        self._in_order(self._commit_point, row)

    def _commit_point(self, row: BoundaryRow) -> None:
        point, run_id = row.boundary, row.run_id
        with _written(self._base):  # if it fails, the table has to be asked the next time
            known = self._points.pop(run_id, None)
            trials = self._points_of(run_id) if known is None else known
        key = (point.goal, point.message_bytes, point.state)
        if point.trials > trials.get(key, -1):
            self._append("boundaries", [row], {})
            trials[key] = point.trials
        self._points[run_id] = trials

    def _points_of(self, run_id: str) -> dict[_Point, int]:
        """Each boundary point of a run in the table → the most trials that it was told after."""
        told = self._of_run("boundaries", run_id).select("goal", "bpm", "state", "trials")
        most: dict[_Point, int] = {}
        for goal, message_bytes, state, trials in told.collect():
            key = (
                goal,
                message_bytes,
                state or ALL_BROKERS,
            )  # rows of older versions tell no state
            most[key] = max(trials, most.get(key, -1))
        return most

    def append_case(self, row: CaseRow) -> None:
        """Append that a case was measured, or how its night was judged; each only once."""
        version = 1 + ("measured", "judged").index(row.event)
        options = {"txnAppId": f"redline/cases/{row.run_id}/{row.case}", "txnVersion": f"{version}"}
        self._in_order(self._append, "cases", [row], options)

    def cases(self, suite: str, cluster: str) -> list[CaseRow]:
        """All nights of a suite on a cluster, each of their cases once, oldest first."""
        newest = newest_cases(self.read("cases")).where("value is not null")
        own = newest.where((newest.suite == suite) & (newest.cluster == cluster))
        rows = own.orderBy("at").collect()
        return [restored(CaseRow, row.asDict(recursive=True)) for row in rows]

    def read(self, table: str, run_id: str | None = None) -> DataFrame:
        """A table's rows, of one run if given."""
        self.settle()
        return self._frame(table) if run_id is None else self._of_run(table, run_id)

    def _of_run(self, table: str, run_id: str) -> DataFrame:
        frame = self._frame(table)
        return frame.where(frame.run_id == run_id)

    def _frame(self, table: str) -> DataFrame:
        if self._is_path:
            return self._spark.read.format("delta").load(self.address(table))
        return self._spark.read.table(self.address(table))

    def runs(self) -> DataFrame:
        """Each run's newest row: its end, or its start while it runs or if it died."""
        return newest_runs(self.read("runs"))

    def run_rows(self, run_id: str) -> list[Row]:
        """The newest row of a run; none where there is no such run."""
        return newest_runs(self.read("runs", run_id)).collect()

    def trials(self, run_id: str) -> DataFrame:
        """A run's trials in order."""
        return self.read("trials", run_id).orderBy("trial")

    def trials_of(self, run_id: str) -> list[Trial]:
        """A run's trials in order, without their accounts of single producers."""
        rows = self.trials(run_id).drop("by_producer").collect()
        return [trial_from(row.asDict(recursive=True)) for row in rows]

    def samples(self, run_id: str) -> DataFrame:
        """A run's samples in order."""
        return self.read("samples", run_id).orderBy("trial", "at", "broker_id")

    def samples_of(self, run_id: str) -> dict[int, list[BrokerSample]]:
        """A run's samples by the number of the trial."""
        found: dict[int, list[BrokerSample]] = {}
        for row in self.read("samples", run_id).collect():
            kept = restored(SampleRow, row.asDict(recursive=True))
            found.setdefault(kept.trial, []).append(kept.sample)
        return found

    def hosts(self, run_id: str) -> DataFrame:
        """What a run saw of hosts, in order."""
        return self.read("hosts", run_id).orderBy("trial", "at", "host")

    def boundaries(self, run_id: str) -> DataFrame:
        """A run's boundary points by message size."""
        return self.read("boundaries", run_id).orderBy("bpm")

    def compact(self) -> None:
        """Merge the small files of single appends where many have gathered; for a run's end.

        What cannot be merged now, as others write, is left to the next run: nothing depends on it.
        A table that nothing was appended to, or little since it was looked at, is not looked at,
        which takes a third of a second: a sweep ends many runs.
        """
        self.settle()
        unknown = [name for name, files in self._files_seen.items() if files >= COMPACT_FROM_FILES]
        with ThreadPoolExecutor(max(1, len(unknown)), thread_name_prefix="redline-files") as pool:
            counted = {table: pool.submit(self._files, table) for table in unknown}
        for table, files in counted.items():
            try:
                self._files_seen[table] = files.result()
                if self._files_seen[table] >= COMPACT_FROM_FILES:
                    self._spark.sql(f"OPTIMIZE {self._sql_name(table)}")
                    self._files_seen[table] = self._files(table)
            except _spark_errors() as error:
                _log.warning("the table %s is not compacted: %s", table, str(error)[:300])

    def _files(self, table: str) -> int:
        """How many files the table has now."""
        detail = self._spark.sql(f"DESCRIBE DETAIL {self._sql_name(table)}")
        return int(detail.select("numFiles").collect()[0][0])


@contextmanager
def _written(address: str) -> Iterator[None]:
    """Where Spark cannot write, as a full or a forbidden disk has it, a sentence that says why.

    Raises:
        ConfigError: it cannot.
    """
    try:
        yield
    except _spark_errors() as error:
        raise ConfigError(
            f"{address} cannot be written ({_root_cause(error)}); expected tables that take rows; "
            "what they held before is kept; make room, permit it, or name others by --tables"
        ) from error


def _root_cause(error: Any) -> str:
    """What an error of Spark goes back to: of a failed write that is the system's own word."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = str((cause is not None and cause.getMessage()) or error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises here: its own errors, and Delta's, which come as they are in Java."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError
