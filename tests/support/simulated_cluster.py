"""Listeners of many brokers on loopback, which answer the admin requests of a run.

The answers have Kafka's encoding, by kafka-python's schemas, and describe one topic that all
brokers know. Tests with them prove which broker gets which request; they do not prove how a real
broker answers.
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
"""Request → newest version that brokers offer; clients also require ProduceRequest."""
_BY_KEY = {each.API_KEY: each for each in _VERSIONS}


class SimulatedCluster:
    """The state and the answers of brokers with ids from 1 on.

    Args:
        replicas: partition → brokers of its replicas, the leader first.

    Attributes:
        ports: broker id → port of its listener.
        request_counts: (broker id, name of the request) → number of requests.
        together: number of answers about offsets that are held back until all of them are ready.
        not_leader: brokers that answer "not the leader" to the next request for offsets.
        offered: request → newest version that brokers offer.
        oldest: request → oldest version that brokers offer; 0 by default.
        log_dirs: broker id → (error code, path) of each log directory; one without an error by
            default.
        connections_max: largest number of connections; brokers close further ones at once.
        closed: number of connections closed for this reason.
        on_refusal: called before the first of these closes.
    """

    def __init__(self, brokers: int, replicas: Mapping[int, tuple[int, ...]]) -> None:
        self.brokers = range(1, brokers + 1)
        self.replicas = replicas
        self.ports: dict[int, int] = {}
        self.request_counts: Counter[tuple[int, str]] = Counter()
        self.not_leader: set[int] = set()
        self.offered = dict(_OFFERED)
        self.oldest: Counter[Any] = Counter()
        self.log_dirs: dict[int, list[tuple[int, str]]] = {}
        self.connections_max = 100_000
        self.connections = self.closed = 0
        self.on_refusal: Callable[[], None] = lambda: None
        self.together = 1
        self._held: list[Callable[[], None]] = []
        self._encoded: dict[tuple[int, int, str], bytes] = {}

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each broker."""
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    def answer(self, broker: int, frame: bytes) -> bytes:
        """The framed answer of a broker to a request."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        kind = _BY_KEY[key]
        request = kind.decode(frame, version=version, header=True)
        self.request_counts[broker, kind.__name__] += 1
        answers = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._offsets,
            DescribeConfigsRequest: self._configs,
            DescribeLogDirsRequest: self._log_dirs,
            DescribeClusterRequest: self._cluster,
        }
        # Equal answers of all brokers are encoded once, so that the simulation needs little CPU.
        is_common = kind in (MetadataRequest, DescribeClusterRequest)
        content = (key, version, str(request.topics) if kind is MetadataRequest else "")
        if not is_common or content not in self._encoded:
            response = answers[kind](broker, request, version)
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

    def _versions(self, _broker: int, _request: Any, version: int) -> Any:
        keys = [
            ApiVersionsResponse.ApiVersion(
                api_key=each.API_KEY, min_version=self.oldest[each], max_version=most
            )
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
        has_topic = request.topics is None or any(each.name == TOPIC for each in request.topics)
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
            topics=[topic] if has_topic else [],
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
        """End offsets of ten times the number of each partition, or an error without leadership."""
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
        """The requested ones of two properties."""
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
        """The log directories of a broker, with 100 B in each requested partition of the broker."""
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
    """A connection whose requests are answered one by one."""

    def __init__(self, cluster: SimulatedCluster, broker: int) -> None:
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

    def connection_lost(self, error: Exception | None) -> None:
        self._cluster.connections -= not self._is_refused

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame, self._received = self._received[4:end], self._received[end:]
            send = partial(self._transport.write, self._cluster.answer(self._broker, frame))
            if int.from_bytes(frame[:2], "big") == ListOffsetsRequest.API_KEY:
                self._cluster.answer_together(send)
            else:
                send()


@contextmanager
def simulated_cluster(
    brokers: int, replicas: Mapping[int, tuple[int, ...]]
) -> Iterator[SimulatedCluster]:
    """A cluster of this number of brokers, each with a listener on 127.0.0.1, in one thread."""
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
