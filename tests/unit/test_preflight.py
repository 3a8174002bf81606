"""Each missing requirement of the machine is one sentence with its remedy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jobs.setup import preflight
from jobs.setup.preflight import Machine
from jobs.spark.compatibility import require_supported_spark
from metrics.common.errors import ConfigError


def _java(folder: Path, script: str) -> dict[str, str]:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o755)
    return {"PATH": f"{launcher.parent}:{os.defpath}"}


def _says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-04-16' >&2"


def _machine(tmp_path: Path, environ: dict[str, str] | None = None) -> Machine:
    return Machine(environ=environ or {}, proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")


def test_the_version_of_java_is_read_and_one_that_does_not_suit_is_named(tmp_path: Path) -> None:
    for text, version in (("1.8.0_402", 8), ("17.0.15", 17), ("22.0.2", 22), ("25", 25)):
        environ = _java(tmp_path / text, _says(text))
        assert preflight.java_version(preflight.java_command(environ)) == version
        problem = preflight.java_problem(_machine(tmp_path, environ))
        assert (problem is None) == (version in (17, 22))
    problem = preflight.java_problem(_machine(tmp_path, _java(tmp_path, _says("11.0.22"))))
    assert problem is not None
    assert problem.startswith(f"{tmp_path}/bin/java is Java 11: redline needs 17 or newer.")
    assert "JAVA_HOME" in problem and "\n" not in problem
    stub = _java(tmp_path / "stub", "echo 'Unable to locate a Java Runtime.'; exit 1")
    problem = preflight.java_problem(_machine(tmp_path, stub))
    assert problem is not None and ": Unable to locate a Java Runtime. Install" in problem


@pytest.mark.parametrize("text", ["23", "25.0.1"])
def test_a_java_without_a_security_manager_is_refused_before_a_session(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, _says(text))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    # Another test of this process may have a session, whose Java is not looked at.
    session = pytest.importorskip("pyspark.sql").SparkSession
    monkeypatch.setattr(session, "getActiveSession", lambda: None)
    with pytest.raises(ConfigError, match=rf"is Java {text[:2]}: Spark needs Java 22 or older"):
        require_supported_spark()


def test_a_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:15002")
    with pytest.raises(ConfigError, match=r"Spark Connect .* expected a classic session"):
        require_supported_spark()


def test_java_home_takes_precedence_and_must_be_right(tmp_path: Path) -> None:
    _java(tmp_path / "home", _says("21.0.2"))
    environ = {**_java(tmp_path / "path", _says("11")), "JAVA_HOME": str(tmp_path / "home")}
    assert preflight.java_command(environ) == str(tmp_path / "home" / "bin" / "java")
    with pytest.raises(ConfigError, match="JAVA_HOME is /nowhere, but there is no"):
        preflight.java_command({**environ, "JAVA_HOME": "/nowhere"})


def test_a_too_old_python() -> None:
    text = "Python 3.9 is too old: redline needs 3.10 or newer. Install"
    assert (preflight.python_problem((3, 9)) or "").startswith(text)
    assert preflight.python_problem((3, 10)) is None


def test_a_python_without_venv(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preflight.venv_problem() is None
    monkeypatch.setattr("importlib.util.find_spec", {"venv": object()}.get)
    problem = preflight.venv_problem() or ""
    assert "lacks the module ensurepip" in problem
    assert f"python{sys.version_info[0]}.{sys.version_info[1]}-venv" in problem


def test_too_little_disk_names_the_folder_that_exists(tmp_path: Path) -> None:
    assert preflight.disk_problem(tmp_path / "not" / "yet", needed_bytes=1) is None
    problem = preflight.disk_problem(tmp_path / "not" / "yet", needed_bytes=10**18) or ""
    assert problem.startswith(f"The disk of {tmp_path} has ")
    assert "redline needs 1000000000.0 GB" in problem


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_available_memory_is_read_from_the_kernel(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    _write(machine.proc / "meminfo", "MemTotal: 9999999 kB\nMemAvailable:    1000000 kB\n")
    assert preflight.available_memory_bytes(machine) == 1_024_000_000
    problem = preflight.memory_problem(machine)
    assert problem is not None
    assert problem.startswith("1.0 GB of memory is available: the brokers and Spark need 4.0 GB.")
    _write(machine.proc / "meminfo", "MemAvailable:    8000000 kB\n")
    _write(machine.cgroup / "memory.max", "max\n")
    _write(machine.cgroup / "memory.current", "3000000000\n")
    assert preflight.available_memory_bytes(machine) == 8_192_000_000, "a container without limit"
    assert preflight.memory_problem(machine) is None


@pytest.mark.parametrize("own", ["", "service.slice/"])
def test_a_container_may_leave_less_and_its_page_cache_is_free(tmp_path: Path, own: str) -> None:
    machine = _machine(tmp_path)
    _write(machine.proc / "meminfo", "MemAvailable:    99000000 kB\n")
    _write(machine.proc / "self" / "cgroup", f"0::/{own}\n")
    _write(machine.cgroup / own / "memory.max", "5000000000\n")
    _write(machine.cgroup / own / "memory.current", "3000000000\n")
    _write(machine.cgroup / own / "memory.stat", "anon 1\ninactive_file 500000000\n")
    assert preflight.available_memory_bytes(machine) == 2_500_000_000
    _write(machine.cgroup / "memory.max", "4000000000\n")
    _write(machine.cgroup / "memory.current", "3500000000\n")
    _write(machine.cgroup / "memory.stat", "anon 1\n")
    assert preflight.available_memory_bytes(machine) == 500_000_000, "the limit of a parent"


def test_all_missing_requirements_are_reported_at_once(tmp_path: Path) -> None:
    machine = _machine(tmp_path, {"PATH": str(tmp_path)})
    _write(machine.proc / "meminfo", "MemAvailable:    1000000 kB\n")
    with pytest.raises(ConfigError) as caught:
        preflight.check_machine(tmp_path, machine)
    java, memory = str(caught.value).splitlines()
    assert java.startswith("No java was found on PATH and JAVA_HOME is not set. Install")
    assert memory.startswith("1.0 GB of memory")
