"""The configuration keys of one part of a learned mix, with the source and evidence of each key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from metrics.features.learn.parts import (
    ASSUMED,
    DEFAULT_BATCH_SIZE,
    FITTED,
    SEEN,
    Figure,
    Part,
    TopicPart,
)
from metrics.traffic.clients import BATCH_SIZE_MAX, LINGER_MS_MAX, exponent_of
from metrics.traffic.payload import BATCH_HEADER_BYTES, MESSAGE_BYTES_MAX, Payload, record_bytes


def skew_of(part: Part, partitions: int) -> Figure | None:
    """The exponent of Zipf's law with which the busiest partition gets the observed share of
    records.

    For several topics the result is the mean exponent, weighted by the records of each topic. The
    result is None if every topic's records are spread evenly over its partitions.

    Args:
        partitions: number of partitions of each topic in the workload.
    """
    found = [_exponent(each, partitions) for each in part.topics]
    if not any(found):
        return None
    records_per_s = [each.records_per_s for each in part.topics]
    mean = sum(map(math.prod, zip(found, records_per_s, strict=True))) / part.records_per_s
    first = part.topics[found.index(max(found))].seen
    text = (
        f"the busiest partition of {first.facts.name} has {first.largest_over_mean:.3g} times the "
        "mean share; the workload gives partitions shares by Zipf's law, and its first partition "
        "is the busiest"
    )
    return Figure(round(mean, 3), FITTED, text, round(min(found), 3), round(max(found), 3))


def _exponent(topic: TopicPart, partitions: int) -> float:
    """The exponent of Zipf's law for one topic; 0 for an even spread."""
    if not topic.seen.is_skewed:
        return 0.0
    share = max(topic.seen.partition_shares.values())
    return exponent_of(partitions, share * partitions)


USUAL_BATCH_SIZES = (
    16_384,
    32_768,
    65_536,
    100_000,
    131_072,
    200_000,
    262_144,
    500_000,
    524_288,
    1_000_000,
    1_048_576,
)
"""Values of `batch.size` that users commonly set, in ascending order [B]."""

RECORDS_LEAST = 10
"""Minimum number of records that a producer sends in the window of a trial."""
MEASURE_S, MEASURE_MAX_S = 30.0, 300.0
"""Default length and maximum length of the window of a trial [s]; slow producers need a longer
window.
"""
WARMUP_S = 10.0
RETENTION_BYTES, SEGMENT_BYTES = 1_073_741_824, 268_435_456

_INCOMPRESSIBLE = 1.05
_SPREAD = 0.1
_KEY_COUNT_MAX = 1_000_000
_KEYED_SHARE = 0.5
_POOL_BYTES, _POOL_MESSAGES = 8_388_608, 64
_MESSAGES_IN_POOL_MAX = 1_000_000_000


Keys = dict[str, Figure]
"""Path of a key → the value of the key with its source."""


@dataclass(frozen=True)
class LearnedPart:
    """A part of the mix, with the configuration keys of the workload that imitates this part.

    Attributes:
        producers: number of producers at scale 1.
        keys: path of a configuration key, such as `producer.linger_ms` → value of this key, with
            the source of the value. The map has all keys of a workload except the keys of `trial`.
        measure_s: a window of this length [s] is long enough for each producer to offer enough
            records.
    """

    part: Part
    producers: Figure
    keys: Mapping[str, Figure]
    measure_s: float

    def value(self, path: str) -> Any:
        """The value of a key."""
        return self.keys[path].value

    @property
    def mb_per_s(self) -> float:
        """Payload (keys and values) at scale 1 [MB/s]."""
        return self.part.records_per_s * self.message_bytes / 1e6

    @property
    def message_bytes(self) -> float:
        """The mean message size [B]."""
        return float(self.value("message_bytes")[0])


def is_slow(part: Part) -> bool:
    """Whether a part has too few records even for a window of the maximum length."""
    return part.records_per_s * MEASURE_MAX_S < 1.01 * RECORDS_LEAST


def learned_part(part: Part, brokers: int) -> LearnedPart:
    """Derive the configuration keys of a workload that sends as much traffic as the part's topics.

    Args:
        part: similar topics, with their observed traffic.
        brokers: number of brokers of the cluster.
    """
    producers = _producers(part)
    count = int(producers.value)
    rate = part.records_per_s / count
    payload, payload_keys = _payload(part)
    message = _message_bytes(part, payload)
    skew = skew_of(part, brokers * _partitions_per_broker(part, brokers))
    keys = {
        "message_bytes": replace(message, value=[message.value]),
        "producer.rate_records_per_s": Figure(
            _digits(rate),
            producers.source,
            f"{part.records_per_s:,.4g} records/s of {count:,} producers",
        ),
        **_delivery(part, rate),
        **({} if skew is None else {"producer.partition_skew": skew}),
        **_batches(part, rate, int(message.value), payload),
        **payload_keys,
        **_topic(part, brokers),
        **_consumers(part),
    }
    measure_s = max(MEASURE_S, math.ceil(1.01 * RECORDS_LEAST / rate))
    return LearnedPart(part, producers, keys, measure_s)


def _producers(part: Part) -> Figure:
    """The number of producers at scale 1. The number is reduced if each producer would offer too
    few records for a trial.
    """
    found = part.producers
    most = max(1, math.floor(part.records_per_s * MEASURE_MAX_S / (1.01 * RECORDS_LEAST)))
    if int(found.value) <= most:
        return found
    text = (
        f"{found.value:,} ({found.evidence}); the number is reduced here, because a producer needs "
        f"{RECORDS_LEAST} records in a window of {MEASURE_MAX_S:g} s"
    )
    return replace(found, value=most, source=ASSUMED, evidence=text)


def _message_bytes(part: Part, payload: Payload) -> Figure:
    """The mean size of a message, key and value together [B]."""

    def bounded(size: float) -> int:
        return max(1, payload.key_bytes, min(MESSAGE_BYTES_MAX, round(size)))

    decoded = [
        (each.records_per_s, each.seen.records.messages.mean)
        for each in part.topics
        if each.seen.records is not None and each.seen.records.messages
    ]
    if decoded:
        mean = sum(rate * size for rate, size in decoded) / sum(rate for rate, _ in decoded)
        low, high = min(size for _, size in decoded), max(size for _, size in decoded)
        return Figure(bounded(mean), SEEN, "keys and values of decoded records", low, high)
    value = bounded(message_bytes_of(part.record_bytes, part.records_per_batch, payload))
    low, high = part.span(lambda each: each.record_bytes)
    if part.first.seen.batches.codec == "none":
        text = f"{part.record_bytes:,.5g} B per record in the log, without Kafka's own fields"
        return Figure(value, SEEN, text, low, high)
    text = (
        f"records have a compressed size of {part.record_bytes:,.4g} B in the log; the workload "
        "sends bytes of this size that cannot be compressed further; --decode reads the sizes "
        "before compression"
    )
    return Figure(value, ASSUMED, text, low, high)


def message_bytes_of(size: float, records_per_batch: float, payload: Payload) -> float:
    """Size of key and value together, for records with a given mean size in the log [B].

    Args:
        size: mean size of a record in the log [B].
        records_per_batch: mean number of records of a batch.
        payload: options of key and headers.
    """
    index = max(0, round((records_per_batch - 1) / 2))
    found = size
    for _ in range(8):
        guess = max(1, payload.key_bytes, round(found))
        found = max(1.0, size - (record_bytes(index, guess, 1_000.0 + index, payload) - guess))
    return found


def _payload(part: Part) -> tuple[Payload, Keys]:
    records = part.first.seen.records
    if records is None or not records.messages:
        text = "contents are not read; --decode measures how well they compress"
        return Payload(), {"payload.kind": Figure("random", ASSUMED, text)}
    found: dict[str, Figure] = {}
    ratio, spread = records.ratio, records.messages.spread
    if part.first.seen.batches.codec != "none" and ratio > _INCOMPRESSIBLE:
        text = "a part of the payload repeats one character, so that it compresses as observed"
        found["kind"] = Figure("mixed", FITTED, text)
        wanted = round(min(1_000.0, ratio), 3)
        found["wanted_ratio"] = Figure(
            wanted, SEEN, "size before compression divided by size after it"
        )
    else:
        text = "the compressibility of contents is unknown without a codec"
        found["kind"] = Figure("random", ASSUMED, text)
    if spread > _SPREAD:
        text = "standard deviation of the sizes' natural logarithm"
        found["sizes"] = Figure("lognormal", FITTED, "sizes vary")
        found["size_spread"] = Figure(round(min(3.0, spread), 3), SEEN, text)
    if records.keyed_share >= _KEYED_SHARE:
        smallest = math.exp(-4 * spread) if spread > _SPREAD else 1
        room = max(1, int(records.messages.mean * min(1.0, smallest)))
        key_bytes = max(1, min(round(records.keys.mean), room))
        text = f"{records.keyed_share:.0%} of records have a key"
        found["key_bytes"] = Figure(key_bytes, SEEN, text)
        distinct, estimate = records.key_range
        text = (
            f"{distinct:,} different keys seen; {records.top_key_share:.1%} of the records have "
            "the most frequent key"
        )
        count = min(_KEY_COUNT_MAX, max(1, round(estimate)))
        found["key_count"] = Figure(count, FITTED, text)
    if headers := round(records.headers_each):
        text, size = "mean of decoded records", round(records.header_bytes.mean)
        found["headers"] = Figure(min(100, headers), SEEN, text)
        found["header_bytes"] = Figure(size, SEEN, text)
    least = 2 * _POOL_MESSAGES * records.messages.largest
    pool_bytes = min(_MESSAGES_IN_POOL_MAX, max(_POOL_BYTES, least))
    if pool_bytes > _POOL_BYTES:
        found["pool_bytes"] = Figure(pool_bytes, ASSUMED, "room for the largest messages")
    payload = Payload(**{name: each.value for name, each in found.items()})
    return payload, {f"payload.{name}": each for name, each in found.items()}


def _delivery(part: Part, rate: float) -> Keys:
    """The keys of acks, idempotence, transactions and the codec."""
    batches, how, facts = part.first.seen.batches, part.first.fit, part.first.seen.facts
    text, source = f"{batches.codecs[batches.codec]:,} of {batches.batches:,} batches", SEEN
    if (property_ := facts.config.get("compression.type", "producer")) != "producer":
        source = ASSUMED
        text += f"; the topic has compression.type {property_}, and producers may use another codec"
    keys = {"producer.compression": Figure(batches.codec, source, text)}
    if how.kind == "plain":
        needs_all = facts.min_insync > 1
        text = f"batch headers do not show acks; min.insync.replicas is {facts.min_insync}" + (
            ", which has an effect only with acks=all" if needs_all else ""
        )
        keys["producer.acks"] = Figure("all" if needs_all else "1", ASSUMED, text)
    else:
        share = f"{batches.idempotent:,} of {batches.batches:,} batches have a producer id"
        keys["producer.acks"] = Figure("all", SEEN, f"{share}, which requires acks=all")
        keys["producer.enable_idempotence"] = Figure(True, SEEN, share)
    if how.kind == "transactional":
        least_ms, seen_ms = 1_010.0 / rate, how.transaction_ms
        keys["producer.transaction_duration_ms"] = Figure(
            _digits(min(600_000.0, max(1.0, least_ms, seen_ms or 100.0))),
            SEEN if seen_ms is not None and seen_ms >= least_ms else ASSUMED,
            "time between the ends of two transactions of a producer",
        )
    if part.first.seen.records is not None and part.first.seen.records.keyed_share >= _KEYED_SHARE:
        text = (
            "sticky_partition: keys imitates how keys choose partitions"
            if how.has_keys
            else "the spread over partitions is even, so keys do not choose the partition here"
        )
        keys["producer.partitioner_ignore_keys"] = Figure(True, ASSUMED, text)
    return keys


def _batches(part: Part, rate: float, message_bytes: int, payload: Payload) -> Keys:
    """The keys of linger, batch.size and arrivals, with values that give batches the observed
    number of records.
    """
    records, how = part.records_per_batch, part.first.fit
    seen = f"{records:,.4g} records per batch"
    if how.is_full:
        low, high = part.span(lambda each: each.records_per_batch)
        is_plain = part.first.seen.batches.codec == "none"
        each_bytes = None if is_plain or payload.kind == "random" else how.full_bytes
        size = batch_size_of(records, message_bytes, rate, payload, each_bytes)
        least_ms = 1e3 * records / rate
        linger_ms = _digits(min(LINGER_MS_MAX, max(2 * least_ms, how.linger_ms)))
        text = "batches are full before the linger ends"
        return {
            "producer.batch_size": Figure(size, FITTED, f"{seen}, most of them full", low, high),
            "producer.linger_ms": Figure(linger_ms, ASSUMED, text, least_ms, LINGER_MS_MAX),
        }
    top = max(each.seen.batches.size_bytes / each.seen.batches.batches for each in part.topics)
    largest = max(max(each.seen.batches.batch_sizes) for each in part.topics)
    size = next((each for each in USUAL_BATCH_SIZES if each >= largest), BATCH_SIZE_MAX)
    if how.has_keys:
        records = part.records_per_request
        seen = f"{records:,.4g} records per request, in batches for several partitions"
    is_whole = abs(records - round(records)) <= 0.03 * records
    is_even = how.is_even and not how.has_keys and is_whole
    exact_ms = 1e3 * (records - 1 + (0.5 if is_even and records >= 1.05 else 0.0)) / rate
    linger_ms = _digits(min(LINGER_MS_MAX, max(0.0, exact_ms)))
    keys = {
        "producer.batch_size": Figure(
            max(DEFAULT_BATCH_SIZE, size),
            ASSUMED,
            f"the largest batch has {largest:,} B, and the mean size is {top:,.0f} B",
            largest,
        ),
        "producer.linger_ms": Figure(
            linger_ms,
            FITTED,
            f"{seen}; batches were open for up to {how.linger_ms:g} ms",
            min(linger_ms, how.linger_ms),
            max(linger_ms, how.linger_ms),
        ),
    }
    if how.has_keys:
        text = f"a producer opened {how.request_batches:.3g} batches within one linger"
        keys["producer.sticky_partition"] = Figure("keys", FITTED, text)
    if not is_even:
        text = "the number of records per batch varies as with random arrivals"
        keys["producer.arrivals"] = Figure("poisson", FITTED, text)
    return keys


def batch_size_of(
    records: float,
    message_bytes: int,
    rate: float,
    payload: Payload,
    full_bytes: float | None = None,
) -> int:
    """A `batch.size` with which full batches have the given number of records [B].

    If a value that users commonly set gives the same number of records, the result is this value.

    Args:
        records: mean number of records in full batches.
        message_bytes: mean size of key and value [B].
        rate: records per second of a producer [1/s].
        payload: options of key and headers.
        full_bytes: mean size of full batches [B]; None to compute the size from the records, for a
            payload that does not compress.
    """
    whole = max(1, round(records))
    if full_bytes is not None:
        least, beyond = full_bytes, full_bytes + full_bytes / whole
    else:
        least = float(BATCH_HEADER_BYTES)
        for index in range(whole):
            least += record_bytes(index, message_bytes, rate, payload)
        beyond = least + record_bytes(whole, message_bytes, rate, payload)
    usual = next((each for each in USUAL_BATCH_SIZES if least <= each < beyond), None)
    return usual or min(BATCH_SIZE_MAX, round((least + beyond) / 2))


def _partitions_per_broker(part: Part, brokers: int) -> int:
    return max(1, round(part.partitions / max(1, brokers)))


def _topic(part: Part, brokers: int) -> Keys:
    facts = part.first.seen.facts
    partitions = f"{part.partitions:,.4g} partitions on {brokers} brokers"
    replicas = facts.replication_factor
    keys = {
        "topic.count": Figure(len(part.topics), SEEN, "similar topics"),
        "topic.partitions_per_broker": Figure(
            _partitions_per_broker(part, brokers), SEEN, partitions
        ),
        "topic.replication_factor": Figure(replicas, SEEN, f"replicas of {facts.name}"),
    }
    config: dict[str, object] = {}
    if 1 < facts.min_insync <= replicas:
        config["min.insync.replicas"] = facts.min_insync
    codec = facts.config.get("compression.type", "producer")
    if codec not in ("producer", "uncompressed"):
        config["compression.type"] = codec
    if facts.config.get("message.timestamp.type") == "LogAppendTime":
        config["message.timestamp.type"] = "LogAppendTime"
    for key, value in config.items():
        keys[f"topic.config.{key}"] = Figure(value, SEEN, f"property of {facts.name}")
    for key, size in (("retention.bytes", RETENTION_BYTES), ("segment.bytes", SEGMENT_BYTES)):
        own = facts.config.get(key, "a value that this user may not read")
        text = f"a size that suits trials; {key} of the topic {facts.name} is {own}"
        keys[f"topic.config.{key}"] = Figure(size, ASSUMED, text)
    return keys


def _consumers(part: Part) -> Keys:
    if not part.groups:
        return {}
    text = "groups that have members and committed offsets"
    members = Figure(part.members, SEEN, "mean of all groups")
    if part.members is None:
        members = Figure(1, ASSUMED, "the brokers did not report the members of the groups")
    groups = Figure(min(100, part.groups), SEEN, text)
    return {"consumers.groups": groups, "consumers.members": members}


def _digits(value: float, digits: int = 5) -> float:
    """The value rounded to some significant digits; an int if the result is a whole number."""
    if value == 0:
        return 0
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded
