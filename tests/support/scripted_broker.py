"""A broker's end of produce connections, which follows a script, for rare faults.

Tests with it prove how the engine accounts for answers; they do not prove how a real cluster
behaves.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatch

from tests.support.answers import metadata, produced, producer_id
from tests.support.scripted_log import Log
from tests.support.simulated_time import SimulatedTime

Script = Callable[[int], "Answer | None"]
"""Request number (from 0) → the answer, or None to close the connection."""


@dataclass(frozen=True)
class Answer:
    """An answer to one request.

    Attributes:
        error_code: error code of the answer, with which no batch is appended; 0 to append.
        hang_up: append the batches, and close the connection without an answer.
        silent: append the batches, and send no answer.
        cut: append the batches, and close the connection after so many bytes of the answer.
    """

    error_code: int = 0
    hang_up: bool = False
    delay_s: float = 0.0
    silent: bool = False
    cut: int | None = None
    throttle_ms: int = 0


class _Connection:
    """The broker's end of a connection, which reads a request after it has answered the last one.

    Args:
        handle: gets a request, and returns the answer, its delay [s], and whether the connection
            closes after it; None to close the connection at once.
        end_s: end of the session, after which the first request closes the connection [s].
    """

    def __init__(
        self,
        sock: socket.socket,
        handle: Callable[[bytes], tuple[bytes, float, bool] | None],
        end_s: float,
    ) -> None:
        self.sock = sock
        self._end_s = end_s
        self._handle = handle
        self._data = b""
        self._answer = b""
        self._answer_s = -math.inf
        self._closes = False
        self._is_over = False

    def act(self, now_s: float) -> float:
        """Send due answers, read requests, and return the time of the next answer [s]."""
        try:
            while not self._is_over:
                if now_s < self._answer_s:
                    return self._answer_s
                self.sock.sendall(self._answer)
                self._answer = b""
                if self._closes:
                    self.sock.shutdown(socket.SHUT_RDWR)
                    self._is_over = True
                    break
                frame = self._frame()
                if frame is None:
                    break
                handled = self._handle(frame) if now_s < self._end_s else None
                if handled is None:
                    self.sock.shutdown(socket.SHUT_RDWR)
                    self._is_over = True
                else:
                    self._answer, delay_s, self._closes = handled
                    self._answer_s = now_s + delay_s
        except (ConnectionError, BrokenPipeError):  # the client closed the connection
            self._is_over = True
        return math.inf

    def _frame(self) -> bytes | None:
        """Read the next request, without its length and without any byte after it."""
        while len(self._data) < (size := 4 + int.from_bytes(self._data[:4], "big")) or size == 4:
            wanted = size - len(self._data) if len(self._data) >= 4 else 4 - len(self._data)
            try:
                part = self.sock.recv(wanted)
            except BlockingIOError:
                return None
            if not part:
                self._is_over = True
                return None
            self._data += part
        frame, self._data = self._data[4:], b""
        return frame


@dataclass
class ScriptedBroker:
    """A broker that serves connections in simulated time; a context manager.

    Attributes:
        leaders: partition → leader, for answers to metadata requests.
        log: the log of the broker; brokers of one cluster share it.
        session_s: lifetime of the session of a connection [s].
        client_socket: the client's end of the first connection.
    """

    script: Script = lambda _number: Answer()
    leaders: Mapping[int, int] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    time: SimulatedTime = field(default_factory=SimulatedTime)
    partition_records: list[tuple[int, int]] = field(default_factory=list)
    session_s: float = math.inf
    requests: int = 0
    metadata_requests: int = 0
    _connections: list[_Connection] = field(default_factory=list)

    def __enter__(self) -> ScriptedBroker:
        self.time.actors.append(self._act)
        self.client_socket = self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._act(math.inf)
        for connection in self._connections:
            connection.sock.close()

    def connect(self) -> socket.socket:
        """The client's end of a new connection."""
        client, own = socket.socketpair()
        client.setblocking(False)
        own.setblocking(False)
        self._connections.append(_Connection(own, self.handle, self.time.now_s + self.session_s))
        return client

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def records(self) -> int:
        return sum(count for _, count in self.partition_records)

    def _act(self, now_s: float) -> float:
        return min(connection.act(now_s) for connection in tuple(self._connections))

    def handle(self, frame: bytes) -> tuple[bytes, float, bool] | None:
        """Serve a request: the answer, its delay [s] and whether it is the last; or None."""
        if int.from_bytes(frame[:2], "big") == MetadataRequest.API_KEY:
            return self._answer_metadata(frame), 0.0, False
        if int.from_bytes(frame[:2], "big") == InitProducerIdRequest.API_KEY:
            return producer_id(int.from_bytes(frame[4:8], "big")), 0.0, False
        answer = self.script(self.requests)
        self.requests += 1
        if answer is None:
            return None
        response = self._answer_produce(frame, answer)
        if answer.hang_up:
            return None
        sent = b"" if answer.silent else response[: answer.cut]
        return sent, answer.delay_s, answer.cut is not None

    def _answer_metadata(self, frame: bytes) -> bytes:
        request = MetadataRequest.decode(frame, version=4, header=True)
        self.metadata_requests += 1
        return metadata(self.leaders, request.header.correlation_id)

    def _answer_produce(self, frame: bytes, answer: Answer) -> bytes:
        """Append the batches of a produce request, and return the answer."""
        request = ProduceRequest.decode(frame, version=7, header=True)
        topic, codes = request.topic_data[0], {}
        for part in topic.partition_data:
            batch = DefaultRecordBatch(bytes(part.records))
            if not batch.validate_crc():
                raise AssertionError(f"bad CRC in a batch for partition {part.index}")
            self.partition_records.append((part.index, batch.records_count))
            codes[part.index] = answer.error_code or self.log.append(part.index, batch)
        return produced(codes, topic.name, answer.throttle_ms, request.header.correlation_id)
