"""The loads on each axis, and the workloads that an axis accepts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jobs.config import load, load_goal, load_workload
from jobs.runs.estimate import line_of, payload_rate
from metrics.traffic.axes import AXES, MESSAGE_BYTES, NP, Axis, axis_named
from metrics.traffic.clients import ConsumerOptions
from tests.support.patterns import pattern

LATENCY = "goal.indicators.latency_p99_ms_max=100"
FIXED = "workload.np=16"
BY_RECORDS = ("workload.producer.rate_records_per_s=50", "workload.producer.rate_bytes_per_s=null")


def _goal(axis: str, *more: str) -> list[str]:
    return [f"goal.search.axis={axis}", *more]


def test_a_load_is_a_number_of_producers_a_rate_partitions_a_size_or_groups() -> None:
    traffic = NP.apply(load_workload("demo").pattern(1_000), 40)  # of 125 kB/s each
    found = (traffic.producers, traffic.message_bytes, traffic.producer.rate_records_per_s)
    assert found == (40, 1_000, 125.0)
    assert traffic.mb_per_s == pytest.approx(5.0)
    fixed = load_workload("demo", [FIXED]).pattern(1_000)
    traffic = AXES["rate"].apply(fixed, 700)
    assert (traffic.producers, traffic.producer.rate_records_per_s) == (16, 700.0)
    assert isinstance(traffic.producer.rate_records_per_s, float)
    assert traffic.mb_per_s == pytest.approx(16 * 0.7)
    traffic = AXES["partitions"].apply(fixed, 50)
    assert (traffic.topic.partitions_per_broker, traffic.producers) == (50, 16)
    workload = load_workload("demo", [FIXED, *BY_RECORDS, "workload.message_bytes=[1000]"])
    traffic = MESSAGE_BYTES.apply(workload.pattern(1_000), 4_096)
    assert (traffic.message_bytes, traffic.point_message_bytes) == (4_096, 1_000)
    assert traffic.mb_per_s == pytest.approx(16 * 50 * 4_096 / 1e6)
    traffic = AXES["consumer_groups"].apply(pattern(consumers=ConsumerOptions(members=3)), 5)
    assert traffic.consumers == ConsumerOptions(groups=5, members=3)


@pytest.mark.parametrize("axis", AXES.values(), ids=lambda axis: str(axis.name))
def test_a_load_replaces_one_option_and_has_its_place_on_the_axis(axis: Axis) -> None:
    before = pattern(7, message_bytes=900, rate_records_per_s=30.0)
    first, second = axis.apply(before, 11), axis.apply(before, 13)
    assert (first.axis, first.load, first.on_axis) == (axis.name, 11, 11)
    assert first != second
    assert replace(axis.apply(first, 13), load=11) != first, "the option itself changed too"
    assert axis.apply(first, 13) == second, "nothing of the load before is left"
    assert before == pattern(7, message_bytes=900, rate_records_per_s=30.0)


def test_an_axis_of_a_newer_version_is_called_by_its_name() -> None:
    assert all(axis_named(name) is axis for name, axis in AXES.items())
    unknown = axis_named("headers")
    assert (unknown.name, unknown.heading, unknown.amount(3)) == ("headers", "headers", "3 headers")
    assert unknown.maximum is None
    assert not (unknown.grows_payload or unknown.grows_batches)


@pytest.mark.parametrize(
    ("axis", "options"),
    [
        ("np", ()),
        ("np", BY_RECORDS),
        ("rate", (FIXED,)),
        ("message_bytes", (FIXED, *BY_RECORDS, "workload.message_bytes=[1000]")),
    ],
)
def test_the_payload_of_a_unit_of_load_is_that_of_the_traffic_at_every_size(
    axis: str, options: tuple[str, ...]
) -> None:
    workload = load_workload("demo", options)
    payload = payload_rate(workload, load_goal("default", _goal(axis)))
    sizes = workload.message_bytes if axis == "message_bytes" else (1, 100, 1_000, 100_000)
    for size in sizes:
        offered = AXES[axis].apply(workload.pattern(size), 300).mb_per_s
        assert payload.bytes(size) * 300 == pytest.approx(offered * 1e6)


def test_batches_wait_longer_or_grow_larger_along_their_axes() -> None:
    workload = load_workload("demo", [FIXED])
    lingering = AXES["linger_ms"].apply(workload.pattern(1_000), 40)
    assert lingering.producer.options.linger_ms == 40.0
    assert (lingering.axis, lingering.on_axis) == ("linger_ms", 40)
    loaded = load("testbed", "demo", "default", _goal("batch_size", FIXED, LATENCY))
    assert loaded.pattern(1_000, 9_000).producer.options.batch_size == 9_000
    # The heaviest traffic is at the cap where load makes larger batches.
    assert loaded.heaviest(1_000).producer.options.batch_size == loaded.goal.search.load_cap
    more = [*BY_RECORDS, "workload.message_bytes=[1000]", "goal.search.load_cap=8000"]
    sizes = load("testbed", "demo", "default", _goal("message_bytes", FIXED, *more))
    assert sizes.heaviest(1_000).message_bytes == 8_000
    rates = load("testbed", "demo", "default", _goal("rate", FIXED))
    assert rates.heaviest(1_000).on_axis == 1


def test_axes_that_make_handlers_idler_are_searched_by_bisection() -> None:
    """Larger batches cost brokers less: their readings point the wrong way."""
    workload = load_workload("demo", [FIXED])
    lines = {
        axis: line_of(workload, load_goal("default", _goal(axis, LATENCY)), 3)
        for axis in ("partitions", "linger_ms", "batch_size")
    }
    assert [line.method for line in lines.values()] == ["guided", "bisection", "bisection"]
    assert lines["partitions"].limits.words.amount(50) == "50 partitions per broker"


def test_only_an_added_producer_has_payload_and_batches_of_its_own() -> None:
    producer, fixed = load_workload("demo").producer, load_workload("demo", [FIXED])
    along_producers = payload_rate(load_workload("demo"), load_goal("default"))
    assert along_producers.linger_s == producer.linger_ms / 1_000
    assert along_producers.batch_bytes == producer.batch_size
    along_rate = payload_rate(fixed, load_goal("default", _goal("rate")))
    assert (along_rate.linger_s, along_rate.batch_bytes) == (0.0, math.inf)
    for axis in ("partitions", "consumer_groups"):  # shared out over the first load
        goal = load_goal("default", _goal(axis, "goal.search.load_start_max=50"))
        assert payload_rate(fixed, goal).bytes(1_000) * 50 == pytest.approx(16 * 125_000)
