"""A fake cluster whose brokers answer admin requests over TCP, like brokers of various makes.

It uses kafka-python's message classes. Tests with it prove how the product reads answers and
handles missing ones; they do not prove how real brokers answer.
"""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse

UNKNOWN_TOPIC = 3
NOT_CONTROLLER = 41
ALREADY_EXISTS = 36
INVALID_ASSIGNMENT = 39

PAIRS: dict[int, tuple[Any, Any]] = {
    request.API_KEY: (request, response)
    for request, response in (
        (ApiVersionsRequest, ApiVersionsResponse),
        (MetadataRequest, MetadataResponse),
        (FindCoordinatorRequest, FindCoordinatorResponse),
        (ListOffsetsRequest, ListOffsetsResponse),
        (ListGroupsRequest, ListGroupsResponse),
        (DeleteGroupsRequest, DeleteGroupsResponse),
        (DescribeClusterRequest, DescribeClusterResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
        (DescribeLogDirsRequest, DescribeLogDirsResponse),
        (CreateTopicsRequest, CreateTopicsResponse),
        (CreatePartitionsRequest, CreatePartitionsResponse),
        (DeleteTopicsRequest, DeleteTopicsResponse),
        (DeleteRecordsRequest, DeleteRecordsResponse),
        (ElectLeadersRequest, ElectLeadersResponse),
        (ProduceRequest, ProduceResponse),
    )
}

UNANSWERED = (FetchRequest, HeartbeatRequest)
"""Requests by which clients recognize the release of brokers; the fake closes the connection."""

Replicas = list[tuple[int, ...]]
"""Replicas of partition 0, 1, 2, …, the leader first."""


@dataclass(frozen=True)
class Habits:
    """The answers of a make of brokers.

    Attributes:
        broker_ids: ids of the brokers; the first is the controller.
        racks: racks of the brokers, in the order of their ids; None for an unknown rack.
        versions: request → its newest version; None if brokers do not support the request.
        config_source: source of the value of a property.
        log_dirs: log directories of each broker.
        place: (number of new partitions, number of existing ones) → replicas of the new
            partitions; None to follow assignments.
        refuses_assignments: error code of a creation with assignments; 0 for none.
        refuses_partitions: error code of added partitions; 0 for none.
        group_code, config_code, election_code, deletion_code, offset_code, describe_code:
            error codes of the answers.
        denials: number of creations that are first answered with "not the controller".
        empty_answers: responses without a result.
        metadata_id: the cluster's id in metadata, which old brokers do not state.
    """

    broker_ids: tuple[int, ...] = (0, 1001)
    racks: tuple[str | None, ...] = (None, None)
    versions: Mapping[Any, int | None] = field(default_factory=dict)
    config_source: int = 4
    log_dirs: tuple[str, ...] = ("/data",)
    place: Callable[[int, int], Replicas] | None = None
    refuses_assignments: int = 0
    refuses_partitions: int = 0
    group_code: int = 0
    config_code: int = 0
    election_code: int = 0
    deletion_code: int = 0
    offset_code: int = 0
    describe_code: int = 0
    denials: int = 0
    empty_answers: frozenset[Any] = frozenset()
    metadata_id: str | None = None


class FakeCluster:
    """Brokers with one address each and a common state; a context manager.

    Attributes:
        topics: name → replicas of its partitions.
        groups: id → state of consumer groups; the first broker coordinates them.
        requests: requests that changed the state, in order.
        connected: brokers of the connections that were accepted, in order.
        vanishing: topics that are deleted when their metadata are read.
        troubles: errors of the fake; the first is raised at the end.
    """

    def __init__(self, habits: Habits = Habits()) -> None:
        self.habits = habits
        self.topics: dict[str, Replicas] = {}
        self.groups: dict[str, str] = {}
        self.requests: list[str] = []
        self.connected: list[int] = []
        self.troubles: list[Exception] = []
        self.vanishing: set[str] = set()
        self._denied = 0
        self._lock = threading.Lock()
        self._servers = {each: self._server(each) for each in habits.broker_ids}

    def _server(self, broker: int) -> socketserver.ThreadingTCPServer:
        cluster = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                cluster.connected.append(broker)
                while size := self.rfile.read(4):
                    frame = self.rfile.read(int.from_bytes(size, "big"))
                    try:
                        answer = cluster.answer(broker, frame)
                    except Exception as error:
                        cluster.troubles.append(error)
                        raise
                    if answer is None:
                        return
                    self.wfile.write(answer)
                    self.wfile.flush()

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that close their connection."""

        return Server(("127.0.0.1", 0), Handler)

    def __enter__(self) -> FakeCluster:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
        if self.troubles:
            raise AssertionError("the fake cannot answer") from self.troubles[0]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{self._port(each)}" for each in self.habits.broker_ids]

    def _port(self, broker: int) -> int:
        return int(self._servers[broker].server_address[1])

    def answer(self, broker: int, frame: bytes) -> bytes | None:
        """The answer of a broker to a request; None to close the connection."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key not in PAIRS:
            return None
        kind, answered = PAIRS[key]
        request = kind.decode(frame, version=version, header=True)
        with self._lock:
            method = getattr(self, _handler(kind.__name__))
            answer = method(broker, request, answered, version)
        answer.with_header(correlation_id=request.header.correlation_id)
        return bytes(answer.encode(framed=True, header=True))

    # --- answers ------------------------------------------------------------

    def _api_versions(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        known = (*(each for each, _ in PAIRS.values()), *UNANSWERED)
        newest = {each: each.max_version for each in known} | dict(self.habits.versions)
        keys = [
            kind.ApiVersion(api_key=each.API_KEY, min_version=0, max_version=most)
            for each, most in newest.items()
            if most is not None
        ]
        return kind(error_code=0, api_keys=keys, throttle_time_ms=0, version=version)

    def _metadata(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        names = (
            list(self.topics) if request.topics is None else [each.name for each in request.topics]
        )
        brokers = [
            kind.MetadataResponseBroker(
                node_id=each, host="127.0.0.1", port=self._port(each), rack=rack
            )
            for each, rack in zip(self.habits.broker_ids, self.habits.racks, strict=True)
        ]
        return kind(
            throttle_time_ms=0,
            brokers=brokers,
            cluster_id=self.habits.metadata_id,
            controller_id=self.habits.broker_ids[0],
            topics=[self._topic(kind.MetadataResponseTopic, name) for name in names],
            version=version,
        )

    def _topic(self, kind: Any, name: str) -> Any:
        replicas = self.topics.get(name)
        if name in self.vanishing:  # the next request does not find it
            self.topics.pop(name, None)
        return kind(
            error_code=UNKNOWN_TOPIC if replicas is None else 0,
            name=name,
            is_internal=False,
            authorized_operations={3, 20},
            partitions=[
                kind.MetadataResponsePartition(
                    error_code=0,
                    partition_index=number,
                    leader_id=each[0],
                    replica_nodes=sorted(each) if self.habits.place else list(each),
                    isr_nodes=list(each),
                    offline_replicas=[],
                )
                for number, each in enumerate(replicas or ())
            ],
        )

    def _describe_cluster(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        row = kind.DescribeClusterBroker
        return kind(
            throttle_time_ms=0,
            error_code=self.habits.describe_code,
            error_message=None,
            endpoint_type=1,
            cluster_id="fake",
            controller_id=self.habits.broker_ids[0],
            brokers=[
                row(broker_id=each, host="127.0.0.1", port=self._port(each), rack=rack)
                for each, rack in zip(self.habits.broker_ids, self.habits.racks, strict=True)
            ],
            version=version,
        )

    def _describe_configs(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        result = kind.DescribeConfigsResult
        found = [
            result.DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=self.habits.config_source,
                is_default=False,
                is_sensitive=value is None,
                synonyms=[],
                config_type=77,
                documentation=None,
            )
            for name, value in (("num.io.threads", "8"), ("ssl.key.password", None))
        ]
        return kind(
            throttle_time_ms=0,
            results=[
                result(
                    error_code=self.habits.config_code,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[] if self.habits.config_code else found,
                )
                for each in request.resources
                if kind not in self.habits.empty_answers
            ],
            version=version,
        )

    def _describe_log_dirs(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        result = kind.DescribeLogDirsResult
        topic = result.DescribeLogDirsTopic
        held = [
            topic(
                name=name,
                partitions=[
                    topic.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=10,
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for number, each in enumerate(replicas)
                    if broker in each
                ],
            )
            for name, replicas in self.topics.items()
        ]
        return kind(
            throttle_time_ms=0,
            error_code=0,
            results=[
                result(error_code=0, log_dir=each, topics=held, total_bytes=-1, usable_bytes=-1)
                for each in self.habits.log_dirs
            ],
            version=version,
        )

    def _list_groups(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        listed = self.groups.items() if broker == self.habits.broker_ids[0] else ()
        return kind(
            throttle_time_ms=0,
            error_code=self.habits.group_code,
            groups=[
                kind.ListedGroup(
                    group_id=name, protocol_type="", group_state=state, group_type="strange"
                )
                for name, state in listed
            ],
            version=version,
        )

    def _find_coordinator(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        first = self.habits.broker_ids[0]
        at = {"node_id": first, "host": "127.0.0.1", "port": self._port(first), "error_code": 0}
        rows = [
            kind.Coordinator(key=key, error_message=None, **at)
            for key in request.coordinator_keys or ()
        ]
        return kind(
            throttle_time_ms=0, error_message=None, coordinators=rows, version=version, **at
        )

    def _delete_groups(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        rows = [
            kind.DeletableGroupResult(group_id=name, error_code=self.habits.group_code)
            for name in request.groups_names
            if kind not in self.habits.empty_answers
        ]
        for name in request.groups_names:
            self.groups.pop(name, None)
        return kind(throttle_time_ms=0, results=rows, version=version)

    def _is_denied(self) -> bool:
        self._denied += 1
        return self._denied <= self.habits.denials

    def _create_topics(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        (topic,) = request.topics
        assigned = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        code = ALREADY_EXISTS if topic.name in self.topics else 0
        code = code or (self.habits.refuses_assignments if assigned else 0)
        code = NOT_CONTROLLER if self._is_denied() else code
        if not code and not request.validate_only:
            count = len(assigned) or topic.num_partitions
            self.requests.append(f"create {topic.name} {'assigned' if assigned else count}")
            self.topics[topic.name] = (
                [assigned[number] for number in range(count)]
                if self.habits.place is None and assigned
                else self._placed(count, 0)
            )
        row = kind.CreatableTopicResult
        configs = [
            row.CreatableTopicConfigs(
                name="max.message.bytes",
                value="1048588",
                read_only=False,
                config_source=self.habits.config_source,
                is_sensitive=False,
            )
        ]
        rows = [
            row(
                name=topic.name,
                error_code=code,
                error_message="no" if code else None,
                configs=configs,
            )
        ]
        return kind(
            throttle_time_ms=0,
            topics=[] if kind in self.habits.empty_answers else rows,
            version=version,
        )

    def _placed(self, count: int, before: int) -> Replicas:
        if self.habits.place is not None:
            return self.habits.place(count, before)
        ids = self.habits.broker_ids
        return [(ids[(before + number) % len(ids)],) for number in range(count)]

    def _create_partitions(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        (topic,) = request.topics
        code = self.habits.refuses_partitions
        if not code:
            self.requests.append(f"grow {topic.name} {topic.count}")
            before = len(self.topics[topic.name])
            self.topics[topic.name] += self._placed(topic.count - before, before)
        row = kind.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=None)
        return kind(throttle_time_ms=0, results=[row], version=version)

    def _delete_topics(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        names = request.topic_names or [each.name for each in request.topics]
        for name in names:
            self.requests.append(f"delete {name}")
            self.topics.pop(name, None)
        rows = [
            kind.DeletableTopicResult(name=name, error_code=self.habits.deletion_code)
            for name in names
            if kind not in self.habits.empty_answers
        ]
        return kind(throttle_time_ms=0, responses=rows, version=version)

    def _delete_records(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        return kind(throttle_time_ms=0, topics=[], version=version)

    def _produce(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        return kind(throttle_time_ms=0, responses=[], version=version)

    def _elect_leaders(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        row = kind.ReplicaElectionResult
        rows = [
            row(
                topic=each.topic,
                partition_result=[
                    row.PartitionResult(
                        partition_id=number,
                        error_code=self.habits.election_code,
                        error_message=None,
                    )
                    for number in each.partitions
                ],
            )
            for each in request.topic_partitions
        ]
        return kind(
            throttle_time_ms=0, error_code=0, replica_election_results=rows, version=version
        )

    def _list_offsets(self, broker: int, request: Any, kind: Any, version: int) -> Any:
        row = kind.ListOffsetsTopicResponse

        def code(name: str, number: int) -> int:
            if name not in self.topics:
                return UNKNOWN_TOPIC
            return self.habits.offset_code

        return kind(
            throttle_time_ms=0,
            topics=[
                row(
                    name=topic.name,
                    partitions=[
                        row.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=code(topic.name, each.partition_index),
                            timestamp=-1,
                            offset=each.partition_index * 10,
                            leader_epoch=-1,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
            version=version,
        )


def _handler(request: str) -> str:
    """Name of the method that answers a request: `_list_groups` for `ListGroupsRequest`."""
    return re.sub("([A-Z])", r"_\1", request.removesuffix("Request")).lower()


def always(replicas: Sequence[int]) -> Callable[[int, int], Replicas]:
    """A placement with all leaders on the first broker."""
    return lambda count, _before: [tuple(replicas)] * count
