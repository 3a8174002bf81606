"""The samples of a trial as series over time: gauges as they are, counters as rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from metrics.tables.views import broker_rows, reading_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Series:
    """A reading over time.

    Attributes:
        title: what it shows, with its unit.
        reading: its name in `metrics.sources.beans`.
        scale: turns the reading, or the rate of a counter per second, into the unit.
        is_counter: it only grows, so its rate is what tells.
    """

    title: str
    reading: str
    scale: float = 1.0
    is_counter: bool = False


SERIES = (
    Series("Request handlers idle [ratio]", "handler_idle_ns", 1e-9, is_counter=True),
    Series("Requests waiting", "request_queue_size"),
    Series("Bytes in [MB/s]", "bytes_in", 1e-6, is_counter=True),
    Series("Under-replicated partitions", "under_replicated_partitions"),
    Series("ISR shrinks [1/s]", "isr_shrinks", is_counter=True),
)
"""What the notebook `trial` draws, in its order."""


def sample_series(samples: DataFrame, trials: DataFrame) -> DataFrame:
    """The samples of `trials` as `SERIES`: a row per trial, broker, series and sample.

    Columns: `run_id`, `trial`, `broker_id`, `title`, `elapsed_s`, the time since the measured
    window began [s], and `value`. A counter's value is its rate since the sample before; a
    counter that fell, as the broker had started anew, has none there. Controllers are left out.
    """
    from pyspark.sql import functions as sql

    brokers = broker_rows(trials).select("run_id", "trial", "broker_id")
    starts = trials.select("run_id", "trial", "window_start")
    own = samples.join(brokers, ["run_id", "trial", "broker_id"], "left_semi")
    parts = [_one(own, series) for series in SERIES]
    rows = reduce(lambda first, second: first.unionByName(second), parts)
    elapsed = (sql.unix_micros("at") - sql.unix_micros("window_start")) / 1e6
    joined = rows.join(starts, ["run_id", "trial"])
    kept = ("run_id", "trial", "broker_id", "title", elapsed.alias("elapsed_s"), "value")
    return joined.select(*kept).orderBy("trial", "title", "broker_id", "elapsed_s")


def _one(samples: DataFrame, series: Series) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rows = reading_rows(samples, series.reading).withColumn("title", sql.lit(series.title))
    if not series.is_counter:
        return rows.withColumn("value", sql.col("value") * series.scale)
    order = Window.partitionBy("run_id", "trial", "broker_id").orderBy("at")
    grown = sql.col("value") - sql.lag("value").over(order)
    passed_s = (sql.unix_micros("at") - sql.unix_micros(sql.lag("at").over(order))) / 1e6
    rates = rows.withColumn("value", grown * series.scale / passed_s)
    return rates.where("value >= 0")
