"""The translation of workload files of the OpenMessaging Benchmark.

The keys in a file are the fields of the benchmark's class Workload. The meaning of each key follows
from the classes WorkloadGenerator and LocalWorker (openmessaging/benchmark at 8559989,
benchmark-framework); docs/omb.md explains the keys in a table. The values of acks, linger.ms,
batch.size and replicas come from the
benchmark's driver file driver-kafka/kafka-throughput.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.config.base import nearest
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import RETENTION_BYTES

PREFIX = "omb:"
RATE_EACH = 1_000.0
"""Rate of a producer if the file states only "as fast as possible" [messages/s]."""
RECORD_BYTES_DEFAULT = 1024
NUMBER_MAX = 1e12
"""Largest accepted value of a number in a file."""
GB = 1024**3
"""Size of a gigabyte in the key `consumerBacklogSizeGB` [B]."""
BROKERS = 3
"""Assumed number of brokers, by which `partitionsPerTopic` is divided. A cluster for the benchmark
needs at least as many brokers, because the benchmark's driver file sets 3 replicas.
"""
MEASURE_MIN = 5.0
"""Length of the window if the file's test has no end [min]."""

_KNOWN = (
    "name", "topics", "partitionsPerTopic", "keyDistributor", "messageSize",
    "useRandomizedPayloads", "randomBytesRatio", "randomizedPayloadPoolSize", "payloadFile",
    "subscriptionsPerTopic", "producersPerTopic", "consumerPerSubscription", "producerRate",
    "consumerBacklogSizeGB", "backlogDrainRatio", "testDurationMinutes", "warmupDurationMinutes",
    "logIntervalMillis",
)  # fmt: skip


_DRIVER_KEYS = ("driverClass", "replicationFactor", "producerConfig", "commonConfig", "topicConfig")


def translated(
    data: Mapping[str, Any], stem: str, label: str, find: Callable[[str], Path | None]
) -> dict[str, Any]:
    """The keys of the translated workload; the key `notes` lists keys that cannot be translated.

    Args:
        data: content of the file.
        stem: name of the file without its suffix.
        label: name of the file in messages.
        find: function that returns the path of a payload file; None if the file does not exist.

    Raises:
        ConfigError: the file is not a workload file, a value is not a number, two values contradict
            each other, or the payload file does not exist.
    """
    _require_workload(data, label)
    read = _Reader(data, label)
    size = read.whole("messageSize", RECORD_BYTES_DEFAULT)
    topics = read.whole("topics", 1)
    producers = topics * read.whole("producersPerTopic", 1)
    rate = read.number("producerRate", 0.0)
    partitions = read.whole("partitionsPerTopic", 1)
    minutes = read.number("testDurationMinutes", 0.0)
    consumers = _consumers(read, size, topics, partitions)
    each = rate / producers if rate else RATE_EACH
    made: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", str(data.get("name") or stem)).strip("-")[:80],
        "description": f"a workload of the OpenMessaging Benchmark, {label}",
        "message_bytes": [size],
        "producer": {
            "rate_records_per_s": each,
            "acks": "all",
            "linger_ms": 1,
            "batch_size": 1_048_576,
            "max_request_size": 2_097_152,
        },
        "payload": _payload(read, size, find),
        "topic": {"count": topics, "partitions_per_broker": _per_broker(partitions),
                  "replication_factor": 3, "config": {"min.insync.replicas": 2}},
        "trial": {"warmup_s": 60.0 * read.number("warmupDurationMinutes", 1.0),
                  "measure_s": 60.0 * (minutes or MEASURE_MIN)},
        "consumers": consumers,
        "notes": _notes(read, producers, rate),
    }  # fmt: skip
    backlog = consumers.get("backlog_records", 0)
    if backlog:
        if not rate:
            raise read.problem(
                f"consumerBacklogSizeGB is {data['consumerBacklogSizeGB']} and producerRate 0",
                "a rate, because the OpenMessaging Benchmark builds a backlog at a stated rate; "
                "set producerRate, or remove consumerBacklogSizeGB",
            )
        kept = backlog * size // (topics * made["topic"]["partitions_per_broker"])
        made["topic"]["config"]["retention.bytes"] = RETENTION_BYTES + 2 * kept
    return made


def _per_broker(partitions: int) -> int:
    return max(1, round(partitions / BROKERS))


def _require_workload(data: Mapping[str, Any], label: str) -> None:
    """Refuse a driver file of the benchmark, and a file without any key of a workload."""
    drivers = [key for key in _DRIVER_KEYS if key in data]
    if drivers:
        raise ConfigError(
            f"{label} is a driver file of the OpenMessaging Benchmark (it has {drivers[0]}); "
            "expected a workload file, such as a file of the benchmark's folder workloads; name a "
            "workload file, and set the driver file's values with options such as --set "
            "workload.producer.linger_ms=1"
        )
    if not any(key in data for key in _KNOWN if key != "name"):
        raise ConfigError(
            f"{label} has no key of a workload file of the OpenMessaging Benchmark; expected "
            "keys such as topics, messageSize and producerRate; name another file"
        )


def _consumers(read: _Reader, size: int, topics: int, partitions: int) -> dict[str, Any]:
    """The section `consumers`: one group for each subscription, with the consumers of all topics.

    The benchmark has one group for each pair of a topic and a subscription. In the translation, one
    group for each subscription reads all topics. The translated group of a subscription replaces
    all groups that the benchmark has for this subscription. The translated group has as many
    members as the replaced groups together. The number of consumers and the bytes that they read
    are therefore the same as in the benchmark.
    """
    subscriptions = read.whole("subscriptionsPerTopic", 0, 0)
    each = min(read.whole("consumerPerSubscription", 0, 0), partitions)
    backlog_bytes = read.whole("consumerBacklogSizeGB", 0, 0) * GB
    if not (subscriptions and each):
        if backlog_bytes:
            raise read.problem(
                "consumerBacklogSizeGB is above 0, and there are no consumers "
                f"(subscriptionsPerTopic {subscriptions}, consumerPerSubscription {each})",
                "two numbers above 0; raise what is 0, or remove consumerBacklogSizeGB",
            )
        return {"groups": 0}
    made: dict[str, Any] = {"groups": subscriptions, "members": topics * each}
    if backlog_bytes:  # the benchmark's backlog is the sum over all subscriptions
        records = -(-backlog_bytes // (size * subscriptions))
        made |= {"start": "backlog", "backlog_records": records}
    return made


@dataclass(frozen=True)
class _Reader:
    data: Mapping[str, Any]
    label: str

    def problem(self, found: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.label}: {found}; expected {expected}")

    def number(
        self, key: str, default: float, least: float = 0.0, most: float = NUMBER_MAX
    ) -> float:
        value = self.data.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise self.problem(
                f"{key} is {f'{value!r}'[:80]}",
                f"a number from {least:g} to {most:g}; correct it",
            )
        return float(value)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self.number(key, default, least)
        if value != int(value):
            raise self.problem(f"{key} is {value:g}", "a whole number; correct it")
        return int(value)


def _payload(read: _Reader, size: int, find: Callable[[str], Path | None]) -> dict[str, Any]:
    if read.data.get("useRandomizedPayloads"):
        # The other bytes are zero; without a ratio all bytes are zero.
        random = read.number("randomBytesRatio", 0.0, most=1.0)
        return {"kind": "mixed", "compressibility": 1.0 - random} if random < 1.0 else {}
    given = read.data.get("payloadFile")
    if not given:
        return {}
    found = find(str(given))
    if found is None:
        raise read.problem(
            f"payloadFile {given} does not exist",
            "the payload file in the workload's folder or in the folder above; copy it there, or "
            "remove the key for a random payload",
        )
    held = found.stat().st_size
    if held != size:
        raise read.problem(
            f"payloadFile {given} has {held} B and messageSize is {size}",
            "the same size, because the payload file is one message; correct messageSize, or name "
            "another file",
        )
    return {"kind": "messages", "messages_file": str(found)}


def _notes(read: _Reader, producers: int, rate: float) -> list[str]:
    data = read.data
    partitions = read.whole("partitionsPerTopic", 1)
    driver = (
        "acks=all, linger 1 ms, batches of up to 1 MiB and 3 replicas come from the OpenMessaging "
        "Benchmark's driver file kafka-throughput.yaml"
    )
    each = _per_broker(partitions)
    topic = (
        f"partitionsPerTopic {partitions} becomes {each} for each of {BROKERS} brokers; for "
        "another number of brokers set workload.topic.partitions_per_broker"
    )
    load = (
        f"the file has {producers} producers: to offer this load, use redline traffic --load "
        f"{producers}"
        if rate
        else f"producerRate 0 (as fast as possible) cannot be translated: each producer offers "
        f"{RATE_EACH:,.0f} messages/s, and a search finds the sustained number of producers"
    )
    left_out = [
        f"{key} {data[key]} cannot be translated and is ignored"
        for key in ("keyDistributor", "backlogDrainRatio")
        if data.get(key) not in (None, "NO_KEY")
    ]
    if not data.get("testDurationMinutes"):
        left_out.append(
            "testDurationMinutes 0 (a test without an end) cannot be translated: a trial measures "
            f"{MEASURE_MIN:g} minutes"
        )
    if not (data.get("useRandomizedPayloads") or data.get("payloadFile")):
        left_out.append(
            "payloadFile is missing, so the payload is random; the OpenMessaging Benchmark would "
            "refuse this workload file"
        )
    wanted = read.whole("consumerPerSubscription", 0, 0)
    if wanted > partitions:
        left_out.append(
            f"consumerPerSubscription {wanted} is lowered to partitionsPerTopic {partitions}, "
            "because further consumers would read nothing"
        )
    for key in (str(each) for each in data if each not in _KNOWN):
        close = nearest(key, _KNOWN)
        meant = f"; the nearest key is {close}" if close else ""
        left_out.append(f"{key} is not a key of the OpenMessaging Benchmark and is ignored{meant}")
    return [driver, topic, load, *left_out]


def finder(folder: Path) -> Callable[[str], Path | None]:
    """A function that finds payload files in the workload's folder and in its parent folder.

    The benchmark runs in the parent folder of its workload files, so relative paths in a workload
    file may start at the parent folder.
    """

    def find(given: str) -> Path | None:
        places = (folder / given, folder.parent / given, Path(given))
        return next((each.resolve() for each in places if each.is_file()), None)

    return find
