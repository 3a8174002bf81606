"""The requests that `redline learn` sends to a cluster, at a limited rate. The requests only
describe topics and consumer groups: redline joins no group, and commits no offset. Offsets are
looked up by time. A look-up searches an index of the broker, and may read a few kilobytes from the
broker's disk, so the rate and the number of look-ups are limited. Recent batches are fetched and
counted, and their contents are not kept.
"""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import ConfigResourceType, OffsetSpec
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.cluster.admin import AdminError, KafkaAdmin, fetch_request, offsets_request
from jobs.cluster.owner_topic import BatchFormatError, records_of
from metrics.common.errors import ConfigError
from metrics.features.learn.curve import HOUR_S, Curve, PartitionLog, times_of
from metrics.features.learn.tally import BatchTally, GroupFacts, RecordTally, TopicFacts
from metrics.traffic.batch_headers import BatchHeader, batches_in
from metrics.traffic.payload import BATCH_HEADER_BYTES, varint_bytes

GROUPS_MAX = 1_000
"""Maximum number of consumer groups whose offsets are read."""
_GROUPS_AT_ONCE = 50
Ends = Mapping[tuple[str, int], int]
"""(Topic, partition) → end offset of the partition."""


def groups_of(
    admin: KafkaAdmin, ends: Ends, note: Callable[[str], None]
) -> dict[str, list[GroupFacts]]:
    """Topic → the consumer groups that committed offsets of the topic.

    Groups that this user may not read are left out, and `note` is called with a sentence about
    them.

    Args:
        ends: end offset of each partition of the topics.
    """
    try:
        states = admin.groups()
    except AdminError as error:
        note(f"consumer groups are unknown: {error}")
        return {}
    names = sorted(states)
    if len(names) > GROUPS_MAX:
        note(f"{len(names):,} consumer groups exist; only the first {GROUPS_MAX:,} are read")
    found: dict[str, list[GroupFacts]] = defaultdict(list)
    failed: list[str] = []
    for start in range(0, min(len(names), GROUPS_MAX), _GROUPS_AT_ONCE):
        committed = _committed_by_each(admin, names[start : start + _GROUPS_AT_ONCE], failed)
        behind: dict[str, Counter[str]] = {}
        for name, offsets in sorted(committed.items()):
            for place in offsets.keys() & ends.keys():
                lag = max(0, ends[place] - offsets[place])
                behind.setdefault(name, Counter())[place[0]] += lag
        members = _members(admin, list(behind)) if behind else {}
        for name, lags in behind.items():
            for topic, lag in lags.items():
                found[topic].append(GroupFacts(name, members.get(name), lag, states[name]))
    if failed:
        note(
            f"the offsets of {len(failed)} consumer groups are unknown; the first error is: "
            f"{failed[0]}"
        )
    return dict(found)


def _committed_by_each(
    admin: KafkaAdmin, groups: Sequence[str], failed: list[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Group → its committed offsets. If one request for all groups fails, each group is requested
    separately, because the brokers may refuse only one group.
    """
    try:
        return admin.committed_offsets(groups)
    except AdminError:
        found: dict[str, dict[tuple[str, int], int]] = {}
        for group in groups:
            try:
                found |= admin.committed_offsets([group])
            except AdminError as error:
                failed.append(str(error))
        return found


def _members(admin: KafkaAdmin, groups: Sequence[str]) -> dict[str, int]:
    """Group → number of members. Groups whose members the brokers do not report are left out."""
    what = "describe consumer groups"
    try:
        answer = admin.ask(what, lambda: admin.client.describe_groups(list(groups)))
    except AdminError:
        return {}
    return {name: len(each["members"]) for name, each in answer.items() if not each.get("error")}


REQUESTS_PER_S = 5.0
"""Maximum rate of requests [1/s]."""
LITTLE_BYTES_PER_S = 250_000.0
"""A rate that is a negligible load for a broker [B/s]. A small amount of data is read
at this rate.
"""


class ReadingPace:
    """A rate limiter for requests to all brokers together; it limits bytes and requests.

    Attributes:
        throttled_s: throttle time that brokers requested because of a quota [s].
        bytes_read: total size of all responses until now [B].

    Args:
        bytes_per_s: maximum rate of responses [B/s].
        clock: monotonic clock [s].
        pause: function that waits for a number of seconds.
    """

    def __init__(
        self, bytes_per_s: float, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock, self._pause = clock, pause
        self._next_s = clock()
        self.throttled_s = 0.0
        self.bytes_read = 0

    @property
    def next_s(self) -> float:
        """The earliest time at which the next request may be sent [s of the clock]."""
        return max(self._next_s, self._clock())

    def spread(self, size_bytes: float, duration_s: float) -> None:
        """Reduce the rate so that the given amount of data is read evenly over the given time. The
        method does not reduce the rate below `LITTLE_BYTES_PER_S`.

        The method never increases the rate.

        Args:
            size_bytes: total size of all following responses [B].
            duration_s: the time over which the data is read [s].
        """
        even_per_s = max(LITTLE_BYTES_PER_S, size_bytes / duration_s)
        self._bytes_per_s = min(self._bytes_per_s, even_per_s)

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        rest_s = self._next_s - self._clock()
        if rest_s > 0:
            self._pause(rest_s)

    def count(self, size_bytes: int, throttle_ms: int = 0) -> None:
        """Count a response, and delay the next request accordingly.

        Args:
            size_bytes: size of the response [B].
            throttle_ms: throttle time in the broker's response [ms].
        """
        taken_s = max(size_bytes / self._bytes_per_s, 1 / REQUESTS_PER_S)
        self._next_s = max(self._next_s, self._clock() - taken_s) + taken_s
        self.bytes_read += size_bytes
        if throttle_ms > 0:
            self.throttled_s += throttle_ms / 1000.0
            self._next_s = max(self._next_s, self._clock() + throttle_ms / 1000.0)


def shares_of(wanted_bytes: Mapping[str, float], bytes_max: float) -> dict[str, float]:
    """Topic → number of bytes to read from the topic. All topics get equal shares of the bytes.

    If a topic has fewer bytes than its share, the rest is distributed to the other topics.

    Args:
        wanted_bytes: topic → number of bytes of the topic that could be read [B].
        bytes_max: maximum number of bytes to read from all topics together [B].
    """
    shares: dict[str, float] = {}
    rest = bytes_max
    ordered = sorted(wanted_bytes.items(), key=lambda each: each[1])
    for index, (topic, wanted) in enumerate(ordered):
        shares[topic] = min(wanted, rest / (len(ordered) - index))
        rest -= shares[topic]
    return shares


TOPICS_MAX = 500
"""Maximum number of topics that one call reads."""
_NAMED = 5
_CONFIGS_AT_ONCE = 100
_CONFIG_KEYS = (
    "min.insync.replicas",
    "cleanup.policy",
    "compression.type",
    "message.timestamp.type",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
)
"""Topic properties that redline writes to the learnt workload or to the file of evidence."""


def pattern_of(texts: Sequence[str]) -> re.Pattern[str]:
    """One regular expression that matches if any of the given expressions matches.

    Raises:
        ConfigError: a text is not a regular expression.
    """
    for text in texts:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"--topics {text!r} is not a regular expression ({error}); expected an expression "
                "that matches whole names of topics, such as 'orders.*'; correct it"
            ) from None
    return re.compile("|".join(f"(?:{text})" for text in texts))


def matching_topics(admin: KafkaAdmin, texts: Sequence[str]) -> list[TopicFacts]:
    """The topics whose whole names match one of the expressions, sorted by name.

    Kafka's internal topics, such as `__consumer_offsets`, are left out.

    Raises:
        AdminError: the cluster did not answer.
        ConfigError: no topic matches, or more than `TOPICS_MAX` topics match.
    """
    wanted = pattern_of(texts)
    described = admin.describe_topics("list topics")
    known = sorted((each for each in described if not each.is_internal), key=lambda each: each.name)
    found = [
        TopicFacts(
            each.name,
            {number: at.leader for number, at in each.partitions.items()},
            max(len(at.replicas) for at in each.partitions.values()),
        )
        for each in known
        if wanted.fullmatch(each.name) and each.partitions
    ]
    shown = " ".join(f"--topics {text!r}" for text in texts)
    if not found:
        names = [each.name for each in known]
        close = (
            difflib.get_close_matches(texts[0].strip(".*"), names, _NAMED, 0.3) or names[:_NAMED]
        )
        there = (
            f"a name among the {len(names)} topics that this user may describe, such as "
            f"{', '.join(close)}"
            if names
            else "at least one topic that this user may describe (ACL Describe on the topic), "
            "but found none"
        )
        raise ConfigError(
            f"{shown} matches no topic; expected {there}; correct the expression, which must match "
            "the whole name"
        )
    if len(found) > TOPICS_MAX:
        raise ConfigError(
            f"{shown} matches {len(found):,} topics; expected at most {TOPICS_MAX}; narrow the "
            "expression, and learn in several calls"
        )
    return found


def with_config(
    admin: KafkaAdmin, topics: Sequence[TopicFacts], note: Callable[[str], None], pace: ReadingPace
) -> list[TopicFacts]:
    """The topics with their properties. The map of a topic's properties is empty if this user may
    not read them.

    One request reads the properties of many topics.
    """
    found: list[TopicFacts] = []
    problem = ""
    for start in range(0, len(topics), _CONFIGS_AT_ONCE):
        chunk = topics[start : start + _CONFIGS_AT_ONCE]
        pace.wait()
        try:
            configs, refused = _configs(admin, [each.name for each in chunk])
        except AdminError as error:
            configs, refused = {}, str(error)
        pace.count(0)
        problem = problem or refused
        found += [replace(each, config=configs.get(each.name, {})) for each in chunk]
    if problem:
        note(f"properties of topics are unknown: {problem}")
    return found


def _configs(admin: KafkaAdmin, topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], str]:
    """The pair (topic → its properties, reason why properties are missing). The reason belongs to
    the first refused topic; it is empty if no topic was refused.
    """
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        kind(
            resource_type=ConfigResourceType.TOPIC.value,
            resource_name=name,
            configuration_keys=list(_CONFIG_KEYS),
        )
        for name in topics
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False)
    answer = admin.query(f"read the configuration of {len(topics)} topics", request)
    refused = [each for each in answer.results if each.error_code]
    found = {
        str(result.resource_name): {
            str(each.name): str(each.value)
            for each in result.configs or ()
            if each.value is not None
        }
        for result in answer.results
        if not result.error_code
    }
    if not refused:
        return found, ""
    error = kafka_errors.for_code(refused[0].error_code).__name__
    return found, (
        f"{refused[0].resource_name}: {error}; grant this user the ACL DescribeConfigs on the topic"
    )


def decode(header: BatchHeader, body: memoryview, tally: RecordTally) -> None:
    """Count the sizes of a batch's records, without keeping the contents of the records.

    Args:
        header: header of the batch.
        body: all bytes of the batch, including the header.
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
    tally.plain_bytes += plain
    tally.stored_bytes += header.size_bytes - BATCH_HEADER_BYTES


ANSWER_BYTES = 2_097_152
"""Maximum size of a fetch response [B]. A response with a single batch may be larger."""
PARTITIONS_AT_ONCE = 20
"""Maximum number of partitions in one request."""
_REFUSED = kafka_errors.TopicAuthorizationFailedError.errno
_DELETED = kafka_errors.OffsetOutOfRangeError.errno

log = logging.getLogger(__name__)


@dataclass
class OffsetRange:
    """The data of a partition between two offsets.

    Attributes:
        leader: id of the broker to read from.
        start, end: the first offset, and the offset after the last one.
        bytes_max: maximum number of bytes to read [B].
        at: the next offset to read.
        bytes_read: number of bytes that were read [B].
        is_over: whether the reading of this range has ended.
    """

    topic: str
    partition: int
    leader: int
    start: int
    end: int
    bytes_max: float
    at: int = -1
    bytes_read: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.at = self.start
        self.is_over = self.start >= self.end


@dataclass
class Readings:
    """The tallies of all data that was read, for each topic.

    Attributes:
        batches: topic → tally of its batches.
        records: topic → tally of its decoded records; empty without decoding.
        refused: topics that this user may not read.
        troubles: partition as text → the reason why its reading ended early.
    """

    batches: dict[str, BatchTally] = field(default_factory=lambda: defaultdict(BatchTally))
    records: dict[str, RecordTally] = field(default_factory=lambda: defaultdict(RecordTally))
    refused: set[str] = field(default_factory=set)
    troubles: dict[str, str] = field(default_factory=dict)


class BatchReader:
    """Reads ranges of several partitions in turns. If the reading ends early, a part of each range
    has been read.

    Args:
        pace: the rate limiter of all requests. The rate limiter also waits for throttle times that
            brokers request.
        decodes: whether to decode records and count their sizes.
    """

    def __init__(self, admin: KafkaAdmin, pace: ReadingPace, *, decodes: bool = False) -> None:
        self._admin, self._pace, self._decodes = admin, pace, decodes
        self.readings = Readings()

    def read(
        self,
        ranges: Sequence[OffsetRange],
        until_s: float,
        progress: Callable[[str], None] = lambda _: None,
        bytes_max: float = math.inf,
    ) -> None:
        """Read all ranges, until everything is read or a bound is reached.

        Args:
            until_s: time after which no request begins [s of the pace's clock].
            progress: called with a few words after each response.
            bytes_max: maximum number of bytes [B]: no request begins after the pace has counted so
                many bytes.

        Raises:
            AdminError: all requests failed.
        """
        failures: list[AdminError] = []
        answered = False
        while rest := [each for each in ranges if not each.is_over]:
            led: dict[int, list[OffsetRange]] = defaultdict(list)
            for each in rest:
                led[each.leader].append(each)
            for own in led.values():
                # A broker fills its response in the order of partitions, so partitions with little
                # data so far come first.
                own.sort(key=lambda each: each.bytes_read)
                for start in range(0, len(own), PARTITIONS_AT_ONCE):
                    if self._pace.next_s >= until_s or self._pace.bytes_read >= bytes_max:
                        return
                    chunk = own[start : start + PARTITIONS_AT_ONCE]
                    try:
                        self._turn(chunk)
                        answered = True
                    except AdminError as error:
                        failures.append(error)
                        self._give_up(chunk, str(error))
                    progress(f"{self._pace.bytes_read / 1e6:,.1f} MB read")
        if failures and not answered:
            raise failures[0]

    def _turn(self, chunk: Sequence[OffsetRange]) -> None:
        """Read the next part of each of the given ranges, which have the same leader."""
        leader = chunk[0].leader
        by_place = {(each.topic, each.partition): each for each in chunk}
        room = max(65_536, ANSWER_BYTES // len(chunk))
        wanted = {
            place: (each.at, int(max(4_096, min(room, each.bytes_max - each.bytes_read))))
            for place, each in by_place.items()
        }
        request = fetch_request(wanted, ANSWER_BYTES)
        self._pace.wait()
        what = f"read recent batches from broker {leader}"
        answer = self._admin.query(what, request, leader)
        size = 0
        for topic in answer.responses:
            for each in topic.partitions:
                part = by_place.get((topic.topic, int(each.partition_index)))
                if part is not None:
                    size += self._take(part, each, is_first=part is chunk[0])
        self._pace.count(size, int(getattr(answer, "throttle_time_ms", 0) or 0))
        if answer.error_code:
            self._give_up(chunk, kafka_errors.for_code(answer.error_code).__name__)

    def _take(self, part: OffsetRange, answer: Any, *, is_first: bool) -> int:
        """Count the batches of one partition's response, and return the response's size [B].

        Args:
            is_first: whether the partition was the first one in the request. A response contains at
                least one batch of the first partition in the request.
        """
        if answer.error_code == _REFUSED:
            self.readings.refused.add(part.topic)
        if answer.error_code == _DELETED and answer.log_start_offset > part.at:
            # The broker has deleted these records (retention) since the offsets were looked up.
            part.at = min(part.end, int(answer.log_start_offset))
            part.is_over = part.at >= part.end
            return 0
        if answer.error_code:
            self._give_up([part], kafka_errors.for_code(answer.error_code).__name__)
            return 0
        data = memoryview(answer.records or b"")
        found = batches_in(data)
        tally = self.readings.batches[part.topic]
        tally.older += found.older
        for header, body in found.batches:
            if header.base_offset >= part.end:
                break
            tally.add(part.partition, header)
            if self._decodes and not header.is_control:
                decode(header, body, self.readings.records[part.topic])
        part.bytes_read += len(data)
        if found.next_offset is None or found.next_offset <= part.at:
            if is_first:
                self._give_up([part], "a response contains no complete batch")
        else:
            part.at = found.next_offset
            part.is_over = part.at >= part.end or part.bytes_read >= part.bytes_max
        return len(data)

    def _give_up(self, ranges: Sequence[OffsetRange], why: str) -> None:
        for each in ranges:
            each.is_over = True
            self.readings.troubles[f"{each.topic}-{each.partition}"] = why
            log.info("%s-%d is not read further: %s", each.topic, each.partition, why)


LOOKUPS_PER_S = 200.0
"""Maximum rate of look-ups [1/s]."""
LOOKUPS_MAX = 6_000
"""Maximum number of look-ups of an offset by time, for the curves of all topics. A curve is the
number of records of a topic over time.
"""
PARTITIONS_EACH = 4
"""The rate over time is looked up for at most this number of partitions of each topic. The topic's
remaining partitions are assumed to have the same rate over time.
"""
REQUESTS_MAX = 600
"""Maximum number of requests that look up the number of records of all topics over time."""
_STEP_MAX_S = 86_400.0
_AT_ONCE = 500
_MOVED = (
    kafka_errors.NotLeaderForPartitionError.errno,
    kafka_errors.LeaderNotAvailableError.errno,
    kafka_errors.UnknownTopicOrPartitionError.errno,
)

Place = tuple[str, int]
"""Topic and partition."""
Found = tuple[int, float | None]
"""Result of a look-up: (offset, time of the record at this offset [s since the epoch]). The offset
is -1 if no record was found.
"""


class OffsetLookup:
    """Looks up offsets of partitions at their leaders.

    Args:
        topics: the topics with the leaders of their partitions.
        pace: the rate limiter of look-ups. The rate limiter counts one look-up as one byte.
    """

    def __init__(self, admin: KafkaAdmin, topics: Iterable[TopicFacts], pace: ReadingPace) -> None:
        self._admin = admin
        self._leaders = {(t.name, p): leader for t in topics for p, leader in t.leaders.items()}
        self._pace = pace

    def logs(self, places: Iterable[Place]) -> dict[Place, PartitionLog]:
        """Partition → its log, for each partition that has a leader and that this user may
        describe.
        """
        known = list(places)
        ends = self.at(known, OffsetSpec.LATEST)
        firsts = self.at(ends, OffsetSpec.EARLIEST)
        begins = self.at([place for place in firsts if ends[place][0] > firsts[place][0]], 0)
        return {
            place: PartitionLog(firsts[place][0], ends[place][0], begins.get(place, (0, None))[1])
            for place in firsts
        }

    def at(self, places: Iterable[Place], time_ms: int) -> dict[Place, Found]:
        """Partition → its first offset at or after `time_ms`; see `at_each`."""
        return self.at_each(dict.fromkeys(places, time_ms))

    def at_each(self, times_ms: Mapping[Place, int]) -> dict[Place, Found]:
        """Partition → its first offset at or after the given time. Partitions without an answer are
        left out.

        One request to a leader looks up all partitions of this leader.

        Args:
            times_ms: partition → a time [ms since the epoch], or a value of `OffsetSpec`.

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
        what = f"look up offsets at broker {leader}"
        answer = self._admin.query(what, offsets_request(times_ms), leader)
        found: dict[Place, Found] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code in _MOVED:
                    continue
                if each.error_code:
                    error = kafka_errors.for_code(each.error_code)
                    raise AdminError(
                        f"could not look up offsets of the topic {topic.name} ({error.__name__}); "
                        "expected the ACL Describe on the topic; grant it to this user",
                        error.__name__,
                    )
                at_s = each.timestamp / 1e3 if each.timestamp >= 0 else None
                found[topic.name, int(each.partition_index)] = (int(each.offset), at_s)
        return found

    def curves(
        self, logs: Mapping[str, Mapping[int, PartitionLog]], now_s: float
    ) -> dict[str, Curve]:
        """Topic → its curve, computed from some partitions. Topics without a history are left out.

        One request to a leader asks for the offsets at one time, in partitions of all topics.

        Args:
            logs: topic → partition → its log, with the end offset at the time `now_s` [s since the
                epoch].
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
                # If a leader moved, the curve begins after this time.
                if any((topic, each) not in found for each in chosen[topic]):
                    open_topics.discard(topic)
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
        """Topic → the times for which the offsets of its partitions are looked up.

        At first, the times are one hour apart. If so many times need more than `LOOKUPS_MAX`
        look-ups or more than `REQUESTS_MAX` requests, the distance between the times is doubled.
        The doubling is repeated until neither maximum is exceeded, or until the distance is longer
        than a day.
        """
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
            if (lookups <= LOOKUPS_MAX and requests <= REQUESTS_MAX) or step_s > _STEP_MAX_S:
                return times
            step_s *= 2

    def _spread(self, topic: str, logs: Mapping[int, PartitionLog]) -> list[int]:
        """Some partitions with records, with as many different leaders as possible."""
        chosen: list[int] = []
        led: dict[int, int] = defaultdict(int)
        filled = [each for each in sorted(logs) if logs[each].records]
        while filled and len(chosen) < PARTITIONS_EACH:
            best = min(filled, key=lambda each: (led[self._leaders[topic, each]], each))
            filled.remove(best)
            chosen.append(best)
            led[self._leaders[topic, best]] += 1
        return chosen
