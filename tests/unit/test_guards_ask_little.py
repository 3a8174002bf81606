"""Guards and samples of a cluster with 50,000 partitions of others: what they ask, in counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from jobs.cluster.admin import AdminError, DescribedTopic, Partition
from jobs.cluster.health import ClusterHealth
from jobs.cluster.sources import count_replicas
from jobs.config import load_workload
from jobs.config.goal import GuardLimits
from jobs.trials import guards as guards_module
from jobs.trials.control_server import TaskChannel
from jobs.trials.guards import BLIND_S, BRAKE_LOOKERS, INTERVAL_MAX_S, INTERVAL_S, Guards
from metrics.sources.client_only import ClientOnlySource
from metrics.sources.first_polls import least_interval_s, slower_sampling, take_first_polls
from metrics.sources.source import LOG_S, PARTITION_S
from tests.support.scripted_admin import ScriptedAdmin

pytestmark = pytest.mark.computes

PATTERN = load_workload("demo").pattern(1_000)
LOAD_S = 120.0
TOPIC_PARTITIONS, REPLICATION = 50, 3
SHARE_MAX = 0.02
"""Largest share of a broker's core for everything that guards or samples ask [ratio]."""
REQUEST_S = 0.5e-3
"""CPU time of a broker for a request with a short answer, at most [s]."""


class Crowded(ScriptedAdmin):
    """Three brokers with the partitions of others, in topics of 50.

    Attributes:
        asked: kind of request → number of requests.
        partitions: number of partitions in all answers.
        lacking: whether one of them lacks a replica.
        is_silent: whether the brokers answer no more.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.partitions = 0
        self.lacking = self.is_silent = False
        all_three = (1, 2, 3)
        numbered = {n: Partition(n % 3 + 1, all_three, all_three) for n in range(TOPIC_PARTITIONS)}
        names = [f"others-{topic}" for topic in range(partitions // TOPIC_PARTITIONS)]
        self._whole = [DescribedTopic(each, numbered) for each in names]

    def describe_topics(
        self,
        what: str = "look at all topics",
        names: Sequence[str] | None = None,
        broker_id: int | None = None,
        timeout_ms: int = 0,
    ) -> list[DescribedTopic]:
        if names is not None and not names:
            return []
        self.asked["topics" if names is None else "topic"] += 1
        if names is not None:
            return [DescribedTopic(name, {}) for name in names]
        if self.is_silent:
            raise AdminError("no answer", "KafkaTimeoutError")
        self.partitions += len(self._whole) * TOPIC_PARTITIONS
        if not self.lacking:
            return self._whole
        first, *others = self._whole
        short = replace(first.partitions[0], isr=(1, 2))
        return [replace(first, partitions={**first.partitions, 0: short}), *others]

    def adding_replicas(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> dict[tuple[str, int], frozenset[int]]:
        return {}

    def topics_held_by(self, broker_id: int) -> frozenset[str] | None:
        return frozenset()

    def log_dirs_of(
        self, broker_id: int, held: Mapping[str, Sequence[int]]
    ) -> list[dict[str, Any]]:
        if self.is_silent:
            raise AdminError("no answer", "KafkaTimeoutError")
        self.asked["log dirs"] += broker_id == 1
        return [{"log_dir": "/d", "total_bytes": 10**12, "usable_bytes": 10**11 * 5, "topics": ()}]

    def describe_cluster(self) -> Any:
        self.asked["cluster"] += 1
        return super().describe_cluster()


class SimulatedWatch:
    """Watchers that run one after the other, each through a whole load on a clock of the test.

    Attributes:
        now_s: the time.
        waits_s: watcher → the waits between its looks.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits_s: dict[str, list[float]] = {}
        self.at: Callable[[float], None] = lambda _: None

    @contextmanager
    def watching(
        self,
        name: str,
        look: Callable[[], float | None],
        first_after_s: float = 0.0,
        fail: Callable[[BaseException], None] | None = None,
    ) -> Iterator[None]:
        began_s, waits_s = self.now_s, self.waits_s.setdefault(name, [])
        wait_s: float | None = first_after_s
        while wait_s is not None and self.now_s + wait_s < began_s + LOAD_S:
            self.now_s += wait_s
            self.at(self.now_s - began_s)
            wait_s = look()
            waits_s.append(wait_s or 0.0)
        self.now_s = began_s + LOAD_S
        yield


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimulatedWatch:
    simulated = SimulatedWatch()
    monkeypatch.setattr(guards_module, "watching", simulated.watching)
    return simulated


def guards(admin: Crowded, time: SimulatedWatch, **limits: Any) -> Guards:
    """Open guards, as on a cluster that others use."""
    health, limit = ClusterHealth(admin), GuardLimits(**limits)
    made = Guards(
        limit, health, lambda _: False, pytest.fail, lambda: time.now_s,
        serving=lambda: admin.describe_cluster().broker_ids,
    )  # fmt: skip
    made.open()
    return made


def watch(made: Guards, admin: Crowded, lacking: Callable[[], float | None] = lambda: None) -> None:
    """Watch one load, after the check before it."""
    made.require_healthy()
    admin.asked.clear()
    admin.partitions = 0
    channel = TaskChannel("127.0.0.1", 1, 1, lambda _: None)
    with made.watch(PATTERN, channel, lacking):
        pass


def share_of(admin: Crowded, partitions: int, seconds: float) -> float:
    """Share of a core of a broker that answers every request which any broker may answer."""
    small = admin.asked["topic"] + admin.asked["cluster"] + admin.asked["topics"]
    replicas = partitions * REPLICATION // 3
    used_s = (
        admin.partitions * PARTITION_S
        + small * REQUEST_S
        + admin.asked["log dirs"] * (replicas * LOG_S + REQUEST_S)
    )
    return used_s / seconds


@pytest.mark.parametrize(
    ("partitions", "other_topics"), [(50, True), (5_000, True), (50_000, True), (50_000, False)]
)
def test_guards_take_less_than_a_fiftieth_of_one_core(
    partitions: int, other_topics: bool, time: SimulatedWatch
) -> None:
    admin = Crowded(partitions)
    watch(guards(admin, time, other_topics=other_topics), admin)
    assert share_of(admin, partitions, LOAD_S) < SHARE_MAX, admin.asked


def test_a_small_cluster_is_looked_at_each_second_and_a_large_one_every_15_s(
    time: SimulatedWatch,
) -> None:
    few, many = Crowded(50), Crowded(50_000)
    for admin in (few, many):
        watch(guards(admin, time), admin)
    looks = LOAD_S // INTERVAL_S - 1  # the first follows the check before the load at once
    assert few.asked["topics"] == few.asked["log dirs"] == looks
    assert many.asked["topics"] == LOAD_S // 15.0 - 1
    assert many.asked["log dirs"] == LOAD_S // INTERVAL_MAX_S - 1
    # The brake is small, and three brokers are asked for it each second on both.
    assert many.asked["topic"] == few.asked["topic"] == BRAKE_LOOKERS * LOAD_S // INTERVAL_S


@pytest.mark.parametrize(
    ("partitions", "broken_s", "most_s", "has_metrics"),
    [
        (50, 30.0, INTERVAL_S, False),
        (50_000, 30.0, 15.0 + INTERVAL_S, False),
        (50_000, 32.0, INTERVAL_S, True),  # metrics show it at once
    ],
)
def test_a_partition_of_others_that_loses_a_replica_stops_the_run_in_time(
    partitions: int, broken_s: float, most_s: float, has_metrics: bool, time: SimulatedWatch
) -> None:
    admin = Crowded(partitions)
    made = guards(admin, time)
    time.at = lambda at_s: setattr(admin, "lacking", at_s >= broken_s)
    watch(made, admin, (lambda: float(admin.lacking)) if has_metrics else lambda: None)
    assert made.ends_load is not None and "others-0" in made.ends_load
    assert broken_s <= sum(time.waits_s["guards"]) <= broken_s + most_s


def test_metrics_that_show_all_replicas_in_sync_replace_the_answer_about_all_topics(
    time: SimulatedWatch,
) -> None:
    admin = Crowded(50_000)
    watch(guards(admin, time), admin, lambda: 0.0)
    assert admin.asked["topics"] == 0
    assert share_of(admin, 50_000, LOAD_S) < SHARE_MAX / 2, admin.asked
    # Our own partitions may lack replicas under a load, so then the brokers are asked as before.
    watch(guards(admin, time), admin, lambda: 3.0)
    assert admin.asked["topics"] == LOAD_S // 15.0 - 1


def test_a_partition_that_lacked_a_replica_before_the_load_is_accepted_until_it_is_in_sync(
    time: SimulatedWatch,
) -> None:
    admin = Crowded(50)
    admin.lacking = True
    made = guards(admin, time)
    time.at = lambda at_s: setattr(admin, "lacking", not 30.0 <= at_s < 60.0)
    watch(made, admin, lambda: float(admin.lacking))
    assert made.ends_load is not None and "others-0" in made.ends_load
    assert 60.0 <= sum(time.waits_s["guards"]) <= 60.0 + INTERVAL_S


@pytest.mark.parametrize(
    ("limits", "has_metrics"),
    [
        ({}, False),
        ({"other_topics": False}, False),
        # Without disks to watch, and without brokers that may leave, nothing else is requested.
        ({"disk_free_bytes_min": None, "disk_used_share_max": None}, True),
    ],
)
def test_a_large_cluster_that_answers_no_more_ends_the_load(
    limits: dict[str, Any], has_metrics: bool, time: SimulatedWatch
) -> None:
    admin, silent_s = Crowded(50_000), 20.0
    made = guards(admin, time, **limits)
    made.absence = None  # nothing but the rare requests notices
    time.at = lambda at_s: setattr(admin, "is_silent", at_s >= silent_s)
    watch(made, admin, lambda: 0.0 if has_metrics else None)
    assert made.ends_load is not None and "could not be watched" in made.ends_load
    if not has_metrics:
        assert f"could not be watched for {BLIND_S:.0f} s" in made.ends_load
        assert sum(time.waits_s["guards"]) <= silent_s + BLIND_S + 2 * INTERVAL_MAX_S


def test_the_check_before_a_load_asks_for_everything(time: SimulatedWatch) -> None:
    admin = Crowded(50_000)
    made = guards(admin, time)
    for _ in range(3):
        admin.asked.clear()
        made.require_healthy()
        assert (admin.asked["topics"], admin.asked["log dirs"], admin.asked["topic"]) == (1, 1, 1)


def test_samples_without_metrics_are_rarer_on_a_large_cluster() -> None:
    def polls_of(partitions: int) -> Any:
        admin = Crowded(partitions)
        source = ClientOnlySource(
            (1, 2, 3), lambda: count_replicas(admin.describe_topics()), "4.1", lambda: None
        )
        source.open()
        return take_first_polls(source, clock=lambda: 0.0)

    few, many = polls_of(50), polls_of(50_000)
    assert least_interval_s(few, 30.0, 4) < 0.1
    assert slower_sampling(few, 1.0, least_interval_s(few, 30.0, 4)) == ()
    least_s = least_interval_s(many, 100.0, 4)
    assert 50_000 * PARTITION_S / least_s <= SHARE_MAX / 2 + 1e-9
    (sentence,) = slower_sampling(many, 1.0, least_s)
    assert f"samples are taken every {least_s:g} s instead of every 1 s" in sentence
    # A window keeps the samples that it needs.
    assert least_interval_s(many, 30.0, 4) == 7.5
