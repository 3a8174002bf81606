"""Searches for a planted limit with an exporter without rules, one of them interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.config.yaml_file import parse_map, yaml_text
from jobs.testbed.launcher import cluster_file, start
from jobs.testbed.places import free_ports
from tests.support.commands import RunningCommand, document_in, finished
from tests.support.exporters import Exporter
from tests.support.finished_run import QUICK

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKER = 1
RUN_S = 280.0
"""Deadline for a search without the start of brokers, on two busy cores [s]."""
NO_RULES = "startDelaySeconds: 0\n"
IN_LOWER_CASE = "lowercaseOutputName: true\n"
IDLE = 'kafka_server_KafkaRequestHandlerPool_Count{name="RequestHandlerAvgIdlePercent"}'
READINGS = ("handler_idle_ns", "bytes_in", "messages_in", "uptime_ms", "network_wait_ns", "node_id")
WARM_UP = "--set=cluster.warm_up_max_s="
SEARCH = (
    "find-limit",
    *(each for each in QUICK[2:] if not each.startswith(WARM_UP)),
    f"{WARM_UP}40",  # enough messages to prove the series
    "--yes",
)


@dataclass(frozen=True)
class Exported:
    """A broker with an exporter, and the cluster's file that names no rules.

    Attributes:
        rules: file of the exporter's rules, which it reads again after a change.
    """

    cluster: str
    rules: Path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    folder = tmp_path_factory.mktemp("exported")
    exporter = Exporter("rules", free_ports(1)[0], NO_RULES)
    options = {BROKER: [exporter.java_option(folder)]}
    with start("calibrated", brokers=1, name="exported", node_jvm_options=options) as testbed:
        described = cluster_file(testbed.folder)
        data = dict(parse_map(described.read_text(), str(described)).data)
        del data["jmx"]
        data["metrics"] = {"prometheus": {"endpoints": {BROKER: exporter.address}}}
        cluster = folder / "cluster.yaml"
        cluster.write_text(yaml_text(data))
        yield Exported(f"--cluster={cluster}", folder / "rules.yaml")


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the table `runs`, oldest first."""
    rows = DeltaTable(folder / "out" / "tables" / "runs").to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["at"])


def environment(row: dict[str, Any]) -> dict[str, str]:
    return dict(row["environment"] or {})


def test_doctor_lists_each_reading_with_its_series(exported: Exported, tmp_path: Path) -> None:
    options = ("--workload=calibrated", exported.cluster)
    text = finished("doctor", *options, folder=tmp_path, deadline_s=RUN_S)
    rows = {
        name: line for line in text.splitlines() for name in READINGS if f"reading {name}" in line
    }
    assert rows.keys() == set(READINGS), text
    assert IDLE in rows["handler_idle_ns"]
    assert "do not show" not in text


def test_a_search_with_an_exporter_without_rules_finds_the_planted_limit(
    exported: Exported, tmp_path: Path
) -> None:
    finished(*SEARCH, exported.cluster, folder=tmp_path, deadline_s=RUN_S)
    summary = document_in(tmp_path)
    (point,) = summary["boundaries"]
    assert point["np_sustained"] <= 1.05 * point["np_planted"]
    assert point["np_overloaded"] >= 0.95 * point["np_planted"]
    assert "series" not in (summary["caveat"] or "")  # the warm-up proved them
    assert summary["environment"]["series.handler_idle_ns"] == IDLE
    for row in runs_of(tmp_path):
        series = {name for name in environment(row) if name.startswith("series.")}
        assert {"series.handler_idle_ns", "series.bytes_in", "series.messages_in"} <= series
        assert environment(row)["series.handler_idle_ns"] == IDLE


def test_a_resumed_search_keeps_its_series_or_says_which_changed(
    exported: Exported, tmp_path: Path
) -> None:
    with RunningCommand(*SEARCH, exported.cluster, folder=tmp_path) as command:
        command.await_line("trial-finished trial=1 ", RUN_S)
        command.await_line("trial-started trial=2 ", RUN_S)
        command.signal(signal.SIGINT)
        assert command.wait(RUN_S) == 130, command.text
    (run_id,) = {row["run_id"] for row in runs_of(tmp_path)}
    resumed = (*SEARCH, exported.cluster, f"--resume={run_id}")
    exported.rules.write_text(IN_LOWER_CASE)
    try:
        with RunningCommand(*resumed, folder=tmp_path) as command:
            assert command.wait(RUN_S) == 2, command.text
        moved = f"handler_idle_ns was {IDLE} and is {IDLE.lower().partition('{')[0]}"
        assert moved in command.text
        assert "restore the exporters' rules, or start a new run" in command.text
        assert "trial-started" not in command.text
        assert "Traceback" not in command.text
    finally:
        exported.rules.write_text(NO_RULES)
    with RunningCommand(*resumed, folder=tmp_path) as command:
        command.await_line("trial-started trial=2 ", RUN_S)
        command.signal(signal.SIGINT)
        assert command.wait(RUN_S) == 130, command.text
    assert {environment(row)["series.handler_idle_ns"] for row in runs_of(tmp_path)} == {IDLE}
