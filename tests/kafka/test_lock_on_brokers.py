"""The lock of a cluster on real brokers: its holder, refused runs, and restarts of brokers."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from kafka.admin import ACLOperation, ResourceType
from kafka.errors import InconsistentGroupProtocolError, KafkaError
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import LeaveGroupRequest

from jobs.cluster.connect import admin_client, connect
from jobs.cluster.lock import ClusterLock, LockGroup, RunLocks, holder_of, holder_text, lock_group
from jobs.cluster.opening import OpenCluster
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.common.errors import ConfigError, TryLaterError
from tests.support.acls import GUARDED, grant
from tests.support.commands import RunningCommand, document_in, finished
from tests.support.kafka_fixtures import REFUSED_SOCKETS

pytestmark = pytest.mark.together

GROUP = lock_group("redline-")

DELAY_S = 3.0
"""Kafka's default delay of the first member of a group [s]."""


@contextmanager
def lock_of(testbed: Testbed, words: str, heartbeat_s: float = 0.5) -> Iterator[ClusterLock]:
    client = admin_client(testbed.bootstrap_servers, {}, name=words)
    lock = ClusterLock(client, pytest.fail, session_s=6.0, heartbeat_s=heartbeat_s)
    try:
        yield lock
    finally:
        lock.release()


def take(lock: ClusterLock) -> None:
    lock.begin()
    lock.require()


def until(condition: Callable[[], object], deadline_s: float) -> float:
    """Wait for a condition, and return the duration [s]."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < deadline_s, "the condition did not hold in time"
        time.sleep(0.05)
    return time.monotonic() - began_s


def await_coordinator(servers: Sequence[str]) -> None:
    """Wait until brokers have created the topic of groups, which they do at the first request."""

    def answers() -> bool:
        try:
            group.holder()
        except KafkaError:
            return False
        return True

    with closing(LockGroup(admin_client(servers, {}), session_s=6.0, name=GROUP)) as group:
        until(answers, 30.0)


def test_one_of_five_simultaneous_members_holds_the_lock(kafka_testbed: Testbed) -> None:
    await_coordinator(kafka_testbed.bootstrap_servers)
    together = threading.Barrier(5, timeout=30.0)

    def race(number: int) -> str:
        client = admin_client(kafka_testbed.bootstrap_servers, {}, name=f"racer-{number}")
        group = LockGroup(client, session_s=6.0, name=GROUP)
        with closing(group):
            together.wait()
            try:
                group.join()
            except InconsistentGroupProtocolError:
                until(group.holder, 10.0)  # brokers show a new group after its replication
                outcome = f"lost to {group.holder()}"
            else:
                group.send_heartbeat()  # no later run has disturbed the holder
                until(group.holder, 10.0)
                outcome = f"won by {group.holder()}"
            together.wait()
            if outcome.startswith("won"):
                group.leave()
            return outcome

    with ThreadPoolExecutor(5) as pool:
        outcomes = sorted(pool.map(race, range(5)))
    holder = outcomes[-1].removeprefix("won by ")
    assert outcomes == [f"lost to {holder}"] * 4 + [f"won by {holder}"]
    assert holder.startswith("racer-")


def test_a_second_run_is_refused_with_the_holders_name_until_the_release(
    kafka_testbed: Testbed,
) -> None:
    with connect(kafka_testbed.bootstrap_servers) as admin, ExitStack() as second:
        opened = OpenCluster(admin, admin.describe_cluster())
        with ExitStack() as first:
            locks = RunLocks(holder_text("first", 1_795_000_000.0))
            lock = locks.take(opened, pytest.fail, first)
            lock.require()
            assert locks.take(opened, pytest.fail, first) is lock, "a run may take its lock again"
            with pytest.raises(TryLaterError) as refused:
                RunLocks("second").take(opened, pytest.fail, second)
            assert f"{holder_of(admin, opened.info.broker_ids)} holds its" in str(refused.value)
        assert refused.value.exit_code == 75
        holder = f"{holder_text('first', 1_795_000_000.0)} (from 127.0.0.1) holds its lock"
        assert holder in str(refused.value)
        assert "redline run first of " in holder
        assert "since 2026-11-18T11:06:40Z" in holder
        assert holder_of(admin, opened.info.broker_ids) is None
        RunLocks("second").take(opened, pytest.fail, second).require()


def test_a_killed_holder_frees_the_lock_within_its_session(
    kafka_testbed: Testbed, tmp_path: Path
) -> None:
    servers = ",".join(kafka_testbed.bootstrap_servers)
    program = (sys.executable, "-m", "tests.support.lock_holder", servers, "6")
    with RunningCommand(folder=tmp_path, program=program) as holder:
        holder.await_line("held", 30.0)
        with (
            lock_of(kafka_testbed, "second") as lock,
            pytest.raises(TryLaterError, match="run killed of a@b since then"),
        ):
            lock.begin()
        holder.signal(9)
        holder.wait(10.0)

    def is_free() -> bool:
        with lock_of(kafka_testbed, "second") as lock:
            try:
                take(lock)
            except TryLaterError:
                return False
            return True

    assert 1.0 < until(is_free, 15.0) < 8.0


def test_a_lock_that_brokers_lost_is_taken_again_unless_another_has_it(
    kafka_testbed: Testbed,
) -> None:
    with lock_of(kafka_testbed, "first", heartbeat_s=1.0) as first:
        take(first)
        expelled = expel(kafka_testbed)
        until(lambda: member_ids(kafka_testbed) not in ([], expelled), 10.0)
        assert first.lost is None
        with (
            lock_of(kafka_testbed, "second") as second,
            pytest.raises(TryLaterError, match="first"),
        ):
            second.begin()
        with lock_of(kafka_testbed, "second") as second:
            expel(kafka_testbed)
            take(second)
            until(lambda: first.lost is not None, 10.0)
            assert "took the cluster's lock after the brokers had lost" in str(first.lost)
            assert "second (from 127.0.0.1)" in str(first.lost)


def member_ids(testbed: Testbed) -> list[str]:
    """Ids of the members of the lock's group, as an operator sees them."""
    with connect([f"127.0.0.1:{each.port}" for each in testbed.brokers.values()]) as admin:
        manager = admin.client._manager
        request = DescribeGroupsRequest(groups=[GROUP], max_version=5)
        answers = [
            manager.run(manager.send, request, broker, 5_000) for broker in testbed.broker_ids
        ]
        return [each.member_id for answer in answers for each in answer.groups[0].members]


def expel(testbed: Testbed) -> list[str]:
    """End the holder's membership, like a coordinator that gets no heartbeat."""
    members = member_ids(testbed)
    assert len(members) == 1
    kind = LeaveGroupRequest.MemberIdentity
    mine = [kind(member_id=members[0], group_instance_id=None, reason="a test")]
    request = LeaveGroupRequest(group_id=GROUP, member_id=members[0], members=mine)
    with connect(testbed.bootstrap_servers) as admin:
        manager = admin.client._manager
        for broker in testbed.broker_ids:
            manager.run(manager.send, request, broker, 5_000)
    return members


# --- the command ----------------------------------------------------------------


@pytest.mark.parametrize("job", ["traffic --np=1 --workload=demo", "nightly --night=n1"])
def test_a_command_on_a_cluster_in_use_ends_with_75_before_spark_is_started(
    job: str, kafka_testbed: Testbed, tmp_path: Path
) -> None:
    options = (*job.split(), f"--cluster={cluster_file(kafka_testbed.folder)}", "--yes")
    with lock_of(kafka_testbed, "redline run first of a@b since then") as lock:
        take(lock)
        text = finished(*options, folder=tmp_path, deadline_s=60.0, code=75)
    assert "redline run first of a@b since then (from 127.0.0.1) holds its lock" in text
    assert "starting Spark" not in text
    (summary,) = (tmp_path / "out").glob("*/*.json")
    assert json.loads(summary.read_text())["exit_code"] == 75


@pytest.mark.long
def test_a_run_that_loses_the_lock_to_another_ends_and_its_trial_is_invalid(
    kafka_testbed: Testbed, tmp_path: Path
) -> None:
    options = (
        "traffic",
        "--np=2",
        "--workload=demo",
        f"--cluster={cluster_file(kafka_testbed.folder)}",
        "--yes",
    )
    long = ("--set=cluster.warm_up_max_s=0", "--set=workload.trial.measure_s=120")
    with (
        RunningCommand(*options, *long, folder=tmp_path) as command,
        lock_of(kafka_testbed, "redline run second of a@b since then") as lock,
    ):
        command.await_line("trial-started trial=1 ", 180.0)
        expel(kafka_testbed)
        take(lock)
        finished = command.await_line("trial-finished trial=1 ", 60.0)
        code = command.wait(90.0)
        text = command.text
    assert code == 5, text
    assert "INVALID" in finished
    assert "redline run second of a@b" in text
    assert "took the cluster's lock after the brokers had lost" in text
    assert document_in(tmp_path)["status"] == "stopped by a guard"


# --- logins, permissions, and a coordinator that restarts ------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[Testbed]:
    """One broker behind TLS and a login, with ACLs, which delays the first member of a group."""
    overrides = GUARDED | {"group.initial.rebalance.delay.ms": str(int(DELAY_S * 1000))}
    with start("secured", brokers=1, overrides=overrides, name="lock") as testbed:
        yield testbed


@pytest.mark.long
@pytest.mark.usefixtures("refused_sockets")
@pytest.mark.filterwarnings(REFUSED_SOCKETS)
def test_a_lock_behind_acls_outlives_a_restart_of_its_coordinator(guarded: Testbed) -> None:
    heard: list[str] = []
    security, plain = guarded.client_security(), f"127.0.0.1:{guarded.brokers[1].port}"
    await_coordinator([plain])
    with (
        connect([plain]) as superuser,
        connect(guarded.bootstrap_servers, security.client_kwargs()) as admin,
        ExitStack() as stack,
    ):
        opened = OpenCluster(admin, admin.describe_cluster(), security=security)
        with pytest.raises(ConfigError, match=r"ACL Read on groups .* prefix redline-.* --no-lock"):
            RunLocks("denied").take(opened, heard.append, stack)
        grant(superuser, ResourceType.GROUP, ACLOperation.READ)

        began_s = time.monotonic()
        lock = RunLocks("holder").take(opened, heard.append, stack)
        assert time.monotonic() - began_s < DELAY_S, "the run continues to open meanwhile"
        with pytest.raises(TryLaterError, match="holder"):
            RunLocks("second").take(opened, pytest.fail, stack).require()
        lock.require()
        assert time.monotonic() - began_s >= DELAY_S

        members = member_ids(guarded)
        guarded.restart_broker(1)
        with pytest.raises(TryLaterError, match="holder"):
            RunLocks("second").take(opened, pytest.fail, stack).require()
        assert member_ids(guarded) == members, "it is the same membership"
        assert (lock.lost, heard) == (None, [])
