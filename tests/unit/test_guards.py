"""Guards, on a scripted cluster: their conditions, and the loads and runs that they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import AdminError
from jobs.cluster.health import LogDir, Partitions
from jobs.config import load_goal, load_workload
from jobs.config.goal import GuardLimits as Limits
from jobs.trials.control_server import TaskChannel
from jobs.trials.guards import BLIND_S, Guards
from jobs.trials.harm_rules import GRACE_S, LOOK_S
from metrics.common.errors import ConfigError, GuardStopError, RedlineError
from metrics.planning.load_hours import LoadTimes
from metrics.planning.load_needs import LogCleaning, peak_log_bytes
from metrics.traffic.axes import NP
from metrics.traffic.pattern import TrafficPattern
from tests.support.evidence import client
from tests.support.guarded_cluster import GB, Cluster
from tests.support.processes import PATIENCE_S
from tests.support.scripted_admin import FakeTime

WORKLOAD = load_workload(
    "demo",
    [
        "workload.producer.rate_bytes_per_s=1000000",
        "workload.topic.replication_factor=3",
        "workload.trial.warmup_s=2",
        "workload.trial.measure_s=8",
    ],
)
ORDERS = frozenset({("orders", 3)})
NO_ANSWER = AdminError("no answer", "KafkaTimeoutError")


def traffic(producers: int) -> TrafficPattern:
    """The traffic of producers of 1 MB/s each for 10 s, with three replicas."""
    return NP.apply(WORKLOAD.pattern(1_000), producers)


def guards(cluster: Cluster, clock: Callable[[], float] = time.monotonic, **limits: Any) -> Guards:
    opened = Guards(Limits(**limits), cluster, lambda topic: topic.startswith("ours"), print, clock)
    opened.open()
    return opened


@contextmanager
def loading(watching: Guards) -> Iterator[threading.Semaphore]:
    """A load that guards watch; the semaphore can be acquired each time that they end it."""
    channel, ended = TaskChannel("127.0.0.1", 1, 1, lambda _: None), threading.Semaphore(0)
    channel.end_now = ended.release  # type: ignore[method-assign]
    with watching.watch(traffic(1), channel):
        yield ended


def stops(words: str) -> Any:
    return pytest.raises(GuardStopError, match=words)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def only_the_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other checks are slow."""
    monkeypatch.setattr("jobs.trials.guards.BRAKE_INTERVAL_S", 0.01)
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_S", 3_600.0)
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_MAX_S", 3_600.0)


def test_another_topic_that_becomes_under_replicated_stops_the_run(cluster: Cluster) -> None:
    cluster.lacking = ORDERS  # before the run
    watching, *off = guards(cluster), *(guards(cluster, other_topics=no) for no in (False, None))
    watching.require_healthy()
    cluster.lacking = frozenset({("ours-1", 0)})
    watching.require_healthy()
    cluster.lacking |= {("orders", 3), ("orders", 5)}
    for each in off:
        each.require_healthy()
    with stops("partition 3 of the topic orders and 1 more") as stop:
        watching.require_healthy()
    assert stop.value.exit_code == 5
    cluster.lacking = frozenset()
    with stops("orders"):  # a guard that tripped stays tripped
        watching.require_healthy()


def test_a_log_directory_that_went_offline_is_named_when_replicas_are_missing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, blind = guards(cluster), guards(cluster)
    cluster.lacking = ORDERS
    cluster.dirs += (LogDir(2, "/b", -1, -1, is_offline=True),)
    with stops(r"under-replicated, because the log directory /b of brok"):
        watching.require_healthy()

    def hang(_: object = ()) -> tuple[LogDir, ...]:
        raise NO_ANSWER

    monkeypatch.setattr(cluster, "log_dirs", hang)
    with stops("partition 3 of the topic orders"):  # also when disks do not answer
        blind.require_healthy()


def test_a_load_or_a_run_that_would_last_too_long_never_begins(cluster: Cluster) -> None:
    watching = guards(cluster)
    watching.times = LoadTimes(until_s=time.time() + 3_600.0)
    watching.admit(traffic(1))
    watching.times = LoadTimes(until_s=time.time() + 9.0)  # the load takes 10 s
    with stops(r"\(--until\).* continue at another time with --res"):
        watching.admit(traffic(1))
    watching = Guards(Limits(), cluster, str.isdigit, print)
    watching.times = LoadTimes(until_s=time.time() - 1.0)
    with stops("would end at"):
        watching.open()


def test_a_lock_that_was_lost_while_a_load_ran_is_seen_at_its_end(cluster: Cluster) -> None:
    lock: Any = SimpleNamespace(lost=None, doubt=None)
    watching = Guards(Limits(), cluster, str.isdigit, print, lock=lock)
    watching.open()
    lock.lost = "another run took the cluster's lock"
    cluster.error = NO_ANSWER  # also while the cluster cannot be checked
    with stops("another run took the cluster's lock") as stop:
        watching.require_healthy()
    assert stop.value.exit_code == 5
    watching = Guards(Limits(), cluster, str.isdigit, print, lock=lock)
    watching.settle(traffic(4), None)
    assert watching.tripped == lock.lost


@pytest.mark.parametrize("fail_closed", [False, True])
def test_a_lock_in_doubt_ends_the_load_where_limits_fail_closed(
    cluster: Cluster, fail_closed: bool
) -> None:
    doubt = "the cluster's lock could not be confirmed for 11 s (no coordinator)"
    lock: Any = SimpleNamespace(lost=None, doubt=doubt)
    watching = Guards(Limits(fail_closed=fail_closed), cluster, str.isdigit, print, lock=lock)
    watching.settle(traffic(4), None)
    ended = f"{doubt}; guards.fail_closed requires the lock"
    assert watching.tripped == (ended if fail_closed else None)


# --- disks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "usable", "words"),
    [
        ({}, GB, None),
        ({}, GB - 1, "has 1 GB left, less than 1 GB"),
        ({"disk_free_bytes_min": 0}, 0, None),
        ({"disk_free_bytes_min": 20 * GB}, 19 * GB, "has 19 GB left, less than 20 GB"),
        ({"disk_used_share_max": 0.9}, 10 * GB, None),
        ({"disk_used_share_max": 0.9}, 9 * GB, "is 91.0% full, more than 90.0%"),
    ],
)
def test_a_disk_beyond_its_limit_stops_the_run(
    cluster: Cluster, limits: dict[str, Any], usable: int, words: str | None
) -> None:
    watching = guards(cluster, **limits)
    cluster.dirs = (*cluster.dirs, LogDir(2, "/b", 100 * GB, usable))
    with nullcontext() if words is None else stops(f"volume of /b of broker 2 {words}"):
        watching.require_healthy()


def test_the_default_share_holds_only_where_the_goal_has_none(cluster: Cluster) -> None:
    given = Limits(disk_used_share_max=0.96)
    for limits, free_gb, words in (
        (Limits(), 5, r"is 95\.0% full, more than 90\.0%"),
        (given, 5, None),
        (given, 3, r"more than 96\.0%"),
    ):
        cluster.dirs = (LogDir(1, "/a", 100 * GB, free_gb * GB),)
        with stops(words) if words else nullcontext():
            Guards(limits, cluster, str.isdigit, print, used_share_default=0.9).open()


UNSEEN = (LogDir(1, "", -1, -1), LogDir(2, "/b", -1, -1), LogDir(3, "/c", -1, -1, is_offline=True))


def test_default_guards_of_disks_that_are_not_reported_warn_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for dirs in ((), UNSEEN[:1], UNSEEN):
        for shared in (None, 0.9):
            cluster.dirs = dirs
            opened = Guards(Limits(), cluster, str.isdigit, print, used_share_default=shared)
            opened.open()
            opened.require_healthy()
            opened.admit(traffic(1))
            warned = capsys.readouterr().out
            assert warned.count("do not report how full their disks are") == 1


def test_a_guard_of_disks_that_was_given_and_cannot_be_watched_is_refused(
    cluster: Cluster, snapshot: SnapshotAssertion
) -> None:
    cluster.dirs = UNSEEN
    with pytest.raises(ConfigError) as refused:
        guards(cluster, disk_used_share_max=0.8)
    assert str(refused.value) == snapshot
    with pytest.raises(ConfigError, match=r"disk_free_bytes_min=null --set goal"):
        guards(cluster, disk_used_share_max=0.8, disk_free_bytes_min=1)


@pytest.mark.parametrize(
    "text",
    [
        "indicators: {}\nguards: {disk_used_share_max: null, disk_free_bytes_min: null}",
        "guards: {disk_used_share_max: null, disk_free_bytes_min: 0, other_topics: null}",
    ],
)
def test_null_turns_a_guard_off_in_the_file_and_by_an_option(
    cluster: Cluster, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text, encoding="utf-8")
    off = [f"goal.guards.{key}=null" for key in ("disk_used_share_max", "disk_free_bytes_min")]
    for goal in (load_goal(str(own)), load_goal("default", off)):
        cluster.dirs = UNSEEN
        opened = Guards(goal.guards, cluster, str.isdigit, print, used_share_default=0.9)
        opened.open()
        cluster.dirs = (LogDir(1, "/a", 100 * GB, 0),)
        opened.admit(traffic(1))
    assert capsys.readouterr().out == ""


def test_the_disks_that_are_reported_are_watched_and_the_others_named_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.dirs = (LogDir(4, "/d", 100 * GB, 50 * GB), *UNSEEN[:2])
    watching = guards(cluster, disk_used_share_max=0.9)
    watching.require_healthy()
    printed = capsys.readouterr().out
    assert printed.count("cannot watch 2 of 3 log directories") == 1
    assert "broker 1 reports no log directory" in printed
    assert "broker 2 does not report the size of /b" in printed
    cluster.dirs = (*cluster.dirs, UNSEEN[2])
    watching.require_healthy()
    assert "cannot watch 3 of 4 log directories: /c of broker 3 is off" in capsys.readouterr().out
    cluster.dirs = (LogDir(4, "/d", 100 * GB, 9 * GB), *UNSEEN[:2])
    with stops(r"volume of /d of broker 4 is 91\.0% full"):
        watching.require_healthy()


@pytest.mark.parametrize(
    ("pause_s", "free_gb", "words"),
    [
        (
            1.0,
            [50, 47, 44, 41, 38, 35],
            "fills at 3 GB per second and would reach its limit in 8 s",
        ),
        (8.0, [110, 80, 50, 20], "and would reach its limit in 3 s"),
        (1.0, [50 - step / 10 for step in range(60)], None),
    ],
    ids=["fast", "fast, rare checks", "slowly"],
)
def test_a_disk_that_fills_too_fast_ends_the_load_before_it_is_full(
    cluster: Cluster, pause_s: float, free_gb: list[float], words: str | None
) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock, disk_free_bytes_min=10 * GB)
    for number, free in enumerate(free_gb, 1):
        cluster.dirs = (LogDir(1, "/a", 200 * GB, int(free * GB)),)
        clock.pause(pause_s)
        with stops(words) if words and number == len(free_gb) else nullcontext():
            watching.require_healthy()


# --- room for a load ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"np_max": 4}, 4),
        ({"load_bytes_per_s_max": 4e6}, 4),
        ({"write_bytes_max": 4 * 30_000_000}, 4),  # 10 s of 1 MB/s, three replicas
    ],
)
def test_a_load_beyond_a_cap_never_begins(
    cluster: Cluster, limits: dict[str, Any], most: int
) -> None:
    none: dict[str, Any] = dict.fromkeys(limits)
    watching, off = guards(cluster, **limits), guards(cluster, **none)
    watching.admit(traffic(most))
    assert watching.cap_violation(traffic(most)) is None
    assert watching.refusal(traffic(most)) is None
    assert watching.refusal(traffic(most + 1)) == watching.cap_violation(traffic(most + 1))
    watching.require_untripped()
    with stops("more than"):
        watching.admit(traffic(most + 1))
    off.admit(traffic(most + 1))


def test_written_bytes_add_up(cluster: Cluster) -> None:
    watching = guards(cluster, write_bytes_max=100_000_000)
    one = traffic(1)
    assert one.planned_bytes == 30_000_000
    written = client(acked_by_partition={0: 9_000}, errors={"NotLeaderForPartitionError": 1_000})
    watching.settle(one, written)
    assert watching.spent_bytes == 10_000 * 1_000 * 3
    watching.settle(one, None)  # without an account all of it may have been written
    assert watching.spent_bytes == 60_000_000
    watching.admit(one)
    watching.settle(one, None)
    with stops("the run has written 90 MB of payload"):
        watching.admit(one)


def kept(retention_bytes: int) -> TrafficPattern:
    """100 MB/s for 10 s on 30 partitions of three replicas that retain `retention_bytes`."""
    one = traffic(100)
    config = {"retention.bytes": f"{retention_bytes}", "segment.bytes": "1000000"}
    return replace(one, brokers=3, topic=replace(one.topic, config=config))


def test_the_peak_is_the_written_bytes_or_the_retained_ones_with_late_deletion() -> None:
    written = peak_log_bytes(kept(-1))
    assert 3 * 1e9 < written < 3.1 * 1e9, "payload, and little besides"
    assert peak_log_bytes(kept(10**9)) == written, "less than is kept anyway"
    day = replace(kept(10**7), phases=replace(WORKLOAD.trial, measure_s=86_400.0))
    late = written / 10 * 360
    assert peak_log_bytes(day) == pytest.approx(30 * 3 * 11e6 + late, rel=0.001)
    default = replace(day, topic=replace(day.topic, config={}))
    assert peak_log_bytes(default) == pytest.approx(30 * 3 * 2 * 2**30 + late, rel=0.001)
    at_once = LogCleaning(0.0, 0.0, 0)
    assert peak_log_bytes(day, at_once) == pytest.approx(30 * 3 * 11e6)
    assert peak_log_bytes(day, at_once, 30 * 3 * 10e6) == pytest.approx(30 * 3 * 1e6)
    assert peak_log_bytes(day, at_once, 1e12) == 0.0


def test_the_delay_of_deletion_is_that_of_the_slowest_broker() -> None:
    quick = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "0",
             "log.segment.bytes": "1048576"}  # fmt: skip
    slow = {**quick, "log.retention.check.interval.ms": "600000"}
    assert LogCleaning.of([quick, slow]) == LogCleaning(600.0, 0.0, 1_048_576)
    assert LogCleaning.of([]) == LogCleaning.of([{"log.segment.bytes": None}]) == LogCleaning()


TWO = tuple(LogDir(n, "/a", 100 * GB, 12 * GB) for n in (1, 2))


@pytest.mark.parametrize(
    ("dirs", "limits", "words"),
    [
        (TWO, {}, None),  # 1.5 GB for each of two
        ((*TWO, LogDir(3, "/full", 100 * GB, 10 * GB + 5)), {},
         "can add 1 GB to the volume of /full of broker 3"),
        ((TWO[0], LogDir(1, "/b", 100 * GB, 12 * GB)), {},
         "can add 3 GB to the volume of /a of broker 1"),  # directories of one volume
        (TWO[:1], {"disk_used_share_max": 0.9, "disk_free_bytes_min": 0},
         "expected at most 2 GB, because 12 GB are free"),
    ],
)  # fmt: skip
def test_a_load_without_room_on_a_disk_never_begins(
    cluster: Cluster, dirs: tuple[LogDir, ...], limits: dict[str, Any], words: str | None
) -> None:
    watching = guards(cluster, **{"disk_free_bytes_min": 10 * GB} | limits)
    cluster.dirs = dirs
    with stops(words) if words else nullcontext():
        watching.admit(kept(-1))


def test_a_load_counts_on_the_disks_that_no_broker_reports(cluster: Cluster) -> None:
    """3 GB on three brokers, a log each; 1 GB goes to the one that reports its disk."""
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    load = replace(kept(-1), topic=replace(kept(-1).topic, partitions_per_broker=1))
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB, own_logs=3), *UNSEEN[1:])
    watching.require_room(load, ["ours"])
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 11 * GB, own_logs=3), *UNSEEN[1:])
    with stops(r"can add 1 GB to the volume of /a of broker 1"):
        watching.require_room(load, ["ours"])


def test_a_load_adds_bytes_to_the_disks_of_its_partitions(cluster: Cluster) -> None:
    """1.5 GB for each of two directories, if its replicas were spread evenly; they are not."""
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB, 8), LogDir(1, "/b", 99 * GB, 12 * GB, 2))
    watching.admit(kept(-1))
    with stops(r"can add 2\.4 GB to the volume of /a of broker 1"):
        watching.require_room(kept(-1), ["ours"])


# --- while a load runs ----------------------------------------------------------------


def test_a_guard_ends_the_load_while_it_runs_and_an_error_becomes_its_own(cluster: Cluster) -> None:
    watching = guards(cluster)
    with pytest.raises(RedlineError, match="of its own"), watching.required():
        raise RedlineError("of its own")
    with loading(watching) as ended:
        cluster.lacking = ORDERS
        assert ended.acquire(timeout=PATIENCE_S)
    assert not ended.acquire(blocking=False), "once"
    with stops("orders"):
        watching.require_untripped()
    with stops("orders"), watching.required():
        raise RedlineError("the load was ended")


def test_a_load_that_guards_can_no_longer_watch_is_ended(cluster: Cluster) -> None:
    watching = guards(cluster)
    cluster.error = ValueError("an answer of another kind")
    with loading(watching) as ended:
        assert ended.acquire(timeout=PATIENCE_S)
    with stops("could not be watched: ValueError: an answer"):
        watching.require_untripped()
    clock = FakeTime()
    cluster.error = None
    watching = guards(cluster, clock)
    cluster.error = NO_ANSWER
    clock.pause(BLIND_S)
    watching.require_healthy()
    clock.pause(1.0)
    with stops("could not be watched for 30 s: no answer"):
        watching.require_healthy()


@pytest.mark.usefixtures("only_the_brake")
def test_the_operators_topic_ends_a_load_and_admits_none(cluster: Cluster) -> None:
    watching = guards(cluster)
    with loading(watching) as ended:
        cluster.topics |= {"another-topic", "redline-stop"}
        assert ended.acquire(timeout=PATIENCE_S)
    with stops("redline-stop exists") as stop:
        watching.require_untripped()
    assert stop.value.exit_code == 5
    with stops("delete the topic before the next run"):
        guards(cluster)
    guards(cluster, stop_topic=None)
    guards(cluster, stop_topic="halt")


@pytest.mark.usefixtures("only_the_brake")
def test_a_broker_that_hangs_hides_the_operators_topic_from_no_load(cluster: Cluster) -> None:
    watching, over = guards(cluster), threading.Event()
    hung = threading.Barrier(3, timeout=PATIENCE_S)  # two brokers, and this thread
    cluster.hangs = dict.fromkeys((1, 3), lambda: hung.wait() or over.wait(PATIENCE_S))
    with loading(watching) as ended:
        hung.wait()
        cluster.topics.add("redline-stop")
        is_ended = ended.acquire(timeout=PATIENCE_S)
        over.set()
    assert is_ended


def test_looks_for_the_operators_topic_that_all_fail_are_said_and_end_the_load(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock)
    cluster.error = NO_ANSWER
    channel, ended = TaskChannel("127.0.0.1", 1, 1, lambda _: None), threading.Event()
    channel.end_now = ended.set  # type: ignore[method-assign]
    looks = 0
    look = partial(watching._look_for_brake, cycle([1]))
    while watching._look(look, channel) is not None:
        clock.pause(1.0)
        looks += 1
    assert looks == BLIND_S + 1 and ended.is_set()
    said = (
        "for 8 s, no broker has answered the question whether the topic redline-stop exists "
        "(9 requests failed)"
    )
    assert capsys.readouterr().out == f"{said}: no answer; the load ends after 30 s\n"


def test_topics_that_this_user_may_not_see_are_warnings(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    cluster.forbidden.add("redline-stop")
    guards(cluster).require_healthy()
    assert capsys.readouterr().out == snapshot
    guards(cluster, stop_topic=None).require_healthy()
    assert capsys.readouterr().out == ""
    cluster.forbidden.clear()
    for hidden, other_topics in (
        (frozenset({"orders", "bills"}), True),
        (frozenset({"orders"}), False),
        (frozenset(), True),
        (None, True),
    ):
        cluster.hidden = hidden
        guards(cluster, other_topics=other_topics)
        assert ("bills among them" in capsys.readouterr().out) is ("bills" in (hidden or ()))


# --- brokers that leave ---------------------------------------------------------------


def becomes(cluster: Cluster, *away: int, lacking: Partitions = frozenset()) -> Callable[[], None]:
    """A change: brokers that are away from then on, and partitions that lack a replica."""

    def change() -> None:
        cluster.brokers, cluster.lacking = frozenset({1, 2, 3}) - {*away}, lacking

    return change


class Guest:
    """Guards of a cluster that others use; the pauses of the run change the cluster."""

    def __init__(
        self, cluster: Cluster, *changes: Callable[[], None], pause_max_s: float = 60.0
    ) -> None:
        self.clock, self.warnings, self.changes = FakeTime(), list[str](), list(changes)
        limits, warn = Limits(pause_max_s=pause_max_s), self.warnings.append
        self.guards = Guards(
            limits, cluster, str.isdigit, warn, self.clock, serving=cluster.serving
        )
        self.guards.open()

    def look(self) -> str | None:
        """One check while a load runs, and why it ends the load."""
        self.guards._check()
        return self.guards.ends_load

    def pause(self, seconds: float) -> None:
        self.clock.pause(seconds)
        if self.changes:
            self.changes.pop(0)()

    def wait(self) -> float:
        """Wait as after a trial, and return for how long [s]."""
        began_s = self.clock()
        self.guards.await_whole(self.pause)
        return self.clock() - began_s


def test_a_broker_that_leaves_ends_the_load_and_the_run_waits_for_it(cluster: Cluster) -> None:
    changes = (lambda: None, becomes(cluster, lacking=ORDERS), becomes(cluster))
    guest = Guest(cluster, *changes)
    becomes(cluster, 2, lacking=ORDERS)()
    assert guest.look() == "broker 2 left the cluster"
    assert guest.wait() == 3 * LOOK_S
    assert guest.guards.ends_load is None
    guest.guards.admit(traffic(1))
    assert guest.warnings == [
        "broker 2 left the cluster: the load has ended; the run waits until the cluster is complete"
    ]


def test_partitions_that_lose_a_replica_before_their_broker_has_left_are_waited_for(
    cluster: Cluster,
) -> None:
    guest = Guest(cluster, becomes(cluster, 2, lacking=ORDERS), becomes(cluster))
    cluster.lacking = ORDERS
    assert "partition 3 of the topic orders" in str(guest.look())
    assert guest.wait() == 2 * LOOK_S


def test_what_ends_a_pause_stops_the_run(cluster: Cluster) -> None:
    guest = Guest(cluster)
    cluster.lacking = ORDERS  # while all brokers serve
    guest.look()
    with stops("partition 3 of the topic orders"):
        guest.wait()
    assert guest.clock() == pytest.approx(FakeTime()() + GRACE_S)
    becomes(cluster)()
    guest = Guest(cluster, lambda: cluster.topics.add("redline-stop"))
    becomes(cluster, 2)()
    guest.look()
    with stops("the topic redline-stop exists"):
        guest.wait()


def test_pauses_share_their_time(cluster: Cluster) -> None:
    guest = Guest(cluster, *[lambda: None] * 7, becomes(cluster), pause_max_s=20.0)
    becomes(cluster, 2)()
    guest.look()
    assert guest.wait() == 16.0
    becomes(cluster, 3)()
    guest.look()
    with stops(r"broker 3 left the cluster, .* complete again after 4 s"):
        guest.wait()
