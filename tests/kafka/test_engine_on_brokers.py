"""The engine on real brokers: the log has each acknowledged record and no others, whole."""

from __future__ import annotations

import math
from itertools import product
from statistics import mean, stdev
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.batches.pool import CODECS, BatchPool
from jobs.testbed.handle import Testbed
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.payload import Payload
from metrics.trial.client import ClientWindow, Counts
from tests.support.engine_bench import Bench, benches_at_once
from tests.support.patterns import producer_pattern
from tests.support.processes import becomes

LIBRARIES = ("kafka-python", "librdkafka")


@pytest.mark.together
def test_acknowledged_equals_growth(kafka_testbed: Testbed) -> None:
    def write(bench: Bench, variant: tuple[str, int]) -> tuple[ClientWindow, dict[int, int]]:
        acks, message_bytes = variant
        return bench.run(acks=acks, message_bytes=message_bytes), bench.end_offsets()

    variants = list(product(("1", "all"), (1, 100, 10_000)))
    for variant, (client, ends) in benches_at_once(kafka_testbed, variants, write).items():
        counts, by_producer = client.counts, client.counts.by_producer
        assert counts.acked_total == sum(ends.values()) > 0, variant
        assert counts.acked_by_partition == {p: end for p, end in ends.items() if end}, variant
        assert (counts.failed_total, by_producer.failed) == (0, {}), variant
        assert counts.sent_by_partition == counts.acked_by_partition, variant
        assert sorted(by_producer.acked) == [0, 1], variant
        assert sum(by_producer.acked.values()) == counts.acked_total, variant
        assert by_producer.sent == by_producer.acked, variant
        for producer, sent in by_producer.sent.items():
            offered = by_producer.offered[producer]
            assert offered == pytest.approx(300 * 2.0, abs=1), variant
            assert 0 < sent <= offered, "some wait when the window ends"


@pytest.mark.together
@pytest.mark.parametrize(("client", "acks"), [("wire", "0"), *product(LIBRARIES, ("0", "all"))])
def test_records_of_each_client_arrive(bench: Bench, client: str, acks: str) -> None:
    window = bench.run(client=client, acks=acks, measure_s=1.0)
    counts = window.counts
    if acks == "0":  # brokers may still be writing
        assert becomes(lambda: sum(bench.end_offsets().values()) >= counts.acked_total, 20)
    assert counts.acked_by_partition == {
        partition: end for partition, end in bench.end_offsets().items() if end
    }
    assert counts.offered_records == pytest.approx(600, rel=0.01)
    # On a busy machine the last turn leaves due records, and counts them; a broker that stalls at
    # the end of the window delays some.
    assert 450 < counts.acked_total + counts.unsent_own_records <= 909
    assert counts.failed_total == 0
    assert 0 < window.latency.p50_ms < 1_000


@pytest.mark.together
def test_records_of_an_idempotent_producer_arrive(bench: Bench) -> None:
    client = bench.run(
        producers=3,
        acks="all",
        enable_idempotence=True,
        send_buffer_bytes=131_072,
        receive_buffer_bytes=0,
    )
    assert client.counts.acked_total == sum(bench.end_offsets().values()) > 0
    assert (client.counts.failed_total, client.counts.retried_records) == (0, 0)
    assert (client.producer_share.min or 0) > 0.5


@pytest.mark.together
def test_a_real_consumer_reads_what_was_sent(bench: Bench) -> None:
    client = bench.run(producers=3, rate_records_per_s=100.0, pool_bytes=4_000_000)
    values = [record.value for record in bench.read_back()]
    assert len(values) == client.counts.acked_total
    assert {len(value) for value in values} == {1_000}
    assert len(set(values)) > 200, "random payload instead of one repeated record"


def test_the_rate_is_kept_exactly(bench: Bench) -> None:
    for _ in range(5):  # a broker may stall at an edge of the window, and delay some records
        client = bench.run(producers=20, rate_records_per_s=100.0, measure_s=4.0)
        assert client.counts.offered_records == pytest.approx(8_000, rel=0.001)
        assert client.counts.unsent_own_records <= 8_000 * 0.005
        if abs(client.counts.sent_records - 8_000) <= 40:
            break
    assert client.counts.sent_records == pytest.approx(8_000, abs=40)


@pytest.mark.together
def test_a_refused_record_is_counted_by_its_error(kafka_testbed: Testbed) -> None:
    """The records are too large for the brokers."""

    def write(bench: Bench, client: str) -> tuple[Counts, dict[int, int]]:
        load: dict[str, Any] = {"rate_records_per_s": 5.0, "pool_bytes": 8_000_000}
        window = bench.run(client=client, message_bytes=2_000_000, **load)
        return window.counts, bench.end_offsets()

    found = benches_at_once(kafka_testbed, ["wire", *LIBRARIES], write)
    for client, (counts, ends) in found.items():
        assert set(counts.errors) == {"MessageSizeTooLargeError"}, client
        assert counts.acked_total == 0 == sum(ends.values()), client
    counts, _ = found["wire"]
    of_both = [sum(errors.values()) for errors in counts.by_producer.failed.values()]
    assert sum(of_both) == counts.failed_total and len(of_both) == 2
    by_partition = {p: sum(each.values()) for p, each in counts.errors_by_partition.items()}
    assert by_partition == counts.failed_by_partition


@pytest.mark.together
def test_an_unreachable_broker_is_a_row_without_an_exception(bench: Bench) -> None:
    bench.brokers = dict.fromkeys(bench.brokers, ("127.0.0.1", 1))
    with pytest.raises(AssertionError, match=r"broker \d at 127.0.0.1:1"):
        bench.run()


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


def _pool_values(pattern: ProducerPattern) -> set[bytes]:
    pool, values = BatchPool(pattern), set()
    for section in pool.sections:
        header, body = section.batch_of(section.full_records, 0)
        values |= {record.value for record in DefaultRecordBatch(header + bytes(body))}
    return values


@pytest.mark.together
def test_a_consumer_reads_back_what_was_sent(kafka_testbed: Testbed) -> None:
    def write(bench: Bench, codec: str) -> tuple[Counts, dict[int, int], list[Any]]:
        client = bench.run(producers=2, measure_s=2.0, compression=codec, **FIELDS)
        return client.counts, bench.end_offsets(), bench.read_back()

    found = benches_at_once(kafka_testbed, list(CODECS), write)
    for codec, (counts, ends, records) in found.items():
        assert counts.failed_total == 0, codec
        assert counts.acked_total == sum(ends.values()) > 100, codec
        assert (counts.compression_ratio or 0) > (1.3 if codec != "none" else 0.99), codec
        assert len(records) == counts.acked_total, codec
        sent = _pool_values(producer_pattern(pool_bytes=200_000, compression=codec, **FIELDS))
        assert {record.value for record in records} <= sent, codec
        assert {len(record.key) for record in records} == {8}, codec
        assert {len(value) for record in records for _, value in record.headers} == {5}, codec
        sizes = [len(r.key) + len(r.value) for r in records]
        of_some = stdev(sizes) / math.sqrt(counts.acked_records)  # the window holds some of them
        assert counts.acked_bytes / counts.acked_records == pytest.approx(
            mean(sizes), abs=6 * of_some
        ), codec
        for partition in ends:
            offsets = sorted(r.offset for r in records if r.partition == partition)
            assert offsets == list(range(len(offsets))), codec
