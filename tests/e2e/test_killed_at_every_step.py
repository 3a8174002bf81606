"""A run over five sizes whose driver is killed at each step, and resumed each time."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.common.errors import TryLaterError
from metrics.tables.store import TableStore
from tests.support.commands import COMMAND, RunningCommand, await_ends
from tests.support.killed_command import STEPS
from tests.support.processes import becomes
from tests.support.spark_submission import records_written, require_no_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

SIZES = (100, 300, 1000, 3000, 10_000)
OPTIONS = (
    "find-limit", "--workload=1kB", "--yes", "--slots=2",
    f"--set=workload.message_bytes={list(SIZES)}",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=3",
    "--set=workload.trial.early_end_error_rate=0",
    "--set=cluster.warm_up_max_s=10",
    "--set=goal.search.load_start_max=1",
    "--set=goal.search.load_cap=2",
)  # fmt: skip
"""A load that the broker sustains, so that each size takes a trial or two."""

PART_S = 400.0
"""Deadline for a part of a run: Spark's start, some trials and the end, on two busy cores [s]."""
SOON_S = 60.0
IN_LOAD = {"in the warm-up": "warming up", "in a trial": "trial-started trial="}
"""Steps in a load → the line after which records arrive."""

BARE = "a trial without its samples"

ORDER = (
    "the start is recorded",
    "in the warm-up",
    "in a trial",
    "samples without their trial",
    BARE,
    "hosts without their trial",
    "before a limit is recorded",
    "a limit is recorded",
    "in a trial",
    "before the end is recorded",
    "the end is recorded",
    "the summary is written",
)
IN_MIDDLE = {"in a trial", "samples without their trial", "hosts without their trial"}
"""Steps that interrupt a trial; only this trial is measured again."""
BETWEEN = {"before a limit is recorded"}
"""A step at which the trial before it may not be in the tables yet."""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    root = tmp_path_factory.mktemp("brokers")
    with start("default", brokers=1, root=root, name="killed") as running:
        yield running


class Killed:
    """A run that is started, killed and resumed, and the output of its parts."""

    def __init__(self, testbed: Testbed, spark: SparkSession, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.store = TableStore(spark, str(folder / "out" / "tables"))
        self.run_id = ""
        self.started: list[int] = []

    @contextmanager
    def part(self, step: str | None) -> Iterator[RunningCommand]:
        """Start or resume the run; all processes of this part end with the context."""
        dies = (sys.executable, "-m", "tests.support.killed_command", str(step))
        program = dies if step in STEPS else COMMAND
        more = [f"--resume={self.run_id}"] if self.run_id else []
        cluster = f"--cluster={cluster_file(self.testbed.folder)}"
        with RunningCommand(
            *OPTIONS, cluster, *more, folder=self.folder, program=program
        ) as command:
            yield command
            session = command.pid  # child processes stay in its session
        assert becomes(lambda: not _of_session(session), SOON_S)

    def killed_at(self, step: str) -> None:
        """Run one part up to the step, after the last part's lock has expired."""
        while True:
            with self.part(step) as command:
                if step in IN_LOAD:
                    _kill_in_load(command, self.testbed, IN_LOAD[step])
                code = command.wait(PART_S)
            self._note(command)
            if code != TryLaterError.exit_code:
                break
        assert code == -signal.SIGKILL, f"{step}: {code}\n{command.text}"
        assert "Traceback" not in command.text

    def finish(self) -> tuple[int, str]:
        """Run the last part, and return its exit code and output."""
        while True:
            with self.part(None) as command:
                code = command.wait(2 * PART_S)
            self._note(command)
            if code != TryLaterError.exit_code:
                return code, command.text

    def numbers(self) -> list[int]:
        return [row.trial for row in self.store.trials(self.run_id).collect()]

    def _note(self, command: RunningCommand) -> None:
        names = [each.name for each in (self.folder / "out").iterdir() if each.name[0].isdigit()]
        (self.run_id,) = names  # all parts belong to one run
        for line in command.lines:
            if "trial-started trial=" in line:
                self.started.append(int(line.split("trial=")[1].split()[0]))


def test_no_trial_is_lost_or_duplicated(
    testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    run, before, bare = Killed(testbed, spark, tmp_path), list[int](), set[int]()
    for step in ORDER:
        begun = len(run.started)
        run.killed_at(step)
        kept, new = run.numbers(), run.started[begun:]
        assert kept[: len(before)] == before, f"{step}: a trial was lost or changed"
        lost = [number for number in new if number not in kept]
        if step not in BETWEEN:
            assert lost == ([new[-1]] if step in IN_MIDDLE else []), step
        assert lost in ([], new[-1:]), f"{step}: more than the last trial is lost"
        bare |= set(kept[-1:] if step == BARE else [])
        before = kept
    begun = len(run.started)
    code, text = run.finish()
    assert code == 3, text  # the cap was sustained, so there is no limit
    assert "Traceback" not in text
    kept = run.numbers()
    assert kept[: len(before)] == before
    assert run.started[begun:] == kept[len(before) :], "none of them is measured again"
    check_whole(run, kept, bare)


def check_whole(run: Killed, kept: list[int], bare: set[int]) -> None:
    """Check that tables, files and brokers are as after a run without kills.

    Args:
        kept: trials in the tables.
        bare: trials whose samples were not written yet when the driver was killed.
    """
    assert len(set(kept)) == len(kept)
    summary: dict[str, Any] = json.loads(
        (run.folder / "out" / run.run_id / "summary.json").read_text()
    )
    assert [point["bpm"] for point in summary["boundaries"]] == list(SIZES)
    assert sum(point["trials"] for point in summary["boundaries"]) == len(kept)
    points = Counter(row.bpm for row in run.store.boundaries(run.run_id).collect())
    assert points == Counter(SIZES), "each size has one point"
    (row,) = run.store.run_rows(run.run_id)
    assert (row.status, row.exit_code) == (summary["status"], summary["exit_code"])
    assert summary["status"] == "no conclusion"
    sampled = run.store.read("samples", run.run_id).select("trial").distinct().collect()
    assert set(kept) - {row.trial for row in sampled} == bare
    repeated = run.store.read("samples", run.run_id).groupBy("trial", "broker_id", "at").count()
    assert repeated.where("count > 1").count() == 0
    assert (run.folder / "out" / run.run_id / "report.html").exists()
    require_no_topics(run.testbed)


def _kill_in_load(command: RunningCommand, testbed: Testbed, after: str) -> None:
    """Kill the driver when records arrive after this line, unless it has ended."""
    try:
        command.await_line(after, PART_S)
    except AssertionError:
        if command.wait(PART_S) == TryLaterError.exit_code:
            return
        raise
    written = records_written(testbed)
    assert becomes(lambda: records_written(testbed) > written, PART_S)
    family = command.family()
    command.signal(signal.SIGKILL)
    assert await_ends(family, SOON_S) == []


def _of_session(session: int) -> list[int]:
    """Ids of running processes of a session, without zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        state, *_rest = fields = stat.rpartition(")")[2].split()
        if int(fields[3]) == session and state != "Z":
            found.append(process.pid)
    return found
