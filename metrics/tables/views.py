"""Queries of the tables for analysts: functions from DataFrames to DataFrames, and SQL views.

The functions accept tables from `TableStore.read`, and tables from any other Spark session,
including Spark Connect. The functions use only columns of docs/reference/tables.md.

The views are created if the tables are in a schema of a catalog. The columns of views have full
names, such as `message_bytes` in place of `bpm`, and `producers` in place of `np`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metrics.common.errors import ConfigError
from metrics.tables.rows import ABSENT, BY_RUN
from metrics.trial.trial import ALL_BROKERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRIAL = ("run_id", "trial", "bpm", "np", "verdict")
VARIANT_COLUMNS = {"pattern": "map<string,string>", "experiment": "string"}
"""Columns of `boundaries` that distinguish traffic patterns → type of the column. Older tables may
not have these columns."""
SERIES = ("cluster", "workload", "goal", "axis", "bpm", "variant")
"""Columns that identify a limit over time, see `with_variant`."""
UNCERTAINTY_COLUMNS = {
    "load_low": "double",
    "load_high": "double",
    "load_estimate": "double",
    "mb_per_s_low": "double",
    "mb_per_s_high": "double",
    "doubtful": "boolean",
    "latency_p50_ms": "double",
    "latency_p99_ms": "double",
    "latency_p999_ms": "double",
}
"""Columns of `boundaries` that older tables may not have → type of the column."""


def newest_runs(runs: DataFrame) -> DataFrame:
    """One row per run of the table `runs`: the row of the run's end, or the row of its start if the
    run has not ended.
    """
    from pyspark.sql import functions as sql

    finished_first = (sql.col("event") == "finished").desc()
    return _first(runs, ("run_id",), finished_first, sql.col("at").desc())


def newest_cases(cases: DataFrame) -> DataFrame:
    """One row per run and case of the table `cases`: the judgment of the case, or its measurement
    if it is not judged yet.
    """
    from pyspark.sql import functions as sql

    return _first(
        cases.where("event != 'accepted'"),
        ("run_id", "case"),
        (sql.col("event") == "judged").desc(),
    )


def _first(frame: DataFrame, same: Sequence[str], *order: Column) -> DataFrame:
    """One row for each group of rows with equal values in the columns `same`.

    The row is the first row of the group in the given order.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rank = sql.row_number().over(Window.partitionBy(*same).orderBy(*order))
    return frame.withColumn("_rank", rank).where("_rank = 1").drop("_rank")


def resource_rows(trials: DataFrame) -> DataFrame:
    """The use of resources in `trials`, with one row per trial, broker and resource.

    The column `is_limit` is true for the limiting resource of the trial.
    """
    from pyspark.sql import functions as sql

    exploded = trials.select(*_TRIAL, "limited_by", sql.explode("resources").alias("use"))
    is_limit = sql.coalesce(sql.col("use.resource") == sql.col("limited_by"), sql.lit(False))
    return exploded.select(*_TRIAL, "use.*", is_limit.alias("is_limit"))


def broker_rows(trials: DataFrame) -> DataFrame:
    """The measured windows of the brokers in `trials`, with one row per trial and broker."""
    from pyspark.sql import functions as sql

    exploded = trials.select(*_TRIAL, sql.explode("broker_windows").alias("window"))
    return exploded.select(*_TRIAL, "window.*")


def newest_points(boundaries: DataFrame) -> DataFrame:
    """The newest boundary point in `boundaries` for each run, goal, axis and message size.

    Points that were measured with a broker offline are excluded, according to the column `state`.
    """
    from pyspark.sql import functions as sql

    return _first(
        with_all_brokers(boundaries), ("run_id", "goal", "axis", "bpm"), sql.col("at").desc()
    )


def newest_of_each_state(boundaries: DataFrame) -> DataFrame:
    """The newest row of `boundaries` for each run, goal, message size and state of the cluster.

    A boundary point has several rows if its search was continued or if its steady limit was added
    later.
    """
    from pyspark.sql import functions as sql

    point = [each for each in ("run_id", "goal", "bpm", "state") if each in boundaries.columns]
    return _first(boundaries, point, sql.col("at").desc(), sql.col("trials").desc())


def latest_boundaries(boundaries: DataFrame) -> DataFrame:
    """The newest point of `boundaries` for each cluster, workload, goal, axis, size and pattern.

    Three kinds of points are excluded: points without a limit, points that were measured with a
    broker offline, and points of experiments. Rows without a pattern, which older versions of
    kafka-redline wrote, are treated like rows with the newest pattern.
    """
    from pyspark.sql import functions as sql

    whole = with_all_brokers(boundaries).where("gave_up is null")
    return _first(with_variant(whole), SERIES, sql.col("at").desc()).drop("variant")


def with_variant(boundaries: DataFrame) -> DataFrame:
    """Add the column `variant`, which distinguishes traffic patterns.

    Points of experiments are excluded, because the cases of an experiment can also differ in
    settings outside the traffic pattern. Rows without a pattern, which older versions of
    kafka-redline wrote, are treated like rows with the newest pattern.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    own = _with_columns(boundaries, VARIANT_COLUMNS).where("experiment is null")
    known = sql.when(sql.size("pattern") > 0, sql.to_json("pattern"))
    alike = Window.partitionBy(*SERIES[:-1]).orderBy("at")
    everything = alike.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    newest = sql.last(known, ignorenulls=True).over(everything)
    return own.withColumn("variant", sql.coalesce(known, newest))


def with_all_brokers(boundaries: DataFrame) -> DataFrame:
    """Select the points of `boundaries` that were measured with all brokers online.

    An older table without the column `state` is returned unchanged.
    """
    if "state" not in boundaries.columns:
        return boundaries
    return boundaries.where(f"coalesce(state, '{ALL_BROKERS}') = '{ALL_BROKERS}'")


def points_for_people(boundaries: DataFrame) -> DataFrame:
    """The most important columns of boundary points, sorted by cluster, goal and message size.

    `load_overloaded` and `width` [ratio] are null if no load was overloaded. `load_low`,
    `load_high` and `load_estimate` are null if the limit has no interval. Rates per broker are
    payload rates [MB/s].
    """
    from pyspark.sql import functions as sql

    boundaries = _with_columns(boundaries, UNCERTAINTY_COLUMNS)
    low, high = sql.coalesce("load_sustained", "np_sustained"), overloaded_load()
    upper = sql.col("mb_per_s_per_broker") * sql.col("mps_overloaded") / sql.col("mps")
    each = sql.col("mb_per_s_per_broker") / sql.col("mb_per_s")
    derived = {
        "load_sustained": low,
        "load_overloaded": high,
        "width": 1 - low / high,
        # On the axis message_bytes, the two sides of a bracket have different message sizes.
        "mb_per_s_per_broker_overloaded": sql.when(sql.col("axis") != "message_bytes", upper),
        "mb_per_s_per_broker_low": each * sql.col("mb_per_s_low"),
        "mb_per_s_per_broker_high": each * sql.col("mb_per_s_high"),
    }
    points = boundaries.withColumns(derived).select(*_POINTS)
    return points.orderBy("cluster", "workload", "goal", "axis", "bpm")


def _with_columns(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Add the columns that an older table lacks, with the value null in each row."""
    from pyspark.sql import functions as sql

    missing = [(name, kind) for name, kind in names.items() if name not in frame.columns]
    return frame.select("*", *(sql.lit(None).cast(kind).alias(name) for name, kind in missing))


def overloaded_load() -> Column:
    """The overloaded side of a bracket [load]. In rows of older versions, the overloaded side is
    `np_overloaded`.
    """
    from pyspark.sql import functions as sql

    return sql.coalesce("load_overloaded", "np_overloaded")


def limit_trials(trials: DataFrame, boundaries: DataFrame) -> DataFrame:
    """One row for each boundary point: the last OVERLOADED trial at the lowest overloaded load, and
    the point's `goal`.
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
    """For each trial and resource, one row of `resource_rows`: the row of the broker with the
    highest use.
    """
    from pyspark.sql import functions as sql

    most_used = sql.col("utilization").desc_nulls_last()
    return _first(resources, ("run_id", "trial", "resource"), most_used, sql.col("broker_id"))


def chosen_trial(trials: DataFrame, number: int = 0) -> DataFrame:
    """The trial with this number.

    If `number` is 0, the result is the last OVERLOADED trial, or the last trial if no trial was
    OVERLOADED.
    """
    from pyspark.sql import functions as sql

    wanted = trials.where(sql.col("trial") == number) if number else trials
    overloads_first = sql.coalesce(sql.col("verdict") == "OVERLOADED", sql.lit(False)).desc()
    return wanted.orderBy(overloads_first, sql.col("trial").desc()).limit(1)


def reason_rows(trials: DataFrame) -> DataFrame:
    """The reasons of each verdict in `trials`, with one row for each reason of a trial and goal.

    The rows are sorted by trial, by goal, and by the order of the reasons in the verdict.

    Trials of older versions have no verdict per goal, so their `goal` is null.
    """
    from pyspark.sql import functions as sql

    per_goal = trials.select(*_TRIAL, sql.explode("verdicts").alias("goal", "judgement"))
    newer = per_goal.select(
        *_TRIAL, "goal", "judgement.verdict", sql.posexplode("judgement.reasons")
    ).toDF(*_TRIAL, "goal", "goal_verdict", "place", "reason")
    older = trials.where("verdicts is null or size(verdicts) = 0").select(
        *_TRIAL,
        sql.lit(None).cast("string").alias("goal"),
        sql.col("verdict").alias("goal_verdict"),
        sql.posexplode("reasons").alias("place", "reason"),
    )
    columns = ("run_id", "trial", "goal", "goal_verdict", "place", "reason.*")
    return newer.select(*columns).union(older.select(*columns)).orderBy("trial", "goal", "place")


def only_row(frame: DataFrame, what: str) -> dict[str, Any]:
    """The first row of a DataFrame.

    Args:
        frame: the DataFrame.
        what: description of the row, for the error message.

    Raises:
        ConfigError: the DataFrame is empty.
    """
    found = frame.limit(1).collect()
    if found:
        return dict(found[0].asDict(recursive=True))
    raise ConfigError(f"there is no {what} in the tables; expected an existing name; correct it")


_LATEST_LIMITS = f"""
SELECT run_id, at AS measured_at, cluster, workload, goal, bpm AS message_bytes,
  axis AS searched_along, load_sustained AS load, load_low, load_high,
  np_sustained AS producers, mps AS messages_per_s,
  mb_per_s, mb_per_s_low, mb_per_s_high, mb_per_s_per_broker,
  latency_p50_ms, latency_p99_ms, latency_p999_ms, limited_by, evidence, doubtful, pattern
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY cluster, workload, goal, axis, bpm, to_json(pattern) ORDER BY at DESC) AS newest
  FROM {{boundaries}}
  WHERE gave_up IS NULL AND experiment IS NULL
    AND coalesce(state, '{ALL_BROKERS}') = '{ALL_BROKERS}'
)
WHERE newest = 1
"""

_NIGHTS = """
SELECT suite, night, case, at AS measured_at, outcome, text, change, change_low, change_high,
  p_value, measure, value, mb_per_s_per_broker, kind, bpm AS message_bytes, np AS producers,
  limited_by, cluster, workload, goal, run_id
FROM (
  SELECT *, row_number() OVER (PARTITION BY run_id, case ORDER BY event) AS newest
  FROM {cases}
  WHERE event != 'accepted'
)
WHERE newest = 1
"""
"""Within a run and case, the order by `event` puts `judged` before `measured`."""

_EFFECTS = """
SELECT experiment, sweep_id, case, any_value(settings) AS settings, message_bytes, goal,
  count(*) AS repeats, median(mb_per_s) AS mb_per_s, min(mb_per_s) AS mb_per_s_lowest,
  max(mb_per_s) AS mb_per_s_highest,
  median(mb_per_s) / any_value(mb_per_s_of_all) - 1 AS change_to_median_of_all
FROM (
  SELECT b.experiment, r.sweep_id, b.case, r.settings, b.bpm AS message_bytes, b.goal, b.mb_per_s,
    median(b.mb_per_s) OVER (PARTITION BY r.sweep_id, b.bpm, b.goal) AS mb_per_s_of_all
  FROM {boundaries} b
  JOIN (
    SELECT run_id, any_value(sweep_id) AS sweep_id, any_value(settings) AS settings FROM {runs}
    WHERE event = 'started' GROUP BY run_id
  ) r ON b.run_id = r.run_id
  WHERE b.experiment IS NOT NULL AND b.gave_up IS NULL
)
GROUP BY experiment, sweep_id, case, message_bytes, goal
"""

VIEWS: Mapping[str, tuple[str, str]] = {
    "latest_limits": (
        "The newest limit of each cluster, workload, goal, message size and traffic pattern",
        _LATEST_LIMITS,
    ),
    "nights": ("The outcome of each case of each night", _NIGHTS),
    "effects": (
        "The limits of each case in a sweep; the file sweep.json has the intervals of the effects",
        _EFFECTS,
    ),
}
"""Name of a view → (its description, its query with the names of tables in braces)."""


_POINTS = ("cluster", "workload", "goal", "bpm", "axis", "load_sustained", "load_overloaded",
           "width", "load_low", "load_high", "load_estimate", "doubtful", "mps", "mb_per_s",
           "mb_per_s_per_broker", "mb_per_s_per_broker_overloaded", "mb_per_s_per_broker_low",
           "mb_per_s_per_broker_high", "latency_p50_ms", "latency_p99_ms", "latency_p999_ms",
           "limited_by", "evidence", "confidence", "trials", "gave_up", "notes", "run_id",
           "at")  # fmt: skip
_MOVED = ("at", "cluster", "workload", "goal", "bpm", "moved", "change", "mb_per_s_per_broker",
          "limited_by", "environment", "run_id", "previous_run_id")  # fmt: skip
_HISTORY = ("at", "cluster", "workload", "goal", "axis", "bpm", "mps", "mps_overloaded",
            "mb_per_s_per_broker", "limited_by", "change", "moved", "run_id",
            "previous_run_id")  # fmt: skip
_NIGHT = ("at", "suite", "cluster", "night", "case", "outcome", "text", "value", "measure",
          "change", "change_low", "change_high", "smallest_visible", "limited_by",
          "run_id")  # fmt: skip
_HEADROOM = ("at", "cluster", "times", "times_low", "times_high", "broker_id", "resource", "used",
             "limit", "unit", "is_estimate", "growth_per_day", "full_at", "full_low_at",
             "full_high_at", "run_id")  # fmt: skip
"""The columns of `headroom_for_people`, in order."""
FELL, ROSE, HELD = "fell", "rose", "held"
"""Names for the movement of a bracket. A bracket fell if it is entirely below the previous bracket,
and rose if it is entirely above the previous bracket. A bracket that overlaps the previous bracket
held.
"""


def matching(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Select the rows whose columns have the given values (column → value).

    An empty value matches all rows.
    """
    for column, wanted in names.items():
        if wanted:
            rows = rows.where(rows[column] == wanted)
    return rows


def boundary_history(boundaries: DataFrame) -> DataFrame:
    """The boundary points of all runs over time, each compared with the previous point of its
    series.

    All points of a series have the same cluster, workload, goal, axis, message size and pattern.
    Points of experiments and points without a limit are excluded.

    Added columns:

    * `previous_run_id`: run of the previous point; null at the first point.
    * `change`: change of `mps` since the previous point [ratio, 0 without a change]; null at the
      first point.
    * `moved`: `fell` if the overloaded side is not above the previous sustained side, `rose` if the
      sustained side is not below the previous overloaded side, otherwise `held`; null at the first
      point.
    * `at_ms`: the time for charts [ms since the epoch].
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
        history: rows with `run_id` and `previous_run_id`, such as rows of `boundary_history`.
        runs: the table `runs`.

    Returns:
        One row for each pair of runs and each fact that differs. The columns are `run_id`,
        `previous_run_id`, `name`, `before` and `after`. The result excludes facts that can differ
        even if the clusters are equal.
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
    """The points that fell or rose in a history, newest first.

    The column `environment` lists the changed facts as `name: before → after`.
    """
    from pyspark.sql import functions as sql

    text = sql.concat_ws("", "name", sql.lit(": "), "before", sql.lit(" → "), "after")
    listed = changes.groupBy("run_id", "previous_run_id").agg(
        sql.sort_array(sql.collect_list(text)).alias("environment")
    )
    moved = history.where(sql.col("moved").isin(FELL, ROSE))
    joined = moved.join(listed, ["run_id", "previous_run_id"], "left")
    return joined.select(*_MOVED).orderBy("at", ascending=False)


def history_for_people(history: DataFrame) -> DataFrame:
    """The most important columns of a history. The newest points are first."""
    return history.select(*_HISTORY).orderBy("at", "bpm", ascending=[False, True])


def nights(cases: DataFrame) -> DataFrame:
    """The nights of each case over time. If a night has been judged, its row has the judgment.

    Added columns: `previous_run_id`, the run of the previous night with the same suite, cluster and
    case; and `at_ms`, the time for charts [ms since the epoch].
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    case = Window.partitionBy("suite", "cluster", "case").orderBy("at", "run_id")
    found = newest_cases(cases).withColumn("previous_run_id", sql.lag("run_id").over(case))
    return found.withColumn("at_ms", sql.unix_millis("at")).orderBy(
        "at", "suite", "cluster", "case"
    )


def nights_for_people(found: DataFrame) -> DataFrame:
    """The most important columns of nights. The newest nights are first."""
    order = ("at", "suite", "cluster", "case")
    return found.select(*_NIGHT).orderBy(*order, ascending=[each != "at" for each in order])


def headroom_history(headroom: DataFrame) -> DataFrame:
    """The answers of `redline headroom` over time, with one row for each call.

    Added column: `at_ms`, the time for charts [ms since the epoch].
    """
    from pyspark.sql import functions as sql

    answers = headroom.where("is_first")
    return answers.withColumn("at_ms", sql.unix_millis("at")).orderBy("at", "cluster")


def headroom_for_people(found: DataFrame) -> DataFrame:
    """The most important columns of the answers of `redline headroom`.

    The newest answers are first.
    """
    return found.select(*_HEADROOM).orderBy("at", "cluster", ascending=[False, True])
