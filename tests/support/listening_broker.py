"""A scripted broker that listens on loopback in real time, for tasks in other processes."""

from __future__ import annotations

import time

from kafka.protocol.producer import ProduceRequest

from tests.support.fake_cluster import SimulatedCluster
from tests.support.scripted_broker import ScriptedBroker

BROKER_ID = 1
PARTITIONS = 4


class ListeningBroker(SimulatedCluster):
    """A broker that acknowledges each produce request at once.

    Attributes:
        received: (time on this process's clock [s since the epoch], records) of each request.
    """

    def __init__(self) -> None:
        super().__init__(1, dict.fromkeys(range(PARTITIONS), (BROKER_ID,)))
        self.offered[ProduceRequest] = 7  # the version that the script decodes
        self.received: list[tuple[float, int]] = []
        self._broker = ScriptedBroker()

    def answer(self, broker: int, frame: bytes) -> bytes | None:
        if int.from_bytes(frame[:2], "big") != ProduceRequest.API_KEY:
            return super().answer(broker, frame)
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
        return sum(records for _, records in self.received)
