"""The project's Java classes as jars: compiled once, with a message on failure. No JVM starts."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from jobs.setup.java_jar import java_jar
from metrics.common.errors import ConfigError


class Compiler:
    """A replacement of Janino's JVM that leaves a class or a message."""

    def __init__(self, output: bytes = b"") -> None:
        self.commands: list[list[str]] = []
        self._output = output

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        self.commands.append(command)
        if not self._output:
            folder = Path(command[command.index("-d") + 1])
            (folder / "Ours.class").write_bytes(Path(command[-1]).read_bytes())
        return subprocess.CompletedProcess(command, 1 if self._output else 0, self._output)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path))
    monkeypatch.setattr("jobs.setup.java_jar.java_command", lambda: "java")
    monkeypatch.setattr("jobs.setup.java_jar.subprocess.run", made)
    return made


def test_a_class_is_compiled_once_and_packed(compiler: Compiler, tmp_path: Path) -> None:
    path = [Path("/jars/a.jar"), Path("/jars/b.jar")]
    jar = java_jar("Ours", "class Ours {}", path)
    assert java_jar("Ours", "class Ours {}", path) == jar
    (command,) = compiler.commands
    assert command[command.index("-classpath") + 1] == "/jars/a.jar:/jars/b.jar"
    assert Path(command[-1]).name == "Ours.java"
    assert jar.is_relative_to(tmp_path)
    with zipfile.ZipFile(jar) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "Ours.class": b"class Ours {}"
        }


def test_another_source_or_another_release_is_another_jar(compiler: Compiler) -> None:
    sources = ["class Ours {}", "class Ours { int a; }"]
    jars = {
        java_jar("Ours", source, [Path(jar)])
        for source in sources
        for jar in ("/a-1.jar", "/a-2.jar")
    }
    assert len(jars) == len(compiler.commands) == 4


def test_the_compilers_message_is_quoted(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.setup.java_jar.subprocess.run", Compiler(b"Line 3: no such type\n"))
    with pytest.raises(ConfigError, match=r"Ours\.java cannot be compiled with the jars a\.jar: "):
        java_jar("Ours", "class Ours {}", [Path("/a.jar")])


def test_without_pyspark_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"Spark's jar janino is missing .* Run make setup"):
        java_jar("Ours", "class Ours {}", [])
