"""A typed admin client of a cluster, on top of kafka-python's protocol classes.

Requests go through kafka-python's connection manager. The admin methods of kafka-python are not
used, because the caller cannot choose the broker. The methods of kafka-python also fail on answers
that Kafka's protocol allows, for example on a number that is not in kafka-python's enumerations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResourceType, OffsetSpec
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    ElectionType,
    ElectLeadersRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from metrics.common.errors import RedlineError
from metrics.common.grouping import grouped
from metrics.units import format_some

Answer = TypeVar("Answer")

NO_LEADER = -1

NOT_SUPPORTED = ("IncompatibleBrokerVersion", "UnsupportedVersionError")
"""Causes of an `AdminError` if the broker does not support the request."""

UNREADABLE = "UnreadableAnswer"
"""Cause of an `AdminError` if the answer lacks a field that Kafka's protocol requires."""

QUERY_TIMEOUT_MS = 5_000
"""Deadline for the answer to a query for metadata [ms]."""

GUARD_TIMEOUT_MS = 2_000
"""Deadline for the answer to a small query of a guard [ms]."""

QUERIES_IN_PARALLEL = 16
"""Number of brokers that are queried at the same time. More parallel queries would not be faster,
because Python decodes the answers one after another."""


class AdminError(RedlineError):
    """The cluster refused a request of the admin client, or did not answer it.

    `cause` is the name of Kafka's error, such as TopicAlreadyExistsError.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Broker:
    """A broker with the address that it advertises to clients."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class ClusterInfo:
    """The brokers of a cluster.

    Attributes:
        cluster_id: the id that Kafka gave the cluster.
        brokers: the brokers that serve clients, in the order of their ids.
        fenced: ids of brokers that are registered with the controller and do not serve clients.
        api_version: the Kafka release that matches the brokers' protocol, such as (4, 1), without
            the patch release.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    fenced: tuple[int, ...]
    api_version: tuple[int, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that serve clients, ascending."""
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
class Property:
    """A property of a broker or a topic.

    Attributes:
        value: value of the property; None for a secret, or if the broker does not report the value.
        is_default: whether the value is Kafka's default; None if the broker reports no source of
            the value, or an unknown source.
        is_sensitive: whether the property is a secret.
    """

    value: str | None
    is_default: bool | None = None
    is_sensitive: bool = False


@dataclass(frozen=True)
class TopicSize:
    """The numbers of partitions and replicas of a topic whose replicas the cluster places."""

    partitions: int
    replication_factor: int


@dataclass(frozen=True)
class Partition:
    """The state of a partition according to one broker; `leader` is `NO_LEADER` if there is no
    leader.
    """

    leader: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    @property
    def preferred(self) -> int:
        """Broker id of the preferred leader."""
        return self.replicas[0]


@dataclass(frozen=True)
class DescribedTopic:
    """The state of a topic according to one broker.

    Attributes:
        name: name of the topic.
        partitions: number → partition; empty for a topic that does not exist or was deleted.
        is_internal: whether the topic is an internal topic of Kafka.
        error_code: Kafka's error code if the topic has no partitions; 0 without an error.
    """

    name: str
    partitions: dict[int, Partition]
    is_internal: bool = False
    error_code: int = 0


class KafkaAdmin:
    """The admin client of a cluster; `jobs.cluster.connect.connect` creates it.

    A context manager. Every method may raise `AdminError`. Several threads may use one client.

    Attributes:
        on_wait: function that is called with a message before each wait; the cluster's quota on
            changes requires these waits.
    """

    def __init__(self, client: KafkaAdminClient, timeout_s: float) -> None:
        """Take over `client`, which the method `close` closes. Each request has a deadline of
        `timeout_s` [s].
        """
        self.client = client
        self.on_wait: Callable[[str], None] = _log.warning
        self._timeout_ms = int(timeout_s * 1000)

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def query(
        self,
        what: str,
        request: Any,
        broker_id: int | None = None,
        timeout_ms: int | None = QUERY_TIMEOUT_MS,
        read: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """Send a request, and return the result of `read` for the answer.

        Args:
            what: a verb phrase for messages.
            broker_id: the broker that receives the request; None for any broker.
            timeout_ms: deadline for the answer [ms]; None for the client's default.
            read: function that returns the needed part of the answer, or raises the answer's error.
        """
        return self.ask(what, lambda: read(self._send(request, broker_id, timeout_ms)))

    def describe_cluster(self) -> ClusterInfo:
        """The brokers that serve clients, and the ids of the fenced brokers.

        Brokers older than Kafka 2.8 do not support this request; the list of brokers then comes
        from the metadata.
        """
        answer = self.ask("describe the cluster", self._described_cluster)
        brokers = sorted(answer.brokers, key=_id_of)
        fenced = {_id_of(each) for each in brokers if getattr(each, "is_fenced", False)}
        return ClusterInfo(
            cluster_id=str(answer.cluster_id or ""),
            brokers=tuple(
                Broker(_id_of(each), str(each.host), int(each.port), each.rack or None)
                for each in brokers
                if _id_of(each) not in fenced
            ),
            fenced=tuple(sorted(fenced)),
            api_version=tuple(self.client._manager.broker_version),
        )

    def _described_cluster(self) -> Any:
        try:
            return checked(self._send(DescribeClusterRequest(include_fenced_brokers=True)))
        except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError):
            return self._send(_metadata_request([]))

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        """Properties of a broker, defaults included; the value of a secret is None.

        Args:
            names: the properties to read; None for all.
        """
        found = self.broker_properties(broker_id, names)
        return {name: each.value for name, each in found.items()}

    def broker_properties(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, Property]:
        """Properties of a broker, each with its value and the source of the value.

        Args:
            names: the properties to read; None for all.
        """
        return self._properties(ConfigResourceType.BROKER, str(broker_id), names, broker_id)

    def topic_config(self, topic: str, names: Sequence[str] | None = None) -> dict[str, str | None]:
        """Properties of a topic, defaults included.

        Args:
            names: the properties to read; None for all.
        """
        found = self._properties(ConfigResourceType.TOPIC, topic, names)
        return {name: each.value for name, each in found.items()}

    def topic_names(self) -> frozenset[str]:
        """Names of all topics that this user may describe."""
        return frozenset(each.name for each in self.describe_topics("list topics"))

    def describe_topics(
        self,
        what: str = "look at all topics",
        names: Sequence[str] | None = None,
        broker_id: int | None = None,
        timeout_ms: int = GUARD_TIMEOUT_MS,
    ) -> list[DescribedTopic]:
        """The metadata of topics; the request creates no topic (see auto.create.topics.enable).

        The function does not use kafka-python's dictionaries. On a cluster with tens of thousands
        of partitions, decoding into dictionaries would take three times as long.

        Args:
            what: a verb phrase for messages.
            names: the topics; None for all that this user may describe.
            broker_id: the broker that receives the request; None for any broker.
            timeout_ms: deadline for the answer of `broker_id` [ms].
        """
        if names is not None and not names:  # an empty list requests all topics of old brokers
            return []
        limit_ms = None if broker_id is None else timeout_ms
        answer = self.query(what, _metadata_request(names), broker_id, limit_ms)
        return [
            DescribedTopic(
                str(each.name),
                {
                    int(part.partition_index): Partition(
                        int(part.leader_id),
                        tuple(part.replica_nodes or ()),
                        tuple(part.isr_nodes or ()),
                        tuple(getattr(part, "offline_replicas", None) or ()),
                    )
                    for part in each.partitions or ()
                },
                bool(getattr(each, "is_internal", False)),
                int(each.error_code),
            )
            for each in answer.topics
            if each.name
        ]

    def adding_replicas(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> dict[tuple[str, int], frozenset[int]]:
        """(topic, partition) → brokers to which a reassignment is copying the partition.

        Args:
            partitions: topic → the partitions to read; None for all partitions under reassignment.
        """
        asked = None if partitions is None else dict(partitions)
        found: Any = self.ask(
            "list reassignments of partitions",
            lambda: self.client.list_partition_reassignments(asked),
        )
        return {
            (each.topic, each.partition): frozenset(moved["adding_replicas"])
            for each, moved in found.items()
        }

    def features(self) -> dict[str, str]:
        """Feature (for example `metadata.version`) → its finalized level; empty if no feature is
        finalized.
        """
        request = ApiVersionsRequest(
            client_software_name="kafka-redline", client_software_version="1", min_version=3
        )
        answer = self.query("read the features", request, timeout_ms=None, read=checked)
        found = {str(each.name): each.max_version_level for each in answer.finalized_features or ()}
        return {name: str(level) for name, level in sorted(found.items())}

    def create_topic(
        self,
        topic: str,
        placement: Mapping[int, Sequence[int]] | TopicSize,
        config: Mapping[str, str],
        validate_only: bool = False,
    ) -> dict[str, str | None]:
        """Request the creation of a topic. Clients can use the topic once the metadata of all
        brokers include the topic.

        Args:
            topic: name of the topic.
            placement: partition → broker ids, the preferred leader first; or a `TopicSize` if the
                cluster chooses the brokers.
            config: topic properties by Kafka's names.
            validate_only: the cluster only checks the request, and creates nothing.

        Returns:
            The properties of the new topic, including defaults; empty if this user may not read
            them.
        """
        kind = CreateTopicsRequest.CreatableTopic
        size = placement if isinstance(placement, TopicSize) else TopicSize(-1, -1)
        assigned = {} if isinstance(placement, TopicSize) else placement
        wanted = kind(
            name=topic,
            num_partitions=size.partitions,
            replication_factor=size.replication_factor,
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids))
                for number, ids in assigned.items()
            ],
            configs=[kind.CreatableTopicConfig(name=key, value=config[key]) for key in config],
        )
        request = CreateTopicsRequest(
            topics=[wanted], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        result = self._change(f"create the topic {topic}", request, "topics")
        return {str(each.name): each.value for each in getattr(result, "configs", None) or ()}

    def create_partitions(self, topic: str, count: int) -> None:
        """Request that a topic has `count` partitions; the cluster places the new partitions."""
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=self._timeout_ms)
        self._change(f"add partitions to the topic {topic}", request, "results")

    def delete_topic(self, topic: str) -> None:
        """Request the deletion of a topic. The deletion ends once the topic is in no broker's
        metadata.
        """
        wanted = DeleteTopicsRequest.DeleteTopicState(name=topic)
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=self._timeout_ms)
        self._change(f"delete the topic {topic}", request, "responses")

    def groups(self) -> dict[str, str]:
        """Id of each consumer group that this user may describe → its state.

        Brokers older than Kafka 2.6 do not report states; each state is then empty.
        """

        def read() -> list[Any]:
            found: list[Any] = []
            for broker in self.client._manager.cluster.brokers():
                found += checked(self._send(ListGroupsRequest(), broker.node_id)).groups or ()
            return found

        groups = self.ask("list consumer groups", read)
        return {str(each.group_id): str(getattr(each, "group_state", "")) for each in groups}

    def empty_groups(self) -> frozenset[str]:
        """Ids of the consumer groups that have no members. The result lacks groups that this user
        may not describe.
        """
        return frozenset(group for group, state in self.groups().items() if state in _MEMBERLESS)

    def committed_offsets(self, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
        """Consumer group → (topic, partition) → the offset that the group has committed.

        The result lacks topics that this user may not describe.
        """

        def read() -> dict[str, dict[tuple[str, int], int]]:
            found = self.client.list_group_offsets(dict.fromkeys(groups))
            return {
                group: {
                    (str(at.topic), int(at.partition)): int(kept.offset)
                    for at, kept in offsets.items()
                    if kept.offset >= 0
                }
                for group, offsets in found.items()
            }

        return self.ask(f"read the offsets of the consumer group {format_some(groups)}", read)

    def delete_group(self, group_id: str) -> None:
        """Delete a consumer group; the group must have no members."""

        def delete() -> None:
            client = self.client
            coordinator = client._manager.run(client._find_coordinator_id, group_id)
            answer = self._send(DeleteGroupsRequest(groups_names=[group_id]), coordinator)
            checked(*answer.results)

        self.ask(f"delete the consumer group {group_id}", delete)

    def log_dirs_of(
        self, broker_id: int, held: Mapping[str, Sequence[int]]
    ) -> list[dict[str, Any]]:
        """The log directories of a broker, with the field names of Kafka's protocol.

        Args:
            held: topic → partitions of the topic; the answer lists only replicas of these
                partitions.
        """
        kind = DescribeLogDirsRequest.DescribableLogDirTopic
        request = DescribeLogDirsRequest(
            topics=[kind(topic=topic, partitions=list(each)) for topic, each in held.items()]
        )
        answer = self.query(f"look at the disks of broker {broker_id}", request, broker_id, None)
        return [each.to_dict() for each in answer.results or ()]

    def topics_held_by(self, broker_id: int) -> frozenset[str] | None:
        """All topics with a replica on this broker, including topics that this user may not
        describe.

        Returns:
            None if this user may not read the broker's log directories.

        Raises:
            AdminError: the broker does not answer.
        """
        what = f"read the list of topics on broker {broker_id}"
        answer = self.query(what, DescribeLogDirsRequest(topics=None), broker_id)
        if not answer.results:
            return None
        return frozenset(str(topic.name) for each in answer.results for topic in each.topics or ())

    def forbidden_among(self, broker_id: int, topics: Iterable[str]) -> frozenset[str]:
        """The subset of `topics` that this user may not describe.

        Raises:
            AdminError: the broker does not answer.
        """
        what = f"read this user's permissions for topics on broker {broker_id}"
        found = self.describe_topics(what, list(topics), broker_id, QUERY_TIMEOUT_MS)
        refused = kafka_errors.TopicAuthorizationFailedError.errno
        return frozenset(each.name for each in found if each.error_code == refused)

    def partitions_seen_by(
        self, broker_id: int, topics: Sequence[str]
    ) -> dict[str, dict[int, Partition] | None]:
        """Topic → its partitions according to this broker; None if the broker does not know the
        topic.
        """
        what = f"describe {_named(topics)} by broker {broker_id}"
        found: dict[str, dict[int, Partition] | None] = {}
        for each in self.describe_topics(what, topics, broker_id, QUERY_TIMEOUT_MS):
            error = kafka_errors.for_code(each.error_code)
            is_unknown = error is kafka_errors.UnknownTopicOrPartitionError
            if not is_unknown and error not in _SEEN:
                raise self._error(what, error())
            found[each.name] = None if is_unknown else each.partitions
        return found

    def elect_preferred_leaders(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Request the election of the preferred leader of each given (topic, partition)."""
        wanted = grouped(partitions)
        kind = ElectLeadersRequest.TopicPartitions
        needless = kafka_errors.ElectionNotNeededError.errno
        request = ElectLeadersRequest(
            election_type=ElectionType.PREFERRED,
            topic_partitions=[kind(topic=topic, partitions=wanted[topic]) for topic in wanted],
            timeout_ms=self._timeout_ms,
        )

        def elect() -> None:
            answer = checked(self._send_to_controller(request, lambda answer: [answer]))
            for topic in answer.replica_election_results or ():
                for each in topic.partition_result:
                    if each.error_code != needless:
                        checked(each)

        self.ask(f"elect the preferred leaders of {_named(sorted(wanted))}", elect)

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """(Topic, partition) → the offset of the partition's next record."""
        return self._offsets("end", partitions, OffsetSpec.LATEST)

    def begin_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """(Topic, partition) → the offset of the partition's oldest record."""
        return self._offsets("begin", partitions, OffsetSpec.EARLIEST)

    def _offsets(
        self, which: str, partitions: Iterable[tuple[str, int]], at: int
    ) -> dict[tuple[str, int], int]:
        wanted = frozenset(partitions)
        topics = sorted({topic for topic, _ in wanted})
        return self.ask(
            f"read the {which} offsets of {_named(topics)}", lambda: self._read_offsets(wanted, at)
        )

    def replica_ends(
        self, held: Mapping[int, Iterable[tuple[str, int]]]
    ) -> dict[int, dict[tuple[str, int], int]]:
        """Broker → (topic, partition) → end offset of the replica on this broker.

        All brokers are queried in parallel. A request with the replica id of a debugger makes a
        follower answer for its own log, as in Kafka's ReplicaVerificationTool. The result lacks a
        replica if the broker reports an error for it or does not report it.

        Args:
            held: broker → the partitions that have a replica on the broker.
        """

        async def read() -> dict[int, dict[tuple[str, int], int]]:
            manager = self.client._manager
            sent = {
                broker: manager.send(
                    offsets_request(dict.fromkeys(partitions, OffsetSpec.LATEST), _DEBUGGER),
                    broker,
                    QUERY_TIMEOUT_MS,
                )
                for broker, partitions in held.items()
            }
            found: dict[int, dict[tuple[str, int], int]] = {}
            for broker, answer in sent.items():
                found[broker] = {
                    (topic.name, int(each.partition_index)): int(each.offset)
                    for topic in (await answer).topics
                    for each in topic.partitions
                    if not each.error_code
                }
            return found

        return self.ask("read the end offsets of replicas", lambda: self.client._manager.run(read))

    def _read_offsets(
        self, wanted: frozenset[tuple[str, int]], at: int
    ) -> dict[tuple[str, int], int]:
        """The partitions' offsets according to the leaders; the request is repeated if a leader has
        moved.
        """
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        found: dict[tuple[str, int], int] = {}
        while True:
            found |= self.client._manager.run(self._known_offsets, wanted - set(found), at)
            if wanted <= set(found):
                return found
            if time.monotonic() > deadline_s:
                raise kafka_errors.NotLeaderForPartitionError
            time.sleep(_LOADING_PAUSE_S)

    async def _known_offsets(
        self, wanted: Set[tuple[str, int]], at: int
    ) -> dict[tuple[str, int], int]:
        """Offsets of the partitions whose leaders have not moved; all leaders are asked in
        parallel.
        """
        manager = self.client._manager
        described = await manager.send(_metadata_request(sorted({topic for topic, _ in wanted})))
        leaders = {
            (topic.name, int(each.partition_index)): int(each.leader_id)
            for topic in described.topics
            for each in topic.partitions or ()
        }
        if not wanted <= leaders.keys():
            raise kafka_errors.UnknownTopicOrPartitionError
        sent = [
            manager.send(offsets_request(dict.fromkeys(partitions, at)), leader)
            for leader, partitions in grouped(
                (leaders[name], name) for name in sorted(wanted)
            ).items()
        ]
        found = {}
        for answer in [await each for each in sent]:
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code == kafka_errors.NotLeaderForPartitionError.errno:
                        continue
                    found[topic.name, int(each.partition_index)] = int(checked(each).offset)
        return found

    def _properties(
        self,
        kind: ConfigResourceType,
        name: str,
        keys: Sequence[str] | None = None,
        broker_id: int | None = None,
    ) -> dict[str, Property]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind.value,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )

        def read() -> Any:
            answer = self._send(DescribeConfigsRequest(resources=[resource]), broker_id)
            return answer, checked(*answer.results)

        answer, result = self.ask(f"read the configuration of {kind.name.lower()} {name}", read)
        has_source = answer.API_VERSION >= 1
        return {
            str(each.name): Property(
                each.value,
                _is_default(each.config_source) if has_source else bool(each.is_default),
                bool(each.is_sensitive),
            )
            for each in result.configs or ()
        }

    def _send(
        self, request: Any, broker_id: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request, and return the broker's answer.

        Args:
            broker_id: the broker that receives the request; None for any broker. If `broker_id` is
                None and a broker does not answer within `QUERY_TIMEOUT_MS`, another broker receives
                the request.
            timeout_ms: deadline for the answer [ms]; None for the client's default.
        """
        manager = self.client._manager
        if broker_id is None and timeout_ms is None:
            with suppress(kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError):
                return manager.run(manager.send, request, None, QUERY_TIMEOUT_MS)
        return manager.run(manager.send, request, broker_id, timeout_ms)

    def _send_to_controller(self, request: Any, results_of: Callable[[Any], Sequence[Any]]) -> Any:
        """Send a request to the controller, and return the answer. After the error NotController,
        the function looks up the controller once more.

        Args:
            results_of: function that returns those parts of an answer that have an error code.
        """
        client, moved = self.client, kafka_errors.NotControllerError
        for _ in range(2):
            answer = client._manager.run(client._send_request_to_controller, request)
            if moved.errno not in map(_code_of, results_of(answer)):
                return answer
            client._controller_id = None
        raise moved()

    def _change(self, what: str, request: Any, key: str) -> Any:
        """Send a change of one topic to the controller, and return the result for this topic.

        Args:
            key: name of the answer's field with the results.
        """

        def change() -> tuple[Any, float]:
            answer = self._send_to_controller(request, attrgetter(key))
            (result,) = getattr(answer, key)
            return result, answer.throttle_time_ms / 1_000.0

        deadline_s = time.monotonic() + MUTATIONS_WAIT_S
        while True:
            result, wait_s = self.ask(what, change)
            error = kafka_errors.for_code(result.error_code)
            is_throttled = error is kafka_errors.ThrottlingQuotaExceededError
            wait_s = max(wait_s, _LOADING_PAUSE_S)
            if not is_throttled or time.monotonic() + wait_s > deadline_s:
                break
            self.on_wait(
                f"waiting {wait_s:.1f} s to {what}, because the cluster has a quota on changes of "
                "topics (controller_mutation_rate)"
            )
            time.sleep(wait_s)
        if error is not kafka_errors.NoError:
            raise self._error(what, error(), getattr(result, "error_message", None))
        return result

    def ask(self, what: str, request: Callable[[], Answer]) -> Answer:
        """Call `request`, and return the answer.

        Args:
            what: a verb phrase for messages, such as `list topics`.
            request: function that calls a method of the client. After some errors the function is
                called again.
        """
        try:
            try:
                return self._retry_while_loading(request)
            except kafka_errors.KafkaError as error:
                if not _was_never_sent(error):
                    raise
                # A broker stopped or started. kafka-python does not refresh its metadata then, and
                # sends further requests to the former controller.
                manager = self.client._manager
                manager.run(manager.cluster.refresh_metadata)
                self.client._controller_id = None
                return request()
        except kafka_errors.KafkaError as error:
            raise self._error(what, error) from error
        except _MISREAD as error:
            raise AdminError(
                f"could not {what}: the broker's answer cannot be read "
                f"({type(error).__name__}: {error}); "
                "expected an answer of Kafka's protocol; check the brokers' release of Kafka",
                UNREADABLE,
            ) from error

    def _retry_while_loading(self, request: Callable[[], Answer]) -> Answer:
        """Call `request` again while a group coordinator moves or loads its groups."""
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return request()
            except (
                kafka_errors.CoordinatorLoadInProgressError,
                kafka_errors.NotCoordinatorError,
            ) as error:
                if time.monotonic() > deadline_s:
                    raise
                if isinstance(error, kafka_errors.NotCoordinatorError):
                    self.client._manager.cluster._coordinators.clear()  # a cache of kafka-python
                time.sleep(_LOADING_PAUSE_S)

    @staticmethod
    def _error(what: str, error: Exception, details: str | None = None) -> AdminError:
        cause = type(error).__name__
        if cause == _UNKNOWN_CODE:
            details = f"error code {getattr(error, 'errno', '?')}" + (
                f", {details}" if details else ""
            )
        advice = ADVICE.get(cause, "check that the brokers run and can be reached, then run again")
        why = f"{cause}: {details.rstrip('.')}" if details else cause
        return AdminError(f"could not {what} ({why}); {advice}", cause)


def _was_never_sent(error: kafka_errors.KafkaError) -> bool:
    """Whether the request reached no broker, so that it is safe to repeat."""
    if isinstance(error, kafka_errors.UnknownBrokerIdError | kafka_errors.NodeNotReadyError):
        return True
    # kafka-python raises this error for a failed connect; the text has the name of the errno.
    is_connection = isinstance(error, kafka_errors.KafkaConnectionError)
    return is_connection and any(name in str(error) for name in _NOT_REACHED)


def _code_of(answer: Any) -> int:
    """The error code of an answer or of a part of an answer; 0 if there is no such field."""
    return int(getattr(answer, "error_code", 0) or 0)


def checked(answer: Any) -> Any:
    """Check the error code of an answer or of a part of an answer, and return `answer`.

    Raises:
        KafkaError: the error for the answer's error code.
    """
    error = kafka_errors.for_code(_code_of(answer))
    if error is not kafka_errors.NoError:
        raise error(getattr(answer, "error_message", None) or "")
    return answer


def _id_of(broker: Any) -> int:
    """A broker's id in an answer to DescribeCluster or Metadata."""
    return int(broker.node_id if hasattr(broker, "node_id") else broker.broker_id)


def _is_default(source: int) -> bool | None:
    """Whether a property's source (ConfigSource) is Kafka's default; None for an unknown source."""
    return source == _DEFAULT_SOURCE if source in _SOURCES else None


def _metadata_request(names: Sequence[str] | None) -> Any:
    """A metadata request that creates no topic; if `names` is None, it covers all topics."""
    kind = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [kind(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


_SEEN = (kafka_errors.NoError, kafka_errors.LeaderNotAvailableError)
_MISREAD = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Python's errors if an answer lacks an expected field."""
_UNKNOWN_CODE = "UnrecognizedBrokerError"
"""kafka-python's name for all error codes that are unknown to kafka-python."""
_DEFAULT_SOURCE = 5
_SOURCES = range(1, 9)
"""Known values of ConfigSource in Kafka's protocol, without UNKNOWN (0)."""
_OFFSETS_VERSION = 1
"""The first version of ListOffsets whose answer has one offset instead of a list."""

MUTATIONS_WAIT_S = 300.0
"""Longest wait for the cluster's quota on changes of topics [s]."""
_LOADING_PAUSE_S = 0.05
"""Pause before a request is repeated while a coordinator loads its groups [s]."""
_NOT_REACHED = ("ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH")


def query_brokers(
    ask: Callable[[int], Answer], brokers: Iterable[int]
) -> list[tuple[int, Answer | AdminError]]:
    """Query brokers in parallel; return (broker, answer or error) in the order of `brokers`.

    Args:
        ask: function that queries one broker; it is called on several threads.
    """

    def asked(broker: int) -> tuple[int, Answer | AdminError]:
        try:
            return broker, ask(broker)
        except AdminError as error:
            return broker, error

    with ThreadPoolExecutor(QUERIES_IN_PARALLEL, "redline-admin") as threads:
        return list(threads.map(asked, brokers))


def query_all_brokers(ask: Callable[[int], Answer], brokers: Iterable[int]) -> list[Answer]:
    """Query brokers in parallel; return the answers in the order of `brokers`.

    Raises:
        AdminError: a broker did not answer; if several brokers did not answer, the error of the
            first of these brokers.
    """
    with ThreadPoolExecutor(QUERIES_IN_PARALLEL, "redline-admin") as threads:
        return list(threads.map(ask, brokers))


def fetch_request(
    places: Mapping[tuple[str, int], tuple[int, int]], bytes_max: int = 1
) -> FetchRequest:
    """A fetch request that the broker answers without a wait, even if there are no data.

    Args:
        places: (topic, partition) → the first offset to read, and the largest size of the data [B].
        bytes_max: largest size of the answer [B]; the first batch may be larger.
    """
    kind = FetchRequest.FetchTopic
    wanted = grouped(
        (topic, kind.FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=size))
        for (topic, number), (at, size) in places.items()
    )
    topics = [kind(topic=topic, partitions=own) for topic, own in wanted.items()]
    return FetchRequest(max_bytes=bytes_max, topics=topics, max_version=_FETCH_BY_NAME)


def offsets_request(times_ms: Mapping[tuple[str, int], int], replica_id: int = -1) -> Any:
    """A ListOffsets request: for each partition, the first offset at or after a time.

    Args:
        times_ms: (topic, partition) → a time [ms since the epoch], or one of `OffsetSpec`.
        replica_id: the id of the requester; -1 for a client.
    """
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted = grouped(
        (topic, kind.ListOffsetsPartition(partition_index=number, timestamp=time_ms))
        for (topic, number), time_ms in times_ms.items()
    )
    topics = [kind(name=topic, partitions=own) for topic, own in wanted.items()]
    return ListOffsetsRequest(replica_id=replica_id, topics=topics, min_version=_OFFSETS_VERSION)


_DEBUGGER = -2
_FETCH_BY_NAME = 12
"""The newest version of the fetch request with topic names; later versions have topic ids."""
_MEMBERLESS = ("Empty", "Dead")


def _named(topics: Sequence[str]) -> str:
    return f"the topic {format_some(topics)}"


PERMISSION = "the user in cluster.security lacks the Kafka ACL for this request; grant the ACL"
ADVICE = {
    "ClusterAuthorizationFailedError": PERMISSION,
    "TopicAuthorizationFailedError": PERMISSION,
    "InvalidConfigurationError": "correct the properties in workload topic.config",
    "PolicyViolationError": (
        "the cluster's create.topic.policy forbids it; change the settings in workload.topic"
    ),
    "TopicAlreadyExistsError": "the topic exists already; delete it, or start another run",
    "TopicDeletionDisabledError": "set delete.topic.enable=true on the brokers",
}
"""Name of Kafka's error → advice to the user."""
