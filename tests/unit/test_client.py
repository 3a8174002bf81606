from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.trial.by_producer import ByProducer
from metrics.trial.client import (
    TASK_ROW_DDL,
    TASK_ROW_SCHEMA,
    TaskRow,
    merge,
    task_rows_to_batch,
)
from metrics.trial.histograms import decode_histogram, encode_histogram, new_histogram, record_us


def row(task_id: int = 0, latencies_us: tuple[float, ...] = (), **values: object) -> TaskRow:
    histogram = new_histogram()
    for latency_us in latencies_us:
        record_us(histogram, latency_us)
    text = encode_histogram(histogram)
    fields = {"host": "a", "np": 2, "start_s": 100.0, "end_s": 110.0, **values}
    return TaskRow(task_id, latency_us=text, **fields)  # type: ignore[arg-type]


def test_rows_survive_arrow_and_pickle() -> None:
    counts = ByProducer(acked={7: 4}, failed={7: {"X": 1}})
    rows = [
        row(0, (5.0,), acked_by_partition={3: 4}, errors={"X": 1}, error="why",
            errors_by_partition={3: {"X": 1}}, by_producer=counts),
        row(1),
    ]  # fmt: skip
    batch = task_rows_to_batch(rows)
    assert batch.schema == TASK_ROW_SCHEMA
    assert [TaskRow.from_mapping(values) for values in batch.to_pylist()] == rows
    assert pickle.loads(pickle.dumps(rows)) == rows


def test_the_ddl_names_every_column_in_order() -> None:
    columns = [part.split()[0].strip("`") for part in TASK_ROW_DDL.split(", ")]
    assert columns == TASK_ROW_SCHEMA.names
    assert "`acked_by_partition` map<bigint,bigint>" in TASK_ROW_DDL


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(TypeError, match="offered"):
        TaskRow.from_mapping({**row().to_dict(), "offered": 1})


def test_counts_add_up_and_the_busiest_loop_counts() -> None:
    window = merge(
        [
            row(0, offered_records=10, acked_records=9, loop_busy=0.3, cpu_s=1.0, throttle_ms=2,
                acked_by_partition={0: 4, 1: 5}, errors={"A": 1}),
            row(1, offered_records=20, acked_records=20, loop_busy=0.9, cpu_s=2.0,
                acked_by_partition={1: 20}, errors={"A": 2, "B": 3}).to_dict(),
        ]
    )  # fmt: skip
    assert (window.np, window.offered_records, window.acked_records) == (4, 30, 29)
    assert (window.loop_busy, window.cpu_s, window.throttle_ms) == (0.9, 3.0, 2)
    assert window.acked_by_partition == {0: 4, 1: 25}
    assert window.errors == {"A": 3, "B": 3}
    assert window.duration_s == 10.0
    assert window.task_errors == ()


def test_quantiles_are_of_all_tasks_together() -> None:
    window = merge([row(0, tuple([1_000.0] * 98)), row(1, (50_000.0, 90_000.0))])
    assert window.latency_p50_ms == pytest.approx(1.0, rel=0.001)
    assert window.latency_p99_ms == pytest.approx(50.0, rel=0.001)
    assert window.latency_p999_ms == pytest.approx(90.0, rel=0.001)
    assert window.latency_max_ms == pytest.approx(90.0, rel=0.001)


def test_nothing_recorded_has_no_quantile() -> None:
    window = merge([row()])
    assert math.isnan(window.latency_p99_ms)
    assert math.isnan(window.lateness_p99_ms)


def test_times_beyond_the_range_count_as_its_edge() -> None:
    window = merge([row(0, (0.0, 2e12))])
    assert window.latency_p50_ms == pytest.approx(0.001)
    assert window.latency_max_ms == 3_600_000.0


def test_a_failed_task_is_named() -> None:
    window = merge([row(0), row(1, error="no route to broker 2")])
    assert window.task_errors == ("task 1 on a: no route to broker 2",)


def test_no_row_and_different_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="no task reported"):
        merge([])
    with pytest.raises(ValueError, match=r"tasks 0 and 1 measured windows 0\.500 s apart"):
        merge([row(0), row(1, start_s=100.5)])
    assert merge([row(0), row(1, start_s=100.0005)]).start_s == 100.0


@given(st.lists(st.integers(1, 3_600_000_000), max_size=50))
def test_a_histogram_survives_its_text(values_us: list[int]) -> None:
    histogram = new_histogram()
    for value_us in values_us:
        record_us(histogram, value_us)
    again = decode_histogram(encode_histogram(histogram))
    assert again.get_total_count() == len(values_us)
    assert again.get_max_value() == histogram.get_max_value()


def test_empty_text_is_an_empty_histogram() -> None:
    assert decode_histogram("").get_total_count() == 0
