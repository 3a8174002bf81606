"""Workload files of the OpenMessaging Benchmark, read as workloads."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load_workload
from jobs.config.omb import translated
from jobs.config.yaml_file import parse_map
from jobs.find_limit import find_limit
from metrics.common.errors import ConfigError

FILES = Path(__file__).parents[1] / "data" / "omb"


def write(folder: Path, text: str) -> str:
    path = folder / "workload.yaml"
    path.write_text(text, encoding="utf-8")
    return f"omb:{path}"


@pytest.mark.parametrize("name", sorted(each.stem for each in FILES.iterdir()))
def test_each_key_has_its_counterpart_or_a_note(name: str, snapshot: SnapshotAssertion) -> None:
    data = parse_map((FILES / f"{name}.yaml").read_text(encoding="utf-8"), name).data
    made = translated(data, name, "FILE", lambda _: None)
    assert made == snapshot
    topic, consumers = made["topic"], made["consumers"]
    if backlog := consumers.get("backlog_records"):
        kept = topic["config"]["retention.bytes"] * topic["count"] * topic["partitions_per_broker"]
        assert kept > backlog * data["messageSize"], "one broker keeps all of it"
    read = load_workload(f"omb:{FILES / name}.yaml")
    assert list(read.notes) == made["notes"]


def test_the_plan_has_the_notes() -> None:
    workload = f"omb:{FILES / 'keys-without-counterpart'}.yaml"
    options = ["--cluster", "testbed", "--workload", workload, "--dry-run"]
    done = click.testing.CliRunner().invoke(find_limit, options)
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert all(each in shown for each in load_workload(workload).notes)


def test_a_payload_file_is_found_in_the_folder_of_the_benchmark(tmp_path: Path) -> None:
    text = "messageSize: 100\npayloadFile: payload/payload-100b.data\nproducerRate: 10\n"
    folder = tmp_path / "workloads"
    folder.mkdir()
    with pytest.raises(
        ConfigError, match=r"payload/payload-100b\.data does not exist; expected the"
    ):
        load_workload(write(folder, text))
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "payload-100b.data").write_text("x" * 100)
    read = load_workload(write(folder, text))
    assert read.payload.kind == "messages"
    assert read.payload.messages_file == str((tmp_path / "payload/payload-100b.data").resolve())
    assert read.consumers.groups == 0
    (tmp_path / "payload" / "payload-100b.data").write_text("x" * 90)
    with pytest.raises(ConfigError, match=r"payload-100b\.data has 90 B and messageSize is 100"):
        load_workload(write(folder, text))


def test_partitions_and_not_topics_are_limited(tmp_path: Path) -> None:
    many = ["workload.topic.partitions_per_broker=1000"]
    for topics, words in (
        (1_001, "each broker leads 1,001,000 partitions"),
        (100_000, r"each broker leads .* at most 1,000,000 partitions over all"),
        (1_000_000, r"each broker leads .* at most 1,000,000 partitions over all"),
    ):
        keys = {"topics": topics, "producersPerTopic": 4, "producerRate": 5_000_000}
        keys |= {"subscriptionsPerTopic": 3, "consumerPerSubscription": 1}
        file = write(tmp_path, "".join(f"{key}: {value}\n" for key, value in keys.items()))
        read = load_workload(file)
        assert (read.topic.count, read.consumers.members) == (topics, topics)
        with pytest.raises(ConfigError, match=words):
            load_workload(file, many)
