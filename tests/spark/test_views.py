"""Each view over small tables with rows from this file, compared by chispa."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from metrics.columns import row_of
from metrics.common.errors import ConfigError
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import SCHEMAS, RunRow
from metrics.tables.views import (
    boundary_history,
    broker_rows,
    chosen_trial,
    environment_changes,
    history_for_people,
    latest_boundaries,
    limit_trials,
    matching,
    moved_points,
    newest_points,
    newest_runs,
    nights,
    nights_for_people,
    only_row,
    points_for_people,
    reason_rows,
    resource_peaks,
    resource_rows,
)
from search.model import Verdict
from tests.support.evidence import broker
from tests.support.frames import assert_rows, table
from tests.support.nights import case_row
from tests.support.rows import BOUNDARY, trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("testbed", "demo", "default")


def _point(run_id: str, at_s: float, **changes: Any) -> dict[str, Any]:
    return row_of(BoundaryRow(run_id, at_s, *NAMES[:2], replace(BOUNDARY, **changes)))


def test_the_newest_row_of_a_run_is_its_end_whenever_it_was_written(spark: SparkSession) -> None:
    rows = [
        RunRow("a", "finished", 3.0, *NAMES, status="done"),
        RunRow("a", "started", 4.0, *NAMES),
        RunRow("b", "started", 1.0, *NAMES, caveat="first"),
        RunRow("b", "started", 2.0, *NAMES, caveat="resumed"),
    ]
    runs = table(spark, "runs", [row_of(row) for row in rows])
    found = newest_runs(runs)
    assert found.columns == SCHEMAS["runs"].names
    assert_rows(
        found.select("run_id", "status", "caveat"),
        [("a", "done", None), ("b", "running", "resumed")],
        "run_id string, status string, caveat string",
    )


def test_resources_are_rows_with_the_limit_and_the_most_utilized_broker(
    spark: SparkSession,
) -> None:
    bound = trial(1, "r", brokers=(broker(1), broker(2, handler_idle=0.1, flush_threads=0.9)))
    found = resource_rows(table(spark, "trials", [row_of(bound)]))
    assert found.count() == 16
    of_two = found.where("broker_id = 2 and resource in ('request handlers', 'disk')")
    assert_rows(
        of_two.select("trial", "np", "verdict", "resource", "utilization", "is_limit"),
        [
            (1, 4, "OVERLOADED", "request handlers", 0.9, False),
            (1, 4, "OVERLOADED", "disk", 0.9, True),
        ],
        "trial bigint, np bigint, verdict string, resource string, utilization double, "
        "is_limit boolean",
    )
    unknown = replace(bound.judgement, limited_by=None)
    sustained = trial(2, "r", judgements={"default": unknown})
    no_limit = resource_rows(table(spark, "trials", [row_of(sustained)]))
    assert no_limit.where("is_limit").count() == 0
    assert no_limit.where("is_limit is null").count() == 0

    made = trial(1, "r", brokers=(broker(1, handler_idle=0.7), broker(2, handler_idle=0.1)))
    peaks = resource_peaks(resource_rows(table(spark, "trials", [row_of(made)])))
    assert peaks.count() == 8
    assert_rows(
        peaks.where("resource in ('request handlers', 'quota')").select(
            "resource", "broker_id", "utilization"
        ),
        [("request handlers", 2, 0.9), ("quota", 1, None)],
        "resource string, broker_id bigint, utilization double",
    )


def test_brokers_are_rows_with_all_columns_of_their_windows(spark: SparkSession) -> None:
    trials = table(spark, "trials", [row_of(trial(7, "r"))])
    assert_rows(
        broker_rows(trials).select("run_id", "trial", "bpm", "broker_id", "handler_idle"),
        [("r", 7, 100, 1, 0.8), ("r", 7, 100, 2, 0.1)],
        "run_id string, trial bigint, bpm bigint, broker_id bigint, handler_idle double",
    )


def test_the_latest_point_of_each_size_counts_unless_its_search_gave_up(
    spark: SparkSession,
) -> None:
    records = [
        _point("a", 1.0, np_sustained=20),
        _point("b", 2.0, np_sustained=25),
        _point("c", 3.0, np_sustained=0, gave_up="no valid trial"),
        _point("a", 1.0, message_bytes=1_000, np_sustained=8),
        _point("d", 4.0, np_sustained=13, state="1 broker offline"),
    ]
    found = latest_boundaries(table(spark, "boundaries", records))
    assert_rows(
        found.select("run_id", "bpm", "np_sustained"),
        [("b", 100, 25), ("a", 1_000, 8)],
        "run_id string, bpm bigint, np_sustained bigint",
    )
    assert found.columns == SCHEMAS["boundaries"].names


def test_points_of_different_patterns_are_different_limits(spark: SparkSession) -> None:
    one, all_ = ({"acks": acks, "linger_ms": "25"} for acks in ("1", "-1"))
    experiment = _point("e", 9.0, np_sustained=5, pattern=one)
    records = [
        _point("older", 1.0, np_sustained=20),  # a version without patterns
        _point("a", 2.0, np_sustained=25, pattern=one),
        _point("b", 3.0, np_sustained=12, pattern=all_),
        _point("c", 4.0, np_sustained=24, pattern=one),
        {**experiment, "experiment": "acks", "case": "acks=1"},
    ]
    boundaries = table(spark, "boundaries", records)
    assert_rows(
        latest_boundaries(boundaries).select("run_id", "np_sustained"),
        [("b", 12), ("c", 24)],
        "run_id string, np_sustained bigint",
    )
    assert_rows(
        boundary_history(boundaries).select("run_id", "previous_run_id"),
        [("older", None), ("a", "older"), ("b", None), ("c", "a")],
        "run_id string, previous_run_id string",
    )


def test_a_resumed_search_has_only_its_newest_point(spark: SparkSession) -> None:
    records = [_point("a", at_s, np_sustained=count) for at_s, count in ((1.0, 20), (2.0, 22))]
    records.append(_point("b", 1.5))
    records.append(_point("b", 2.5, np_sustained=13, state="catching up"))
    found = newest_points(table(spark, "boundaries", records))
    assert_rows(
        found.select("run_id", "np_sustained"),
        [("a", 22), ("b", 20)],
        "run_id string, np_sustained bigint",
    )


def test_points_have_a_bracket_on_their_axis_and_an_interval_per_broker(
    spark: SparkSession,
) -> None:
    mps, on_axis = 105_000.0, {"axis": "rate", "load_sustained": 75, "load_overloaded": 100}
    records = [
        _point("a", 1.0, mps_overloaded=mps),
        _point("b", 1.0, np_overloaded=None),
        _point("c", 1.0, mps_overloaded=mps, **on_axis),
    ]
    found = points_for_people(table(spark, "boundaries", records))
    upper = "mb_per_s_per_broker_overloaded"
    assert_rows(
        found.select("run_id", "load_sustained", "load_overloaded", "width", upper),
        [("a", 20, 21, 1 - 20 / 21, 5.25), ("b", 20, None, None, None), ("c", 75, 100, 0.25, 5.25)],
        f"run_id string, load_sustained bigint, load_overloaded bigint, width double, "
        f"{upper} double",
    )

    known = {
        "load_low": 18.0,
        "load_high": 22.0,
        "load_estimate": 20.3,
        "interval_max": 0.1,
        "latency_p99_ms": 12.5,
    }
    records = [_point("a", 1.0, **known), _point("b", 1.0)]
    found = points_for_people(table(spark, "boundaries", records))
    ends = [f"mb_per_s_per_broker_{end}" for end in ("low", "high")]
    loads = ["load_low", "load_high", "load_estimate"]
    assert_rows(
        found.select("run_id", *loads, *ends, "doubtful", "latency_p99_ms"),
        [
            ("a", 18.0, 22.0, 20.3, 4.5, 5.5, True, 12.5),
            ("b", None, None, None, None, None, False, None),
        ],
        f"run_id string, {', '.join(f'{name} double' for name in (*loads, *ends))}, "
        "doubtful boolean, latency_p99_ms double",
    )


def _judged(number: int, load: int, default: Verdict, strict: Verdict) -> dict[str, Any]:
    """A trial of a point at 100 B with the verdicts of two goals."""
    made = trial(number, "r")
    verdicts = {"default": default, "strict": strict}
    return row_of(
        replace(
            made,
            pattern=replace(made.pattern, load=load, point_message_bytes=100),
            judgements={
                goal: replace(made.judgement, verdict=verdict) for goal, verdict in verdicts.items()
            },
        )
    )


def test_the_trial_at_a_limit_is_the_last_overload_of_its_goal(spark: SparkSession) -> None:
    over, fine = Verdict.OVERLOADED, Verdict.SUSTAINED
    trials = table(
        spark,
        "trials",
        [
            _judged(1, 21, over, over),
            _judged(2, 21, over, over),
            _judged(3, 21, Verdict.INVALID, Verdict.INVALID),
            _judged(4, 19, fine, over),
            _judged(5, 25, over, over),
        ],
    )
    points = table(
        spark,
        "boundaries",
        [
            _point("r", 1.0),
            _point("r", 1.0, goal="strict", np_sustained=18, np_overloaded=19),
            _point("other", 1.0),
        ],
    )
    found = limit_trials(trials, points)
    assert_rows(
        found.select("goal", "trial", "load"),
        [("default", 2, 21), ("strict", 4, 19)],
        "goal string, trial bigint, load bigint",
    )


def test_the_chosen_trial_is_the_given_one_or_the_last_overload_or_the_last(
    spark: SparkSession,
) -> None:
    over, fine = Verdict.OVERLOADED, Verdict.SUSTAINED
    rows = [_judged(1, 21, over, over), _judged(2, 22, over, over), _judged(3, 19, fine, over)]
    trials = table(spark, "trials", rows)
    assert only_row(chosen_trial(trials), "trial")["trial"] == 2
    assert only_row(chosen_trial(trials, 3), "trial")["trial"] == 3
    sustained = trials.where("verdict = 'SUSTAINED'")
    assert only_row(chosen_trial(sustained), "trial")["trial"] == 3
    with pytest.raises(ConfigError, match="there is no trial 9"):
        only_row(chosen_trial(trials, 9), "trial 9")


def test_reasons_are_rows_of_each_goal_in_their_order(spark: SparkSession) -> None:
    trials = table(spark, "trials", [_judged(1, 21, Verdict.OVERLOADED, Verdict.SUSTAINED)])
    older = table(spark, "trials", [row_of(trial(2, "r")) | {"verdicts": None}])
    found = reason_rows(trials.union(older))
    assert_rows(
        found.select("trial", "goal", "goal_verdict", "place", "indicator", "broker_id"),
        [
            (1, "default", "OVERLOADED", 0, "request_handler_idle", 2),
            (1, "strict", "SUSTAINED", 0, "request_handler_idle", 2),
            (2, None, "OVERLOADED", 0, "request_handler_idle", 2),
        ],
        "trial bigint, goal string, goal_verdict string, place int, indicator string, "
        "broker_id bigint",
    )


def _limit(run_id: str, at_s: float, producers: int, **changes: Any) -> dict[str, Any]:
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
        _limit("a", 1.0, 20),
        _limit("b", 2.0, 21),
        _limit("c", 3.0, 10),
        _limit("d", 4.0, 12),
        _limit("e", 5.0, 0, gave_up="no valid trial"),
        _limit("b", 2.0, 7, message_bytes=1_000),
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

    open_side = _limit("c", 3.0, 30) | {"np_overloaded": None, "mps_overloaded": None}
    wide = _limit("a", 1.0, 20) | {"np_overloaded": 25, "mps_overloaded": 125_000.0}
    points = [wide, _limit("b", 2.0, 24), open_side, _limit("d", 4.0, 40)]
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


def test_points_that_moved_have_the_changes_of_the_environment(spark: SparkSession) -> None:
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
    points = table(spark, "boundaries", [_limit("a", 1.0, 20), _limit("b", 2.0, 21)])
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
