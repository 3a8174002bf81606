"""What changed from run to run: limits and environments, as functions from DataFrames.

Like `metrics.tables.views` they work on Spark Connect and use only columns of docs/tables.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metrics.tables.environment import ABSENT, BY_RUN
from metrics.tables.views import (
    SERIES,
    newest_cases,
    newest_points,
    newest_runs,
    variants_apart,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FELL, ROSE, HELD = "fell", "rose", "held"
"""How a bracket moved: wholly below the one before, wholly above it, or neither."""


def matching(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """The rows whose columns hold these texts; an empty text stands for any."""
    for column, wanted in names.items():
        if wanted:
            rows = rows.where(rows[column] == wanted)
    return rows


def boundary_history(boundaries: DataFrame) -> DataFrame:
    """The points of all runs in time, each with the point before it of the same series.

    A series is what has the same cluster, workload, goal, axis, size and pattern; points whose
    search gave up are left out, and those of experiments. Added columns: `previous_run_id`;
    `change`, of `mps` against the point before [ratio, 0 is none]; `moved`, `fell` where the
    least overload lies no higher than what was sustained before, `rose` for the reverse, else
    `held`, all null at the first point; and `at_ms`, the time for charts [ms since the epoch].
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    series = Window.partitionBy(*SERIES).orderBy("at")
    found = variants_apart(newest_points(boundaries).where("gave_up is null"))
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
    told = found.withColumn("change", change).withColumn("moved", moved).drop("variant", *dropped)
    return told.withColumn("at_ms", sql.unix_millis("at"))


def environment_changes(history: DataFrame, runs: DataFrame) -> DataFrame:
    """What differs in the environments of the runs that follow each other in a history.

    Args:
        history: with `run_id` and `previous_run_id`, such as `boundary_history`'s.
        runs: the table `runs`.

    Returns:
        A row per pair of runs and name: `run_id`, `previous_run_id`, `name`, `before`,
        `after`. Names that differ between clusters that are alike are left out.
    """
    from pyspark.sql import functions as sql

    told = newest_runs(runs).select("run_id", "environment")
    earlier = told.select(
        sql.col("run_id").alias("previous_run_id"), sql.col("environment").alias("_before")
    )
    pairs = history.select("run_id", "previous_run_id").distinct()
    joined = pairs.join(told, "run_id").join(earlier, "previous_run_id")
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
    """The points of a history that fell or rose, the newest first, with what else changed.

    `environment` lists the differences as `name: before → after`.
    """
    from pyspark.sql import functions as sql

    told = sql.concat_ws("", "name", sql.lit(": "), "before", sql.lit(" → "), "after")
    listed = changes.groupBy("run_id", "previous_run_id").agg(
        sql.sort_array(sql.collect_list(told)).alias("environment")
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
    """A history with the columns that a reader looks for, the newest points first."""
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
    """The nights of each case in time, as measured and, where that was done, as judged.

    Added columns: `previous_run_id`, of the night before it of the same suite, cluster and
    case, and `at_ms` [ms since the epoch].
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    case = Window.partitionBy("suite", "cluster", "case").orderBy("at", "run_id")
    found = newest_cases(cases).withColumn("previous_run_id", sql.lag("run_id").over(case))
    return found.withColumn("at_ms", sql.unix_millis("at")).orderBy(
        "at", "suite", "cluster", "case"
    )


def nights_for_people(found: DataFrame) -> DataFrame:
    """Nights with the columns that a reader looks for, the newest first."""
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
