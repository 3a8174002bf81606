"""Comparisons on real brokers: of the same brokers, and behind links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.connect import connect
from jobs.config.link import Link
from jobs.console.events import PhaseStarted, RecordingReporter, TrialFinished
from jobs.engine.network.options import NAME_PREFIX as PREFIX
from jobs.features.compare.answer import Effort
from jobs.features.compare.comparison_run import ComparisonRun
from jobs.features.compare.sides import load_sides
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from jobs.testbed.planted_devices import link_problem
from metrics.common.errors import NoConclusionError, RegressionError
from metrics.comparing.effects import Conclusion, Side
from metrics.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT = (
    "workload.topic.replication_factor=1",
    "workload.trial.warmup_s=0.5",
    "workload.trial.measure_s=2",
    "cluster.warm_up_max_s=0",
    "goal.search.load_start_max=128",
)


pytestmark = pytest.mark.long


def test_both_sides_are_loaded_in_turns_in_one_session_and_kept_as_runs(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    clusters = dict.fromkeys(Side, str(cluster_file(kafka_testbed.folder)))
    sides = load_sides(clusters, "testbed", "1kB", "default", SHORT)
    reporter = RecordingReporter()
    tables = str(tmp_path / "tables")
    effort = Effort(pairs=3, steady_pairs=0)
    order = RunOrder(tmp_path, tables, reporter=reporter, run_id="pairs")
    # The time ends when the load is found, so there is no answer, and a message says so.
    with pytest.raises(NoConclusionError, match="too few pairs"):
        execute(ComparisonRun(sides, effort, 0.05, budget_s=0.1), order)

    document = json.loads((order.folder / "compare.json").read_text())
    (case,) = document["cases"]
    assert case["conclusion"] == Conclusion.NO_ANSWER.value
    assert (document["status"], document["exit_code"]) == ("no conclusion", 3)
    assert document["differences"] == []
    assert case["notes"] == ["the time budget ended after 0 of 3 pairs"]
    page = (order.folder / "compare.html").read_text(encoding="utf-8")
    assert "The run ended with the status: no conclusion." in page
    assert page.count("The budget ended after 0 of 3 pairs.") == 1

    finished = [event for event in reporter.events if isinstance(event, TrialFinished)]
    labels = [event.reason[:2] for event in finished]
    assert labels == sorted(labels)
    assert set(labels) == {"A:", "B:"}
    assert [event.trial.number for event in finished] == list(range(1, len(finished) + 1))
    phases = [event.text for event in reporter.events if isinstance(event, PhaseStarted)]
    assert sum("starting Spark" in text for text in phases) == 1
    kept = TableStore(spark, tables)
    numbers = [row.trial for side in "ab" for row in kept.trials(f"pairs-{side}").collect()]
    assert sorted(numbers) == list(range(1, len(finished) + 1))
    ended = {row.run_id: row.status for row in kept.runs().collect()}
    assert ended == dict.fromkeys(("pairs-a", "pairs-b"), "no conclusion")
    with connect(kafka_testbed.bootstrap_servers) as admin:
        left = [name for name in admin.client.list_topics() if name.startswith(f"{PREFIX}pairs")]
    assert left == []
    assert spark.range(1).count() == 1  # the session existed before, and stays


LACKING = link_problem(Link(rate="20MB/s"))

LINKED = (
    "cluster.testbed.profile=default",
    "cluster.testbed.brokers=1",
    "cluster.warm_up_max_s=10",
    "workload.topic.replication_factor=1",
    "workload.message_bytes=[100]",
)


def compared(folder: Path, a: str, b: str, effort: Effort, *overrides: str) -> dict[str, Any]:
    """The document compare.json of a comparison in which B is the worse side."""
    sides = load_sides({Side.A: a, Side.B: b}, "testbed", "1kB", "default", [*LINKED, *overrides])
    order = RunOrder(folder, reporter=RecordingReporter(), run_id="links")
    assert execute(ComparisonRun(sides, effort, 0.05), order) == RegressionError.exit_code
    document: dict[str, Any] = json.loads((order.folder / "compare.json").read_text())
    return document


@pytest.mark.skipif(LACKING is not None, reason=LACKING or "")
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
    assert case["cause"]["text"].endswith("network limits B")
    for side in ("a", "b"):
        bound = case["bound"][side]
        assert bound["resource"] == "network"
        assert "interface link0" in bound["evidence"]
        assert bound["used_saturated"]["network"] > 0.9 > bound["used_steady"]["network"]
    (carried,) = [
        each for each in case["steady"] if each["measure"] == "network_bytes_per_payload_byte"
    ]
    assert 1.05 < carried["effect"]["ratio"] < 1.12, "visible also far below the limit"


@pytest.mark.skipif(LACKING is not None, reason=LACKING or "")
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
