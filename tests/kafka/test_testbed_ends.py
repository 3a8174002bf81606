"""The ends of a testbed: none leaves a process, a disk or a control group; logs may stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.config.link import PlantedDisk
from jobs.setup.jars import kafka_jars
from jobs.testbed.cleanup import inheriting_processes
from jobs.testbed.cpu_groups import CpuGroups, cpu_groups, group_name
from jobs.testbed.detached import down, status
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_text, launch, make_spec, start
from jobs.testbed.model import Spec, State, TestbedDiskError, TestbedLostError, TestbedStartError
from jobs.testbed.places import NodeFiles, log_dirs, read_state, write_state
from jobs.testbed.planted_devices import RATE_FILE, devices_below, planted_disk_problem
from jobs.testbed.profile import adapt, load_profile
from tests.support.processes import becomes, controller_of, processes_with, supervisor_pid

pytestmark = pytest.mark.together

ONE_NODE = {"metadata": "combined"}
"""Override for one broker without another process that is its controller."""
# Long enough for a busy machine; on an idle one all processes end within a second.
GONE_S = 60.0


@contextmanager
def owner_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that starts a testbed in `root`."""
    command = [sys.executable, "-m", "tests.support.testbed_owner", str(root)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as owner:
        try:
            yield owner
        finally:
            owner.kill()


def next_line(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


@pytest.mark.parametrize(
    "signum",
    # For the supervisor an owner ended by SIGTERM is like a killed one, and an owner that handles
    # SIGINT like one with an error, as in a test below.
    [
        signal.SIGKILL,
        *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_it_ends_with_its_owner(tmp_path: Path, signum: signal.Signals) -> None:
    with owner_process(tmp_path) as owner:
        testbed_id = next_line(owner)
        assert next_line(owner) == "ready"
        assert len(processes_with(testbed_id)) == 2
        owner.send_signal(signum)
        owner.wait(GONE_S)
        assert becomes(lambda: not processes_with(testbed_id), GONE_S)
    failed = tmp_path / "failed" / testbed_id
    if signum == signal.SIGINT:
        assert not failed.exists()  # KeyboardInterrupt ends the `with` in order
        return
    assert becomes(failed.is_dir, GONE_S)
    assert (failed / "broker-1" / "server.log").stat().st_size > 0
    assert not (failed / "broker-1" / "data").exists()


def test_it_ends_with_an_owner_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    with owner_process(tmp_path) as owner:
        testbed_id = next_line(owner)
        # The supervisor and, shortly after, JVMs that are not ready yet.
        assert becomes(lambda: len(processes_with(testbed_id)) >= 2, 30)
        owner.kill()
        assert becomes(lambda: not processes_with(testbed_id), GONE_S)


def check_for(testbed: Testbed, duration_s: float) -> None:
    """Check the testbed repeatedly, like a run."""
    ends_s = time.monotonic() + duration_s
    while time.monotonic() < ends_s:
        testbed.check()
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere `down` cleans up, see below")
def test_brokers_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    testbed = start(brokers=1, root=tmp_path, overrides=ONE_NODE)
    try:
        os.kill(supervisor_pid(testbed), signal.SIGKILL)
        assert becomes(lambda: not processes_with(testbed.state.spec.id), GONE_S)
        with pytest.raises(TestbedLostError, match="supervisor of testbed default ended"):
            check_for(testbed, GONE_S)  # the kernel closes its socket last
        assert testbed.folder.exists()
    finally:
        testbed.stop()
    assert not testbed.folder.exists()
    assert (tmp_path / "failed" / testbed.state.spec.id / "broker-1" / "server.log").exists()


def clean_up_beside_a_crash_and_fail(root: Path) -> None:
    """Let `down` clean up beside a running testbed; then raise an error with its id."""
    with start(brokers=1, root=root) as alive:
        crashed = root / "default-deadbeef"
        crashed.mkdir()
        state = read_state(alive.folder)
        assert state is not None and state.supervisor is not None
        # The state after a kill of a supervisor with JVMs: the recorded processes are those of the
        # running testbed, like reused process ids.
        dead = replace(state.supervisor, created_s=state.supervisor.created_s - 1000)
        spec = replace(state.spec, id=crashed.name)
        nodes = tuple(
            replace(node, directory=str(crashed / f"node-{node.node_id}")) for node in state.nodes
        )
        write_state(crashed, replace(state, spec=spec, supervisor=dead, nodes=nodes))
        assert [report.is_alive for report in status(root)].count(False) == 1
        done = down("default", root)
        assert done.stopped is None
        assert [(each.name, each.processes) for each in done.cleaned] == [("default", 0)]
        assert not crashed.exists()
        assert len(processes_with(alive.state.spec.id)) == 3
        alive.check()
        raise ValueError(alive.state.spec.id)


def test_down_cleans_up_after_a_crash_and_an_error_of_the_owner_keeps_the_logs(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="default-") as caught:
        clean_up_beside_a_crash_and_fail(tmp_path)
    testbed_id = str(caught.value)
    assert processes_with(testbed_id) == []
    kept = read_state(tmp_path / "failed" / testbed_id)
    assert kept is not None
    assert kept.reason == f"its owner stopped with ValueError: {testbed_id}"
    assert Path(kept.nodes[0].directory).name == "controller-100"


def test_a_broker_that_cannot_start_has_a_message_and_keeps_its_logs(tmp_path: Path) -> None:
    with pytest.raises(TestbedStartError) as caught:
        start(brokers=1, root=tmp_path, overrides={"num.io.threads": "many"})
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "Invalid value many for configuration num.io.threads" in text
    (kept,) = (tmp_path / "failed").iterdir()
    assert "profile disk-bound or in --set" in text
    assert text.endswith(f"Its logs are in {kept}")
    assert processes_with(kept.name) == []
    assert not list(kept.glob("*/data"))
    assert any("num.io.threads" in log.read_text() for log in kept.glob("*/*.log"))


def test_a_broker_that_dies_ends_the_testbed(tmp_path: Path) -> None:
    with start(brokers=1, root=tmp_path, overrides=ONE_NODE) as testbed:
        testbed.check()
        os.kill(testbed.pids[1], signal.SIGKILL)
        assert becomes(lambda: not processes_with(testbed.state.spec.id), 30)
        with pytest.raises(TestbedLostError, match="broker 1 was ended by SIGKILL"):
            testbed.check()
    assert (tmp_path / "failed" / testbed.state.spec.id / "broker-1" / "server.log").exists()


def _await_end(spec: Spec, root: Path) -> None:
    with launch(spec, root) as testbed:
        assert becomes(lambda: not processes_with(spec.id), 30)
        testbed.check()


@pytest.mark.parametrize("is_at_once", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_stops_before_it_holds_more_than_its_disk_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_once: bool
) -> None:
    def late(folder: Path, state: State) -> str:
        assert not is_at_once or becomes(lambda: not folder.exists(), 30)
        return cluster_text(folder, state)

    monkeypatch.setattr("jobs.testbed.launcher.cluster_text", late)
    profile = adapt(load_profile("disk-bound"), brokers=1, overrides=ONE_NODE)
    spec = make_spec(profile, "small", kafka_jars(profile.kafka_version))
    spec = replace(spec, disk_limit_bytes=1000)
    with pytest.raises(TestbedDiskError, match="expected at most disk_limit_bytes") as caught:
        _await_end(spec, tmp_path)
    assert caught.value.exit_code == 5
    assert processes_with(spec.id) == []


def test_a_start_that_takes_too_long_names_the_missing_brokers(tmp_path: Path) -> None:
    profile = adapt(load_profile("disk-bound"), brokers=1)
    spec = make_spec(profile, "slow", kafka_jars(profile.kafka_version))
    spec = replace(spec, ready_deadline_s=0.3)
    with pytest.raises(TestbedStartError, match=r"not ready after 0 s: .* (accept|formatted)"):
        launch(spec, tmp_path)
    assert processes_with(spec.id) == []


RATE = "1MB/s"
LACKING = planted_disk_problem(PlantedDisk(RATE))
WAITING_BYTES = 60_000_000
"""Bytes that wait in memory at the end, which the disk would take a minute to write."""


def started(root: Path) -> tuple[Testbed, Path, list[str]]:
    """A testbed of one broker, its data folder, and the numbers of its devices."""
    overrides: dict[str, object] = {"disk.write_rate": RATE, "disk.dirty_bytes": 0, "log_dirs": 2}
    testbed = start("planted-disk", brokers=1, overrides=overrides, root=root)
    data = NodeFiles(testbed.brokers[1]).data
    devices = devices_below(testbed.folder)
    assert len(devices) == 2 and data.is_mount()
    for folder in log_dirs(data, 2):
        assert (folder / "meta.properties").exists()
    assert f"{devices[0].number} 1000000\n" in RATE_FILE.read_text()
    assert testbed.environment["disk.write_rate"] == RATE
    (data / "waiting").write_bytes(bytes(WAITING_BYTES))
    return testbed, data, [each.number for each in devices]


def require_nothing_left(testbed: Testbed, data: Path, numbers: list[str]) -> None:
    assert devices_below(testbed.folder) == []
    assert str(data) not in Path("/proc/self/mounts").read_text()
    limited = [line.split()[0] for line in RATE_FILE.read_text().splitlines()]
    assert not set(limited) & set(numbers)


@pytest.mark.long
@pytest.mark.skipif(LACKING is not None, reason=LACKING or "")
def test_a_stop_removes_the_disks_and_does_not_wait_for_them(tmp_path: Path) -> None:
    testbed, data, numbers = started(tmp_path)
    began_s = time.monotonic()
    testbed.stop()
    assert time.monotonic() - began_s < 0.8 * WAITING_BYTES / 1e6
    require_nothing_left(testbed, data, numbers)
    assert not testbed.folder.exists()


@pytest.mark.long
@pytest.mark.skipif(LACKING is not None, reason=LACKING or "")
def test_disks_left_by_a_killed_supervisor_are_removed(tmp_path: Path) -> None:
    testbed, data, numbers = started(tmp_path)
    os.kill(supervisor_pid(testbed), signal.SIGKILL)
    assert becomes(lambda: not processes_with(testbed.state.spec.id), GONE_S)
    assert len(devices_below(testbed.folder)) == 2, "no process is left to remove them"
    testbed.stop()
    require_nothing_left(testbed, data, numbers)


def test_a_broker_gets_its_share_and_its_group_is_removed(tmp_path: Path) -> None:
    groups = cpu_groups()
    cpus = 1.0 if groups is None else 0.5
    with start(brokers=1, overrides={"cpus": cpus}, root=tmp_path) as testbed:
        pid = testbed.pids[1]
        controller = testbed.pids[controller_of(testbed).node_id]
        if groups is None:
            assert len(os.sched_getaffinity(pid)) == 1
            return
        group = groups.folder / group_name(testbed.state.spec.id, 1)
        assert str(pid) in (group / "cgroup.procs").read_text().split()
        assert str(controller) not in (group / "cgroup.procs").read_text().split()
        throttled = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        assert int(throttled["nr_throttled"]) > 0, "a starting JVM takes more than half of a core"
    assert not group.exists()


@pytest.mark.long
def test_groups_left_by_a_kill_are_removed_from_another_group(tmp_path: Path) -> None:
    """A service that starts a testbed and a shell are in different control groups."""
    groups = cpu_groups()
    if groups is None:
        pytest.skip("CPU-quota cgroups cannot be created here")
    with another_group(groups) as service:
        if cpu_groups() is None:
            pytest.skip("a group of a group has no quota here, as on version 2 without a delegate")
        testbed = start(brokers=1, overrides={"cpus": 1}, root=tmp_path)
    group = service / group_name(testbed.state.spec.id, 1)
    try:
        assert group.exists()
        os.kill(supervisor_pid(testbed), signal.SIGKILL)
        assert becomes(lambda: not processes_with(testbed.state.spec.id), GONE_S)
        assert group.exists(), "no process is left to remove it"
    finally:
        testbed.stop()
    assert not group.exists()
    # The kernel needs a moment to remove ended processes from the group.
    assert becomes(lambda: is_removed(service), GONE_S)


def is_removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextmanager
def another_group(groups: CpuGroups) -> Iterator[Path]:
    """Move this process to a new group within this context."""
    service = groups.make(f"service-of-tests-{os.getpid()}", os.cpu_count() or 1)
    (service / "cgroup.procs").write_text(f"{os.getpid()}")
    try:
        yield service
    finally:
        (groups.folder / "cgroup.procs").write_text(f"{os.getpid()}")
        is_removed(service)  # except for a testbed's group within it


APPLICATION = """
import sys, time
from pyspark import SparkContext
context = SparkContext(sys.argv[1], "sleeper")
context.parallelize([1], 1).foreach(lambda _: time.sleep(600))
"""


@contextmanager
def application(testbed: Testbed) -> Iterator[None]:
    """A Spark application whose task sleeps in Python on an executor."""
    command = [sys.executable, "-c", APPLICATION, str(testbed.state.spark_master)]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    ) as driver:
        try:
            # A master, a worker, an executor, its Python daemon and the daemon's child.
            assert becomes(lambda: len(inheriting_processes(testbed.state.spec.id)) >= 5, 150)
            yield
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("ending", ["stop", "kill -9 of the supervisor"])
def test_executors_end_with_the_testbed(tmp_path: Path, ending: str) -> None:
    testbed = start(brokers=1, spark_workers=1, root=tmp_path)
    try:
        with application(testbed):
            if ending == "stop":
                testbed.stop()
                assert inheriting_processes(testbed.state.spec.id) == []
            else:
                os.kill(supervisor_pid(testbed), signal.SIGKILL)
                assert becomes(lambda: not inheriting_processes(testbed.state.spec.id), GONE_S)
            assert becomes(lambda: not processes_with(testbed.state.spec.id), GONE_S)
    finally:
        testbed.stop()
    assert not testbed.folder.exists()
    if ending != "stop":
        (kept,) = (tmp_path / "failed").iterdir()
        assert list(kept.glob("spark-worker-201/work/app-*/0/stderr"))
