"""The translation of workload files of the OpenMessaging Benchmark. Pure.

The keys are those of its class Workload, and they mean what its WorkloadGenerator and LocalWorker
make of them (openmessaging/benchmark at 8559989, benchmark-framework); docs/omb.md has them in a
table. The values of its driver file (acks, linger.ms, batch.size, replicas) are those of its
driver-kafka/kafka-throughput.yaml.
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
"""Messages per second of a producer where a file states only "as fast as possible"."""
RECORD_BYTES_DEFAULT = 1024
NUMBER_MAX = 1e12
"""Largest number that a file may have."""
GB = 1024**3
"""Size of a gigabyte of `consumerBacklogSizeGB` [B]."""
BROKERS = 3
"""Number of brokers for which `partitionsPerTopic` is divided: the replicas of its driver file."""
MEASURE_MIN = 5.0
"""Length of the window of a file whose test has no end [min]."""

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
    """The keys of the workload; its `notes` name the keys without a counterpart.

    Args:
        data: content of the file.
        stem: name of the file without its suffix.
        label: name of the file in messages.
        find: finds a payload file; returns None if it does not exist.

    Raises:
        ConfigError: it is no workload file, a value is not a number or contradicts another one, or
            the payload file does not exist.
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
                "a rate, as the OpenMessaging Benchmark builds a backlog at a stated rate; set "
                "producerRate, or remove consumerBacklogSizeGB",
            )
        kept = backlog * size // (topics * made["topic"]["partitions_per_broker"])
        made["topic"]["config"]["retention.bytes"] = RETENTION_BYTES + 2 * kept
    return made


def _per_broker(partitions: int) -> int:
    return max(1, round(partitions / BROKERS))


def _require_workload(data: Mapping[str, Any], label: str) -> None:
    """Refuse a driver file of the benchmark, and a file with none of a workload's keys."""
    drivers = [key for key in _DRIVER_KEYS if key in data]
    if drivers:
        raise ConfigError(
            f"{label}: it is a driver file of the OpenMessaging Benchmark (it has {drivers[0]}); "
            "expected a workload file, such as those of its folder workloads; name one, and set "
            "what the driver file has with --set workload.producer.linger_ms=1 and the like"
        )
    if not any(key in data for key in _KNOWN if key != "name"):
        raise ConfigError(
            f"{label}: it has no key of a workload file of the OpenMessaging Benchmark; expected "
            "keys such as topics, messageSize and producerRate; name another file"
        )


def _consumers(read: _Reader, size: int, topics: int, partitions: int) -> dict[str, Any]:
    """The consumer groups: one for each subscription, with the consumers of all topics.

    The benchmark has a group for each topic and subscription. A group here reads all topics with
    as many members, each with as many partitions, so consumers and bytes are the same.
    """
    subscriptions = read.whole("subscriptionsPerTopic", 0, 0)
    each = min(read.whole("consumerPerSubscription", 0, 0), partitions)
    backlog_bytes = read.whole("consumerBacklogSizeGB", 0, 0) * GB
    if not (subscriptions and each):
        if backlog_bytes:
            raise read.problem(
                "consumerBacklogSizeGB is above 0, and there are no consumers "
                f"(subscriptionsPerTopic {subscriptions}, consumerPerSubscription {each})",
                "consumers that read it; set both above 0, or remove consumerBacklogSizeGB",
            )
        return {"groups": 0}
    made: dict[str, Any] = {"groups": subscriptions, "members": topics * each}
    if backlog_bytes:  # the benchmark counts what all subscriptions have not read
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
                f"a number from {least:g} to {most:g}, as in the OpenMessaging Benchmark; correct "
                "it",
            )
        return float(value)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self.number(key, default, least)
        if value != int(value):
            raise self.problem(f"{key} is {value:g}", "a whole number; correct it")
        return int(value)


def _payload(read: _Reader, size: int, find: Callable[[str], Path | None]) -> dict[str, Any]:
    if read.data.get("useRandomizedPayloads"):
        # The rest of the bytes is zero, and so are all of them without a ratio.
        random = read.number("randomBytesRatio", 0.0, most=1.0)
        return {"kind": "mixed", "compressibility": 1.0 - random} if random < 1.0 else {}
    given = read.data.get("payloadFile")
    if not given:
        return {}
    found = find(str(given))
    if found is None:
        raise read.problem(
            f"payloadFile {given} does not exist",
            "it beside the file or in the folder above, as in the OpenMessaging Benchmark; copy it "
            "there, or remove the key for random payload",
        )
    held = found.stat().st_size
    if held != size:
        raise read.problem(
            f"payloadFile {given} has {held} B and messageSize is {size}",
            "the same, as the file is one message; correct messageSize, or name another file",
        )
    return {"kind": "messages", "messages_file": str(found)}


def _notes(read: _Reader, producers: int, rate: float) -> list[str]:
    data = read.data
    partitions = read.whole("partitionsPerTopic", 1)
    driver = (
        "acks=all, linger 1 ms, batches up to 1 MiB and 3 replicas come from the OpenMessaging "
        "Benchmark's driver file kafka-throughput.yaml"
    )
    each = _per_broker(partitions)
    topic = (
        f"partitionsPerTopic {partitions} becomes {each} for each broker, as on {BROKERS} brokers; "
        "with another number of them set workload.topic.partitions_per_broker"
    )
    load = (
        f"{producers} producers as in the file: redline traffic --load {producers}"
        if rate
        else f"producerRate 0, as fast as possible, has no counterpart: each producer offers "
        f"{RATE_EACH:,.0f} messages/s, and a search finds how many producers are sustained"
    )
    left_out = [
        f"{key} {data[key]} has no counterpart and is left out"
        for key in ("keyDistributor", "backlogDrainRatio")
        if data.get(key) not in (None, "NO_KEY")
    ]
    if not data.get("testDurationMinutes"):
        left_out.append(
            "testDurationMinutes 0, a test without an end, has no counterpart: a trial measures "
            f"{MEASURE_MIN:g} minutes"
        )
    if not (data.get("useRandomizedPayloads") or data.get("payloadFile")):
        left_out.append(
            "payloadFile is left out, which the OpenMessaging Benchmark does not take: the "
            "payload is random"
        )
    wanted = read.whole("consumerPerSubscription", 0, 0)
    if wanted > partitions:
        left_out.append(
            f"consumerPerSubscription {wanted} is cut to partitionsPerTopic {partitions}, as the "
            "others would read nothing"
        )
    for key in (str(each) for each in data if each not in _KNOWN):
        close = nearest(key, _KNOWN)
        meant = f"; the nearest key is {close}" if close else ""
        left_out.append(f"{key} is not a key of the OpenMessaging Benchmark and is left out{meant}")
    return [driver, topic, load, *left_out]


def finder(folder: Path) -> Callable[[str], Path | None]:
    """A search for payload files in a workload's folder and the folder above.

    The benchmark itself runs in the folder above.
    """

    def find(given: str) -> Path | None:
        places = (folder / given, folder.parent / given, Path(given))
        return next((each.resolve() for each in places if each.is_file()), None)

    return find
