"""The topics to learn from, as the cluster describes them.

The consumer groups of topics: their members, and how far behind they read.

It joins no group and commits nothing: it lists groups, describes them, and reads the offsets that
they committed.

The pace of reading, by which a cluster serves no more than a stated rate.
"""

from __future__ import annotations

import difflib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kafka import errors as kafka_errors
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.cluster.admin import AdminError, KafkaAdmin
from metrics.common.errors import ConfigError
from metrics.features.learn.tally import GroupFacts, TopicFacts

GROUPS_MAX = 1_000
"""Number of groups whose offsets are read."""
_AT_ONCE = 50
Ends = Mapping[tuple[str, int], int]
"""(Topic, partition) → its end offset."""


def groups_of(
    admin: KafkaAdmin, ends: Ends, note: Callable[[str], None]
) -> dict[str, list[GroupFacts]]:
    """Topic → the groups that committed offsets of it.

    What this user may not see is named by `note`, and left out.

    Args:
        ends: the partitions of the topics, with their end offsets.
    """
    try:
        names = sorted(
            admin.ask(
                "list consumer groups",
                lambda: [str(each["group_id"]) for each in admin.client.list_groups()],
            )
        )
    except AdminError as error:
        note(f"consumer groups are not known: {error}")
        return {}
    if len(names) > GROUPS_MAX:
        note(f"{len(names):,} consumer groups; only the first {GROUPS_MAX:,} are looked at")
    found: dict[str, list[GroupFacts]] = defaultdict(list)
    failed: list[str] = []
    for start in range(0, min(len(names), GROUPS_MAX), _AT_ONCE):
        committed = _committed_by_each(admin, names[start : start + _AT_ONCE], failed)
        behind: dict[str, Counter[str]] = {}
        for name, offsets in sorted(committed.items()):
            for place in offsets.keys() & ends.keys():
                lag = max(0, ends[place] - offsets[place])
                behind.setdefault(name, Counter())[place[0]] += lag
        described = _described(admin, list(behind))
        for name, lags in behind.items():
            members, state = described.get(name, (None, ""))
            for topic, lag in lags.items():
                found[topic].append(GroupFacts(name, members, lag, state))
    if failed:
        note(f"the offsets of {len(failed)} consumer groups are not known: {failed[0]}")
    return dict(found)


def _committed_by_each(
    admin: KafkaAdmin, groups: Sequence[str], failed: list[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """The offsets of groups, at once or else one by one, as a single group may be refused."""
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


def _described(admin: KafkaAdmin, groups: Sequence[str]) -> dict[str, tuple[int | None, str]]:
    """Group → number of its members, and its state; None where the brokers do not report them."""
    if not groups:
        return {}
    try:
        answer = admin.ask(
            "describe consumer groups", lambda: admin.client.describe_groups(list(groups))
        )
    except AdminError:
        return {}
    return {
        name: (None, "") if each.get("error") else (len(each["members"]), str(each["group_state"]))
        for name, each in answer.items()
    }


REQUESTS_PER_S = 5.0
"""Highest rate of requests [1/s]."""
LITTLE_BYTES_PER_S = 250_000.0
"""A rate that is next to no load for a broker [B/s]; little data is read in seconds at it."""


class ReadingPace:
    """The pace of requests, by bytes and by requests, for all brokers together.

    Attributes:
        throttled_s: time for which brokers asked to wait, because of a quota [s].
        bytes_read: size of all answers so far [B].

    Args:
        bytes_per_s: highest rate of answers [B/s].
        requests_per_s: highest rate of requests [1/s].
        clock: monotonic clock [s].
        pause: waits for some seconds.
    """

    def __init__(
        self,
        bytes_per_s: float,
        requests_per_s: float = REQUESTS_PER_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._requests_per_s = requests_per_s
        self._clock, self._pause = clock, pause
        self._next_s = clock()
        self.throttled_s = 0.0
        self.bytes_read = 0

    @property
    def next_s(self) -> float:
        """Time at which the next request may be sent, on the clock [s]."""
        return max(self._next_s, self._clock())

    def spread(self, size_bytes: float, duration_s: float) -> None:
        """Read this much evenly over a time, or faster where that is next to no load.

        The highest rate stays the bound.

        Args:
            size_bytes: size of all answers that follow [B].
            duration_s: the time [s].
        """
        even_per_s = max(LITTLE_BYTES_PER_S, size_bytes / duration_s)
        self._bytes_per_s = min(self._bytes_per_s, even_per_s)

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        rest_s = self._next_s - self._clock()
        if rest_s > 0:
            self._pause(rest_s)

    def count(self, size_bytes: int, throttle_ms: int = 0) -> None:
        """Count an answer, after which the next request waits.

        Args:
            size_bytes: size of the answer [B].
            throttle_ms: time for which the broker asks to wait [ms].
        """
        taken_s = max(size_bytes / self._bytes_per_s, 1 / self._requests_per_s)
        self._next_s = max(self._next_s, self._clock() - taken_s) + taken_s
        self.bytes_read += size_bytes
        if throttle_ms > 0:
            self.throttled_s += throttle_ms / 1000.0
            self._next_s = max(self._next_s, self._clock() + throttle_ms / 1000.0)


def shares_of(wanted_bytes: Mapping[str, float], bytes_max: float) -> dict[str, float]:
    """Topic → the bytes to read of it, in equal shares of the whole.

    A topic that has fewer bytes than its share leaves the rest to the others.

    Args:
        wanted_bytes: topic → the bytes that it has [B].
        bytes_max: bytes to read of all topics together [B].
    """
    shares: dict[str, float] = {}
    rest = bytes_max
    ordered = sorted(wanted_bytes.items(), key=lambda each: each[1])
    for index, (topic, wanted) in enumerate(ordered):
        shares[topic] = min(wanted, rest / (len(ordered) - index))
        rest -= shares[topic]
    return shares


TOPICS_MAX = 500
"""Number of topics that one call reads."""
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
"""The properties of topics that a workload or its evidence states."""


def pattern_of(texts: Sequence[str]) -> re.Pattern[str]:
    """The expression that matches what any of these expressions matches.

    Raises:
        ConfigError: one of them is not a regular expression.
    """
    for text in texts:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"--topics {text!r} is not a regular expression ({error}); expected one that "
                "matches whole names of topics, such as 'orders.*'; correct it"
            ) from None
    return re.compile("|".join(f"(?:{text})" for text in texts))


def matching_topics(admin: KafkaAdmin, texts: Sequence[str]) -> list[TopicFacts]:
    """The topics whose whole names match one of the expressions, in the order of their names.

    Kafka's own topics, such as `__consumer_offsets`, are left out.

    Raises:
        AdminError: the cluster did not answer.
        ConfigError: no topic matches, or too many do.
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
            else "topics that this user may describe, and there are none (ACL: Describe on topics)"
        )
        raise ConfigError(
            f"{shown} matches no topic; expected {there}; correct the expression, which must match "
            "the whole name"
        )
    if len(found) > TOPICS_MAX:
        raise ConfigError(
            f"{shown} matches {len(found):,} topics; expected at most {TOPICS_MAX}; narrow it, and "
            "learn in several calls"
        )
    return found


def with_config(
    admin: KafkaAdmin, topics: Sequence[TopicFacts], note: Callable[[str], None], pace: ReadingPace
) -> list[TopicFacts]:
    """The topics with their properties; without them where this user may not read them.

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
        note(f"properties of topics are not known: {problem}")
    return found


def _configs(admin: KafkaAdmin, topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], str]:
    """Topic → its properties, and the first reason why some are not known, or nothing."""
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
        f"{refused[0].resource_name}: {error}; this user needs the ACL DescribeConfigs on it"
    )
