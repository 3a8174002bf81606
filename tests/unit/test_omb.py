"""Workload files of the OpenMessaging Benchmark, read as workloads."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from jobs.config.loading import load_workload
from jobs.find_limit import find_limit
from metrics.common.errors import ConfigError

FILE = """
name: 1 topic / 16 partitions / 1kb

topics: 2
partitionsPerTopic: 16
keyDistributor: "NO_KEY"
messageSize: 1024
useRandomizedPayloads: true
randomBytesRatio: 0.25
randomizedPayloadPoolSize: 1000
subscriptionsPerTopic: 3
consumerPerSubscription: 2
producersPerTopic: 4
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
warmupDurationMinutes: 2
"""


def write(folder: Path, text: str = FILE) -> str:
    path = folder / "workload.yaml"
    path.write_text(text, encoding="utf-8")
    return f"omb:{path}"


def test_each_key_has_its_counterpart(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path))
    assert read.name == "1-topic-16-partitions-1kb"
    assert read.message_bytes == (1024,)
    assert read.producer.rate_records_per_s == pytest.approx(50_000 / 8)
    assert (read.producer.acks, read.producer.linger_ms) == ("all", 1)
    assert (read.topic.count, read.topic.replication_factor) == (2, 3)
    assert (read.consumers.groups, read.consumers.members) == (3, 2)
    assert (read.payload.kind, read.payload.compressibility) == ("mixed", 0.75)
    assert (read.trial.warmup_s, read.trial.measure_s) == (120.0, 900.0)
    assert any("partitionsPerTopic 16 is left out" in note for note in read.notes)
    assert any("redline traffic --load 8" in note for note in read.notes)


def test_options_replace_values_of_the_file(tmp_path: Path) -> None:
    changed = ["workload.trial.measure_s=8", "workload.topic.partitions_per_broker=6"]
    read = load_workload(write(tmp_path), changed)
    assert read.trial.measure_s == 8
    assert read.topic.partitions_per_broker == 6


def test_the_plan_names_keys_without_a_counterpart(tmp_path: Path) -> None:
    text = FILE.replace("NO_KEY", "KEY_ROUND_ROBIN") + "producerPauseDuringDrain: 1\ntopicz: 3\n"
    options = ["--cluster", "testbed", "--workload", write(tmp_path, text), "--dry-run"]
    done = click.testing.CliRunner().invoke(find_limit, options)
    output = " ".join(done.output.split())
    assert done.exit_code == 0, done.output
    assert "keyDistributor KEY_ROUND_ROBIN has no counterpart and is left out" in output
    assert "producerPauseDuringDrain is not a key of the OpenMessaging Benchmark" in output
    assert (
        "topicz is not a key of the OpenMessaging Benchmark and is left out; the nearest" in output
    )


def test_a_payload_file_is_found_in_the_folder_of_the_benchmark(tmp_path: Path) -> None:
    text = "messageSize: 100\npayloadFile: payload/payload-100b.data\nproducerRate: 10\n"
    folder = tmp_path / "workloads"
    folder.mkdir()
    with pytest.raises(
        ConfigError, match=r"payload/payload-100b\.data does not exist; expected it"
    ):
        load_workload(write(folder, text))
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "payload-100b.data").write_text("x" * 100)
    read = load_workload(write(folder, text))
    assert read.payload.kind == "messages"
    assert read.payload.messages_file == str((tmp_path / "payload/payload-100b.data").resolve())
    assert read.consumers.groups == 0


def test_a_backlog_is_a_number_of_messages_and_a_missing_rate_is_a_note(tmp_path: Path) -> None:
    text = "messageSize: 1000\nsubscriptionsPerTopic: 1\nconsumerBacklogSizeGB: 2\n"
    read = load_workload(write(tmp_path, text))
    assert (read.consumers.start, read.consumers.backlog_records) == ("backlog", 2_000_000)
    assert read.producer.rate_records_per_s == 1_000
    assert any("producerRate 0, as fast as possible, has no counterpart" in n for n in read.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("messageSize: big\n", r"workload\.yaml: messageSize is 'big'; expected a number from 1"),
        ("messageSize: 0\n", r"messageSize is 0; expected a number from 1 to"),
        ("topics: 1.5\n", r"topics is 1\.5; expected a whole number"),
        ("testDurationMinutes: true\n", "testDurationMinutes is True; expected a number"),
        ("", "is empty"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_workload(write(tmp_path, text))


@pytest.mark.parametrize("value", ["1e400", "-1", ".nan", "9" * 400, "true"])
def test_a_value_that_is_not_a_number_is_refused(tmp_path: Path, value: str) -> None:
    text = FILE.replace("topics: 2", f"topics: {value}")
    with pytest.raises(ConfigError, match=r"topics is .*; expected a number from 1 to 1e"):
        load_workload(write(tmp_path, text))
