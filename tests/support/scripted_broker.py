"""A broker's side of produce connections that follows a script, for faults real ones won't show.

It proves how the engine accounts for answers, never how fast or right a cluster is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatch

Script = Callable[[int], "Answer | None"]
"""Request number (from 0) → the answer, or None to close the connection."""


@dataclass(frozen=True)
class Answer:
    """How to answer one request."""

    error_code: int = 0
    delay_s: float = 0.0
    silent: bool = False
    throttle_ms: int = 0


@dataclass
class ScriptedBroker:
    """Serves one connection on a thread of its own; a context manager."""

    script: Script = lambda _number: Answer()
    partition_records: list[tuple[int, int]] = field(default_factory=list)
    requests: int = 0
    problem: Exception | None = None

    def __enter__(self) -> ScriptedBroker:
        self.client_socket, self._socket = socket.socketpair()
        self.client_socket.setblocking(False)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the script may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5)
        self._socket.close()
        assert self.problem is None, self.problem

    @property
    def records(self) -> int:
        """Records received so far."""
        return sum(count for _, count in self.partition_records)

    def _serve(self) -> None:
        try:
            while (frame := self._frame()) is not None:
                answer = self.script(self.requests)
                self.requests += 1
                if answer is None:
                    self._socket.shutdown(socket.SHUT_RDWR)
                    return
                self._handle(frame, answer)
        except (ConnectionError, BrokenPipeError):
            return  # the client hung up
        except (AssertionError, ValueError, OSError) as error:
            self.problem = error

    def _frame(self) -> bytes | None:
        head = self._exactly(4)
        return None if head is None else self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                return None
            data += part
        return data

    def _handle(self, frame: bytes, answer: Answer) -> None:
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
                    error_code=answer.error_code,
                    base_offset=0,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                )
            )
        time.sleep(answer.delay_s)
        if answer.silent:
            return
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=results)
            ],
            throttle_time_ms=answer.throttle_ms,
            version=7,
        )
        response.with_header(correlation_id=request.header.correlation_id)
        self._socket.sendall(bytes(response.encode(framed=True, header=True)))
