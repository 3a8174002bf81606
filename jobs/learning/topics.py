"""The topics to learn from, as the cluster describes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafka import errors as kafka_errors
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.cluster.admin import QUERY_TIMEOUT_MS, AdminError, KafkaAdmin
from metrics.common.errors import ConfigError
from metrics.learning.pacing import ReadingPace
from metrics.learning.topic import GroupFacts, TopicFacts

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
    manager = admin.client._manager
    answer = admin.ask(
        f"read the configuration of {len(topics)} topics",
        lambda: manager.run(manager.send, request, None, QUERY_TIMEOUT_MS),
    )
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
