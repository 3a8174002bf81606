"""A fixed volume on real brokers: exactly this volume is written, and all of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.console.events import RecordingReporter
from jobs.features.sweep.from_tables import read_sweep
from jobs.testbed.handle import Testbed
from metrics.tables.store import TableStore
from tests.support.sweeps import sweep_of, sweeping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = "workload.consumers.groups"
RECORDS = 4_000
TEXT = f"""
asks: drain
load: 8
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.trial.volume_bytes={RECORDS * 1_000}
  - workload.trial.measure_s=3
cases: [{{{GROUPS}: 2}}]
"""


@pytest.mark.long
@pytest.mark.usefixtures("empty_tables")
def test_a_volume_is_written_whole_and_then_read_whole(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    under_way = sweeping(sweep_of(tmp_path, kafka_testbed, TEXT), tmp_path, RecordingReporter())
    under_way.run()
    assert under_way.outcome(None).exit_code == 0
    (answer,) = under_way.results
    assert answer.settings[GROUPS] == "2"

    tables = TableStore(spark, str(tmp_path / "tables"))
    wrote, read = tables.read("trials").orderBy("trial").collect()
    assert wrote.offered_records == wrote.acked_total == RECORDS
    assert wrote.end_offset_growth_records == RECORDS
    # 8 producers of 0.25 MB/s take 2 s for the volume, and write nothing afterwards.
    assert wrote.last_acked_s == pytest.approx(2.0, abs=0.9)
    assert (read.offered_records, read.acked_total) == (0, 0)
    assert read.end_offset_growth_records == 0
    assert len(read.groups) == 2
    for group in read.groups:
        assert (group.records_total, group.unread_records) == (RECORDS, 0)
        assert 0 < group.last_read_s < 3
    assert answer.value == max(group.last_read_s for group in read.groups)

    again = read_sweep(tables)
    assert (again.asks, again.unit) == ("drain", "s")
    assert [each.value for each in again.results] == [answer.value]
