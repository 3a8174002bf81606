"""A scripted broker that listens on loopback in real time, for tasks in other processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafka.protocol.producer import ProduceRequest

from tests.support.scripted_broker import ScriptedBroker
from tests.support.simulated_cluster import SimulatedCluster

BROKER_ID = 1
PARTITIONS = 4


class ListeningBroker:
    """A broker that acknowledges each produce request at once.

    Attributes:
        port: port on 127.0.0.1.
        received: (time on this process's clock [s since the epoch], records) of each request.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.received: list[tuple[float, int]] = []
        self._broker = ScriptedBroker()
        self._cluster = SimulatedCluster(1, dict.fromkeys(range(PARTITIONS), (BROKER_ID,)))
        self._cluster.ports[BROKER_ID] = self.port
        self._cluster.offered[ProduceRequest] = 7  # the version that the script decodes
        self._lock = threading.Lock()

    def serve(self, sock: socket.socket) -> None:
        """Answer the requests of one connection until it closes."""
        with sock, sock.makefile("rb") as requests, suppress(ConnectionError):
            while len(size := requests.read(4)) == 4:
                frame = requests.read(int.from_bytes(size, "big"))
                with self._lock:
                    sock.sendall(self._answer(frame))

    def _answer(self, frame: bytes) -> bytes:
        if int.from_bytes(frame[:2], "big") != ProduceRequest.API_KEY:
            return self._cluster.answer(BROKER_ID, frame)
        before = self._broker.records
        handled = self._broker.handle(frame)
        assert handled is not None, "its script closes no connection"
        self.received.append((time.time(), self._broker.records - before))
        return handled[0]

    def records_within(self, start_s: float, end_s: float) -> int:
        """Records that arrived from `start_s` up to, but not including, `end_s`."""
        return sum(records for at_s, records in self.received if start_s <= at_s < end_s)

    @property
    def records(self) -> int:
        """All records that arrived."""
        return sum(records for _, records in self.received)


@contextmanager
def listening_broker() -> Iterator[ListeningBroker]:
    """A broker on a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = ListeningBroker(listener)
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:  # the listener was shut down
                    return
                threads.append(threading.Thread(target=broker.serve, args=(sock,), daemon=True))
                threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield broker
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()
