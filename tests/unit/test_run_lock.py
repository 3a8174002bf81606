"""One driver for each run, also on clusters without a lock."""

from __future__ import annotations

import errno
import fcntl
import signal
import sys
from pathlib import Path
from typing import TextIO

import click
import pytest
from click.testing import CliRunner

from jobs.compare import compare
from jobs.config import load
from jobs.console.events import RecordingReporter
from jobs.find_limit import find_limit
from jobs.nightly import nightly
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.runs.run_lock import FILE, is_locked, run_lock
from jobs.traffic import traffic
from metrics.common.errors import ConfigError, TryLaterError
from tests.support.commands import ROOT, RunningCommand
from tests.support.processes import PATIENCE_S

HOLD = """
import sys, time
from pathlib import Path
from jobs.runs.run_lock import run_lock
with run_lock(Path(sys.argv[1]), "redline run r1 of a@b since then"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_run_whose_folder_cannot_be_made_is_refused_before_it_starts() -> None:
    for out in ("/proc/runs", "/dev/null/runs"):
        line = ["--workload", "1kB", "--np", "1", "--out", out]
        words = rf"--out {out}/.* cannot be written \(.*\); expected"
        with pytest.raises(ConfigError, match=words):
            traffic.main(line, standalone_mode=False)


def test_a_second_driver_of_a_run_is_refused_and_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.runs.lifecycle.ContextFactory.open", pytest.fail)
    config = load("testbed", "demo", "default")
    order = RunOrder(
        tmp_path, "unused", locks=False, reporter=RecordingReporter(), run_id="r1", resumes=True
    )
    program = (sys.executable, "-c", HOLD, str(order.folder))
    with RunningCommand(folder=ROOT, program=program) as first:
        first.await_line("held", PATIENCE_S)
        with pytest.raises(TryLaterError) as refused:
            execute(LimitRun(config), order)
        assert [path.name for path in order.folder.iterdir()] == [FILE]
        assert is_locked(order.folder)
        first.signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
    assert not is_locked(order.folder), "the system unlocked it"
    assert not is_locked(tmp_path)
    message = str(refused.value)
    assert message.startswith(f"redline run r1 of a@b since then, process {first.pid} ")
    assert str(order.folder) in message
    assert refused.value.exit_code == 75
    with run_lock(order.folder, "redline run r1 of a@b again") as has_lock:
        assert has_lock, "a killed driver holds no lock"
        assert (order.folder / FILE).read_text().startswith("redline run r1 of a@b again, process")
    assert list(order.folder.iterdir()) == []


def test_a_driver_that_ends_while_the_next_one_begins_leaves_one_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ended = fcntl.flock, iter([True])

    def end_first(file: TextIO, operation: int) -> None:
        if next(ended, False):  # the holder removes the file that the next one has opened
            (tmp_path / FILE).unlink()
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", end_first)
    with (
        run_lock(tmp_path, "second"),
        pytest.raises(TryLaterError, match="second, process"),
        run_lock(tmp_path, "third"),
    ):
        pytest.fail("two drivers of one run")


def test_a_query_at_the_start_of_a_run_does_not_refuse_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == [], "a query creates no file"
    (tmp_path / FILE).touch()
    with (tmp_path / FILE).open() as query:
        fcntl.flock(query, fcntl.LOCK_SH)
        monkeypatch.setattr("jobs.runs.run_lock.time.sleep", lambda _: query.close())
        with run_lock(tmp_path, "a test") as has_lock:
            assert has_lock


def test_a_disk_without_locks_is_reported_only_where_the_cluster_has_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    def open_nothing(_self: object, _stack: object) -> None:
        raise TryLaterError("enough seen")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr("jobs.runs.lifecycle.ContextFactory.open", open_nothing)
    for locks in (True, False):
        reporter = RecordingReporter()
        order = RunOrder(
            tmp_path, "unused", locks=locks, reporter=reporter, run_id="r1", resumes=True
        )
        with pytest.raises(TryLaterError, match="enough seen"):
            execute(LimitRun(load("testbed", "demo", "default")), order)
        warnings = [event for event in reporter.events if "second driver" in str(event)]
        assert bool(warnings) is not locks


def test_each_job_that_loads_takes_the_lock_without_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[RunOrder] = []

    def keep(_body: object, order: RunOrder, **_: object) -> int:
        orders.append(order)
        return 0

    monkeypatch.setattr("jobs.runs.launch.execute", keep)
    jobs: tuple[tuple[click.Command, list[str]], ...] = (
        (find_limit, []),
        (traffic, ["--np", "1"]),
        (nightly, []),
        (compare, ["--a", "kafka=3.9.2", "--b", "kafka=4.1.2"]),
    )
    for command, options in jobs:
        for more in ([], ["--no-lock"]):
            arguments = [*options, *more, "--out", str(tmp_path / "out")]
            CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert [order.locks for order in orders] == [True, False] * 4
