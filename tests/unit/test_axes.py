"""The loads on each axis, and the workloads that an axis accepts.

A traffic pattern: its derived values, and its way from the driver to executors.

Profiles of a load over time: their files, their arithmetic, and the schedules they make.

The options that distinguish traffic patterns at any load.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config import load, load_goal, load_workload
from jobs.config.files import load_rate_profile, names_in
from jobs.engine.producing.schedule import due_between, schedule_for
from jobs.runs.estimate import line_of, payload_rate
from metrics.tables.boundary import variant_of
from metrics.traffic.axes import AXES, MESSAGE_BYTES, NP, Axis, axis_named
from metrics.traffic.clients import ConsumerOptions
from metrics.traffic.pattern import TopicOptions
from metrics.traffic.payload import Sizes
from metrics.traffic.profile import RateProfile
from tests.support.patterns import pattern, plan

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


MANY = pattern(
    9, message_bytes=3_000, rate_records_per_s=12.5, acks="all", compression="zstd",
    client="librdkafka", kind="mixed", compressibility=0.25, sizes="uniform", size_spread=0.5,
    key_bytes=8, seed=7, ramp_up_s=0.05,
    topic=TopicOptions(count=2, replication_factor=3, config={"min.insync.replicas": "2"}),
    consumers=ConsumerOptions(groups=3, start="backlog", backlog_records=1_000),
)  # fmt: skip


@pytest.mark.parametrize("axis", AXES.values(), ids=lambda axis: str(axis.name))
def test_a_pattern_reaches_the_executors_unchanged(axis: Axis) -> None:
    made = replace(axis.apply(MANY, 5), brokers=3, point_message_bytes=3_000)
    whole = plan(pattern=made, client_options={"security_protocol": "PLAINTEXT"})
    sent = pickle.loads(pickle.dumps(whole))
    assert sent == whole
    got = sent.pattern
    assert (got.mb_per_s, got.planned_bytes, got.on_axis) == (made.mb_per_s, made.planned_bytes, 5)
    assert got.producer.records_per_batch == made.producer.records_per_batch
    assert hash(got.producer) == hash(made.producer), "pools of it are found again"


def test_a_histogram_is_read_on_the_driver_and_travels_along(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("100 3\n300 1\n", encoding="utf-8")
    overrides = ["workload.payload.sizes=histogram", f"workload.payload.histogram_file={path}"]
    made = load_workload("demo", overrides).pattern(1_000)
    data = pickle.dumps(made)
    path.unlink()
    got = pickle.loads(data)
    assert got == made
    sizes = Sizes("histogram", histogram=((100, 3.0), (300, 1.0)))
    assert got.producer.payload.distribution == sizes


STEPS = RateProfile("steps", ((0.0, 1.0), (10.0, 1.0), (10.0, 3.0), (20.0, 3.0)))
RAMP = RateProfile("ramp", ((0.0, 0.0), (10.0, 2.0)))


@st.composite
def profiles(draw: st.DrawFn) -> RateProfile:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=1, max_size=6))
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    if times[-1] == 0:
        times.append(5.0)
    share = st.sampled_from([0.0, 0.1, 1.0, 2.5])
    shares = [draw(share) for _ in times]
    return RateProfile("drawn", tuple(zip(times, [1.0, *shares[1:]], strict=True)))


@given(profile=profiles(), at_s=st.floats(min_value=0, max_value=500))
def test_elapsed_load_and_its_time_are_inverse(profile: RateProfile, at_s: float) -> None:
    passed_s = profile.passed_s(at_s)
    assert 0 <= passed_s <= profile.peak * at_s + 1e-9
    if not profile.mean:
        return
    back_s = profile.time_s(passed_s)
    assert back_s <= at_s + 1e-6, "the first time at which so much has passed"
    assert profile.passed_s(back_s) == pytest.approx(passed_s, abs=1e-6 * (1 + passed_s))


def test_steps_ramps_and_repeats_by_hand() -> None:
    passed = [STEPS.passed_s(each) for each in (-2, 0, 5, 10, 15, 20, 25)]
    assert passed == [-2, 0, 5, 10, 25, 40, 45]
    assert (STEPS.mean, STEPS.peak, STEPS.length_s) == (2.0, 3.0, 20.0)
    assert [STEPS.time_s(each) for each in (-2, 5, 10, 25, 40, 45)] == [-2, 5, 10, 15, 20, 25]
    assert RAMP.passed_s(5) == pytest.approx(2.5)
    assert RAMP.time_s(2.5) == pytest.approx(5)
    assert RAMP.passed_s(-3) == 0, "nothing is offered before it begins"


@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_a_schedule_follows_the_profile(arrivals: str) -> None:
    whole = pattern(rate_records_per_s=1_000.0, arrivals=arrivals, warmup_s=2.0)
    schedule = schedule_for(replace(whole, profile=STEPS), 0, 100.0)
    parts = [due_between(schedule, 100.0 + a, 100.0 + b) for a, b in ((0, 2), (2, 12), (12, 22))]
    slack = 0.1 if arrivals == "poisson" else 0.001
    assert parts == pytest.approx([2_000, 10_000, 30_000], rel=slack, abs=20)
    again = due_between(schedule, 122.0, 142.0)
    assert again == pytest.approx(40_000, rel=slack)
    times = [schedule.due_s(record) for record in range(0, 50_000, 500)]
    assert times == sorted(times)
    for number, at_s in zip(range(0, 50_000, 500), times, strict=True):
        assert schedule.due_until(at_s) > number


@pytest.mark.parametrize("name", names_in("profiles"))
def test_the_profiles_of_the_project_are_valid(name: str) -> None:
    found = load_rate_profile(name)
    assert found.name == name
    assert 0 < found.mean <= found.peak <= 2


def variant(*options: str, producers: int = 8) -> dict[str, str]:
    return variant_of(load("testbed", "demo", "default", options).pattern(100, producers, 3))


def test_options_make_a_variant_and_the_load_or_the_length_of_a_trial_does_not() -> None:
    whole = variant()
    assert variant(producers=80) == variant("workload.trial.measure_s=20") == whole
    for option in (
        "producer.acks=all",
        "producer.linger_ms=5",
        "producer.compression=lz4",
        "topic.replication_factor=3",
        "topic.config.min.insync.replicas=2",
        "consumers.groups=2",
        "payload.kind=repeated",
    ):
        assert variant(f"workload.{option}") != whole, option


def test_the_axis_of_the_search_makes_no_variant() -> None:
    along = ("goal.search.axis=partitions", "goal.search.load_cap=1000", "workload.np=4")
    config = load("testbed", "demo", "default", along)
    two, ten = (variant_of(config.pattern(100, each, 3)) for each in (2, 10))
    assert two == ten
    other = replace(config, workload=config.workload.model_copy(update={"np": 5}))
    assert variant_of(other.pattern(100, 2, 3)) != two
