"""The keys of a workload for a part, each with what it follows from.

The skew of a workload's partitions, from how unevenly records spread over those of topics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metrics.features.learn.fit import ASSUMED, DEFAULT_BATCH_SIZE, FITTED, SEEN, Figure
from metrics.features.learn.parts import Part, TopicPart
from metrics.traffic.clients import BATCH_SIZE_MAX, LINGER_MS_MAX, exponent_of
from metrics.traffic.payload import BATCH_HEADER_BYTES, MESSAGE_BYTES_MAX, Payload, record_bytes


def skew_of(part: Part, partitions: int) -> Figure | None:
    """The exponent at which the busiest partition gets the share that was seen.

    Of several topics, it is the mean by their records. None where all of them spread evenly.

    Args:
        partitions: partitions of each topic of the workload.
    """
    found = [_exponent(each, partitions) for each in part.topics]
    if not any(found):
        return None
    records_per_s = [each.records_per_s for each in part.topics]
    mean = sum(map(math.prod, zip(found, records_per_s, strict=True))) / part.records_per_s
    first = part.topics[found.index(max(found))].seen
    text = (
        f"the busiest partition of {first.facts.name} has {first.largest_over_mean:.3g} times the "
        "mean share; shares by Zipf's law, the first partition the busiest"
    )
    return Figure(round(mean, 3), FITTED, text, round(min(found), 3), round(max(found), 3))


def _exponent(topic: TopicPart, partitions: int) -> float:
    """The exponent of one topic; 0 for an even spread."""
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
"""Values of `batch.size` that users set, ascending [B]."""

RECORDS_LEAST = 10
"""Smallest number of records of a producer in the window of a trial."""
MEASURE_S, MEASURE_MAX_S = 30.0, 300.0
"""Length of the window of a trial, and the longest one for slow producers [s]."""
WARMUP_S = 10.0
RETENTION_BYTES, SEGMENT_BYTES = 1_073_741_824, 268_435_456

_INCOMPRESSIBLE = 1.05
_SPREAD = 0.1
_KEY_COUNT_MAX = 1_000_000
_KEYED_SHARE = 0.5
_POOL_BYTES, _POOL_MESSAGES = 8_388_608, 64
_MESSAGES_IN_POOL_MAX = 1_000_000_000


@dataclass(frozen=True)
class WorkloadKey:
    """One key of a workload.

    Attributes:
        path: its place, with dots.
        value: its value in the file.
        figure: the value with its source.
    """

    path: str
    value: object
    figure: Figure


@dataclass(frozen=True)
class PartKeys:
    """The keys of a part.

    Attributes:
        producers: number of producers at scale 1.
        keys: the keys of a workload but those of its trials.
        measure_s: the shortest window in which each producer offers enough records [s].
    """

    producers: Figure
    keys: tuple[WorkloadKey, ...]
    measure_s: float

    def value(self, path: str) -> object:
        """The value of a key."""
        return next(each.value for each in self.keys if each.path == path)


def is_slow(part: Part) -> bool:
    """Whether a part has too few records for the longest window of a mix."""
    return part.records_per_s * MEASURE_MAX_S < 1.01 * RECORDS_LEAST


def keys_of(part: Part, brokers: int) -> PartKeys:
    """The keys by which a workload offers the traffic of a part at scale 1.

    Args:
        brokers: number of brokers of the cluster.
    """
    producers = _producers(part)
    count = int(producers.value)
    rate = part.records_per_s / count
    payload, payload_keys = _payload(part)
    message = _message_bytes(part, payload)
    batch_keys = _batches(part, rate, int(message.value), payload)
    keys = [
        WorkloadKey("message_bytes", [message.value], message),
        WorkloadKey(
            "producer.rate_records_per_s",
            _digits(rate),
            Figure(
                _digits(rate),
                producers.source,
                f"{part.records_per_s:,.4g} records/s of {count:,} producers",
            ),
        ),
        *_delivery(part, rate),
        *_spread(part, brokers),
        *batch_keys,
        *payload_keys,
        *_topic(part, brokers),
        *_consumers(part),
    ]
    measure_s = max(MEASURE_S, math.ceil(1.01 * RECORDS_LEAST / rate))
    return PartKeys(producers, tuple(keys), measure_s)


def _producers(part: Part) -> Figure:
    """The number of producers; fewer where each would offer too few records for a trial."""
    found = part.producers
    most = max(1, math.floor(part.records_per_s * MEASURE_MAX_S / (1.01 * RECORDS_LEAST)))
    if int(found.value) <= most:
        return found
    return Figure(
        most,
        ASSUMED,
        f"{found.value:,} ({found.evidence}); fewer here, as a producer needs {RECORDS_LEAST} "
        f"records in a window of {MEASURE_MAX_S:g} s",
        found.low,
        found.high,
    )


def _message_bytes(part: Part, payload: Payload) -> Figure:
    """The mean size of key and value [B]."""
    decoded = [
        (each.records_per_s, each.seen.records.messages.mean)
        for each in part.topics
        if each.seen.records is not None and each.seen.records.messages.count
    ]
    if decoded:
        total = sum(rate for rate, _ in decoded)
        mean = sum(rate * size for rate, size in decoded) / total
        low, high = min(size for _, size in decoded), max(size for _, size in decoded)
        value = _bounded(mean, payload)
        return Figure(value, SEEN, "keys and values of decoded records", low, high)
    value = _bounded(message_bytes_of(part.record_bytes, part.records_per_batch, payload), payload)
    low, high = part.span(lambda each: each.record_bytes)
    if part.first.seen.batches.codec == "none":
        text = f"{part.record_bytes:,.5g} B of a record in the log, without Kafka's own fields"
        return Figure(value, SEEN, text, low, high)
    text = (
        f"compressed size in the log, {part.record_bytes:,.4g} B of a record, sent as bytes that "
        "compress no further; --decode reads the sizes before compression"
    )
    return Figure(value, ASSUMED, text, low, high)


def _bounded(size: float, payload: Payload) -> int:
    return max(1, payload.key_bytes, min(MESSAGE_BYTES_MAX, round(size)))


def message_bytes_of(size: float, records_per_batch: float, payload: Payload) -> float:
    """Size of key and value of records whose mean size in the log is given [B].

    Args:
        size: mean size in the log [B].
        records_per_batch: mean number of records of a batch.
        payload: options of key and headers.
    """
    index = max(0, round((records_per_batch - 1) / 2))
    found = size
    for _ in range(8):
        guess = max(1, payload.key_bytes, round(found))
        found = max(1.0, size - (record_bytes(index, guess, 1_000.0 + index, payload) - guess))
    return found


def _payload(part: Part) -> tuple[Payload, list[WorkloadKey]]:
    records = part.first.seen.records
    if records is None or not records.messages.count:
        kind = Figure("random", ASSUMED, "contents are not read; --decode reads how they compress")
        return Payload(), [WorkloadKey("payload.kind", "random", kind)]
    options: dict[str, object] = {}
    seen: list[WorkloadKey] = []

    def put(key: str, value: object, source: str, evidence: str) -> None:
        options[key] = value
        shown = value if isinstance(value, (int, float, str)) else str(value)
        seen.append(WorkloadKey(f"payload.{key}", value, Figure(shown, source, evidence)))

    ratio = records.ratio
    if part.first.seen.batches.codec != "none" and ratio > _INCOMPRESSIBLE:
        put("kind", "mixed", FITTED, "partly one repeated character, to compress as seen")
        put(
            "wanted_ratio",
            round(min(1_000.0, ratio), 3),
            SEEN,
            "size before over after compression",
        )
    else:
        put("kind", "random", ASSUMED, "how contents would compress is not known without a codec")
    if records.messages.spread > _SPREAD:
        spread = round(min(3.0, records.messages.spread), 3)
        put("sizes", "lognormal", FITTED, "sizes vary")
        put("size_spread", spread, SEEN, "standard deviation of their natural logarithm")
    if records.keyed_share >= _KEYED_SHARE:
        smallest = (
            math.exp(-4 * records.messages.spread) if records.messages.spread > _SPREAD else 1
        )
        room = max(1, int(records.messages.mean * min(1.0, smallest)))
        distinct, estimate = records.key_range
        put(
            "key_bytes",
            max(1, min(round(records.keys.mean), room)),
            SEEN,
            f"{records.keyed_share:.0%} of records have a key",
        )
        put(
            "key_count",
            min(_KEY_COUNT_MAX, max(1, round(estimate))),
            FITTED,
            f"{distinct:,} different keys seen; the most frequent one in "
            f"{records.top_key_share:.1%} of the records",
        )
    if round(records.headers_each):
        put("headers", min(100, round(records.headers_each)), SEEN, "mean of decoded records")
        put("header_bytes", round(records.header_bytes.mean), SEEN, "mean of decoded records")
    least = 2 * _POOL_MESSAGES * records.messages.largest
    pool_bytes = min(_MESSAGES_IN_POOL_MAX, max(_POOL_BYTES, least))
    if pool_bytes > _POOL_BYTES:
        put("pool_bytes", pool_bytes, ASSUMED, "room for the largest messages")
    return Payload(**options), seen  # type: ignore[arg-type]  # as the keys of a file


def _delivery(part: Part, rate: float) -> list[WorkloadKey]:
    """acks, idempotence, transactions and the codec."""
    batches, how = part.first.seen.batches, part.fit
    share = f"{batches.idempotent:,} of {batches.batches:,} batches have a producer id"
    facts = part.first.seen.facts
    text, source = f"{batches.codecs[batches.codec]:,} of {batches.batches:,} batches", SEEN
    if (property_ := facts.config.get("compression.type", "producer")) != "producer":
        source = ASSUMED
        text += f"; brokers wrote them by compression.type {property_}, whatever producers sent"
    figure = Figure(batches.codec, source, text)
    keys = [WorkloadKey("producer.compression", batches.codec, figure)]
    if how.kind == "plain":
        needs_all = part.first.seen.facts.min_insync > 1
        acks = "all" if needs_all else "1"
        text = (
            f"headers do not show it; 0, 1 or all. min.insync.replicas is "
            f"{part.first.seen.facts.min_insync}"
            + (", which has an effect with all only" if needs_all else "")
        )
        keys.append(WorkloadKey("producer.acks", acks, Figure(acks, ASSUMED, text)))
    else:
        keys.append(
            WorkloadKey(
                "producer.acks", "all", Figure("all", SEEN, f"{share}, and idempotence requires it")
            )
        )
        keys.append(WorkloadKey("producer.enable_idempotence", True, Figure(True, SEEN, share)))
    if how.kind == "transactional":
        least_ms = 1_010.0 / rate
        seen_ms = how.transaction_ms
        duration_ms = _digits(min(600_000.0, max(1.0, least_ms, seen_ms or 100.0)))
        text = "time between two ends of transactions of a producer"
        source = SEEN if seen_ms is not None and seen_ms >= least_ms else ASSUMED
        keys.append(
            WorkloadKey(
                "producer.transaction_duration_ms", duration_ms, Figure(duration_ms, source, text)
            )
        )
    if part.first.seen.records is not None and part.first.seen.records.keyed_share >= _KEYED_SHARE:
        text = (
            "records choose their partitions as keys do, see sticky_partition"
            if how.has_keys
            else "keys do not choose the partition here; the spread over partitions is even"
        )
        keys.append(
            WorkloadKey("producer.partitioner_ignore_keys", True, Figure(True, ASSUMED, text))
        )
    return keys


def _batches(part: Part, rate: float, message_bytes: int, payload: Payload) -> list[WorkloadKey]:
    """Linger, batch.size and arrivals that give batches with as many records as seen."""
    records, how = part.records_per_batch, part.fit
    low, high = part.span(lambda each: each.records_per_batch)
    seen = f"{records:,.4g} records a batch"
    if how.is_full:
        size = batch_size_of(
            records,
            message_bytes,
            rate,
            payload,
            how.full_bytes,
            is_plain=part.first.seen.batches.codec == "none",
        )
        linger_ms = _digits(min(LINGER_MS_MAX, max(2_000.0 * records / rate, how.linger_ms)))
        return [
            WorkloadKey(
                "producer.batch_size",
                size,
                Figure(size, FITTED, f"{seen}, most of them full", low, high),
            ),
            WorkloadKey(
                "producer.linger_ms",
                linger_ms,
                Figure(
                    linger_ms,
                    ASSUMED,
                    "batches are full before it ends",
                    1e3 * records / rate,
                    LINGER_MS_MAX,
                ),
            ),
        ]
    top = max(each.seen.batches.size_bytes / each.seen.batches.batches for each in part.topics)
    largest = max(max(each.seen.batches.batch_sizes) for each in part.topics)
    size = next((each for each in USUAL_BATCH_SIZES if each >= largest), BATCH_SIZE_MAX)
    size = max(DEFAULT_BATCH_SIZE, size)
    if how.has_keys:
        records = part.records_per_request
        seen = f"{records:,.4g} records a request, in batches for several partitions"
    is_even = how.is_even and not how.has_keys and _is_whole(records)
    exact_ms = 1e3 * (records - 1 + (0.5 if is_even and records >= 1.05 else 0.0)) / rate
    linger_ms = _digits(min(LINGER_MS_MAX, max(0.0, exact_ms)))
    keys = [
        WorkloadKey(
            "producer.batch_size",
            size,
            Figure(
                size,
                ASSUMED,
                f"the largest batch has {largest:,} B, the mean one {top:,.0f} B",
                largest,
            ),
        ),
        WorkloadKey(
            "producer.linger_ms",
            linger_ms,
            Figure(
                linger_ms,
                FITTED,
                f"{seen}; batches were open for up to {how.linger_ms:g} ms",
                min(linger_ms, how.linger_ms),
                max(linger_ms, how.linger_ms),
            ),
        ),
    ]
    if how.has_keys:
        text = f"{how.request_batches:.3g} batches of a producer were opened within a linger"
        keys.append(WorkloadKey("producer.sticky_partition", "keys", Figure("keys", FITTED, text)))
    if not is_even:
        keys.append(
            WorkloadKey(
                "producer.arrivals",
                "poisson",
                Figure(
                    "poisson", FITTED, "the numbers of records of batches vary like random arrivals"
                ),
            )
        )
    return keys


def _is_whole(records: float) -> bool:
    return abs(records - round(records)) <= 0.03 * records


def batch_size_of(
    records: float,
    message_bytes: int,
    rate: float,
    payload: Payload,
    full_bytes: float,
    *,
    is_plain: bool,
) -> int:
    """A `batch.size` whose full batches have so many records [B].

    It is one that users set, where one of these gives the same number.

    Args:
        records: mean number of records of the full batches.
        message_bytes: mean size of key and value [B].
        rate: records per second of a producer [1/s].
        payload: options of key and headers.
        full_bytes: mean size of the full batches [B].
        is_plain: whether they are not compressed.
    """
    whole = max(1, round(records))
    if not is_plain and payload.kind != "random":
        each = full_bytes / whole
        least, beyond = full_bytes, full_bytes + each
    else:
        least = float(BATCH_HEADER_BYTES)
        for index in range(whole):
            least += record_bytes(index, message_bytes, rate, payload)
        beyond = least + record_bytes(whole, message_bytes, rate, payload)
    usual = next((each for each in USUAL_BATCH_SIZES if least <= each < beyond), None)
    return usual or min(BATCH_SIZE_MAX, round((least + beyond) / 2))


def _spread(part: Part, brokers: int) -> list[WorkloadKey]:
    """The skew of partitions, where the topics have one."""
    figure = skew_of(part, brokers * _partitions_per_broker(part, brokers))
    return [] if figure is None else [WorkloadKey("producer.partition_skew", figure.value, figure)]


def _partitions_per_broker(part: Part, brokers: int) -> int:
    return max(1, round(part.partitions / max(1, brokers)))


def _topic(part: Part, brokers: int) -> list[WorkloadKey]:
    facts = part.first.seen.facts
    count = len(part.topics)
    each = _partitions_per_broker(part, brokers)
    keys = [
        WorkloadKey("topic.count", count, Figure(count, SEEN, "topics that look alike")),
        WorkloadKey(
            "topic.partitions_per_broker",
            each,
            Figure(each, SEEN, f"{part.partitions:,.4g} partitions on {brokers} brokers"),
        ),
        WorkloadKey(
            "topic.replication_factor",
            facts.replication_factor,
            Figure(facts.replication_factor, SEEN, f"replicas of {facts.name}"),
        ),
    ]
    config: dict[str, object] = {}
    if 1 < facts.min_insync <= facts.replication_factor:
        config["min.insync.replicas"] = facts.min_insync
    codec = facts.config.get("compression.type", "producer")
    if codec not in ("producer", "uncompressed"):
        config["compression.type"] = codec
    if facts.config.get("message.timestamp.type") == "LogAppendTime":
        config["message.timestamp.type"] = "LogAppendTime"
    for key, value in config.items():
        text = f"property of {facts.name}"
        keys.append(WorkloadKey(f"topic.config.{key}", value, Figure(str(value), SEEN, text)))
    for key, size in (("retention.bytes", RETENTION_BYTES), ("segment.bytes", SEGMENT_BYTES)):
        own = facts.config.get(key, "a value that this user may not read")
        text = f"for trials; {facts.name} has {own}"
        keys.append(WorkloadKey(f"topic.config.{key}", size, Figure(size, ASSUMED, text)))
    return keys


def _consumers(part: Part) -> list[WorkloadKey]:
    if not part.groups:
        return []
    text = "groups with members that committed offsets"
    keys = [WorkloadKey("consumers.groups", min(100, part.groups), Figure(part.groups, SEEN, text))]
    members = part.members
    if members is None:
        figure = Figure(1, ASSUMED, "the brokers did not report the members of the groups")
    else:
        figure = Figure(members, SEEN, "mean of groups")
    keys.append(WorkloadKey("consumers.members", figure.value, figure))
    return keys


def _digits(value: float, digits: int = 5) -> float:
    """A value rounded to some digits, as a whole number where it is one."""
    if value == 0:
        return 0
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded
