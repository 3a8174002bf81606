"""A TCP relay between clients and a broker, which can lose, refuse, slow down or delay data."""

from __future__ import annotations

import math
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # with a linger time of 0 s, close sends RST


@dataclass
class Relay:
    """Forwards connections from one address to another until it is closed.

    Attributes:
        healthy_bytes: bytes of all clients that are forwarded before the loss begins [B].
        loss: "swallow" receives data of clients and drops it; "refuse" resets all connections and
            accepts no more.
        answers_bytes_per_s: highest rate of answers on each connection; None for no limit [B/s].
        round_trip_s: time by which each answer is delayed [s].
        before_answer: called with the number of the connection before each part of an answer.
    """

    listen_on: tuple[str, int]
    forward_to: tuple[str, int]
    healthy_bytes: float = math.inf
    loss: Literal["swallow", "refuse"] = "swallow"
    answers_bytes_per_s: float | None = None
    round_trip_s: float = 0.0
    before_answer: Callable[[int], None] = lambda _: None
    _passed_bytes: int = 0
    _listener: socket.socket | None = None
    _sockets: list[socket.socket] = field(default_factory=list)

    def start(self) -> tuple[str, int]:
        """Start to listen, and return the address."""
        self._listener = listener = socket.create_server(self.listen_on)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    def _refuse(self) -> None:
        self._stop_listening()
        for each in self._sockets:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._end_all()

    def close(self) -> None:
        """Close all connections, which ends the threads."""
        self._stop_listening()
        self._end_all()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _end_all(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self.forward_to)
            except OSError:
                return  # closed
            number = len(self._sockets) // 2
            self._sockets += [near, far]
            answer = self._answer_late if self.round_trip_s else partial(self._answer, number)
            for pump, source, sink in ((self._ask, near, far), (answer, far, near)):
                threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def _ask(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # either end is gone
            while data := source.recv(_CHUNK):
                if self._passed_bytes < self.healthy_bytes:
                    self._passed_bytes += len(data)
                    sink.sendall(data)
                elif self.loss == "refuse":
                    self._refuse()
            sink.shutdown(socket.SHUT_WR)

    def _answer_late(self, source: socket.socket, sink: socket.socket) -> None:
        under_way: queue.Queue[tuple[float, bytes]] = queue.Queue()
        threading.Thread(target=_deliver, args=(under_way, sink), daemon=True).start()
        data = b"begin"
        while data:
            try:
                data = source.recv(_CHUNK)
            except OSError:  # either end is gone
                data = b""
            under_way.put((time.monotonic() + self.round_trip_s, data))

    def _answer(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        free_s = time.monotonic()
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self.before_answer(number)
                sink.sendall(data)
                if self.answers_bytes_per_s is not None:
                    free_s = max(free_s, time.monotonic()) + len(data) / self.answers_bytes_per_s
                    time.sleep(max(0.0, free_s - time.monotonic()))
            sink.shutdown(socket.SHUT_WR)


def _deliver(under_way: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
    """Pass data on when they are due, until there are none."""
    with suppress(OSError):  # the client is gone
        while True:
            due_s, data = under_way.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)


@contextmanager
def relay_to(
    broker: tuple[str, int],
    healthy_bytes: float = math.inf,
    loss: Literal["swallow", "refuse"] = "swallow",
    answers_bytes_per_s: float | None = None,
) -> Iterator[tuple[str, int]]:
    """The address of a relay on this machine to a broker, see `Relay`."""
    relay = Relay(("127.0.0.1", 0), broker, healthy_bytes, loss, answers_bytes_per_s)
    try:
        yield relay.start()
    finally:
        relay.close()
