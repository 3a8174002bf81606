"""Tables on object stores: places where two runs lose commits are refused before any load."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

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
        paths = {f"{each.replace('.', '/')}.class": "jar" for each in classes}
        jvm = mock.MagicMock()
        jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri().getScheme.return_value = default
        thread = jvm.java.lang.Thread.currentThread()
        thread.getContextClassLoader().getResource = paths.get
        self.conf = settings or {}
        self.sparkContext = mock.MagicMock(_jvm=jvm)
        self.sparkContext.getConf().getAll.return_value = list(self.conf.items())
        self.catalog = self
        self._schemas = schemas or {}

    def getDatabase(self, name: str) -> Any:  # noqa: N802 - Spark's name
        if name not in self._schemas:
            raise AnalysisException(f"no schema {name}")
        return SimpleNamespace(locationUri=self._schemas[name])


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


HDFS = "org.apache.spark.sql.delta.storage.HDFSLogStore"
SCHEMAS = {"redline": ON_S3, "main.redline": "abfss://files@account/redline"}
WAREHOUSE = "spark.sql.warehouse.dir"


@pytest.mark.parametrize(
    ("place", "session"),
    [
        ("/var/lib/redline/tables", {}),
        ("./tables", {}),
        ("file:///tables", {}),
        ("hdfs://name/tables", {}),
        ("hdfs:///tables", {}),
        ("gs://bucket/tables", {}),
        ("abfss://files@account.dfs.core.windows.net/tables", {}),
        ("dbfs:/redline/tables", {}),
        ("/redline/tables", {"default": "hdfs"}),
        ("main.redline", {"schemas": SCHEMAS}),
        ("main.other", {"schemas": SCHEMAS, "default": "s3a"}),
        ("new", {"settings": {WAREHOUSE: "/warehouse"}}),
        (ON_S3, {"settings": {"spark.delta.logStore.s3a.impl": SAFE}}),
    ],
)
def test_stores_with_atomic_commits_pass(place: str, session: dict[str, Any]) -> None:
    required(place, **session)


@pytest.mark.parametrize(
    ("place", "session", "begin"),
    [
        ("/redline/tables", {"default": "s3a"}, "/redline/tables is on s3a:"),
        ("redline", {"schemas": SCHEMAS}, f"{ON_S3} is on s3a:"),
        ("new", {"settings": {WAREHOUSE: "s3a://b/warehouse"}}, "s3a://b/warehouse is on s3a:"),
        (
            ON_S3,
            {"settings": {"spark.delta.logStore.s3a.impl": SAFE}, "classes": ()},
            f"Delta's LogStore {SAFE} is in no jar",
        ),
    ],
)
def test_a_place_without_them_is_named_as_the_session_finds_it(
    place: str, session: dict[str, Any], begin: str
) -> None:
    text = refusal(place, **session)
    assert text.startswith(begin)
    assert "--packages" in text or "classes" not in session


def test_the_log_store_in_use_is_named() -> None:
    settings = {"spark.delta.logStore.s3a.impl": HDFS}
    assert "HDFSLogStore can lose commits" in refusal(ON_S3, settings=settings)


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
