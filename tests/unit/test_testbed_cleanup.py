"""Cleaning up ends only processes of the testbed, by id, time and command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.testbed import commands, detached
from jobs.testbed.channel import ChannelClosedError, channel_pair
from jobs.testbed.cleanup import (
    created_s,
    is_alive,
    node_processes,
    own_record,
    root_lock,
    sweep,
    wait_gone,
)
from jobs.testbed.commands import parse_settings
from jobs.testbed.detached import down, failed_logs, status
from jobs.testbed.jvm import MARKER
from jobs.testbed.launcher import make_spec, refuse_namesake
from jobs.testbed.model import (
    HOST,
    Node,
    NodeRole,
    ProcessRecord,
    Spec,
    State,
    Status,
    TestbedStateError,
)
from jobs.testbed.places import FAILED_KEPT, read_state, write_state
from jobs.testbed.profile import load_profile
from jobs.testbed.supervisor import DISK_RESERVE_BYTES, disk_problem
from jobs.testbed.supervisor import main as supervise
from metrics.common.errors import ConfigError
from tests.support.processes import becomes
from tests.support.testbed_spec import SPEC

Starter = Callable[[str], ProcessRecord]


@pytest.fixture
def impostor() -> Iterator[Starter]:
    """A function that starts sleeping processes with a marker on their command line."""
    started: list[subprocess.Popen[bytes]] = []

    def start(testbed_id: str) -> ProcessRecord:
        command = [sys.executable, "-c", "import time; time.sleep(600)", f"{MARKER}{testbed_id}"]
        started.append(subprocess.Popen(command))
        process = psutil.Process(started[-1].pid)
        # Until exec has happened the command line is still that of this process.
        assert becomes(lambda: f"{MARKER}{testbed_id}" in process.cmdline())
        return ProcessRecord(process.pid, created_s(process.pid), 1)

    yield start
    for each in started:
        each.kill()
        each.wait()


def crashed(
    root: Path, spec: Spec, *processes: ProcessRecord, since_s: float | None = None
) -> Path:
    """The leftovers of a killed supervisor that started at `since_s`, or long before this test."""
    folder = root / spec.id
    data = folder / "broker-1" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "segment").write_bytes(os.urandom(100_000))
    (folder / "broker-1" / "server.log").write_text("[x] ERROR something\n")
    long_before_s = own_record().created_s - 1000
    dead = ProcessRecord(os.getpid(), long_before_s if since_s is None else since_s)
    node = Node(1, NodeRole.BROKER, 20001, 20011, str(folder / "broker-1"))
    state = State(
        spec, Status.READY, time.time(), supervisor=dead, nodes=(node,), processes=processes
    )
    write_state(folder, state)
    return folder


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere systems keep the time of day of a start")
def test_a_clock_change_does_not_change_the_identity_of_a_process(
    impostor: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts from the boot, whose time of day moves with the clock."""
    own, node = own_record(), impostor(SPEC.id)
    state = read_state(crashed(tmp_path, SPEC, node))
    assert state is not None
    booted_s = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: booted_s + 60.0)
    assert psutil.Process().create_time() > own.created_s + booted_s + 59.0
    assert is_alive(own)
    assert [each.pid for each in node_processes(state)] == [node.pid]


def test_only_processes_of_the_testbed_are_ended(tmp_path: Path, impostor: Starter) -> None:
    local = impostor(SPEC.id)
    unrecorded = impostor(SPEC.id)
    other_testbed = impostor("other-00000000")
    prefix = impostor(f"{SPEC.id}0")
    used_again = impostor(SPEC.id)
    # A process with a recorded pid and another marker, and one with another start time.
    another = replace(used_again, created_s=used_again.created_s - 100)
    folder = crashed(tmp_path, SPEC, local, other_testbed, another)
    state = read_state(folder)
    assert state is not None
    found = {process.pid for process in node_processes(state)}
    assert found == {local.pid, unrecorded.pid}
    with root_lock(tmp_path):
        (cleaned,) = sweep(tmp_path)
    assert (cleaned.name, cleaned.processes) == ("small", 2)
    assert cleaned.data_bytes >= 100_000
    assert not is_alive(local) and not is_alive(unrecorded)
    assert is_alive(other_testbed) and is_alive(prefix) and is_alive(used_again)
    young = read_state(crashed(tmp_path, SPEC, since_s=used_again.created_s + 60))
    assert young is not None and node_processes(young) == [], "it is older than the testbed"
    assert not is_alive(replace(own_record(), created_s=own_record().created_s - 5))


def test_logs_are_kept_and_data_is_not(tmp_path: Path) -> None:
    folder = crashed(tmp_path, SPEC)
    done = down("default", tmp_path)
    (cleaned,) = done.cleaned
    assert done.stopped is None and not folder.exists()
    assert cleaned.logs == tmp_path / "failed" / SPEC.id
    assert (cleaned.logs / "broker-1" / "server.log").exists()
    assert not (cleaned.logs / "broker-1" / "data").exists()
    state = read_state(cleaned.logs)
    assert state is not None
    assert state.status is Status.FAILED and "supervisor ended" in state.reason
    assert failed_logs(tmp_path) == [cleaned.logs]
    assert down("default", tmp_path).cleaned == ()


def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    (tmp_path / "half-made").mkdir()  # the rest of a crashed start
    (cleaned,) = down("default", tmp_path).cleaned
    assert cleaned.logs is None and not (tmp_path / "half-made").exists()
    for number in range(FAILED_KEPT + 2):
        crashed(tmp_path, replace(SPEC, id=f"small-{number:08x}"))
        down("default", tmp_path)
        os.utime(tmp_path / "failed" / f"small-{number:08x}", (number, number))
    kept = [folder.name for folder in failed_logs(tmp_path)]
    assert kept == [f"small-{number:08x}" for number in range(2, FAILED_KEPT + 2)]


def test_a_testbed_that_starts_is_left_alone_and_a_name_is_up_only_once(tmp_path: Path) -> None:
    folder = tmp_path / SPEC.id
    folder.mkdir()
    write_state(folder, State(SPEC, Status.STARTING, created_s=time.time(), owner=own_record()))
    assert down("small", tmp_path).cleaned == () and folder.exists()
    (report,) = status(tmp_path)
    assert report.is_alive
    kept = replace(SPEC, owned=False)
    write_state(folder, State(kept, Status.READY, created_s=time.time(), supervisor=own_record()))
    with pytest.raises(TestbedStateError, match='"small" runs already') as caught:
        refuse_namesake(tmp_path, "small")
    assert caught.value.exit_code == 2
    refuse_namesake(tmp_path, "other")


def test_a_supervisor_that_ends_during_the_check_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = crashed(tmp_path, replace(SPEC, owned=False))
    state = read_state(folder)
    assert state is not None
    gone = ProcessRecord(2**22 + 1, time.time(), 1)  # above the highest id of a process
    write_state(folder, replace(state, supervisor=gone, processes=(gone,)))
    monkeypatch.setattr(detached, "is_alive", lambda _record: True)
    (report,) = status(tmp_path)
    assert report.memory_bytes == 0
    stopped = down("small", tmp_path).stopped
    assert stopped is not None and stopped.supervisor == gone


def test_waiting_for_a_process_ends_when_it_does(impostor: Starter) -> None:
    record = impostor("any")
    assert not wait_gone(record, 0.3)
    psutil.Process(record.pid).kill()
    assert wait_gone(record, 10)  # although its parent has not reaped it yet


def test_a_channel_carries_whole_messages_and_reports_its_end() -> None:
    local, inherited = channel_pair()
    try:
        assert local.receive(timeout_s=0) is None
        inherited.sendall(b'{"event": "rea')
        assert local.receive(timeout_s=0.01) is None
        inherited.sendall(b'dy"}\n{"event": "two"}\n')
        assert local.receive(timeout_s=1) == {"event": "ready"}
        assert local.receive(timeout_s=0) == {"event": "two"}
        inherited.close()
        with pytest.raises(ChannelClosedError):
            local.receive(timeout_s=1)
        with pytest.raises(ChannelClosedError):
            local.send({"order": "stop"})
    finally:
        inherited.close()
        local.close()


def test_the_disk_guard_names_its_limit_and_the_free_space(tmp_path: Path) -> None:
    assert disk_problem(tmp_path, 5, 5) is None
    text = disk_problem(tmp_path, 2_000_000_000, 1_000_000_000)
    assert text is not None and "2.00 GB; expected at most disk_limit_bytes, 1.00 GB" in text
    text = disk_problem(tmp_path, 5, 5, lambda _: DISK_RESERVE_BYTES - 1)
    assert text is not None and "0.50 GB free" in text and "REDLINE_CACHE" in text


@pytest.mark.parametrize("name", ["../up", "", "a b", "-x", "x" * 42])
def test_names_that_are_no_folders_are_refused(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError, match="choose another") as error:
        make_spec(load_profile("disk-bound"), name, [])
    assert str(error.value) == snapshot
    assert parse_settings(["a.b=c=d", "heap_mb = 300"]) == {"a.b": "c=d", "heap_mb": "300"}
    with pytest.raises(ConfigError, match="is not of the form KEY=VALUE"):
        parse_settings(["num.io.threads"])


def test_status_shows_running_testbeds_and_leftovers_of_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path))
    tmp_path = tmp_path / "testbed"
    result = CliRunner().invoke(commands.testbed, ["status"])
    assert result.output == "no testbed runs; start one with `redline testbed up`\n"

    crashed(tmp_path, SPEC)
    running = replace(SPEC, id="other-00000001", name="other")
    folder = tmp_path / running.id
    folder.mkdir()
    node = Node(1, NodeRole.BROKER, 20001, 20011, str(folder / "broker-1"))
    state = State(running, Status.READY, time.time(), supervisor=own_record(), nodes=(node,))
    write_state(folder, state)
    text = CliRunner().invoke(commands.testbed, ["status"]).output
    assert "testbed small (2 brokers, Kafka 4.1.2): crashed;" in text
    title = "testbed other (2 brokers, Kafka 4.1.2)"
    assert f"{title}: ready for 0 s, stops when its command ends" in text
    assert f"{HOST}:20001" in text
    assert "of at most 1000 MB" in text

    text = CliRunner().invoke(commands.testbed, ["down"]).output
    assert "testbed small: 0 processes ended, 0 MB deleted; its logs are in" in text
    text = CliRunner().invoke(commands.testbed, ["status"]).output
    assert (
        f"logs of 1 failed testbeds are kept; the latest: {tmp_path / 'failed' / SPEC.id}\n" in text
    )


def test_a_supervisor_without_a_state_ends_with_an_error(tmp_path: Path) -> None:
    local, inherited = channel_pair()
    try:
        assert supervise(tmp_path, inherited.detach()) == 2
        with pytest.raises(ChannelClosedError):
            local.receive(timeout_s=1)
    finally:
        local.close()
