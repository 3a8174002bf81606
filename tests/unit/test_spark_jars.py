"""The places of Spark's own jars."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.setup.ivy import spark_jar
from metrics.common.errors import ConfigError


def package_at(monkeypatch: pytest.MonkeyPatch, *places: str) -> None:
    found = SimpleNamespace(submodule_search_locations=list(places))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)


def jar(folder: Path, name: str) -> Path:
    path = folder / "jars" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_pip_package_has_the_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    jar(tmp_path / "home", "ivy-9.9.jar")
    own = jar(tmp_path / "pyspark", "ivy-2.5.3.jar")
    package_at(monkeypatch, str(tmp_path / "pyspark"))
    assert spark_jar("ivy") == own


def test_under_spark_submit_the_jars_are_in_its_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package_at(monkeypatch, str(tmp_path / "lib" / "pyspark.zip" / "pyspark"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    own = jar(tmp_path, "ivy-2.5.3.jar")
    assert spark_jar("ivy") == own


def test_the_error_without_either_names_the_searched_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package_at(monkeypatch, str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"SPARK_HOME \(not set\); expected it in one of them"):
        spark_jar("ivy")
