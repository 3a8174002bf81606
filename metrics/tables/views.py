"""Questions that analysts ask of the tables, as functions from DataFrames to DataFrames.

They take the tables as `TableStore.read` gives them, or as Spark reads them anywhere else,
Spark Connect included, and only use columns of docs/tables.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metrics.common.errors import ConfigError
from metrics.trial.state import ALL_BROKERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRIAL = ("run_id", "trial", "bpm", "np", "verdict")
VARIANT = {"pattern": "map<string,string>", "experiment": "string"}
"""Columns of `boundaries` that tell one traffic pattern from another; older versions lack them."""
SERIES = ("cluster", "workload", "goal", "axis", "bpm", "variant")
"""What points of one limit over time have in common, see `variants_apart`."""
SURENESS = {
    "load_low": "double",
    "load_high": "double",
    "mb_per_s_low": "double",
    "mb_per_s_high": "double",
    "doubtful": "boolean",
    "latency_p50_ms": "double",
    "latency_p99_ms": "double",
    "latency_p999_ms": "double",
}
"""Columns of `boundaries` that its first version lacks, with their types."""


def newest_runs(runs: DataFrame) -> DataFrame:
    """One row per run of the table `runs`: its end, or its start while it runs or if it died."""
    from pyspark.sql import functions as sql

    finished_first = (sql.col("event") == "finished").desc()
    return _first(runs, ("run_id",), finished_first, sql.col("at").desc())


def newest_cases(cases: DataFrame) -> DataFrame:
    """One row per run and case of the table `cases`: as judged, or as measured until then."""
    from pyspark.sql import functions as sql

    return _first(cases, ("run_id", "case"), (sql.col("event") == "judged").desc())


def _first(frame: DataFrame, same: Sequence[str], *order: Column) -> DataFrame:
    """Of the rows that are the same in these columns the first in that order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rank = sql.row_number().over(Window.partitionBy(*same).orderBy(*order))
    return frame.withColumn("_rank", rank).where("_rank = 1").drop("_rank")


def resource_rows(trials: DataFrame) -> DataFrame:
    """The USE tables of `trials`: a row per trial, broker and resource.

    `is_limit` is true for the resource that the trial's attribution names.
    """
    from pyspark.sql import functions as sql

    exploded = trials.select(*_TRIAL, "limited_by", sql.explode("resources").alias("use"))
    is_limit = sql.coalesce(sql.col("use.resource") == sql.col("limited_by"), sql.lit(False))
    return exploded.select(*_TRIAL, "use.*", is_limit.alias("is_limit"))


def broker_rows(trials: DataFrame) -> DataFrame:
    """The exact windows of `trials`: a row per trial and broker."""
    from pyspark.sql import functions as sql

    exploded = trials.select(*_TRIAL, sql.explode("broker_windows").alias("window"))
    return exploded.select(*_TRIAL, "window.*")


def reading_rows(samples: DataFrame, reading: str) -> DataFrame:
    """One reading of `samples` over time: a row per broker and sample that has it.

    Args:
        reading: its name in `metrics.sources.beans`; of several collectors or network threads the
            part before the colon, and their values are added.
    """
    from pyspark.sql import functions as sql

    pair = sql.explode("readings").alias("name", "value")
    rows = samples.select("run_id", "trial", "broker_id", "at", pair)
    named = rows.where(sql.split("name", ":")[0] == reading)
    return named.groupBy("run_id", "trial", "broker_id", "at").agg(sql.sum("value").alias("value"))


def newest_points(boundaries: DataFrame) -> DataFrame:
    """Of `boundaries` one point per run, goal, axis and size: the newest, if a search went on.

    Of points with all brokers; those with brokers away stand in the column `state`.
    """
    from pyspark.sql import functions as sql

    return _first(
        with_all_brokers(boundaries), ("run_id", "goal", "axis", "bpm"), sql.col("at").desc()
    )


def latest_boundaries(boundaries: DataFrame) -> DataFrame:
    """Of `boundaries` the newest point per cluster, workload, goal, axis, size and pattern.

    Points whose search gave up are left out, those with brokers away, and those of experiments,
    whose cases differ in more than the pattern. Rows that tell no pattern, of older versions, are
    taken for one of the newest.
    """
    from pyspark.sql import functions as sql

    whole = with_all_brokers(boundaries).where("gave_up is null")
    return _first(variants_apart(whole), SERIES, sql.col("at").desc()).drop("variant")


def variants_apart(boundaries: DataFrame) -> DataFrame:
    """`boundaries` with the column `variant`, equal where cluster, goal and pattern are.

    Without those of experiments, whose cases differ in more than the pattern. Rows that tell no
    pattern, of older versions, are taken for one of the newest.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    own = _with_columns(boundaries, VARIANT).where("experiment is null")
    told = sql.when(sql.size("pattern") > 0, sql.to_json("pattern"))
    alike = Window.partitionBy(*SERIES[:-1]).orderBy("at")
    everything = alike.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    newest = sql.last(told, ignorenulls=True).over(everything)
    return own.withColumn("variant", sql.coalesce(told, newest))


def with_all_brokers(boundaries: DataFrame) -> DataFrame:
    """The points of `boundaries` that were found with no broker away, those of old tables too."""
    if "state" not in boundaries.columns:
        return boundaries
    return boundaries.where(f"coalesce(state, '{ALL_BROKERS}') = '{ALL_BROKERS}'")


def points_for_people(boundaries: DataFrame) -> DataFrame:
    """Boundary points by cluster, goal and size, with the columns that a reader looks for.

    `load_overloaded` and `width` [ratio] are null while no overload was seen, `load_low` and
    `load_high` where no interval is known; the rates per broker are in MB/s of payload.
    """
    from pyspark.sql import functions as sql

    boundaries = _with_columns(boundaries, SURENESS)
    low, high = sql.coalesce("load_sustained", "np_sustained"), overloaded_load()
    upper = sql.col("mb_per_s_per_broker") * sql.col("mps_overloaded") / sql.col("mps")
    each = sql.col("mb_per_s_per_broker") / sql.col("mb_per_s")
    return boundaries.select(
        "cluster",
        "workload",
        "goal",
        "bpm",
        "axis",
        low.alias("load_sustained"),
        high.alias("load_overloaded"),
        (1 - low / high).alias("width"),
        "load_low",
        "load_high",
        "doubtful",
        "mps",
        "mb_per_s",
        "mb_per_s_per_broker",
        # On the axis of sizes both sides offer other bytes per message.
        sql.when(sql.col("axis") != "message_bytes", upper).alias("mb_per_s_per_broker_overloaded"),
        (each * sql.col("mb_per_s_low")).alias("mb_per_s_per_broker_low"),
        (each * sql.col("mb_per_s_high")).alias("mb_per_s_per_broker_high"),
        "latency_p50_ms",
        "latency_p99_ms",
        "latency_p999_ms",
        "limited_by",
        "evidence",
        "confidence",
        "trials",
        "gave_up",
        "notes",
        "run_id",
        "at",
    ).orderBy("cluster", "workload", "goal", "axis", "bpm")


def _with_columns(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """The frame with these columns, null where its table is of a version that had none."""
    from pyspark.sql import functions as sql

    missing = [(name, kind) for name, kind in names.items() if name not in frame.columns]
    return frame.select("*", *(sql.lit(None).cast(kind).alias(name) for name, kind in missing))


def overloaded_load() -> Column:
    """The overloaded side of a boundary's bracket on its axis; rows of old have np only."""
    from pyspark.sql import functions as sql

    return sql.coalesce("load_overloaded", "np_overloaded")


def limit_trials(trials: DataFrame, boundaries: DataFrame) -> DataFrame:
    """The trial at the overloaded side of each boundary point, with the point's `goal`.

    Of several at that load the last that the goal called OVERLOADED.
    """
    from pyspark.sql import functions as sql

    points = newest_points(boundaries).select(
        "run_id", "goal", sql.col("bpm").alias("_bpm"), overloaded_load().alias("_load")
    )
    size = sql.coalesce("point_bpm", "bpm")
    load = sql.coalesce("load", "np")
    at_limit = (size == sql.col("_bpm")) & (load == sql.col("_load"))
    verdict = sql.coalesce(sql.expr("verdicts[goal].verdict"), sql.col("verdict"))
    joined = trials.join(points, "run_id").where(at_limit & (verdict == "OVERLOADED"))
    last = _first(joined, ("run_id", "goal", "_bpm"), sql.col("trial").desc())
    return last.drop("_bpm", "_load")


def resource_peaks(resources: DataFrame) -> DataFrame:
    """Of `resource_rows` one row per trial and resource: that of the broker which used it most."""
    from pyspark.sql import functions as sql

    most_used = sql.col("utilization").desc_nulls_last()
    return _first(resources, ("run_id", "trial", "resource"), most_used, sql.col("broker_id"))


def chosen_trial(trials: DataFrame, number: int = 0) -> DataFrame:
    """One trial of a run's: that number, or with 0 the last overload, or else the last trial."""
    from pyspark.sql import functions as sql

    wanted = trials.where(sql.col("trial") == number) if number else trials
    overloads_first = sql.coalesce(sql.col("verdict") == "OVERLOADED", sql.lit(False)).desc()
    return wanted.orderBy(overloads_first, sql.col("trial").desc()).limit(1)


def reason_rows(trials: DataFrame) -> DataFrame:
    """The reasons of each verdict of `trials`: a row per trial, goal and reason, in their order.

    A trial of an older version, which has no verdict per goal, has its reasons with a null goal.
    """
    from pyspark.sql import functions as sql

    per_goal = trials.select(*_TRIAL, sql.explode("verdicts").alias("goal", "judgement"))
    told = per_goal.select(
        *_TRIAL, "goal", "judgement.verdict", sql.posexplode("judgement.reasons")
    ).toDF(*_TRIAL, "goal", "goal_verdict", "place", "reason")
    older = trials.where("verdicts is null or size(verdicts) = 0").select(
        *_TRIAL,
        sql.lit(None).cast("string").alias("goal"),
        sql.col("verdict").alias("goal_verdict"),
        sql.posexplode("reasons").alias("place", "reason"),
    )
    columns = ("run_id", "trial", "goal", "goal_verdict", "place", "reason.*")
    return told.select(*columns).union(older.select(*columns)).orderBy("trial", "goal", "place")


def only_row(frame: DataFrame, what: str) -> dict[str, Any]:
    """The row of a DataFrame of one.

    Args:
        what: was looked for, for the message.

    Raises:
        ConfigError: there is none.
    """
    found = frame.limit(1).collect()
    if found:
        return dict(found[0].asDict(recursive=True))
    raise ConfigError(f"there is no {what} in the tables; expected one that was made; correct it")
