"""A hunt for the secrets of a secured cluster in all that a run starts and leaves.

tests/kafka/test_security_on_brokers.py has a short one, in which the run is our own process.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import trustme

from jobs.config.source import parse_map, yaml_text
from jobs.setup.places import CACHE_VARIABLE
from jobs.testbed.client_access import cluster_text
from jobs.testbed.handle import Testbed
from jobs.testbed.keys import SecurityFiles, key_and_certificates
from jobs.testbed.launcher import start
from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore
from tests.support.commands import ROOT, RunningCommand
from tests.support.notebook_kernel import execute
from tests.support.processes import seen_of, words_of
from tests.support.served_exporter import Exporter, serving
from tests.support.spark_submission import Submitter, executors_by_worker
from tests.support.wheel import built_wheel, python_without_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD, TOKEN = "KAFKA_PASSWORD_OF_A_TEST", "TOKEN_OF_A_TEST"
SECRET_TOKEN = "eyJhbGciOi.token-of-node-exporter"
OPTIONS = (
    "--workload", "1kB", "--np", "2", "--trials", "1", "--yes",
    "--set", "workload.topic.replication_factor=1", "--set", "workload.trial.measure_s=15",
    "--set", "cluster.warm_up_max_s=0",
)  # fmt: skip
HOST_PAGE = 'node_procs_running 2\nnode_cpu_seconds_total{cpu="0",mode="idle"} 7\n'
BEGUN_S = 200.0
"""A Spark session and the way to the first trial, on two busy cores [s]."""


@dataclass(frozen=True)
class Secured:
    """A secured testbed, a cluster's file for it, and the secrets that this points at."""

    testbed: Testbed
    cluster: Path
    exporter: Exporter
    secrets: dict[str, str]

    def found_in(self, told: str | bytes) -> list[str]:
        """Names of the secrets that are in a text."""
        text = told.decode("utf-8", errors="replace") if isinstance(told, bytes) else told
        return [name for name, secret in self.secrets.items() if secret in text]

    def holders(self, folder: Path) -> list[Path]:
        """The files of a folder that hold one."""
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files, folder
        return [path for path in files if self.found_in(path.read_bytes())]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("hunted")
    with (
        node_exporter(folder) as (exporter, cafile),
        start("secured", brokers=1, spark_workers=1, name="hunted") as testbed,
    ):
        cluster = parse_map(cluster_text(testbed.folder, testbed.state), "cluster").data
        for section in ("security", "jmx"):
            cluster[section]["password_from"] = f"env:{PASSWORD}"
        hosts = {"port": exporter.port, "token_from": f"env:{TOKEN}"}
        cluster["metrics"] = {"host": {"prometheus": {**hosts, "tls": True, "cafile": cafile}}}
        path = folder / "brokers.yaml"
        path.write_text(yaml_text(cluster))
        password = SecurityFiles(testbed.folder).password.read_text().strip()
        yield Secured(testbed, path, exporter, {PASSWORD: password, TOKEN: SECRET_TOKEN})


@contextmanager
def node_exporter(folder: Path) -> Iterator[tuple[Exporter, str]]:
    """One behind TLS that wants the token, and the file of its authority."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (folder / "node.pem").write_bytes(key_and_certificates(authority.issue_cert("127.0.0.1")))
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    context.load_cert_chain(folder / "node.pem")
    exporter = Exporter(HOST_PAGE)
    exporter.login = f"Bearer {SECRET_TOKEN}"
    with serving(exporter, context):
        yield exporter, str(folder / "ca.pem")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_secret_is_in_what_a_run_starts_or_leaves(
    secured: Secured, tmp_path: Path, spark: SparkSession
) -> None:
    events, conf = tmp_path / "events", tmp_path / "conf"
    for folder in (events, conf):
        folder.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\n"
        f"spark.eventLog.dir {events.as_uri()}\n"
    )
    environ = {
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(conf),
        **secured.secrets,
    }
    arguments = ("traffic", "--cluster", str(secured.cluster), *OPTIONS)
    with RunningCommand(*arguments, folder=tmp_path, environ=environ) as command:
        command.await_line("trial-started trial=1 ", BEGUN_S)
        seen = dict(seen_of(command.family()))
        assert command.wait(BEGUN_S) == 0, command.text
    assert secured.exporter.paths, "the token was used"
    assert any("java" in words for words in seen), "Spark was looked at"
    assert len(seen) >= 2
    assert [words for words, told in seen.items() if secured.found_in(told)] == []
    assert all("PATH=" in told or "'PATH'" in told for told in seen.values()), "all of it was seen"
    assert secured.found_in(command.text) == []
    assert "spark.eventLog.dir" in text_below(events), "Spark's settings are in its event log"
    require_nothing_left(secured, tmp_path, spark)
    (run_id,) = (path.parent.name for path in (tmp_path / "out").glob("*/summary.json"))
    where = str(tmp_path / "out" / "tables")
    parameters = {"where": where, "run_id": run_id, "trial": 1}
    shown = execute(["trial"], parameters, tmp_path)
    assert "of run" in shown["trial"].html
    assert secured.found_in(shown["trial"].html) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_secret_is_in_what_a_submitted_run_starts_or_leaves(
    secured: Secured, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    wheel = built_wheel(tmp_path_factory.mktemp("wheel"))
    python = python_without_project(tmp_path_factory.mktemp("python"))
    submitter = Submitter(secured.testbed, wheel, python, tmp_path)
    submitted = submitter.submit(
        "traffic", *OPTIONS, cluster=secured.cluster, secrets=secured.secrets
    )
    with submitted as command:
        command.await_line("trial-started trial=1 ", BEGUN_S)
        (executor,) = executors_by_worker(secured.testbed)[1]
        away = [executor, *executor.children(recursive=True)]
        on_executors = dict(seen_of(away))
        # Who submits gives its environment to Spark's JVM, and that to the driver: only their
        # command lines are ours.
        own = [psutil.Process(command.pid), *command.family()]
        words = [words_of(process) for process in own]
        assert command.wait(BEGUN_S) == 0, command.text
    assert any("pyspark.daemon" in told for told in on_executors), "tasks were looked at"
    assert [told for told in on_executors if secured.found_in(on_executors[told])] == []
    assert any("SparkSubmit" in told for told in words)
    assert any("traffic.py" in told and "SparkSubmit" not in told for told in words)
    assert secured.found_in("\n".join(words)) == []
    assert secured.found_in(command.text) == []
    assert "SparkListenerEnvironmentUpdate" in text_below(submitter.events)
    require_nothing_left(secured, tmp_path, spark)
    logs = [path for path in secured.testbed.folder.rglob("std*") if path.is_file()]
    assert any(path.name == "stderr" for path in logs), "what executors said"
    assert [path for path in logs if secured.found_in(path.read_bytes())] == []


def text_below(folder: Path) -> str:
    """What the files of a folder hold, such as an event log, which Spark writes in parts."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def require_nothing_left(secured: Secured, folder: Path, spark: SparkSession) -> None:
    """No file of a run and no table holds a secret, and the run is there."""
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"summary.json", "report.html"} <= left
    assert secured.holders(folder) == []
    tables = TableStore(spark, str(folder / "out" / "tables"))
    rows = {table: str(tables.read(table).collect()) for table in SCHEMAS}
    assert rows["runs"].count("Row(") == 2
    for name in secured.secrets:
        assert f"env:{name}" in rows["runs"], "the reference is kept, and no secret"
    assert rows["hosts"].count("Row(") > 1, "hosts were read"
    assert [table for table, text in rows.items() if secured.found_in(text)] == []


CRASH = """
from jobs.cli import main
from jobs.config.security import Security

read = Security.client_kwargs

def broken(self):
    options = read(self)
    raise LookupError(f"planted beside {len(options)} options")

Security.client_kwargs = broken
main()
"""


@pytest.mark.together
def test_an_unexpected_error_beside_secrets_keeps_none(tmp_path: Path) -> None:
    secret = "hunter2-of-a-crash"
    (tmp_path / "brokers.yaml").write_text(
        "bootstrap_servers: ['127.0.0.1:1']\n"
        "metrics: {client_only: true}\n"
        "security: {protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN,\n"
        f"  username_from: 'env:{PASSWORD}', password_from: 'env:{PASSWORD}'}}\n"
    )
    environ = {"PYTHONPATH": str(ROOT), PASSWORD: secret, CACHE_VARIABLE: str(tmp_path / "cache")}
    program = (sys.executable, "-c", CRASH)
    arguments = ("cleanup", "--cluster", "brokers.yaml", "--yes")
    with RunningCommand(*arguments, folder=tmp_path, program=program, environ=environ) as command:
        assert command.wait(60.0) == 1, command.text
    assert "planted beside 4 options" in command.text
    (kept,) = tmp_path.rglob("last-error.txt")
    assert "client_kwargs" in kept.read_text(encoding="utf-8")
    assert secret not in command.text
    assert [p for p in tmp_path.rglob("*") if p.is_file() and secret in p.read_text()] == []
