"""A disk that fills up under the tables: what was measured is kept, and a sentence says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.common.errors import ConfigError
from metrics.tables.store import TableStore
from tests.support.evidence import sample
from tests.support.rows import trial
from tests.support.small_disks import resize, small_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "full"
PLENTY_KB, LEFT_KB = 20_000, 12
APPENDS_MAX = 20
"""By then the rest of the disk is full."""


@pytest.mark.long
def test_a_full_disk_is_reported_and_what_was_appended_is_kept(
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
        assert store.samples(RUN).where(f"trial = {lost}").count() == 1


def filled(store: TableStore) -> tuple[int, str]:
    """Append trials until there is no room: the last that was appended, and what was said then."""
    for number in range(2, APPENDS_MAX):
        try:
            store.append_trial(trial(number, RUN), [sample(0)])
            store.settle()
        except ConfigError as error:
            return number - 1, str(error)
    pytest.fail("the disk took it all")


def test_tables_that_cannot_be_created_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot be written.*or name others by --tables"):
        TableStore(spark, str(tmp_path / "file" / "tables")).open().settle()
