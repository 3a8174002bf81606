"""Other producers, as fast as they can or at a rate; child processes of the benchmark."""

from __future__ import annotations

import itertools
import os
import random
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.bench.task import Task, say

_SAY_BYTES = 67_108_864
_IN_FLIGHT_RECORDS = 50_000
_BUFFER_BYTES = 67_108_864

RDKAFKA_NAMES = {
    "acks": "acks",
    "enable_idempotence": "enable.idempotence",
    "compression": "compression.type",
}
"""Field of the engine's pattern → option of librdkafka."""


def librdkafka(task: Task) -> None:
    """confluent-kafka's Producer, with a report of every delivery unless `reports` is False.

    The engine and ProducerPerformance account for every record; a producer without reports does
    not know which records arrived.
    """
    from confluent_kafka import Producer

    from jobs.engine.clients.librdkafka import connection_options

    options = dict(task.options)
    reports = options.pop("reports", True)
    share = options.pop("payload", {}).get("compressibility", 0.0)
    acknowledged = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    callback: dict[str, Any] = {"on_delivery": delivered} if reports else {}
    config = {
        **connection_options(task.connection),
        "bootstrap.servers": ",".join(task.bootstrap),
        "acks": 1,
        "batch.size": task.batch_bytes,
        "batch.num.messages": 1_000_000,
        "linger.ms": task.linger_ms,
        "queue.buffering.max.kbytes": _BUFFER_BYTES // 1024,
        "queue.buffering.max.messages": 0,
        **{RDKAFKA_NAMES[key]: value for key, value in options.items()},
    }
    if task.records_per_s > 0:
        _at_a_rate(task, [Producer(config) for _ in range(task.producers)], callback)
        return
    producer = Producer(config)
    produce, values, topic = producer.produce, _values(task.message_bytes, share), task.topic
    for _ in _until(task.seconds_max):
        for value in values:
            try:
                produce(topic, value, **callback)
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.purge()


def _at_a_rate(task: Task, producers: Sequence[Any], callback: Mapping[str, Any]) -> None:
    """Give each producer its records one by one at their times, which are spread evenly."""
    topic, values = task.topic, _values(task.message_bytes)
    pause_s = 1.0 / (task.records_per_s * len(producers))
    turns = zip(itertools.cycle(producers), itertools.cycle(values), strict=False)
    due_s = time.monotonic()
    for _ in _until(task.seconds_max):
        now_s = time.monotonic()
        if due_s > now_s:
            time.sleep(due_s - now_s)
        while due_s <= now_s:
            producer, value = next(turns)
            producer.produce(topic, value, **callback)
            producer.poll(0)
            due_s += pause_s


def kafka_python(task: Task) -> None:
    """kafka-python's KafkaProducer; as it does not limit waiting records, the loop does."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=list(task.bootstrap),
        acks=1,
        batch_size=task.batch_bytes,
        linger_ms=int(task.linger_ms),
        **{"enable_idempotence": False, **task.options, **task.connection},
    )
    send, values, topic = producer.send, _values(task.message_bytes), task.topic
    room = min(_IN_FLIGHT_RECORDS, max(100, _BUFFER_BYTES // task.message_bytes))
    waiting: deque[Any] = deque()
    for _ in _until(task.seconds_max):
        for value in values:
            waiting.append(send(topic, value))
            if len(waiting) > room:
                waiting.popleft().get(task.seconds_max)
    producer.close(timeout=0)


def plain_socket(task: Task) -> None:
    """A sender of random bytes over TCP, in pieces of a batch, which shows the kernel's maximum."""
    pool = memoryview(random.randbytes(32 * task.batch_bytes))
    pieces = [pool[at : at + task.batch_bytes] for at in range(0, len(pool), task.batch_bytes)]
    sent, reported = 0, 0
    with socket.create_connection(("127.0.0.1", task.port)) as sock:
        say(0)
        for _ in _until(task.seconds_max):
            for piece in pieces:
                sock.sendall(piece)
                sent += len(piece)
            if sent - reported >= _SAY_BYTES:
                say(sent)
                reported = sent


def _values(message_bytes: int, repeated_share: float = 0.0) -> list[bytes]:
    """Some MB of different values, made in advance, so that they cost no CPU time later.

    Args:
        repeated_share: share of each value that is one repeated character.
    """
    repeated = b"x" * round(message_bytes * repeated_share)
    count = max(16, min(10_000, 4_000_000 // message_bytes))
    return [random.randbytes(message_bytes - len(repeated)) + repeated for _ in range(count)]


def _until(seconds: float) -> Iterator[None]:
    """Repeat until `seconds` have passed or the parent process has ended."""
    ends_s, parent = time.monotonic() + seconds, os.getppid()
    while time.monotonic() < ends_s and os.getppid() == parent:
        yield
