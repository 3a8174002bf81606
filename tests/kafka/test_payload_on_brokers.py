"""Compressed batches, keys, headers and varied sizes, read by a real consumer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.batches.pool import CODECS, BatchPool
from jobs.testbed.handle import Testbed
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.payload import Payload
from metrics.trial.client import ClientWindow
from tests.support.engine_bench import Bench, benches_at_once
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
FIELDS: dict[str, Any] = {
    "message_bytes": 400,
    "rate_records_per_s": 2_000.0,
    "payload": PAYLOAD,
    "acks": "all",
}


@dataclass(frozen=True)
class Written:
    """The result of a trial: its account, partition → end offset, and the records."""

    client: ClientWindow
    ends: dict[int, int]
    records: list[Any]


@pytest.fixture(scope="module")
def written(kafka_for_all: Testbed) -> dict[str, Written]:
    """Codec → the result of a trial with it."""

    def write(bench: Bench, codec: str) -> Written:
        client = bench.run(producers=2, measure_s=2.0, compression=codec, **FIELDS)
        return Written(client, bench.end_offsets(), bench.read_back())

    return benches_at_once(kafka_for_all, list(CODECS), write)


def _pool_values(pattern: ProducerPattern) -> set[bytes]:
    pool, values = BatchPool(pattern), set()
    for section in pool.sections:
        header, body = pool.take(section, section.full_records, 0)
        values |= {record.value for record in DefaultRecordBatch(header + bytes(body))}
    return values


@pytest.mark.parametrize("compression", CODECS)
def test_a_consumer_reads_back_what_was_sent(written: dict[str, Written], compression: str) -> None:
    client, records = written[compression].client, written[compression].records
    assert client.counts.failed_total == 0
    assert client.counts.acked_total == sum(written[compression].ends.values()) > 100
    assert (client.counts.compression_ratio or 0) > (1.3 if compression != "none" else 0.99)
    assert len(records) == client.counts.acked_total
    sent = _pool_values(producer_pattern(pool_bytes=200_000, compression=compression, **FIELDS))
    assert {record.value for record in records} <= sent
    assert {len(record.key) for record in records} == {8}
    assert {len(value) for record in records for _, value in record.headers} == {5}
    sizes = [len(r.key) + len(r.value) for r in records]
    of_some = stdev(sizes) / math.sqrt(client.counts.acked_records)  # the window holds some of them
    assert client.counts.acked_bytes / client.counts.acked_records == pytest.approx(
        mean(sizes), abs=6 * of_some
    )
    offsets = {
        p: sorted(r.offset for r in records if r.partition == p) for p in written[compression].ends
    }
    assert all(found == list(range(len(found))) for found in offsets.values())
