"""A barrier stage on real Spark against real brokers."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config import load_workload
from jobs.testbed.handle import Testbed
from jobs.trials.control_server import ControlServer, TaskChannel, control_of
from jobs.trials.load import Generator, GeneratorError, Load
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import merge
from tests.support.processes import becomes, beside
from tests.support.relay import Relay
from tests.support.small_load import small_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.together

WORKLOAD = load_workload(
    "demo",
    [
        "workload.topic.replication_factor=1",
        "workload.topic.partitions_per_broker=2",
        "workload.producer.rate_bytes_per_s=100000",
        "workload.trial.warmup_s=0.5",
        "workload.trial.measure_s=2",
    ],
)


def pattern(producers: int, measure_s: float = 2.0) -> TrafficPattern:
    made = WORKLOAD.pattern(1_000, producers=producers)
    return dataclasses.replace(made, phases=dataclasses.replace(made.phases, measure_s=measure_s))


class LateControl:
    """A driver's control server whose message about the end reaches one task late, by a relay.

    Args:
        until_s: computes from the trial's channel when the first connected task gets the message
            about the end of the window [s since the epoch]; later messages wait, too.
    """

    def __init__(self, control: ControlServer, until_s: Callable[[TaskChannel], float]) -> None:
        self._control = control
        self._until_s = until_s

    @contextmanager
    def channel(self, tasks: int, consumer_tasks: int = 0) -> Iterator[TaskChannel]:
        """A channel like that of `ControlServer`, with the relay's address."""
        is_cut = threading.Event()
        with self._control.channel(tasks, consumer_tasks) as channel:
            end_after = channel.end_after

            def cut(window_s: float) -> None:
                is_cut.set()
                end_after(window_s)

            def hold(connection: int) -> None:
                # The relay cannot read the messages, so it delays all that arrive after the cut.
                if connection == 0 and is_cut.is_set():
                    time.sleep(max(0.0, self._until_s(channel) - time.time()))

            driver = (channel.address.host, channel.address.port)
            relay = Relay(("127.0.0.1", 0), driver, before_answer=hold)
            channel.end_after = cut  # type: ignore[method-assign]
            channel.address = replace(channel.address, port=relay.start()[1])
            try:
                yield channel
            finally:
                relay.close()


@pytest.mark.parametrize("producers", [1, 8])
def test_producers_spread_over_tasks_that_start_together(
    spark: SparkSession, kafka_testbed: Testbed, producers: int
) -> None:
    slots = 3
    with small_topic(kafka_testbed, pattern(1)) as topic:
        rows = topic.offer(spark, pattern(producers), slots)
        grown = topic.grown()
    assert len(rows) == min(producers, slots)
    hosted = [len(row.produced.counts.by_producer.acked) for row in rows if row.produced]
    assert max(hosted) - min(hosted) <= 1
    assert len({(row.start_s, row.end_s) for row in rows}) == 1
    client = merge(rows)
    assert sum(hosted) == producers
    assert sorted(client.counts.by_producer.acked) == list(range(producers))
    assert client.counts.acked_total == grown
    assert client.counts.offered_records == pytest.approx(producers * 200, rel=0.01)


def end_after(window_s: float) -> Callable[[TaskChannel], AbstractContextManager[None]]:
    def end(channel: TaskChannel) -> None:
        # A message about the end must not overtake the start signal.
        assert becomes(lambda: channel.start_s is not None and time.time() > channel.start_s, 60.0)
        channel.end_after(window_s)

    return lambda channel: beside(lambda: end(channel))


def test_the_driver_ends_the_window_of_all_tasks_early(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    with small_topic(kafka_testbed, pattern(1)) as topic:
        rows = topic.offer(spark, pattern(4, measure_s=60.0), during=end_after(2.0))
        grown = topic.grown()
    client = merge(rows)
    assert client.duration_s == pytest.approx(2.0)
    assert client.counts.offered_records == pytest.approx(4 * 100 * 2.0, rel=0.01)
    assert client.counts.acked_total == grown


@pytest.mark.parametrize(
    ("heard_s", "message"),
    [
        (2.5, r"EndMissedError: the driver ended the window 1\.\d+ s before"),
        (4.5, r"received the end of the window late, and continued for 3\.00 s"),
    ],
)
def test_a_task_that_learns_of_the_early_end_too_late_is_named(
    spark: SparkSession, kafka_testbed: Testbed, heard_s: float, message: str
) -> None:
    """The driver ends a window of 4 s after 1 s; the task gets the message in time or too late."""
    load = pattern(4, measure_s=4.0)

    def heard_at_s(channel: TaskChannel) -> float:
        assert channel.start_s is not None
        return channel.start_s + load.phases.warmup_s + heard_s

    with (
        small_topic(kafka_testbed, load) as topic,
        pytest.raises(GeneratorError, match=message),
    ):
        # Spark 4 cancels later jobs of a group, too, so each case has a name of its own.
        topic.offer(
            spark,
            load,
            name=f"late-{heard_s}",
            during=end_after(1.0),
            through=lambda control: LateControl(control, heard_at_s),
        )


def test_a_task_that_is_killed_ends_the_load_of_all_and_is_named(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    killed_s: list[float] = []
    with small_topic(kafka_testbed, pattern(1)) as topic:

        def stands_still() -> bool:
            """True if no record arrives for three seconds."""
            before = topic.ends()
            threading.Event().wait(3.0)
            return topic.ends() == before

        with pytest.raises(GeneratorError, match=r"task \d on .* lost during the load"):
            topic.offer(
                spark,
                pattern(4, measure_s=60.0),
                name="lost",
                during=lambda channel: beside(lambda: _kill_a_task(channel, killed_s)),
            )
        assert time.monotonic() - killed_s[0] < 10.0
        # Followers still fetch earlier records, which readers see only after that.
        assert becomes(stands_still, 10.0)
        assert topic.grown() > 0
    assert spark.range(3).count() == 3


def _kill_a_task(channel: TaskChannel, killed_s: list[float]) -> None:
    """Kill a Python process with a connection to the driver, once its load is acknowledged."""
    assert becomes(lambda: bool(channel.acked()), 60.0)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Spark's workers start and end at any time
            if (channel.address.port,) in (to.raddr[1:] for to in process.net_connections("tcp")):
                process.kill()
                killed_s.append(time.monotonic())
                return


def test_a_task_without_a_broker_ends_the_trial_and_not_the_session(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    topics = TopicSet(("t",), 1_000, {0: (1,)})
    nowhere = Load("t", topics, pattern(2), {1: ("127.0.0.1", 1)})
    with control_of(spark) as control:
        generator = Generator(spark, 2, {}, control)
        with pytest.raises(GeneratorError, match=r"127\.0\.0\.1:1"):
            generator.offer(nowhere)
    assert spark.range(3).count() == 3
