"""The cache of jars: complete sets only, and their versions. Set-up does the real fetch."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.setup import ivy, jars
from jobs.setup.ivy import Coordinate, NotFoundError, UnreachableError
from jobs.setup.jar_cache import MANIFEST, JarCache
from jobs.setup.kafka_release import DEFAULT_RELEASE
from jobs.setup.spark_pairs import PAIRS
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


def test_a_set_is_fetched_once_and_sorted(tmp_path: Path) -> None:
    fetch = Fetcher()
    for _ in range(2):
        found = JarCache(tmp_path).jars("kafka-1", "recipe", fetch)
        assert found == [tmp_path / "kafka-1" / "a.jar", tmp_path / "kafka-1" / "b.jar"]
    assert fetch.calls == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"kafka-1", ".kafka-1.lock"}


def test_a_jar_that_is_not_the_known_one_is_never_used(tmp_path: Path) -> None:
    known = {name: hashlib.sha256(text).hexdigest() for name, text in
             (("a.jar", b"aaa"), ("b.jar", b"bbb"))}  # fmt: skip
    JarCache(tmp_path).jars("kafka-1", "recipe", Fetcher(), known)
    for pinned, words in (
        ({**known, "b.jar": "0" * 64}, f"b.jar of kafka-1 .* {known['b.jar']}; expected 0"),
        ({**known, "c.jar": "0" * 64}, r"c.jar of kafka-1 .* SHA-256 \(missing\)"),
        ({"a.jar": known["a.jar"]}, "expected no such jar"),
    ):
        fetch = Fetcher()
        with pytest.raises(ConfigError, match=words):
            JarCache(tmp_path).jars("kafka-1", "recipe", fetch, pinned)
        assert fetch.calls == 1, "a set in the cache is checked, too"
    fetch = Fetcher()
    JarCache(tmp_path).jars("kafka-1", "recipe", fetch, known)
    assert fetch.calls == 0


def test_the_jars_that_set_up_fetches_are_known() -> None:
    pinned = jars.pins()
    deltas = {jars.delta_set(pair, scala, pair.delta) for pair in PAIRS for scala in pair.scala}
    assert {
        f"kafka-{DEFAULT_RELEASE}",
        f"jmx_prometheus_javaagent-{jars.EXPORTER_VERSION}",
        *deltas,
    } <= set(pinned)
    digests = [digest for each in pinned.values() for digest in each.values()]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


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
    JarCache(tmp_path).jars("kafka-1", "recipe", fetch)
    assert callable(damage)
    damage(tmp_path / "kafka-1")
    assert JarCache(tmp_path).intact("kafka-1", "recipe") is None
    found = JarCache(tmp_path).jars("kafka-1", "recipe", fetch)
    assert [path.read_bytes() for path in found] == [b"aaa", b"bbb"]
    assert fetch.calls == 2


def test_a_set_of_another_recipe_is_made_anew(tmp_path: Path) -> None:
    fetch = Fetcher()
    JarCache(tmp_path).jars("kafka-1", "without a binding", fetch)
    JarCache(tmp_path).jars("kafka-1", "with a binding", fetch)
    assert fetch.calls == 2


def test_a_failed_fetch_leaves_no_complete_set(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        JarCache(tmp_path).jars("kafka-1", "recipe", Fetcher(UnreachableError("no network")))
    assert {path.name for path in tmp_path.iterdir()} <= {".kafka-1.lock"}


def test_the_leftovers_of_a_killed_fetch_are_removed(tmp_path: Path) -> None:
    for name in (".kafka-1.partial", ".kafka-1.work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.jar").write_bytes(b"h")
    found = JarCache(tmp_path).jars("kafka-1", "recipe", Fetcher())
    assert [path.name for path in found] == ["a.jar", "b.jar"]
    manifest = json.loads((tmp_path / "kafka-1" / MANIFEST).read_text())
    assert sorted(manifest["jars"]) == ["a.jar", "b.jar"]


def test_two_at_the_same_time_fetch_once(tmp_path: Path) -> None:
    fetch, found = Fetcher(), list[list[Path]]()
    threads = [
        threading.Thread(target=lambda: found.append(JarCache(tmp_path).jars("k", "r", fetch)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetch.calls == 1
    assert found == [[tmp_path / "k" / "a.jar", tmp_path / "k" / "b.jar"]] * 4


def test_a_cache_that_cannot_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Name another cache folder .* REDLINE_CACHE"):
        JarCache(tmp_path / "file" / "jars").jars("kafka-1", "recipe", Fetcher())


@pytest.mark.parametrize(
    ("names", "binding"),
    [
        (["slf4j-api-1.7.36.jar"], f"log4j-slf4j-impl:{jars.LOG4J_VERSION}"),
        (["slf4j-api-1.7.36.jar", "log4j-core-2.25.4.jar"], "log4j-slf4j-impl:2.25.4"),
        (["slf4j-api-2.0.17.jar", "log4j-core-2.26.0.jar"], "log4j-slf4j2-impl:2.26.0"),
    ],
)
def test_the_binding_fits_the_slf4j_and_the_log4j_that_came(names: list[str], binding: str) -> None:
    assert str(jars.binding_for(names)) == f"org.apache.logging.log4j:{binding}"


def test_no_second_binding() -> None:
    assert jars.binding_for(["slf4j-api-2.0.17.jar", "log4j-slf4j2-impl-2.26.0.jar"]) is None


@pytest.mark.parametrize("version", ["latest", "4.1", "4.1.2-rc1", "", "4.1.2/../x"])
def test_a_kafka_version_is_three_numbers(version: str) -> None:
    message = rf"{re.escape(repr(version))} .* from 2\.8\.0 on, such as 4\.1\.2"
    with pytest.raises(ConfigError, match=message):
        jars.kafka_jars(version)


def test_a_release_that_is_too_old_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'2\.7\.2' .* one from 2\.8\.0 on"):
        jars.kafka_jars("2.7.2")


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
    assert "has no org.apache.kafka:kafka_2.13:9.9.9." in str(error)
    assert "No space left" in str(ivy.failure("java.io.IOException: No space left\n", [KAFKA]))


def test_a_proxy_of_the_environment_reaches_java() -> None:
    url = "https://repo.example.org/maven2/"
    options = ivy.proxy_options(url, {"https": "http://proxy.example.org:3128"})
    assert options == ["-Dhttps.proxyHost=proxy.example.org", "-Dhttps.proxyPort=3128"]
    assert ivy.proxy_options(url, {}) == []


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, None),
        ({"REDLINE_MAVEN_URL": ""}, None),
        (
            {"REDLINE_MAVEN_URL": "https://repo.example.org/maven2"},
            "https://repo.example.org/maven2/",
        ),
        ({"REDLINE_MAVEN_URL": "https://repo.example.org/m//"}, "https://repo.example.org/m/"),
        ({"MAVEN_URL": "https://repo.example.org/"}, None),
    ],
)
def test_only_the_environment_names_another_repository(
    environ: dict[str, str], url: str | None
) -> None:
    assert ivy.mirror_url(environ) == url


@pytest.mark.parametrize("url", ["http://repo.example.org/m", "ftp://a/", "/srv/maven", "javas:x"])
def test_jars_come_over_no_line_that_can_be_tampered_with(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https: or file:"):
        ivy.mirror_url({"REDLINE_MAVEN_URL": url})
    assert ivy.mirror_url({"REDLINE_MAVEN_URL": "file:/srv/maven"}) == "file:/srv/maven/"


def _root(folder: Path) -> str | None:
    """The repository that Ivy's settings name."""
    (resolver,) = ElementTree.parse(folder / "settings.xml").iter("ibiblio")
    assert resolver.get("m2compatible") == "true"
    return resolver.get("root")


def test_ivy_uses_its_own_repository_unless_the_environment_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def refused(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr("jobs.setup.ivy.subprocess.run", refused)
    monkeypatch.setattr("jobs.setup.ivy.java_command", lambda: "java")
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


def test_a_proxy_for_ivys_own_repository_is_that_for_https() -> None:
    proxies = {"https": "http://proxy.example.org:3128", "http": "http://other.example.org:1"}
    options = ivy.proxy_options(None, proxies)
    assert options == ["-Dhttps.proxyHost=proxy.example.org", "-Dhttps.proxyPort=3128"]
    plain = ivy.proxy_options("http://repo.example.org/", proxies)
    assert plain == ["-Dhttp.proxyHost=other.example.org", "-Dhttp.proxyPort=1"]
