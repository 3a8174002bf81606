"""The cache of jars, the places that they come from, and what is made of them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.setup import ivy, jars
from jobs.setup.ivy import Coordinate, NotFoundError, UnreachableError, spark_jar
from jobs.setup.jars import MANIFEST, JarSet, java_jar
from jobs.setup.places import archive_path, read_options
from jobs.setup.releases import DEFAULT_RELEASE, PAIRS, RELEASE, Metadata, metadata_of
from jobs.spark import prepare
from metrics.common.errors import ConfigError

KAFKA = Coordinate("org.apache.kafka", "kafka_2.13", "4.1.2")


class Fetcher:
    """A fetch that writes two jars and counts its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, target: Path, work: Path) -> None:
        self.calls += 1
        work.mkdir()
        (work / "log").write_text("half a download")
        (target / "b.jar").write_bytes(b"bbb")
        if self._error:
            raise self._error
        (target / "a.jar").write_bytes(b"aaa")


def test_a_set_is_fetched_once_for_a_recipe_and_sorted(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        JarSet(tmp_path, "kafka-1", "recipe", Fetcher(UnreachableError("no network"))).jars()
    assert {path.name for path in tmp_path.iterdir()} <= {".kafka-1.lock"}
    for name in (".kafka-1.partial", ".kafka-1.work"):  # as a killed fetch leaves them
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.jar").write_bytes(b"h")
    fetch = Fetcher()
    for _ in range(2):
        found = JarSet(tmp_path, "kafka-1", "recipe", fetch).jars()
        assert found == [tmp_path / "kafka-1" / "a.jar", tmp_path / "kafka-1" / "b.jar"]
    assert fetch.calls == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"kafka-1", ".kafka-1.lock"}
    manifest = json.loads((tmp_path / "kafka-1" / MANIFEST).read_text())
    assert sorted(manifest["jars"]) == ["a.jar", "b.jar"]
    JarSet(tmp_path, "kafka-1", "another recipe", fetch).jars()
    assert fetch.calls == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Name another cache folder .* REDLINE_CACHE"):
        JarSet(tmp_path / "file" / "jars", "kafka-1", "recipe", Fetcher()).jars()


def test_a_jar_that_is_not_the_known_one_is_never_used(tmp_path: Path) -> None:
    known = {name: hashlib.sha256(text).hexdigest() for name, text in
             (("a.jar", b"aaa"), ("b.jar", b"bbb"))}  # fmt: skip
    JarSet(tmp_path, "kafka-1", "recipe", Fetcher(), known).jars()
    for pinned, words in (
        ({**known, "b.jar": "0" * 64}, f"b.jar of kafka-1 .* {known['b.jar']}; expected 0"),
        ({**known, "c.jar": "0" * 64}, r"c.jar of kafka-1 .* SHA-256 \(missing\)"),
        ({"a.jar": known["a.jar"]}, "expected no such jar"),
    ):
        fetch = Fetcher()
        with pytest.raises(ConfigError, match=words):
            JarSet(tmp_path, "kafka-1", "recipe", fetch, pinned).jars()
        assert fetch.calls == 1, "a set in the cache is checked, too"
    fetch = Fetcher()
    JarSet(tmp_path, "kafka-1", "recipe", fetch, known).jars()
    assert fetch.calls == 0


def test_the_jars_that_set_up_fetches_are_known() -> None:
    pinned = jars.pins()
    deltas = {jars.delta_set(pair, scala, pair.delta) for pair in PAIRS for scala in pair.scala}
    agent = f"jmx_prometheus_javaagent-{jars.EXPORTER_VERSION}"
    assert {f"kafka-{DEFAULT_RELEASE}", agent, *deltas} <= set(pinned)
    for each in pinned.values():
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in each.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a.jar").unlink(),
        lambda folder: (folder / "a.jar").write_bytes(b"aa"),
        lambda folder: (folder / "a.jar").write_bytes(b"aab"),
        lambda folder: (folder / MANIFEST).unlink(),
        lambda folder: (folder / MANIFEST).write_text('{"recipe": "rec'),
        lambda folder: (folder / MANIFEST).write_text("[]"),
        lambda folder: (folder / MANIFEST).write_text('{"recipe": "recipe", "jars": {}}'),
    ],
    ids=["missing", "short", "altered", "no manifest", "cut manifest", "not ours", "empty"],
)
def test_a_damaged_set_is_noticed_and_fetched_again(tmp_path: Path, damage: object) -> None:
    fetch = Fetcher()
    JarSet(tmp_path, "kafka-1", "recipe", fetch).jars()
    assert callable(damage)
    damage(tmp_path / "kafka-1")
    assert JarSet(tmp_path, "kafka-1", "recipe", fetch).intact() is None
    found = JarSet(tmp_path, "kafka-1", "recipe", fetch).jars()
    assert [path.read_bytes() for path in found] == [b"aaa", b"bbb"]
    assert fetch.calls == 2


def test_four_at_the_same_time_fetch_once(tmp_path: Path) -> None:
    fetch = Fetcher()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: JarSet(tmp_path, "k", "r", fetch).jars(), range(4))
    assert fetch.calls == 1
    assert [*found] == [[tmp_path / "k" / "a.jar", tmp_path / "k" / "b.jar"]] * 4


def test_the_binding_fits_the_slf4j_and_the_log4j_that_came() -> None:
    for names, binding in (
        (["slf4j-api-1.7.36.jar"], f"log4j-slf4j-impl:{jars.LOG4J_VERSION}"),
        (["slf4j-api-1.7.36.jar", "log4j-core-2.25.4.jar"], "log4j-slf4j-impl:2.25.4"),
        (["slf4j-api-2.0.17.jar", "log4j-core-2.26.0.jar"], "log4j-slf4j2-impl:2.26.0"),
    ):
        assert str(jars.binding_for(names)) == f"org.apache.logging.log4j:{binding}"
    assert jars.binding_for(["slf4j-api-2.0.17.jar", "log4j-slf4j2-impl-2.26.0.jar"]) is None


def test_offline_is_distinguished_from_missing(snapshot: SnapshotAssertion) -> None:
    offline = """:::: WARNINGS
\tHost repo.example.org not found. url=https://repo.example.org/kafka_2.13-4.1.2.pom
\t\t:: org.apache.kafka#kafka_2.13;4.1.2: not found
"""
    absent = "\t\t:: org.apache.kafka#kafka_2.13;9.9.9: not found\n"
    assert isinstance(ivy.failure(offline, [KAFKA]), UnreachableError)
    assert str(ivy.failure(offline, [KAFKA])) == snapshot
    error = ivy.failure(absent, [KAFKA])
    assert isinstance(error, NotFoundError)
    assert "does not have org.apache.kafka:kafka_2.13:9.9.9." in str(error)
    assert "No space left" in str(ivy.failure("java.io.IOException: No space left\n", [KAFKA]))


def test_only_the_environment_names_another_repository() -> None:
    mirror = "https://repo.example.org/maven2"
    for environ, url in (
        ({}, None),
        ({"REDLINE_MAVEN_URL": ""}, None),
        ({"REDLINE_MAVEN_URL": mirror}, f"{mirror}/"),
        ({"REDLINE_MAVEN_URL": f"{mirror}//"}, f"{mirror}/"),
        ({"REDLINE_MAVEN_URL": "file:/srv/maven"}, "file:/srv/maven/"),
        ({"MAVEN_URL": "https://repo.example.org/"}, None),
    ):
        assert ivy.mirror_url(environ) == url
    for url in ("http://repo.example.org/m", "ftp://a/", "/srv/maven", "javas:x"):
        with pytest.raises(ConfigError, match="expected https: or file:"):
            ivy.mirror_url({"REDLINE_MAVEN_URL": url})


def _root(folder: Path) -> str | None:
    """The repository that Ivy's settings name."""
    (resolver,) = ElementTree.parse(folder / "settings.xml").iter("ibiblio")
    assert resolver.get("m2compatible") == "true"
    return resolver.get("root")


def test_ivy_uses_its_own_repository_unless_the_environment_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def refused(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, b"")

    monkeypatch.setattr(subprocess, "run", refused)
    monkeypatch.setattr(ivy, "java_command", lambda: "java")
    monkeypatch.delenv("REDLINE_MAVEN_URL", raising=False)
    with pytest.raises(ConfigError, match="from Maven Central"):
        ivy.retrieve([KAFKA], tmp_path / "jars", tmp_path)
    assert _root(tmp_path) is None
    monkeypatch.setenv("REDLINE_MAVEN_URL", "https://repo.example.org/a&b")
    with pytest.raises(ConfigError, match=r"from https://repo\.example\.org/a&b/:"):
        ivy.retrieve([KAFKA], tmp_path / "jars", tmp_path)
    assert _root(tmp_path) == "https://repo.example.org/a&b/"
    assert not [word for command in commands for word in command if "://" in word]


def test_no_host_is_named_in_the_code() -> None:
    folder = Path(ivy.__file__).parent
    named = {
        path.name: re.findall(r"https?://[\w.-]+|\b[\w-]+\.(?:org|com|io|net)/", path.read_text())
        for path in folder.glob("*.py")
    }
    assert {name: hosts for name, hosts in named.items() if hosts} == {}


def test_a_proxy_of_the_environment_reaches_java() -> None:
    secure = {"https": "http://proxy.example.org:3128"}
    both = {**secure, "http": "http://other.example.org:1"}
    as_secure = ["-Dhttps.proxyHost=proxy.example.org", "-Dhttps.proxyPort=3128"]
    as_plain = ["-Dhttp.proxyHost=other.example.org", "-Dhttp.proxyPort=1"]
    assert ivy.proxy_options("https://repo.example.org/maven2/", secure) == as_secure
    assert ivy.proxy_options("https://repo.example.org/maven2/", {}) == []
    assert ivy.proxy_options(None, both) == as_secure
    assert ivy.proxy_options("http://repo.example.org/", both) == as_plain


# --- the places of Spark's own jars ------------------------------------------------


def test_the_jars_are_in_the_pip_package_or_in_the_home_of_spark_submit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package, home = tmp_path / "pyspark", tmp_path / "home"
    found = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(
        ConfigError, match=r"SPARK_HOME \(not set\); expected the jar in one of the two"
    ):
        spark_jar("ivy")
    monkeypatch.setenv("SPARK_HOME", str(home))
    for folder, name in ((home, "ivy-9.9.jar"), (package, "ivy-2.5.3.jar")):
        (folder / "jars").mkdir(parents=True)
        (folder / "jars" / name).touch()
        assert spark_jar("ivy") == folder / "jars" / name
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("SPARK_HOME")
    with pytest.raises(ConfigError, match=r"Spark's jar janino is missing .* Run make setup"):
        java_jar("Ours", "class Ours {}", [])


# --- releases of Kafka -------------------------------------------------------------


def test_a_release_has_three_numbers_from_2_8_on() -> None:
    for release in ("2.8.0", "2.8.2", "3.0.2", "3.9.2", "4.1.2", "10.0.1"):
        assert RELEASE.accepts(release), release
    for text in ("2.7.2", "2.10", "1.1.1", "4.1", "4.1.2-rc1", "latest", "", "4.1.2/../x"):
        message = rf"{re.escape(repr(text))} .* 2\.8\.0 or later, such as 4\.1\.2"
        with pytest.raises(ConfigError, match=message):
            jars.kafka_jars(text)


def test_each_release_has_a_default_place_of_its_metadata_and_a_choice() -> None:
    places: list[tuple[str, Metadata | None, Metadata]] = [
        ("2.8.2", None, "zookeeper"), ("3.8.1", None, "zookeeper"), ("3.9.2", None, "kraft"),
        ("4.1.2", None, "kraft"), ("3.9.2", "zookeeper", "zookeeper"),
        ("3.3.2", "kraft", "kraft"), ("4.3.1", "combined", "combined"),
    ]  # fmt: skip
    for release, chosen, found in places:
        assert metadata_of(release, chosen) == found, release
    with pytest.raises(ConfigError, match=r"4\.0\.1.*kraft or combined"):
        metadata_of("4.0.1", "zookeeper")
    with pytest.raises(ConfigError, match=r"3\.2\.3.*zookeeper before 3\.3"):
        metadata_of("3.2.3", "kraft")


# --- the project's Java classes, compiled once -------------------------------------


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


def test_a_class_is_compiled_once_for_its_source_and_its_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path))
    monkeypatch.setattr(ivy, "java_command", lambda: "java")
    monkeypatch.setattr(subprocess, "run", compiler)
    path = [Path("/jars/a.jar"), Path("/jars/b.jar")]
    made = java_jar("Ours", "class Ours {}", path)
    assert java_jar("Ours", "class Ours {}", path) == made
    (command,) = compiler.commands
    assert command[command.index("-classpath") + 1] == "/jars/a.jar:/jars/b.jar"
    assert Path(command[-1]).name == "Ours.java"
    assert made.is_relative_to(tmp_path)
    with zipfile.ZipFile(made) as archive:
        assert archive.namelist() == ["Ours.class"]
        assert archive.read("Ours.class") == b"class Ours {}"
    others = {
        java_jar("Ours", "class Ours { int a; }", path),
        java_jar("Ours", "class Ours {}", path[:1]),
    }
    assert len({made, *others}) == len(compiler.commands) == 3
    monkeypatch.setattr(subprocess, "run", Compiler(b"Line 3: no such type\n"))
    with pytest.raises(ConfigError, match=r"Ours\.java cannot be compiled with the jars c\.jar: "):
        java_jar("Ours", "class Ours {}", [Path("/c.jar")])


# --- class archives: complete or missing -------------------------------------------


def test_another_class_path_or_another_java_has_another_archive(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.touch()
    of_two = archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])
    assert of_two == archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])
    assert of_two != archive_path(tmp_path, "spark", str(java), ["a.jar"])
    java.unlink()
    (tmp_path / "newer").write_text("")
    java.symlink_to(tmp_path / "newer")
    assert of_two != archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])


class Session:
    """A replacement of a session whose JVM writes an archive or a part of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, archive: Path, exit_code: int) -> None:
        self.exit_code = exit_code
        self.started = 0
        monkeypatch.setattr(prepare, "session_archive", lambda: archive)
        monkeypatch.setattr(prepare, "local_session", self.start)
        monkeypatch.setattr(prepare, "close_session", self.close)
        monkeypatch.setattr(prepare, "_use", lambda session, table: None)

    def start(self, slots: int, app_name: str, *, java_options: list[str]) -> Session:
        self.started += 1
        (option,) = (o for o in java_options if o.startswith("-XX:ArchiveClassesAtExit="))
        self.draft = Path(option.partition("=")[2])
        return self

    def close(self, session: Session, timeout_s: float) -> int:
        self.draft.write_text("classes")
        return self.exit_code


def test_the_archive_is_made_once_and_set_up_continues_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "classes" / "spark.jsa"
    Session(monkeypatch, archive, exit_code=-9)
    prepare.make_archive()
    assert list(archive.parent.iterdir()) == [], "that of a JVM that was ended is not kept"
    assert read_options(archive) == []
    session = Session(monkeypatch, archive, exit_code=0)
    for _ in range(2):
        assert prepare.make_archive() == archive
    assert archive.read_text() == "classes"
    assert session.started == 1
    assert list(archive.parent.iterdir()) == [archive]
    assert f"-XX:SharedArchiveFile={archive}" in read_options(archive)
    (tmp_path / "file").write_text("")
    Session(monkeypatch, tmp_path / "file" / "classes" / "spark.jsa", exit_code=0)
    assert prepare.main() == 1
    assert "Not a directory" in capsys.readouterr().err
