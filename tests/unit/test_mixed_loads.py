"""The load of a mix: its tasks, the numbers of its parts, and the judgement of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.console.events import RecordingReporter
from jobs.engine.batches.pool import pool_of
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import schedule_for
from jobs.engine.task.client import AcknowledgedOffsets
from jobs.engine.task.plan import StagePlan, TrialPlan, placed
from jobs.trials.context import RunContext, TrialHistory
from jobs.trials.load import plans_of_parts, require_room
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import ConfigError
from metrics.judging.disk_proof import deleted_after_s
from metrics.judging.verdict import judge
from metrics.planning.load_needs import share_slots
from metrics.tables.schema import part_rows
from metrics.traffic.axes import SCALE, axis_named
from metrics.traffic.clients import ConsumerOptions
from metrics.traffic.mix import mix_of
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.trial.adding import ProducerShares
from metrics.trial.client import (
    BrokerAccount,
    ClientWindow,
    ConsumerReport,
    Counts,
    ProducerAccounts,
    ProducerReport,
    TaskReport,
    merge,
)
from metrics.trial.consumption import GroupCounts, GroupShare, GroupWindow, ReadRange
from metrics.trial.others import ClientTraffic, others_in
from search.model import Verdict
from tests.support.evidence import client, evidence, goal
from tests.support.patterns import pattern, plan
from tests.support.rows import trial
from tests.support.scripted_admin import FakeTime, ScriptedAdmin

BROKERS = {1: ("127.0.0.1", 1), 2: ("127.0.0.1", 2)}


def part(name: str, producers: int, topics: int = 1, groups: int = 0, **own: Any) -> TrafficPattern:
    """A part with two partitions on each of two brokers, in each of its topics."""
    made = pattern(
        producers,
        topic=TopicOptions(count=topics, partitions_per_broker=2, replication_factor=1),
        consumers=ConsumerOptions(groups=groups),
        **own,
    )
    return replace(made.as_part(name), brokers=2)


ORDERS = part("orders", 6, groups=1)
CLICKS = part("clicks", 3, topics=2, groups=2)
IMAGES = part("images", 1)
MIX = mix_of([ORDERS, CLICKS, IMAGES])


def topics_of(mix: TrafficPattern) -> TopicSet:
    def own(each: TrafficPattern) -> TopicSet:
        names = tuple(f"{each.part}-{number}" for number in range(each.topic.count))
        return TopicSet.assigned(names, each.message_bytes, {n: (1 + n % 2,) for n in range(4)})

    return TopicSet.of_parts([own(each) for each in mix.parts], mix.message_bytes)


def stage(slots: int = 12) -> StagePlan:
    """The stage of the mix; offsets before the load are ten times the partition's number."""
    topics = topics_of(MIX)
    before = {number: 10 * number for number in range(len(topics.leaders))}
    shares = share_slots(MIX, slots)
    whole = plan(
        pattern=MIX, topics=topics.names, leaders=topics.leaders, brokers=BROKERS,
        end_offsets=before, tasks=sum(each.tasks for each in shares),
        consumer_tasks=sum(each.consumer_tasks for each in shares),
    )  # fmt: skip
    return StagePlan(plans_of_parts(whole, topics, shares))


# --- topics -----------------------------------------------------------------------------


@pytest.fixture
def admin() -> ScriptedAdmin:
    return ScriptedAdmin((1, 2))


@pytest.fixture
def made(admin: ScriptedAdmin) -> Topics:
    clock = FakeTime()
    return Topics(admin, "run1", clock=clock, pause=clock.pause)


def test_all_topics_of_a_mix_are_made_checked_and_restored(
    admin: ScriptedAdmin, made: Topics
) -> None:
    made.validate(MIX)
    topics = made.create(MIX)
    parts = ("orders-100B-2p", "clicks-100B-2p-0", "clicks-100B-2p-1", "images-100B-2p")
    names = tuple(f"redline-run1-{each}" for each in parts)
    assert topics.names == names
    assert set(made.made) == {*names}
    assert topics.fit(MIX) == MIX
    assert made.refresh(topics) == topics
    assert not made.are_moved(topics)
    assert made.end_offsets(topics) == {number: number % 4 * 10 for number in range(16)}
    assert made.moved_leaders(topics) == {}
    old = admin.topics[names[2]][1]
    admin.topics[names[2]][1] = replace(old, leader=1)
    assert made.moved_leaders(topics) == {2: 1}
    report = made.check(topics)
    assert report.before.moved == (9,)
    assert report.ok
    assert admin.requests[-1] == f"elect {names[2]} [1]"
    admin.topics[names[0]][0] = replace(old, replicas=(2,), leader=2, isr=(2,))
    assert made.are_moved(topics)
    made.delete(topics.names)
    assert not made.made


def test_topics_stay_for_all_scales_of_a_mix(admin: ScriptedAdmin, made: Topics) -> None:
    context = SimpleNamespace(topics=made, reporter=RecordingReporter(), history=TrialHistory())
    keeper = PointTopics(cast(RunContext, context))
    first = keeper.open(SCALE.apply(MIX, 100))
    assert keeper.open(SCALE.apply(MIX, 270)) == first
    assert keeper.open(axis_named("scale.clicks").apply(MIX, 40)) == first
    assert len(admin.requests) == 4
    other = mix_of([ORDERS, replace(CLICKS, topic=ORDERS.topic), IMAGES])
    assert len(keeper.open(other).names) == 3


# --- tasks ------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [5, 6, 12, 40])
def test_each_task_of_the_stage_belongs_to_one_part(slots: int) -> None:
    found = stage(slots)
    hosted: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for task in range(found.tasks):
        own = found.plan_of(task)
        number = own.own_task(task)
        assert own.stage_task(number) == task
        assert 0 <= number < own.tasks + own.consumer_tasks
        if number < own.tasks:
            hosted.update(own.producer_name(each) for each in own.producers_of(number))
        else:
            consumers = own.pattern.consumers
            taken = consumers.members_of(number - own.tasks, own.consumer_tasks)
            members.update(own.member_name(*each) for each in taken)
    assert set(hosted.values()) == set(members.values()) == {1}
    assert (len(hosted), len(members)) == (10, 3)


def test_a_mix_needs_a_slot_for_each_part() -> None:
    require_room(MIX, 5)
    with pytest.raises(ConfigError, match=r"a mix of 3 parts .* 4 slots; expected 5 or more"):
        require_room(MIX, 4)
    crowded = mix_of([ORDERS, part("clicks", 1, groups=1)])
    many = replace(crowded.parts[1], consumers=ConsumerOptions(groups=1, members=5))
    with pytest.raises(ConfigError, match="members is 5 and the topics have 4 partitions"):
        require_room(mix_of([crowded.parts[0], many]), 8)


# --- reports ----------------------------------------------------------------------------


def report_of(own: TrialPlan, task: int, acked: int) -> TaskReport:
    """A report by the part's own numbers, of producers or of consumers."""
    if task < own.tasks:
        counts = Counts(offered_records=100, sent_records=acked, acked_records=acked)
        counts.acked_by_partition[1] = acked
        counts.errors_by_partition[1]["Some"] += 2
        counts.by_producer.acked[task] = acked
        shares = ProducerShares.of([(task, acked, 100)])
        return TaskReport(task, "h", 0.0, 1.0, ProducerReport(counts, shares=shares))
    share = GroupShare(GroupCounts(0, 1, acked), read_ranges=(ReadRange(1, 0, acked, acked),))
    return TaskReport(task, "h", 0.0, 1.0, consumed=ConsumerReport(groups=(share,)))


def test_reports_have_the_numbers_of_the_whole_load() -> None:
    found = stage(5)
    reports = []
    for task in range(found.tasks):
        own = found.plan_of(task)
        reports.append(placed(own, report_of(own, own.own_task(task), 90 + task)))
    assert [each.task_id for each in reports] == list(range(5))
    assert [each.part for each in reports] == ["orders", "clicks", "images", "orders", "clicks"]
    window = merge(reports)
    assert window.counts.acked_by_partition == {1: 90, 5: 91, 13: 92}
    assert window.counts.failed_by_partition == {1: 2, 5: 2, 13: 2}
    assert window.counts.by_producer.acked == {0: 90, 6: 91, 9: 92}
    assert window.producer_share.worst == 0
    assert [each.counts.group for each in window.groups] == [0, 1]
    assert [each.read_by_partition[0].partition for each in window.groups] == [1, 5]
    assert list(window.parts) == ["orders", "clicks", "images"]
    assert [each.counts.acked_records for each in window.parts.values()] == [90, 91, 92]
    assert window.counts.acked_records == 273
    assert window.account_of_group(1) is window.parts["clicks"]


def test_consumers_read_up_to_what_their_own_part_acknowledged() -> None:
    orders, clicks, images = stage(5).plans
    sent: list[str] = []

    def gather(message: str) -> list[str]:
        sent.append(message)
        return [*sent]

    for own, offsets in ((orders, {1: 7}), (images, {1: 9}), (clicks, {1: 5})):
        acknowledged = AcknowledgedOffsets(own, gather)
        acknowledged.own_offsets = offsets
        acknowledged()
        acknowledged.finish()
        last = acknowledged
    assert [json.loads(each) for each in sent] == [{"1": 7}, {"13": 9}, {"5": 5}]
    targets = last()
    assert targets is not None and (targets[0], targets[1]) == (40, 50 + 5)
    assert all(each.gathers_offsets for each in (orders, clicks, images))


# --- judgement --------------------------------------------------------------------------


def mixed_client(**of_images: Any) -> ClientWindow:
    """A mix whose first part has 99 % of the records, and whose second part has these counts."""
    images = {"offered_records": 100, "sent_records": 100, "acked_records": 100, **of_images}
    orders = client(offered_records=9_900, sent_records=9_900, acked_records=9_900)
    own = client(offered_bytes=1, acked_bytes=1, **images)
    acked = 9_900 + own.counts.acked_records
    return client(acked_records=acked, parts={"orders": orders, "images": own})


def test_a_part_that_falls_behind_is_an_overload_even_where_the_sums_hide_it() -> None:
    judgement = judge(evidence(mixed_client(acked_records=60)), goal())
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = judgement.reasons
    assert (reason.indicator, reason.value) == ("achieved", 0.6)
    assert reason.text.startswith("part images: 60.0% of the offered records")
    assert judgement.utilization["achieved"] == pytest.approx(40.0)
    slow = judge(evidence(mixed_client(latency_p99_ms=250.0)), goal(latency_p99_ms_max=100.0))
    assert slow.verdict is Verdict.OVERLOADED
    assert slow.reasons[0].text.startswith("part images: ")
    assert judge(evidence(mixed_client()), goal()).verdict is Verdict.SUSTAINED


def test_a_part_that_the_generator_held_up_is_no_answer() -> None:
    held_up = mixed_client(acked_records=60, unsent_own_records=40)
    judgement = judge(evidence(held_up), goal())
    assert judgement.verdict is Verdict.INVALID
    assert judgement.is_by_generator
    assert "part images: the generator was the limit: 40 of 40" in judgement.reasons[0].text


def test_a_group_is_compared_with_the_part_that_it_reads() -> None:
    seen = mixed_client()
    group = GroupWindow(GroupCounts(0, 1, 100), read_by_partition=(ReadRange(1, 5, 105, 100),))
    own = replace(
        seen.parts["images"], groups=(group,),
        counts=replace(seen.parts["images"].counts, acked_by_partition={1: 100}),
    )  # fmt: skip
    seen = replace(
        seen, groups=(group,), parts={**seen.parts, "images": own},
        counts=replace(seen.counts, acked_by_partition={0: 9_900, 1: 100}),
    )  # fmt: skip
    whole = evidence(seen, growth={0: 9_900, 1: 100})
    assert whole.lag_growth_per_s == {"0": 0.0}
    assert judge(whole, goal()).verdict is Verdict.SUSTAINED
    unread = replace(group, read_by_partition=(ReadRange(1, 5, 55, 50),))
    short = replace(own, groups=(unread,))
    behind = replace(seen, groups=(unread,), parts={**seen.parts, "images": short})
    judgement = judge(evidence(behind, growth={0: 9_900, 1: 100}), goal())
    assert judgement.verdict is Verdict.INVALID
    assert "did not read 50 acknowledged records of 1 partitions" in judgement.reasons[0].text


# --- the table --------------------------------------------------------------------------


def test_the_table_has_each_part_with_its_counts_and_reasons() -> None:
    at = SCALE.apply(mix_of([part("orders", 10), part("images", 3)]), 150)
    seen = evidence(mixed_client(acked_records=60))
    made = replace(trial(), pattern=at, evidence=seen, judgements={"default": judge(seen, goal())})
    orders, images = part_rows(made)
    assert (orders.part, orders.producers, orders.reasons) == ("orders", 15, ())
    assert orders.client.counts.acked_records == 9_900
    assert (images.part, images.producers, len(images.reasons)) == ("images", 4, 1)
    assert (orders.scale, images.scale) == pytest.approx((1.5, 1.5))
    assert part_rows(trial()) == []


def test_what_groups_read_has_the_batches_of_their_own_part() -> None:
    small = client(acked_by_partition={0: 1_000}, log_bytes=100_000)
    large = client(
        acked_by_partition={1: 100},
        log_bytes=1_000_000,
        groups=(GroupWindow(GroupCounts(0), records_total=100),),
    )
    both = client(
        acked_by_partition={0: 1_000, 1: 100}, log_bytes=1_100_000, groups=large.groups,
        parts={"small": small, "large": large},
    )  # fmt: skip
    everything = ClientTraffic(10.0, 1_100.0, 1_100_000.0, 1_000_000.0)
    found = others_in(everything, 1_100, both, None)
    assert found is not None
    assert found.read_bytes_per_s == pytest.approx(0.0)


def test_the_part_whose_records_are_deleted_first_bounds_a_proof() -> None:
    short = replace(ORDERS.topic, config={"retention.ms": "9"})
    mix = mix_of([ORDERS, replace(CLICKS, topic=short)])
    assert deleted_after_s(mix, 60.0) == pytest.approx(60.009)


@pytest.mark.parametrize(("producers", "sustained", "overloaded"), [(1, 94, 80), (16, 85, 70)])
def test_batches_at_the_edges_of_a_window_are_no_shortfall_of_a_small_part(
    producers: int, sustained: int, overloaded: int
) -> None:
    for acked, verdict in ((sustained, Verdict.SUSTAINED), (overloaded, Verdict.OVERLOADED)):
        seen = mixed_client(
            acked_records=acked,
            by_broker={1: BrokerAccount(requests=20)},
            by_producer=ProducerAccounts(acked=dict.fromkeys(range(producers), 1)),
            is_part=True,
        )
        assert judge(evidence(seen), goal()).verdict is verdict


@pytest.mark.computes
def test_the_producers_of_two_parts_choose_partitions_and_times_of_their_own() -> None:
    """Equal choices would let parts with equal options send at the same moments."""
    whole = pattern(1, rate_records_per_s=100.0, linger_ms=0.0, arrivals="poisson")

    def choices(own: TrafficPattern) -> tuple[list[int], list[float], Mapping[int, int]]:
        pool = pool_of(own.producer)
        schedule = schedule_for(own, 0, 100.0)
        producer = Producer(0, own.producer, pool.section_of(0), range(50), schedule, "p")
        batches = [producer.seal(1, 0.0) for _ in range(20)]
        keyed = replace(
            own.producer, options=replace(own.producer.options, sticky_partition="keys")
        )
        divided = Producer(0, keyed, pool.section_of(0), range(50), schedule, "p")
        shares = {b.partition: b.records for b in divided.divide(20, 0.0, (1,) * 50, 1)}
        partitions, times = [each.partition for each in batches], [each.due_s for each in batches]
        return partitions, times, shares

    alone, first = choices(whole), choices(whole.as_part("orders"))
    again, other = choices(whole.as_part("orders")), choices(whole.as_part("clicks"))
    assert first == again
    for one, two in ((first, other), (alone, first)):
        assert all(a != b for a, b in zip(one, two, strict=True))
