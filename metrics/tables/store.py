"""The store of the Delta tables, with idempotent appends and with reads of single runs.

If an append is repeated after a crash, it adds no rows. The numbers of a run's trials show the
store which rows the run has already appended. For a new run, the store does not query the tables. A
case of a night has its own Delta transaction (`txnAppId`, `txnVersion`). Appends never change the
schema of a table, so several runs can append at the same time.
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

from metrics.arrow_schema import ddl, ddl_type
from metrics.columns import Record, restored, row_of
from metrics.common.errors import ENDED_SPARK, ConfigError
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import CaseRow, HeadroomRow, trial_from
from metrics.tables.schema import (
    ROWS,
    SCHEMAS,
    HostRow,
    RunRow,
    SampleRow,
    described_columns,
    part_rows,
)
from metrics.tables.views import (
    VIEWS,
    latest_boundaries,
    newest_cases,
    newest_of_each_state,
    newest_runs,
)
from metrics.traffic.axes import NP, Axis
from metrics.trial.trial import ALL_BROKERS, Trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARROW_SINCE = 4
"""First major release of PySpark whose `createDataFrame` accepts an Arrow table."""


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Convert an Arrow table to a DataFrame, with the column types of `metrics.arrow_schema`."""
    import pyspark

    if int(pyspark.__version__.partition(".")[0]) >= _ARROW_SINCE:
        return spark.createDataFrame(rows)
    convert = _converter(pa.struct(list(rows.schema)))
    values = [tuple(convert(row).values()) for row in rows.to_pylist()]
    if getattr(spark, "_jvm", None) is None:  # Spark Connect
        return spark.createDataFrame(values, ddl(rows.schema))
    # One partition, because each partition would start a Python worker.
    return spark.createDataFrame(spark.sparkContext.parallelize(values, 1), ddl(rows.schema))


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """A function that converts a value from `to_pylist` to the value that PySpark expects.

    The function changes only maps, because Arrow's `to_pylist` returns a map as a list of pairs.
    """
    if pa.types.is_map(kind):
        of_item = _converter(kind.item_type)
        return _unless_null(lambda pairs: {key: of_item(item) for key, item in pairs})
    if pa.types.is_list(kind):
        of_value = _converter(kind.value_type)
        return _unless_null(lambda values: [of_value(each) for each in values])
    if pa.types.is_struct(kind):
        of_field = {field.name: _converter(field.type) for field in kind}
        return _unless_null(lambda row: {name: of_field[name](row[name]) for name in of_field})
    return lambda value: value


def _unless_null(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_PROPERTIES = {
    # A checkpoint takes as long as ten appends, and small tables do not need checkpoints.
    "delta.checkpointInterval": "100",
    # Queries filter by run_id, the first column. Statistics of 32 columns would make appends slower
    # by an eighth.
    "delta.dataSkippingNumIndexedCols": "1",
}
COMPACT_FROM_FILES = 32
"""A table with at least this number of files is compacted. A compaction takes one to two
seconds."""
_TRIAL_TABLES = ("trials", "parts", "samples", "hosts")
"""Tables that have rows for each trial. A killed run may have appended the rows of its last trial
to only some of these tables."""
_Point = tuple[str, int, str]
"""Key of a boundary point within a run: (goal, message size [B], state of the cluster)."""
_TRIES = 8
_CONFLICT = re.compile(
    "CONCURRENT|PROTOCOL_CHANGED|METADATA_CHANGED|ALREADY_EXISTS|Concurrent"
    "|NON_EMPTY_LOCATION|DELTA_TABLE_NOT_FOUND"  # during the first commit of another run
)
"""Words in Delta's errors about concurrent changes of a schema."""
_NO_TABLE = re.compile("PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND|DELTA_(MISSING|TABLE_NOT)|not exist")
"""Words in the errors about a missing table. A table can be missing, because older versions created
fewer tables."""
_log = logging.getLogger(__name__)
_CATALOG_NAME = re.compile(r"\w+(\.\w+)?")


def _with_comments(table: str, schema: pa.Schema) -> str:
    """The DDL of a table's columns. Comments contain the meanings and units of the columns."""
    described = {column.name: column for column in described_columns(ROWS[table])}
    columns = []
    for field in schema:
        column = described[field.name]
        unit = "" if column.unit == "–" else f" [{column.unit}]"
        comment = _quoted(f"{column.meaning}{unit}")
        columns.append(f"`{field.name}` {ddl_type(field.type)} COMMENT {comment}")
    return ", ".join(columns)


def _quoted(text: str) -> str:
    """A text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class TableStore:
    """The tables of one directory, or of one schema of a catalog.

    Appends take seconds, so they run one after the other in the background. `settle` waits until
    all appends are durable. Each read calls `settle` first.

    Args:
        spark: a session with Delta's extension and catalog, see `jobs.spark.session`.
        base: a path that contains a slash and that Spark can write to, or the name of a schema such
            as `redline` or `main.redline`.
    """

    def __init__(self, spark: SparkSession, base: str) -> None:
        self._spark = spark
        self._is_path = "/" in base
        self._base = base.rstrip("/")
        self._pending: list[Future[None]] = []
        self._file_counts: dict[str, int] = {}
        self._last: dict[str, dict[str, int]] = {}  # run → result of `_last_trials`
        # Run → result of `_known_points`.
        self._points: dict[str, dict[_Point, tuple[int, bool]]] = {}
        if not self._is_path and _CATALOG_NAME.fullmatch(base) is None:
            raise ConfigError(
                f"--tables is {base!r}; expected a path with a slash in it, such as ./tables or "
                f"s3a://bucket/tables, or the name of a schema, such as main.redline"
            )

    def address(self, table: str) -> str:
        """The path or full name of a table."""
        return f"{self._base}/{table}" if self._is_path else f"{self._base}.{table}"

    def _sql_name(self, table: str) -> str:
        if self._is_path:
            return f"delta.`{self.address(table).replace('`', '``')}`"
        return ".".join(f"`{part}`" for part in self.address(table).split("."))

    def open(self) -> TableStore:
        """Create missing tables, and add missing columns to older tables, in the background.

        In a new session, creating the tables takes some seconds. If the creation fails, `settle`
        raises the error.
        """
        self._enqueue(self._create_all)
        return self

    def _create_all(self) -> None:
        with _explain_write_errors(self._base):
            if not self._is_path:
                schema_ddl = f"CREATE SCHEMA IF NOT EXISTS {self._base}"
                self._retry_on_conflict(partial(self._spark.sql, schema_ddl))
            with ThreadPoolExecutor(len(SCHEMAS), thread_name_prefix="redline-create") as pool:
                created = [
                    pool.submit(self._retry_on_conflict, partial(self._create, table, schema))
                    for table, schema in SCHEMAS.items()
                ]
            for each in created:
                each.result()
            if not self._is_path:
                self._create_views()

    def _create_views(self) -> None:
        """Create the views of `metrics.tables.views`. Errors are only logged."""
        names = {table: self._sql_name(table) for table in SCHEMAS}
        for view, (description, query) in VIEWS.items():
            try:
                comment = _quoted(description)
                self._spark.sql(
                    f"CREATE OR REPLACE VIEW {self._sql_name(view)} COMMENT {comment} AS "
                    f"{query.format(**names)}"
                )
            except _spark_errors() as error:  # for example a missing permission to create views
                why = str(error).partition("\n")[0]
                _log.warning("the view %s cannot be created: %s", self.address(view), why)

    def _create(self, table: str, schema: pa.Schema) -> None:
        if not self._exists(table):
            properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._sql_name(table)} "
                f"({_with_comments(table, schema)}) USING delta TBLPROPERTIES ({properties})"
            )
        self._add_columns(table, schema)

    def _exists(self, table: str) -> bool:
        """True if the table exists.

        The check for a missing table is faster than CREATE TABLE IF NOT EXISTS.
        """
        from delta.tables import DeltaTable

        address = self.address(table)
        if self._is_path:
            return DeltaTable.isDeltaTable(self._spark, address)
        return self._spark.catalog.tableExists(address)

    def _retry_on_conflict(self, change: Callable[[], object]) -> None:
        """Change a schema; repeat the change if another run changes the schema at the same time."""
        for left in reversed(range(_TRIES)):
            try:
                change()
                return
            except _spark_errors() as error:
                if not left or _CONFLICT.search(str(error)) is None:
                    raise
                time.sleep(random.uniform(0.1, 0.5))  # to avoid another conflict

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

    def _enqueue(self, action: Callable[..., object], *arguments: Any) -> None:
        """Run an action in the background, after all earlier actions."""
        before = self._pending[-1:]

        def run() -> None:
            wait(before)
            action(*arguments)

        pool = ThreadPoolExecutor(1, thread_name_prefix="redline-tables")
        self._pending.append(pool.submit(run))
        pool.shutdown(wait=False)

    def settle(self) -> None:
        """Wait until all appends are durable.

        Raises:
            ConfigError: an append failed.
        """
        while self._pending:
            first = self._pending[0]
            try:
                first.result()
            finally:
                if first.done():  # not done if an interrupt ended the wait
                    self._pending.remove(first)

    def close(self) -> None:
        """Wait for all appends, so that Spark can be stopped.

        Raises:
            ConfigError: an append failed.
        """
        wait(self._pending)
        self.settle()

    def _append(self, table: str, records: Sequence[Any], options: dict[str, str]) -> None:
        rows = pa.Table.from_pylist([row_of(each) for each in records], schema=SCHEMAS[table])
        frame = frame_of(self._spark, rows).coalesce(1)
        with _explain_write_errors(self.address(table)):
            self._save(table, frame, options)
        # Until the first count a table may have any number of files.
        self._file_counts[table] = self._file_counts.get(table, COMPACT_FROM_FILES) + 1

    def append_run(self, row: RunRow, *, is_new: bool = False) -> None:
        """Append a row for the start or the end of a run. A resumed run has several rows, because
        each execution of the run appends its own rows.

        Args:
            row: the row.
            is_new: True if the tables have no rows of this run. The store makes no queries for a
                new run. In a new session, queries take seconds.
        """
        if is_new:
            self._last[row.run_id] = dict.fromkeys(_TRIAL_TABLES, 0)
            self._points[row.run_id] = {}
        self._enqueue(self._append, "runs", [row], {})

    def append_trial(
        self, trial: Trial, samples: Sequence[BrokerSample] = (), hosts: Sequence[HostSample] = ()
    ) -> None:
        """Append the row of a trial and the trial's samples of brokers and hosts. The appends run
        in parallel.

        One process appends the trials of a run in the order of their numbers. If a table already
        has a trial of the run with this number or a higher number, nothing is appended to the
        table.
        """
        self._enqueue(self._commit_trial, trial, samples, hosts)

    def _commit_trial(
        self, trial: Trial, samples: Sequence[BrokerSample], hosts: Sequence[HostSample]
    ) -> None:
        run_id, number = trial.run_id, trial.number
        with _explain_write_errors(self._base):  # the tables are queried again after a failure
            last = self._last.pop(run_id, None) or self._last_trials(run_id)
        parts: dict[str, list[Any]] = {
            "trials": [trial],
            "parts": part_rows(trial),
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
        """Table → number of the run's last trial in this table; 0 if the table has no trial of the
        run.
        """
        appended = (
            self._rows_of_run(table, run_id).selectExpr("trial", f"'{table}' table_name")
            for table in _TRIAL_TABLES
        )
        together = reduce(lambda some, more: some.union(more), appended)
        found = together.groupBy("table_name").agg({"trial": "max"}).collect()
        return dict.fromkeys(_TRIAL_TABLES, 0) | {table: int(last) for table, last in found}

    def next_trial(self, run_id: str) -> int:
        """The number of the run's next trial: 1 plus the highest number in any table."""
        self.settle()
        self._last[run_id] = self._last_trials(run_id)
        return max(self._last[run_id].values()) + 1

    def payload_bytes(self, run_id: str) -> float:
        """The payload that the trials of a run have written, summed over replicas [B]."""
        total = "sum((acked_total + failed_total) * bpm * replication_factor)"
        written = self.read("trials", run_id).selectExpr(total).collect()[0][0]
        return float(written or 0)

    def append_boundary(self, row: BoundaryRow) -> None:
        """Append the result of a search at one message size, for one goal.

        If the table already has this result, no row is appended. A result is new if its number of
        trials is higher than the number of trials in every row of the table for this boundary
        point. If the numbers of trials are equal, a result is new if it has a steady limit or the
        reason why there is no steady limit, and if the rows have neither.
        """
        self._enqueue(self._commit_point, row)

    def _commit_point(self, row: BoundaryRow) -> None:
        point, run_id = row.boundary, row.run_id
        with _explain_write_errors(self._base):  # the table is queried again after a failure
            known = self._points.pop(run_id, None)
            kept = self._known_points(run_id) if known is None else known
        key = (point.goal, point.message_bytes, point.state)
        own = (point.trials, _states_steady(point.steady_load, point.steady_note))
        if own > kept.get(key, (-1, False)):
            self._append("boundaries", [row], {})
            kept[key] = own
        self._points[run_id] = kept

    def _known_points(self, run_id: str) -> dict[_Point, tuple[int, bool]]:
        """Boundary point of a run in the table → (number of trials, whether the steady limit is in
        the row). Both values come from the point's row with the most trials.
        """
        rows = self._rows_of_run("boundaries", run_id)
        steady = [name for name in ("steady_load", "steady_note") if name in rows.columns]
        most: dict[_Point, tuple[int, bool]] = {}
        for row in rows.select("goal", "bpm", "state", "trials", *steady).collect():
            # In rows of older versions, the state is null.
            key = (row["goal"], row["bpm"], row["state"] or ALL_BROKERS)
            own = (row["trials"], _states_steady(*(row[name] for name in steady)))
            most[key] = max(own, most.get(key, (-1, False)))
        return most

    def append_case(self, row: CaseRow) -> None:
        """Append the measurement, the judgment or the acceptance of a case.

        Each measurement, judgment and acceptance is appended at most once.
        """
        version = 1 + ("measured", "judged", "accepted").index(row.event)
        options = {"txnAppId": f"redline/cases/{row.run_id}/{row.case}", "txnVersion": f"{version}"}
        self._enqueue(self._append, "cases", [row], options)

    def cases(self, suite: str, cluster: str) -> list[CaseRow]:
        """All nights of a suite on a cluster.

        Each night has one row per case. The oldest night is first.
        """
        newest = newest_cases(self.read("cases")).where("value is not null")
        own = newest.where((newest.suite == suite) & (newest.cluster == cluster))
        return _records(CaseRow, own.orderBy("at"))

    def accepted_cases(self, suite: str, cluster: str) -> dict[str, CaseRow]:
        """Case → its newest accepted night."""
        rows = self.read("cases").where("event = 'accepted'")
        own = rows.where((rows.suite == suite) & (rows.cluster == cluster))
        return {row.case: row for row in _records(CaseRow, own.orderBy("at"))}

    def append_headroom(self, rows: Sequence[HeadroomRow]) -> None:
        """Append the rows of one call of `redline headroom`.

        The rows of a call are appended at most once.
        """
        options = {"txnAppId": f"redline/headroom/{rows[0].headroom_id}", "txnVersion": "1"}
        self._enqueue(self._append, "headroom", list(rows), options)

    def headroom(self, cluster_id: str) -> list[HeadroomRow]:
        """One row for each call of `redline headroom` on a cluster: the row of the resource that is
        full first. The oldest call is first.
        """
        rows = self.read("headroom")
        own = rows.where((rows.cluster_id == cluster_id) & rows.is_first).orderBy("at")
        return _records(HeadroomRow, own)

    def read(self, table: str, run_id: str | None = None) -> DataFrame:
        """The rows of a table, or only the rows of one run."""
        self.settle()
        return self._frame(table) if run_id is None else self._rows_of_run(table, run_id)

    def _rows_of_run(self, table: str, run_id: str) -> DataFrame:
        frame = self._frame(table)
        return frame.where(frame.run_id == run_id)

    def _frame(self, table: str) -> DataFrame:
        if self._is_path:
            return self._spark.read.format("delta").load(self.address(table))
        return self._spark.read.table(self.address(table))

    def runs(self) -> DataFrame:
        """The newest row of each run.

        The newest row is the row of the run's end, or the row of its start if the run has not
        ended.
        """
        return newest_runs(self.read("runs"))

    def run_rows(self, run_id: str) -> list[RunRow]:
        """The newest row of a run; empty if the run does not exist."""
        return _records(RunRow, newest_runs(self.read("runs", run_id)))

    def latest_limit(
        self, cluster: str, workload: str, goal: str, message_bytes: int, axis: Axis = NP
    ) -> int | None:
        """The newest limit [load] along an axis for the given cluster, workload, goal and message
        size; None if there is no such limit.
        """
        from pyspark.sql import functions as sql

        found = latest_boundaries(self.read("boundaries"))
        wanted = {
            "cluster": cluster,
            "workload": workload,
            "goal": goal,
            "axis": axis.name,
            "bpm": message_bytes,
        }
        for column, value in wanted.items():
            found = found.where(sql.col(column).eqNullSafe(sql.lit(value)))
        known = found.collect()
        column = "np_sustained" if axis is NP else "load_sustained"
        return int(known[0][column]) if known else None

    def trials(self, run_id: str) -> DataFrame:
        """The trials of a run, by number."""
        return self.read("trials", run_id).orderBy("trial")

    def trials_of(self, run_id: str) -> list[Trial]:
        """The trials of a run, sorted by number, without the counts of single producers."""
        rows = self.trials(run_id).drop("by_producer").collect()
        return [trial_from(row.asDict(recursive=True)) for row in rows]

    def samples_of(self, run_id: str) -> dict[int, list[BrokerSample]]:
        """Number of the trial → samples of the brokers."""
        return self._samples(SampleRow, "samples", run_id)

    def host_samples_of(self, run_id: str) -> dict[int, list[HostSample]]:
        """Number of the trial → samples of the hosts; empty if there is no table of hosts."""
        try:
            return self._samples(HostRow, "hosts", run_id)
        except _spark_errors() as error:
            if _NO_TABLE.search(str(error)) is None:
                raise
            return {}

    def _samples(
        self, kind: type[SampleRow | HostRow], table: str, run_id: str
    ) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for row in _records(kind, self.read(table, run_id)):
            found.setdefault(row.trial, []).append(row.sample)
        return found

    def boundaries(self, run_id: str) -> DataFrame:
        """The newest row of each boundary point of a run, by message size."""
        return newest_of_each_state(self.read("boundaries", run_id)).orderBy("bpm")

    def compact(self) -> None:
        """Merge the small files of each table that has many files. The merge is called at the end
        of a run.

        If another run writes to a table at the same time, the files are merged at the end of the
        next run. Files are counted only in tables that may have many files, because a count takes a
        third of a second.
        """
        self.settle()
        unknown = [name for name, files in self._file_counts.items() if files >= COMPACT_FROM_FILES]
        with ThreadPoolExecutor(max(1, len(unknown)), thread_name_prefix="redline-files") as pool:
            counted = {table: pool.submit(self._count_files, table) for table in unknown}
        for table, files in counted.items():
            try:
                self._file_counts[table] = files.result()
                if self._file_counts[table] >= COMPACT_FROM_FILES:
                    self._spark.sql(f"OPTIMIZE {self._sql_name(table)}")
                    self._file_counts[table] = self._count_files(table)
            except _spark_errors() as error:
                _log.warning("the table %s cannot be compacted: %s", table, str(error)[:300])

    def _count_files(self, table: str) -> int:
        detail = self._spark.sql(f"DESCRIBE DETAIL {self._sql_name(table)}")
        return int(detail.select("numFiles").collect()[0][0])


def _records(kind: type[Record], rows: DataFrame) -> list[Record]:
    return [restored(kind, row.asDict(recursive=True)) for row in rows.collect()]


def _states_steady(load: float | None = None, note: str | None = None) -> bool:
    """True if a row has a steady limit or the reason why there is no steady limit."""
    return load is not None or bool(note)


@contextmanager
def _explain_write_errors(address: str) -> Iterator[None]:
    """Convert an error of Spark about writing, such as a full disk, to an error for the user.

    Raises:
        ConfigError: Spark cannot write. If Spark has ended, Spark's own error is raised instead of
            a ConfigError.
    """
    try:
        yield
    except _spark_errors() as error:
        if any(each in str(error) for each in ENDED_SPARK):
            raise
        raise ConfigError(
            f"{address} cannot be written ({_root_cause(error)}); expected writable tables; "
            "existing rows are kept; free disk space, change the permissions, or choose other "
            "tables with --tables"
        ) from error


def _root_cause(error: Any) -> str:
    """The message of a Spark error's root cause, such as an error of the operating system."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = str((cause is not None and cause.getMessage()) or error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _spark_errors() -> tuple[type[Exception], ...]:
    """The Python exception types for errors of Spark, and for Java exceptions of Delta."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError
