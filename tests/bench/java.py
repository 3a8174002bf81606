"""Command lines of Kafka's own performance tools."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jobs.setup.preflight import java_command
from jobs.testbed.jvm import PERFORMANCE_OPTIONS
from tests.bench.task import Task

# As kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh do.
_HEAP = "-Xmx512M"
_TOOLS = "org.apache.kafka.tools"
_FOREVER = 10**12
_REPORT_MS = 100

JAVA_NAMES: Mapping[str, str] = {
    "acks": "acks",
    "linger_ms": "linger.ms",
    "enable_idempotence": "enable.idempotence",
    "compression": "compression.type",
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
}
"""Fields of the engine's pattern and connection options → options of the Java clients."""

_PEM = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}


def producer_command(task: Task) -> list[str]:
    """The command of ProducerPerformance, with the rate of the task, if it has one."""
    properties = {
        "bootstrap.servers": ",".join(task.bootstrap),
        "acks": "1",
        "batch.size": str(task.batch_bytes),
        "linger.ms": f"{task.linger_ms:g}",
        "buffer.memory": "67108864",
        "enable.idempotence": "false",
        **{JAVA_NAMES[key]: _text(value) for key, value in task.options.items()},
        **_connection(task.connection),
    }
    return [
        *_java(task),
        f"{_TOOLS}.ProducerPerformance",
        *("--topic", task.topic, "--num-records", str(_FOREVER)),
        *("--record-size", str(task.message_bytes), "--throughput", str(task.records_per_s)),
        *("--producer-props", *(f"{key}={value}" for key, value in properties.items())),
    ]


def consumer_command(task: Task) -> list[str]:
    """The command of ConsumerPerformance, which prints its progress every tenth of a second."""
    return [
        *_java(task),
        f"{_TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", ",".join(task.bootstrap), "--topic", task.topic),
        *("--messages", str(task.bytes_max // task.message_bytes), "--hide-header"),
        *("--show-detailed-stats", "--reporting-interval", str(_REPORT_MS)),
    ]


def producer(task: Task) -> None:
    """Replace this process with ProducerPerformance."""
    _become(producer_command(task))


def consumer(task: Task) -> None:
    """Replace this process with ConsumerPerformance."""
    _become(consumer_command(task))


def _become(command: Sequence[str]) -> NoReturn:
    os.execvp(command[0], list(command))


def messages_of(line: str) -> int | None:
    """Number of messages in a progress line of `consumer_command`; None for another line."""
    fields = line.split(", ")
    try:
        return int(fields[4])
    except (IndexError, ValueError):
        return None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _connection(options: Mapping[str, object]) -> dict[str, str]:
    """Connection options of Java's clients; one file has both the client's key and certificate."""
    known = {JAVA_NAMES[key]: str(options[key]) for key in options if key in JAVA_NAMES}
    return {**known, **_PEM} if "ssl.keystore.location" in known else known


def _java(task: Task) -> list[str]:
    return [java_command(), _HEAP, *PERFORMANCE_OPTIONS, "-cp", ":".join(task.jars)]
