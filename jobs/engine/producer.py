"""The state of one producer, and of one of its connections."""

from __future__ import annotations

import math
import random
from collections import deque

from jobs.engine.pattern import ProducerPattern
from jobs.engine.protocol import Buffer, FrameReader, ProduceEncoder
from jobs.engine.transport import Transport

Batch = tuple[int, int, int]
"""(partition, index of the first record, records)."""


class Connection:
    """One producer's connection to one broker.

    Attributes:
        in_flight: unanswered requests, oldest first: (correlation id, sent at, batches).
        queue: full batches that wait for room, oldest first.
        open_batch_waits: the producer's open batch is ready and waits for room here.
        unwritten: what the socket did not take yet of the newest request.
    """

    __slots__ = (
        "closed",
        "correlation_id",
        "encoder",
        "in_flight",
        "max_in_flight",
        "open_batch_waits",
        "producer",
        "queue",
        "reader",
        "transport",
        "unwritten",
    )

    def __init__(
        self, transport: Transport, encoder: ProduceEncoder, producer: Producer, max_in_flight: int
    ) -> None:
        self.transport = transport
        self.encoder = encoder
        self.producer = producer
        self.max_in_flight = max_in_flight
        self.reader = FrameReader()
        self.in_flight: deque[tuple[int, float, list[Batch]]] = deque()
        self.queue: deque[Batch] = deque()
        self.unwritten: list[Buffer] = []
        self.correlation_id = 0
        self.open_batch_waits = False
        self.closed = False

    @property
    def has_room(self) -> bool:
        """True when another request may be sent now."""
        return len(self.in_flight) < self.max_in_flight and not self.unwritten and not self.closed


class Producer:
    """A schedule of records at a fixed rate, and the batch that is filling up.

    Record k is due at `start_s + k/rate`. Records gather in an open batch for one sticky
    partition; the batch is ready when the record that no longer fits is due, or when
    `linger_ms` is over. After `batch_size` bytes the partition changes at random, as
    Kafka's default partitioner does (KIP-794).

    Attributes:
        opened: index of the open batch's first record, so also the records sealed so far.
        scheduled_s: when the event loop looks at this producer next.
        buffered_bytes: size of the full batches that wait for room.
        blocked: `buffer_memory` is used up, so nothing is added until a broker takes some.
    """

    __slots__ = (
        "_batch_size",
        "_linger_s",
        "_partition_bytes",
        "_partitions",
        "_rate",
        "_rng",
        "blocked",
        "buffered_bytes",
        "connections",
        "full_records",
        "index",
        "opened",
        "partition",
        "scheduled_s",
        "start_s",
    )

    def __init__(
        self,
        index: int,
        pattern: ProducerPattern,
        full_records: int,
        partitions: int,
        start_s: float,
    ) -> None:
        self.index = index
        self.start_s = start_s
        self.full_records = full_records
        self.connections: dict[int, Connection] = {}
        self.opened = 0
        self.buffered_bytes = 0
        self.blocked = False
        self.scheduled_s = start_s
        self._rate = pattern.rate_records_per_s
        self._linger_s = pattern.linger_ms / 1000.0
        self._batch_size = pattern.batch_size
        self._partitions = partitions
        self._rng = random.Random(f"{pattern.payload_seed}/producer/{index}")
        self._partition_bytes = 0
        self.partition = self._rng.randrange(partitions)

    def due_s(self, record: int) -> float:
        """When this record is due."""
        return self.start_s + record / self._rate

    @property
    def full_s(self) -> float:
        """When the first record that no longer fits into the open batch is due."""
        return self.start_s + (self.opened + self.full_records) / self._rate

    @property
    def ready_s(self) -> float:
        """When the open batch is to be sent: full, or lingered long enough."""
        return min(self.full_s, self.start_s + self.opened / self._rate + self._linger_s)

    def records_by(self, at_s: float) -> int:
        """Records in the open batch at this time, at most a full batch, at least one."""
        due = math.floor((at_s - self.start_s) * self._rate + 1e-6) + 1 - self.opened
        return max(1, min(self.full_records, due))

    def records_due_between(self, from_s: float, to_s: float) -> int:
        """How many records are due in [from_s, to_s)."""
        before_end = max(0, math.ceil((to_s - self.start_s) * self._rate - 1e-6))
        return before_end - max(0, math.ceil((from_s - self.start_s) * self._rate - 1e-6))

    def seal(self, records: int, size_bytes: int) -> Batch:
        """Close the open batch after this many records and open the next one."""
        batch = (self.partition, self.opened, records)
        self.opened += records
        self._partition_bytes += size_bytes
        if self._partition_bytes >= self._batch_size:
            self._partition_bytes = 0
            self.partition = self._rng.randrange(self._partitions)
        return batch
