"""A typed admin client of a cluster, on top of kafka-python's.

Requests to one certain broker go through kafka-python's connection manager, because its public
methods choose the broker themselves; they are in this module and in `jobs.cluster.permissions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.protocol.admin import DescribeLogDirsRequest, ElectionType
from kafka.protocol.metadata import MetadataRequest

from metrics.common.errors import RedlineError

Answer = TypeVar("Answer")

NO_LEADER = -1

QUERY_TIMEOUT_MS = 5_000
"""A broker that does not answer a query for metadata within this time counts as silent [ms]."""

QUERIES_IN_PARALLEL = 16
"""Brokers that are queried at the same time; more are no faster, as Python decodes one answer
after another."""


class AdminError(RedlineError):
    """The cluster refused or did not answer a request of the admin client.

    `cause` is the name of Kafka's error, such as TopicAlreadyExistsError.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Broker:
    """A broker as clients see it, with its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class ClusterInfo:
    """The brokers of a cluster.

    Attributes:
        cluster_id: the id that Kafka gave the cluster.
        brokers: the brokers that serve, in the order of their ids.
        fenced: ids of brokers that are registered and do not serve.
        api_version: the release that matches the brokers' protocol, such as (4, 1); the
            patch release is known only from their metrics.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    fenced: tuple[int, ...]
    api_version: tuple[int, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that serve, ascending."""
        return tuple(broker.id for broker in self.brokers)

    @property
    def hosts(self) -> dict[int, str]:
        """Broker id → advertised host."""
        return {broker.id: broker.host for broker in self.brokers}

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Broker id → advertised host and port."""
        return {broker.id: (broker.host, broker.port) for broker in self.brokers}


@dataclass(frozen=True)
class Partition:
    """A partition as one broker knows it; `leader` is `NO_LEADER` while there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def preferred(self) -> int:
        """Broker id of the preferred leader."""
        return self.replicas[0]


class KafkaAdmin:
    """The admin client of a cluster; `jobs.cluster.connect.connect` makes one.

    A context manager. Every method may raise `AdminError`. Several threads may use it.
    """

    def __init__(self, client: KafkaAdminClient, timeout_s: float) -> None:
        """Take over `client`, with a deadline of `timeout_s` for each request [s]."""
        self.client = client
        self._timeout_ms = int(timeout_s * 1000)

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def describe_cluster(self) -> ClusterInfo:
        """The brokers that serve, and the ids of those that are fenced."""
        answer = self.ask("describe the cluster", self.client.describe_cluster)
        brokers = sorted(answer["brokers"], key=lambda broker: int(broker["broker_id"]))
        return ClusterInfo(
            cluster_id=str(answer["cluster_id"]),
            brokers=tuple(
                Broker(
                    int(each["broker_id"]), str(each["host"]), int(each["port"]), each.get("rack")
                )
                for each in brokers
                if not each.get("is_fenced")
            ),
            fenced=tuple(int(each["broker_id"]) for each in brokers if each.get("is_fenced")),
            api_version=tuple(self.client._manager.broker_version),
        )

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        """Properties of a broker, defaults included; the value of a secret is None.

        Args:
            names: the properties to read; None for all.
        """
        return self._config(ConfigResourceType.BROKER, str(broker_id), names)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """All properties of a topic, defaults included."""
        return self._config(ConfigResourceType.TOPIC, topic)

    def topic_names(self) -> frozenset[str]:
        """Names of all topics that this user may describe."""
        return frozenset(self.ask("list topics", self.client.list_topics))

    def create_topic(
        self,
        topic: str,
        replicas: Mapping[int, Sequence[int]],
        config: Mapping[str, str],
        validate_only: bool = False,
    ) -> dict[str, str | None]:
        """Request a topic, which is usable once the brokers' metadata include it.

        Args:
            topic: name of the topic.
            replicas: partition → broker ids, the preferred leader first.
            config: topic properties by Kafka's names.
            validate_only: have the cluster check the request and create nothing.

        Returns:
            The properties that the topic has or would have, defaults included; empty when
            this user may not read them.
        """
        what = f"create the topic {topic}"
        spec = {"assignments": {p: list(ids) for p, ids in replicas.items()}, "configs": config}
        answer = self.ask(
            what,
            lambda: self.client.create_topics(
                {topic: spec},
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
                raise_errors=False,
            ),
        )
        result = answer["topics"][0]
        self._require_no_error(what, result)
        return {key: each["value"] for key, each in (result.get("configs") or {}).items()}

    def delete_topic(self, topic: str) -> None:
        """Request a topic's deletion, which is complete once no broker's metadata include it."""
        what = f"delete the topic {topic}"
        answer = self.ask(
            what,
            lambda: self.client.delete_topics(
                [topic], timeout_ms=self._timeout_ms, raise_errors=False
            ),
        )
        self._require_no_error(what, answer["topics"][0])

    def empty_groups(self) -> frozenset[str]:
        """Ids of all consumer groups without members that this user may describe."""
        groups = self.ask("list consumer groups", self.client.list_groups)
        return frozenset(g["group_id"] for g in groups if g.get("group_state") in _MEMBERLESS)

    def delete_group(self, group_id: str) -> None:
        """Delete a consumer group, which must have no members."""
        what = f"delete the consumer group {group_id}"
        answer = self.ask(what, lambda: self.client.delete_groups([group_id]))
        if answer[group_id] != "OK":
            raise self._error(what, getattr(kafka_errors, answer[group_id])())

    def topics_held_by(self, broker_id: int) -> frozenset[str] | None:
        """All topics with a replica on this broker, whether this user may describe them or not.

        Returns:
            None where this user may not read the broker's log directories.

        Raises:
            AdminError: the broker does not answer.
        """
        manager = self.client._manager
        answer = self.ask(
            f"ask broker {broker_id} which topics it holds",
            lambda: manager.run(
                manager.send, DescribeLogDirsRequest(topics=None), broker_id, QUERY_TIMEOUT_MS
            ),
        )
        if not answer.results:
            return None
        return frozenset(str(topic.name) for each in answer.results for topic in each.topics)

    def forbidden_among(self, broker_id: int, topics: Iterable[str]) -> frozenset[str]:
        """The topics among these that this user may not describe.

        Raises:
            AdminError: the broker does not answer.
        """
        named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        if not named:  # an empty list requests all topics
            return frozenset()
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        manager = self.client._manager
        answer = self.ask(
            f"ask broker {broker_id} which topics it shows",
            lambda: manager.run(manager.send, request, broker_id, QUERY_TIMEOUT_MS),
        )
        refused = kafka_errors.TopicAuthorizationFailedError.errno
        return frozenset(str(each.name) for each in answer.topics if each.error_code == refused)

    def partitions_seen_by(
        self, broker_id: int, topics: Sequence[str]
    ) -> dict[str, dict[int, Partition] | None]:
        """Topic → its partitions as this broker knows them, None for an unknown topic.

        It never creates a topic, even with auto.create.topics.enable on the brokers.
        """
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        manager = self.client._manager
        what = f"ask broker {broker_id} about {_named(topics)}"
        answer = self.ask(
            what, lambda: manager.run(manager.send, request, broker_id, QUERY_TIMEOUT_MS)
        )
        return {found.name: self._partitions_in(what, found) for found in answer.topics}

    def _partitions_in(self, what: str, found: Any) -> dict[int, Partition] | None:
        error = kafka_errors.for_code(found.error_code)
        if error is kafka_errors.UnknownTopicOrPartitionError:
            return None
        if error not in (kafka_errors.NoError, kafka_errors.LeaderNotAvailableError):
            raise self._error(what, error())
        return {
            int(each.partition_index): Partition(
                int(each.leader_id), tuple(each.replica_nodes), tuple(each.isr_nodes)
            )
            for each in found.partitions
        }

    def elect_preferred_leaders(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Request that the preferred replicas of these (topic, partition) lead again."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)
        self.ask(
            f"elect the preferred leaders of {_named(sorted(wanted))}",
            lambda: self.client.elect_leaders(
                ElectionType.PREFERRED, wanted, timeout_ms=self._timeout_ms
            ),
        )

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """(Topic, partition) → the offset that its next record will get."""
        wanted = {TopicPartition(*each) for each in partitions}
        topics = sorted({each.topic for each in wanted})
        answer = self.ask(
            f"read the end offsets of {_named(topics)}",
            lambda: self.client._manager.run(self._ends_of, wanted),
        )
        return {(each.topic, each.partition): int(found.offset) for each, found in answer.items()}

    async def _ends_of(self, wanted: set[TopicPartition]) -> dict[TopicPartition, Any]:
        """End offsets, from all leaders at once; kafka-python's own method queries them in turn."""
        client = self.client
        found: dict[TopicPartition, Any] = {}
        led = await client._async_get_leader_for_partitions(wanted)
        asked = [
            client._manager.send(client._list_partition_offsets_request(own, _UNCOMMITTED), leader)
            for leader, own in (
                (leader, dict.fromkeys(own, OffsetSpec.LATEST)) for leader, own in led.items()
            )
        ]
        try:
            for answer in asked:
                found |= client._list_partition_offsets_process_response(await answer)
        except kafka_errors.NotLeaderForPartitionError:  # the library's method waits for leaders
            left = dict.fromkeys(wanted - set(found), OffsetSpec.LATEST)
            found |= await client._async_list_partition_offsets(left, timeout_ms=self._timeout_ms)
        return found

    def _config(
        self, kind: ConfigResourceType, name: str, keys: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        what, asked = kind.name.lower(), ConfigResource(kind, name, keys)
        answer = self.ask(
            f"read the configuration of {what} {name}",
            lambda: self.client.describe_configs([asked], config_filter="all"),
        )
        return {key: each["value"] for key, each in answer[what][name].items()}

    def ask(self, what: str, request: Callable[[], Answer]) -> Answer:
        """Make a request and return its answer.

        Args:
            what: a verb phrase for messages, such as `list topics`.
            request: calls a method of the client.
        """
        try:
            try:
                return self._retry_while_loading(request)
            except kafka_errors.KafkaError as error:
                if not _was_never_sent(error):
                    raise
                # A broker stopped or came back. The client does not refresh its metadata then, and
                # sends further requests to the broker that once was the controller.
                manager = self.client._manager
                manager.run(manager.cluster.refresh_metadata)
                self.client._controller_id = None
                return request()
        except kafka_errors.KafkaError as error:
            raise self._error(what, error) from error

    def _retry_while_loading(self, request: Callable[[], Answer]) -> Answer:
        """Repeat a request while a new coordinator still loads its groups."""
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return request()
            except kafka_errors.CoordinatorLoadInProgressError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_LOADING_PAUSE_S)

    def _require_no_error(self, what: str, result: Mapping[str, Any]) -> None:
        error = kafka_errors.for_code(result["error_code"])
        if error is not kafka_errors.NoError:
            raise self._error(what, error(), result.get("error_message"))

    @staticmethod
    def _error(what: str, error: Exception, details: str | None = None) -> AdminError:
        cause = type(error).__name__
        advice = ADVICE.get(cause, "check that the brokers run and can be reached, and run again")
        why = f"{cause}: {details.rstrip('.')}" if details else cause
        return AdminError(f"could not {what} ({why}); {advice}", cause)


def _was_never_sent(error: kafka_errors.KafkaError) -> bool:
    """Whether no broker can have acted on the request, so that it is safe to repeat."""
    if isinstance(error, kafka_errors.UnknownBrokerIdError | kafka_errors.NodeNotReadyError):
        return True
    # kafka-python raises this error for a failed connect, with the name of errno in its text.
    is_connection = isinstance(error, kafka_errors.KafkaConnectionError)
    return is_connection and any(name in str(error) for name in _NOT_REACHED)


_LOADING_PAUSE_S = 0.05
"""Pause before a coordinator that loads its groups is queried again [s]."""
_NOT_REACHED = ("ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH")


def query_brokers(
    ask: Callable[[int], Answer], brokers: Iterable[int]
) -> list[tuple[int, Answer | AdminError]]:
    """Query brokers in parallel; returns (broker, its answer or error) in the order given.

    Args:
        ask: makes the query of one broker; runs on several threads.
    """

    def asked(broker: int) -> tuple[int, Answer | AdminError]:
        try:
            return broker, ask(broker)
        except AdminError as error:
            return broker, error

    with ThreadPoolExecutor(QUERIES_IN_PARALLEL, "redline-admin") as threads:
        return list(threads.map(asked, brokers))


def query_all_brokers(ask: Callable[[int], Answer], brokers: Iterable[int]) -> list[Answer]:
    """The answers of brokers that are queried in parallel, in the order given.

    Raises:
        AdminError: a broker did not answer; the first such error.
    """
    answers = []
    for _, answer in query_brokers(ask, brokers):
        if isinstance(answer, AdminError):
            raise answer
        answers.append(answer)
    return answers


_UNCOMMITTED = 0
_MEMBERLESS = ("Empty", "Dead")


def _named(topics: Sequence[str]) -> str:
    first = f"the topic {topics[0]}"
    return first if len(topics) == 1 else f"{first} and {len(topics) - 1} more"


PERMISSION = "the user of cluster security needs Kafka ACLs for it; grant them"
ADVICE = {
    "ClusterAuthorizationFailedError": PERMISSION,
    "TopicAuthorizationFailedError": PERMISSION,
    "InvalidConfigurationError": "correct the properties in workload topic.config",
    "PolicyViolationError": "the cluster's create.topic.policy forbids it; change workload topic",
    "TopicAlreadyExistsError": "the name is taken; remove that topic, or start another run",
    "TopicDeletionDisabledError": "set delete.topic.enable=true on the brokers",
}
"""Kafka's error → what a user can do about it."""
