"""Events in a cluster or its clients during a trial: trials name them, and the run continues."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResourceType

from jobs.config import load
from jobs.console.events import Event, PhaseStarted, RecordingReporter, TrialProgress, TrialStarted
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import execute
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from jobs.testbed.model import CONTROLLER_ID
from jobs.trials.control_server import ControlServer
from metrics.common.errors import NoConclusionError
from metrics.trial.client import merge
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.evidence import judged
from tests.support.kafka_fixtures import QUICK
from tests.support.loaded_brokers import LoadedBrokers, TrialOutcome
from tests.support.patterns import plan, producer_pattern
from tests.support.processes import after
from tests.support.small_load import WORKLOAD, small_topic
from tests.support.threads_barrier import run_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
MESSAGES = producer_pattern(1_000, 200.0, linger_ms=10.0)
PAUSE_S = 1.0
AHEAD_S = 1.3
THROTTLED = {
    "follower.replication.throttled.replicas": "*",
    "retention.bytes": "-1",  # a follower behind deleted records would be in sync again
    "flush.messages": "1000000",
}
LIGHT = (
    "workload.topic.replication_factor=2",
    "workload.topic.partitions_per_broker=2",
    "workload.producer.rate_bytes_per_s=100000",
    "workload.message_bytes=[1000]",
    "workload.trial.warmup_s=1",
    "cluster.warm_up_max_s=0",
    "goal.validity.missed_samples_max=0.4",  # producers share two cores with the driver
)


def pause(testbed: Testbed, broker: int) -> None:
    """Stop a broker's process for a second."""
    testbed.kill_broker(broker, signal.SIGSTOP)
    threading.Event().wait(PAUSE_S)
    testbed.kill_broker(broker, signal.SIGCONT)


def test_a_broker_that_is_paused_for_a_second_is_named(
    brokers: LoadedBrokers, kafka_testbed: Testbed
) -> None:
    def trial_of(measure_s: float, topic: str) -> TrialOutcome:
        return brokers.trial(
            topic, REPLICAS, MESSAGES, producers=3, measure_s=measure_s, warmup_s=1.0
        )

    with brokers.topic(REPLICAS, {}) as topic:
        calm = trial_of(2.0, topic)
        with after(3.0, lambda: pause(kafka_testbed, 2)):
            paused = trial_of(5.0, topic)
    still = {each.broker_id: each.standstill_s for each in calm.evidence.brokers}
    assert all(each is not None and each < PAUSE_S / 2 for each in still.values()), still
    assert paused.judgement.verdict is Verdict.INVALID
    (reason,) = [r for r in paused.judgement.reasons if r.indicator == "stood_still"]
    assert reason.broker_id == 2
    assert PAUSE_S - 0.35 < reason.value < PAUSE_S + 0.5


@pytest.mark.together
def test_an_executor_with_a_wrong_clock_is_named(kafka_testbed: Testbed) -> None:
    pattern = WORKLOAD.pattern(1_000, producers=2)
    with (
        small_topic(kafka_testbed, pattern) as topic,
        ControlServer("127.0.0.1", "127.0.0.1") as server,
        server.channel(2) as channel,
    ):
        trial = plan(
            trial_id="clocks",
            topics=topic.made.names,
            pattern=pattern,
            tasks=2,
            leaders=topic.made.leaders,
            brokers=topic.brokers,
            control=channel.address,
        )
        rows = run_stage(trial, clocks_ahead_s=[0.0, AHEAD_S])
    assert [row.error for row in rows] == [None, None]
    near, far = (row.clock for row in rows)
    assert near is not None and far is not None
    assert near.least_s < 0.25
    assert far.offset_s == pytest.approx(AHEAD_S, abs=far.error_s + 0.01)
    client = merge(rows)
    (reason,) = [each for each in judged(client).reasons if each.indicator == "clocks_apart"]
    assert f"the clock of executor {rows[1].host} was 1.3" in reason.text


# --- whole runs -------------------------------------------------------------


class EventReporter(RecordingReporter):
    """A reporter that calls events in the measured windows of trials, by their numbers."""

    def __init__(self, events: dict[int, Callable[[], None]]) -> None:
        super().__init__()
        self._planned = events
        self._number = 0
        self._happening: list[threading.Thread] = []

    def report(self, event: Event) -> None:
        super().report(event)
        if isinstance(event, TrialStarted):
            self._number = event.number
        is_measuring = isinstance(event, TrialProgress) and event.stage == "measuring"
        if is_measuring and self._number in self._planned:
            thread = threading.Thread(target=self._planned.pop(self._number))
            thread.start()
            self._happening.append(thread)

    def await_all(self) -> None:
        """Wait for the end of all events, and check that all were called."""
        for each in self._happening:
            each.join()
        assert not self._planned, "there were fewer trials"


def run_fixed_load(
    testbed: Testbed, reporter: RecordingReporter, out: Path, trials: int, *overrides: str
) -> tuple[int, list[Trial]]:
    """Make a run with a light fixed load on these brokers, as a cluster outside a testbed."""
    config = load(str(cluster_file(testbed.folder)), "1kB", "default", (*LIGHT, *overrides)).in_full
    run = FixedLoadRun(config, FixedLoad(1_000, 3, trials))
    order = RunOrder(out, reporter=reporter, run_id=f"events-{uuid.uuid4().hex[:4]}")
    try:
        code = execute(run, order)
    except NoConclusionError as error:
        code = error.exit_code
    assert json.loads((order.folder / "summary.json").read_text())["exit_code"] == code
    return code, run.trials


def causes(trial: Trial) -> set[str]:
    """The rules of validity that make a trial INVALID."""
    assert trial.verdict is Verdict.INVALID, trial.reasons
    return {reason.indicator for reason in trial.reasons}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_continues_after_events_in_brokers(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A kept log record refers to the error, and the error to kafka-python's lost socket.
    caplog.set_level(logging.CRITICAL, logger="kafka")
    with start(brokers=3, root=tmp_path / "testbed", name="events", overrides=QUICK) as testbed:
        director = EventReporter(
            {
                1: lambda: pause(testbed, 2),
                2: lambda: testbed.restart_broker(CONTROLLER_ID),
                3: lambda: testbed.restart_broker(1),
                4: lambda: testbed.restart_broker(2),
            }
        )
        guards = "goal.guards.other_topics=false"  # they would stop the run on purpose
        measure = "workload.trial.measure_s=12"
        code, trials = run_fixed_load(testbed, director, tmp_path, 5, guards, measure)
        director.await_all()
    reasons = [[each.text for each in trial.reasons] for trial in trials]
    assert code == 0, reasons
    paused, controller, first, second, calm = trials
    assert "stood_still" in causes(paused)
    assert "controller_changed" in causes(controller)
    for broker, trial in ((1, first), (2, second)):
        assert causes(trial) & {"metrics_contradictory", "metrics_incomplete"}, trial.reasons
        assert broker in {each.broker_id for each in trial.reasons}, trial.reasons
    assert calm.verdict is Verdict.SUSTAINED, calm.reasons


@contextmanager
def lagging_topic(brokers: LoadedBrokers, testbed: Testbed) -> Iterator[str]:
    """A topic of others whose follower, once out of sync, fetches only 1 kB/s."""
    rate = "follower.replication.throttled.rate"
    brokers.alter(ConfigResourceType.BROKER, "2", {rate: "1000"})
    try:
        with brokers.topic({0: [1, 2]}, THROTTLED) as topic:
            fall_behind(testbed, topic)
            deadline_s = time.monotonic() + 60.0
            while [short_of(brokers, broker) for broker in (1, 2, 3)] != [1.0, 0.0, 0.0]:
                assert time.monotonic() < deadline_s, "only this partition must be out of sync"
                time.sleep(0.2)
            yield topic
    finally:
        brokers.alter(ConfigResourceType.BROKER, "2", {rate: "1000000000"})


def fall_behind(testbed: Testbed, topic: str) -> None:
    """Write while the follower is stopped, as Kafka does not throttle followers in sync.

    A fetch has up to 1 MB with any quota, and the next fetch waits for 11 s.
    """

    def write(megabytes: int) -> None:
        for _ in range(100 * megabytes):
            producer.send(topic, bytes(10_000), partition=0)
        producer.flush()

    with closing(KafkaProducer(bootstrap_servers=testbed.brokers[1].address)) as producer:
        write(1)
        until_s = time.monotonic() + 5.0  # replica.lag.time.max.ms is 2 s, checked every second
        testbed.kill_broker(2, signal.SIGSTOP)
        try:
            write(4)
            time.sleep(max(0.0, until_s - time.monotonic()))
        finally:
            testbed.kill_broker(2, signal.SIGCONT)
        write(60)


def short_of(brokers: LoadedBrokers, broker: int) -> float:
    """Number of under-replicated partitions of a leader."""
    samples = {each.broker_id: each for each in brokers.source.sample_all()}
    return samples[broker].values["under_replicated_partitions"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_earlier_under_replicated_partition_of_others_is_not_an_overload(
    brokers: LoadedBrokers, kafka_testbed: Testbed, tmp_path: Path
) -> None:
    reporter = RecordingReporter()
    with lagging_topic(brokers, kafka_testbed):
        code, trials = run_fixed_load(
            kafka_testbed, reporter, tmp_path, 2, "workload.trial.measure_s=6"
        )
        assert short_of(brokers, 1) == 1.0, "it was under-replicated all the time"
    assert code == 0
    assert [each.verdict for each in trials] == [Verdict.SUSTAINED] * 2, trials[0].reasons
    phases = [each.text for each in reporter.events if isinstance(each, PhaseStarted)]
    assert any("under-replicated already (1 on broker 1)" in text for text in phases), phases
    for trial in trials:
        windows = {each.broker_id: each for each in trial.evidence.brokers}
        assert windows[1].under_replicated_max == 1.0
        assert trial.evidence.isr_changed_share == 0.0
