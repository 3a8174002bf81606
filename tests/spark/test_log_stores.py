"""Tables on object stores: places where two runs lose commits are refused before any load."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException

from jobs.checks.finding import Severity
from jobs.console.events import RecordingReporter
from jobs.features.doctor import examination
from jobs.features.doctor.examination import Examination
from jobs.runs.options import RunOptions
from jobs.setup.places import DATABRICKS
from jobs.spark.compatibility import (
    SAFE,
    SINGLE_DRIVER,
    commit_problem,
    require_safe_commits,
    scheme_of,
)
from jobs.trials.context import Session
from metrics.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

    from jobs.trials.control_server import ControlServer

ON_S3 = "s3a://bucket/redline"
TABLE_KEY = "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName"


class FakeSpark:
    """A session: its settings, its default file system, the places of its schemas and its jars."""

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        default: str = "file",
        schemas: dict[str, str] | None = None,
        classes: tuple[str, ...] = (SAFE,),
    ) -> None:
        files = SimpleNamespace(
            getDefaultUri=lambda _conf: SimpleNamespace(getScheme=lambda: default)
        )
        hadoop = SimpleNamespace(fs=SimpleNamespace(FileSystem=files))
        loader = SimpleNamespace(
            getResource=lambda path: path if path in [_path(each) for each in classes] else None
        )
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        java = SimpleNamespace(
            lang=SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        )
        self.sparkContext = SimpleNamespace(
            getConf=lambda: SimpleNamespace(getAll=lambda: list((settings or {}).items())),
            _jvm=SimpleNamespace(
                org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)), java=java
            ),
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
        )
        self.conf = settings or {}
        self.catalog = self
        self._schemas = schemas or {}

    def getDatabase(self, name: str) -> Any:  # noqa: N802 - Spark's name
        if name not in self._schemas:
            raise AnalysisException(f"no schema {name}")
        return SimpleNamespace(locationUri=self._schemas[name])


def _path(name: str) -> str:
    return f"{name.replace('.', '/')}.class"


def required(tables: str, **session: Any) -> None:
    require_safe_commits(cast("SparkSession", FakeSpark(**session)), tables)


def refusal(tables: str, **session: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        required(tables, **session)
    assert refused.value.exit_code == 2
    return str(refused.value)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_s3_is_refused_with_the_settings_to_use(scheme: str) -> None:
    text = refusal(f"{scheme}://bucket/redline")
    assert text.startswith(f"{scheme}://bucket/redline ")
    assert f"spark.delta.logStore.{scheme.lower()}.impl={SAFE}" in text
    assert TABLE_KEY in text
    assert "S3DynamoDBLogStore.ddb.region" in text
    assert "--tables" in text
    assert f"{SINGLE_DRIVER}=true" in text


def test_the_whole_sentence(snapshot: SnapshotAssertion) -> None:
    assert refusal(ON_S3) == snapshot


@pytest.mark.parametrize(
    "place",
    [
        "/var/lib/redline/tables",
        "./tables",
        "file:///tables",
        "hdfs://name/tables",
        "hdfs:///tables",
        "gs://bucket/tables",
        "abfss://files@account.dfs.core.windows.net/tables",
        "dbfs:/redline/tables",
    ],
)
def test_stores_with_atomic_commits_pass(place: str) -> None:
    required(place)


@pytest.mark.parametrize(
    ("settings", "is_safe"),
    [
        ({"spark.delta.logStore.s3a.impl": SAFE}, True),
        ({"delta.logStore.s3a.impl": SAFE}, True),
        ({"spark.delta.logStore.class": SAFE}, True),
        ({"spark.delta.logStore.s3a.impl": "com.example.OurLogStore"}, True),
        ({"spark.delta.logStore.s3.impl": SAFE}, False),
        ({"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"}, False),
        ({"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.HDFSLogStore"}, False),
        ({SINGLE_DRIVER: "true"}, True),
        ({SINGLE_DRIVER: "false"}, False),
    ],
)
def test_the_log_store_is_the_one_that_delta_chooses(
    settings: dict[str, str], is_safe: bool
) -> None:
    assert (commit_problem(ON_S3, "s3a", settings) is None) is is_safe


def test_the_log_store_in_use_is_named() -> None:
    settings = {"spark.delta.logStore.s3a.impl": "org.apache.spark.sql.delta.storage.HDFSLogStore"}
    assert "HDFSLogStore can lose commits" in refusal(ON_S3, settings=settings)


def test_a_log_store_whose_jar_is_missing_is_named() -> None:
    settings = {"spark.delta.logStore.s3a.impl": SAFE}
    required(ON_S3, settings=settings)
    text = refusal(ON_S3, settings=settings, classes=())
    assert text.startswith(f"Delta's LogStore {SAFE} is in no jar")
    assert "--packages" in text


def test_a_path_without_a_scheme_is_on_the_default_file_system() -> None:
    assert refusal("/redline/tables", default="s3a").startswith("/redline/tables is on s3a:")
    required("/redline/tables", default="hdfs")


def test_a_schema_is_where_its_catalog_puts_it() -> None:
    schemas = {"redline": ON_S3, "main.redline": "abfss://files@account/redline"}
    assert refusal("redline", schemas=schemas).startswith(f"{ON_S3} is on s3a:")
    required("main.redline", schemas=schemas)
    required("main.other", schemas=schemas, default="s3a")
    on_s3 = {"spark.sql.warehouse.dir": "s3a://bucket/warehouse"}
    assert refusal("new", settings=on_s3).startswith("s3a://bucket/warehouse is on s3a:")
    required("new", settings={"spark.sql.warehouse.dir": "/warehouse"})


def test_databricks_has_a_commit_service_unless_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABRICKS, "17.3")
    required(ON_S3)
    off = {"spark.databricks.delta.multiClusterWrites.enabled": "false"}
    assert "multiClusterWrites.enabled is false" in refusal(ON_S3, settings=off)


@pytest.mark.parametrize(
    ("address", "scheme"),
    [("S3A://b", "s3a"), ("/s3a:/x", ""), ("tables", ""), ("hdfs:/x", "hdfs")],
)
def test_the_scheme_of_an_address(address: str, scheme: str) -> None:
    assert scheme_of(address) == scheme


def test_a_session_opens_no_tables_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job that writes gets its tables from `Session.tables`."""
    monkeypatch.setattr("jobs.trials.context.TableStore", pytest.fail)
    session = Session(
        cast("SparkSession", FakeSpark(default="s3n")), cast("ControlServer", object())
    )
    for place in (ON_S3, "/redline/tables"):
        with pytest.raises(ConfigError, match="can lose commits"):
            session.tables(place)


@pytest.mark.parametrize(("tables", "is_safe"), [(ON_S3, False), ("/tables", True), (None, True)])
def test_doctor_reports_it(
    monkeypatch: pytest.MonkeyPatch, tables: str | None, is_safe: bool
) -> None:
    session = SimpleNamespace(spark=FakeSpark())
    monkeypatch.setattr(examination, "open_session", lambda *_, **_named: session)
    monkeypatch.setattr(examination, "machine_findings", lambda *_: [])
    monkeypatch.setattr(Examination, "_executors", lambda *_: None)
    options, reporter = RunOptions(Path("out"), tables), RecordingReporter()
    found = Examination("testbed", "demo", "default", (), options, reporter).make()
    (commits,) = [each for each in found if each.check == "commits to tables"]
    assert (commits.severity is Severity.OK) is is_safe
    assert is_safe or "S3SingleDriverLogStore can lose commits" in commits.found
