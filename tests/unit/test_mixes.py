"""Mixes: several kinds of traffic in one load, and their scale."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cluster.topic_plan import topic_name
from jobs.config.loading import Configuration, describe, load, load_recorded, load_workload
from jobs.config.workload import Workload
from metrics.planning.load_needs import SlotShare, peak_log_bytes, share_slots, slots_needed
from metrics.tables.boundary import make_boundary, variant_of
from metrics.traffic.axes import SCALE, axis_named, scale_of_part
from metrics.traffic.clients import ConsumerOptions
from metrics.traffic.mix import mix_of
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from search.model import Bracket, Interval
from tests.support.mixes import MIX, WHOLE
from tests.support.patterns import pattern


def workload(*overrides: str) -> Workload:
    return load_workload(MIX, overrides)


def patterns() -> st.SearchStrategy[TrafficPattern]:
    """Patterns of up to 60 producers on three brokers."""

    def made(
        producers: int, rate: float, size: int, linger_ms: float, topics: int, groups: int
    ) -> TrafficPattern:
        own = pattern(
            producers,
            topic=TopicOptions(count=topics, partitions_per_broker=2, replication_factor=2),
            consumers=ConsumerOptions(groups=groups, members=2),
            message_bytes=size,
            rate_records_per_s=rate,
            linger_ms=linger_ms,
        )
        return replace(own, brokers=3)

    sizes, rates = st.integers(20, 20_000), st.floats(0.5, 2_000.0)
    lingers_ms = st.sampled_from([0.0, 10.0, 1_000.0])
    groups = st.integers(0, 3)
    return st.builds(made, st.integers(1, 60), rates, sizes, lingers_ms, st.integers(1, 3), groups)


SUMS = ("producers", "mb_per_s", "records_per_s", "planned_bytes", "partitions", "groups")


# --- the file ---------------------------------------------------------------------------


def test_each_part_is_a_workload_of_its_own() -> None:
    whole = workload("workload.mix.orders.producer.batch.size=32768")
    orders, clicks, images = whole.parts
    assert [each.name for each in (orders, clicks, images)] == ["orders", "clicks", "images"]
    assert (orders.np, orders.message_bytes, orders.producer.linger_ms) == (40, (1000,), 1000)
    assert orders.producer.batch_size == 32_768
    assert (clicks.topic.count, clicks.consumers.groups, images.consumers.groups) == (2, 1, 0)
    assert all(each.trial == whole.trial for each in whole.parts)
    records = 40 * 62.5 + 5 * 200 + 2 * 10
    assert whole.message_bytes == (round((2_500_000 + 100_000 + 200_000) / records),)
    assert whole.producer == orders.producer, "the part with most payload"
    assert len({topic_name("run", 1_000, 10, part) for part in ("", "a", "a-10B-1p")}) == 3


def test_a_recorded_mix_is_read_back_as_it_was() -> None:
    recorded = json.loads(json.dumps(describe(workload("workload.mix.clicks.producers=7"))))
    assert recorded["mix.clicks.producers"] == 7
    assert not any(key.startswith(("producer.", "topic.", "message_bytes")) for key in recorded)
    settings = {"cluster": {}, "workload": recorded, "goal": {}}
    again = load_recorded(settings, cluster="testbed", goal="default").workload
    assert again.parts == workload("workload.mix.clicks.producers=7").parts


def configuration(*overrides: str, workload: str = MIX, cluster: str = "testbed") -> Configuration:
    return load(cluster, workload, "default", overrides)


def test_a_mix_is_searched_along_its_scale_unless_the_goal_names_a_part() -> None:
    assert configuration().axis is SCALE
    assert describe(configuration().goal)["search.axis"] == "scale"
    part = configuration("goal.search.axis=scale.orders").axis
    assert part == scale_of_part("scale.orders")
    assert load("testbed", "demo", "default").axis.name == "np"


# --- sums and scales --------------------------------------------------------------------


def test_a_mix_counts_replicas_partitions_and_commits_of_each_part() -> None:
    assert (WHOLE.producers, WHOLE.partitions, WHOLE.groups) == (47, 30 + 24 + 30, 1)
    assert WHOLE.mb_per_s == pytest.approx(2.5 + 0.1 + 0.2)
    assert WHOLE.producers * WHOLE.producer.rate_records_per_s == pytest.approx(3_520)
    assert WHOLE.written_bytes(3_520) == pytest.approx(2 * 2_500_000 + 2 * 100_000 + 200_000)
    assert WHOLE.planned_bytes == pytest.approx(8 * 5_400_000)
    assert WHOLE.commits_per_s(84) == pytest.approx(24 / 5)
    assert pickle.loads(pickle.dumps(WHOLE)) == WHOLE
    short = WHOLE.with_phases(replace(WHOLE.phases, measure_s=99.0))
    assert {each.phases.measure_s for each in (short, *short.parts)} == {99.0}
    with pytest.raises(ValueError, match="at least one"):
        mix_of([])


@given(parts=st.lists(patterns(), min_size=1, max_size=4), load=st.integers(1, 2_000))
def test_a_mix_has_the_sums_of_its_parts_at_any_scale(
    parts: list[TrafficPattern], load: int
) -> None:
    whole = mix_of([each.as_part(f"part-{number}") for number, each in enumerate(parts)])
    at = SCALE.apply(whole, load)
    for name in SUMS:
        expected = sum(getattr(each, name) for each in parts)
        assert getattr(whole, name) == pytest.approx(expected), name
    assert peak_log_bytes(whole) == pytest.approx(sum(map(peak_log_bytes, parts)))
    assert (at.axis, at.load, at.on_axis) == ("scale", load, load)
    assert (at.point_message_bytes, SCALE.apply(at, 100)) == (
        whole.message_bytes, SCALE.apply(whole, 100)
    )  # fmt: skip
    for before, after in zip(whole.parts, at.parts, strict=True):
        exact = before.producers * load / 100
        assert after.producers >= 1
        assert abs(after.producers - exact) <= max(0.5, 1 - exact), "rounded"
        assert after.mb_per_s == pytest.approx(before.mb_per_s * load / 100), "rates make up for it"
        assert after.consumers == before.consumers
    assert at.mb_per_s == pytest.approx(whole.mb_per_s * load / 100)


@given(single=patterns(), load=st.integers(1, 2_000), slots=st.integers(2, 70))
def test_a_mix_of_one_is_its_pattern(single: TrafficPattern, load: int, slots: int) -> None:
    one = mix_of([single.as_part("one")])
    assert single.loads == (single,) and "mix" not in variant_of(single)
    for pair in ((one, single), (SCALE.apply(one, load), SCALE.apply(single, load))):
        found, expected = ([getattr(each, name) for name in SUMS] for each in pair)
        assert found == pytest.approx(expected)
    assert (one.message_bytes, one.producer.options) == (
        single.message_bytes, single.producer.options
    )  # fmt: skip
    assert one.written_bytes(100) == pytest.approx(single.written_bytes(100))
    assert one.commits_per_s(single.partitions) == single.commits_per_s(single.partitions)
    assert single.commits_per_s(9) == single.consumers.commits_per_s(9)
    assert single.records_per_s == single.producers * single.producer.rate_records_per_s
    assert single.mb_per_s == pytest.approx(single.records_per_s * single.message_bytes / 1e6)
    assert SCALE.apply(single, load).mb_per_s == pytest.approx(single.mb_per_s * load / 100)
    readers = single.consumers.tasks(slots)
    assert share_slots(single, slots) == [
        SlotShare(min(single.producers, slots - readers), readers)
    ]
    if slots >= slots_needed(one):
        assert share_slots(one, slots) == share_slots(single, slots)


def test_one_part_is_scaled_while_the_others_stay() -> None:
    doubled = axis_named("scale.orders").apply(WHOLE, 200)
    assert [each.producers for each in doubled.parts] == [80, 5, 2]
    assert doubled.mb_per_s == pytest.approx(5.0 + 0.3)
    assert doubled.point_message_bytes == WHOLE.message_bytes
    assert doubled.axis == "scale.orders"
    again = SCALE.apply(SCALE.apply(SCALE.apply(WHOLE, 1), 270), 100)
    assert again == SCALE.apply(WHOLE, 100), "rounding does not add up"


def test_mixes_with_different_parts_have_different_variants() -> None:
    other = load_workload(MIX, ["workload.mix.clicks.producer.acks=all"]).pattern(1, 3)
    one, more = variant_of(WHOLE), variant_of(SCALE.apply(WHOLE, 370))
    assert one["mix"] == variant_of(SCALE.apply(WHOLE, 1))["mix"] == more["mix"]
    assert variant_of(other)["mix"] != one["mix"]
    assert "acks all" in other.mix["clicks"]
    assert "producers 40" in SCALE.apply(WHOLE, 270).mix["orders"]


# --- its topics and tasks ---------------------------------------------------------------


def test_slots_are_shared_by_cost_from_one_for_each_part_to_one_for_each_producer() -> None:
    assert slots_needed(WHOLE) == 4
    assert share_slots(WHOLE, 4) == [SlotShare(1, 0), SlotShare(1, 1), SlotShare(1, 0)]
    assert share_slots(WHOLE, 4, reads=False)[1] == SlotShare(2, 0)
    cheap = pattern(20, linger_ms=1_000.0, rate_records_per_s=1_000.0).as_part("cheap")
    dear = pattern(20, linger_ms=0.0, rate_records_per_s=1_000.0).as_part("dear")
    few = pattern(2, linger_ms=0.0, rate_records_per_s=50_000.0).as_part("few")
    assert share_slots(mix_of([cheap, dear]), 12) == [SlotShare(1, 0), SlotShare(11, 0)]
    assert share_slots(mix_of([cheap, few]), 12) == [SlotShare(10, 0), SlotShare(2, 0)]


# --- its limit --------------------------------------------------------------------------


def test_the_limit_of_a_mix_or_of_one_part_is_a_scale_with_the_payload_of_all_parts() -> None:
    found = make_boundary(
        Bracket(270, 283), SCALE, WHOLE, trials=5, interval=Interval(263.0, 279.0, 271.0)
    )
    assert (found.scale_sustained, found.scale_overloaded) == (2.7, 2.83)
    assert (found.scale_low, found.scale_high, found.scale_estimate) == (2.63, 2.79, 2.71)
    assert found.mb_per_s == pytest.approx(2.7 * 2.8)
    assert found.message_bytes == WHOLE.message_bytes
    parts = [(each.part, each.np) for each in found.parts]
    assert parts == [("orders", 108), ("clicks", 14), ("images", 5)]
    assert sum(each.mb_per_s for each in found.parts) == pytest.approx(found.mb_per_s)
    axis = axis_named("scale.orders")
    one = make_boundary(Bracket(200, 220), axis, WHOLE, trials=5)
    assert (one.scale_sustained, axis.amount(200), one.mb_per_s_low) == (
        2.0,
        "2 times orders",
        None,
    )
    assert (one.mb_per_s, one.mb_per_s_overloaded) == pytest.approx((5.3, 5.8))
