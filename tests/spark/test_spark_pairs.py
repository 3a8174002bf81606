"""The release of Delta for each Spark; a job refuses other pairs before any other check."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from syrupy.assertion import SnapshotAssertion

from jobs.setup import jars
from jobs.setup import releases as spark_pairs
from jobs.setup.ivy import Coordinate
from jobs.setup.places import DATABRICKS
from jobs.setup.releases import PAIRS, SparkBuild, installed_delta, installed_spark, require_pair
from jobs.spark import compatibility
from jobs.spark.compatibility import EXTENSION, require_supported_spark, used_spark
from jobs.spark.session import DELTA
from metrics.common.errors import ConfigError
from tests.support.commands import ROOT


@pytest.mark.parametrize(
    ("spark", "scala", "delta", "artifact"),
    [
        ("3.5.7", "2.12", None, "delta-spark_2.12:3.3.2"),
        ("3.5.0-amzn-1", "2.13", None, "delta-spark_2.13:3.3.2"),
        ("4.0.1", "2.13", None, "delta-spark_2.13:4.0.0"),
        ("4.1.4", "2.13", None, "delta-spark_4.1_2.13:4.4.0"),
        ("3.5.1", "2.12", "3.1.0", "delta-spark_2.12:3.1.0"),
        ("4.0.1", "2.13", "4.0.1", "delta-spark_2.13:4.0.1"),
        ("4.0.1", "2.13", "4.1.0", "delta-spark_4.0_2.13:4.1.0"),
        ("4.1.4", "2.13", "4.1.0", "delta-spark_4.1_2.13:4.1.0"),
    ],
)
def test_each_spark_has_the_delta_that_was_built_for_it(
    spark: str, scala: str, delta: str | None, artifact: str
) -> None:
    """From Delta 4.1 on its name has the release of Spark."""
    found = require_pair(spark, scala, delta).artifact(scala, delta)
    assert str(found) == f"io.delta:{artifact}"


@pytest.mark.parametrize(
    ("spark", "scala", "delta"),
    [
        ("3.4.4", "2.12", None),
        ("4.2.1", "2.13", None),
        ("unknown", None, None),
        ("4.0.1", "2.12", None),
        ("3.5.7", "2.12", "4.4.0"),
        ("4.1.4", None, "4.0.0"),
        ("4.1.4", None, "5.0.0"),
    ],
)
def test_an_unsupported_pair_is_refused_with_the_supported_ones(
    spark: str, scala: str | None, delta: str | None, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as refused:
        require_pair(spark, scala, delta)
    assert str(refused.value) == snapshot
    assert refused.value.exit_code == 2
    for pair in PAIRS:
        assert str(pair) in str(refused.value)


def test_the_extra_has_the_newest_pair() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    (extras,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTRAS"
    ]
    spark = next(text for text in extras["spark"] if text.startswith("pyspark=="))
    assert require_pair(spark.partition("==")[2]) == PAIRS[-1]
    assert f"delta-spark=={PAIRS[-1].delta}" in extras["spark"]


def test_the_releases_of_spark_and_scala_are_read_from_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.7.jar").touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    assert installed_spark() == SparkBuild("3.5.7", "2.12")
    (tmp_path / "jars" / "spark-core_2.12-3.5.7.jar").rename(
        tmp_path / "jars" / "spark-core_next-3.jar"
    )
    with pytest.raises(ConfigError, match="expected a name such as"):
        installed_spark()


@pytest.mark.parametrize(
    ("build", "installed", "name"),
    [
        (("3.5.7", "2.12"), "3.3.2", "delta-3.3.2-spark-3.5-scala-2.12"),
        (("3.5.7", "2.13"), "3.2.1", "delta-3.2.1-spark-3.5-scala-2.13"),
        (("4.0.1", "2.13"), None, "delta-4.0.0-spark-4.0"),
        # Under spark-submit, packages of pip do not count.
        (("3.5.7", "2.12"), "4.4.0", "delta-3.3.2-spark-3.5-scala-2.12"),
    ],
)
def test_the_jars_of_delta_are_those_of_the_running_spark(
    build: tuple[str, str],
    installed: str | None,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[tuple[str, Coordinate]] = []

    def resolved(name: str, wanted: list[Coordinate], **_: object) -> list[Path]:
        requests.extend((name, each) for each in wanted)
        return [tmp_path]

    monkeypatch.setattr(jars, "_resolve", resolved)
    monkeypatch.setattr(jars, "installed_delta", lambda: installed)
    jars.delta_jars.__wrapped__(*build)
    ((found, artifact),) = requests
    assert found == name
    assert artifact.version == name.split("-")[1]


def test_without_the_package_there_is_no_installed_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_delta() == PAIRS[-1].delta
    monkeypatch.setattr(spark_pairs, "DELTA_PACKAGE", "no-such-package-delta-spark")
    assert installed_delta() is None


REFUSED = """
import pyspark, sys
pyspark.__version__ = "3.4.4"
sys.modules["altair"] = None  # nothing is drawn
from jobs.cli import main
codes = []
options, *jobs = sys.argv[1:]
for job in jobs:
    sys.argv = ["redline", *job.split(), "--yes", options]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
sys.exit(max(codes) if min(codes) == max(codes) else f"{codes}")
"""
JOBS = ("find-limit --cluster=calibrated", "sweep acks")


@pytest.mark.computes
def test_jobs_refuse_an_unsupported_spark_before_anything_else(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, f"--out={out}", *JOBS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.partition(" error: ")[2] == second.partition(" error: ")[2] == snapshot
    assert not out.exists()


# --- a session of another release --------------------------------------------------


EXTENSIONS = "spark.sql.extensions"


def jvm_of(scala: str, has_delta: bool) -> Any:
    """A JVM with a version of Scala, and with Delta's classes or without."""
    jvm = mock.MagicMock()
    jvm.scala.util.Properties.versionNumberString.return_value = scala
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.getResource.return_value = "jar:file" if has_delta else None
    return jvm


def activate(monkeypatch: pytest.MonkeyPatch, version: str, jvm: Any, extensions: str = "") -> None:
    settings = {EXTENSIONS: extensions}
    session = SimpleNamespace(version=version, conf=settings, _jvm=jvm)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)


@pytest.mark.parametrize("version", ["3.5.2", "4.0.0", "4.1.4"])
def test_a_session_with_delta_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scala = "2.12.18" if version.startswith("3") else "2.13.16"
    activate(monkeypatch, version, jvm_of(scala, has_delta=True), f"org.example.Mine,{EXTENSION}")
    assert require_supported_spark() == require_pair(version)
    assert used_spark() == version


@pytest.mark.parametrize(("has_delta", "extensions"), [(False, EXTENSION), (True, "")])
def test_a_session_without_delta_is_refused_with_the_settings_to_use(
    has_delta: bool, extensions: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    activate(monkeypatch, "3.5.2", jvm_of("2.12.18", has_delta), extensions)
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
    activate(monkeypatch, "4.0.0", jvm_of("2.13.16", has_delta=False))
    assert require_supported_spark().spark == "4.0"


@pytest.mark.parametrize(("version", "scala"), [("3.4.4", "2.12.17"), ("4.0.0", "2.12.18")])
def test_a_session_of_another_spark_is_refused(
    version: str, scala: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate(monkeypatch, version, jvm_of(scala, has_delta=True), EXTENSION)
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
