"""The parts of a mix: similar topics become one part, and the sums over all topics stay exact.

Batch headers do not state the number of producers and the linger. Both values are chosen so that
such producers write batches of the observed size at the rate of the topic. If batches
have producer ids, these ids are counted. Without producer ids, the time between the first and the
last record of a batch shows how fast one producer fills a batch. The records of a producer go to
one batch at a time, until this batch is full or `linger.ms` is over.

The number of batches in a request is also fitted, because batch headers do not show the requests. A
producer that writes to one partition at a time sends one batch in each request. A producer whose
keys choose partitions has open batches in several partitions. When the first of a broker's batches
has waited for `linger.ms`, all open batches for this broker go into one request. The batches of one
request have one producer and one broker, belong to different partitions, and were opened within one
`linger.ms`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from metrics.features.learn.tally import BatchTally, Opened, TopicSeen, all_seen, quantile_of

_BATCHES_LEAST = 20
"""A broker's requests are counted only if at least this number of batches went to the broker."""


def batches_per_request(
    batches: BatchTally, leaders: Mapping[int, int], linger_ms: float
) -> float | None:
    """Mean number of batches in a request; None if producer ids and times do not show the number.

    Args:
        leaders: partition → broker that leads the partition.
        linger_ms: longest time for which batches were open [ms].
    """
    led: dict[int, list[Opened]] = defaultdict(list)
    for each in batches.opened:
        led[leaders.get(each.partition, -1)].append(each)
    count = requests = 0
    for opened in led.values():
        seen = _in_all_partitions(opened)
        if len(seen) >= _BATCHES_LEAST:
            count += len(seen)
            requests += _requests(seen, linger_ms)
    return count / requests if requests else None


def _in_all_partitions(opened: list[Opened]) -> list[Opened]:
    """The batches whose first record lies in the common time range: the time range that was read
    from every partition.
    """
    times: dict[int, list[int]] = defaultdict(list)
    for each in opened:
        times[each.partition].append(each.first_ms)
    from_ms = max(map(min, times.values()))
    to_ms = min(map(max, times.values()))
    return [each for each in opened if from_ms <= each.first_ms <= to_ms]


def _requests(opened: list[Opened], linger_ms: float) -> int:
    by_producer: dict[int, list[Opened]] = defaultdict(list)
    for each in opened:
        by_producer[each.producer_id].append(each)
    requests = 0
    for own in by_producer.values():
        until_ms, taken = float("-inf"), set[int]()
        for each in sorted(own, key=lambda one: one.first_ms):
            if each.first_ms >= until_ms or each.partition in taken:
                requests += 1
                until_ms, taken = each.first_ms + linger_ms, set()
            taken.add(each.partition)
    return requests


SEEN, FITTED, ASSUMED = "seen", "fitted", "assumed"

IDEMPOTENT_SHARE = 0.5
"""A topic counts as transactional if at least this share of its batches is transactional [ratio].
Otherwise the topic counts as idempotent if at least this share of its batches has a producer id.
"""

KEYED_BATCHES = 1.1
"""If requests contain more than this number of batches on average, the keys of records choose the
partitions.
"""

DEFAULT_BATCH_SIZE = 16_384
"""Kafka's default of `batch.size` [B]."""
_FULL_BAND, _FULL_BAND_COMPRESSED = 0.9, 0.85
_FULL_SHARE = 0.5
_TOP = 0.99
_LINGER_QUANTILE = 0.98
_EVEN_DISPERSION = 0.5
_WHOLE = 0.03
_RANGE = 1.25


@dataclass(frozen=True)
class Figure:
    """A figure with its source.

    Attributes:
        value: the figure.
        source: "seen" if the brokers state the figure, "fitted" if it is computed from their
            readings, and otherwise "assumed".
        evidence: the reason for the figure, as a clause.
        low, high: ends of the range of the figure; None if the range is unknown.
    """

    value: Any
    source: str
    evidence: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Fit:
    """How producers write to a topic.

    Attributes:
        producers: number of producers, at least 1.
        linger_ms: longest time for which batches were open [ms].
        is_full: whether most batches are full when they are sent.
        full_bytes: size of a full batch [B]; 0 if batches are not full.
        is_even: whether all batches have nearly the same number of records.
        kind: "plain", "idempotent" or "transactional".
        transaction_ms: mean length of a transaction [ms]; None without transactions.
        request_batches: mean number of batches in a request; 1 if unknown.
    """

    producers: Figure
    linger_ms: float
    is_full: bool
    full_bytes: float
    is_even: bool
    kind: str
    transaction_ms: float | None = None
    request_batches: float = 1.0

    @property
    def has_keys(self) -> bool:
        """True if the requests contain several batches, which shows that records' keys choose the
        partitions.
        """
        return self.request_batches > KEYED_BATCHES and not self.is_full


def fit(seen: TopicSeen) -> Fit:
    """The fit for a topic with at least one batch."""
    batches = seen.batches
    is_full, full_bytes = _fullness(batches)
    linger_ms = float(quantile_of(batches.spans, _LINGER_QUANTILE))
    is_even = _is_even(batches)
    filling = _filling_per_s(batches, is_full or is_even)
    kind = "plain"
    if batches.transactional >= IDEMPOTENT_SHARE * batches.batches:
        kind = "transactional"
    elif batches.idempotent >= IDEMPOTENT_SHARE * batches.batches:
        kind = "idempotent"
    return Fit(
        _counted(batches) if kind != "plain" else _fitted(seen, filling),
        linger_ms,
        is_full,
        full_bytes,
        is_even,
        kind,
        _transaction_ms(batches) if kind == "transactional" else None,
        _request_batches(seen, linger_ms) if kind == "idempotent" else 1.0,
    )


def _request_batches(seen: TopicSeen, open_ms: float) -> float:
    """Mean number of batches in a request; 1 if unknown.

    Args:
        open_ms: longest time between the first and the last record of a batch [ms].
    """
    if seen.now_per_s <= 0:
        return 1.0
    # A batch stays open after its last record, for up to the interval between two records.
    interval_ms = 1e3 * len(seen.batches.writers) / seen.now_per_s
    linger_ms = open_ms + interval_ms / 2 if open_ms else 0.0
    return batches_per_request(seen.batches, seen.facts.leaders, linger_ms) or 1.0


def _fullness(batches: BatchTally) -> tuple[bool, float]:
    """Two values: whether most batches are full, and the mean size of the full batches [B]."""
    is_compressed = batches.codec != "none"
    top = quantile_of(batches.batch_sizes, _TOP)
    band = _FULL_BAND_COMPRESSED if is_compressed else _FULL_BAND
    least = min(band * top, top - 1.5 * batches.record_bytes)
    full = {size: count for size, count in batches.batch_sizes.items() if size >= least}
    number = sum(full.values())
    if top < band * DEFAULT_BATCH_SIZE or number < _FULL_SHARE * batches.batches:
        return False, 0.0
    if batches.records_per_batch < 2:  # a single record can be larger than batch.size
        return False, 0.0
    return True, sum(size * count for size, count in full.items()) / number


def _filling_per_s(batches: BatchTally, is_steady: bool) -> float:
    """Records per second that an open batch receives [1/s]. The rate is 0 if no batch has several
    records, and inf if a batch receives all records at the same time.

    Args:
        is_steady: True if records arrive at equal intervals or batches are full; False if records
            arrive at random. With random arrivals, a batch stays open for a while after its last
            record.
    """
    several = sum(batches.spans.values())
    if not several:
        return 0.0
    open_ms = batches.open_ms if is_steady else batches.wide_ms / several * batches.batches
    return 1e3 * batches.followers / open_ms if open_ms > 0 else math.inf


def _counted(batches: BatchTally) -> Figure:
    writers = batches.writers
    estimate = all_seen([each.batches for each in writers.values()])
    is_whole = estimate < 1.02 * len(writers) + 0.5
    return Figure(
        len(writers) if is_whole else round(estimate),
        SEEN if is_whole else FITTED,
        f"{len(writers)} producer ids in {batches.batches:,} batches",
        len(writers),
        math.ceil(estimate),
    )


def _fitted(seen: TopicSeen, filling_per_s: float) -> Figure:
    partitions, rate = seen.facts.partitions, seen.now_per_s
    if filling_per_s == 0:
        return Figure(
            max(1, min(partitions, math.floor(rate))),
            ASSUMED,
            "batches of one record do not show the number of producers",
            1,
            max(1, math.ceil(rate)),
        )
    if math.isinf(filling_per_s):
        return Figure(
            1, FITTED, "each batch receives all its records within 1 ms", 1, max(1, math.ceil(rate))
        )
    found = rate / filling_per_s
    return Figure(
        max(1, round(found)),
        FITTED,
        f"{rate:,.4g} records/s, and an open batch receives {filling_per_s:,.4g}/s; there are "
        f"fewer producers if keys spread each producer's records over the {partitions} partitions",
        max(1, math.floor(found / partitions / _RANGE)),
        max(1, math.ceil(found * _RANGE)),
    )


def _is_even(batches: BatchTally) -> bool:
    """Whether the number of records per batch varies less than with random arrivals."""
    mean = batches.records_per_batch
    if mean - 1 < 0.05:
        return True
    squares = sum(n * n * count for n, count in batches.batch_records.items()) / batches.batches
    dispersion = (squares - mean * mean) / (mean - 1)
    return dispersion < _EVEN_DISPERSION and abs(mean - round(mean)) < _WHOLE * mean


def _transaction_ms(batches: BatchTally) -> float | None:
    """Mean time between the ends of two successive transactions of a producer [ms]; None if
    unknown.
    """
    spans = [
        (each[-1] - each[0], len(each) - 1)
        for p in batches.producers.values()
        if len(each := p.transactions) > 1
    ]
    gaps = sum(gap for _, gap in spans)
    return sum(span for span, _ in spans) / gaps if gaps else None


PEAK, MEAN, NOW = "peak", "mean", "now"
"""The rate that a scale of 1 stands for: today's peak, today's mean, or the current rate."""

PEAK_STEP_S = 600.0
"""Minimum distance between the points of a curve that shows a peak rate [s]. If the distance is
shorter than this value, the mean rate replaces the peak rate, because the busiest of many short
intervals is busy by chance.
"""
ALIKE_FACTOR = 2.0
"""Topics are similar if their message sizes and their batch sizes differ by less than
this factor.
"""
_WIDER = 1.5
_NAME_LETTERS = 40
_ANY_FACTOR = 1e6

_SOURCES = (SEEN, FITTED, ASSUMED)


@dataclass(frozen=True)
class TopicPart:
    """One topic with its fit and its rate at scale 1.

    Attributes:
        seen: the data that was read from the topic.
        fit: how producers write to the topic.
        records_per_s: rate of the topic at scale 1 [1/s].
    """

    seen: TopicSeen
    fit: Fit
    records_per_s: float

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.seen.facts.name

    @property
    def spread(self) -> float:
        """The busiest partition's share, divided by the mean share [ratio]; 1 if the difference may
        be chance.
        """
        return self.seen.largest_over_mean if self.seen.is_skewed else 1.0

    @property
    def records_per_batch(self) -> float:
        """Mean number of records in a batch at the rate of scale 1.

        The number of records in a full batch does not change with the rate. But a batch that waits
        for the linger receives more records if the rate is higher.
        """
        found = self.seen.batches.records_per_batch
        if self.fit.is_full or self.seen.now_per_s <= 0:
            return found
        return 1 + (found - 1) * self.records_per_s / self.seen.now_per_s

    @property
    def records_per_request(self) -> float:
        """Mean number of records in a request, at the rate `records_per_s`."""
        batches = self.seen.batches.records_per_batch
        if not self.fit.has_keys or self.seen.now_per_s <= 0:
            return self.records_per_batch
        found = batches * self.fit.request_batches
        return 1 + (found - 1) * self.records_per_s / self.seen.now_per_s

    @property
    def record_bytes(self) -> float:
        """Mean size of a record in the log [B]."""
        return self.seen.batches.record_bytes

    @classmethod
    def of(cls, seen: TopicSeen, moment: str) -> TopicPart:
        """A topic at the rate of today's peak, of today's mean, or of the time range
        that was read.
        """
        today = seen.curve.today
        peak = today.peak if today.step_s >= PEAK_STEP_S else today.mean
        rates = {PEAK: peak, MEAN: today.mean, NOW: seen.now_per_s}
        return cls(seen, fit(seen), rates[moment] or seen.now_per_s)


@dataclass(frozen=True)
class Part:
    """Similar topics, as one part of a mix.

    Attributes:
        name: name of the part.
        topics: topics of the part, in descending order of bytes.
    """

    name: str
    topics: tuple[TopicPart, ...]

    @property
    def first(self) -> TopicPart:
        """The topic with the most bytes. All topics of the part use the producer settings that are
        fitted to this topic.
        """
        return self.topics[0]

    @cached_property
    def records_per_s(self) -> float:
        """Records per second of all topics of the part at scale 1 [1/s]."""
        return sum(each.records_per_s for each in self.topics)

    @cached_property
    def record_bytes(self) -> float:
        """Mean size of a record in the log, without batch headers [B]."""
        size_per_s = sum(each.records_per_s * each.record_bytes for each in self.topics)
        return size_per_s / self.records_per_s

    @property
    def records_per_batch(self) -> float:
        """Mean number of records in a batch at scale 1."""
        batches_per_s = sum(each.records_per_s / each.records_per_batch for each in self.topics)
        return self.records_per_s / batches_per_s

    @property
    def records_per_request(self) -> float:
        """Mean number of records in a request at scale 1."""
        requests_per_s = sum(each.records_per_s / each.records_per_request for each in self.topics)
        return self.records_per_s / requests_per_s

    @property
    def producers(self) -> Figure:
        """The number of producers, summed over all topics of the part."""
        parts = [each.fit.producers for each in self.topics]
        low, high = (
            sum(float(getattr(part, end) or part.value) for part in parts)
            for end in ("low", "high")
        )
        source = max((part.source for part in parts), key=_SOURCES.index)
        text = parts[0].evidence
        if len(parts) > 1:
            text = f"sum of {len(parts)} topics; {self.first.name}: {text}"
        return Figure(sum(int(part.value) for part in parts), source, text, low, high)

    @property
    def groups(self) -> int:
        """The largest number of consumer groups that any topic of the part has."""
        return max(len(each.seen.facts.readers) for each in self.topics)

    @property
    def members(self) -> int | None:
        """Mean number of members of a consumer group, at least 1; None if no number is known."""
        known = [
            group.members
            for each in self.topics
            for group in each.seen.facts.readers
            if group.members is not None
        ]
        return max(1, round(sum(known) / len(known))) if known else None

    @property
    def partitions(self) -> float:
        """Mean number of partitions of a topic."""
        return sum(each.seen.facts.partitions for each in self.topics) / len(self.topics)

    def span(self, value: Callable[[TopicPart], float]) -> tuple[float, float]:
        """The lowest and the highest value among the topics of the part."""
        values = [value(each) for each in self.topics]
        return min(values), max(values)


def parts_of(topics: Iterable[TopicPart], parts_max: int) -> tuple[Part, ...]:
    """The topics as parts of a mix, in descending order of bytes.

    Similar topics form one part. If there are more than `parts_max` parts, the limit for similarity
    is increased until at most `parts_max` parts remain.
    """
    ordered = sorted(topics, key=lambda each: -each.records_per_s * each.record_bytes)
    factor = ALIKE_FACTOR
    found = _grouped(ordered, factor)
    while len(found) > parts_max and factor < _ANY_FACTOR:
        factor *= _WIDER
        found = _grouped(ordered, factor)
    if len(found) > parts_max:  # the parts differ in their kind, for example in the codec
        rest = [each for group in found[parts_max - 1 :] for each in group]
        found = [*found[: parts_max - 1], rest]
    names = _names([[each.name for each in group] for group in found])
    return tuple(Part(name, tuple(group)) for name, group in zip(names, found, strict=True))


def _grouped(ordered: Sequence[TopicPart], factor: float) -> list[list[TopicPart]]:
    groups: list[list[TopicPart]] = []
    for topic in ordered:
        for group in groups:
            if _alike(group[0], topic, factor):
                group.append(topic)
                break
        else:
            groups.append([topic])
    return groups


def _alike(first: TopicPart, other: TopicPart, factor: float) -> bool:
    """Whether two topics are similar: their kinds are equal, and their sizes, rates, partitions and
    skew differ little.
    """
    if _kind(first) != _kind(other):
        return False
    close = (
        (first.record_bytes, other.record_bytes),
        (first.records_per_batch, other.records_per_batch),
        (first.spread, other.spread),
    )
    loose = (
        (first.records_per_s, other.records_per_s),
        (first.seen.facts.partitions, other.seen.facts.partitions),
    )
    return all(_within(a, b, factor) for a, b in close) and all(
        _within(a, b, factor * factor) for a, b in loose
    )


def _kind(topic: TopicPart) -> tuple[object, ...]:
    facts = topic.seen.facts
    return (
        topic.seen.batches.codec,
        topic.fit.kind,
        topic.fit.is_full,
        topic.fit.has_keys,
        facts.replication_factor,
        len(facts.readers),
    )


def _within(first: float, other: float, factor: float) -> bool:
    low, high = sorted((first, other))
    return high <= factor * low or math.isclose(low, high)


def _names(groups: Sequence[Sequence[str]]) -> list[str]:
    """A valid, unique name for each part, made from the name of its first topic."""
    found: list[str] = []
    for topics in groups:
        base = re.sub(r"[^A-Za-z0-9_]+", "-", topics[0]).strip("-_") or "part"
        name, number = base[:_NAME_LETTERS], 2
        while name in found:
            name, number = f"{base[: _NAME_LETTERS - 3]}-{number}", number + 1
        found.append(name)
    return found
