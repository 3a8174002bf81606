"""Other consumers that read a topic from its start as fast as they can; child processes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from tests.bench.task import Task, say

_SAY_BYTES = 16_777_216
_FETCH_BYTES = 1_048_576
_MESSAGES = 10_000


def _read(task: Task, poll: Callable[[], int]) -> None:
    """Poll bytes until the end of the task, and report them now and then."""
    ends_s, read, reported = time.monotonic() + task.seconds_max, 0, 0
    while read < task.bytes_max and time.monotonic() < ends_s:
        read += poll()
        if read - reported >= _SAY_BYTES:
            say(read)
            reported = read


def librdkafka(task: Task) -> None:
    """confluent-kafka's Consumer, which returns lists of messages."""
    from confluent_kafka import Consumer

    from jobs.engine.clients.librdkafka import connection_options

    consumer = Consumer(
        {
            **connection_options(task.connection),
            "bootstrap.servers": ",".join(task.bootstrap),
            "group.id": f"bench-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.max.messages.kbytes": 131_072,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.subscribe([task.topic])
    _read(task, lambda: sum(map(len, consumer.consume(_MESSAGES, 0.1))))
    consumer.close()


def kafka_python(task: Task) -> None:
    """kafka-python's KafkaConsumer without its check of CRCs."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        task.topic,
        bootstrap_servers=list(task.bootstrap),
        group_id=f"bench-{os.getpid()}",
        auto_offset_reset="earliest",
        check_crcs=False,
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=_MESSAGES,
        **task.connection,
    )

    def poll() -> int:
        polled = consumer.poll(timeout_ms=100)
        return sum(len(record.value) for records in polled.values() for record in records)

    _read(task, poll)
    consumer.close()


def plain_socket(task: Task) -> None:
    """A reader of all bytes of a TCP connection into one buffer."""
    buffer, read, reported = memoryview(bytearray(_FETCH_BYTES)), 0, 0
    ends_s = time.monotonic() + task.seconds_max
    with socket.create_server(("127.0.0.1", 0)) as server:
        say(0, port=server.getsockname()[1])
        server.settimeout(task.seconds_max)
        sock, _ = server.accept()
        with sock:
            while (size := sock.recv_into(buffer)) and time.monotonic() < ends_s:
                read += size
                if read - reported >= _SAY_BYTES:
                    say(read)
                    reported = read


def ends_of(task: Task) -> dict[int, int]:
    """Partition → end offset of the topic."""
    from jobs.cluster.connect import connect

    with connect(task.bootstrap, task.connection) as admin:
        brokers = admin.describe_cluster().broker_ids
        partitions = admin.partitions_seen_by(brokers[0], [task.topic])[task.topic] or {}
        ends = admin.end_offsets((task.topic, partition) for partition in partitions)
        return {partition: offset for (_topic, partition), offset in ends.items()}
