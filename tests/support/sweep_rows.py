"""Rows of the tables for a sweep with two cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from metrics.arrow_schema import schema_of
from metrics.columns import row_of
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import SweepCase
from metrics.tables.schema import RunRow
from tests.support.rows import BOUNDARY

SWEEP, EXPERIMENT, ACKS = "s1", "acks", "workload.producer.acks"
NAMES = ("calibrated", "calibrated", "default")
FIGURES = {"1": 20.0, "all": 15.0}


def run_rows(acks: str, repeat: int = 1, status: str = "done") -> tuple[RunRow, RunRow]:
    """The rows of the start and the end of a case's run."""
    case = 1 + list(FIGURES).index(acks)
    sweep_case = SweepCase(SWEEP, EXPERIMENT, f"acks={acks}", repeat, {ACKS: acks})
    begun = RunRow(
        f"{SWEEP}-c{case:02}-r{repeat}", "started", 1.0 + case, *NAMES, 3, sweep_case=sweep_case
    )
    return begun, replace(begun, event="finished", at_s=2.0 + case, status=status, exit_code=0)


def point_row(acks: str) -> BoundaryRow:
    """The row of a case's limit, with its interval."""
    value = FIGURES[acks]
    boundary = replace(
        BOUNDARY, message_bytes=1_000, mb_per_s=value, load_low=19.6, load_high=20.4,
        latency_p50_ms=2.0, latency_p99_ms=9.0, latency_p999_ms=20.0,
    )  # fmt: skip
    begun, _ = run_rows(acks)
    return BoundaryRow(begun.run_id, 2.0, *NAMES[:2], boundary, EXPERIMENT, f"acks={acks}")


def as_rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of one table in the form that Spark returns."""
    schema = schema_of(type(records[0]))
    table = pa.Table.from_pylist([row_of(each) for each in records], schema=schema)
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows
