"""Comparisons over simulated links, which repeat two published studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config.link import Link
from jobs.console.events import RecordingReporter
from jobs.features.compare.answer import Effort
from jobs.features.compare.body import ComparisonRun
from jobs.features.compare.sides import load_sides
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.options import RunOptions
from jobs.testbed.planted_devices import link_problem
from metrics.common.errors import RegressionError
from metrics.comparing.effects import Side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LACKING = link_problem(Link(rate="20MB/s"))
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]

SHORT = (
    "cluster.testbed.profile=default",
    "cluster.testbed.brokers=1",
    "cluster.warm_up_max_s=10",
    "workload.topic.replication_factor=1",
    "workload.message_bytes=[100]",
)


def compared(folder: Path, a: str, b: str, effort: Effort, *overrides: str) -> dict[str, Any]:
    """The document compare.json of a comparison in which B is the worse side."""
    sides = load_sides({Side.A: a, Side.B: b}, "testbed", "1kB", "default", [*SHORT, *overrides])
    order = RunOrder(RecordingReporter(), RunOptions(folder), "links")
    assert execute(ComparisonRun(sides, effort, 0.05), order) == RegressionError.exit_code
    document: dict[str, Any] = json.loads((order.folder / "compare.json").read_text())
    return document


def test_8_bytes_more_beside_a_full_interface_are_found_and_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    document = compared(
        tmp_path,
        "workload.payload.headers=0",
        "workload.payload.headers=1,workload.payload.header_bytes=4",
        Effort(pairs=3, steady_pairs=3),
        "cluster.testbed.properties.link.rate=20MB/s",
        "workload.producer.rate_bytes_per_s=500000",
    )
    (case,) = document["cases"]
    assert -0.15 < case["capacity"]["effect"]["ratio"] - 1 < -0.05, "8 of 108 bytes and framing"
    assert case["cause"]["resource"] == "network"
    assert case["cause"]["text"].endswith("B is bound by network")
    for side in ("a", "b"):
        bound = case["bound"][side]
        assert bound["resource"] == "network"
        assert "interface link0" in bound["evidence"]
        assert bound["used_saturated"]["network"] > 0.9 > bound["used_steady"]["network"]
    (carried,) = [
        each for each in case["steady"] if each["measure"] == "network_bytes_per_payload_byte"
    ]
    assert 1.05 < carried["effect"]["ratio"] < 1.12, "visible also far below the limit"


def test_clients_far_away_are_slower_for_their_connections(
    spark: SparkSession, tmp_path: Path
) -> None:
    document = compared(
        tmp_path,
        "link.delay=0ms,socket.receive.buffer.bytes=102400",
        "link.delay=25ms,socket.receive.buffer.bytes=102400",
        Effort(pairs=3, steady_pairs=0),
        "cluster.testbed.properties.link.rate=20MB/s",
        "workload.producer.rate_bytes_per_s=10000000",
        "workload.producer.batch_size=131072",
        "workload.producer.max_in_flight=100",
        "workload.trial.warmup_s=4",
        "goal.search.load_start_max=4",
    )
    (case,) = document["cases"]
    assert case["capacity"]["effect"]["ratio"] < 0.5
    assert case["cause"]["resource"] == "connection"
    assert case["cause"]["names"] == ["link.delay"]
    assert case["bound"]["b"]["resource"] == "connection"
    assert case["bound"]["a"]["resource"] == "network"
    assert "in flight" in case["bound"]["b"]["evidence"]
