"""Many brokers' listeners on loopback that answer what a run's administration asks, and no more.

The answers are in Kafka's own encoding, by kafka-python's schemas, of one topic that all brokers
know. They prove what is asked of whom, and never how a real broker answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest

TOPIC, CLUSTER_ID = "wide", "simulated"
NOT_LEADER = 6
_VERSIONS = {
    ApiVersionsRequest: 4,
    MetadataRequest: 8,
    ListOffsetsRequest: 5,
    DescribeConfigsRequest: 3,
    DescribeLogDirsRequest: 4,
    DescribeClusterRequest: 1,
}
_OFFERED = {**_VERSIONS, ProduceRequest: 9}
"""What a client wants to hear of, too, before it goes on."""
_BY_KEY = {each.API_KEY: each for each in _VERSIONS}


class SimulatedCluster:
    """Brokers from id 1 on.

    Args:
        replicas: partition → brokers that hold it, its leader first.

    Attributes:
        ports: broker id → its listener's.
        asked: (broker id, name of the request) → how often.
        together: so many answers about offsets are kept back until all of them can be given.
        not_leader: brokers that say once that they do not lead what they are asked for.
        offered: request → the newest version that brokers offer.
        log_dirs: broker id → (error code, path) of each of its log directories, where it does not
            have one without an error.
        connections_max: connections beyond this number are closed at once, as brokers do.
        closed: connections that were closed for it.
        on_refusal: called before the first of them.
    """

    def __init__(self, brokers: int, replicas: Mapping[int, tuple[int, ...]]) -> None:
        self.brokers = range(1, brokers + 1)
        self.replicas = replicas
        self.ports: dict[int, int] = {}
        self.asked: Counter[tuple[int, str]] = Counter()
        self.not_leader: set[int] = set()
        self.offered = dict(_OFFERED)
        self.log_dirs: dict[int, list[tuple[int, str]]] = {}
        self.connections_max = 100_000
        self.connections = self.closed = 0
        self.on_refusal: Callable[[], None] = lambda: None
        self.together = 1
        self._held: list[Callable[[], None]] = []
        self._told: dict[tuple[int, int, str], bytes] = {}

    @property
    def addresses(self) -> list[str]:
        """host:port of each."""
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    def answer(self, broker: int, frame: bytes) -> bytes:
        """The whole answer to a request."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        kind = _BY_KEY[key]
        request = kind.decode(frame, version=version, header=True)
        self.asked[broker, kind.__name__] += 1
        answers = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._offsets,
            DescribeConfigsRequest: self._configs,
            DescribeLogDirsRequest: self._log_dirs,
            DescribeClusterRequest: self._cluster,
        }
        # What all brokers say alike is encoded once: the simulation is to cost little.
        alike = kind in (MetadataRequest, DescribeClusterRequest)
        what = (key, version, str(request.topics) if kind is MetadataRequest else "")
        if not alike or what not in self._told:
            response = answers[kind](broker, request, version)
            response.with_header(correlation_id=0)
            self._told[what] = bytes(response.encode(framed=True, header=True))
        told = self._told[what]
        number: int = request.header.correlation_id
        return told[:4] + number.to_bytes(4, "big") + told[8:]

    def answer_together(self, told: Callable[[], None]) -> None:
        """Keep an answer back until as many are there as are to be given together."""
        self._held.append(told)
        if len(self._held) >= self.together:
            for each in self._held:
                each()
            self._held, self.together = [], 1

    def _versions(self, _broker: int, _request: Any, version: int) -> Any:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=each.API_KEY, min_version=0, max_version=most)
            for each, most in self.offered.items()
        ]
        return ApiVersionsResponse(version=version, error_code=0, api_keys=keys)

    def _metadata(self, _broker: int, request: Any, version: int) -> Any:
        kind = MetadataResponse.MetadataResponseTopic
        partitions = [
            kind.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=held[0],
                leader_epoch=0,
                replica_nodes=list(held),
                isr_nodes=list(held),
                offline_replicas=[],
            )
            for number, held in self.replicas.items()
        ]
        asked = request.topics is None or any(each.name == TOPIC for each in request.topics)
        topic = kind(error_code=0, name=TOPIC, is_internal=False, partitions=partitions)
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=each, host="127.0.0.1", port=port, rack=None
                )
                for each, port in self.ports.items()
            ],
            cluster_id=CLUSTER_ID,
            controller_id=1,
            topics=[topic] if asked else [],
        )

    def _cluster(self, _broker: int, _request: Any, version: int) -> Any:
        return DescribeClusterResponse(
            version=version,
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=1,
            cluster_id=CLUSTER_ID,
            controller_id=1,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=each, host="127.0.0.1", port=port, rack=None
                )
                for each, port in self.ports.items()
            ],
        )

    def _offsets(self, broker: int, request: Any, version: int) -> Any:
        """Each partition ends at ten times its number, where this broker leads it."""
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        refuses = broker in self.not_leader
        self.not_leader.discard(broker)
        return ListOffsetsResponse(
            version=version,
            throttle_time_ms=0,
            topics=[
                kind(
                    name=topic.name,
                    partitions=[
                        kind.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=NOT_LEADER
                            if refuses or self.replicas[each.partition_index][0] != broker
                            else 0,
                            timestamp=-1,
                            offset=10 * each.partition_index,
                            leader_epoch=0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _configs(self, broker: int, request: Any, version: int) -> Any:
        """Of two properties those that are asked for."""
        kind = DescribeConfigsResponse.DescribeConfigsResult
        own = {"queued.max.requests": str(500 + broker), "log.segment.bytes": "1000"}
        return DescribeConfigsResponse(
            version=version,
            throttle_time_ms=0,
            results=[
                kind(
                    error_code=0,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[
                        kind.DescribeConfigsResourceResult(
                            name=name,
                            value=value,
                            read_only=False,
                            config_source=4,
                            is_sensitive=False,
                            synonyms=[],
                            config_type=0,
                            documentation=None,
                        )
                        for name, value in own.items()
                        if each.configuration_keys is None or name in each.configuration_keys
                    ],
                )
                for each in request.resources
            ],
        )

    def _log_dirs(self, broker: int, request: Any, version: int) -> Any:
        """One directory, with those of the partitions asked for that it holds, of 100 B each."""
        kind = DescribeLogDirsResponse.DescribeLogDirsResult
        topics = [
            kind.DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    kind.DescribeLogDirsTopic.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=100,
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for number in topic.partitions
                    if broker in self.replicas[number]
                ],
            )
            for topic in request.topics or ()
        ]
        return DescribeLogDirsResponse(
            version=version,
            throttle_time_ms=0,
            error_code=0,
            results=[
                kind(
                    error_code=error,
                    log_dir=path,
                    topics=[] if error else topics,
                    total_bytes=-1 if error else 10**12,
                    usable_bytes=-1 if error else 10**11 + broker,
                )
                for error, path in self.log_dirs.get(broker, [(0, f"/data/{broker}")])
            ],
        )


class _Connection(asyncio.Protocol):
    """Answers each request of a connection."""

    def __init__(self, cluster: SimulatedCluster, broker: int) -> None:
        self._cluster, self._broker, self._heard = cluster, broker, b""

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

    def connection_lost(self, error: Exception | None) -> None:
        self._cluster.connections -= not self._is_refused

    def data_received(self, data: bytes) -> None:
        self._heard += data
        while len(self._heard) >= 4:
            end = 4 + int.from_bytes(self._heard[:4], "big")
            if len(self._heard) < end:
                return
            frame, self._heard = self._heard[4:end], self._heard[end:]
            told = partial(self._transport.write, self._cluster.answer(self._broker, frame))
            if int.from_bytes(frame[:2], "big") == ListOffsetsRequest.API_KEY:
                self._cluster.answer_together(told)
            else:
                told()


@contextmanager
def simulated_cluster(
    brokers: int, replicas: Mapping[int, tuple[int, ...]]
) -> Iterator[SimulatedCluster]:
    """So many brokers, each with a listener on 127.0.0.1, served by one thread."""
    cluster, loop = SimulatedCluster(brokers, replicas), asyncio.new_event_loop()

    async def listen(broker: int) -> asyncio.Server:
        server = await loop.create_server(lambda: _Connection(cluster, broker), "127.0.0.1", 0)
        cluster.ports[broker] = server.sockets[0].getsockname()[1]
        return server

    servers = [loop.run_until_complete(listen(each)) for each in cluster.brokers]
    thread = threading.Thread(target=loop.run_forever, name="simulated-cluster", daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for server in servers:
            server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
