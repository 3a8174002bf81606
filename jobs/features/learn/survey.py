"""The survey of a cluster's topics: looks up offsets and reads recent batches, within bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.cluster.admin import KafkaAdmin
from jobs.features.learn.reading import (
    LOOKUPS_PER_S,
    BatchReader,
    Found,
    OffsetLookup,
    OffsetRange,
    Place,
    ReadingPace,
    groups_of,
    shares_of,
    with_config,
)
from metrics.features.learn.curve import HOUR_S, Curve, PartitionLog
from metrics.features.learn.tally import TopicFacts, TopicSeen

RANGE_MAX_S = HOUR_S
"""Largest age of a batch that is read [s]."""
PROBE_SHARE = 0.1
"""Share of all bytes that is read first, to find out the size of records [ratio]."""
LATE_SHARE = 0.05
"""If the time from the start of the range to the first record is more than this share of the range,
the range begins with the first record [ratio]. If the time from the last record to the end of the
range is more than this share of the range, the range ends with the last record.
"""
SPREAD_SHARE = 0.9
"""The reading is planned to take this share of the permitted time, so that all data is read in time
[ratio].
"""
_ASSUMED_RECORD_BYTES = 1_000.0


@dataclass(frozen=True)
class Bounds:
    """The bounds within which a survey reads records from topics.

    Attributes:
        bytes_per_s: maximum rate of reading [B/s].
        duration_s: maximum time of reading [s].
        decodes: whether records are decoded to count their sizes.
    """

    bytes_per_s: float = 5e6
    duration_s: float = 60.0
    decodes: bool = False

    @property
    def bytes_max(self) -> float:
        """The maximum number of bytes to read [B]."""
        return self.bytes_per_s * self.duration_s


@dataclass
class Survey:
    """The result of a survey, which is incomplete if the survey ended early.

    Attributes:
        topics: the topics with records.
        idle: topics without a record in the last hour.
        refused: topics that this user may not read.
        brokers: number of brokers of the cluster.
        bytes_read: total size of all fetch responses [B].
        took_s: duration of the survey [s].
        throttled_s: throttle time that brokers requested [s].
        was_interrupted: whether an interrupt ended the survey before it was complete.
        notes: sentences about missing data.
    """

    topics: list[TopicSeen] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    brokers: int = 0
    bytes_read: int = 0
    took_s: float = 0.0
    throttled_s: float = 0.0
    was_interrupted: bool = False
    notes: list[str] = field(default_factory=list)


class Surveyor:
    """Looks up offsets and reads batches of topics. An interrupt ends the reading, and the data
    that was read before the interrupt is kept.

    Args:
        topics: the topics from `matching_topics`.
        progress: called with a few words about the current step.
        clock: returns the time of a monotonic clock [s]. now: returns the time since the epoch [s].
            pause: waits for a time [s].
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        topics: Sequence[TopicFacts],
        bounds: Bounds,
        progress: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._admin, self._facts, self._bounds = admin, list(topics), bounds
        self._progress, self._clock, self._now = progress, clock, now
        self._lookups = ReadingPace(LOOKUPS_PER_S, clock, pause)
        self._offsets = OffsetLookup(admin, topics, self._lookups)
        self._pace = ReadingPace(bounds.bytes_per_s, clock, pause)
        self._reader = BatchReader(admin, self._pace, decodes=bounds.decodes)
        self._ranges: list[OffsetRange] = []
        self._windows: dict[str, tuple[float, float]] = {}
        self._curves: dict[str, Curve] = {}
        self._shares: dict[str, dict[int, float]] = {}
        self._logs: dict[str, dict[int, PartitionLog]] = {}
        self.survey = Survey()

    def make(self) -> Survey:
        """Make the survey.

        Raises:
            AdminError: the cluster does not answer, or this user may not describe the topics.
        """
        began_s = self._clock()
        self.survey.brokers = len(self._admin.describe_cluster().brokers)
        now_s = self._look_up()
        records = self._records_of_last_hour(now_s)
        self._look_up_groups(records)
        try:
            self._read(records, now_s)
            self._look_up_curves(now_s)
        except KeyboardInterrupt:
            self.survey.was_interrupted = True
        return self._finish(began_s)

    # --- look-ups ----------------------------------------------------------------

    def _look_up(self) -> float:
        """Look up the logs of all partitions, and return the time of their end offsets [s since the
        epoch].
        """
        self._progress("looking up offsets")
        places: list[Place] = [(t.name, each) for t in self._facts for each in t.leaders]
        now_s = self._now()
        logs = self._offsets.logs(places)
        for (topic, partition), each in logs.items():
            self._logs.setdefault(topic, {})[partition] = each
        missing = len(places) - len(logs)
        if missing:
            self.survey.notes.append(
                f"{missing} partitions are left out, because they have no leader"
            )
        return now_s

    def _look_up_curves(self, now_s: float) -> None:
        """For each topic with records, look up the curve (number of records over time), and the
        share of each partition in the records.
        """
        self._progress("looking up curves")
        known = self._offsets.curves({topic: self._logs[topic] for topic in self._windows}, now_s)
        begins = self._offsets.at_each(
            {
                (topic, each): int(curve.today.times_s[0] * 1e3)
                for topic, curve in known.items()
                if curve.step_s
                for each in self._logs[topic]
            }
        )
        for topic, curve in known.items():
            self._curves[topic], self._shares[topic] = self._of_all(topic, curve, begins)

    def _of_all(
        self, topic: str, curve: Curve, begins: Mapping[Place, Found]
    ) -> tuple[Curve, dict[int, float]]:
        """The pair (curve of all partitions, partition → its share of the last day's records). The
        curve is scaled up from `curve`, which contains only some partitions. The map contains all
        partitions, or is empty if the shares are unknown.

        Args:
            begins: partition → the partition's offset at the start of the last day of `curve`.
        """
        if not curve.step_s:
            return curve, {}
        logs, today = self._logs[topic], curve.today
        written = {
            each: log.end_offset - offset if (offset := begins[topic, each][0]) >= 0 else 0
            for each, log in logs.items()
            if (topic, each) in begins
        }
        total, own = sum(written.values()), today.counts[-1] - today.counts[0]
        if total <= 0 or own <= 0:
            return curve, {}
        return curve.scaled(total / own), {each: count / total for each, count in written.items()}

    def _look_up_groups(self, topics: Iterable[str]) -> None:
        """Look up the properties and the consumer groups of the topics."""
        self._progress("looking up consumer groups")
        ends = {
            (topic, partition): log.end_offset
            for topic in topics
            for partition, log in self._logs[topic].items()
        }
        known = groups_of(self._admin, ends, self.survey.notes.append)
        facts = with_config(self._admin, self._facts, self.survey.notes.append, self._lookups)
        self._facts = [replace(each, groups=tuple(known.get(each.name, ()))) for each in facts]

    # --- batches -----------------------------------------------------------------

    def _read(self, records: Mapping[str, float], now_s: float) -> None:
        """Read the most recent data of each topic within the bounds."""
        until_s = self._clock() + self._bounds.duration_s
        doing = "reading recent batches"
        self._ranges = self._plan(records, now_s)
        self._progress(doing)
        self._reader.read(
            self._ranges,
            until_s,
            lambda text: self._progress(f"{doing}: {text}"),
            self._bounds.bytes_max,
        )

    def _records_of_last_hour(self, now_s: float) -> Mapping[str, float]:
        """Topic → number of records in the last hour; topics without such records are left out."""
        places = [(topic, each) for topic, logs in self._logs.items() for each in logs]
        filled = [place for place in places if self._logs[place[0]][place[1]].records]
        found = self._offsets.at(filled, int((now_s - RANGE_MAX_S) * 1e3))
        records: Counter[str] = Counter()
        for (topic, each), (offset, _) in found.items():
            if offset >= 0:
                records[topic] += self._logs[topic][each].end_offset - offset
        return +records

    def _plan(self, records: Mapping[str, float], now_s: float) -> list[OffsetRange]:
        """The ranges of offsets to read. A topic's ranges contain its most recent records, as many
        as fit into the topic's share of the bytes.
        """
        bytes_max = self._bounds.bytes_max
        sizes = self._probe(records)
        wanted = {topic: count * sizes[topic] for topic, count in records.items()}
        shares = shares_of(wanted, bytes_max - self._pace.bytes_read)
        leaders = {each.name: each.leaders for each in self._facts}
        spans_s = {
            # At least a minute. If its data does not fit, only a part is read.
            topic: min(RANGE_MAX_S, max(60.0, RANGE_MAX_S * min(1.0, share / wanted[topic])))
            for topic, share in shares.items()
        }
        found = self._offsets.at_each(
            {
                (topic, each): int((now_s - span_s) * 1e3)
                for topic, span_s in spans_s.items()
                for each in self._logs[topic]
            }
        )
        planned: list[OffsetRange] = []
        for topic, share in shares.items():
            logs = self._logs[topic]
            known = {each: found[topic, each] for each in logs if (topic, each) in found}
            starts = {each: at for each, (at, _) in known.items() if at >= 0}
            times_s = [at_s for at, at_s in known.values() if at >= 0 and at_s is not None]
            self._windows[topic] = self._window(topic, spans_s[topic], times_s, now_s)
            # Partitions differ in size. If all data fits, a partition may have more than its equal
            # share.
            slack = 2.0 if share >= wanted[topic] else 1.2
            bytes_each = max(1.0, slack * share / max(1, len(starts)))
            planned += [
                OffsetRange(
                    topic, each, leaders[topic][each], at, logs[each].end_offset, bytes_each
                )
                for each, at in starts.items()
            ]
        offsets: Counter[str] = Counter()
        for part in planned:
            offsets[part.topic] += part.end - part.start
        self._pace.spread(
            sum(min(share, offsets[topic] * sizes[topic]) for topic, share in shares.items()),
            SPREAD_SHARE * self._bounds.duration_s,
        )
        return planned

    def _window(
        self, topic: str, span_s: float, times_s: Sequence[float], now_s: float
    ) -> tuple[float, float]:
        """Start and end of the time range that is read from a topic [s since the epoch].

        Args:
            span_s: length of the planned time range, which ends at `now_s` [s].
            times_s: for each partition, the time of its first record in the range [s since the
                epoch].
        """
        from_s = now_s - span_s
        begin_s = min(times_s, default=from_s)
        if begin_s >= now_s:
            self.survey.notes.append(
                f"{topic}: the times of records are {begin_s - now_s:,.0f} s ahead of this "
                "machine's clock, so the rates of the topic are not exact"
            )
        # The first record is within the range, for example in a new topic.
        is_late = now_s > begin_s > from_s + LATE_SHARE * span_s
        return (begin_s if is_late else from_s, now_s)

    def _probe(self, records: Mapping[str, float]) -> dict[str, float]:
        """Topic → mean size of a record in the log [B]. A first small read measures this size."""
        bytes_each = PROBE_SHARE * self._bounds.bytes_max / max(1, len(records))
        leaders = {each.name: each.leaders for each in self._facts}
        probes = []
        for topic in records:
            logs = self._logs[topic]
            best = max(logs, key=lambda each: logs[each].records)
            log = logs[best]
            start = max(log.first_offset, log.end_offset - 50)
            probes.append(
                OffsetRange(topic, best, leaders[topic][best], start, log.end_offset, bytes_each)
            )
        reader = BatchReader(self._admin, self._pace)
        reader.read(probes, self._clock() + self._bounds.duration_s / 4)
        tallies = {topic: reader.readings.batches[topic] for topic in records}
        return {
            topic: each.size_bytes / each.offsets if each.offsets else _ASSUMED_RECORD_BYTES
            for topic, each in tallies.items()
        }

    # --- the end -------------------------------------------------------------------

    def _finish(self, began_s: float) -> Survey:
        survey, readings = self.survey, self._reader.readings
        survey.bytes_read = self._pace.bytes_read
        survey.throttled_s = self._pace.throttled_s
        survey.took_s = self._clock() - began_s
        survey.refused = sorted(readings.refused)
        for facts in self._facts:
            tally = readings.batches.get(facts.name)
            if tally is None or not tally.batches:
                if facts.name not in readings.refused:
                    survey.idle.append(facts.name)
                continue
            survey.topics.append(self._seen(facts))
        self._note_troubles()
        return survey

    def _seen(self, facts: TopicFacts) -> TopicSeen:
        readings, name = self._reader.readings, facts.name
        tally = readings.batches[name]
        own = [each for each in self._ranges if each.topic == name]
        from_s, to_s = self._windows[name]
        offsets = sum(each.end - each.start for each in own)
        read = sum(each.at - each.start for each in own)
        last_s = tally.last_ms / 1e3
        if read >= offsets and from_s < last_s < to_s - LATE_SHARE * (to_s - from_s):
            to_s = last_s  # producers stopped within the time range
        # Transaction markers have offsets, too, but are not records.
        records_share = tally.offsets / (tally.offsets + tally.markers)
        read_s = max(0.001, to_s - from_s)
        return TopicSeen(
            facts,
            tally,
            self._curves.get(name, Curve()).scaled(records_share),
            records_share * offsets / read_s,
            read_s,
            min(1.0, read / offsets) if offsets else 1.0,
            self._shares.get(name, {}),
            readings.records.get(name),
        )

    def _note_troubles(self) -> None:
        survey, readings = self.survey, self._reader.readings
        older = sorted(name for name, tally in readings.batches.items() if tally.older)
        if older:
            survey.notes.append(
                f"{', '.join(older)}: messages with a format older than v2 are left out (Kafka "
                "writes v2 since 0.11, unless message.format.version is older)"
            )
        if readings.troubles:
            place, why = next(iter(readings.troubles.items()))
            survey.notes.append(
                f"{len(readings.troubles)} partitions were only partly read, for example {place} "
                f"({why})"
            )
