"""`redline doctor`: all checks are made, problems are reported, with an exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.checks import survey
from jobs.checks.cluster import broker_findings, metrics_rules, permission_rules
from jobs.checks.finding import Finding, Severity, ok, problem, problems_of, warning
from jobs.cluster.admin import Broker, ClusterInfo
from jobs.cluster.permissions import Permission
from jobs.config import load_cluster
from jobs.console.events import RecordingReporter
from jobs.doctor import doctor
from jobs.features.doctor import examination
from jobs.features.doctor.examination import Examination, machine_findings, place_findings
from jobs.runs.options import RunOptions
from jobs.spark import session as slots
from jobs.testbed import facade
from jobs.testbed.model import TestbedStartError
from metrics.common.errors import ConfigError, RedlineError
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.trial.client import OFFSET_MAX_S
from tests.support.commands import ROOT

BROKER = frozenset({Role.BROKER})
TWO = {1: NodeInfo(1, "4.1.2", BROKER), 2: NodeInfo(2, "4.1.2", BROKER)}
SAMPLES = [BrokerSample(1, 10.0, {"x": 1.0}), BrokerSample(2, 10.0, {"x": 1.0})]


def severities(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(each.check, each.severity.value) for each in findings]


# --- the command ------------------------------------------------------------


def run_with(
    found: list[Finding], monkeypatch: pytest.MonkeyPatch, *options: str
) -> tuple[Result, Any]:
    monkeypatch.setattr(Examination, "make", lambda self: found)
    result = CliRunner().invoke(doctor, options, standalone_mode=False, catch_exceptions=False)
    return result, result.return_value


def test_a_problem_is_exit_code_2_with_its_whole_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, code = run_with([ok("Java", "17"), warning("guards", "half blind")], monkeypatch)
    assert code == 0
    assert "a run would start" in result.output
    assert "warning: guards: half blind" in result.output
    long = "the disk of /data has 0.1 GB free, which is less than what a testbed needs to run"
    found = [ok("Java", "17"), problem("disk", long, "3.0 GB", "free some space")]
    result, code = run_with(found, monkeypatch, "--json", str(tmp_path / "found.json"))
    assert code == ConfigError.exit_code
    assert f"error: disk: {long}; expected 3.0 GB; free some space" in result.output
    assert "a run cannot start because of 1 problem" in result.output
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["ready"] is False
    shown = {"found": long, "expected": "3.0 GB", "remedy": "free some space"}
    assert written["findings"][1] == {"check": "disk", "result": "problem", **shown}


# --- the examination --------------------------------------------------------


JAVA = ok("Java", "17")


def examined(
    monkeypatch: pytest.MonkeyPatch,
    *overrides: str,
    cluster: str = "testbed",
    machine: Finding = JAVA,
) -> list[Finding]:
    """An examination on a machine with this finding, where Spark does not start."""

    def refuse(*_: object, **_named: object) -> None:
        assert machine.severity is Severity.OK, "Spark was started"
        raise RedlineError("Spark did not start")

    monkeypatch.setattr(examination, "open_session", refuse)
    monkeypatch.setattr(examination, "machine_findings", lambda out, cluster: [machine])
    monkeypatch.setattr(examination, "place_findings", lambda out, tables: [])
    options, reporter = RunOptions(Path("out")), RecordingReporter()
    return Examination(cluster, "demo", "default", overrides, options, reporter).make()


REST = [("Java", "ok"), ("cluster", "skipped"), ("Spark", "problem")]


def test_a_wrong_configuration_ends_no_other_check(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, "workload.topic.replication_faktor=1", "goal.search.resolution=7")
    assert severities(found) == [("configuration", "problem")] * 2 + REST
    assert "replication_factor" in found[0].found
    assert "--start" in found[3].found, "a testbed is not started"
    found = examined(monkeypatch, "workload.topic.replication_factor=5")
    assert "topic.replication_factor 5" in problems_of(found)[0].found, "files do not fit"


def test_brokers_that_cannot_be_reached_are_a_problem_and_spark_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gone.yaml"
    file.write_text("bootstrap_servers: ['127.0.0.1:1']\nmetrics: {client_only: true}\n")
    found = examined(monkeypatch, cluster=str(file))
    assert severities(found)[2:] == [("cluster", "problem"), ("Spark", "problem")]
    assert "127.0.0.1:1 accepts no connection" in found[2].found


# --- the machine ------------------------------------------------------------


def test_a_machine_that_meets_the_requirements(tmp_path: Path) -> None:
    found = machine_findings(tmp_path / "not" / "yet", None)
    assert {each.severity for each in found} == {Severity.OK}
    checks = ["Python", "Java", "disk", "memory", "Spark's release", "jars of Delta"]
    assert [each.check for each in found] == checks


def test_an_unsupported_spark_is_one_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked_for = Mock(side_effect=AssertionError("jars were looked for"))
    # Another test of this process may have left its session open.
    session = pytest.importorskip("pyspark.sql").SparkSession
    monkeypatch.setattr(session, "getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.__version__", "3.4.4")
    monkeypatch.setattr("jobs.features.doctor.examination.delta_jars", looked_for)
    (found,) = problems_of(machine_findings(tmp_path, None))
    assert found.check == "Spark's release"
    assert found.sentence.startswith("Spark 3.4.4 is not supported; expected Spark 3.5 (")
    assert problems_of(examined(monkeypatch, machine=found)) == [found], "Spark is not started"


def test_a_testbed_requires_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none_free(count: int) -> list[int]:
        raise TestbedStartError(f"only 0 of {count} ports are free; stop other servers")

    monkeypatch.setattr(facade, "free_ports", none_free)
    monkeypatch.setattr(facade, "kafka_jars", lambda version: [tmp_path / "kafka.jar"])
    wrong = ["cluster.testbed.properties={node.id: 7}"]
    for overrides, lacking in (([], ["ports"]), (wrong, ["jars of Kafka", "ports"])):
        found = machine_findings(tmp_path, load_cluster("testbed", overrides))
        assert [each.check for each in problems_of(found)] == lacking
    monkeypatch.setattr(examination, "java_problem", lambda _: "No java was found. Install a JDK.")
    monkeypatch.setattr(examination, "MIN_DISK_BYTES", 10**18)
    found = problems_of(machine_findings(tmp_path, load_cluster("testbed")))
    assert [each.check for each in found] == ["Java", "disk", "ports"]
    assert found[0].sentence == "No java was found. Install a JDK."


def test_results_need_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not problems_of(place_findings(tmp_path / "not" / "yet", str(tmp_path / "tables")))
    (found,) = problems_of(place_findings(tmp_path / "file" / "out", None))
    refused = f"{tmp_path}/file/out cannot be written, because {tmp_path}/file is no"
    assert found.found.startswith(refused)
    for remote in ("main.redline", "s3a://bucket/tables"):
        assert severities(place_findings(tmp_path, remote))[1] == ("tables", "skipped")


# --- the cluster ------------------------------------------------------------


def test_fenced_brokers_are_a_warning() -> None:
    brokers = (Broker(1, "a", 9092), Broker(2, "b", 9092))
    whole = ClusterInfo("id", brokers, (), (4, 1))
    assert list(broker_findings(whole)) == [ok("brokers", "2 brokers, protocol of Kafka 4.1")]
    (_, fenced) = broker_findings(replace(whole, fenced=(3, 4)))
    assert fenced.severity is Severity.WARNING
    assert fenced.found == "the brokers 3, 4 are fenced, so they are out of service"


def test_missing_samples_missing_beans_and_mixed_versions_are_reported() -> None:
    (fine,) = metrics_rules("driver-jvm", TWO, SAMPLES, 1.0)
    assert fine == ok("brokers' metrics", "2 brokers, Kafka 4.1.2, read by driver-jvm")
    lacking = replace(TWO[2], version="3.9.2", lacks=("log_flush_ms_mean",))
    mute = BrokerSample(2, 10.0, error="connection refused")
    found = metrics_rules("jmxquery", {1: TWO[1], 2: lacking}, [SAMPLES[0], mute], 1.0)
    assert [each.severity.value for each in found] == ["problem", "warning", "ok", "warning"]
    assert found[0].found == "broker 2 returned no sample: connection refused"
    assert "log flush times" in found[1].found
    assert "3.9.2, 4.1.2" in found[3].found


def test_each_missing_permission_is_named_with_its_acl(snapshot: SnapshotAssertion) -> None:
    may = [Permission("delete", "Delete on topics", True), Permission("write", "Write", True)]
    assert permission_rules(may, "redline-") == [ok("permissions", "delete, write")]
    refused = replace(may[1], acl="Write on topics", is_granted=False)
    (lack,) = permission_rules([may[0], refused], "redline-")
    assert lack.sentence == snapshot


# --- its page ---------------------------------------------------------------

PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"within {OFFSET_MAX_S:g} s of the driver's" in PAGE
    steps = ", ".join(f"{each:g}" for each in survey.BOUNDS_S)
    assert f"({steps} s)" in PAGE
    assert f"up to {slots.DEADLINE_S:g} s" in PAGE
    assert f"for {slots.SETTLED_S:g} s" in PAGE
    assert f"within {survey.TIMEOUT_S:g} s" in PAGE
