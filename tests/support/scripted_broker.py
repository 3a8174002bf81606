"""A broker's side of produce connections that follows a script, for faults real ones won't show.

It proves how the engine accounts for answers, never how fast or right a cluster is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatch

from tests.support.scripted_log import Log

Script = Callable[[int], "Answer | None"]
"""Request number (from 0) → the answer, or None to close the connection."""


@dataclass(frozen=True)
class Answer:
    """How to answer one request.

    Attributes:
        error_code: instead of appending the batches.
        hang_up: append, then close the connection without an answer.
    """

    error_code: int = 0
    hang_up: bool = False
    delay_s: float = 0.0
    silent: bool = False
    throttle_ms: int = 0


@dataclass
class ScriptedBroker:
    """Serves connections, each on a thread of its own; a context manager.

    Attributes:
        leaders: what it says of the partitions' leaders when it is asked.
        log: what it appends to; brokers of one cluster share one.
        client_socket: the first connection.
    """

    script: Script = lambda _number: Answer()
    leaders: Mapping[int, int] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    partition_records: list[tuple[int, int]] = field(default_factory=list)
    requests: int = 0
    questions: int = 0
    problem: Exception | None = None
    _sockets: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> ScriptedBroker:
        self.client_socket = self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # the script may have closed it
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)
        for sock in self._sockets:
            sock.close()
        assert self.problem is None, self.problem

    def connect(self) -> socket.socket:
        """The client's end of a new connection."""
        client, own = socket.socketpair()
        client.setblocking(False)
        self._sockets.append(own)
        self._threads.append(threading.Thread(target=self._serve, args=(own,), daemon=True))
        self._threads[-1].start()
        return client

    @property
    def records(self) -> int:
        """Records received so far."""
        return sum(count for _, count in self.partition_records)

    def _serve(self, sock: socket.socket) -> None:
        try:
            while (frame := _frame(sock)) is not None:
                if int.from_bytes(frame[:2], "big") == MetadataRequest.API_KEY:
                    self._tell_leaders(sock, frame)
                    continue
                answer = self.script(self.requests)
                self.requests += 1
                if answer is None or not self._handle(sock, frame, answer):
                    sock.shutdown(socket.SHUT_RDWR)
                    return
        except (ConnectionError, BrokenPipeError):
            return  # the client hung up
        except (AssertionError, ValueError, OSError) as error:
            self.problem = error

    def _tell_leaders(self, sock: socket.socket, frame: bytes) -> None:
        request = MetadataRequest.decode(frame, version=4, header=True)
        self.questions += 1
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=leader,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for index, leader in self.leaders.items()
        ]
        response = MetadataResponse(
            throttle_time_ms=0,
            brokers=[],
            cluster_id="scripted",
            controller_id=1,
            topics=[topic(error_code=0, name="t", is_internal=False, partitions=partitions)],
            version=4,
        )
        response.with_header(correlation_id=request.header.correlation_id)
        sock.sendall(bytes(response.encode(framed=True, header=True)))

    def _handle(self, sock: socket.socket, frame: bytes, answer: Answer) -> bool:
        """Take a produce request; False to hang up."""
        request = ProduceRequest.decode(frame, version=7, header=True)
        topic = request.topic_data[0]
        results = []
        for part in topic.partition_data:
            batch = DefaultRecordBatch(bytes(part.records))
            if not batch.validate_crc():
                raise AssertionError(f"bad CRC in a batch for partition {part.index}")
            self.partition_records.append((part.index, batch.records_count))
            results.append(
                ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
                    index=part.index,
                    error_code=answer.error_code or self.log.append(part.index, batch),
                    base_offset=0,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                )
            )
        if answer.hang_up:
            return False
        time.sleep(answer.delay_s)
        if answer.silent:
            return True
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=results)
            ],
            throttle_time_ms=answer.throttle_ms,
            version=7,
        )
        response.with_header(correlation_id=request.header.correlation_id)
        sock.sendall(bytes(response.encode(framed=True, header=True)))
        return True


def _frame(sock: socket.socket) -> bytes | None:
    head = _exactly(sock, 4)
    return None if head is None else _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            return None
        data += part
    return data
