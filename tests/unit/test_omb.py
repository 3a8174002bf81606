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
    assert (read.consumers.groups, read.consumers.members) == (3, 4), "2 consumers of 2 topics"
    assert (read.payload.kind, read.payload.compressibility) == ("mixed", 0.75)
    assert (read.trial.warmup_s, read.trial.measure_s) == (120.0, 900.0)
    assert read.topic.partitions_per_broker == 5
    assert any("partitionsPerTopic 16 becomes 5 for each broker" in note for note in read.notes)
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("producerRate: 1000", "producerRate: 0", "GB is 2 and producerRate 0; expected a rate"),
        ("consumerPerSubscription: 1", "", r"subscriptionsPerTopic 4, consumerPerSubscription 0"),
        ("GB: 2", "GB: 0.5", r"consumerBacklogSizeGB is 0\.5; expected a whole number"),
    ],
)
def test_a_backlog_that_cannot_be_built_or_read_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_workload(write(tmp_path, BACKLOG.replace(old, new)))


def test_a_rate_of_zero_and_a_test_without_an_end_are_notes(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path, "messageSize: 1000\n"))
    assert read.producer.rate_records_per_s == 1_000
    assert read.trial.measure_s == 300
    assert any("producerRate 0, as fast as possible, has no counterpart" in n for n in read.notes)
    assert any("testDurationMinutes 0, a test without an end" in n for n in read.notes)
    assert any("payloadFile is left out" in n for n in read.notes)


@pytest.mark.parametrize(
    "line", ["consumerPerSubscription: 0", "subscriptionsPerTopic: 0", "messageSize: 1024"]
)
def test_a_file_may_have_no_consumers(tmp_path: Path, line: str) -> None:
    key = line.split(":", maxsplit=1)[0]
    text = "\n".join(each for each in FILE.splitlines() if not each.startswith(key))
    assert load_workload(write(tmp_path, f"{text}\n{line}\n")).consumers.groups == (
        3 if key == "messageSize" else 0
    )


def test_more_consumers_than_partitions_are_cut_with_a_note(tmp_path: Path) -> None:
    text = FILE.replace("consumerPerSubscription: 2", "consumerPerSubscription: 20")
    read = load_workload(write(tmp_path, text))
    assert read.consumers.members == 2 * 16
    assert any(
        "consumerPerSubscription 20 is cut to partitionsPerTopic 16" in n for n in read.notes
    )


@pytest.mark.parametrize("topics", [1_001, 100_000, 1_000_000])
def test_partitions_and_not_topics_are_limited(tmp_path: Path, topics: int) -> None:
    text = FILE.replace("topics: 2", f"topics: {topics}").replace("partitionsPerTopic: 16", "")
    text = text.replace("producerRate: 50000", "producerRate: 5000000")
    text = text.replace("consumerPerSubscription: 2", "consumerPerSubscription: 1")
    read = load_workload(write(tmp_path, text))
    assert (read.topic.count, read.consumers.members) == (topics, topics)
    many = "workload.topic.partitions_per_broker=1000"
    if topics > 1_001:
        with pytest.raises(ConfigError, match=r"each broker leads .* at most 1,000,000 in all"):
            load_workload(write(tmp_path, text), [many])
    else:
        with pytest.raises(ConfigError, match="each broker leads 1,001,000 partitions"):
            load_workload(write(tmp_path, text), [many])


def test_random_payload_without_a_ratio_is_zeros(tmp_path: Path) -> None:
    read = load_workload(write(tmp_path, FILE.replace("randomBytesRatio: 0.25\n", "")))
    assert (read.payload.kind, read.payload.compressibility) == ("mixed", 1.0)
    whole = load_workload(write(tmp_path, FILE.replace("Ratio: 0.25", "Ratio: 1.0")))
    assert whole.payload.kind == "random"


def test_a_payload_file_of_another_size_is_refused_as_the_benchmark_does(tmp_path: Path) -> None:
    (tmp_path / "payload.data").write_text("x" * 90)
    with pytest.raises(ConfigError, match=r"payload\.data has 90 B and messageSize is 100"):
        load_workload(write(tmp_path, "messageSize: 100\npayloadFile: payload.data\n"))


DRIVER = "name: Kafka\ndriverClass: io.x.KafkaBenchmarkDriver\nreplicationFactor: 3\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DRIVER, r"it is a driver file of the OpenMessaging Benchmark \(it has driverClass\); ex"),
        ("workers:\n- http://a:8080\n", "it has no key of a workload file"),
    ],
)
def test_another_file_of_the_benchmark_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_workload(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("messageSize: big\n", r"workload\.yaml: messageSize is 'big'; expected a number from 1"),
        ("messageSize: 0\n", r"messageSize is 0; expected a number from 1 to"),
        ("topics: 1.5\n", r"topics is 1\.5; expected a whole number"),
        (FILE.replace("0.25", "1.5"), r"randomBytesRatio is 1\.5; expected a number from 0 to 1,"),
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
