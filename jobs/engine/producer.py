"""The state of one producer, and of one of its connections."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobs.engine.backlog import Backlog
from jobs.engine.batch import Batch
from jobs.engine.identity import Identity
from jobs.engine.pattern import ProducerPattern
from jobs.engine.protocol import Buffer, FrameReader, ProduceEncoder
from jobs.engine.schedule import Schedule
from jobs.engine.sections import Section
from jobs.engine.transport import Transport

if TYPE_CHECKING:
    from jobs.engine.lane import Lane


class Connection:
    """One producer's connection to one broker.

    Attributes:
        broker: its broker id.
        in_flight: unanswered requests, oldest first: (correlation id, sent at, batches);
            without batches for one that is no produce request.
        asked: correlation id of such a request → what takes the answer.
        lanes: what waits for room to send batches again.
        queue: full batches that wait for room.
        open_batch_waits: the producer's open batch is ready and waits for room here.
        unwritten: what the socket did not take yet of the newest request.
    """

    __slots__ = (
        "asked",
        "broker",
        "closed",
        "correlation_id",
        "encoder",
        "in_flight",
        "lanes",
        "max_in_flight",
        "open_batch_waits",
        "producer",
        "queue",
        "reader",
        "transport",
        "unwritten",
    )

    def __init__(
        self,
        broker: int,
        transport: Transport,
        encoder: ProduceEncoder,
        producer: Producer,
        max_in_flight: int,
    ) -> None:
        self.broker = broker
        self.transport = transport
        self.encoder = encoder
        self.producer = producer
        self.max_in_flight = max_in_flight
        self.reader = FrameReader()
        self.in_flight: deque[tuple[int, float, list[Batch]]] = deque()
        self.queue = Backlog()
        self.unwritten: list[Buffer] = []
        self.asked: dict[int, Callable[[memoryview], None]] = {}
        self.lanes: list[Lane] = []
        self.correlation_id = 0
        self.open_batch_waits = False
        self.closed = False

    @property
    def has_room(self) -> bool:
        """True when another request may be sent now."""
        return len(self.in_flight) < self.max_in_flight and not self.unwritten and not self.closed

    def take_batches(self, count: int, size_bytes: int) -> list[Batch]:
        """Take queued batches for one request; see `Backlog.take`."""
        batches = self.queue.take(count, size_bytes)
        self.producer.buffered_bytes -= sum(batch.size for batch in batches)
        return batches


class Producer:
    """A schedule of records, and the batch that is filling up.

    Records gather in an open batch for one sticky partition; the batch is ready when the
    record that no longer fits is due, or when `linger_ms` is over. After `batch_size` bytes
    the partition changes at random, as Kafka's default partitioner does (KIP-794).

    Attributes:
        opened: index of the open batch's first record, so also the records sealed so far.
        section: what the open batch takes its records from; the next one the one after it.
        full_records: as many as fit into the open batch.
        full_s: when the first record that no longer fits into the open batch is due.
        ready_s: when the open batch is to be sent: full, or lingered long enough.
        scheduled_s: when the event loop looks at this producer next.
        buffered_bytes: size of the full batches that wait for room.
        blocked: `buffer_memory` is used up, so nothing is added until a broker takes some.
        held: partitions to which nothing can simply be sent, because a batch failed or the
            leader's connection is lost.
        identity: of an idempotent producer.
    """

    __slots__ = (
        "_batch_size",
        "_first_due_s",
        "_linger_s",
        "_partition_bytes",
        "_partitions",
        "_rng",
        "_schedule",
        "blocked",
        "buffered_bytes",
        "client_id",
        "connections",
        "full_records",
        "full_s",
        "held",
        "identity",
        "index",
        "opened",
        "partition",
        "ready_s",
        "scheduled_s",
        "section",
    )

    def __init__(
        self,
        index: int,
        pattern: ProducerPattern,
        section: Section,
        partitions: range,
        schedule: Schedule,
        client_id: str = "",
        identity: Identity | None = None,
    ) -> None:
        self.index = index
        self.section = section
        self.connections: dict[int, Connection] = {}
        self.opened = 0
        self.buffered_bytes = 0
        self.blocked = False
        self.client_id = client_id
        self.identity = identity
        self.held: dict[int, Lane] = {}
        self._schedule = schedule
        self._linger_s = pattern.linger_ms / 1000.0
        self._batch_size = pattern.batch_size
        self._partitions = partitions
        self._rng = random.Random(f"{pattern.payload_seed}/producer/{index}")
        self._partition_bytes = 0
        self.partition = self._choose()
        self._open()
        self.scheduled_s = self.ready_s

    def due_s(self, record: int) -> float:
        """When this record is due."""
        return self._schedule.due_s(record)

    def records_by(self, at_s: float) -> int:
        """Records in the open batch at this time, at most a full batch, at least one."""
        return self.section.fitting(max(1, self._schedule.due_until(at_s) - self.opened))

    def records_due_between(self, from_s: float, to_s: float) -> int:
        """How many records are due in [from_s, to_s)."""
        return self._schedule.due_between(from_s, to_s)

    def seal(self, records: int) -> Batch:
        """Close the open batch after this many records and open the next one."""
        batch = Batch(self.partition, self.opened, records, self.section, self._first_due_s)
        self.opened += records
        self.section = self.section.following
        self._partition_bytes += batch.size
        if self._partition_bytes >= self._batch_size:
            self._partition_bytes = 0
            self.partition = self._choose()
        self._open()
        return batch

    def _choose(self) -> int:
        return self._rng.randrange(self._partitions.start, self._partitions.stop)

    def _open(self) -> None:
        due_s = self._schedule.due_s
        self.full_records = self.section.full_records
        self._first_due_s = due_s(self.opened)
        self.full_s = due_s(self.opened + self.full_records)
        self.ready_s = min(self.full_s, self._first_due_s + self._linger_s)
