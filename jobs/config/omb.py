"""The translation of workload files of the OpenMessaging Benchmark. Pure.

The keys are those of its class Workload (openmessaging/benchmark, benchmark-framework). The values
of its driver file (acks, linger.ms, batch.size, replicas) are those of its
driver-kafka/kafka-throughput.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.config.fields import nearest
from metrics.common.errors import ConfigError

PREFIX = "omb:"
RATE_EACH = 1_000.0
"""Messages per second of a producer where a file states only "as fast as possible"."""
RECORD_BYTES_DEFAULT = 1024
NUMBER_MAX = 1e12
"""Largest number that a file may have."""

_KNOWN = (
    "name", "topics", "partitionsPerTopic", "keyDistributor", "messageSize",
    "useRandomizedPayloads", "randomBytesRatio", "randomizedPayloadPoolSize", "payloadFile",
    "subscriptionsPerTopic", "producersPerTopic", "consumerPerSubscription", "producerRate",
    "consumerBacklogSizeGB", "backlogDrainRatio", "testDurationMinutes", "warmupDurationMinutes",
    "logIntervalMillis",
)  # fmt: skip


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
        ConfigError: a value is not a number, or the payload file does not exist.
    """
    read = _Reader(data, label)
    size = read.whole("messageSize", RECORD_BYTES_DEFAULT)
    producers = read.whole("topics", 1) * read.whole("producersPerTopic", 1)
    rate = read.number("producerRate", 0.0)
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
        "payload": _payload(read, data, label, find),
        "topic": {"count": read.whole("topics", 1), "replication_factor": 3,
                  "config": {"min.insync.replicas": 2}},
        "trial": {"warmup_s": 60.0 * read.number("warmupDurationMinutes", 1.0),
                  "measure_s": 60.0 * read.number("testDurationMinutes", 5.0)},
        "consumers": {"groups": read.whole("subscriptionsPerTopic", 0, 0),
                      "members": read.whole("consumerPerSubscription", 1)},
        "notes": _notes(read, data, producers, rate),
    }  # fmt: skip
    backlog = read.number("consumerBacklogSizeGB", 0.0)
    if backlog:
        made["consumers"] |= {"start": "backlog", "backlog_records": round(backlog * 1e9 / size)}
    return made


class _Reader:
    def __init__(self, data: Mapping[str, Any], label: str) -> None:
        self._data, self._label = data, label

    def number(self, key: str, default: float, least: float = 0.0) -> float:
        value = self._data.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= NUMBER_MAX:
            raise ConfigError(
                f"{self._label}: {key} is {f'{value!r}'[:80]}; expected a number from {least:g} to "
                f"{NUMBER_MAX:g}, as in the OpenMessaging Benchmark; correct it"
            )
        return float(value)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self.number(key, default, least)
        if value != int(value):
            raise ConfigError(
                f"{self._label}: {key} is {value:g}; expected a whole number; correct it"
            )
        return int(value)


def _payload(
    read: _Reader, data: Mapping[str, Any], label: str, find: Callable[[str], Path | None]
) -> dict[str, Any]:
    if data.get("useRandomizedPayloads"):
        random = min(1.0, read.number("randomBytesRatio", 1.0))
        return {"kind": "mixed", "compressibility": 1.0 - random} if random < 1.0 else {}
    given = data.get("payloadFile")
    if not given:
        return {}
    found = find(str(given))
    if found is None:
        raise ConfigError(
            f"{label}: payloadFile {given} does not exist; expected it beside the file or in the "
            "folder above, as in the OpenMessaging Benchmark; copy it there, or remove the key "
            "for random payload"
        )
    return {"kind": "messages", "messages_file": str(found)}


def _notes(read: _Reader, data: Mapping[str, Any], producers: int, rate: float) -> list[str]:
    partitions = read.whole("partitionsPerTopic", 1)
    driver = (
        "acks=all, linger 1 ms, batches up to 1 MiB and 3 replicas come from the OpenMessaging "
        "Benchmark's driver file kafka-throughput.yaml"
    )
    topic = (
        f"partitionsPerTopic {partitions} is left out, as partitions here are counted for each "
        "broker; set workload.topic.partitions_per_broker"
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
    unknown = [_unknown(str(key)) for key in data if key not in _KNOWN]
    return [driver, topic, load, *left_out, *unknown]


def _unknown(key: str) -> str:
    close = nearest(key, _KNOWN)
    meant = f"; the nearest key is {close}" if close else ""
    return f"{key} is not a key of the OpenMessaging Benchmark and is left out{meant}"


def finder(folder: Path) -> Callable[[str], Path | None]:
    """A search for payload files in a workload's folder and the folder above.

    The benchmark itself runs in the folder above.
    """

    def find(given: str) -> Path | None:
        places = (folder / given, folder.parent / given, Path(given))
        return next((each.resolve() for each in places if each.is_file()), None)

    return find
