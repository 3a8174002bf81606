"""Headers of batches, read without their records."""

from __future__ import annotations

from collections import Counter

import pytest

from metrics.features.learn.tally import BatchTally, quantile_of
from metrics.traffic.batch_headers import batches_in
from tests.support.simulated_traffic import encoded, marker

VALUE = (None, b"v" * 100, ())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_header_has_what_the_producer_sent(codec: str) -> None:
    made = encoded(40, [1_000, 1_004, 1_009], [VALUE] * 3, codec, 7, True)
    found = batches_in(made.data)
    ((header, body),) = found.batches
    assert (header.base_offset, header.records, header.offsets) == (40, 3, 3)
    assert (header.first_ms, header.max_ms, header.codec) == (1_000, 1_009, codec)
    assert (header.producer_id, header.is_transactional, header.is_control) == (7, True, False)
    assert header.size_bytes == len(made.data) == len(body)
    assert found.next_offset == header.next_offset == 43


def test_a_batch_that_is_cut_off_is_read_by_a_later_answer() -> None:
    first, second = encoded(0, [1], [VALUE]), encoded(1, [2], [VALUE])
    for cut in (1, 20, 61, len(second.data) - 1):
        found = batches_in(first.data + second.data[:cut])
        assert (len(found.batches), found.next_offset) == (1, 1)
    assert batches_in(first.data[:30]).next_offset is batches_in(b"").next_offset is None


def test_older_formats_are_counted_and_empty_batches_of_a_compacted_log_are_none() -> None:
    old = (5).to_bytes(8, "big") + (14 + 3).to_bytes(4, "big") + b"\0" * 4 + b"\1" + b"\0" * 12
    found = batches_in(old + encoded(6, [1], [VALUE]).data)
    assert found.older == 1
    assert [header.base_offset for header, _ in found.batches] == [6]
    data = bytearray(encoded(0, [1], [VALUE]).data[:61])
    data[8:12] = (49).to_bytes(4, "big")
    data[57:61] = (0).to_bytes(4, "big")
    tally = BatchTally()
    ((header, _),) = batches_in(bytes(data)).batches
    tally.add(0, header)
    assert (tally.batches, tally.size_bytes) == (0, 0)


def test_markers_count_apart_and_end_each_transaction_once() -> None:
    tally = BatchTally()
    batch = encoded(0, [1_000], [VALUE], producer_id=9, is_transactional=True)
    for partition in (0, 1):
        for header, _ in batches_in(batch.data + marker(1, 1_100 + partition, 9).data).batches:
            tally.add(partition, header)
    for header, _ in batches_in(marker(2, 1_200, 9).data).batches:
        tally.add(0, header)
    assert (tally.batches, tally.records, tally.markers, tally.transactional) == (2, 2, 3, 2)
    assert tally.writers.keys() == {9}
    assert tally.producers[9].transactions == [1_100, 1_200]


def test_quantiles_of_counts() -> None:
    sizes = Counter({10: 98, 20: 1, 30: 1})
    assert [quantile_of(sizes, each) for each in (0.5, 0.98, 0.99, 1.0)] == [10, 10, 20, 30]
    assert quantile_of(Counter(), 0.5) == 0
