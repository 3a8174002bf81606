"""Consumer groups on real brokers: each group reads all records once, while they are written."""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer

from jobs.config import load_workload
from jobs.engine.consuming import group_member
from jobs.engine.consuming.wire_consumers import WireConsumers
from jobs.engine.network.transport import PlainTransport
from jobs.engine.task.plan import TrialPlan
from jobs.testbed.handle import Testbed
from metrics.judging.indicators import CONSUMER_LAG
from metrics.judging.thresholds import Thresholds
from metrics.trial.client import ClientWindow, ConsumerReport, TaskReport, merge
from metrics.trial.consumption import group_windows
from metrics.trial.evidence import Evidence
from tests.support.engine_bench import Bench, bench_on, mismatches
from tests.support.processes import becomes
from tests.support.relay import relay_to
from tests.support.small_load import small_topic
from tests.support.threads_barrier import run_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

RECORD_BYTES = 10
"""Upper bound of the bytes of a record besides its payload [B]."""


def acked_of(report: TaskReport) -> int:
    assert report.produced is not None, report.error
    return report.produced.counts.acked_total


LIBRARIES = [pytest.param(name, marks=pytest.mark.long) for name in ("kafka-python", "librdkafka")]


@pytest.mark.together
@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
def test_each_group_reads_everything_while_it_is_written(bench: Bench, client: str) -> None:
    plan = bench.plan({"groups": 2, "members": 2, "client": client, "check_crcs": True})
    seen = bench.run(plan)
    assert [(group.counts.group, group.counts.members) for group in seen.groups] == [(0, 2), (1, 2)]
    for group in seen.groups:
        assert group.records_total == seen.counts.acked_total
        assert 0 < group.counts.records <= group.records_total
        assert (group.reread_records, group.counts.errors) == (0, {})
        assert len(group.counts.lag_records) in {3, 4}, (
            "a window of 1.5 s, twice a second; one may be late"
        )
        assert abs(group.lag_slope_records_per_s) < 300, "half of the rate"
        assert group.latency.p50_ms > 0
        assert bench.committed(plan, group.counts.group) == bench.end_offsets()


@pytest.mark.together
def test_groups_begin_with_a_backlog_or_at_the_start(bench: Bench) -> None:
    first = bench.run(bench.plan({"groups": 1}, consumer_tasks=1, measure_s=1.0))
    behind = {"groups": 1, "start": "backlog", "backlog_records": 240}
    second = bench.run(bench.plan(behind, consumer_tasks=1, measure_s=1.0))
    (group,) = second.groups
    assert group.records_total == second.counts.acked_total + 240
    third = bench.run(
        bench.plan({"groups": 1, "start": "earliest"}, consumer_tasks=1, measure_s=1.0)
    )
    (group,) = third.groups
    acked = [each.counts.acked_total for each in (first, second, third)]
    assert group.records_total == sum(acked)


@pytest.mark.together
def test_the_other_member_takes_over_from_one_that_leaves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_positions = group_member.Member._set_positions

    def set_positions_slowly(member: group_member.Member, consumer: Any) -> None:
        """The rebalance begins while the positions for its commit grow old."""
        set_positions(member, consumer)
        time.sleep(0.3)

    monkeypatch.setattr(group_member.Member, "_set_positions", set_positions_slowly)
    plan = bench.plan({"groups": 1, "members": 2}, measure_s=4.0)
    alone = dataclasses.replace(plan, consumer_tasks=0)
    short = dataclasses.replace(plan.pattern.phases, measure_s=1.0, drain_timeout_s=0.01)
    leaving = dataclasses.replace(plan, pattern=dataclasses.replace(plan.pattern, phases=short))
    goal: dict[int, int] = {}
    with ThreadPoolExecutor(3) as pool:
        opened = threading.Barrier(3)
        readings = [
            pool.submit(_read, WireConsumers(part, task), opened, goal)
            for task, part in enumerate([leaving, plan])
        ]
        opened.wait(30)
        rows = run_stage(alone)
        goal.update(bench.end_offsets())
        shares = [share for reading in readings for share in reading.result(30).groups]
    (group,) = group_windows(shares)
    assert group.reread_records == 0, "each member commits exactly what it has read"
    assert acked_of(rows[0]) == group.records_total == sum(bench.growth().values())
    assert group.counts.rebalances >= 1
    by_member = [sum(read_range.records for read_range in share.read_ranges) for share in shares]
    assert by_member[0] < by_member[1], "the other member read all the time"


@pytest.mark.together
def test_a_rebalance_that_outlasts_a_poll_of_its_leader_succeeds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Seen(KafkaConsumer):  # type: ignore[misc]  # it has no types
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self._coordinator)

    monkeypatch.setattr(group_member, "KafkaConsumer", Seen)
    plan = bench.plan({"groups": 1, "members": 2})
    members = [group_member.Member(plan, 0, number, lambda: None) for number in (0, 1)]
    try:
        for each in members:
            each.start()
        group_member.await_settled(members, plan)
        (leader,) = [each for each in made if each._is_leader]
        generation = leader._generation.generation_id
        assign = leader._perform_assignment

        def assign_slowly(*of: Any) -> Any:
            leader._perform_assignment = assign
            given = assign(*of)
            # On a busy machine this thread also ends polls, which ends the waiting one.
            time.sleep(1.5 * group_member.POLL_S)
            return given

        rejoin, rejoined = leader.request_rejoin, threading.Event()

        def note_rejoin() -> None:
            rejoined.set()
            rejoin()

        leader.request_rejoin = note_rejoin
        leader._perform_assignment = assign_slowly
        leader._assignment_snapshot = {}  # like a leader that assigned before it knew all members
        assert becomes(lambda: leader._generation.generation_id > generation)
        assert rejoined.wait(60), "kafka-python had forgotten the join, and it was resumed"
        assert becomes(lambda: all(each.owned == 3 for each in members), deadline_s=60)
        assert [each.trouble for each in members] == [None, None]
    finally:
        for each in members:
            each.leave()
        for each in members:
            each.join(10.0)


@pytest.mark.together
def test_a_lost_connection_is_opened_again_and_nothing_is_missed(bench: Bench) -> None:
    plan = bench.plan({"groups": 1}, consumer_tasks=1, measure_s=2.0)
    alone = dataclasses.replace(plan, consumer_tasks=0)
    consumers, opened = WireConsumers(plan, 0), threading.Barrier(2)
    goal: dict[int, int] = {}
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(_read, consumers, opened, goal)
        opened.wait(30)
        writing = pool.submit(run_stage, alone)
        for channel in consumers.channels:
            assert isinstance(channel.transport, PlainTransport)
            channel.transport.sock.shutdown(socket.SHUT_RDWR)
        rows = writing.result(30)
        goal.update(bench.end_offsets())
        (share,) = reading.result(30).groups
    assert sum(read_range.records for read_range in share.read_ranges) == acked_of(rows[0]) > 0
    assert sum(share.counts.errors.values()) == len(bench.brokers)


def _read(
    consumers: WireConsumers, opened: threading.Barrier, goal: dict[int, int]
) -> ConsumerReport:
    """Read until `goal` has the end offsets."""
    try:
        consumers.open()
        opened.wait(30)
        now = time.monotonic()
        report = consumers.run(now, time.time() - now, None, lambda: goal or None)
        assert report.consumed is not None
        return report.consumed
    finally:
        consumers.close()


@pytest.mark.together
def test_a_group_that_cannot_be_joined_is_a_row_and_no_exception(bench: Bench) -> None:
    plan = bench.plan({"groups": 1}, consumer_tasks=1)
    wrong = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    who = {"sasl_plain_username": "nobody", "sasl_plain_password": "wrong"}
    plan = dataclasses.replace(plan, client_options=wrong | who, connect_timeout_s=2.0)
    rows = run_stage(plan)
    assert len(rows) == 2
    assert all(row.error for row in rows)
    assert sum(bench.growth().values()) == 0, "and nothing was written"


@pytest.mark.together
def test_consumers_share_a_stage_of_spark_with_producers(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    overrides = [
        "topic.replication_factor=1", "topic.partitions_per_broker=2",
        "producer.rate_bytes_per_s=100000", "trial.warmup_s=0.5", "trial.measure_s=2",
        "consumers.groups=2", "consumers.members=2",
    ]  # fmt: skip
    workload = load_workload("demo", [f"workload.{each}" for each in overrides])
    pattern = workload.pattern(1_000, brokers=len(kafka_testbed.broker_ids), producers=4)
    with small_topic(kafka_testbed, pattern) as topic:
        rows, ends = topic.offer(spark, pattern, slots=3), topic.ends()
    assert sorted((row.consumed is not None, row.produced is not None) for row in rows) == [
        (False, True), (True, False), (True, False)
    ]  # fmt: skip
    client = merge(rows)
    assert sorted(client.counts.by_producer.acked) == [0, 1, 2, 3]
    assert [group.counts.members for group in client.groups] == [2, 2]
    assert {group.records_total for group in client.groups} == {client.counts.acked_total}
    assert mismatches(client, topic.before, ends) == []


def slowed(bench: Bench, plan: TrialPlan, share: float | None) -> ClientWindow:
    """A trial whose consumers get this share of the records, or all of them."""
    producer = plan.pattern.producer
    bytes_per_s = (
        plan.pattern.producers
        * producer.rate_records_per_s
        * (producer.message_bytes + RECORD_BYTES)
    )
    limit = None if share is None else share * bytes_per_s / len(bench.brokers)
    with ExitStack() as stack:
        ways = {
            broker: stack.enter_context(relay_to(address, answers_bytes_per_s=limit))
            for broker, address in bench.brokers.items()
        }
        return bench.run(plan, dataclasses.replace(plan, brokers=ways))


def verdict_on_groups(seen: ClientWindow) -> list[str]:
    """The reasons of the default goal about the groups."""
    return [each.text for each in CONSUMER_LAG.reasons(Evidence(seen), Thresholds().indicators)]


def test_a_group_that_reads_a_tenth_less_than_is_written_is_an_overload(
    kafka_testbed: Testbed,
) -> None:
    load: dict[str, Any] = {"producers": 10, "rate_records_per_s": 100.0, "linger_ms": 20.0}

    def reasons_with(share: float | None) -> list[str]:
        with bench_on(kafka_testbed) as bench:
            plan = bench.plan({"groups": 1}, consumer_tasks=1, warmup_s=2.0, measure_s=6.0, **load)
            return verdict_on_groups(slowed(bench, plan, share))

    with ThreadPoolExecutor(2) as pool:  # at the same time, as both mostly wait
        of_all, of_less = pool.map(reasons_with, [None, 0.9])
    assert of_all == []
    (reason,) = of_less
    assert "consumer group 0 fell behind by" in reason


@pytest.mark.long
@pytest.mark.timeout(300)
def test_twenty_windows_of_groups_that_keep_up_are_sustained(bench: Bench) -> None:
    load: dict[str, Any] = {"producers": 10, "rate_records_per_s": 200.0, "linger_ms": 20.0}
    reasons, shares = [], []
    for _ in range(5):
        plan = bench.plan({"groups": 4}, consumer_tasks=2, warmup_s=2.0, measure_s=6.0, **load)
        seen = bench.run(plan)
        reasons += verdict_on_groups(seen)
        growth = Evidence(seen).lag_growth_per_s.values()
        shares += [each * seen.duration_s / seen.counts.offered_records for each in growth]
    log.warning("growth of the lag over what was offered: %.4f to %.4f", min(shares), max(shares))
    assert (len(shares), reasons) == (20, [])
