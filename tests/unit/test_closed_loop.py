"""A closed loop: producers send as soon as brokers answer; its rules and messages."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.health import LogDir
from jobs.config import Configuration, load, load_workload
from jobs.config.goal import GuardLimits
from jobs.config.loading import require_open_loop
from jobs.engine.batches.sections import Section
from jobs.engine.clients.library_producers import LibrarySender
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import EndingSchedule, due_between, schedule_for
from jobs.runs.estimate import describe_producer
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.limit import LimitRun
from jobs.trials.control_server import ControlServer
from jobs.trials.guards import Guards
from metrics.columns import restored, row_of
from metrics.common.errors import ConfigError, GuardStopError
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.traffic.clients import ProducerOptions, ProducerPattern
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import RateProfile
from metrics.trial.consumption import GroupCounts, GroupWindow
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import broker, client, evidence
from tests.support.guarded_cluster import Cluster
from tests.support.patterns import pattern
from tests.support.processes import PATIENCE_S
from tests.support.scripted_broker import Answer
from tests.support.wire_loops import run_loop

UNLIMITED = ["workload.producer.rate_bytes_per_s=null", "workload.producer.rate=unlimited"]


def unlimited(**fields: Any) -> TrafficPattern:
    return pattern(rate_records_per_s=math.inf, **fields)


def configured(*more: str) -> Configuration:
    return load("testbed", "1kB", "default", [*UNLIMITED, *more])


def test_every_batch_is_full_and_the_requests_in_flight_reach_their_maximum() -> None:
    loop, seen = run_loop(
        lambda _: Answer(delay_s=0.01), math.inf, max_in_flight=2, buffer_memory=64_000
    )
    counts = loop.account.counts
    assert counts.acked_total == seen.records > 1_000
    assert seen.records / seen.requests >= loop.producers[0].section.full_records
    assert (counts.offered_records, counts.unsent_own_records) == (0, 0)
    assert loop.producers[0].buffered_bytes <= 64_000 + 16_384, "buffer_memory bounds what waits"
    assert loop.producers[0].blocked or loop.producers[0].opened == seen.records
    loop, seen = run_loop(lambda _: Answer(delay_s=0.04), math.inf, max_in_flight=1)
    assert seen.requests == 0.6 / 0.04, "one request at a time, from the first to the last moment"
    assert seen.records / seen.requests > 2 * loop.producers[0].section.full_records
    assert loop.account.counts.unsent_own_records == 0


def test_latency_counts_from_when_a_record_was_taken() -> None:
    loop, _ = run_loop(
        lambda _: Answer(delay_s=0.02), math.inf, max_in_flight=1, buffer_memory=1_024
    )
    latency_ms = loop.account.latency.histogram.quantile(50) / 1000
    assert 20 <= latency_ms < 200, "and not from the start of the load, 0.1 s and more before"
    assert loop.account.lateness.histogram.count == 0, "records without a due time are never late"


def test_a_volume_ends_a_closed_loop_as_any_schedule() -> None:
    loop, seen = run_loop(lambda _: Answer(), math.inf, volume_bytes=100_050)
    assert seen.records == loop.account.counts.acked_total == 1_001, "of 100 B, rounded up"
    schedule = schedule_for(unlimited(volume_bytes=1_000), 0, 5.0)
    assert isinstance(schedule, EndingSchedule)
    assert (schedule.due_s(9), schedule.due_s(10)) == (5.0, math.inf)
    assert (schedule.due_until(4.9), schedule.due_until(5.0)) == (0, 10)
    assert due_between(schedule, 0.0, 100.0) == 0


def test_a_library_gets_records_as_long_as_it_has_room() -> None:
    ends = [100 * records for records in range(17)]
    section, schedule = Section(b"x" * 1_600, ends, ends), schedule_for(unlimited(), 0, 5.0)
    producer = Producer(0, unlimited().producer, section, range(4), schedule)
    library: Any = SimpleNamespace(offer=Mock(side_effect=[True] * 30 + [False]))
    sender = LibrarySender(producer, library, [(None, b"x" * 100, [])])
    while sender.offer(0.0, 2_000, 7.5):
        continue
    assert sender.offered == 20, "so many fit into buffer_memory"
    assert sender.blocked


def test_a_closed_loop_is_one_of_three_ways_to_give_a_rate() -> None:
    workload = load_workload("1kB", UNLIMITED)
    assert workload.pattern(1_000).producer.closed_loop
    assert not load_workload("1kB").pattern(1_000).producer.closed_loop
    assert ProducerOptions(rate="unlimited").records_per_s(1_000) == math.inf
    assert describe_producer(workload).startswith("closed loop, ")


def test_a_row_marks_a_closed_loop_and_has_no_rate() -> None:
    row = row_of(unlimited().producer)
    assert (row["closed_loop"], row["rate_records_per_s"]) == (True, None)
    assert restored(ProducerPattern, row) == unlimited().producer
    open_loop = row_of(pattern().producer)
    assert (open_loop["closed_loop"], open_loop["rate_records_per_s"]) == (False, 1_000.0)


def test_a_search_refuses_a_closed_loop_with_the_remedy(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as refused:
        LimitRun(configured())
    assert str(refused.value) == snapshot
    require_open_loop(load("testbed", "1kB", "default", []))
    with pytest.raises(ConfigError, match=r"goal.search.axis is rate .* producer.rate unlimited"):
        configured("goal.search.axis=rate", "workload.np=4")
    profile = RateProfile("day", ((0.0, 1.0), (10.0, 0.5)))
    with pytest.raises(ConfigError, match=r"--profile day with producer.rate unlimited"):
        FixedLoadRun(configured(), FixedLoad(1_000, 4, duration_s=20.0, profile=profile))


def test_a_fixed_load_takes_a_closed_loop_and_promises_no_bytes(tmp_path: Any) -> None:
    planned = FixedLoadRun(configured(), FixedLoad(1_000, 4)).plan(tmp_path)
    assert planned.write_bytes_max is None
    whole = configured("workload.trial.volume_bytes=2000000")
    planned = FixedLoadRun(whole, FixedLoad(1_000, 4)).plan(tmp_path)
    replicas = whole.workload.topic.replication_factor
    assert planned.write_bytes_max == 2_000_000 * replicas


def guarding(**limits: Any) -> Guards:
    cluster = Cluster()
    cluster.dirs = (LogDir(1, "/data", 10**12, 5 * 10**11),)
    made = Guards(GuardLimits(**limits), cluster, lambda _: True, pytest.fail)
    made.open()
    return made


def test_guards_end_a_closed_loop_once_enough_is_written() -> None:
    guards, traffic = guarding(write_bytes_max=1_000_000), unlimited()
    guards.admit(traffic)
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(2) as channel:
        ended = threading.Event()
        channel.end_now = ended.set  # type: ignore[method-assign]
        channel.receive(0, {"written": 4_000})
        with guards.watch(traffic, channel):
            assert not ended.wait(0.3)
            channel.receive(1, {"at_s": 1.0, "acked": 10, "written": 6_000})
            assert channel.written == 10_000
            assert ended.wait(PATIENCE_S)
    with pytest.raises(GuardStopError, match=r"1 MB of payload .* 1 MB"):
        guards.require_untripped()


def test_an_unfinished_load_counts_with_the_bytes_that_its_tasks_reported() -> None:
    guards, traffic = guarding(write_bytes_max=1_000_000), unlimited()
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        channel.receive(0, {"written": 7_000})
        with guards.watch(traffic, channel):
            pass
    guards.settle(traffic, None)
    assert guards.spent_bytes == 700_000
    guards.admit(traffic)
    guards.settle(traffic, client(acked_by_partition={0: 3_000}))
    with pytest.raises(GuardStopError, match="1 MB of payload"):
        guards.admit(traffic)


def test_a_cap_on_the_rate_cannot_be_promised(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(GuardStopError) as stop:
        guarding(load_bytes_per_s_max=1_000_000).admit(unlimited())
    assert str(stop.value) == snapshot


def held(**changes: Any) -> Any:
    seen = client(offered_records=0, offered_bytes=0, **changes)
    return evidence(seen, [broker(1)], closed_loop=True)


def test_a_closed_loop_has_no_missing_records_and_a_reason_for_its_pace(
    snapshot: SnapshotAssertion,
) -> None:
    judged = judge(held(), Thresholds())
    assert judged.verdict is Verdict.SUSTAINED
    assert judged.reasons[0].text == snapshot
    assert judged.limited_by is Resource.UNKNOWN, "no resource was at its limit"
    seen = held().client
    assert (seen.offered_mb_per_s, seen.achieved_share) == (None, None)
    assert seen.achieved_mb_per_s == pytest.approx(0.1)


def test_only_full_brokers_are_an_overload_of_a_closed_loop() -> None:
    full = replace(held(), brokers=(broker(1, handler_idle=0.02, cpu_machine_share=0.97),))
    judged = judge(full, Thresholds())
    assert (judged.verdict, judged.limited_by) == (Verdict.OVERLOADED, Resource.CPU)
    assert [each.indicator for each in judged.reasons] == ["request_handler_idle", "closed_loop"]
    behind = (GroupWindow(GroupCounts(0, records=1_000)),)
    seen = replace(held(), client=replace(held().client, groups=behind))
    assert seen.lag_growth_per_s["0"] > 0.0, "the group falls behind"
    judged = judge(seen, Thresholds())
    assert judged.verdict is Verdict.SUSTAINED
    assert "consumer_lag" not in {each.indicator for each in judged.reasons}
    nothing = judge(held(sent_records=0, acked_records=0), Thresholds())
    assert nothing.verdict is Verdict.INVALID
