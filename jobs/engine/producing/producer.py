"""State of one producer: its open batch, its queues per partition, and its connections."""

from __future__ import annotations

import itertools
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from jobs.engine.batches.sections import Section
from jobs.engine.network.sockets import Channel
from jobs.engine.network.transport import FrameReader
from jobs.engine.producing.batch import Batch, ProducerIdState
from jobs.engine.producing.protocol import ControlRequest, ProduceEncoder
from jobs.engine.producing.schedule import EndingSchedule, Schedule, due_between
from jobs.engine.producing.transactions import Transactions
from metrics.traffic.clients import ProducerPattern, zipf_weights

NEVER = float("inf")
"""The time of an object that is not scheduled."""

_CHOSEN_AT_ONCE = 64
"""Number of random partitions that are drawn in one call, because a call for each partition takes
longer."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Batches of one producer that wait for one partition, in the order of their records.

    A queue exists only while batches wait. A queue waits for the connection to its partition's
    leader. Unless the queue is muted, it takes turns with the other queues of this connection. A
    queue is muted if a batch failed, if the connection is lost, or if the partition must first be
    added to a transaction. A muted queue sends failed batches one at a time, before all later
    batches. The order of a partition's records therefore changes no more than `max_in_flight`
    allows. The sequences of an idempotent producer stay in order.

    Attributes:
        batches: first the failed batches, and then full batches that were never sent; the
            producer's open batch may wait after them.
        connection: the connection for which the queue last waited.
        is_muted: whether the queue sends only failed batches, one at a time.
        under_way: the failed batch that was sent again and is not acknowledged yet.
        not_before_s: earliest time of the next retry.
        scheduled_s: time at which `Delivery` next handles the queue; NEVER if no time is set.
        turns: number of consecutive attempts to send that found no open connection to the leader.
    """

    producer: Producer
    partition: int
    connection: Connection
    batches: deque[Batch] = field(default_factory=deque)
    is_muted: bool = False
    under_way: Batch | None = None
    not_before_s: float = 0.0
    scheduled_s: float = NEVER
    turns: int = 0

    @property
    def again(self) -> list[Batch]:
        """The failed batches, which are to be sent again."""
        return [batch for batch in self.batches if batch.trouble is not None]

    @property
    def is_empty(self) -> bool:
        """Whether neither full batches nor the open batch wait in this queue."""
        return not self.batches and not self.producer.waits_for(self.partition)


class Connection(Channel):
    """One producer's connection to one broker.

    `Delivery` uses the attributes from `broker` to `has_successor`. `NetworkClient` uses the
    attributes from `encoder` to `answered`.

    Attributes:
        broker: broker id.
        in_flight: unanswered requests, oldest first. An element is (time of the send, batches) for
            a produce request, and (time of the send, request) for a control request.
        queues: partition → queue that waits for its turn; queues with failed batches come first.
        is_open: False while the connection is lost.
        is_wanted: whether the connection is being opened again.
        has_successor: whether a new open connection waits to replace a connection that is lost or
            whose session ends soon. If `has_successor` is True, no more requests are sent over the
            old connection.
        encoder: encoder of the connection's produce requests.
        reader: splits the received bytes into responses.
        sent, answered: correlation ids of the last request that needs a response, and of the last
            response.
    """

    is_parsed_whole = True
    encoder: ProduceEncoder

    def __init__(self, broker: int, producer: Producer, max_in_flight: int) -> None:
        super().__init__()
        self.broker = broker
        self.producer = producer
        self.max_in_flight = max_in_flight
        self.in_flight: deque[tuple[float, list[Batch] | ControlRequest]] = deque()
        self.queues: OrderedDict[int, PartitionQueue] = OrderedDict()
        self.reset()

    def reset(self) -> None:
        """Begin with a new transport, over which no request was sent yet."""
        self.is_open = True
        self.is_wanted = self.has_successor = False
        self.reader = FrameReader()
        self.sent = self.answered = 0

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        is_usable = self.is_open and not self.unwritten and not self.has_successor
        return is_usable and len(self.in_flight) < self.max_in_flight

    @property
    def awaits_answers(self) -> bool:
        """Whether batches wait because `max_in_flight` requests are unanswered."""
        is_full = len(self.in_flight) >= self.max_in_flight
        return is_full and self.is_open and not self.unwritten and self.has_waiting

    @property
    def has_waiting(self) -> bool:
        """Whether batches wait to be sent over this connection, or a new connection waits to
        replace this connection.
        """
        return bool(self.queues) or self.has_successor

    @property
    def batches_in_flight(self) -> Iterator[Batch]:
        """The batches of all unanswered requests."""
        return (b for _, sent in self.in_flight if isinstance(sent, list) for b in sent)

    def drain(self, count: int, size_bytes: int) -> list[Batch]:
        """Take full batches for one request, one batch per partition.

        The function takes the partitions in turn, as Kafka's producer does. A request has at most
        one batch per partition, and the sticky partitioner often makes two consecutive batches for
        one partition. If the function began with the same partitions each time, requests would
        often be half full.

        Args:
            count: maximum number of batches.
            size_bytes: maximum total size of the batches [B]; a single batch may be larger.
        """
        queues, producer, taken, size = self.queues, self.producer, list[Batch](), 0
        for _ in range(len(queues)):
            partition, queue = queues.popitem(last=False)
            if queue.batches:
                size += queue.batches[0].size
                if len(taken) == count or (taken and size > size_bytes):
                    queues[partition] = queue
                    queues.move_to_end(partition, last=False)
                    break
                batch = queue.batches.popleft()
                producer.buffered_bytes -= batch.size
                taken.append(batch)
            if queue.is_empty:
                del producer.queues[partition]
            else:
                queues[partition] = queue
        return taken


class Producer:
    """A producer: a schedule of records, and the open batch for the next records.

    Records gather in an open batch for one sticky partition. The batch is ready when the next
    record does not fit any more, or at the end of `linger_ms`. After `batch_size` bytes, the
    producer changes to another sticky partition. By default, the producer chooses the next sticky
    partition at random, as Kafka's default partitioner does (KIP-794). With `round_robin`, the
    producer uses the partitions in turn. Successive producers then start at successive partitions.

    Kafka's producer adds a record with a key to the open batch of the key's partition. When the
    first of a broker's batches has waited for `linger.ms`, all open batches for this broker go into
    one request. In this class, the records of one linger time are divided at random over the
    partitions of one broker, as keys would divide them.

    Attributes:
        opened: index of the open batch's first record, which equals the number of sealed records.
        section: the encoded records of the open batch; the next batch uses the section that
            follows.
        queues: partition → queue of waiting batches.
        waits: whether the open batch is ready but cannot be sent yet. An open batch that waits is
            in the queue of its partition. While a transaction ends, an open batch waits for the
            next transaction.
        full_records: number of records that fit into the open batch.
        full_s: due time of the first record that does not fit into the open batch.
        ready_s: time at which the open batch is ready, because it is full or `linger_ms` is over.
        scheduled_s: time at which `Delivery` next handles the producer; NEVER if no time is set.
        buffered_bytes: size of the waiting batches, including failed batches [B].
        blocked: whether `buffer_memory` is used up, so that no record is added until brokers accept
            batches.
        id_state: state of an idempotent producer; None for other producers.
        transactions: state of the transactions; None without transactions.
        has_keys: whether a partition is chosen for each record; if not, a partition is chosen for
            each batch.
        closed_loop: whether records are available whenever there is room. In a closed loop, latency
            counts from the time at which the batch is sealed, and no record is late.
    """

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
        self.queues: dict[int, PartitionQueue] = {}
        self.opened = 0
        self.buffered_bytes = 0
        self.blocked = self.waits = False
        self.name = name
        self.id_state = id_state
        self.transactions = transactions
        self.closed_loop = pattern.closed_loop
        self.scheduled_s = NEVER
        self._schedule = schedule
        self._linger_s = pattern.options.linger_ms / 1000.0
        self._batch_size = pattern.options.batch_size
        self._partitions = partitions
        self._next_partition = _sticky_partitions(pattern, partitions, index)
        self._partition_bytes = 0
        self.partition = next(self._next_partition)
        self.has_keys = pattern.options.sticky_partition == "keys"
        if self.has_keys:
            self._keys = random.Random(f"{pattern.seed}/keys/{index}")
            self._weights = zipf_weights(len(partitions), pattern.options.partition_skew)
            self._batch_size = 0  # the partition changes after every batch
        self._open()

    def connect(self, brokers: Iterable[int], max_in_flight: int) -> None:
        """Add a connection to each broker."""
        self.connections = {each: Connection(each, self, max_in_flight) for each in brokers}

    def due_s(self, record: int) -> float:
        """Time at which this record is due."""
        return self._schedule.due_s(record)

    def records_by(self, at_s: float) -> int:
        """Number of records in the open batch at this time, from one record to a full batch."""
        return self.section.fitting(max(1, self._schedule.due_until(at_s) - self.opened))

    def records_due_between(self, from_s: float, to_s: float) -> int:
        """Number of records that are due in [from_s, to_s)."""
        return due_between(self._schedule, from_s, to_s)

    def seal(self, records: int, now: float) -> Batch:
        """Seal the open batch with `records` records, and open the next batch."""
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
        """Seal the records of the open batch as one batch per partition, for producers with keys.

        The records are divided over the partitions that this broker leads and that have no queue.
        One of the partitions is always the partition of the open batch.

        Args:
            leaders: ids of the brokers that lead partitions 0, 1, 2, …
            taken: partitions that already have a batch in the request.
        """
        led = [
            each
            for each in self._partitions
            if leaders[each] == broker and each not in self.queues and each not in taken
        ]
        weights = [self._weights[each - self._partitions.start] for each in led]
        batches = []
        for partition, share in Counter(self._keys.choices(led, weights, k=records)).items():
            self.partition = partition
            batches.append(self.seal(self.section.fitting(share), now))
        return batches

    def waits_for(self, partition: int) -> bool:
        """Whether the open batch is ready, and waits only for this partition."""
        is_held = self.transactions is not None and self.transactions.is_ending
        return self.waits and self.partition == partition and not is_held

    def own_backlog(self, leader: int, end_s: float) -> int:
        """Number of due records that are unsent only because the generator is late.

        Args:
            leader: id of the broker that leads the open batch's partition.
        """
        connection, queue = self.connections[leader], self.queues.get(self.partition)
        is_held = self.transactions is not None and self.transactions.is_ending
        if self.blocked or is_held or (queue is not None and queue.is_muted):
            return 0
        has_batches = any(each.batches for each in connection.queues.values())
        if has_batches or not connection.has_room or self.ready_s > end_s:
            return 0
        return self.records_due_between(self.due_s(self.opened), end_s)

    def withdraw(self) -> None:
        """Withdraw all records of a producer that has not begun."""
        self.hold(EndingSchedule(self._schedule, 0))
        self.scheduled_s = self.ready_s

    def hold(self, schedule: Schedule) -> None:
        """Continue with another schedule.

        `Delivery` still handles the producer at `scheduled_s`.

        Args:
            schedule: the new schedule, in which no record is due earlier than in the old schedule.
        """
        self._schedule = schedule
        self._open()

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
