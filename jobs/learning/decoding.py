"""The sizes of the records of a batch; their contents are dropped at once."""

from __future__ import annotations

from jobs.cluster.record_batches import BatchFormatError, records_of
from metrics.learning.batches import BatchHeader
from metrics.learning.decoded import RecordTally
from metrics.traffic.record_format import BATCH_HEADER_BYTES, varint_bytes


def decode(header: BatchHeader, body: memoryview, tally: RecordTally) -> None:
    """Count the sizes of a batch's records.

    Args:
        header: header of the batch.
        body: all bytes of the batch, header included.
    """
    plain = 0
    records: list[tuple[bytes | None, int, list[int]]] = []
    try:
        for each in records_of(body):
            plain += each.size_in_bytes + varint_bytes(each.size_in_bytes)
            sizes = [len(value or b"") for _, value in each.headers]
            records.append((each.key, len(each.value or b""), sizes))
    except BatchFormatError:
        tally.unreadable += 1
        return
    for key, value_bytes, sizes in records:
        tally.add(key, value_bytes, sizes)
    tally.add_batch(plain, header.size_bytes - BATCH_HEADER_BYTES)
