"""Guards, on a scripted cluster: their conditions, and the loads and runs that they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import AdminError
from jobs.cluster.health import LogDir
from jobs.config import load_goal, load_workload
from jobs.config.goal import GuardLimits as Limits
from jobs.trials.control_server import ControlServer, TaskChannel
from jobs.trials.guards import BLIND_S, Guards
from jobs.trials.harm_rules import GRACE_S, LOOK_S, BrokerAbsence
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


def traffic(producers: int) -> TrafficPattern:
    """The traffic of producers of 1 MB/s each for 10 s, with three replicas."""
    return NP.apply(WORKLOAD.pattern(1_000), producers)


def guards(cluster: Cluster, clock: Callable[[], float] = time.monotonic, **limits: Any) -> Guards:
    opened = Guards(Limits(**limits), cluster, lambda topic: topic.startswith("ours"), print, clock)
    opened.open()
    return opened


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_another_topic_that_becomes_under_replicated_stops_the_run(cluster: Cluster) -> None:
    watching = guards(cluster)
    cluster.lacking = frozenset({("ours-1", 0)})
    watching.require_healthy()
    cluster.lacking = frozenset({("ours-1", 0), ("orders", 3), ("orders", 5)})
    with pytest.raises(GuardStopError, match="partition 3 of the topic orders and 1 more") as stop:
        watching.require_healthy()
    assert stop.value.exit_code == 5
    cluster.lacking = frozenset()
    with pytest.raises(GuardStopError):  # a guard that tripped stays tripped
        watching.require_healthy()


def test_a_log_directory_that_went_offline_is_named_when_replicas_are_missing(
    cluster: Cluster,
) -> None:
    watching = guards(cluster)
    cluster.lacking = frozenset({("orders", 3)})
    cluster.dirs += (LogDir(2, "/b", -1, -1, is_offline=True),)
    with pytest.raises(GuardStopError, match=r"under-replicated, as the log directory /b of brok"):
        watching.require_healthy()


def test_partitions_that_were_under_replicated_before_do_not_trip(cluster: Cluster) -> None:
    cluster.lacking = frozenset({("orders", 3)})
    watching = guards(cluster)
    watching.require_healthy()
    cluster.lacking = frozenset()
    watching.require_healthy()
    cluster.lacking = frozenset({("orders", 3)})  # in sync in between: this is new
    with pytest.raises(GuardStopError, match="orders"):
        watching.require_healthy()


def test_a_load_that_would_last_too_long_stops_the_run_before_it(cluster: Cluster) -> None:
    watching = guards(cluster)
    watching.times = LoadTimes(until_s=time.time() + 3_600.0)
    watching.admit(traffic(1))
    watching.times = LoadTimes(until_s=time.time() + 9.0)  # the load takes 10 s
    with pytest.raises(GuardStopError, match=r"\(--until\).* continue at another time with --res"):
        watching.admit(traffic(1))


def test_a_run_does_not_begin_when_no_load_may(cluster: Cluster) -> None:
    watching = Guards(Limits(), cluster, str.isdigit, print)
    watching.times = LoadTimes(until_s=time.time() - 1.0)
    with pytest.raises(GuardStopError, match="would end at"):
        watching.open()


def test_a_lock_that_another_run_took_stops_the_run(cluster: Cluster) -> None:
    lost: list[str | None] = [None, None]
    watching = Guards(Limits(), cluster, str.isdigit, print, lock_lost=lambda: lost[-1])
    watching.open()
    lost.append("another run took the cluster's lock")
    cluster.error = AdminError(
        "no answer", "KafkaError"
    )  # also while the cluster cannot be checked
    with pytest.raises(GuardStopError, match="another run took the cluster's lock") as stop:
        watching.require_healthy()
    assert stop.value.exit_code == 5


def test_a_lock_that_was_lost_while_a_load_ran_is_seen_at_its_end(cluster: Cluster) -> None:
    watching = Guards(Limits(), cluster, str.isdigit, print, lock_lost=lambda: "lost")
    watching.settle(traffic(4), None)
    assert watching.tripped == "lost"


@pytest.mark.parametrize("fail_closed", [False, True])
def test_a_lock_in_doubt_ends_the_load_where_limits_fail_closed(
    cluster: Cluster, fail_closed: bool
) -> None:
    limits = Limits(fail_closed=fail_closed)
    doubt = "the cluster's lock could not be confirmed for 11 s (no coordinator)"
    watching = Guards(limits, cluster, str.isdigit, print)
    watching.lock_doubt = lambda: doubt
    watching.settle(traffic(4), None)
    ended = f"{doubt}; guards.fail_closed requires it"
    assert watching.tripped == (ended if fail_closed else None)


def test_the_guard_of_other_topics_can_be_off(cluster: Cluster) -> None:
    watching = guards(cluster, other_topics=False)
    cluster.lacking = frozenset({("orders", 3)})
    watching.require_healthy()


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
    if words is None:
        watching.require_healthy()
    else:
        with pytest.raises(GuardStopError, match=f"volume of /b of broker 2 {words}"):
            watching.require_healthy()


def test_a_disk_beyond_its_limit_before_the_run_refuses_it(cluster: Cluster) -> None:
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 1),)
    with pytest.raises(GuardStopError):
        guards(cluster)


UNSEEN = (LogDir(1, "", -1, -1), LogDir(2, "/b", -1, -1), LogDir(3, "/c", -1, -1, is_offline=True))


@pytest.mark.parametrize("dirs", [(), UNSEEN[:1], UNSEEN])
@pytest.mark.parametrize("shared", [None, 0.9])
def test_default_guards_of_disks_that_are_not_reported_warn_once(
    cluster: Cluster,
    dirs: tuple[LogDir, ...],
    shared: float | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.dirs = dirs
    opened = Guards(Limits(), cluster, str.isdigit, print, used_share_default=shared)
    opened.open()
    opened.require_healthy()
    opened.admit(traffic(1))
    assert capsys.readouterr().out.count("do not report how full their disks are") == 1


def test_a_guard_of_disks_that_was_given_and_cannot_be_watched_is_refused(
    cluster: Cluster, snapshot: SnapshotAssertion
) -> None:
    cluster.dirs = UNSEEN
    with pytest.raises(ConfigError) as refused:
        guards(cluster, disk_used_share_max=0.8)
    text = str(refused.value)
    assert "guards.disk_used_share_max cannot be watched" in text
    assert "broker 1 reports no log directory" in text
    assert "/b" in text and "/c of broker 3 is offline" in text
    assert text.endswith("--set goal.guards.disk_used_share_max=null")
    assert text == snapshot
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


@pytest.mark.parametrize(
    "limit", ["other_topics", "np_max", "load_bytes_per_s_max", "write_bytes_max"]
)
def test_null_turns_off_the_guards_that_do_not_watch_disks(cluster: Cluster, limit: str) -> None:
    caps: dict[str, Any] = {"np_max": 1, "load_bytes_per_s_max": 1.0, "write_bytes_max": 1}
    off: dict[str, Any] = {limit: None}
    watching = guards(cluster, **off)
    cluster.lacking = frozenset({("orders", 3)}) if limit == "other_topics" else frozenset()
    watching.admit(traffic(2))
    if limit in caps:
        with pytest.raises(GuardStopError):
            guards(cluster, **{k: caps[k] for k in off}).admit(traffic(2))


def test_the_default_share_holds_only_where_the_goal_has_none(cluster: Cluster) -> None:
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 5 * GB),)
    with pytest.raises(GuardStopError, match=r"is 95\.0% full, more than 90\.0%"):
        Guards(Limits(), cluster, str.isdigit, print, used_share_default=0.9).open()
    given = Limits(disk_used_share_max=0.96)
    Guards(given, cluster, str.isdigit, print, used_share_default=0.9).open()
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 3 * GB),)
    with pytest.raises(GuardStopError, match=r"more than 96\.0%"):
        Guards(given, cluster, str.isdigit, print, used_share_default=0.9).open()


def test_the_disks_that_are_reported_are_watched_and_the_others_named_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.dirs = (LogDir(4, "/d", 100 * GB, 50 * GB), *UNSEEN[:2])
    watching = guards(cluster, disk_used_share_max=0.9)
    watching.require_healthy()
    printed = capsys.readouterr().out
    assert printed.count("cannot see 2 of 3 log directories") == 1
    assert "broker 1 reports no log directory" in printed
    assert "broker 2 does not report the size of /b" in printed
    cluster.dirs = (*cluster.dirs, UNSEEN[2])
    watching.require_healthy()
    assert "cannot see 3 of 4 log directories: /c of broker 3 is off" in capsys.readouterr().out
    cluster.dirs = (LogDir(4, "/d", 100 * GB, 9 * GB), *UNSEEN[:2])
    with pytest.raises(GuardStopError, match=r"volume of /d of broker 4 is 91\.0% full"):
        watching.require_healthy()


def test_a_load_counts_on_the_disks_that_no_broker_reports(cluster: Cluster) -> None:
    """3 GB on three brokers, a log each; 1 GB goes to the one that reports its disk."""
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    load = replace(kept(-1), topic=replace(kept(-1).topic, partitions_per_broker=1))
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB, own_logs=3), *UNSEEN[1:])
    watching.require_room(load, ["ours"])
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 11 * GB, own_logs=3), *UNSEEN[1:])
    with pytest.raises(GuardStopError, match=r"can add 1 GB to the volume of /a of broker 1"):
        watching.require_room(load, ["ours"])


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
    watching = guards(cluster, **limits)
    watching.admit(traffic(most))
    assert watching.cap_violation(traffic(most)) is None
    assert watching.refusal(traffic(most)) is None
    assert watching.refusal(traffic(most + 1)) == watching.cap_violation(traffic(most + 1))
    watching.require_untripped()
    with pytest.raises(GuardStopError, match="more than"):
        watching.admit(traffic(most + 1))


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
    with pytest.raises(GuardStopError, match="90 MB of payload are written"):
        watching.admit(one)


def test_a_cluster_that_cannot_be_checked_stops_the_run(cluster: Cluster) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock)
    cluster.error = AdminError("no answer", "KafkaTimeoutError")
    clock.pause(BLIND_S)
    watching.require_healthy()
    clock.pause(1.0)
    with pytest.raises(GuardStopError, match="could not be watched for 30 s: no answer"):
        watching.require_healthy()


def test_an_error_after_a_guard_tripped_becomes_the_error_of_the_guard(cluster: Cluster) -> None:
    watching = guards(cluster)
    with pytest.raises(RedlineError, match="of its own"), watching.required():
        raise RedlineError("of its own")
    watching.tripped = "the disk is full"
    with pytest.raises(GuardStopError, match="the disk is full"), watching.required():
        raise RedlineError("the load was ended")


def test_a_guard_ends_the_load_while_it_runs(cluster: Cluster) -> None:
    watching = guards(cluster)
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        ended = threading.Semaphore(0)
        channel.end_now = ended.release  # type: ignore[method-assign]
        with watching.watch(traffic(1), channel):
            cluster.lacking = frozenset({("orders", 0)})
            assert ended.acquire(timeout=PATIENCE_S)
        assert not ended.acquire(blocking=False), "once"
    with pytest.raises(GuardStopError, match="orders"):
        watching.require_untripped()


def test_the_operators_topic_ends_a_load_and_admits_none(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.trials.guards.BRAKE_INTERVAL_S", 0.01)
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_S", 3_600.0)  # the other checks are slow
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_MAX_S", 3_600.0)
    watching = guards(cluster)
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        ended = threading.Event()
        channel.end_now = ended.set  # type: ignore[method-assign]
        with watching.watch(traffic(1), channel):
            cluster.topics.add("another-topic")
            cluster.topics.add("redline-stop")
            assert ended.wait(PATIENCE_S)
    with pytest.raises(GuardStopError, match="redline-stop exists") as stop:
        watching.require_untripped()
    assert stop.value.exit_code == 5
    with pytest.raises(GuardStopError, match="delete it afterwards"):
        guards(cluster)
    guards(cluster, stop_topic=None)
    guards(cluster, stop_topic="halt")


def test_a_broker_that_hangs_hides_the_operators_topic_from_no_load(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.trials.guards.BRAKE_INTERVAL_S", 0.01)
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_S", 3_600.0)
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_MAX_S", 3_600.0)
    watching, over = guards(cluster), threading.Event()
    hung = threading.Barrier(3, timeout=PATIENCE_S)  # two brokers, and this thread
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        ended = threading.Event()
        channel.end_now = ended.set  # type: ignore[method-assign]
        cluster.hangs = dict.fromkeys((1, 3), lambda: hung.wait() or over.wait(PATIENCE_S))
        with watching.watch(traffic(1), channel):
            hung.wait()
            cluster.topics.add("redline-stop")
            is_ended = ended.wait(PATIENCE_S)
            over.set()
    assert is_ended


def test_looks_for_the_operators_topic_that_all_fail_are_said_and_end_the_load(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock)
    cluster.error = AdminError("no answer", "KafkaTimeoutError")
    channel, ended = TaskChannel("127.0.0.1", 1, 1, lambda _: None), threading.Event()
    channel.end_now = ended.set  # type: ignore[method-assign]
    looks = 0
    look = partial(watching._look_for_brake, cycle([1]))
    while watching._look(look, channel) is not None:
        clock.pause(1.0)
        looks += 1
    assert looks == BLIND_S + 1 and ended.is_set()
    said = "no broker has answered for 8 s whether the topic redline-stop exists (9 looks failed)"
    assert capsys.readouterr().out == f"{said}: no answer; the load ends after 30 s\n"


def test_a_broker_whose_disks_do_not_answer_hides_no_replicas(cluster: Cluster) -> None:
    watching = guards(cluster)
    cluster.lacking = frozenset({("orders", 3)})

    def hang(_: object = ()) -> tuple[LogDir, ...]:
        raise AdminError("no answer", "KafkaTimeoutError")

    cluster.log_dirs = hang  # type: ignore[method-assign, assignment]
    with pytest.raises(GuardStopError, match="partition 3 of the topic orders"):
        watching.require_healthy()


def test_a_topic_of_the_operator_that_this_user_may_not_see_is_a_warning(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    cluster.forbidden.add("redline-stop")
    guards(cluster).require_healthy()
    assert capsys.readouterr().out == snapshot
    guards(cluster, stop_topic=None).require_healthy()
    assert capsys.readouterr().out == ""


def test_a_load_that_guards_can_no_longer_watch_is_ended(cluster: Cluster) -> None:
    watching = guards(cluster)
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        ended = threading.Event()
        channel.end_now = ended.set  # type: ignore[method-assign]
        cluster.error = ValueError("an answer of another kind")
        with watching.watch(traffic(1), channel):
            assert ended.wait(PATIENCE_S)
    with pytest.raises(GuardStopError, match="could not be watched: ValueError: an answer"):
        watching.require_untripped()


def test_a_load_that_has_ended_is_not_ended_again(cluster: Cluster) -> None:
    watching = guards(cluster)
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        channel.end_now = lambda: pytest.fail("ended")  # type: ignore[method-assign]
        with watching.watch(traffic(1), channel):
            pass
    watching.require_untripped()


# --- the disks' room ------------------------------------------------------------------


def kept(retention_bytes: int) -> TrafficPattern:
    """100 MB/s for 10 s on 30 partitions of three replicas that retain `retention_bytes`."""
    one = traffic(100)
    config = {"retention.bytes": f"{retention_bytes}", "segment.bytes": "1000000"}
    return replace(one, brokers=3, topic=replace(one.topic, config=config))


def test_the_peak_is_the_written_bytes_or_the_retained_ones_with_late_deletion() -> None:
    written = peak_log_bytes(kept(-1))
    assert 3 * 1e9 < written < 3.1 * 1e9, "payload, and little besides"
    assert peak_log_bytes(kept(10**9)) == written, "less than is kept anyway"
    soaking = kept(10**7)
    soaking = replace(soaking, phases=replace(soaking.phases, measure_s=86_400.0))
    each = written / soaking.records_per_s / 10
    late = soaking.records_per_s * each * 360
    assert peak_log_bytes(soaking) == pytest.approx(30 * 3 * 11e6 + late, rel=0.001)
    default = replace(soaking, topic=replace(soaking.topic, config={}))
    assert peak_log_bytes(default) == pytest.approx(30 * 3 * 2 * 2**30 + late, rel=0.001)


def test_a_load_without_room_on_a_disk_never_begins(cluster: Cluster) -> None:
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    cluster.dirs = tuple(LogDir(n, "/a", 100 * GB, 12 * GB) for n in (1, 2))
    watching.admit(kept(-1))  # 1.5 GB for each of two
    cluster.dirs = (*cluster.dirs, LogDir(3, "/full", 100 * GB, 10 * GB + 5))
    with pytest.raises(GuardStopError, match="can add 1 GB to the volume of /full of broker 3"):
        watching.admit(kept(-1))


def test_a_share_of_the_disk_is_kept_free(cluster: Cluster) -> None:
    watching = guards(cluster, disk_used_share_max=0.9)
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB),)
    with pytest.raises(GuardStopError, match=r"where 2 GB may be written: 12 GB are free"):
        watching.admit(kept(-1))


def test_a_disk_that_fills_too_fast_ends_the_load_before_it_is_full(cluster: Cluster) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock, disk_free_bytes_min=10 * GB)
    for free_gb in (50, 47, 44, 41, 38):  # 3 GB a second
        cluster.dirs = (LogDir(1, "/a", 100 * GB, free_gb * GB),)
        clock.pause(1.0)
        watching.require_healthy()
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 35 * GB),)
    clock.pause(1.0)
    with pytest.raises(GuardStopError, match="fills at 3 GB a second and has room for 8 s"):
        watching.require_healthy()


def test_rare_checks_notice_a_disk_that_fills_too_fast(cluster: Cluster) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock, disk_free_bytes_min=10 * GB)
    for free_gb in (110, 80, 50):
        cluster.dirs = (LogDir(1, "/a", 200 * GB, free_gb * GB),)
        clock.pause(8.0)
        watching.require_healthy()
    cluster.dirs = (LogDir(1, "/a", 200 * GB, 20 * GB),)
    clock.pause(8.0)
    with pytest.raises(GuardStopError, match="and has room for 3 s"):
        watching.require_healthy()


def test_a_disk_that_fills_slowly_does_not_trip(cluster: Cluster) -> None:
    clock = FakeTime()
    watching = guards(cluster, clock, disk_free_bytes_min=10 * GB)
    for step in range(60):
        cluster.dirs = (LogDir(1, "/a", 100 * GB, 50 * GB - step * GB // 10),)
        clock.pause(1.0)
        watching.require_healthy()


def test_the_delay_of_deletion_is_that_of_the_slowest_broker() -> None:
    quick = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "0",
             "log.segment.bytes": "1048576"}  # fmt: skip
    slow = {**quick, "log.retention.check.interval.ms": "600000"}
    assert LogCleaning.of([quick, slow]) == LogCleaning(600.0, 0.0, 1_048_576)
    assert LogCleaning.of([]) == LogCleaning.of([{"log.segment.bytes": None}]) == LogCleaning()
    day = replace(kept(10**7), phases=replace(WORKLOAD.trial, measure_s=86_400.0))
    at_once = LogCleaning(0.0, 0.0, 0)
    assert peak_log_bytes(day, at_once) == pytest.approx(30 * 3 * 11e6)
    assert peak_log_bytes(day, at_once, 30 * 3 * 10e6) == pytest.approx(30 * 3 * 1e6)
    assert peak_log_bytes(day, at_once, 1e12) == 0.0


def test_a_load_adds_bytes_to_the_disks_of_its_partitions(cluster: Cluster) -> None:
    """1.5 GB for each of two directories, if its replicas were spread evenly; they are not."""
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB, 8), LogDir(1, "/b", 99 * GB, 12 * GB, 2))
    watching.admit(kept(-1))
    with pytest.raises(GuardStopError, match=r"can add 2\.4 GB to the volume of /a of broker 1"):
        watching.require_room(kept(-1), ["ours"])


def test_directories_of_one_volume_share_its_room(cluster: Cluster) -> None:
    watching = guards(cluster, disk_free_bytes_min=10 * GB)
    cluster.dirs = (LogDir(1, "/a", 100 * GB, 12 * GB), LogDir(1, "/b", 100 * GB, 12 * GB))
    with pytest.raises(GuardStopError, match="can add 3 GB to the volume of /a of broker 1"):
        watching.admit(kept(-1))


@pytest.mark.parametrize(
    ("hidden", "limits", "is_warned"),
    [
        (frozenset({"orders", "bills"}), {}, True),
        (frozenset({"orders"}), {"other_topics": False}, False),
        (frozenset(), {}, False),
        (None, {}, False),
    ],
)
def test_topics_that_cannot_be_described_cause_a_warning(
    cluster: Cluster,
    hidden: frozenset[str] | None,
    limits: dict[str, Any],
    is_warned: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.hidden = hidden
    guards(cluster, **limits)
    assert ("bills among them" in capsys.readouterr().out) is is_warned


ORDERS = frozenset({("orders", 3)})


class Guest:
    """Guards of a cluster that others use; the pauses of the run change the cluster."""

    def __init__(
        self, cluster: Cluster, *changes: Callable[[], None], pause_max_s: float = 60.0
    ) -> None:
        self.cluster, self.clock, self.warnings = cluster, FakeTime(), list[str]()
        self.changes = list(changes)
        self.guards = Guards(Limits(), cluster, str.isdigit, self.warnings.append, self.clock)
        self.guards.absence = BrokerAbsence(cluster.serving, pause_max_s)
        self.guards.open()

    def look(self) -> None:
        """One check while a load runs."""
        self.guards._check()

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
    def comes_back() -> None:
        cluster.brokers = frozenset({1, 2, 3})

    def is_in_sync() -> None:
        cluster.lacking = frozenset()

    guest = Guest(cluster, lambda: None, comes_back, is_in_sync)
    assert guest.guards.ends_load is None
    cluster.brokers, cluster.lacking = frozenset({1, 3}), ORDERS
    guest.look()
    assert guest.guards.ends_load == "broker 2 left the cluster"
    assert guest.wait() == 3 * LOOK_S
    assert guest.guards.ends_load is None
    guest.guards.admit(traffic(1))
    assert guest.warnings == [
        "broker 2 left the cluster: the load has ended, and the run waits until it is whole again"
    ]


def test_partitions_that_lose_a_replica_before_their_broker_has_left_are_waited_for(
    cluster: Cluster,
) -> None:
    def leaves() -> None:
        cluster.brokers = frozenset({1, 3})

    def is_back() -> None:
        cluster.brokers, cluster.lacking = frozenset({1, 2, 3}), frozenset()

    guest = Guest(cluster, leaves, is_back)
    cluster.lacking = ORDERS
    guest.look()
    assert "partition 3 of the topic orders" in str(guest.guards.ends_load)
    assert guest.wait() == 2 * LOOK_S


def test_partitions_that_lose_a_replica_while_all_brokers_serve_stop_the_run(
    cluster: Cluster,
) -> None:
    guest = Guest(cluster)
    cluster.lacking = ORDERS
    guest.look()
    with pytest.raises(GuardStopError, match="partition 3 of the topic orders"):
        guest.wait()
    assert guest.clock() == pytest.approx(FakeTime()() + GRACE_S)


def test_a_broker_that_does_not_come_back_stops_the_run(cluster: Cluster) -> None:
    guest = Guest(cluster, pause_max_s=20.0)
    cluster.brokers = frozenset({1, 3})
    guest.look()
    with pytest.raises(GuardStopError, match=r"broker 2 left the cluster, and .* whole after 20 s"):
        guest.wait()


def test_an_operator_ends_a_pause(cluster: Cluster) -> None:
    guest = Guest(cluster, lambda: cluster.topics.add("redline-stop"))
    cluster.brokers = frozenset({1, 3})
    guest.look()
    with pytest.raises(GuardStopError, match="the topic redline-stop exists"):
        guest.wait()


def test_pauses_share_their_time(cluster: Cluster) -> None:
    def comes_back() -> None:
        cluster.brokers = frozenset({1, 2, 3})

    guest = Guest(cluster, *[lambda: None] * 7, comes_back, pause_max_s=20.0)
    cluster.brokers = frozenset({1, 3})
    guest.look()
    assert guest.wait() == 16.0
    cluster.brokers = frozenset({1, 2})
    guest.look()
    with pytest.raises(GuardStopError, match=r"broker 3 left the cluster, .* whole after 4 s"):
        guest.wait()
