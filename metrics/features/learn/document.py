"""The learnt traffic as documents: the evidence for programs, notes, and the table for the
terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from metrics.features.learn.curve import DAY_S, WEEK_S, Curve, sum_of
from metrics.features.learn.keys import WARMUP_S, LearnedPart
from metrics.features.learn.parts import ASSUMED, Part, TopicPart
from metrics.features.learn.tally import UNEVEN_FROM
from metrics.units import format_count, format_estimate, format_mb_per_s, format_size, iso_utc

COLUMNS = (
    "part",
    "topics",
    "producers",
    "messages/s",
    "MB/s",
    "message",
    "a batch",
    "codec",
    "acks",
    "groups",
)


@dataclass(frozen=True)
class Learned:
    """The traffic that one call of `redline learn` learnt.

    Attributes:
        cluster: name of the cluster.
        at_s: time of the call [s since the epoch].
        moment: which rate of the topics is the rate at scale 1: "peak", "mean" or "now".
        parts: the parts of the mix, in descending order of bytes.
        lag_max_ms: the brokers' largest `replica.lag.time.max.ms` [ms]; None if unknown.
        facts: facts about the survey, such as the number of bytes that were read.
        notes: sentences about data that is missing or simplified.
    """

    cluster: str
    at_s: float
    moment: str
    parts: tuple[LearnedPart, ...]
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    lag_max_ms: float | None = None

    @property
    def curve(self) -> Curve:
        """The number of records of all topics together, as a curve over time."""
        return sum_of([each.seen.curve for p in self.parts for each in p.part.topics])

    @property
    def records_per_s(self) -> float:
        """Records per second of all parts at scale 1 [1/s]."""
        return sum(each.part.records_per_s for each in self.parts)

    @property
    def trial(self) -> dict[str, float]:
        """The phases of a trial of the learnt workload. The window of a trial is so long that slow
        producers and lagging followers become visible.
        """
        needed_s = 0.0
        if any(t.seen.facts.replication_factor > 1 for p in self.parts for t in p.part.topics):
            needed_s = 1.5 * (self.lag_max_ms or 30_000.0) / 1e3
        measure_s = max(needed_s, *(each.measure_s for each in self.parts))
        phases: dict[str, float] = {"warmup_s": WARMUP_S, "measure_s": measure_s}
        if any("producer.arrivals" in each.keys for each in self.parts):
            phases["early_end_error_rate"] = 0
        return {name: int(each) if each == int(each) else each for name, each in phases.items()}


def lost_by(parts: Sequence[Part]) -> list[str]:
    """Sentences about properties that the topics have, but that the parts of the workload do not
    reproduce.
    """
    found: list[str] = []
    for part in parts:
        if len(part.topics) > 1:
            sizes = part.span(lambda each: each.record_bytes)
            batches = part.span(lambda each: each.records_per_batch)
            rates = part.span(lambda each: each.records_per_s)
            found.append(
                f"part {part.name} has {len(part.topics)} similar topics: records of "
                f"{sizes[0]:,.0f} to {sizes[1]:,.0f} B, batches of {batches[0]:,.3g} to "
                f"{batches[1]:,.3g} records, {rates[0]:,.3g} to {rates[1]:,.3g} records/s; the "
                "part sends the total traffic of these topics, in equal shares to its topics"
            )
        for each in part.topics:
            found += [f"{each.name}: {text}" for text in _lost_of(each)]
    return found


def _lost_of(topic: TopicPart) -> Iterator[str]:
    batches, facts, skew = topic.seen.batches, topic.seen.facts, topic.seen.largest_over_mean
    if topic.seen.is_skewed:
        yield (
            f"the busiest partition, number {topic.seen.busiest}, has {skew:.1f} times the mean "
            "number of records; in the workload the first partition is the busiest, and another "
            "broker may lead it"
        )
    elif skew > UNEVEN_FROM:
        yield (
            f"the busiest partition has {skew:.1f} times the mean number of records, which may be "
            "chance because of few records; the workload spreads records evenly"
        )
    rest = batches.batches - batches.codecs[batches.codec]
    if rest > 0.05 * batches.batches:
        others = ", ".join(name for name, _ in batches.codecs.most_common()[1:])
        yield (
            f"{rest / batches.batches:.0%} of the batches have the codec {others}; a part of the "
            "workload has only one codec"
        )
    if facts.is_compacted:
        yield "the topic is compacted, and the rates count all written records"
    if batches.offsets > 1.05 * batches.records:
        yield (
            f"compaction removed {1 - batches.records / batches.offsets:.0%} of the records that "
            "were read, so batches were larger when they were sent"
        )
    if batches.append_times > 0.5 * batches.batches:
        yield (
            "the broker sets the times of records (LogAppendTime), so producers and linger cannot "
            "be fitted"
        )
    idle = [group for group in facts.groups if not group.is_reading]
    if idle:
        yield f"{len(idle)} consumer groups without members are left out"


def as_document(learned: Learned) -> dict[str, Any]:
    """The learnt traffic with the evidence for each figure, as a JSON document."""
    curve = learned.curve
    return {
        "cluster": learned.cluster,
        "at": iso_utc(learned.at_s),
        "scale_1": learned.moment,
        "messages_per_s": round(learned.records_per_s, 3),
        "mb_per_s": round(sum(each.mb_per_s for each in learned.parts), 6),
        "today": _today(curve.today),
        "week": {
            "from": iso_utc(curve.times_s[0]) if curve.times_s else None,
            "step_s": round(curve.step_s, 3),
            "messages_per_s": [round(each, 3) for each in curve.rates],
        },
        "read": dict(learned.facts),
        "parts": [_part(each) for each in learned.parts],
        "notes": list(learned.notes),
    }


def _today(today: Curve) -> dict[str, Any]:
    at_s = today.peak_at_s
    return {
        "hours": round(today.span_s / 3600, 3),
        "mean_messages_per_s": round(today.mean, 3),
        "peak_messages_per_s": round(today.peak, 3),
        "peak_at": None if at_s is None else iso_utc(at_s),
    }


def _part(learned: LearnedPart) -> dict[str, Any]:
    part = learned.part
    return {
        "name": part.name,
        "producers": asdict(learned.producers),
        "messages_per_s": round(part.records_per_s, 3),
        "mb_per_s": round(learned.mb_per_s, 6),
        "log_bytes_per_record": round(part.record_bytes, 2),
        "records_per_batch": round(part.records_per_batch, 3),
        "batches_per_s": round(part.records_per_s / part.records_per_batch, 3),
        "requests_per_s": round(part.records_per_s / part.records_per_request, 3),
        "keys": [{"path": path, **asdict(each)} for path, each in learned.keys.items()],
        "topics": [_topic(each) for each in part.topics],
    }


def _topic(topic: TopicPart) -> dict[str, Any]:
    seen, facts, batches = topic.seen, topic.seen.facts, topic.seen.batches
    found: dict[str, Any] = {
        "name": topic.name,
        "messages_per_s": round(topic.records_per_s, 3),
        "now_messages_per_s": round(seen.now_per_s, 3),
        "today": _today(seen.curve.today),
        "partitions": facts.partitions,
        "replication_factor": facts.replication_factor,
        "min_insync_replicas": facts.min_insync,
        "cleanup_policy": facts.config.get("cleanup.policy"),
        "compression_type": facts.config.get("compression.type"),
        "timestamp_type": facts.config.get("message.timestamp.type"),
        "retention_ms": facts.config.get("retention.ms"),
        "retention_bytes": facts.config.get("retention.bytes"),
        "partition_shares": _shares("partition", seen.partition_shares),
        "broker_shares": _shares("broker", seen.broker_shares),
        "read_s": round(seen.read_s, 3),
        "read_share": round(seen.read_share, 4),
        "batches": batches.batches,
        "records": batches.records,
        "bytes": batches.size_bytes,
        "codecs": [
            {"codec": name, "batches": count} for name, count in batches.codecs.most_common()
        ],
        "idempotent_batches": batches.idempotent,
        "transactional_batches": batches.transactional,
        "transaction_markers": batches.markers,
        "producer_ids": len(batches.writers),
        "groups": [asdict(each) for each in facts.groups],
        "fan_out": len(facts.readers),
    }
    if seen.records is not None and seen.records.messages:
        found["decoded"] = _decoded(seen.records)
    return found


def _shares(what: str, shares: Mapping[int, float]) -> list[dict[str, float]]:
    return [{what: each, "share": round(share, 6)} for each, share in sorted(shares.items())]


def _decoded(records: Any) -> dict[str, Any]:
    distinct, estimate = records.key_range
    return {
        "records": records.messages.total(),
        "key_bytes": round(records.keys.mean, 2),
        "value_bytes": round(records.values.mean, 2),
        "message_bytes": round(records.messages.mean, 2),
        "message_bytes_spread": round(records.messages.spread, 4),
        "largest_message_bytes": records.messages.largest,
        "headers": round(records.headers_each, 3),
        "header_bytes": round(records.header_bytes.mean, 2),
        "compression_ratio": round(records.ratio, 4),
        "keyed_share": round(records.keyed_share, 4),
        "keys_seen": distinct,
        "keys_estimated": round(estimate),
        "top_key_share": round(records.top_key_share, 4),
        "top_tenth_of_keys_share": round(records.top_tenth_share, 4),
        "unreadable_batches": records.unreadable,
    }


def table_row(learned: LearnedPart) -> tuple[str, ...]:
    """The table row of a part, with the columns `COLUMNS`."""
    part, producers = learned.part, learned.producers
    count = format_count(float(producers.value))
    if producers.low is not None and producers.high is not None and producers.low < producers.high:
        count += f" ({producers.low:,.0f} to {producers.high:,.0f})"
    acks = learned.keys["producer.acks"]
    return (
        part.name,
        str(len(part.topics)),
        count,
        format_estimate(part.records_per_s),
        format_mb_per_s(learned.mb_per_s),
        format_size(learned.message_bytes),
        f"{part.records_per_batch:,.3g}",
        part.first.seen.batches.codec,
        f"{acks.value}{'?' * (acks.source == ASSUMED)}",
        str(part.groups),
    )


def span_words(curve: Curve) -> str:
    """The length of time that a curve covers, in words."""
    if curve.span_s >= 0.999 * WEEK_S:
        return "a week"
    if curve.span_s >= 2 * DAY_S:
        return f"{curve.span_s / DAY_S:.1f} days"
    return f"{curve.span_s / 3600:.1f} hours" if curve.span_s >= 3600 else f"{curve.span_s:.0f} s"
