"""The plan of a run's topics, and the differences between a topic's state and its plan.

The module also finds topics and consumer groups that killed runs left on a cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from jobs.cluster.admin import NO_LEADER, AdminError, KafkaAdmin, Partition
from jobs.engine.network.options import NAME_PREFIX
from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.payload import BATCH_HEADER_BYTES, record_bytes

NAME_LENGTH_MAX = 249
"""Largest length of a topic's name in Kafka [characters]."""

MARK = "delete.retention.ms"
"""The topic property by which a run marks its topics. The property has no effect on topics that are
not compacted.
"""
_MARK_LEAST_MS = 86_400_000  # Kafka's default
_MARK_BITS = 34

Assignment = dict[int, tuple[int, ...]]
"""Partition → broker ids of its replicas, the preferred leader first."""


def assignment(
    broker_ids: Sequence[int],
    partitions_per_broker: int,
    replication_factor: int,
    racks: Mapping[int, str | None] | None = None,
) -> Assignment:
    """An assignment of replicas that gives every broker the same work.

    Each broker leads exactly `partitions_per_broker` partitions, and follows exactly
    (replication_factor - 1) times as many partitions. The followers of one broker's partitions are
    spread over all other brokers; the numbers of followers differ by at most one. Consecutive
    partitions have consecutive brokers as leaders.

    If each broker states its rack, the replicas of a partition are on different racks. With fewer
    racks than replicas, several replicas of a partition share a rack. If the racks have enough
    brokers, each rack then has an equal number of these replicas, or one more. If the racks have
    equal sizes, each broker has as many leaders and followers as without racks. If the racks have
    unequal sizes, each broker has equally many leaders, and brokers of a small rack have more
    followers.

    Args:
        racks: broker → rack of the broker.

    Raises:
        ConfigError: there are fewer brokers than replicas.
    """
    brokers = sorted(set(broker_ids))
    if replication_factor > len(brokers):
        raise ConfigError(
            f"workload.topic.replication_factor is {replication_factor}, and the cluster has "
            f"{len(brokers)} serving brokers ({', '.join(map(str, brokers)) or 'none'}); "
            "expected at most as many replicas as brokers; lower replication_factor, or start "
            "more brokers"
        )
    by_rack = _by_rack(brokers, racks or {})
    sizes = {len(each) for each in by_rack}
    make = _strided if len(sizes) < 2 else _balanced
    return make(by_rack, partitions_per_broker, replication_factor)


def _by_rack(brokers: Sequence[int], racks: Mapping[int, str | None]) -> list[list[int]]:
    """The brokers of each rack. If at least one broker states no rack, all brokers are in a single
    rack.
    """
    named = {broker: racks.get(broker) for broker in brokers}
    if not all(named.values()):
        return [list(brokers)]
    found = grouped((str(rack), broker) for broker, rack in named.items())
    return [found[rack] for rack in sorted(found)]


def _strided(by_rack: Sequence[Sequence[int]], turns: int, replication_factor: int) -> Assignment:
    """An assignment over racks of equal size.

    The brokers form a ring in which the racks alternate. The stride of a follower is its distance
    from the leader on the ring of brokers. Because racks alternate on the ring, the leader's rack
    and the stride determine the follower's rack. In each turn of the loop, each broker leads one
    more partition. All leaders of a turn use the same strides, so each broker is a follower once
    for each stride.
    """
    ring = [broker for row in zip(*by_rack, strict=True) for broker in row]
    count, racks = len(ring), len(by_rack)
    strides_of = [[s for s in range(1, count) if s % racks == rack] for rack in range(racks)]
    used = [0] * racks
    extra_turn = 0
    result: Assignment = {}
    for turn in range(turns):
        strides: list[int] = []
        wanted, extra_turn = _followers_by_rack(racks, replication_factor, extra_turn)
        for rack, followers in enumerate(wanted):
            own = strides_of[rack]
            strides += [own[(used[rack] + i) % len(own)] for i in range(followers)]
            used[rack] += followers
        for position, leader in enumerate(ring):
            others = (ring[(position + stride) % count] for stride in strides)
            result[turn * count + position] = (leader, *others)
    return result


def _followers_by_rack(racks: int, replicas: int, extra_turn: int) -> tuple[list[int], int]:
    """For one partition of each broker: how many followers of the partition are in each rack. The
    first rack is the rack of the leader.

    Args:
        extra_turn: the first rack that gets an additional replica. The second result is the value
            of `extra_turn` for the next partition of each broker.
    """
    whole, rest = divmod(replicas, racks)
    wanted = [max(0, whole - 1), *[whole] * (racks - 1)]
    first, choices = (0, racks) if whole else (1, racks - 1)
    if not whole:
        rest -= 1  # the leader
    for extra in range(rest):
        wanted[first + (extra_turn + extra) % choices] += 1
    return wanted, extra_turn + rest


def _balanced(by_rack: Sequence[Sequence[int]], turns: int, replication_factor: int) -> Assignment:
    """An assignment over racks of unequal sizes. Each follower is in the rack with the fewest
    replicas of the partition, on the broker that follows the fewest partitions.
    """
    rack_of = {broker: rack for rack, own in enumerate(by_rack) for broker in own}
    brokers = sorted(rack_of)
    follows = dict.fromkeys(brokers, 0)
    pairs: Counter[tuple[int, int]] = Counter()
    result: Assignment = {}
    for number in range(turns * len(brokers)):
        leader = brokers[number % len(brokers)]
        chosen, in_rack = [leader], Counter([rack_of[leader]])
        while len(chosen) < replication_factor:
            _, _, _, _, follower = min(
                (
                    in_rack[rack_of[broker]],
                    follows[broker],
                    pairs[leader, broker],
                    (place - number) % len(brokers),
                    broker,
                )
                for place, broker in enumerate(brokers)
                if broker not in chosen
            )
            chosen.append(follower)
            in_rack[rack_of[follower]] += 1
            follows[follower] += 1
            pairs[leader, follower] += 1
        result[number] = tuple(chosen)
    return result


def mark_of(run_id: str, is_locked: bool) -> dict[str, str]:
    """The topic property that shows which run created a topic, and whether the run held the lock.

    The property is `delete.retention.ms`, and its value [ms] contains a hash of the run's id. The
    value is less than two years, because Kafka services may refuse a larger value of
    `delete.retention.ms`.
    """
    digest = hashlib.sha256(f"kafka-redline {run_id}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") >> (64 - _MARK_BITS)
    return {MARK: str(_MARK_LEAST_MS + 2 * number + (not is_locked))}


def creator_of(topic: str, mark: str | None, prefix: str) -> tuple[str, bool] | None:
    """The id of the run that created a topic, and whether the run held the cluster's lock.

    A run created the topic if the run's id is in the topic's name and in the topic's mark.

    Args:
        mark: the value of the property `MARK`.

    Returns:
        None if there is no proof that a run created the topic.
    """
    words = topic.removeprefix(prefix).split("-") if topic.startswith(prefix) else []
    for count in range(1, len(words)):
        run_id = "-".join(words[:count])
        for is_locked in (True, False):
            if mark_of(run_id, is_locked)[MARK] == mark:
                return run_id, is_locked
    return None


def topic_name(
    run_id: str,
    message_bytes: int,
    partitions_per_broker: int,
    part: str = "",
    prefix: str = NAME_PREFIX,
) -> str:
    """The name of the topic that a run creates for this traffic.

    Args:
        part: name of the part of a mix; empty for traffic without parts.
        prefix: `cluster.name_prefix`.

    Raises:
        ConfigError: the run id is too long for a topic's name, or has characters that Kafka
            forbids.
    """
    own = f"-{part}" if part else ""
    name = f"{prefix}{run_id}{own}-{message_bytes}B-{partitions_per_broker}p"
    if len(name) > NAME_LENGTH_MAX or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ConfigError(
            f'the run id "{run_id}" cannot be part of a topic name; expected at most '
            f"{NAME_LENGTH_MAX - len(prefix) - 20} letters, digits, dots, dashes and "
            "underscores; choose another run id"
        )
    return name


def topic_names(name: str, count: int) -> tuple[str, ...]:
    """The names of `count` topics of one shape; a single topic's name has no number."""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(count))


def largest_batch_bytes(pattern: ProducerPattern) -> int:
    """The largest size of a record batch of this producer [B].

    A batch of several records has at most batch_size bytes. A batch of one record has the size of
    the record. Compression may make a batch smaller; the result is an upper bound.
    """
    options, payload = pattern.options, pattern.payload

    def sized(index: int, share: float) -> int:
        size = payload.distribution.quantile(pattern.message_bytes, share)
        return record_bytes(index, size, pattern.rate_records_per_s, payload)

    if options.compression != "none" and payload.kind != "random":
        return options.batch_size
    largest = BATCH_HEADER_BYTES + sized(0, 1.0)
    several_fit = BATCH_HEADER_BYTES + sized(0, 0.0) + sized(1, 0.0) <= options.batch_size
    return max(largest, options.batch_size) if several_fit else largest


CAPPED_SINCE = (3, 7)
"""First release of Kafka that limits min.insync.replicas to the number of a partition's
replicas."""


def require_writable(
    pattern: TrafficPattern,
    properties: Mapping[str, str | None],
    is_given: bool = False,
    release: tuple[int, ...] = (),
    losable: int = 0,
) -> None:
    """Raise an error if the brokers would refuse every produce request of this traffic.

    Args:
        pattern: the traffic that the run writes.
        properties: properties of the topic, defaults included; a missing property is not checked.
        is_given: whether the topic is one of `cluster.topics`, which the workload cannot change.
        release: the brokers' release of Kafka, such as (4, 1); () if it is unknown.
        losable: number of brokers that the run stops.

    Raises:
        ConfigError: batches are larger than max.message.bytes, the topic has too few replicas for
            min.insync.replicas, or messages of a compacted topic have no keys.
    """
    limit, batch = properties.get("max.message.bytes"), largest_batch_bytes(pattern.producer)
    if limit is not None and batch > int(limit):
        raise ConfigError(
            f"the workload sends batches of up to {batch} B at message size "
            f"{pattern.message_bytes} B, and the brokers' max.message.bytes is {limit} B; "
            "lower producer.batch_size or message_bytes, or "
            + (
                "name another topic"
                if is_given
                else f"add --set workload.topic.config.max.message.bytes={batch}"
            )
        )
    replicas = pattern.topic.replication_factor
    insync = int(properties.get("min.insync.replicas") or 1)
    if release >= CAPPED_SINCE:
        insync = min(insync, replicas)
    needs_all = pattern.producer.options.acks == "all"
    # Brokers advance the high watermark only with this number of replicas, for all values of acks.
    if replicas - losable < insync and (needs_all or losable):
        stops = f", of which the run stops {losable} (--offline)" if losable else ""
        acks = " and the workload has acks=all" if needs_all else ""
        whose = "a topic of cluster.topics" if is_given else "the workload's topic"
        raise ConfigError(
            f"{whose} has {replicas} replicas{stops}{acks}, and the brokers require "
            f"min.insync.replicas {insync}; expected at least {insync} replicas; "
            + (
                "name another topic"
                if is_given
                else f"set workload.topic.replication_factor={insync + losable}, or "
                f"workload.topic.config.min.insync.replicas={max(1, replicas - losable)}"
            )
        )
    payload = pattern.producer.payload
    has_keys = payload.key_bytes or payload.kind == "messages"
    if "compact" in (properties.get("cleanup.policy") or "") and not has_keys:
        raise ConfigError(
            "the topic has cleanup.policy compact, and the workload sends messages without keys, "
            "which brokers refuse; expected messages with keys; set workload.payload.key_bytes, or "
            "use a topic with cleanup.policy delete"
        )


@dataclass(frozen=True)
class TopicState:
    """The partitions of a topic that differ from the plan; a healthy topic has only empty tuples.

    Attributes:
        missing: partitions that are not in a broker's metadata.
        reassigned: partitions whose replicas differ from the plan, or have another order than in
            the plan. The order counts only if the run placed the replicas.
        leaderless: partitions without a leader.
        moved: partitions whose leader differs from the planned leader.
        lagging: partitions with a replica outside of the ISR.
        silent: a sentence for each broker that did not answer.
    """

    missing: tuple[int, ...] = ()
    reassigned: tuple[int, ...] = ()
    leaderless: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    lagging: tuple[int, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether all partitions are as planned."""
        return not self.sentences()

    @property
    def is_placed_otherwise(self) -> bool:
        """Whether all partitions have leaders, but some replicas are not placed as the run assigned
        them.
        """
        return bool(self.reassigned) and not (self.missing or self.leaderless or self.silent)

    def sentences(self) -> tuple[str, ...]:
        """A clause for each kind of difference, for messages."""
        found = (
            (self.missing, "unknown to a broker"),
            (self.reassigned, "with other replicas than assigned"),
            (self.leaderless, "without a leader"),
            (self.moved, "led by another broker than assigned"),
            (self.lagging, "with a replica out of sync"),
        )
        texts = (f"{_counted(partitions)} {text}" for partitions, text in found if partitions)
        return (*texts, *self.silent)

    def __or__(self, other: TopicState) -> TopicState:
        """A state with the differences of both states from the plan."""
        return TopicState(
            *(
                tuple(sorted({*getattr(self, name), *getattr(other, name)}))
                for name in self.__dataclass_fields__
            )
        )


def leader_of(replicas: Sequence[int], offline: Set[int] = frozenset()) -> int:
    """The first broker in `replicas` that is not offline; `NO_LEADER` if all are offline."""
    return next((each for each in replicas if each not in offline), NO_LEADER)


def state_of(
    wanted: Assignment,
    seen: Mapping[int, Partition],
    offline: Set[int] = frozenset(),
    is_own_placement: bool = False,
) -> TopicState:
    """The differences between the partitions in a broker's metadata and the planned partitions.

    Args:
        seen: number → partition according to the broker; partitions unknown to the broker are
            missing.
        offline: brokers that are offline on purpose; their replicas need not be in sync.
        is_own_placement: whether the cluster placed the replicas, so that their order is unknown.
    """
    known = {number: seen[number] for number in wanted if number in seen}
    led = {number: each for number, each in known.items() if each.leader != NO_LEADER}
    return TopicState(
        missing=tuple(sorted(set(wanted) - set(known))),
        reassigned=tuple(
            n
            for n, each in known.items()
            if (
                {*each.replicas} != {*wanted[n]} if is_own_placement else each.replicas != wanted[n]
            )
        ),
        leaderless=tuple(sorted(set(known) - set(led))),
        moved=tuple(n for n, each in led.items() if each.leader != leader_of(wanted[n], offline)),
        lagging=tuple(n for n, each in known.items() if {*each.replicas} - {*each.isr} - offline),
    )


def _counted(partitions: Sequence[int]) -> str:
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    named = ", ".join(map(str, partitions[:5]))
    return f"{len(partitions)} partitions ({named}{', …' if len(partitions) > 5 else ''})"


# See topic_plan.topic_name and topic_names, canaries.canary_topic, and TrialPlan.group_id.
_TOPIC = re.compile(r".+-(?:\d+B-\d+p(?:-\d+)?|canary)")
_GROUP = re.compile(r".+-group-\d+")
_BEGUN = re.compile(r"(?<![0-9])(\d{8}-\d{6})-[0-9a-f]{4}(?![0-9a-f])")  # see new_run_id


@dataclass(frozen=True)
class Leftover:
    """A topic or consumer group that a run may have left behind: its name has the form of the names
    that runs give.

    Attributes:
        kind: `topic` or `group`.
        name: name of the topic or id of the group.
        run_id: id of the run that created the topic or group; empty if there is no proof.
        is_locked: whether the run `run_id` held the cluster's lock. A run that held the lock has
            ended if another process holds the lock now.
    """

    kind: str
    name: str
    run_id: str = ""
    is_locked: bool = False

    @property
    def begun_s(self) -> float | None:
        """The start time of the run [s since the epoch]; None if the run id contains no time."""
        return begun_s(self.run_id)

    def command(self, server: str) -> str:
        """The command of Kafka's tools that deletes this topic or group.

        Args:
            server: an address of the cluster.
        """
        is_topic = self.kind == "topic"
        tool, option = ("topics", "topic") if is_topic else ("consumer-groups", "group")
        return f"kafka-{tool}.sh --bootstrap-server {server} --delete --{option} {self.name}"


def leftovers(admin: KafkaAdmin, prefix: str, given: Container[str] = ()) -> list[Leftover]:
    """The topics and groups that runs may have left behind, sorted by kind and age. The name of
    each topic or group has the form of the names that runs give.

    A run created a topic if the run's id is in the topic's name and in the topic's mark (see
    `mark_of`). A run created a group if the run's id is in the group's name, and the group
    committed offsets only of topics that the run created.

    Args:
        prefix: `cluster.name_prefix`.
        given: names of the topics in `cluster.topics`, which no run created.

    Raises:
        AdminError: topics or groups cannot be listed.
    """
    topics = {}
    for name in admin.topic_names():
        if name.startswith(prefix) and _TOPIC.fullmatch(name) and name not in given:
            run_id, is_locked = creator_of(name, _mark(admin, name), prefix) or ("", False)
            topics[name] = Leftover("topic", name, run_id, is_locked)
    found = list(topics.values())
    for name in admin.empty_groups():
        if name.startswith(prefix) and _GROUP.fullmatch(name):
            makers = {topics.get(each) for each in _committed(admin, name)}
            runs = {(each.run_id, each.is_locked) if each else ("", False) for each in makers}
            run_id, is_locked = runs.pop() if len(runs) == 1 else ("", False)
            is_proven = run_id and name.startswith(f"{prefix}{run_id}-")
            maker = (run_id, is_locked) if is_proven else ("", False)
            found.append(Leftover("group", name, *maker))
    return sorted(found, key=lambda each: (each.kind, each.begun_s or 0.0, each.name))


def _mark(admin: KafkaAdmin, topic: str) -> str | None:
    try:
        return admin.topic_config(topic, (MARK,)).get(MARK)
    except AdminError:  # this user may not read the topic's properties
        return None


def _committed(admin: KafkaAdmin, group: str) -> frozenset[str]:
    try:
        return frozenset(topic for topic, _ in admin.committed_offsets([group])[group])
    except AdminError:
        return frozenset()


def delete_leftovers(admin: KafkaAdmin, chosen: Iterable[Leftover]) -> list[str]:
    """Delete leftovers; return a message for each leftover that could not be deleted."""
    troubles = []
    for each in chosen:
        try:
            (admin.delete_topic if each.kind == "topic" else admin.delete_group)(each.name)
        except AdminError as error:
            troubles.append(str(error))
    return troubles


def begun_s(name: str) -> float | None:
    """The start time in a run id or name [s since the epoch]; None if there is no such time."""
    found = _BEGUN.search(name)
    if found is None:
        return None
    try:
        return datetime.strptime(f"{found[1]}+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return None
