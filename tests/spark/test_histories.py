"""Views of changes between runs, over small tables with rows from this file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metrics.columns import row_of
from metrics.tables.boundary import BoundaryRow
from metrics.tables.histories import (
    boundary_history,
    environment_changes,
    history_for_people,
    matching,
    moved_points,
    nights,
    nights_for_people,
)
from metrics.tables.schema import RunRow
from tests.support.frames import assert_rows, table
from tests.support.nights import case_row
from tests.support.rows import BOUNDARY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("testbed", "demo", "default")


def _point(run_id: str, at_s: float, producers: int, **changes: Any) -> dict[str, Any]:
    """A point with 5,000 records/s per producer, and a bracket of one producer."""
    made = replace(
        BOUNDARY,
        np_sustained=producers,
        np_overloaded=producers + 1,
        mps=producers * 5_000.0,
        mps_overloaded=(producers + 1) * 5_000.0,
        **changes,
    )
    return row_of(BoundaryRow(run_id, at_s, *NAMES[:2], made))


def _history(spark: SparkSession) -> DataFrame:
    points = [
        _point("a", 1.0, 20),
        _point("b", 2.0, 21),
        _point("c", 3.0, 10),
        _point("d", 4.0, 12),
        _point("e", 5.0, 0, gave_up="no valid trial"),
        _point("b", 2.0, 7, message_bytes=1_000),
    ]
    return boundary_history(table(spark, "boundaries", points))


def test_a_point_moved_if_its_bracket_does_not_touch_the_one_before(spark: SparkSession) -> None:
    found = _history(spark)
    assert_rows(
        found.select("run_id", "bpm", "previous_run_id", "change", "moved"),
        [
            ("a", 100, None, None, None),
            ("b", 100, "a", 21 / 20 - 1, "rose"),
            ("c", 100, "b", 10 / 21 - 1, "fell"),
            ("d", 100, "c", 12 / 10 - 1, "rose"),
            ("b", 1_000, None, None, None),
        ],
        "run_id string, bpm bigint, previous_run_id string, change double, moved string",
    )
    assert [row.at_ms for row in found.where("run_id = 'c'").collect()] == [3_000]
    newest = history_for_people(found).collect()
    assert [row.run_id for row in newest] == ["d", "c", "b", "b", "a"]


def test_a_point_did_not_move_if_its_bracket_touches_the_one_before(spark: SparkSession) -> None:
    open_side = _point("c", 3.0, 30) | {"np_overloaded": None, "mps_overloaded": None}
    wide = _point("a", 1.0, 20) | {"np_overloaded": 25, "mps_overloaded": 125_000.0}
    points = [wide, _point("b", 2.0, 24), open_side, _point("d", 4.0, 40)]
    found = boundary_history(table(spark, "boundaries", points))
    assert {row.run_id: row.moved for row in found.collect()} == {
        "a": None,
        "b": "held",
        "c": "rose",
        "d": "held",
    }


def _runs(spark: SparkSession) -> DataFrame:
    environments = {
        "a": {"broker.version": "4.1.2", "cluster.id": "x", "driver.cores": "2"},
        "b": {"broker.version": "4.1.2", "cluster.id": "y", "driver.cores": "2"},
        "c": {"broker.version": "4.3.1", "cluster.id": "z", "broker.cores": "4"},
    }
    rows = [
        RunRow(run_id, "finished", 9.0, *NAMES, environment=environments[run_id])
        for run_id in environments
    ]
    return table(spark, "runs", [row_of(row) for row in rows])


def test_changes_of_the_environment_are_rows_for_each_pair_of_runs(spark: SparkSession) -> None:
    found = environment_changes(_history(spark), _runs(spark))
    assert_rows(
        found,
        [
            ("c", "b", "broker.cores", "–", "4"),
            ("c", "b", "broker.version", "4.1.2", "4.3.1"),
            ("c", "b", "driver.cores", "2", "–"),
        ],
        "run_id string, previous_run_id string, name string, before string, after string",
    )


def test_points_that_moved_have_the_other_changes(spark: SparkSession) -> None:
    history = _history(spark)
    found = moved_points(history, environment_changes(history, _runs(spark)))
    assert [row.run_id for row in found.collect()] == ["d", "c", "b"]
    assert_rows(
        found.select("run_id", "moved", "environment"),
        [
            ("b", "rose", None),
            (
                "c",
                "fell",
                ["broker.cores: – → 4", "broker.version: 4.1.2 → 4.3.1", "driver.cores: 2 → –"],
            ),
            ("d", "rose", None),
        ],
        "run_id string, moved string, environment array<string>",
    )


def test_rows_match_given_names_and_any_value_of_the_others(spark: SparkSession) -> None:
    points = table(spark, "boundaries", [_point("a", 1.0, 20), _point("b", 2.0, 21)])
    assert matching(points, {"cluster": "testbed", "goal": ""}).count() == 2
    assert matching(points, {"cluster": "testbed", "goal": "strict"}).count() == 0
    assert matching(points, {"run_id": "a", "goal": ""}).count() == 1


def test_a_night_has_its_verdict_and_the_night_before_it(spark: SparkSession) -> None:
    rows = [
        case_row(1),
        case_row(2),
        case_row(2, event="judged", outcome="regression", text="less"),
        case_row(2, case="other"),
        case_row(3, cluster="another"),
    ]

    found = nights(table(spark, "cases", [row_of(row) for row in rows]))
    assert_rows(
        found.select("night", "case", "outcome", "previous_run_id", "at_ms"),
        [
            ("n1", "limit", None, None, 86_400_000),
            ("n2", "limit", "regression", "r1", 172_800_000),
            ("n2", "other", None, None, 172_800_000),
            ("n3", "limit", None, None, 259_200_000),
        ],
        "night string, case string, outcome string, previous_run_id string, at_ms bigint",
    )
    newest = nights_for_people(found).collect()
    assert [(row.night, row.case) for row in newest] == [
        ("n3", "limit"),
        ("n2", "limit"),
        ("n2", "other"),
        ("n1", "limit"),
    ]
