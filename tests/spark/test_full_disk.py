"""A full disk under the tables: stored trials are kept, and a sentence reports the error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.common.errors import ConfigError
from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore
from tests.support.evidence import sample
from tests.support.rows import trial
from tests.support.small_disks import resize, small_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "full"
PLENTY_KB, LEFT_KB = 20_000, 12
APPENDS_MAX = 20
"""Number of trials after which the disk is certainly full."""


@pytest.mark.long
def test_a_full_disk_is_reported_and_appended_trials_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", PLENTY_KB) as disk:
        store = TableStore(spark, str(disk / "tables")).open()
        store.append_trial(trial(1, RUN), [sample(0)])
        store.settle()
        resize(disk, shutil.disk_usage(disk).used // 1024 + LEFT_KB)
        kept, error = filled(store)
        assert "cannot be written (No space left on device)" in error
        assert "existing rows are kept; free disk space" in error
        assert "\n" not in error
        assert kept >= 1
        assert [row.trial for row in store.trials(RUN).collect()] == list(range(1, kept + 1))
        resize(disk, PLENTY_KB)
        lost = kept + 1
        store.append_trial(trial(lost, RUN), [sample(0)])
        assert [row.trial for row in store.trials(RUN).collect()][-1] == lost
        assert store.read("samples", RUN).where(f"trial = {lost}").count() == 1


def filled(store: TableStore) -> tuple[int, str]:
    """Append trials until the disk is full; the last appended one, and the message."""
    for number in range(2, APPENDS_MAX):
        try:
            store.append_trial(trial(number, RUN), [sample(0)])
            store.settle()
        except ConfigError as error:
            return number - 1, str(error)
    pytest.fail("the disk took it all")


def test_tables_that_cannot_be_created_are_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metrics.tables.store.SCHEMAS", {"runs": SCHEMAS["runs"]})
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        ConfigError, match=r"cannot be written.*or choose other tables with --tables"
    ):
        TableStore(spark, str(tmp_path / "file" / "tables")).open().settle()
