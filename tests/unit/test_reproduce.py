"""The command in a report makes the very configuration that the run recorded."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load
from jobs.runs.results import command_of
from jobs.runs.resumption import config_text

CASES = {
    "as the files are": ("testbed", "demo", "default", ()),
    "what differs, of any kind": (
        "testbed",
        "demo",
        "strict,tolerant",
        (
            "goal.search.resolution=0.08",
            "workload.message_bytes=[100, 200]",
            "workload.producer.acks=all",
            "workload.producer.linger_ms=3.5",
            "workload.producer.enable_idempotence=true",
            "workload.topic.config.retention.bytes=1000000",
            "workload.topic.config.max.message.bytes=2000000",
            "cluster.testbed.brokers=2",
        ),
    ),
    "secrets stay references": (
        "example",
        "demo",
        "default",
        (
            "cluster.security.protocol=SASL_SSL",
            "cluster.security.sasl_mechanism=PLAIN",
            "cluster.security.username_from=file:/etc/it's me",
            "cluster.security.password_from=env:KAFKA_PASSWORD",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_command_gives_the_same_configuration(case: tuple[str, str, str, list[str]]) -> None:
    cluster, workload, goal, overrides = case
    recorded = config_text(load(cluster, workload, goal, overrides))
    command = command_of(json.loads(recorded))
    assert command is not None
    words = shlex.split(" ".join(command.lines))
    assert words[:2] == ["redline", "find-limit"]
    pairs = list(zip(words[2::2], words[3::2], strict=True))
    files = {name[2:]: value for name, value in pairs if name != "--set"}
    assert files == {"cluster": cluster, "workload": workload, "goal": goal}
    found = [value for name, value in pairs if name == "--set"]
    assert config_text(load(cluster, workload, goal, found)) == recorded
    assert len(found) == len(overrides)
    assert command.notes == ()
    assert command_of({}) is None


def test_a_file_outside_of_conf_is_named_with_a_note(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("bootstrap_servers: [kafka:9092]\njmx: {port: 9999}\n")
    command = command_of(json.loads(config_text(load(str(mine), "demo", "default"))))
    assert command is not None
    assert command.lines[1] == "--cluster mine.yaml"
    assert command.notes[0] == snapshot


def test_the_command_repeats_held_loads() -> None:
    settings = json.loads(config_text(load("testbed", "demo", "default")))
    command = command_of(settings, [(1000, 40), (1000, 40)])
    assert command is not None
    assert command.lines[0] == "redline traffic"
    assert command.lines[-1] == "--message-bytes 1000 --np 40 --trials 2"
    assert command_of(settings, [(1000, 40), (1000, 50)]) is None
