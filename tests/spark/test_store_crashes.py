"""A run whose driver dies at each of its steps and is resumed, and simultaneous runs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import SCHEMAS, RunRow
from metrics.tables.store import TableStore
from tests.support.evidence import sample
from tests.support.rows import BOUNDARY, trial
from tests.support.table_exchange import TRIALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NAMES = ("testbed", "demo", "default")
STEPS = (("runs",), *(("samples", "trials"),) * TRIALS, ("boundaries",), ("runs",))
"""The appends of a run: the start, then for each trial its samples and its row at the same time,
then the boundary and the end."""
DEATHS = [
    (step, table, is_written)
    for step, tables in enumerate(STEPS)
    for table in tables
    for is_written in (False, True)
]


class KilledError(Exception):
    """The simulated end of the process."""


class MortalStore(TableStore):
    """A store that dies at one of its steps: before it writes a table, or right after it.

    Writes of the same step to other tables succeed.
    """

    def __init__(
        self, spark: SparkSession, base: str, dies_in: int, dies_at: str, is_written: bool
    ) -> None:
        super().__init__(spark, base)
        self._step, self._dies_in = -1, dies_in
        self._dies_at, self._is_written = dies_at, is_written
        self.appended: list[tuple[int, str]] = []

    def _enqueue(self, action: Callable[..., object], *arguments: Any) -> None:
        self._step += 1
        super()._enqueue(action, *arguments)

    def _save(self, table: str, frame: DataFrame, options: dict[str, str]) -> None:
        is_last = (self._step, table) == (self._dies_in, self._dies_at)
        if not is_last or self._is_written:
            super()._save(table, frame, options)
            self.appended.append((self._step, table))
        if is_last:
            raise KilledError


def steps_of_a_run(store: TableStore, run_id: str, at_s: float) -> Iterator[str]:
    """Make a run, or the rest of it according to the tables, and yield its steps."""
    store.append_run(RunRow(run_id, "started", at_s, *NAMES))
    store.settle()
    known = [row.trial for row in store.trials(run_id).collect()]
    number = store.next_trial(run_id)
    while len(known) < TRIALS:
        yield f"trial {number}"
        store.append_trial(trial(number, run_id), [sample(0), sample(1)])
        store.settle()
        known.append(number)
        number += 1
    store.append_boundary(BoundaryRow(run_id, at_s, *NAMES[:2], BOUNDARY))
    store.settle()
    store.append_run(RunRow(run_id, "finished", at_s + 1, *NAMES, status="done"))
    store.settle()


@pytest.fixture(scope="module")
def base(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables for all of these runs, which do not change each other's rows."""
    path: Path = tmp_path_factory.mktemp("crashes") / "tables"
    TableStore(spark_for_all, str(path)).open().settle()
    return str(path)


@pytest.mark.parametrize(("dies_in", "dies_at", "is_written"), DEATHS)
def test_a_crash_loses_at_most_the_trial_in_progress(
    spark: SparkSession, base: str, dies_in: int, dies_at: str, is_written: bool
) -> None:
    run_id = f"{dies_in}-{dies_at}-{is_written}"
    mortal = MortalStore(spark, base, dies_in, dies_at, is_written)
    made: list[str] = []
    with pytest.raises(KilledError):
        made.extend(steps_of_a_run(mortal, run_id, 1.0))
    written = {
        (step, table) for step, tables in enumerate(STEPS[: dies_in + 1]) for table in tables
    }
    lost = set() if is_written else {(dies_in, dies_at)}
    assert set(mortal.appended) == written - lost
    tables = [table for _, table in mortal.appended]

    store = TableStore(spark, base)
    kept = [row.trial for row in store.trials(run_id).collect()]
    finished = tables.count("trials")
    assert kept == list(range(1, finished + 1)), "no finished trial is lost"
    remade = list(steps_of_a_run(store, run_id, 2.0))
    assert len(remade) == TRIALS - finished, "only the trial in progress is made again"

    rows = store.trials(run_id).collect()
    assert len({row.trial for row in rows}) == len(rows) == TRIALS
    counted = {table: store.read(table, run_id) for table in SCHEMAS}
    assert counted["boundaries"].count() == 1
    assert store.runs().where(f"run_id = '{run_id}'").collect()[0].status == "done"
    begun = tables.count("samples")
    assert _orphans(store, run_id) == ([str(begun)] if begun > finished else [])


def _orphans(store: TableStore, run_id: str) -> list[str]:
    numbers = store.trials(run_id).select("trial")
    alone = store.samples(run_id).join(numbers, "trial", "left_anti").select("trial").distinct()
    return sorted(str(row.trial) for row in alone.collect())


RUNS = 8
PROCESS_S = 1_200.0
"""Deadline for one of eight processes on two busy cores [s]."""


@pytest.mark.timeout(1_500)
def test_simultaneous_runs_lose_and_duplicate_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    base, names = str(tmp_path / "tables"), [f"run-{number}" for number in range(RUNS)]
    with ExitStack() as stack:
        started = [begun(stack, base, name) for name in names]
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        outputs = [each.communicate(timeout=PROCESS_S)[0] for each in started]
        assert [each.returncode for each in started] == [0] * RUNS, "\n".join(outputs)[-3_000:]
    store = TableStore(spark, base)
    assert {row.run_id: row.status for row in store.runs().collect()} == dict.fromkeys(
        names, "done"
    )
    counts = {table: Counter(row.run_id for row in store.read(table).select("run_id").collect())
              for table in ("runs", "trials", "samples", "boundaries")}  # fmt: skip
    for table, rows in (("runs", 2), ("trials", TRIALS), ("samples", 2 * TRIALS),
                        ("boundaries", 1)):  # fmt: skip
        assert counts[table] == dict.fromkeys(names, rows), table
    for name in names:
        assert [row.trial for row in store.trials(name).collect()] == [*range(1, TRIALS + 1)]


def begun(stack: ExitStack, base: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.table_writer", base, name]
    process = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    )  # fmt: skip
    stack.callback(process.kill)
    return process
