"""What real consumers read of compressed batches, keys, headers and varied sizes."""

from __future__ import annotations

import itertools
import math
from statistics import mean, stdev
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.record.default_records import DefaultRecordBatch

from jobs.cluster.connect import connect
from jobs.engine.batches.compression import CODECS
from jobs.engine.batches.pool import BatchPool
from jobs.testbed.handle import Testbed
from metrics.traffic.payload import Payload
from metrics.traffic.producer import ProducerPattern
from tests.support.engine_bench import Bench
from tests.support.patterns import producer_pattern

pytestmark = pytest.mark.together

PAYLOAD = Payload(
    "mixed",
    compressibility=0.5,
    sizes="uniform",
    size_spread=0.8,
    key_bytes=8,
    key_count=50,
    headers=1,
    header_bytes=5,
)
READ_TIMEOUT_MS = 20_000


@pytest.fixture
def bench(kafka_testbed: Testbed) -> Any:
    with connect(kafka_testbed.bootstrap_servers) as admin:
        made = Bench(kafka_testbed, admin, replicas=1)
        yield made
        admin.delete_topic(made.topic)


def _read_all(bench: Bench, count: int) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=bench.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=READ_TIMEOUT_MS,
        check_crcs=True,
    )
    try:
        consumer.assign([TopicPartition(bench.topic, p) for p in bench.assigned])
        return list(itertools.islice(consumer, count))
    finally:
        consumer.close()


def _pool_values(pattern: ProducerPattern) -> set[bytes]:
    pool, values = BatchPool(pattern), set()
    for section in pool.sections:
        header, body = pool.take(section, section.full_records, 0)
        values |= {record.value for record in DefaultRecordBatch(header + bytes(body))}
    return values


@pytest.mark.parametrize("compression", CODECS)
def test_a_consumer_reads_back_what_was_sent(bench: Bench, compression: str) -> None:
    fields: dict[str, Any] = {
        "bpm": 400,
        "rate_records_per_s": 2_000.0,
        "payload": PAYLOAD,
        "compression": compression,
        "acks": "all",
    }
    client = bench.run(np=2, measure_s=2.0, **fields)
    assert client.counts.failed_total == 0
    assert client.counts.acked_total == sum(bench.end_offsets().values()) > 100
    assert (client.counts.compression_ratio or 0) > (1.3 if compression != "none" else 0.99)
    records = _read_all(bench, client.counts.acked_total)
    assert len(records) == client.counts.acked_total
    sent = _pool_values(producer_pattern(pool_bytes=200_000, **fields))
    assert {record.value for record in records} <= sent
    assert {len(record.key) for record in records} == {8}
    assert {len(value) for record in records for _, value in record.headers} == {5}
    sizes = [len(r.key) + len(r.value) for r in records]
    of_some = stdev(sizes) / math.sqrt(client.counts.acked_records)  # the window holds some of them
    assert client.counts.acked_bytes / client.counts.acked_records == pytest.approx(
        mean(sizes), abs=6 * of_some
    )
    offsets = {p: sorted(r.offset for r in records if r.partition == p) for p in bench.assigned}
    assert all(found == list(range(len(found))) for found in offsets.values())
