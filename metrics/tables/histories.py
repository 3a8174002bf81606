"""Changes of limits and environments from run to run, as functions of DataFrames.

As in `metrics.tables.views`, they work on Spark Connect and use only columns of
docs/reference/tables.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metrics.tables.rows import ABSENT, BY_RUN
from metrics.tables.views import SERIES, newest_cases, newest_points, newest_runs, with_variant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FELL, ROSE, HELD = "fell", "rose", "held"
"""The movement of a bracket: completely below the previous one, completely above, or neither."""


def matching(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Select the rows whose columns have these values; an empty value matches all."""
    for column, wanted in names.items():
        if wanted:
            rows = rows.where(rows[column] == wanted)
    return rows


def boundary_history(boundaries: DataFrame) -> DataFrame:
    """The points of all runs over time, each with the previous point of its series.

    A series has the same cluster, workload, goal, axis, size and pattern. Points of experiments
    and of searches that gave up are left out.

    Added columns: `previous_run_id`; `change`, the change of `mps` since the previous point
    [ratio, 0 is none]; `moved`: `fell` if the overloaded side is not above the previous sustained
    side, `rose` for the reverse, otherwise `held`; and `at_ms`, the time for charts [ms since the
    epoch]. The first three are null at the first point.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    series = Window.partitionBy(*SERIES).orderBy("at")
    found = with_variant(newest_points(boundaries).where("gave_up is null"))
    for name in ("run_id", "mps", "mps_overloaded"):
        found = found.withColumn(f"previous_{name}", sql.lag(name).over(series))
    moved = (
        sql.when(sql.col("previous_run_id").isNull(), sql.lit(None).cast("string"))
        .when(sql.col("mps_overloaded") <= sql.col("previous_mps"), FELL)
        .when(sql.col("mps") >= sql.col("previous_mps_overloaded"), ROSE)
        .otherwise(HELD)
    )
    change = sql.col("mps") / sql.col("previous_mps") - 1
    dropped = ("previous_mps", "previous_mps_overloaded")
    found = found.withColumn("change", change).withColumn("moved", moved).drop("variant", *dropped)
    return found.withColumn("at_ms", sql.unix_millis("at"))


def environment_changes(history: DataFrame, runs: DataFrame) -> DataFrame:
    """The differences between the environments of successive runs in a history.

    Args:
        history: rows with `run_id` and `previous_run_id`, such as those of `boundary_history`.
        runs: the table `runs`.

    Returns:
        A row per pair of runs and name: `run_id`, `previous_run_id`, `name`, `before`,
        `after`, without the names that differ even between equal clusters.
    """
    from pyspark.sql import functions as sql

    later = newest_runs(runs).select("run_id", "environment")
    earlier = later.select(
        sql.col("run_id").alias("previous_run_id"), sql.col("environment").alias("_before")
    )
    pairs = history.select("run_id", "previous_run_id").distinct()
    joined = pairs.join(later, "run_id").join(earlier, "previous_run_id")
    name = sql.explode(sql.array_union(sql.map_keys("_before"), sql.map_keys("environment"))).alias(
        "name"
    )
    named = joined.select("run_id", "previous_run_id", "_before", "environment", name)
    before = sql.coalesce(sql.expr("_before[name]"), sql.lit(ABSENT))
    after = sql.coalesce(sql.expr("environment[name]"), sql.lit(ABSENT))
    rows = named.select(
        "run_id", "previous_run_id", "name", before.alias("before"), after.alias("after")
    )
    differs = (sql.col("before") != sql.col("after")) & ~sql.col("name").isin(*BY_RUN)
    return rows.where(differs).orderBy("run_id", "previous_run_id", "name")


def moved_points(history: DataFrame, changes: DataFrame) -> DataFrame:
    """The points of a history that fell or rose, the newest first.

    The column `environment` lists the changed facts as `name: before → after`.
    """
    from pyspark.sql import functions as sql

    text = sql.concat_ws("", "name", sql.lit(": "), "before", sql.lit(" → "), "after")
    listed = changes.groupBy("run_id", "previous_run_id").agg(
        sql.sort_array(sql.collect_list(text)).alias("environment")
    )
    moved = history.where(sql.col("moved").isin(FELL, ROSE))
    joined = moved.join(listed, ["run_id", "previous_run_id"], "left")
    return joined.select(
        "at",
        "cluster",
        "workload",
        "goal",
        "bpm",
        "moved",
        "change",
        "mb_per_s_per_broker",
        "limited_by",
        "environment",
        "run_id",
        "previous_run_id",
    ).orderBy(sql.col("at").desc())


def history_for_people(history: DataFrame) -> DataFrame:
    """A history with the most important columns, the newest points first."""
    from pyspark.sql import functions as sql

    return history.select(
        "at",
        "cluster",
        "workload",
        "goal",
        "axis",
        "bpm",
        "mps",
        "mps_overloaded",
        "mb_per_s_per_broker",
        "limited_by",
        "change",
        "moved",
        "run_id",
        "previous_run_id",
    ).orderBy(sql.col("at").desc(), "bpm")


def nights(cases: DataFrame) -> DataFrame:
    """The nights of each case over time, judged or, before the judgment, measured.

    Added columns: `previous_run_id`, the run of the previous night of the same suite, cluster and
    case; and `at_ms` [ms since the epoch].
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    case = Window.partitionBy("suite", "cluster", "case").orderBy("at", "run_id")
    found = newest_cases(cases).withColumn("previous_run_id", sql.lag("run_id").over(case))
    return found.withColumn("at_ms", sql.unix_millis("at")).orderBy(
        "at", "suite", "cluster", "case"
    )


def nights_for_people(found: DataFrame) -> DataFrame:
    """Nights with the most important columns, the newest first."""
    from pyspark.sql import functions as sql

    return found.select(
        "at",
        "suite",
        "cluster",
        "night",
        "case",
        "outcome",
        "text",
        "value",
        "measure",
        "change",
        "change_low",
        "change_high",
        "smallest_visible",
        "limited_by",
        "run_id",
    ).orderBy(sql.col("at").desc(), "suite", "cluster", "case")


def headroom_history(headroom: DataFrame) -> DataFrame:
    """The answers of `redline headroom` over time, a row for each call.

    Added column: `at_ms` [ms since the epoch].
    """
    from pyspark.sql import functions as sql

    answers = headroom.where("is_first")
    return answers.withColumn("at_ms", sql.unix_millis("at")).orderBy("at", "cluster")


def headroom_for_people(found: DataFrame) -> DataFrame:
    """Answers with the most important columns, the newest first."""
    from pyspark.sql import functions as sql

    return found.select(
        "at",
        "cluster",
        "times",
        "times_low",
        "times_high",
        "broker_id",
        "resource",
        "used",
        "limit",
        "unit",
        "is_estimate",
        "growth_per_day",
        "full_at",
        "full_low_at",
        "full_high_at",
        "run_id",
    ).orderBy(sql.col("at").desc(), "cluster")
