"""A search for the secrets of a secured cluster in all processes and files of a run.

tests/kafka/test_security_on_brokers.py has a short form, with the run in the test's own process.
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

from jobs.config.yaml_file import parse_map, yaml_text
from jobs.setup.places import CACHE_VARIABLE
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_text, start
from jobs.testbed.listeners import SecurityFiles, key_and_certificates
from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore
from tests.support.commands import ROOT, RunningCommand, finished
from tests.support.notebook_kernel import execute
from tests.support.processes import command_line_of, environments_of
from tests.support.served_exporter import Exporter, serving
from tests.support.spark_submission import Submitter, executors_by_worker

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
"""Deadline for a Spark session and the steps before the first trial, on two busy cores [s]."""


@dataclass(frozen=True)
class Secured:
    """A secured testbed, its cluster file, and the secrets that the file refers to."""

    testbed: Testbed
    cluster: Path
    exporter: Exporter
    secrets: dict[str, str]

    def found_in(self, content: str | bytes) -> list[str]:
        """Names of the secrets in a text."""
        text = content.decode("utf-8", errors="replace") if isinstance(content, bytes) else content
        return [name for name, secret in self.secrets.items() if secret in text]

    def holders(self, folder: Path) -> list[Path]:
        """The files of a folder that contain a secret."""
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
    """An exporter behind TLS that requires the token, and the file of its authority."""
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
def test_no_secret_is_in_processes_and_files_of_a_run(
    secured: Secured, tmp_path: Path, spark: SparkSession
) -> None:
    events, conf = tmp_path / "events", tmp_path / "conf"
    for folder in (events, conf):
        folder.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\n"
        f"spark.eventLog.dir {events.as_uri()}\n"
    )
    environ = {"PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(conf), **secured.secrets}
    arguments = ("traffic", "--cluster", str(secured.cluster), *OPTIONS)
    with RunningCommand(*arguments, folder=tmp_path, environ=environ) as command:
        command.await_line("trial-started trial=1 ", BEGUN_S)
        seen = dict(environments_of(command.family()))
        assert command.wait(BEGUN_S) == 0, command.text
    assert secured.exporter.paths, "the token was used"
    assert any("java" in words for words in seen), "Spark was examined"
    assert len(seen) >= 2
    assert [words for words, text in seen.items() if secured.found_in(text)] == []
    assert all("PATH=" in text or "'PATH'" in text for text in seen.values()), "all were readable"
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
def test_no_secret_is_in_processes_and_files_of_a_submitted_run(
    secured: Secured, wheel: Path, bare_python: Path, tmp_path: Path, spark: SparkSession
) -> None:
    submitter = Submitter(secured.testbed, wheel, bare_python, tmp_path)
    submitted = submitter.submit(
        "traffic", *OPTIONS, cluster=secured.cluster, secrets=secured.secrets
    )
    with submitted as command:
        command.await_line("trial-started trial=1 ", BEGUN_S)
        (executor,) = executors_by_worker(secured.testbed)[1]
        executor_processes = [executor, *executor.children(recursive=True)]
        on_executors = dict(environments_of(executor_processes))
        # The submitter gives its environment to Spark's JVM, and that to the driver, so only their
        # command lines are checked.
        own = [psutil.Process(command.pid), *command.family()]
        words = [command_line_of(process) for process in own]
        assert command.wait(BEGUN_S) == 0, command.text
    assert any("pyspark.daemon" in line for line in on_executors), "tasks were examined"
    assert [line for line in on_executors if secured.found_in(on_executors[line])] == []
    assert any("SparkSubmit" in line for line in words)
    assert any("traffic.py" in line and "SparkSubmit" not in line for line in words)
    assert secured.found_in("\n".join(words)) == []
    assert secured.found_in(command.text) == []
    assert "SparkListenerEnvironmentUpdate" in text_below(submitter.events)
    require_nothing_left(secured, tmp_path, spark)
    logs = [path for path in secured.testbed.folder.rglob("std*") if path.is_file()]
    assert any(path.name == "stderr" for path in logs), "the output of executors"
    assert [path for path in logs if secured.found_in(path.read_bytes())] == []


def text_below(folder: Path) -> str:
    """The texts of all files of a folder, such as the parts of Spark's event log."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def require_nothing_left(secured: Secured, folder: Path, spark: SparkSession) -> None:
    """Check that no file of a run and no table contains a secret, and that the run is stored."""
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"summary.json", "report.html"} <= left
    assert secured.holders(folder) == []
    tables = TableStore(spark, str(folder / "out" / "tables"))
    rows = {table: str(tables.read(table).collect()) for table in SCHEMAS}
    assert rows["runs"].count("Row(") == 2
    for name in secured.secrets:
        assert f"env:{name}" in rows["runs"], "the reference instead of the secret"
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
def test_the_report_of_an_unexpected_error_has_no_secret(tmp_path: Path) -> None:
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
    text = finished(
        *arguments, folder=tmp_path, program=program, environ=environ, deadline_s=60.0, code=1
    )
    assert "planted beside 4 options" in text
    (kept,) = tmp_path.rglob("last-error.txt")
    assert "client_kwargs" in kept.read_text(encoding="utf-8")
    assert secret not in text
    assert [p for p in tmp_path.rglob("*") if p.is_file() and secret in p.read_text()] == []
