"""Simultaneous runs of separate processes on the same tables."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.tables.store import TableStore
from tests.support.table_exchange import TRIALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RUNS = 8
PROCESS_S = 1_200.0
"""Deadline for one of eight processes on two busy cores [s]."""


@pytest.mark.long
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
