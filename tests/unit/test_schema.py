from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

import pyarrow as pa
import pytest

from metrics.reporting.summary import Boundary
from metrics.sources.sample import BrokerSample
from metrics.tables.columns import arrow_type, ddl, fields_of, plain
from metrics.tables.records import boundary_record, run_record, sample_record, trial_record
from metrics.tables.schema import SCHEMAS, Pattern, RunRow, utc
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Judgement, Reason
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.nights import case_row
from tests.support.rows import BOUNDARY, trial


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    ratio: float | None


@dataclass(frozen=True)
class Outer:
    name: str
    colour: Colour | None
    inner: tuple[Inner, ...]
    counts: Mapping[int, int]


def test_annotations_become_columns() -> None:
    schema = pa.schema(fields_of(Outer, skip={"name"}))
    assert ddl(schema) == (
        "`colour` string, `inner` array<struct<`ratio`:double>>, `counts` map<bigint,bigint>"
    )


def test_values_become_what_arrow_takes() -> None:
    row = plain(Outer("a", Colour.RED, (Inner(math.nan), Inner(0.5)), {3: 4}))
    assert row == {
        "name": "a",
        "colour": "red",
        "inner": [{"ratio": None}, {"ratio": 0.5}],
        "counts": [(3, 4)],
    }
    table = pa.Table.from_pylist([row], schema=pa.schema(fields_of(Outer)))
    assert table.to_pylist() == [row]


def test_an_annotation_that_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="is no type of a column"):
        arrow_type(bytes)


RECORDS = {
    "runs": run_record(RunRow("r", "started", utc(5.0), "c", "w", "g", environment={"a": "b"})),
    "trials": trial_record(trial()),
    "samples": sample_record("r", 1, BrokerSample(1, 5.5, {"bytes_in": 1.0})),
    "boundaries": boundary_record("r", 5.0, ("c", "w", "g"), BOUNDARY),
    "cases": run_record(case_row()),
}


@pytest.mark.parametrize("table", SCHEMAS)
def test_records_have_exactly_the_columns_and_fit(table: str) -> None:
    record = RECORDS[table]
    assert list(record) == SCHEMAS[table].names
    (back,) = pa.Table.from_pylist([record], schema=SCHEMAS[table]).to_pylist()
    assert back == record


@pytest.mark.parametrize("table", SCHEMAS)
def test_no_column_stands_twice(table: str) -> None:
    names = SCHEMAS[table].names
    assert len(names) == len(set(names))


def test_trials_keep_pattern_counts_judgement_and_windows() -> None:
    record = RECORDS["trials"]
    assert {field.name for field in fields(Pattern)} <= record.keys()
    missing = {field.name for field in fields(ClientWindow)} - record.keys()
    assert missing == {"start_s", "end_s"}
    assert (record["window_start"], record["window_end"]) == (utc(1_000_000), utc(1_000_010))
    assert record["verdict"] == Verdict.OVERLOADED.value
    assert record["limited_by"] == Resource.DISK.value
    assert set(record["reasons"][0]) == {field.name for field in fields(Reason)}
    assert [window["broker_id"] for window in record["broker_windows"]] == [1, 2]
    assert record["broker_windows"][0]["produce"]["local_ms"] == 1.0


def test_trials_keep_what_each_goal_says() -> None:
    reason = Reason("isr", "in 60% of the samples", 0.6, 0.5)
    judged = {
        "strict": Judgement(Verdict.OVERLOADED, (reason, reason)),
        "tolerant": Judgement(Verdict.SUSTAINED, ()),
    }
    record = trial_record(trial(verdicts=judged, recovery_s=7.5))
    (back,) = pa.Table.from_pylist([record], schema=SCHEMAS["trials"]).to_pylist()
    said = dict(back["verdicts"])
    assert {goal: each["verdict"] for goal, each in said.items()} == {
        "strict": "OVERLOADED",
        "tolerant": "SUSTAINED",
    }
    assert [each["text"] for each in said["strict"]["reasons"]] == ["in 60% of the samples"] * 2
    assert back["recovery_s"] == 7.5


def test_boundaries_follow_the_summary() -> None:
    assert {field.name for field in fields(Boundary)} <= RECORDS["boundaries"].keys()
    assert RECORDS["boundaries"]["overload_reasons"] == ["request_handler_idle: idle 0.1"]
