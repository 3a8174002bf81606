"""The topics to learn from, as the cluster describes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from jobs.cluster.admin import AdminError, KafkaAdmin
from metrics.common.errors import ConfigError
from metrics.learning.pacing import ReadingPace
from metrics.learning.topic import GroupFacts, TopicFacts

TOPICS_MAX = 500
"""Number of topics that one call reads."""
_NAMED = 5


def pattern_of(texts: Sequence[str]) -> re.Pattern[str]:
    """The expression that matches what any of these expressions matches.

    Raises:
        ConfigError: one of them is no regular expression.
    """
    for text in texts:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"--topics {text!r} is no regular expression ({error}); expected one that matches "
                "whole names of topics, such as 'orders.*'; correct it"
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
    known = sorted(
        (each for each in described if not each.get("is_internal")), key=lambda each: each["name"]
    )
    found = [
        TopicFacts(
            str(each["name"]),
            {int(p["partition_index"]): int(p["leader_id"]) for p in each["partitions"]},
            max((len(p["replica_nodes"]) for p in each["partitions"]), default=1),
        )
        for each in known
        if wanted.fullmatch(each["name"]) and each["partitions"]
    ]
    shown = " ".join(f"--topics {text!r}" for text in texts)
    if not found:
        names = [str(each["name"]) for each in known]
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
    admin: KafkaAdmin,
    topics: Sequence[TopicFacts],
    note: Callable[[str], None],
    pace: ReadingPace,
) -> list[TopicFacts]:
    """The topics with their properties; without them where this user may not read them."""
    found: list[TopicFacts] = []
    for topic in topics:
        pace.wait()
        pace.count(0)
        try:
            config = admin.topic_config(topic.name)
        except AdminError as error:
            note(f"properties of topics are not known: {error}")
            return [*found, *topics[len(found) :]]
        known = {name: value for name, value in config.items() if value is not None}
        found.append(TopicFacts(topic.name, topic.leaders, topic.replication_factor, known))
    return found


def with_groups(
    topics: Sequence[TopicFacts], committed: dict[str, list[GroupFacts]]
) -> list[TopicFacts]:
    """The topics with the consumer groups that committed offsets of them.

    Args:
        committed: topic → its groups.
    """
    return [
        TopicFacts(
            each.name,
            each.leaders,
            each.replication_factor,
            each.config,
            tuple(committed.get(each.name, ())),
        )
        for each in topics
    ]
