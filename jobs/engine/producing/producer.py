"""State of one producer, of its connections, and of its muted partitions.

Full batches that wait for room on a connection.
"""

from __future__ import annotations

import itertools
import random
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence, Set

from jobs.engine.batches.sections import Section
from jobs.engine.producing.protocol import Batch, KeySpread, ProducerIdState
from jobs.engine.producing.schedule import EndingSchedule, Schedule, due_between
from jobs.engine.producing.transactions import Transactions
from metrics.traffic.clients import ProducerPattern, zipf_weights


class PendingBatches:
    """Full batches by partition, in the order of their records.

    A request holds at most one batch of each partition, and partitions take turns, as they do when
    Kafka's producer drains its accumulator. So two batches in a row for one partition, as the
    sticky partitioner makes them, do not keep requests half full.

    Attributes:
        queues: partition → its waiting batches, which are one at least; the next one in turn comes
            first. Each batch asks whether any wait, and does so here, without a call.
    """

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: OrderedDict[int, deque[Batch]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    @property
    def records(self) -> int:
        """Number of records in all waiting batches."""
        return sum(batch.records for queue in self.queues.values() for batch in queue)

    def append(self, batch: Batch) -> None:
        """Append a batch behind those of its partition."""
        queue = self.queues.get(batch.partition)
        if queue is None:
            queue = self.queues[batch.partition] = deque()
        queue.append(batch)

    def extend(self, batches: Iterable[Batch]) -> None:
        """Append batches in this order."""
        for batch in batches:
            self.append(batch)

    def take(self, count: int, size_bytes: int) -> list[Batch]:
        """Take batches for one request, one per partition.

        Args:
            count: number of batches at most.
            size_bytes: their total size at most, which a single batch may exceed.
        """
        queues, taken, size = self.queues, list[Batch](), 0
        for _ in range(min(count, len(queues))):
            partition, queue = queues.popitem(last=False)
            size += queue[0].size
            if taken and size > size_bytes:
                queues[partition] = queue
                queues.move_to_end(partition, last=False)
                break
            taken.append(queue.popleft())
            if queue:
                queues[partition] = queue
        return taken

    def take_overdue(self, due_before_s: float) -> list[Batch]:
        """Take the batches whose first record was due before this time."""
        overdue = []
        for partition, queue in list(self.queues.items()):
            while queue and queue[0].due_s < due_before_s:
                overdue.append(queue.popleft())
            if not queue:
                del self.queues[partition]
        return overdue


_CHOSEN_AT_ONCE = 64
"""Partitions that are drawn at once, which costs less than one by one."""


class Connection:
    """One producer's connection to one broker, as the delivery sees it.

    Attributes:
        broker: broker id.
        in_flight: unanswered requests, oldest first: time of sending, and batches; a metadata or
            coordinator request has no batches.
        pending: full batches that wait for room.
        waiting: muted partitions that wait for room to send a batch again.
        is_open: False while the connection is lost.
        is_congested: whether its socket has not taken all of the newest request yet.
        is_wanted: whether it is being opened again.
        has_successor: whether an open connection waits to replace it, as it was lost or its session
            ends soon; nothing more is sent over it.
    """

    __slots__ = (
        "broker",
        "has_successor",
        "in_flight",
        "is_congested",
        "is_open",
        "is_wanted",
        "max_in_flight",
        "pending",
        "producer",
        "waiting",
    )

    def __init__(self, broker: int, producer: Producer, max_in_flight: int) -> None:
        self.broker = broker
        self.producer = producer
        self.max_in_flight = max_in_flight
        self.in_flight: deque[tuple[float, list[Batch]]] = deque()
        self.pending = PendingBatches()
        self.waiting: list[MutedPartition] = []
        self.is_open = True
        self.is_congested = False
        self.is_wanted = False
        self.has_successor = False

    @property
    def has_room(self) -> bool:
        """True when another request may be sent now."""
        is_usable = self.is_open and not self.is_congested and not self.has_successor
        return is_usable and len(self.in_flight) < self.max_in_flight

    @property
    def waiting_partitions(self) -> list[int]:
        """Partitions with batches that were never sent and wait for room here."""
        open_batch = [self.producer.partition] if self.producer.waits_at is self else []
        return [*self.pending.queues, *open_batch]

    @property
    def awaits_answers(self) -> bool:
        """True when batches wait here because `max_in_flight` requests are unanswered."""
        is_full = len(self.in_flight) >= self.max_in_flight
        return is_full and self.is_open and not self.is_congested and self.has_waiting

    @property
    def has_waiting(self) -> bool:
        """True when batches or a successor wait for room here."""
        return (
            self.producer.waits_at is self
            or bool(self.waiting)
            or bool(self.pending.queues)
            or self.has_successor
        )


class Producer:
    """A producer: a schedule of records, and the open batch that they fill.

    Records gather in an open batch for one sticky partition. The batch is ready when the first
    record that no longer fits is due, or when `linger_ms` is over. After `batch_size` bytes the
    partition changes, at random as in Kafka's default partitioner (KIP-794), or in turn, each
    producer beginning with another one.

    Attributes:
        opened: index of the open batch's first record, which is the number of sealed records.
        section: the section of the open batch's records; the next batch takes the next section.
        waits_at: where the ready open batch waits: for room on a connection, with a muted
            partition, or for the next transaction; None while it does not wait.
        full_records: number of records that fit into the open batch.
        full_s: when the first record that no longer fits into the open batch is due.
        ready_s: when the open batch is ready: full, or lingered long enough.
        scheduled_s: when the delivery looks at this producer next.
        buffered_bytes: size of the batches that wait to be sent, for the first time or again.
        blocked: whether `buffer_memory` is used up, so that nothing is added until brokers take
            batches.
        muted: partitions that take no batches directly, because a batch failed or the connection
            to the leader is lost.
        id_state: state of an idempotent producer; None for others.
        transactions: state of transactions; None without them.
        spread: choice of a partition for each record; None where batches choose theirs.
        closed_loop: whether records are there whenever there is room, so that their times count
            from the sealing, and none is late.
    """

    __slots__ = (
        "_batch_size",
        "_first_due_s",
        "_linger_s",
        "_next_partition",
        "_partition_bytes",
        "_schedule",
        "blocked",
        "buffered_bytes",
        "closed_loop",
        "connections",
        "full_records",
        "full_s",
        "id_state",
        "index",
        "muted",
        "name",
        "opened",
        "partition",
        "ready_s",
        "scheduled_s",
        "section",
        "spread",
        "transactions",
        "waits_at",
    )

    def __init__(
        self,
        index: int,
        pattern: ProducerPattern,
        section: Section,
        partitions: range,
        schedule: Schedule,
        name: str = "",
        id_state: ProducerIdState | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        self.index = index
        self.section = section
        self.connections: dict[int, Connection] = {}
        self.opened = 0
        self.buffered_bytes = 0
        self.blocked = False
        self.waits_at: WaitingPlace | None = None
        self.name = name
        self.id_state = id_state
        self.transactions = transactions
        self.closed_loop = pattern.closed_loop
        self.muted: dict[int, MutedPartition] = {}
        self._schedule = schedule
        self._linger_s = pattern.options.linger_ms / 1000.0
        self._batch_size = pattern.options.batch_size
        self._next_partition = _sticky_partitions(pattern, partitions, index)
        self._partition_bytes = 0
        self.partition = next(self._next_partition)
        self.spread: KeySpread | None = None
        if pattern.options.sticky_partition == "keys":
            self.spread = KeySpread(pattern, partitions, index)
            self._batch_size = 0  # no batch is followed by another one for its partition
        self._open()
        self.scheduled_s = self.ready_s

    def due_s(self, record: int) -> float:
        """Time when this record is due."""
        return self._schedule.due_s(record)

    def records_by(self, at_s: float) -> int:
        """Number of records in the open batch at this time, from one to a full batch."""
        return self.section.fitting(max(1, self._schedule.due_until(at_s) - self.opened))

    def records_due_between(self, from_s: float, to_s: float) -> int:
        """Number of records due in [from_s, to_s)."""
        return due_between(self._schedule, from_s, to_s)

    def seal(self, records: int, now: float) -> Batch:
        """Seal the open batch with this many records, and open the next one."""
        since_s = now if self.closed_loop else self._first_due_s
        batch = Batch(self.partition, self.opened, records, self.section, since_s)
        self.opened += records
        self.section = self.section.following
        self._partition_bytes += batch.size
        if self._partition_bytes >= self._batch_size:
            self._partition_bytes = 0
            self.partition = next(self._next_partition)
        self._open()
        return batch

    def divide(
        self,
        records: int,
        now: float,
        leaders: Sequence[int],
        broker: int,
        taken: Set[int] = frozenset(),
    ) -> list[Batch]:
        """Seal the records of the open batch as one batch for each partition that gets some.

        The partitions are those that this broker leads, which always includes that of the open
        batch. Only for producers with a `spread`.

        Args:
            leaders: broker id that leads partition 0, 1, 2, …
            taken: partitions that have a batch in the request already.
        """
        spread = self.spread
        assert spread is not None, "batches choose their partitions"
        led = [
            each
            for each in spread.partitions
            if leaders[each] == broker and each not in self.muted and each not in taken
        ]
        batches = []
        for partition, share in spread.shares(records, led).items():
            self.partition = partition
            batches.append(self.seal(self.section.fitting(share), now))
        return batches

    def own_backlog(self, leader: int, end_s: float) -> int:
        """Number of records that were due and not sent, with no cause other than the generator.

        Args:
            leader: broker id that leads the open batch's partition.
        """
        connection = self.connections[leader]
        is_held = self.transactions is not None and self.transactions.is_ending
        if self.blocked or self.partition in self.muted or is_held:
            return 0
        if connection.pending or not connection.has_room or self.ready_s > end_s:
            return 0
        return self.records_due_between(self.due_s(self.opened), end_s)

    def withdraw(self) -> None:
        """Take back all records of a producer that has not begun."""
        self._schedule = EndingSchedule(self._schedule, 0)
        self._open()
        self.scheduled_s = self.ready_s

    def hold(self, schedule: Schedule) -> None:
        """Continue by another schedule, of which no record is due earlier.

        The delivery looks at the producer when it would have anyway.
        """
        self._schedule = schedule
        self._open()

    def buffer(self, batch: Batch) -> None:
        """Add a batch to those that wait to be sent."""
        self.buffered_bytes += batch.size

    def unbuffer(self, batch: Batch) -> None:
        """Remove a batch that is sent or given up from those that wait."""
        self.buffered_bytes -= batch.size

    def _open(self) -> None:
        due_s = self._schedule.due_s
        self.full_records = self.section.full_records
        self._first_due_s = due_s(self.opened)
        self.full_s = due_s(self.opened + self.full_records)
        self.ready_s = min(self.full_s, self._first_due_s + self._linger_s)


def _sticky_partitions(pattern: ProducerPattern, partitions: range, index: int) -> Iterator[int]:
    """The sticky partitions of the producer with this index, one after the other."""
    if pattern.options.sticky_partition == "round_robin":
        first = index % len(partitions)
        yield from itertools.cycle((*partitions[first:], *partitions[:first]))
    rng = random.Random(f"{pattern.seed}/producer/{index}")
    if pattern.options.partition_skew:
        weights = zipf_weights(len(partitions), pattern.options.partition_skew)
        while True:
            yield from rng.choices(partitions, weights, k=_CHOSEN_AT_ONCE)
    while True:
        yield rng.randrange(partitions.start, partitions.stop)


class MutedPartition:
    """One partition of one producer that takes no batches directly.

    Failed batches are sent again before all later ones, one at a time. So the order of a
    partition's records changes no more than `max_in_flight` allows, and the sequences of an
    idempotent producer stay in order.

    Attributes:
        pending: batches to send, in the order of their records: first those to send again, and
            then full ones that were never sent.
        under_way: the batch that was sent again and has no answer yet.
        not_before_s: earliest time of the next retry.
        scheduled_s: when the delivery looks at this partition next.
        turns: number of looks in a row without an open connection to the leader.
    """

    __slots__ = (
        "not_before_s",
        "partition",
        "pending",
        "producer",
        "scheduled_s",
        "turns",
        "under_way",
    )

    def __init__(self, producer: Producer, partition: int) -> None:
        self.producer = producer
        self.partition = partition
        self.pending: deque[Batch] = deque()
        self.under_way: Batch | None = None
        self.not_before_s = 0.0
        self.scheduled_s = 0.0
        self.turns = 0
        for connection in producer.connections.values():
            self.pending.extend(connection.pending.queues.pop(partition, ()))
            if producer.waits_at is connection and producer.partition == partition:
                producer.waits_at = self

    def put_back(self, batch: Batch) -> None:
        """Put back a failed batch, to be sent again."""
        if self.under_way is batch:
            self.under_way = None
        insort(self.pending, batch, key=lambda each: each.first)

    @property
    def again(self) -> list[Batch]:
        """The batches to send again."""
        return [batch for batch in self.pending if batch.trouble is not None]

    def take_overdue(self, due_before_s: float) -> list[Batch]:
        """Take out the batches whose first record was due before this time."""
        overdue = [b for b in self.pending if b.due_s < due_before_s]
        if overdue:
            self.pending = deque(b for b in self.pending if b.due_s >= due_before_s)
        return overdue


WaitingPlace = Connection | MutedPartition | Transactions
"""A place where batches wait: they have an attribute `pending`."""
