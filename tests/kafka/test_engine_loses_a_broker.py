"""A broker that is killed and restarted during a trial: no record is lost or duplicated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords

from jobs.engine.producing.batch import SEQUENCES
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from tests.support.engine_bench import bench_on
from tests.support.kafka_fixtures import QUICK

pytestmark = pytest.mark.long

MEASURE_S = 12.0
PRODUCERS = 4
LOST = {"ConnectionClosed", "ConnectionResetError", "BrokenPipeError"}
VICTIM = 2


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Two fast brokers, whose controller detects a dead broker after 3 s instead of 9 s."""
    quick = QUICK | {"replica.lag.time.max.ms": 30_000}
    root = tmp_path_factory.mktemp("pair")
    with start(brokers=2, root=root, name="pair", overrides=quick) as testbed:
        yield testbed


def accident(testbed: Testbed, after_s: float) -> None:
    """Kill a broker after `after_s`, and restart it."""
    time.sleep(after_s)  # a time instead of a condition, as it is the middle of the load
    testbed.kill_broker(VICTIM)
    testbed.restart_broker(VICTIM)


def sequences_on(directory: Path, topic: str) -> Iterator[tuple[Path, int, int, int, int]]:
    """(partition folder, producer id, epoch, sequence, records) of every batch, in log order."""
    for segment in sorted(directory.rglob(f"{topic}-*/*.log")):
        records = MemoryRecords(segment.read_bytes())
        while (batch := records.next_batch()) is not None:
            stamp = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            yield (segment.parent, *stamp, batch.records_count)


def test_no_record_is_lost_or_duplicated(pair: Testbed) -> None:
    with bench_on(pair, replicas=2) as bench, ThreadPoolExecutor(1) as aside:
        happened = aside.submit(accident, pair, after_s=2.0)
        client = bench.run(
            producers=PRODUCERS,
            measure_s=MEASURE_S,
            drain_timeout_s=90.0,  # long enough for the broker's restart
            rate_records_per_s=200.0,
            acks="all",
            enable_idempotence=True,
        )
        happened.result(timeout=60)

        # The trial reports the errors, and that all sent records arrived in the end.
        assert client.counts.retried_records > 0
        assert sum(client.counts.retried_by_partition.values()) == client.counts.retried_records
        assert sum(client.counts.by_producer.retried.values()) == client.counts.retried_records
        assert client.counts.by_producer.sent == client.counts.by_producer.acked
        assert set(client.counts.retry_errors) & LOST, client.counts.retry_errors
        assert client.counts.errors == {}
        assert client.counts.duplicates_at_most == 0
        assert client.counts.acked_total > 0.2 * client.counts.offered_records

        acked = {p: records for p, records in client.counts.acked_by_partition.items() if records}
        read: dict[int, int] = Counter()
        for record in bench.read_back():
            assert record.offset == read[record.partition], "offsets without a gap"
            read[record.partition] += 1
        assert read == acked
        assert {p: end for p, end in bench.end_offsets().items() if end} == acked
        assert_sequences_are_whole(pair, bench.topic)


def assert_sequences_are_whole(pair: Testbed, topic: str) -> None:
    """Check on every replica that each producer's batches have no gap and no repetition."""
    expected: dict[tuple[Path, int], tuple[int, int]] = {}
    batches = 0
    for node in pair.brokers.values():
        for folder, producer_id, epoch, sequence, records in sequences_on(
            Path(node.directory), topic
        ):
            assert producer_id >= 0
            assert (epoch, sequence) == expected.get((folder, producer_id), (0, 0))
            expected[folder, producer_id] = (epoch, (sequence + records) % SEQUENCES)
            batches += 1
    assert len({producer_id for _, producer_id in expected}) == PRODUCERS
    assert batches > 100
