"""A run whose driver dies at each of its steps, and what goes on from what it left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.tables.store import TABLES, TableStore
from tests.support.evidence import sample
from tests.support.rows import BOUNDARY, trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NAMES = ("testbed", "demo", "default")
TRIALS = 2
# What a run appends, in order: started, then for each trial its samples and its row, then the
# boundary and the end.
STEPS = ("runs", *("samples", "trials") * TRIALS, "boundaries", "runs")


class KilledError(Exception):
    """Stands for the end of the process."""


class MortalStore(TableStore):
    """Dies at one of its appends: before it, or after it and before anybody was told."""

    def __init__(self, spark: SparkSession, base: str, dies_at: int, is_written: bool) -> None:
        super().__init__(spark, base)
        self._left, self._is_written = dies_at, is_written
        self.appended: list[str] = []

    def _save(self, table: str, frame: DataFrame, options: dict[str, str]) -> None:
        self._left -= 1
        if self._left >= 0 or self._is_written:
            super()._save(table, frame, options)
            self.appended.append(table)
        if self._left < 0:
            raise KilledError


def steps_of_a_run(store: TableStore, run_id: str, at_s: float) -> Iterator[str]:
    """A run, or what is left of it, from what the tables say; yields what it did."""
    store.append_run(RunRow(run_id, "started", at_s, *NAMES))
    known = [row.trial for row in store.trials(run_id).collect()]
    number = store.next_trial(run_id)
    while len(known) < TRIALS:
        yield f"trial {number}"
        store.append_trial(trial(number, run_id), [sample(0), sample(1)])
        known.append(number)
        number += 1
    store.append_boundary(BoundaryRow(run_id, at_s, *NAMES[:2], BOUNDARY))
    store.append_run(RunRow(run_id, "finished", at_s + 1, *NAMES, status="done"))


@pytest.fixture(scope="module")
def base(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables for all of these runs, which do not touch each other's rows."""
    path: Path = tmp_path_factory.mktemp("crashes") / "tables"
    TableStore(spark_for_all, str(path)).open()
    return str(path)


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "dies_at", range(len(STEPS)), ids=[f"{i}-{s}" for i, s in enumerate(STEPS)]
)
def test_a_crash_loses_at_most_the_trial_in_progress(
    spark: SparkSession, base: str, dies_at: int, is_written: bool
) -> None:
    run_id = f"{dies_at}-{is_written}"
    mortal = MortalStore(spark, base, dies_at, is_written)
    made: list[str] = []
    with pytest.raises(KilledError):
        made.extend(steps_of_a_run(mortal, run_id, 1.0))
    assert tuple(mortal.appended) == STEPS[: dies_at + is_written]

    store = TableStore(spark, base)
    kept = [row.trial for row in store.trials(run_id).collect()]
    finished = mortal.appended.count("trials")
    assert kept == list(range(1, finished + 1)), "no finished trial is lost"
    remade = list(steps_of_a_run(store, run_id, 2.0))
    assert len(remade) == TRIALS - finished, "only the trial in progress is made again"

    rows = store.trials(run_id).collect()
    assert len({row.trial for row in rows}) == len(rows) == TRIALS
    counted = {table: store.read(table, run_id) for table in TABLES}
    assert counted["boundaries"].count() == 1
    assert store.runs().where(f"run_id = '{run_id}'").collect()[0].status == "done"
    assert _orphans(store, run_id) == (["1"] if _has_orphan(mortal, 1) else []) + (
        ["2"] if _has_orphan(mortal, 2) else []
    )


def _has_orphan(mortal: MortalStore, number: int) -> bool:
    """Samples of a trial whose row was never written."""
    appended = mortal.appended
    return appended.count("samples") == number and appended.count("trials") == number - 1


def _orphans(store: TableStore, run_id: str) -> list[str]:
    numbers = store.trials(run_id).select("trial")
    alone = store.samples(run_id).join(numbers, "trial", "left_anti").select("trial").distinct()
    return sorted(str(row.trial) for row in alone.collect())
