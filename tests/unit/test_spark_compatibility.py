"""The release of an existing session, and whether it has Delta, are checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from syrupy.assertion import SnapshotAssertion

from jobs.setup.places import DATABRICKS
from jobs.setup.spark_pairs import require_pair
from jobs.spark import compatibility
from jobs.spark.compatibility import EXTENSION, require_supported_spark, used_spark
from jobs.spark.session import DELTA
from metrics.common.errors import ConfigError

EXTENSIONS = "spark.sql.extensions"


class Jvm:
    """A JVM with a version of Scala, and with Delta's classes or without."""

    def __init__(self, scala: str, has_delta: bool) -> None:
        properties = SimpleNamespace(versionNumberString=lambda: scala)
        self.scala = SimpleNamespace(util=SimpleNamespace(Properties=properties))
        resource = "jar:file" if has_delta else None
        loader = SimpleNamespace(getResource=lambda name: resource)
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        threads = SimpleNamespace(currentThread=lambda: thread)
        self.java = SimpleNamespace(lang=SimpleNamespace(Thread=threads))


def activate(monkeypatch: pytest.MonkeyPatch, version: str, jvm: Any, extensions: str = "") -> None:
    settings = {EXTENSIONS: extensions}
    session = SimpleNamespace(version=version, conf=settings, _jvm=jvm)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)


@pytest.mark.parametrize("version", ["3.5.2", "4.0.0", "4.1.4"])
def test_a_session_with_delta_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scala = "2.12.18" if version.startswith("3") else "2.13.16"
    activate(monkeypatch, version, Jvm(scala, has_delta=True), f"org.example.Mine,{EXTENSION}")
    assert require_supported_spark() == require_pair(version)
    assert used_spark() == version


@pytest.mark.parametrize(("has_delta", "extensions"), [(False, EXTENSION), (True, "")])
def test_a_session_without_delta_is_refused_with_the_settings_to_use(
    has_delta: bool, extensions: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    activate(monkeypatch, "3.5.2", Jvm("2.12.18", has_delta), extensions)
    with pytest.raises(ConfigError) as refused:
        require_supported_spark()
    assert str(refused.value) == snapshot
    assert "spark.jars.packages=io.delta:delta-spark_2.12:3.3.2" in str(refused.value)


def test_databricks_and_spark_connect_have_a_delta_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    activate(monkeypatch, "3.5.0", None)
    assert require_supported_spark().spark == "3.5"
    monkeypatch.setenv(DATABRICKS, "17.3")
    activate(monkeypatch, "4.0.0", Jvm("2.13.16", has_delta=False))
    assert require_supported_spark().spark == "4.0"


@pytest.mark.parametrize(("version", "scala"), [("3.4.4", "2.12.17"), ("4.0.0", "2.12.18")])
def test_a_session_of_another_spark_is_refused(
    version: str, scala: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate(monkeypatch, version, Jvm(scala, has_delta=True), EXTENSION)
    with pytest.raises(ConfigError, match=rf"Spark {version} .*is not supported; expected Spark"):
        require_supported_spark()


def test_without_a_session_the_installed_packages_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.__version__", "3.5.7")
    monkeypatch.setattr(compatibility, "installed_delta", lambda: "4.4.0")
    with pytest.raises(ConfigError, match=r"Spark 3\.5\.7 with Delta 4\.4\.0 is not supported"):
        require_supported_spark()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # the cluster's jars count, under spark-submit
    assert require_supported_spark().spark == "3.5"
    assert used_spark() == "3.5.7"


def test_the_extension_is_that_of_the_projects_sessions() -> None:
    assert DELTA[EXTENSIONS] == EXTENSION
