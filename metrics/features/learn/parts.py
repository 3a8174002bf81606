"""Parts of a mix: topics that look alike become one part, with sums that stay exact."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from metrics.features.learn.fit import ASSUMED, FITTED, SEEN, Figure, Fit, fit
from metrics.features.learn.tally import TopicSeen

PEAK, MEAN, NOW = "peak", "mean", "now"
MOMENTS = (PEAK, MEAN, NOW)
"""The rates of today that scale 1 of a workload may have."""

PEAK_STEP_S = 600.0
"""Shortest step of a curve whose busiest step counts as the peak [s]; of shorter ones, the mean
does, as their busiest step is chance."""
ALIKE_FACTOR = 2.0
"""Topics whose sizes of messages and of batches differ by less than this factor look alike."""
_WIDER = 1.5
_NAME_LETTERS = 40
_ANY_FACTOR = 1e6

_SOURCES = (SEEN, FITTED, ASSUMED)


@dataclass(frozen=True)
class TopicPart:
    """One topic with its fit, at the rate of scale 1.

    Attributes:
        seen: the topic.
        fit: how it is written.
        records_per_s: its rate at scale 1 [1/s].
    """

    seen: TopicSeen
    fit: Fit
    records_per_s: float

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self.seen.facts.name

    @property
    def spread(self) -> float:
        """The busiest partition's share over the mean; 1 where that may be chance [ratio]."""
        return self.seen.largest_over_mean if self.seen.is_skewed else 1.0

    @property
    def records_per_batch(self) -> float:
        """Mean records of a batch at the rate of scale 1.

        Full batches stay as they are. Batches that linger get more records at a higher rate.
        """
        found = self.seen.batches.records_per_batch
        if self.fit.is_full or self.seen.now_per_s <= 0:
            return found
        return 1 + (found - 1) * self.records_per_s / self.seen.now_per_s

    @property
    def batches_per_s(self) -> float:
        """Batches at the rate of scale 1 [1/s]."""
        return self.records_per_s / self.records_per_batch

    @property
    def records_per_request(self) -> float:
        """Mean records of a request at the rate of scale 1, which lingers as its batches do."""
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
        """A topic at today's peak, today's mean, or the rate of the time that was read."""
        today = seen.curve.today
        peak = today.peak if today.step_s >= PEAK_STEP_S else today.mean
        rates = {PEAK: peak, MEAN: today.mean, NOW: seen.now_per_s}
        return cls(seen, fit(seen), rates[moment] or seen.now_per_s)


@dataclass(frozen=True)
class Part:
    """Topics that look alike, as one kind of traffic.

    Attributes:
        name: name of the part.
        topics: its topics, the one with the most bytes first.
    """

    name: str
    topics: tuple[TopicPart, ...]

    @property
    def first(self) -> TopicPart:
        """The topic with the most bytes."""
        return self.topics[0]

    @cached_property
    def records_per_s(self) -> float:
        """Records of all of its topics at scale 1 [1/s]."""
        return sum(each.records_per_s for each in self.topics)

    @cached_property
    def log_bytes_per_s(self) -> float:
        """Bytes of its records in the log at scale 1, without headers of batches [B/s]."""
        return sum(each.records_per_s * each.record_bytes for each in self.topics)

    @property
    def record_bytes(self) -> float:
        """Mean size of a record in the log [B]."""
        return self.log_bytes_per_s / self.records_per_s

    @property
    def records_per_batch(self) -> float:
        """Mean records of a batch at scale 1."""
        return self.records_per_s / sum(each.batches_per_s for each in self.topics)

    @property
    def records_per_request(self) -> float:
        """Mean records of a request at scale 1."""
        requests_per_s = sum(each.records_per_s / each.records_per_request for each in self.topics)
        return self.records_per_s / requests_per_s

    @property
    def producers(self) -> Figure:
        """The number of producers, summed over its topics."""
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
    def fit(self) -> Fit:
        """The fit of the topic with the most bytes, which stands for all of them."""
        return self.first.fit

    @property
    def groups(self) -> int:
        """The largest number of consumer groups that read one of its topics."""
        return max(len(each.seen.facts.readers) for each in self.topics)

    @property
    def members(self) -> int | None:
        """Mean number of members of a group, at least 1; None where no group reports them."""
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
        """The lowest and the highest value among its topics."""
        values = [value(each) for each in self.topics]
        return min(values), max(values)


def parts_of(topics: Iterable[TopicPart], parts_max: int) -> tuple[Part, ...]:
    """The topics as parts, the one with the most bytes first.

    Topics that look alike are one part. Where more parts are left than `parts_max`, what counts as
    alike widens until they fit.
    """
    ordered = sorted(topics, key=lambda each: -each.records_per_s * each.record_bytes)
    factor = ALIKE_FACTOR
    found = _grouped(ordered, factor)
    while len(found) > parts_max and factor < _ANY_FACTOR:
        factor *= _WIDER
        found = _grouped(ordered, factor)
    if len(found) > parts_max:  # they differ in what is no number, such as the codec
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
    """Whether two topics look alike: equal in kind, and close in sizes, rates, partitions and how
    unevenly they spread.
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
    """A name for each part, from the name of its first topic, as a mix accepts it."""
    found: list[str] = []
    for topics in groups:
        base = re.sub(r"[^A-Za-z0-9_]+", "-", topics[0]).strip("-_") or "part"
        name, number = base[:_NAME_LETTERS], 2
        while name in found:
            name, number = f"{base[: _NAME_LETTERS - 3]}-{number}", number + 1
        found.append(name)
    return found
