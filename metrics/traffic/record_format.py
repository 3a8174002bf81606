"""Sizes of records and batches in Kafka's record batch format v2.

https://kafka.apache.org/documentation/#recordbatch and #record.
"""

from __future__ import annotations

import functools
import math

from metrics.traffic.payload import Payload

BATCH_HEADER_BYTES = 61
"""Size of a record batch header [B]."""


def varint_bytes(value: int) -> int:
    """Size of Kafka's zig-zag varint of a value ≥ 0 [B]."""
    return max(1, math.ceil((value << 1).bit_length() / 7))


def record_bytes(
    index: int, message_bytes: int, rate_records_per_s: float, payload: Payload | None = None
) -> int:
    """Size of record `index` of a batch [B].

    A record consists of its length, attributes, timestamp delta, offset delta, key, value and
    headers.

    Args:
        index: position of the record in its batch, from 0.
        message_bytes: size of key and value [B].
        rate_records_per_s: rate of the producer, which determines the timestamp delta [1/s].
        payload: options of key and headers; neither by default.
    """
    held = payload or Payload()
    deltas = varint_bytes(int(index * 1000.0 / rate_records_per_s)) + varint_bytes(index)
    value_bytes = message_bytes - held.key_bytes
    keyed = varint_bytes(held.key_bytes) + held.key_bytes if held.key_bytes else 1
    body = 1 + deltas + keyed + varint_bytes(value_bytes) + value_bytes
    body += varint_bytes(held.headers) + sum(
        varint_bytes(size) + size
        for i in range(held.headers)
        for size in (len(f"h{i}"), held.header_bytes)
    )
    return varint_bytes(body) + body


@functools.lru_cache(maxsize=64)
def records_that_fit(
    batch_size: int, message_bytes: int, rate_records_per_s: float, payload: Payload
) -> int:
    """Number of records that fit into a batch of this size [B] uncompressed, at least one."""
    size, records = BATCH_HEADER_BYTES, 0
    while True:
        size += record_bytes(records, message_bytes, rate_records_per_s, payload)
        if size > batch_size:
            return max(1, records)
        records += 1
