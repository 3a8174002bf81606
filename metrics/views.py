"""Questions that analysts ask of the tables, as functions from DataFrames to DataFrames.

They take the tables as `TableStore.read` gives them, or as Spark reads them anywhere else,
Spark Connect included, and only use columns of docs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIAL = ("run_id", "trial", "bpm", "np", "verdict")


def newest_runs(runs: DataFrame) -> DataFrame:
    """One row per run of the table `runs`: its end, or its start while it runs or if it died."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    finished_first = (sql.col("event") == "finished").desc()
    newest = Window.partitionBy("run_id").orderBy(finished_first, sql.col("at").desc())
    return runs.withColumn("_rank", sql.row_number().over(newest)).where("_rank = 1").drop("_rank")


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
        reading: its name in `metrics.beans`; of several collectors or network threads the
            part before the colon, and their values are added.
    """
    from pyspark.sql import functions as sql

    pair = sql.explode("readings").alias("name", "value")
    rows = samples.select("run_id", "trial", "broker_id", "at", pair)
    named = rows.where(sql.split("name", ":")[0] == reading)
    return named.groupBy("run_id", "trial", "broker_id", "at").agg(sql.sum("value").alias("value"))


def latest_boundaries(boundaries: DataFrame) -> DataFrame:
    """Of `boundaries` the newest point per cluster, workload, goal, axis and message size.

    Points whose search gave up are left out.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    same = ("cluster", "workload", "goal", "axis", "bpm")
    newest = Window.partitionBy(*same).orderBy(sql.col("at").desc())
    found = boundaries.where("gave_up is null").withColumn("_rank", sql.row_number().over(newest))
    return found.where("_rank = 1").drop("_rank")
