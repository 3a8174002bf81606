"""What a load on each axis is, and which workloads an axis takes."""

from __future__ import annotations

import pytest

from jobs.config import load, load_goal, load_workload
from jobs.runs.estimate import line_of
from jobs.trials.axes import payload_rate, require_axis, traffic_at
from search.errors import ConfigError

FIXED = "workload.np=16"
BY_RECORDS = (
    "workload.producer.rate_records_per_s=50",
    "workload.producer.rate_bytes_per_s=null",
)


def _goal(axis: str, *more: str) -> list[str]:
    return [f"goal.search.axis={axis}", *more]


def test_along_np_the_load_is_the_producers() -> None:
    traffic = traffic_at(load_workload("demo"), "np", 1_000, 40)  # of 125 kB/s each
    assert (traffic.np, traffic.bpm, traffic.rate_records_per_s) == (40, 1_000, 125.0)
    assert traffic.mb_per_s == pytest.approx(5.0)


def test_along_rate_each_of_np_producers_offers_the_load() -> None:
    traffic = traffic_at(load_workload("demo", [FIXED]), "rate", 1_000, 700)
    assert (traffic.np, traffic.rate_records_per_s) == (16, 700.0)
    assert traffic.mb_per_s == pytest.approx(16 * 0.7)


def test_along_partitions_the_topic_grows() -> None:
    traffic = traffic_at(load_workload("demo", [FIXED]), "partitions", 1_000, 50)
    assert traffic.workload.topic.partitions_per_broker == 50
    assert (traffic.np, traffic.bpm) == (16, 1_000)


def test_along_message_bytes_the_load_is_the_size() -> None:
    workload = load_workload("demo", [FIXED, *BY_RECORDS, "workload.message_bytes=[1000]"])
    traffic = traffic_at(workload, "message_bytes", 1_000, 4_096)
    assert (traffic.bpm, traffic.workload.message_bytes) == (4_096, (4_096,))
    assert traffic.mb_per_s == pytest.approx(16 * 50 * 4_096 / 1e6)


@pytest.mark.parametrize("axis", ["np", "rate", "message_bytes"])
def test_the_payload_of_a_unit_of_load_is_that_of_the_traffic(axis: str) -> None:
    overrides = [] if axis == "np" else [FIXED]
    workload = load_workload("demo", [*overrides, *BY_RECORDS, "workload.message_bytes=[1000]"])
    goal = load_goal("default", _goal(axis))
    offered = traffic_at(workload, axis, 1_000, 300).mb_per_s
    assert payload_rate(workload, goal).bytes(1_000) * 300 == pytest.approx(offered * 1e6)


def test_the_search_speaks_of_the_axis() -> None:
    workload = load_workload("demo", [FIXED])
    line = line_of(workload, load_goal("default", _goal("partitions")), 3)
    assert line.limits.axis == "partitions"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([FIXED], "searches along np"),
        (_goal("rate"), "has no np"),
        (_goal("partitions", FIXED), "partitions goes up to 1000"),
        (_goal("message_bytes", FIXED, "goal.search.load_cap=10000"), "has 3 sizes"),
        (
            _goal(
                "message_bytes",
                FIXED,
                "goal.search.load_cap=10000",
                "workload.message_bytes=[1000]",
            ),
            "rate is in bytes per second",
        ),
        (
            _goal(
                "message_bytes",
                FIXED,
                *BY_RECORDS,
                "goal.search.load_cap=9000000",
                "workload.message_bytes=[1000]",
            ),
            "room for two messages",
        ),
    ],
)
def test_a_workload_that_does_not_fit_the_axis_is_refused(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        require_axis(load("testbed", "demo", "default", overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        _goal("rate", FIXED),
        _goal("partitions", FIXED, "goal.search.load_cap=200"),
    ],
)
def test_a_workload_that_fits_is_taken(overrides: list[str]) -> None:
    require_axis(load("testbed", "demo", "default", overrides))
