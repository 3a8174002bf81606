"""The survey of a cluster's topics: what is looked up and read, within its bounds."""

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
    Place,
    ReadingPace,
    Stretch,
    groups_of,
    shares_of,
    with_config,
)
from metrics.features.learn.curve import HOUR_S, Curve, PartitionLog
from metrics.features.learn.tally import TopicFacts, TopicSeen

STRETCH_MAX_S = HOUR_S
"""Longest time before now whose batches are read [s]."""
PROBE_SHARE = 0.1
"""Share of the bytes that is read first, to learn how large records are."""
LATE_SHARE = 0.05
"""A first record that is later than this share of the time that is read begins it [ratio]."""
SPREAD_SHARE = 0.9
"""Share of the time of reading over which the data is spread, so that all of it is read [ratio]."""
_ASSUMED_RECORD_BYTES = 1_000.0


@dataclass(frozen=True)
class Bounds:
    """The bounds of what is read.

    Attributes:
        bytes_per_s: highest rate of reading [B/s].
        duration_s: longest time of reading [s].
        decodes: whether records are decoded for their sizes.
    """

    bytes_per_s: float = 5e6
    duration_s: float = 60.0
    decodes: bool = False

    @property
    def bytes_max(self) -> float:
        """Bytes to read at most [B]."""
        return self.bytes_per_s * self.duration_s


@dataclass
class Survey:
    """What was looked up and read of all topics, also when it ended early.

    Attributes:
        topics: the topics with records.
        idle: topics without a record in the time that was looked at.
        refused: topics that this user may not read.
        brokers: number of brokers of the cluster.
        bytes_read: size of all answers with batches [B].
        took_s: time of the survey [s].
        throttled_s: time for which brokers asked to wait [s].
        was_interrupted: whether it ended before it was complete.
        notes: sentences about what is missing.
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
    """Looks up and reads topics; an interrupt ends the reading and keeps what was read.

    Args:
        topics: the topics, as `matching_topics` returns them.
        progress: called with a few words about what is done now.
        clock, now, pause: a monotonic clock, the time of day, and a wait [s].
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
        self._lookups = ReadingPace(LOOKUPS_PER_S, clock=clock, pause=pause)
        self._offsets = OffsetLookup(admin, topics, self._lookups)
        self._pace = ReadingPace(bounds.bytes_per_s, clock=clock, pause=pause)
        self._reader = BatchReader(admin, self._pace, decodes=bounds.decodes)
        self._stretches: list[Stretch] = []
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
        """The logs of all partitions; returns the time of their ends [s since the epoch]."""
        self._progress("looking up offsets")
        places: list[Place] = [(t.name, each) for t in self._facts for each in t.leaders]
        now_s = self._now()
        logs = self._offsets.logs(places)
        for (topic, partition), each in logs.items():
            self._logs.setdefault(topic, {})[partition] = each
        missing = len(places) - len(logs)
        if missing:
            self.survey.notes.append(f"{missing} partitions have no leader and are left out")
        return now_s

    def _look_up_curves(self, now_s: float) -> None:
        """The curve and the spread over partitions of each topic with records."""
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
        """The curve of all partitions from that of some, and each partition's share of a day.

        Args:
            begins: the offset of each partition at the begin of the curve's last day.
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
        """The properties of the topics, and the groups that read some of them."""
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
        """Read the most recent data of each topic, as much as fits into the bounds."""
        until_s = self._clock() + self._bounds.duration_s
        doing = "reading recent batches"
        self._stretches = self._plan(records, now_s)
        self._progress(doing)
        self._reader.read(
            self._stretches,
            until_s,
            lambda text: self._progress(f"{doing}: {text}"),
            self._bounds.bytes_max,
        )

    def _records_of_last_hour(self, now_s: float) -> Mapping[str, float]:
        """Topic → the records of its last hour, of topics that have some."""
        places = [(topic, each) for topic, logs in self._logs.items() for each in logs]
        filled = [place for place in places if self._logs[place[0]][place[1]].records]
        found = self._offsets.at(filled, int((now_s - STRETCH_MAX_S) * 1e3))
        records: Counter[str] = Counter()
        for (topic, each), (offset, _) in found.items():
            if offset >= 0:
                records[topic] += self._logs[topic][each].end_offset - offset
        return +records

    def _plan(self, records: Mapping[str, float], now_s: float) -> list[Stretch]:
        """The stretches to read: of each topic the last seconds that its share of bytes allows."""
        bytes_max = self._bounds.bytes_max
        sizes = self._probe(records)
        wanted = {topic: count * sizes[topic] for topic, count in records.items()}
        shares = shares_of(wanted, bytes_max - self._pace.bytes_read)
        leaders = {each.name: each.leaders for each in self._facts}
        spans_s = {
            # A minute at least, of which only a part is read where it does not fit.
            topic: min(STRETCH_MAX_S, max(60.0, STRETCH_MAX_S * min(1.0, share / wanted[topic])))
            for topic, share in shares.items()
        }
        found = self._offsets.at_each(
            {
                (topic, each): int((now_s - span_s) * 1e3)
                for topic, span_s in spans_s.items()
                for each in self._logs[topic]
            }
        )
        planned: list[Stretch] = []
        for topic, share in shares.items():
            logs = self._logs[topic]
            known = {each: found[topic, each] for each in logs if (topic, each) in found}
            starts = {each: at for each, (at, _) in known.items() if at >= 0}
            times_s = [at_s for at, at_s in known.values() if at >= 0 and at_s is not None]
            self._windows[topic] = self._window(topic, spans_s[topic], times_s, now_s)
            # Partitions differ; where all fits, each may have more than its part.
            slack = 2.0 if share >= wanted[topic] else 1.2
            bytes_each = max(1.0, slack * share / max(1, len(starts)))
            planned += [
                Stretch(topic, each, leaders[topic][each], at, logs[each].end_offset, bytes_each)
                for each, at in starts.items()
            ]
        offsets: Counter[str] = Counter()
        for stretch in planned:
            offsets[stretch.topic] += stretch.end - stretch.start
        self._pace.spread(
            sum(min(share, offsets[topic] * sizes[topic]) for topic, share in shares.items()),
            SPREAD_SHARE * self._bounds.duration_s,
        )
        return planned

    def _window(
        self, topic: str, span_s: float, times_s: Sequence[float], now_s: float
    ) -> tuple[float, float]:
        """The time that is read of a topic [s since the epoch].

        Args:
            span_s: time before now that is looked at [s].
            times_s: times of the first records in it, of each partition [s since the epoch].
        """
        from_s = now_s - span_s
        begin_s = min(times_s, default=from_s)
        if begin_s >= now_s:
            self.survey.notes.append(
                f"{topic}: the times of its records lie {begin_s - now_s:,.0f} s ahead of this "
                "machine's clock, so its rates are not exact"
            )
        # Records that begin within the stretch, as of a topic that is new.
        is_late = now_s > begin_s > from_s + LATE_SHARE * span_s
        return (begin_s if is_late else from_s, now_s)

    def _probe(self, records: Mapping[str, float]) -> dict[str, float]:
        """Topic → the size of a record in the log, from a first look [B]."""
        bytes_each = PROBE_SHARE * self._bounds.bytes_max / max(1, len(records))
        leaders = {each.name: each.leaders for each in self._facts}
        probes = []
        for topic in records:
            logs = self._logs[topic]
            best = max(logs, key=lambda each: logs[each].records)
            log = logs[best]
            start = max(log.first_offset, log.end_offset - 50)
            probes.append(
                Stretch(topic, best, leaders[topic][best], start, log.end_offset, bytes_each)
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
        own = [each for each in self._stretches if each.topic == name]
        from_s, to_s = self._windows[name]
        offsets = sum(each.end - each.start for each in own)
        read = sum(each.at - each.start for each in own)
        last_s = tally.last_ms / 1e3
        if read >= offsets and from_s < last_s < to_s - LATE_SHARE * (to_s - from_s):
            to_s = last_s  # producers that ended within it
        # The markers of transactions have offsets, too.
        records_share = tally.offsets / (tally.offsets + tally.markers)
        stretch_s = max(0.001, to_s - from_s)
        return TopicSeen(
            facts,
            tally,
            self._curves.get(name, Curve()).scaled(records_share),
            records_share * offsets / stretch_s,
            stretch_s,
            min(1.0, read / offsets) if offsets else 1.0,
            self._shares.get(name, {}),
            readings.records.get(name),
        )

    def _note_troubles(self) -> None:
        survey, readings = self.survey, self._reader.readings
        older = sorted(name for name, tally in readings.batches.items() if tally.older)
        if older:
            survey.notes.append(
                f"{', '.join(older)}: messages of a format before v2, which Kafka has written "
                "since 0.11 unless message.format.version is older; they are left out"
            )
        if readings.troubles:
            place, why = next(iter(readings.troubles.items()))
            survey.notes.append(
                f"{len(readings.troubles)} partitions were not read to the end; {place}: {why}"
            )
