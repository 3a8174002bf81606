from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.stage import TASK_DDL, TASK_SCHEMA, reports_to_batch
from metrics.columns import row_of
from metrics.trial.adding import Histogram, ProducerShares, SlicedTimes
from metrics.trial.client import (
    ClockOffset,
    Counts,
    HostClock,
    ProducerAccounts,
    ProducerReport,
    TaskReport,
    host_clocks,
    merge,
)


def report(
    task_id: int = 0,
    latencies_us: tuple[float, ...] = (),
    start_s: float = 100.0,
    error: str | None = None,
    **counts: Any,
) -> TaskReport:
    produced = ProducerReport(Counts(**counts), Histogram(latencies_us))
    return TaskReport(task_id, "a", start_s, 110.0, produced, error=error)


def travelled(*reports: TaskReport) -> list[TaskReport]:
    """Client options as the driver gets them."""
    return [TaskReport.from_row(row) for row in reports_to_batch(reports).to_pylist()]


def test_reports_survive_arrow_and_pickle() -> None:
    by_producer = ProducerAccounts(acked={7: 4}, failed={7: {"X": 1}})
    reports = [
        report(0, (5.0,), acked_by_partition={3: 4}, errors_by_partition={3: {"X": 1}},
               by_producer=by_producer, error="why"),
        report(1),
        TaskReport(2, "b", 100.0, 110.0, error="no broker", is_refused=True),
    ]  # fmt: skip
    assert reports_to_batch(reports).schema == TASK_SCHEMA
    assert travelled(*reports) == reports
    assert pickle.loads(pickle.dumps(reports)) == reports
    # A row without a column that is needed is refused.
    row = row_of(report())
    del row["task_id"]
    with pytest.raises(ValueError, match="task_id"):
        TaskReport.from_row(row)


def test_the_ddl_names_every_column_in_order() -> None:
    columns = [part.split()[0].strip("`") for part in TASK_DDL.split(", ")]
    assert columns == TASK_SCHEMA.names
    assert "`acked_by_partition`:map<bigint,bigint>" in TASK_DDL


def test_shares_and_latency_over_time_are_of_all_tasks_together_and_cross_to_the_driver() -> None:
    def task(number: int, acked: int, *slices: dict[int, int]) -> TaskReport:
        shares, times = ProducerShares.of([(number, acked, 10)]), dict(enumerate(slices))
        produced = ProducerReport(shares=shares, latency_over_time=SlicedTimes(2, times))
        return TaskReport(number, "a", 100.0, 103.0, produced)

    one, other = task(0, 9, {1_000: 99}, {4_000: 1}), task(1, 6, {1_000: 99, 50_000: 2})
    window = merge([*travelled(one, other), TaskReport(2, "a", 100.0, 103.0, error="no broker")])
    first, second = window.latency_over_time
    assert (first.start_s, first.length_s, first.records) == (0, 2, 200)
    assert (first.p50_ms, first.max_ms) == pytest.approx((1.0, 50.0), rel=0.001)
    assert (second.start_s, second.length_s, second.records) == (2, 1, 1), "the window's end"
    assert merge([report()]).latency_over_time == ()
    span = window.producer_share
    assert (span.min, span.max, span.worst) == (0.6, 0.9, 1)
    assert span.p50 == pytest.approx(0.6, rel=0.001)


def test_quantiles_are_of_all_tasks_together() -> None:
    tasks = [report(0, tuple([1_000.0] * 98)), report(1, (50_000.0, 90_000.0), error="no route")]
    window = merge(tasks)
    found = window.latency
    assert (found.p50_ms, found.p99_ms, found.p999_ms, found.max_ms) == pytest.approx(
        (1.0, 50.0, 90.0, 90.0), rel=0.001
    )
    assert window.task_errors == ("task 1 on a: no route",)
    silent = merge([report()])
    assert math.isnan(silent.latency.p99_ms) and math.isnan(silent.lateness_p99_ms)
    beyond = merge([report(0, (0.0, 2e12))]).latency
    assert (beyond.p50_ms, beyond.max_ms) == pytest.approx((0.001, 3_600_000.0))


def test_no_report_and_different_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="no task reported"):
        merge([])
    with pytest.raises(ValueError, match=r"tasks 0 and 1 measured windows 0\.500 s apart"):
        merge([report(0), report(1, start_s=100.5)])
    assert merge([report(0), report(1, start_s=100.0005)]).start_s == 100.0


@given(st.lists(st.integers(1, 3_600_000_000), max_size=50))
def test_a_histogram_survives_its_text(values_us: list[int]) -> None:
    histogram = Histogram(values_us)
    again = Histogram.from_text(histogram.to_text())
    assert again == histogram
    assert again.count == len(values_us)
    assert again.quantile(100.0) == pytest.approx(histogram.quantile(100.0), nan_ok=True)


def test_a_host_has_the_clock_of_its_task_that_is_surely_furthest() -> None:
    sure, vague, other = ClockOffset(-0.3, 0.01), ClockOffset(0.5, 0.4), ClockOffset(0.1, 0.01)
    found = host_clocks([("b", vague), ("a", other), ("b", sure), ("c", None)])
    assert found == (HostClock("a", other), HostClock("b", sure))
