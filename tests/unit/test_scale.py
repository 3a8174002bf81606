"""Work for many brokers grows with their number and no faster: it is counted, not timed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster.admin import (
    QUERIES_IN_PARALLEL,
    AdminError,
    Partition,
    query_all_brokers,
    query_brokers,
)
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth, LogDir
from jobs.cluster.topics import BROKERS_PER_CHECK, Topics
from jobs.config import load_workload
from jobs.config.goal import GuardLimits
from jobs.console.events import TrialProgress
from jobs.engine.stage import reports_to_batch
from jobs.trials.guards import Guards
from jobs.trials.running_load import progress_reported
from jobs.trials.sampling import Samples
from metrics.judging.running import Slices
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge, progress_of
from metrics.sources.sample import BrokerSample
from metrics.trial.client import Counts, ProducerReport, TaskReport
from metrics.windows.broker import BrokerWindow
from search.model import Verdict
from tests.support.fake_cluster import TOPIC, SimulatedCluster
from tests.support.interpreter_steps import steps_of
from tests.support.patterns import pattern
from tests.support.running_loads import SentChannel, running
from tests.support.scripted_admin import ScriptedAdmin
from tests.support.simulated_trial import SimulatedTrial

pytestmark = pytest.mark.computes

FEW, MANY = 60, 120
WORKLOAD = load_workload("demo")


def growth(work: Callable[[int], Callable[[], object]]) -> float:
    """The steps for twice as many brokers, as a multiple of the steps for few."""
    work(1)()  # one-time set-up
    return steps_of(work(MANY)) / steps_of(work(FEW))


def judging(brokers: int, idle: float, expected: Verdict) -> Callable[[], object]:
    trial = SimulatedTrial(brokers, window_s=10.0, handler_idle=idle)
    evidence = trial.evidence(trial.samples(), trial.host_samples(), trial.client())

    def work() -> None:
        assert judge(evidence, Thresholds()).verdict is expected

    return work


@pytest.mark.parametrize("idle", [0.1, 0.6])
def test_a_verdict_takes_twice_the_steps_for_twice_the_brokers(idle: float) -> None:
    expected = Verdict.OVERLOADED if idle < 0.2 else Verdict.SUSTAINED
    assert growth(lambda brokers: judging(brokers, idle, expected)) < 2.05


def test_windows_and_looks_at_a_trial_take_twice_the_steps_for_twice_the_brokers() -> None:
    def evidence(brokers: int) -> Callable[[], object]:
        trial = SimulatedTrial(brokers, window_s=10.0)
        seen = trial.samples(), trial.host_samples(), trial.client()
        return lambda: trial.evidence(*seen)

    def look(brokers: int) -> Callable[[], object]:
        trial = SimulatedTrial(brokers, window_s=10.0)
        samples, window = trial.samples(), (trial.start_s, trial.start_s + 10.0)
        return lambda: progress_of(
            Slices(samples, trial.broker_ids, window, 5.0, [(1.0, 1)], 1.0), Thresholds()
        )

    assert growth(evidence) < 2.05
    assert growth(look) < 2.05


def test_the_room_on_disks_takes_twice_the_steps_for_twice_the_brokers() -> None:
    def room(brokers: int) -> Callable[[], object]:
        dirs = tuple(
            LogDir(each, "/a", 10**12, 5 * 10**11, own_logs=10) for each in range(1, brokers + 1)
        )
        health: Any = SimpleNamespace(
            replicas_interval_s=0.0,
            log_dirs_interval_s=0.0,
            under_replicated=frozenset,
            log_dirs=lambda _topics=(): dirs,
            broker_ids=lambda: (1, 2, 3),
            has_topic=lambda _name, _broker=None: False,
            hidden_topics=frozenset,
        )
        guards = Guards(GuardLimits(), health, lambda topic: True, print)
        guards.open()
        return lambda: guards.require_room(WORKLOAD.pattern(1_000), ("t",))

    assert growth(room) < 2.05


def test_brokers_are_queried_in_parallel_and_answers_keep_their_order() -> None:
    together = threading.Barrier(QUERIES_IN_PARALLEL, timeout=60)
    running, most, guard = 0, 0, threading.Lock()

    def query(broker: int) -> int:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait()  # one query after the other would never pass
        with guard:
            running -= 1
        return broker * broker

    brokers = range(1, 4 * QUERIES_IN_PARALLEL + 1)
    assert query_brokers(query, brokers) == [(each, each * each) for each in brokers]
    assert most == QUERIES_IN_PARALLEL


def test_a_silent_broker_does_not_affect_the_answers_of_others() -> None:
    def query(broker: int) -> str:
        if broker == 2:
            raise AdminError("broker 2 is silent", "KafkaTimeoutError")
        return "here"

    (_, one), (_, two), (_, three) = query_brokers(query, (1, 2, 3))
    assert (one, str(two), three) == ("here", "broker 2 is silent", "here")
    with pytest.raises(AdminError, match="broker 2 is silent"):
        query_all_brokers(query, (1, 2, 3))


class Counted(ScriptedAdmin):
    """Brokers that count their requests about topics."""

    def __init__(self, brokers: int) -> None:
        super().__init__(range(1, brokers + 1))
        self.queries: Counter[int] = Counter()
        self._one_at_a_time = threading.Lock()

    def partitions_seen_by(
        self, broker_id: int, topics: Sequence[str]
    ) -> dict[str, dict[int, Partition] | None]:
        with self._one_at_a_time:
            self.queries[broker_id] += 1
        return super().partitions_seen_by(broker_id, topics)


def test_a_check_queries_few_of_many_brokers_in_turn_and_all_of_few() -> None:
    for brokers, looks, queries in (
        (BROKERS_PER_CHECK, 3, [3] * BROKERS_PER_CHECK),
        (4 * BROKERS_PER_CHECK, 1, [1] * BROKERS_PER_CHECK),
        (4 * BROKERS_PER_CHECK, 4, [1] * 4 * BROKERS_PER_CHECK),
    ):
        admin = Counted(brokers)
        topics = Topics(admin, "run1", pause=lambda _: None)
        made = topics.create(WORKLOAD.pattern(1_000))
        admin.queries.clear()
        for _ in range(looks):
            assert topics.check(made).ok
        assert list(admin.queries.values()) == queries


def test_progress_shows_the_busiest_of_brokers_that_are_sampled_every_5_s() -> None:
    seen, came = list[BrokerWindow](), threading.Event()

    def report(event: object) -> None:
        if isinstance(event, TrialProgress) and event.busiest is not None:
            seen.append(event.busiest)
            came.set()

    def samples_taken() -> list[BrokerSample]:
        """Samples of brokers that are always 1 s and 1 s plus one interval old."""
        now_s, trial = time.time(), SimulatedTrial(3, window_s=0.0)
        before, last = trial.samples()[:3], trial.samples()[3:6]
        return [replace(each, at_s=now_s - 1.0 - trial.interval_s) for each in before] + [
            replace(each, at_s=now_s - 1.0) for each in last
        ]

    context = SimpleNamespace(reporter=SimpleNamespace(report=report))
    traffic, channel = pattern(measure_s=30.0, sample_interval_s=5.0), SentChannel(None)
    load = running(traffic, channel, context, samples=lambda: Samples(samples_taken()))
    with progress_reported(load):
        assert came.wait(60.0), "no progress had a broker in it"
    assert seen[0].handler_idle == pytest.approx(0.1, rel=0.1)


def test_end_offsets_disks_and_properties_take_one_request_a_broker() -> None:
    count = 40
    replicas = {i: (i % count + 1, (i + 1) % count + 1) for i in range(10 * count)}
    ends = {(TOPIC, i): 10 * i for i in replicas}
    names = ("queued.max.requests",)
    with (
        SimulatedCluster(count, replicas) as cluster,
        connect(cluster.addresses[:2], timeout_s=120.0) as admin,
    ):

        def requests_of(kind: str) -> dict[int, int]:
            return {
                broker: n for (broker, name), n in cluster.request_counts.items() if name == kind
            }

        once = dict.fromkeys(cluster.brokers, 1)
        cluster.together = count  # no answer before all requests arrived
        assert admin.end_offsets(ends) == ends
        assert requests_of("ListOffsetsRequest") == once
        dirs = ClusterHealth(admin).log_dirs([TOPIC])
        assert [(each.broker_id, each.own_logs) for each in dirs] == [
            (broker, 20) for broker in cluster.brokers
        ]
        assert requests_of("DescribeLogDirsRequest") == once
        properties = query_all_brokers(
            lambda broker: admin.broker_config(broker, names), cluster.brokers
        )
        assert properties == [{names[0]: str(broker)} for broker in cluster.brokers]
        assert requests_of("DescribeConfigsRequest") == once
        cluster.not_leader = {7}  # once: the new leader is looked up
        assert admin.end_offsets(ends) == ends
        assert requests_of("ListOffsetsRequest")[7] == 3


def test_reading_a_tasks_report_takes_few_steps_for_each_partition() -> None:
    def reading(partitions: int) -> Callable[[], object]:
        taken = dict.fromkeys(range(partitions), 7)
        counts = Counts(acked_by_partition=taken, sent_by_partition=taken)
        report = TaskReport(0, "host", 0.0, 1.0, ProducerReport(counts))
        (row,) = reports_to_batch([report]).to_pylist()
        assert TaskReport.from_row(row) == report
        return lambda: TaskReport.from_row(row)

    few, many = steps_of(reading(100)), steps_of(reading(1_100))
    of_value = (many - few) / 2_000  # two maps with a value for each partition
    assert of_value < 60, "kinds of values are looked up once for each field, not for each value"
