"""Offsets of partitions by time: when their records were written, without reading them.

Each look-up is a search in an index of the broker, and a read of a few kilobytes that may come from
its disk, so look-ups have a pace and a highest number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import OffsetSpec
from kafka.protocol.consumer import ListOffsetsRequest

from jobs.cluster.admin import QUERY_TIMEOUT_MS, AdminError, KafkaAdmin
from metrics.learning.curve import HOUR_S, Curve, PartitionLog, times_of
from metrics.learning.pacing import ReadingPace
from metrics.learning.topic import TopicFacts

LOOKUPS_PER_S = 200.0
"""Highest rate of look-ups [1/s]."""
LOOKUPS_MAX = 6_000
"""Highest number of look-ups by time for curves."""
PARTITIONS_EACH = 4
"""Partitions of a topic whose curve is looked up; the others are taken to go with them."""
REQUESTS_MAX = 600
"""Highest number of requests for curves."""
_STEP_MAX_S = 86_400.0
_UNCOMMITTED = 0
_VERSION = 1
_AT_ONCE = 500
_MOVED = (
    kafka_errors.NotLeaderForPartitionError.errno,
    kafka_errors.LeaderNotAvailableError.errno,
    kafka_errors.UnknownTopicOrPartitionError.errno,
)

Place = tuple[str, int]
"""Topic and partition."""
Found = tuple[int, float | None]
"""Offset, -1 where there is none; and the time of its record [s since the epoch]."""


class OffsetLookup:
    """Looks up offsets of partitions at their leaders.

    Args:
        topics: the topics with the leaders of their partitions.
        pace: pace of the look-ups, as bytes of a pace for requests.
        requests_max: most requests for all curves.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        topics: Iterable[TopicFacts],
        pace: ReadingPace,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._admin = admin
        self._leaders = {(t.name, p): leader for t in topics for p, leader in t.leaders.items()}
        self._pace = pace
        self._requests_max = requests_max

    def logs(self, places: Iterable[Place]) -> dict[Place, PartitionLog]:
        """The log of each partition that has a leader and may be described."""
        known = list(places)
        ends = self.at(known, OffsetSpec.LATEST)
        firsts = self.at(ends, OffsetSpec.EARLIEST)
        begins = self.at([place for place in firsts if ends[place][0] > firsts[place][0]], 0)
        return {
            place: PartitionLog(firsts[place][0], ends[place][0], begins.get(place, (0, None))[1])
            for place in firsts
        }

    def at(self, places: Iterable[Place], time_ms: int) -> dict[Place, Found]:
        """The first offset at or after a time of each partition; see `at_each`."""
        return self.at_each(dict.fromkeys(places, time_ms))

    def at_each(self, times_ms: Mapping[Place, int]) -> dict[Place, Found]:
        """The first offset at or after its time of each partition that a leader answers for.

        One request to a leader looks up all of its partitions.

        Args:
            times_ms: partition → a time [ms since the epoch], or one of `OffsetSpec`.

        Raises:
            AdminError: a broker does not answer, or this user may not describe a topic.
        """
        led: dict[int, list[Place]] = defaultdict(list)
        for place in times_ms:
            if self._leaders.get(place, -1) >= 0:
                led[self._leaders[place]].append(place)
        found: dict[Place, Found] = {}
        for leader, own in led.items():
            for start in range(0, len(own), _AT_ONCE):
                chunk = {place: times_ms[place] for place in own[start : start + _AT_ONCE]}
                self._pace.wait()
                found |= self._ask(leader, chunk)
                self._pace.count(len(chunk))
        return found

    def _ask(self, leader: int, times_ms: Mapping[Place, int]) -> dict[Place, Found]:
        manager = self._admin.client._manager
        request = _request(times_ms)
        answer = self._admin.ask(
            f"look up offsets at broker {leader}",
            lambda: manager.run(manager.send, request, leader, QUERY_TIMEOUT_MS),
        )
        found: dict[Place, Found] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code in _MOVED:
                    continue
                if each.error_code:
                    error = kafka_errors.for_code(each.error_code)
                    raise AdminError(
                        f"could not look up offsets of the topic {topic.name} ({error.__name__}); "
                        "this user needs the ACL Describe on it; grant it",
                        error.__name__,
                    )
                at_s = each.timestamp / 1e3 if each.timestamp >= 0 else None
                found[topic.name, int(each.partition_index)] = (int(each.offset), at_s)
        return found

    def curves(
        self, logs: Mapping[str, Mapping[int, PartitionLog]], now_s: float
    ) -> dict[str, Curve]:
        """Topic → its curve, from some of its partitions; empty for a topic without a past.

        One request to a leader looks up the partitions of all topics at one time.

        Args:
            logs: topic → partition → its log, whose end is that of `now_s` [s since the epoch].
        """
        chosen = {topic: self._spread(topic, own) for topic, own in logs.items()}
        times = self._times(chosen, logs, now_s)
        offsets = {
            topic: {each: [logs[topic][each].end_offset] for each in chosen[topic]}
            for topic in times
        }
        begun = {topic: [now_s] for topic in times}
        open_topics = set(times)
        for at_s in sorted({each for own in times.values() for each in own[:-1]}, reverse=True):
            asked = [topic for topic in sorted(open_topics) if at_s in times[topic]]
            places = [(topic, each) for topic in asked for each in chosen[topic]]
            found = self.at(places, int(at_s * 1e3))
            for topic in asked:
                if any((topic, each) not in found for each in chosen[topic]):
                    open_topics.discard(topic)  # a leader moved; its curve begins here
                    continue
                for each in chosen[topic]:
                    offset, _ = found[topic, each]
                    end = logs[topic][each].end_offset
                    offsets[topic][each].insert(0, offset if offset >= 0 else end)
                begun[topic].insert(0, at_s)
        return {topic: Curve.of_offsets(begun[topic], offsets[topic]) for topic in times}

    def _times(
        self,
        chosen: Mapping[str, Sequence[int]],
        logs: Mapping[str, Mapping[int, PartitionLog]],
        now_s: float,
    ) -> dict[str, tuple[float, ...]]:
        """Topic → the times to look up, in steps that keep look-ups and requests within bounds."""
        step_s = HOUR_S
        while True:
            times = {
                topic: times_of([logs[topic][each] for each in own], now_s, step_s)
                for topic, own in chosen.items()
                if own
            }
            times = {topic: own for topic, own in times.items() if len(own) > 1}
            lookups = sum(len(own) * len(chosen[topic]) for topic, own in times.items())
            leaders = {self._leaders[topic, each] for topic in times for each in chosen[topic]}
            requests = len({at_s for own in times.values() for at_s in own}) * len(leaders)
            if (lookups <= LOOKUPS_MAX and requests <= self._requests_max) or step_s > _STEP_MAX_S:
                return times
            step_s *= 2

    def _spread(self, topic: str, logs: Mapping[int, PartitionLog]) -> list[int]:
        """Some partitions with records, as many as possible of different leaders."""
        chosen: list[int] = []
        led: dict[int, int] = defaultdict(int)
        filled = [each for each in sorted(logs) if logs[each].records]
        while filled and len(chosen) < PARTITIONS_EACH:
            best = min(filled, key=lambda each: (led[self._leaders[topic, each]], each))
            filled.remove(best)
            chosen.append(best)
            led[self._leaders[topic, best]] += 1
        return chosen


def _request(times_ms: Mapping[Place, int]) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    partitions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, partition), time_ms in times_ms.items():
        partitions[topic].append((partition, time_ms))
    return ListOffsetsRequest(
        isolation_level=_UNCOMMITTED,
        topics=[
            kind(
                name=name,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=number, timestamp=time_ms)
                    for number, time_ms in own
                ],
            )
            for name, own in partitions.items()
        ],
        min_version=_VERSION,
    )
