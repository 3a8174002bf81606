"""The topics of `cluster.topics`: existing topics to which a run writes.

A run never changes or deletes such a topic. The topic's partitions, replicas and properties replace
the topic settings of the workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from jobs.cluster.admin import NO_LEADER, AdminError, KafkaAdmin, Partition
from jobs.cluster.owner_topic import owner_topics
from jobs.cluster.topic_plan import Assignment
from jobs.cluster.topic_set import LeaderCounts, leader_counts, placed
from jobs.config import Cluster, Configuration
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import TopicOptions
from metrics.units import format_duration, format_volume

KEY = "cluster.topics"


@dataclass(frozen=True)
class GivenTopic:
    """A topic that exists before the run.

    Attributes:
        replicas: the replicas of each partition, the leader first.
        brokers: ids of all brokers that serve clients.
        options: shape and properties of the topic, in the form of a workload's topic.
        trouble: why the topic's properties are unknown; empty if they are known.
        records: number of records in the topic.
    """

    name: str
    replicas: Assignment
    brokers: tuple[int, ...]
    options: TopicOptions
    trouble: str = ""
    records: int = 0

    @property
    def leaders(self) -> LeaderCounts:
        """For each broker: how many of the topic's partitions this broker leads."""
        return leader_counts([leader for leader, *_ in self.replicas.values()], self.brokers)


def given_topics(
    admin: KafkaAdmin, cluster: Cluster, may_hold_data: bool = False
) -> tuple[GivenTopic, ...]:
    """The topics of `cluster.topics`; empty if the configuration does not have this key.

    Args:
        may_hold_data: whether the topics may have records, as with `cluster.topics_hold_data`; True
            if an earlier run of this process wrote to the topics.

    Raises:
        ConfigError: a topic does not exist, has partitions without a leader, or has records; or
            the user may not describe the topic.
        AdminError: the cluster does not answer.
    """
    if not cluster.topics:
        return ()
    if taken := sorted({*cluster.topics} & {*owner_topics(cluster.name_prefix)}):
        raise ConfigError(
            f"{KEY} names {taken[0]}, which is the topic for the bounds of the cluster's owner; "
            "expected topics for the records of runs; name other topics"
        )
    brokers = admin.describe_cluster().broker_ids
    found = tuple(_described(admin, name, brokers) for name in cluster.topics)
    held = [each for each in found if each.records]
    if held and not (may_hold_data or cluster.topics_hold_data):
        raise ConfigError(
            f"topic {held[0].name} of {KEY} has {held[0].records:,} records; expected an empty "
            "topic, because a run writes records and never deletes them; name an empty topic, "
            "wait until retention has deleted the records, or set "
            "cluster.topics_hold_data: true if the topic is for runs only"
        )
    return found


def _described(admin: KafkaAdmin, name: str, brokers: tuple[int, ...]) -> GivenTopic:
    seen = _partitions(admin, name, brokers[0])
    replicas = placed(seen)
    if replicas is None:
        lacking = [number for number, each in seen.items() if each.leader == NO_LEADER]
        raise ConfigError(
            f"{len(lacking)} of {len(seen)} partitions of topic {name} of {KEY} have no leader; "
            "expected a leader for each partition; start the brokers, or name another topic"
        )
    try:
        properties = {
            key: value for key, value in admin.topic_config(name).items() if value is not None
        }
        trouble = ""
    except AdminError as error:
        properties, trouble = {"retention.bytes": "-1"}, str(error)
    partitions = [(name, number) for number in replicas]
    ends, begins = admin.end_offsets(partitions), admin.begin_offsets(partitions)
    options = TopicOptions(
        partitions_per_broker=max(1, round(len(replicas) / len(brokers))),
        replication_factor=max(map(len, replicas.values())),
        config=properties,
    )
    records = sum(end - begins[each] for each, end in ends.items())
    return GivenTopic(name, replicas, brokers, options, trouble, records)


def _partitions(admin: KafkaAdmin, name: str, broker: int) -> dict[int, Partition]:
    try:
        seen = admin.partitions_seen_by(broker, (name,)).get(name)
    except AdminError as error:
        if error.cause != "TopicAuthorizationFailedError":
            raise
        raise ConfigError(
            f"this user may not describe topic {name} of {KEY}; expected the ACLs Describe and "
            "Write on the topic; grant the ACLs, or correct the name"
        ) from error
    if not seen:
        raise ConfigError(
            f"topic {name} of {KEY} does not exist; expected an existing topic, because a run with "
            "this key creates no topics; create the topic, or correct the name"
        )
    return seen


def assigned(
    given: Sequence[GivenTopic], wanted: Sequence[TopicOptions]
) -> Iterator[tuple[GivenTopic, ...]]:
    """For each part of a mix, the topics of the part. Each part gets the next `topic.count` topics
    in the order of `cluster.topics`.

    Raises:
        ConfigError: the topics of one part have different numbers of partitions.
    """
    rest = iter(given)
    for each in wanted:
        own = tuple(islice(rest, each.count))
        if len({len(topic.replicas) for topic in own}) > 1:
            raise ConfigError(
                f"topics {', '.join(topic.name for topic in own)} of {KEY} have different numbers "
                "of partitions; expected the same number in all topics of one workload; name other "
                "topics, or lower workload.topic.count"
            )
        yield own


def shape(own: Sequence[GivenTopic]) -> TopicOptions:
    """The topic settings that describe the existing topics of one part of a mix."""
    return replace(own[0].options, count=len(own))


def fitted(config: Configuration, given: Sequence[GivenTopic]) -> Configuration:
    """The configuration in which the real settings of existing topics (`given`) replace the
    workload's topic settings.

    Raises:
        ConfigError: see `assigned`; or a planned broker outage would leave partitions without a
            leader.
    """
    if not given:
        return config
    workload = config.workload
    wanted = [part.topic for part in workload.parts]
    shapes = [shape(own) for own in assigned(given, wanted)]
    if workload.mix is None:
        return config.with_workload(topic=shapes[0])
    parts = zip(workload.mix.items(), shapes, strict=True)
    mix = {name: part.model_copy(update={"topic": own}) for (name, part), own in parts}
    return config.with_workload(topic=shapes[wanted.index(workload.topic)], mix=mix)


def notes(config: Configuration, given: Sequence[GivenTopic]) -> list[str]:
    """A note for each given topic of a run: the topic's numbers of partitions and replicas, and the
    time until the topic's records are deleted.

    Args:
        config: the configuration before `fitted`, with the workload's own topic settings.
    """
    wanted = [part.topic for part in config.workload.parts]
    return [
        _note(topic, part)
        for part, own in zip(wanted, assigned(given, wanted), strict=True)
        for topic in own
    ]


def _note(topic: GivenTopic, wanted: TopicOptions) -> str:
    own = topic.options
    shapes = (("partitions_per_broker", "partitions for each broker"),
              ("replication_factor", "replicas"))  # fmt: skip
    others = [
        f"{getattr(wanted, key)} {words}"
        for key, words in shapes
        if getattr(wanted, key) != getattr(own, key)
    ]
    if not topic.trouble:
        others += [f"{k}={v}" for k, v in wanted.config.items() if str(v) != str(own.config.get(k))]
    instead = f" instead of the workload's {', '.join(others)}" if others else ""
    held = f"; it has {topic.records:,} records already" if topic.records else ""
    return (
        f"topic {topic.name} is used unchanged: {len(topic.replicas)} partitions, "
        f"{own.replication_factor} replicas{instead}; the run's records stay in it"
        f"{_kept(topic)}{held}"
    )


def _kept(topic: GivenTopic) -> str:
    if topic.trouble:
        return " for an unknown time"
    kept_ms = int(topic.options.config.get("retention.ms", "-1"))
    kept = "without end" if kept_ms < 0 else f"for {format_duration(kept_ms / 1e3)}"
    most = int(topic.options.config.get("retention.bytes", "-1"))
    size = "" if most < 0 else f", at most {format_volume(most)} a partition (retention.bytes)"
    return f" {kept} (retention.ms {kept_ms}){size}"


def warnings(given: Sequence[GivenTopic]) -> list[str]:
    """A warning for each given topic with uneven leaders or with unknown properties."""
    found = []
    for topic in given:
        counts = topic.leaders
        if not counts.are_even:
            led = ", ".join(f"{count} by broker {each}" for each, count in counts.counts.items())
            found.append(
                f"leaders of topic {topic.name} are uneven ({led} of {counts.total} partitions), "
                "so the busiest broker sets the limit; use a topic whose "
                "leaders are even"
            )
        if topic.trouble:
            found.append(
                f"properties of topic {topic.name} are unknown, so batches and replicas are not "
                f"checked against them: {topic.trouble}"
            )
    return found
