"""The messages for wrong clusters, workloads, goals, other files and options."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.config import available, load, load_cluster, load_goal, load_workload
from jobs.config.client_properties import secret
from jobs.config.files import load_rate_profile
from jobs.config.goal import parse_bounds
from jobs.config.metrics_registry import load_rules
from jobs.config.security import read_secret
from jobs.features.nightly.suite import load_suite
from jobs.features.sweep.cases import CASES_MAX, load_sweep
from jobs.testbed.profile import adapt, load_profile
from metrics.common.errors import ConfigError
from metrics.sources.http_access import bearer
from tests.support.commands import ROOT
from tests.support.mixes import MIX

SECRET = "hunter2"
ALIAS_BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in itertools.pairwise("abcdefgh")
)
REFUSED: dict[str, list[str]] = YAML(typ="safe", pure=True).load(
    (ROOT / "tests" / "data" / "refused-configurations.yaml").read_text(encoding="utf-8")
)
LONG = {
    "goal file": [f"x: {'[' * 2_000}", ALIAS_BOMB],
    "OMB file": [f"topics: {'9' * 400}"],
    "owner's record": ["[" * 10_000, "x" * 20_000],
    "experiment file": [f"axes: {{workload.producer.linger_ms: {[*range(CASES_MAX + 1)]}}}"],
}
"""Content that is too long for a file of rows."""


def options(kind: str, row: str) -> list[str]:
    return [f"{kind}.{each}" for each in row.split("  ")]


def by_file(name: str, read: Callable[[str], object]) -> Callable[[str, Path], object]:
    """A reader of a text that is the content of a file."""

    def read_text(text: str, folder: Path) -> object:
        (folder / name).write_text(text, encoding="utf-8")
        return read(str(folder / name))

    return read_text


def cluster_with(text: str) -> Callable[[str], object]:
    """A reader of the file that a cluster's file names in this text."""

    def read(file: str) -> object:
        cluster = Path(file).with_name("cluster.yaml")
        cluster.write_text(text.replace("FILE", file))
        return load_cluster(str(cluster))

    return read


def served_cluster(row: str, folder: Path) -> object:
    keys = "".join(f"    {each}\n" for each in row.splitlines())
    text = f"bootstrap_servers: ['b:9092']\nmetrics:\n  prometheus:\n{keys}"
    return by_file("mine.yaml", load_cluster)(text, folder)


def adaptations(row: str) -> dict[str, Any]:
    """The arguments of `adapt` for these options of `redline testbed up`."""
    given = dict(YAML(typ="safe", pure=True).load(row))
    named = {key: given.pop(key) for key in ("brokers", "kafka_version") if key in given}
    return {**named, "overrides": given}


LOADERS: dict[str, Callable[[str, Path], object]] = {
    "workload demo": lambda row, _: load_workload("demo", options("workload", row)),
    "cluster example": lambda row, _: load_cluster("example", options("cluster", row)),
    "cluster testbed": lambda row, _: load_cluster("testbed", options("cluster", row)),
    "any option": lambda row, _: load_workload("demo", [row]),
    "goal file": by_file("strict.yaml", load_goal),
    "suite file": by_file("nights.yaml", load_suite),
    "rate profile file": by_file("mine.yaml", load_rate_profile),
    "workload file": by_file("mine.yaml", load_workload),
    "experiment file": by_file("mine.yaml", load_sweep),
    "cluster file with a server": served_cluster,
    "histogram file": by_file("sizes.txt", lambda file: load_workload("demo", options(
        "workload", f"payload.sizes=histogram  payload.histogram_file={file}"
    ))),
    "client.properties": by_file("client.properties", cluster_with(
        "client_properties: FILE\nmetrics: {client_only: true}\nbootstrap_servers: ['a:9092']\n"
    )),
    "secret of client.properties": by_file(
        "client.properties", lambda file: secret(f"{file}#sasl.password")
    ),
    "testbed demo default": lambda row, _: load("testbed", "demo", "default", row.split("  ")),
    "testbed demo with two goals": lambda row, _: load("testbed", "demo", "strict,tolerant", [row]),
    "example demo default": lambda row, _: load("example", "demo", "default", row.split("  ")),
    "owner's record": lambda row, _: parse_bounds(row.encode("latin-1"), "topic t, record bounds"),
    "rule set file": by_file("own.yaml", load_rules),
    "rule set": lambda row, _: load_rules(row),
    "workload mix": lambda row, _: load_workload(MIX, options("workload", row)),
    "testbed mix default": lambda row, _: load("testbed", MIX, "default", [row]),
    "testbed profile": by_file("wrong.yaml", load_profile),
    "testbed option": lambda row, _: adapt(load_profile("disk-bound"), **adaptations(row)),
    "secret": lambda row, _: read_secret(row, "security.password_from"),
    "token": lambda row, _: bearer(row, "metrics.prometheus"),
    "OMB file": by_file("workload.yaml", lambda file: load_workload(f"omb:{file}")),
}  # fmt: skip


def refusal(read: Callable[[], object]) -> str:
    """The message of a refusal."""
    with pytest.raises(ConfigError) as caught:
        read()
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("kind", LOADERS)
def test_each_mistake_is_refused_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, snapshot: SnapshotAssertion
) -> None:
    for name in ("TEST_NOWHERE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    messages: dict[str, str] = {}
    rows = (*REFUSED[kind], *LONG.get(kind, ()))
    for row in rows:
        try:
            LOADERS[kind](row, tmp_path)
        except ConfigError as error:
            message = str(error).replace(str(tmp_path), "…").replace(MIX, "FILE")
            messages[row.strip()[:200]] = message
    assert messages == snapshot
    assert len(messages) == len(rows), "each is refused, and is in the file once"
    for row, message in messages.items():
        assert SECRET not in message and "pydantic" not in message, row


def test_a_file_without_readable_text_is_refused(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    (tmp_path / "brokers").write_text("[all]")
    for path in (binary, tmp_path / "missing.yaml", tmp_path, tmp_path / "brokers"):
        message = refusal(lambda path=path: load_goal(str(path)))  # type: ignore[misc]
        assert message.replace(str(tmp_path), "…") == snapshot


def test_mistakes_of_several_files_are_in_one_message_and_each_once() -> None:
    def refused(*overrides: str) -> list[str]:
        return refusal(lambda: load("testbed", "demo", "default", overrides)).splitlines()

    acks, bogus = refused("workload.producer.acks=5", "goal.bogus=1")
    assert "producer.acks" in acks
    assert "bogus is an unknown key" in bogus
    assert len(refused("nowhere.key=1")) == 1, "an option for no file appears once"


def test_an_unknown_name_gets_the_nearest_and_all() -> None:
    message = refusal(lambda: load_workload("dmo"))
    assert "the nearest is demo" in message
    assert all(name in message for name in available("workload"))
    # A malformed option is refused in the same words for any file.
    for option in REFUSED["any option"]:
        of_workload = refusal(lambda given=option: load_workload("demo", [given]))  # type: ignore[misc]
        assert of_workload == refusal(lambda given=option: load_goal("default", [given]))  # type: ignore[misc]


def test_a_file_of_another_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokers").write_text("[all]")
    monkeypatch.chdir(tmp_path)
    message = refusal(lambda: load_cluster("brokers"))
    assert "is a file, and its name does not end in .yaml" in message
