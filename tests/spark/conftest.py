"""Tables for tests of the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def new_store(
    spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], TableStore]:
    """A function that returns a store with tables without rows, in a folder that it makes.

    The tables are created once and copied, as their creation takes seconds of CPU time.
    """
    empty = tmp_path_factory.mktemp("empty") / "tables"
    TableStore(spark_for_all, str(empty)).open().settle()

    def store_in(folder: Path) -> TableStore:
        shutil.copytree(empty, folder)
        return TableStore(spark_for_all, str(folder))

    return store_in
