"""A fake cluster whose brokers answer admin requests over TCP, like brokers of various makes.

It uses kafka-python's message classes. Tests with it prove which broker gets which request, how the
product reads answers and handles missing ones; they do not prove how real brokers answer.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from typing_extensions import Self

TOPIC = "wide"
"""The topic of a simulated cluster."""
UNKNOWN_TOPIC = 3
NOT_LEADER = 6
NOT_CONTROLLER = 41
ALREADY_EXISTS = 36

_ANSWERED = {
    metadata: ("ApiVersions", "Metadata", "FindCoordinator"),
    consumer: ("ListOffsets",),
    admin: (
        "ListGroups", "DeleteGroups", "DescribeCluster", "DescribeConfigs", "DescribeLogDirs",
        "CreateTopics", "CreatePartitions", "DeleteTopics", "DeleteRecords", "ElectLeaders",
    ),
    producer: ("Produce",),
}  # fmt: skip
PAIRS: dict[int, tuple[Any, Any]] = {
    getattr(module, f"{name}Request").API_KEY: (
        getattr(module, f"{name}Request"),
        getattr(module, f"{name}Response"),
    )
    for module, names in _ANSWERED.items()
    for name in names
}
UNANSWERED = (consumer.FetchRequest, consumer.HeartbeatRequest)
"""Requests by which clients recognize the release of brokers; the fake closes the connection."""

Replicas = list[tuple[int, ...]]
"""Replicas of partition 0, 1, 2, …, the leader first."""


_SIMULATED = {
    metadata.ApiVersionsRequest: 4,
    MetadataRequest: 8,
    ListOffsetsRequest: 5,
    admin.DescribeConfigsRequest: 3,
    admin.DescribeLogDirsRequest: 4,
    admin.DescribeClusterRequest: 1,
    ProduceRequest: 9,
}
"""Request → its newest version in a simulated cluster; clients also require ProduceRequest."""


@dataclass(frozen=True)
class Habits:
    """The answers of a make of brokers.

    Attributes:
        broker_ids: ids of the brokers; the first is the controller.
        racks: racks of the brokers, in the order of their ids; None for an unknown rack.
        versions: request → its newest version; None if brokers do not support the request.
        config: properties of each broker and topic; "{}" in a value is the broker's id.
        log_dirs: log directories of each broker; "{}" is its id.
        volume_bytes: size of each log directory's volume; -1 for an unknown size [B].
        place: (number of new partitions, number of existing ones) → replicas of the new
            partitions; None to follow assignments.
        refuses_assignments: error code of a creation with assignments; 0 for none.
        refuses_partitions: error code of added partitions; 0 for none.
        group_code, config_code, election_code, deletion_code, offset_code, describe_code:
            error codes of the answers.
        denials: number of creations that are first answered with "not the controller".
        empty_answers: responses without a result.
        metadata_id: the cluster's id in metadata, which old brokers do not state.
        keeps_topics: True if topics never change; their answers are encoded once, so that many
            brokers need little CPU.
    """

    broker_ids: tuple[int, ...] = (0, 1001)
    racks: tuple[str | None, ...] = (None, None)
    versions: Mapping[Any, int | None] = field(default_factory=dict)
    config: tuple[tuple[str, str | None], ...] = (
        ("num.io.threads", "8"),
        ("ssl.key.password", None),
    )
    config_source: int = 4
    log_dirs: tuple[str, ...] = ("/data",)
    partition_bytes: int = 10
    volume_bytes: int = -1
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
    keeps_topics: bool = False


class FakeCluster:
    """Brokers with one address each and a common state; a context manager, with one thread.

    Attributes:
        ports: broker id → port of its listener on 127.0.0.1.
        topics: name → replicas of its partitions.
        groups: id → state of consumer groups; the first broker coordinates them.
        requests: requests that changed the state, in order.
        request_counts: (broker id, name of the request) → number of requests.
        connected: brokers of the connections that were accepted, in order.
        vanishing: topics that are deleted when their metadata are read.
        offered: request → newest version that brokers offer.
        oldest: request → oldest version that brokers offer; 0 by default.
        log_dirs: broker id → (error code, path) of each log directory; by default the habits'
            directories without an error.
        together: number of answers about offsets that are held back until all of them are ready.
        not_leader: brokers that answer "not the leader" to the next request for offsets.
        connections_max: largest number of connections; brokers close further ones at once.
        closed: number of connections closed for this reason.
        on_refusal: called before the first of these closes.
        troubles: errors of the fake; the first is raised at the end.
    """

    def __init__(self, habits: Habits = Habits()) -> None:
        self.habits = habits
        self.ports: dict[int, int] = {}
        self.topics: dict[str, Replicas] = {}
        self.groups: dict[str, str] = {}
        self.requests: list[str] = []
        self.request_counts: Counter[tuple[int, str]] = Counter()
        self.connected: list[int] = []
        self.vanishing: set[str] = set()
        known = (*(each for each, _ in PAIRS.values()), *UNANSWERED)
        newest = {each: each.max_version for each in known} | dict(habits.versions)
        self.offered = {each: most for each, most in newest.items() if most is not None}
        self.oldest: Counter[Any] = Counter()
        self.log_dirs: dict[int, list[tuple[int, str]]] = {}
        self.together = 1
        self.not_leader: set[int] = set()
        self.connections_max = 100_000
        self.connections = self.closed = 0
        self.on_refusal: Callable[[], None] = lambda: None
        self.troubles: list[Exception] = []
        self._denied = 0
        self._held: list[Callable[[], None]] = []
        self._encoded: dict[tuple[int, int, str], bytes] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._servers = [self._loop.run_until_complete(self._listen(b)) for b in self.brokers]
        self._thread.start()
        return self

    async def _listen(self, broker: int) -> asyncio.Server:
        made = await self._loop.create_server(lambda: _Connection(self, broker), "127.0.0.1", 0)
        self.ports[broker] = made.sockets[0].getsockname()[1]
        return made

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for server in self._servers:
            server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        if self.troubles:
            raise AssertionError("the fake cannot answer") from self.troubles[0]

    @property
    def brokers(self) -> tuple[int, ...]:
        return self.habits.broker_ids

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each broker."""
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    def answer(self, broker: int, frame: bytes) -> bytes | None:
        """The framed answer of a broker to a request; None to close the connection."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key not in PAIRS:
            return None
        kind, answered = PAIRS[key]
        request = kind.decode(frame, version=version, header=True)
        self.request_counts[broker, kind.__name__] += 1
        is_common = self.habits.keeps_topics and kind in (
            MetadataRequest,
            admin.DescribeClusterRequest,
        )
        content = (key, version, str(request.topics) if kind is MetadataRequest else "")
        if not is_common or content not in self._encoded:
            method = getattr(self, _handler(kind.__name__))
            response = method(broker, request, answered[version])
            response.with_header(correlation_id=0)
            self._encoded[content] = bytes(response.encode(framed=True, header=True))
        encoded = self._encoded[content]
        number: int = request.header.correlation_id
        return encoded[:4] + number.to_bytes(4, "big") + encoded[8:]

    def answer_together(self, send: Callable[[], None]) -> None:
        """Hold an answer back until `together` answers are ready, and then send all of them."""
        self._held.append(send)
        if len(self._held) >= self.together:
            for each in self._held:
                each()
            self._held, self.together = [], 1

    # --- answers ------------------------------------------------------------

    def _api_versions(self, broker: int, request: Any, kind: Any) -> Any:
        keys = [
            kind.ApiVersion(api_key=each.API_KEY, min_version=self.oldest[each], max_version=most)
            for each, most in self.offered.items()
        ]
        return kind(api_keys=keys)

    def _metadata(self, broker: int, request: Any, kind: Any) -> Any:
        names = self.topics if request.topics is None else [each.name for each in request.topics]
        return kind(
            brokers=[
                kind.MetadataResponseBroker(node_id=each, **place)
                for each, place in self._places().items()
            ],
            cluster_id=self.habits.metadata_id,
            controller_id=self.habits.broker_ids[0],
            topics=[self._topic(kind.MetadataResponseTopic, name) for name in list(names)],
        )

    def _places(self) -> dict[int, dict[str, Any]]:
        """Broker id → its address and rack."""
        racks = dict(zip(self.brokers, self.habits.racks, strict=True))
        return {
            each: {"host": "127.0.0.1", "port": port, "rack": racks[each]}
            for each, port in self.ports.items()
        }

    def _topic(self, kind: Any, name: str) -> Any:
        replicas = self.topics.get(name)
        if name in self.vanishing:  # the next request does not find it
            self.topics.pop(name, None)
        return kind(
            error_code=UNKNOWN_TOPIC if replicas is None else 0,
            name=name,
            authorized_operations={3, 20},
            partitions=[
                kind.MetadataResponsePartition(
                    partition_index=number,
                    leader_id=each[0],
                    replica_nodes=sorted(each) if self.habits.place else list(each),
                    isr_nodes=list(each),
                )
                for number, each in enumerate(replicas or ())
            ],
        )

    def _describe_cluster(self, broker: int, request: Any, kind: Any) -> Any:
        return kind(
            error_code=self.habits.describe_code,
            cluster_id="fake",
            controller_id=self.habits.broker_ids[0],
            brokers=[
                kind.DescribeClusterBroker(broker_id=each, **place)
                for each, place in self._places().items()
            ],
        )

    def _describe_configs(self, broker: int, request: Any, kind: Any) -> Any:
        result, code = kind.DescribeConfigsResult, self.habits.config_code
        found = [
            result.DescribeConfigsResourceResult(
                name=name,
                value=value and value.format(broker),
                config_source=self.habits.config_source,
                is_sensitive=value is None,
                config_type=77,
            )
            for name, value in self.habits.config
            if not code
        ]
        return kind(
            results=[
                result(
                    error_code=code,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[
                        row for row in found if row.name in (each.configuration_keys or [row.name])
                    ],
                )
                for each in request.resources
                if not self._is_empty(kind)
            ]
        )

    def _describe_log_dirs(self, broker: int, request: Any, kind: Any) -> Any:
        """The log directories of a broker, with the requested partitions that it has."""
        result = kind.DescribeLogDirsResult
        topic = result.DescribeLogDirsTopic
        asked = (
            {name: range(len(replicas)) for name, replicas in self.topics.items()}
            if request.topics is None
            else {each.topic: each.partitions for each in request.topics}
        )
        size, volume_bytes = self.habits.partition_bytes, self.habits.volume_bytes
        held = [
            topic(
                name=name,
                partitions=[
                    topic.DescribeLogDirsPartition(partition_index=number, partition_size=size)
                    for number in numbers
                    if broker in self.topics[name][number]
                ],
            )
            for name, numbers in asked.items()
        ]
        own = [(0, each.format(broker)) for each in self.habits.log_dirs]
        return kind(
            results=[
                result(
                    error_code=error,
                    log_dir=path,
                    topics=[] if error else held,
                    total_bytes=-1 if error else volume_bytes,
                    usable_bytes=-1 if error or volume_bytes < 0 else volume_bytes // 10 + broker,
                )
                for error, path in self.log_dirs.get(broker, own)
            ]
        )

    def _list_groups(self, broker: int, request: Any, kind: Any) -> Any:
        listed = self.groups.items() if broker == self.habits.broker_ids[0] else ()
        groups = [
            kind.ListedGroup(group_id=name, group_state=state, group_type="strange")
            for name, state in listed
        ]
        return kind(error_code=self.habits.group_code, groups=groups)

    def _find_coordinator(self, broker: int, request: Any, kind: Any) -> Any:
        first = self.habits.broker_ids[0]
        at = {"node_id": first, "host": "127.0.0.1", "port": self.ports[first]}
        rows = [kind.Coordinator(key=key, **at) for key in request.coordinator_keys or ()]
        return kind(coordinators=rows, **at)

    def _delete_groups(self, broker: int, request: Any, kind: Any) -> Any:
        rows = [
            kind.DeletableGroupResult(group_id=name, error_code=self.habits.group_code)
            for name in request.groups_names
            if not self._is_empty(kind)
        ]
        for name in request.groups_names:
            self.groups.pop(name, None)
        return kind(results=rows)

    def _is_empty(self, kind: Any) -> bool:
        return any(issubclass(kind, each) for each in self.habits.empty_answers)

    def _create_topics(self, broker: int, request: Any, kind: Any) -> Any:
        (topic,) = request.topics
        assigned = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        code = ALREADY_EXISTS if topic.name in self.topics else 0
        code = code or (self.habits.refuses_assignments if assigned else 0)
        self._denied += 1
        code = NOT_CONTROLLER if self._denied <= self.habits.denials else code
        if not code and not request.validate_only:
            count = len(assigned) or topic.num_partitions
            self.requests.append(f"create {topic.name} {'assigned' if assigned else count}")
            self.topics[topic.name] = (
                [assigned[number] for number in range(count)]
                if self.habits.place is None and assigned
                else self._placed(count, 0)
            )
        row, source = kind.CreatableTopicResult, self.habits.config_source
        limit = row.CreatableTopicConfigs(
            name="max.message.bytes", value="1048588", config_source=source
        )
        made = row(
            name=topic.name, error_code=code, error_message="no" if code else None, configs=[limit]
        )
        return kind(topics=[] if self._is_empty(kind) else [made])

    def _placed(self, count: int, before: int) -> Replicas:
        if self.habits.place is not None:
            return self.habits.place(count, before)
        ids = self.habits.broker_ids
        return [(ids[(before + number) % len(ids)],) for number in range(count)]

    def _create_partitions(self, broker: int, request: Any, kind: Any) -> Any:
        (topic,) = request.topics
        code = self.habits.refuses_partitions
        if not code:
            self.requests.append(f"grow {topic.name} {topic.count}")
            before = len(self.topics[topic.name])
            self.topics[topic.name] += self._placed(topic.count - before, before)
        return kind(results=[kind.CreatePartitionsTopicResult(name=topic.name, error_code=code)])

    def _delete_topics(self, broker: int, request: Any, kind: Any) -> Any:
        names = request.topic_names or [each.name for each in request.topics]
        for name in names:
            self.requests.append(f"delete {name}")
            self.topics.pop(name, None)
        rows = [
            kind.DeletableTopicResult(name=name, error_code=self.habits.deletion_code)
            for name in names
            if not self._is_empty(kind)
        ]
        return kind(responses=rows)

    def _nothing(self, broker: int, request: Any, kind: Any) -> Any:
        return kind()

    _delete_records = _produce = _nothing

    def _elect_leaders(self, broker: int, request: Any, kind: Any) -> Any:
        row, code = kind.ReplicaElectionResult, self.habits.election_code
        rows = [
            row(
                topic=each.topic,
                partition_result=[
                    row.PartitionResult(partition_id=number, error_code=code, error_message=None)
                    for number in each.partitions
                ],
            )
            for each in request.topic_partitions
        ]
        return kind(replica_election_results=rows)

    def _list_offsets(self, broker: int, request: Any, kind: Any) -> Any:
        """End offsets of ten times the number of each partition."""
        row = kind.ListOffsetsTopicResponse
        refuses = broker in self.not_leader
        self.not_leader.discard(broker)

        def answered(name: str, number: int) -> Any:
            code = UNKNOWN_TOPIC
            if name in self.topics:
                is_leader = not refuses and self.topics[name][number][0] == broker
                code = self.habits.offset_code if is_leader else NOT_LEADER
            return row.ListOffsetsPartitionResponse(
                partition_index=number, error_code=code, offset=number * 10
            )

        return kind(
            topics=[
                row(
                    name=topic.name,
                    partitions=[answered(topic.name, p.partition_index) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )


class _Connection(asyncio.Protocol):
    """A connection whose requests are answered one by one."""

    def __init__(self, cluster: FakeCluster, broker: int) -> None:
        self._cluster, self._broker, self._received = cluster, broker, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_refused = self._cluster.connections >= self._cluster.connections_max
        if self._is_refused:
            self._cluster.closed += 1
            if self._cluster.closed == 1:
                self._cluster.on_refusal()
            transport.close()
        else:
            self._cluster.connections += 1
            self._cluster.connected.append(self._broker)

    def connection_lost(self, error: Exception | None) -> None:
        self._cluster.connections -= not self._is_refused

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame, self._received = self._received[4:end], self._received[end:]
            try:
                answer = self._cluster.answer(self._broker, frame)
            except Exception as error:
                self._cluster.troubles.append(error)
                raise
            if answer is None:
                self._transport.close()
                return
            send = partial(self._transport.write, answer)
            if int.from_bytes(frame[:2], "big") == ListOffsetsRequest.API_KEY:
                self._cluster.answer_together(send)
            else:
                send()


def _handler(request: str) -> str:
    """Name of the method that answers a request: `_list_groups` for `ListGroupsRequest`."""
    return re.sub("([A-Z])", r"_\1", request.removesuffix("Request")).lower()


def always(replicas: Sequence[int]) -> Callable[[int, int], Replicas]:
    """A placement with all leaders on the first broker."""
    return lambda count, _before: [tuple(replicas)] * count


class SimulatedCluster(FakeCluster):
    """A cluster of many brokers, with ids from 1 on, which all know one topic.

    Args:
        replicas: partition 0, 1, 2, … → brokers of its replicas, the leader first.
    """

    def __init__(self, brokers: int, replicas: Mapping[int, tuple[int, ...]]) -> None:
        super().__init__(
            Habits(
                broker_ids=tuple(range(1, brokers + 1)),
                racks=(None,) * brokers,
                config=(("queued.max.requests", "{}"), ("log.segment.bytes", "1000")),
                log_dirs=("/data/{}",),
                partition_bytes=100,
                volume_bytes=10**12,
                metadata_id="fake",
                keeps_topics=True,
            )
        )
        self.offered = dict(_SIMULATED)
        self.topics[TOPIC] = [replicas[number] for number in range(len(replicas))]
