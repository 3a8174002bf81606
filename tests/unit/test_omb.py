"""Workload files of the OpenMessaging Benchmark, read as workloads."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from jobs.config import Workload, load_workload
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


def assert_notes(read: Workload, *parts: str) -> None:
    for part in parts:
        assert any(part in note for note in read.notes), part


def test_each_key_has_its_counterpart(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path))
    assert read.name == "1-topic-16-partitions-1kb"
    assert read.message_bytes == (1024,)
    assert read.producer.rate_records_per_s == pytest.approx(50_000 / 8)
    assert (read.producer.acks, read.producer.linger_ms) == ("all", 1)
    assert (read.topic.count, read.topic.replication_factor) == (2, 3)
    assert (read.consumers.groups, read.consumers.members) == (3, 4), "2 consumers of 2 topics"
    assert (read.payload.kind, read.payload.compressibility) == ("mixed", 0.75)
    assert (read.trial.warmup_s, read.trial.measure_s) == (120.0, 900.0)
    assert read.topic.partitions_per_broker == 5
    assert_notes(
        read, "partitionsPerTopic 16 becomes 5 for each broker", "redline traffic --load 8"
    )


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
    (tmp_path / "payload" / "payload-100b.data").write_text("x" * 90)
    with pytest.raises(ConfigError, match=r"payload-100b\.data has 90 B and messageSize is 100"):
        load_workload(write(folder, text))


BACKLOG = """
messageSize: 1000
topics: 2
partitionsPerTopic: 6
subscriptionsPerTopic: 4
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 1000
consumerBacklogSizeGB: 2
testDurationMinutes: 1
"""


def test_a_backlog_is_the_unread_bytes_of_all_subscriptions(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path, BACKLOG))
    assert read.consumers.start == "backlog"
    assert read.consumers.backlog_records == -(-2 * 2**30 // (4 * 1000))
    read = load_workload(write(tmp_path, BACKLOG.replace("GB: 2", "GB: 100")))
    kept = int(read.topic.properties["retention.bytes"]) * 2 * read.topic.partitions_per_broker
    assert kept > read.consumers.backlog_records * 1000, "one broker keeps all of it"
    plan = ["--cluster", "testbed", "--workload", write(tmp_path, BACKLOG), "--dry-run"]
    done = click.testing.CliRunner().invoke(find_limit, plan)
    assert done.exit_code == 0, done.output


def test_keys_that_a_file_lacks_have_the_defaults_of_the_benchmark(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path, "messageSize: 1000\n"))
    assert read.producer.rate_records_per_s == 1_000
    assert read.trial.measure_s == 300
    assert_notes(
        read, "producerRate 0, as fast as possible, has no counterpart",
        "testDurationMinutes 0, a test without an end", "payloadFile is left out",
    )  # fmt: skip
    text = FILE.replace("randomBytesRatio: 0.25", "")
    read = load_workload(write(tmp_path, text.replace("Subscription: 2", "Subscription: 0")))
    assert (read.payload.kind, read.payload.compressibility) == ("mixed", 1.0)
    assert read.consumers.groups == 0


def test_more_consumers_than_partitions_are_cut_with_a_note(tmp_path: Path) -> None:
    text = FILE.replace("consumerPerSubscription: 2", "consumerPerSubscription: 20")
    read = load_workload(write(tmp_path, text))
    assert read.consumers.members == 2 * 16
    assert_notes(read, "consumerPerSubscription 20 is cut to partitionsPerTopic 16")


def test_partitions_and_not_topics_are_limited(tmp_path: Path) -> None:
    many = ["workload.topic.partitions_per_broker=1000"]
    for topics, words in (
        (1_001, "each broker leads 1,001,000 partitions"),
        (100_000, r"each broker leads .* at most 1,000,000 in all"),
        (1_000_000, r"each broker leads .* at most 1,000,000 in all"),
    ):
        text = FILE.replace("topics: 2", f"topics: {topics}").replace("partitionsPerTopic: 16", "")
        text = text.replace("producerRate: 50000", "producerRate: 5000000")
        file = write(
            tmp_path, text.replace("consumerPerSubscription: 2", "consumerPerSubscription: 1")
        )
        read = load_workload(file)
        assert (read.topic.count, read.consumers.members) == (topics, topics)
        with pytest.raises(ConfigError, match=words):
            load_workload(file, many)
