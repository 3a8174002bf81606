"""Accumulator of one task's producers: the waiting batches, and a heap of all scheduled actions."""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections import deque
from collections.abc import Sequence

from jobs.engine.producing.account import Account
from jobs.engine.producing.batch import Batch
from jobs.engine.producing.producer import NEVER, Connection, PartitionQueue, Producer
from jobs.engine.producing.transactions import Transactions
from metrics.traffic.clients import ProducerOptions

Timed = Producer | PartitionQueue | Transactions


class Accumulator:
    """The queues of all producers, and one heap of scheduled times.

    The heap has producers (for their open batches), muted queues (for their next attempt) and
    transactions (for their end or their next request). Times are on the engine's clock [s].

    Attributes:
        account: counts the outcome of every record in the measured window.
        leaders: ids of the brokers that lead partitions 0, 1, 2, …, as far as the producers know.
        timers: heap of (time, tie breaker, scheduled object, its producer); an entry is valid only
            while the object's `scheduled_s` equals this time.
        filling: connections that may send the next batches of their queues.
        muted: the muted queues of all producers.
        to_send_again: number of failed batches in the queues.
        is_open: whether batches that were never sent may be sent; False after the end of the load,
            when only failed batches are sent again.
        is_over: whether no batch may be sent any more.
    """

    def __init__(self, options: ProducerOptions, account: Account, leaders: Sequence[int]) -> None:
        self._memory = options.buffer_memory
        self._ties = itertools.count()  # because producers cannot be compared
        self.account = account
        self.leaders = list(leaders)
        self.timers: list[tuple[float, int, Timed, Producer]] = []
        self.filling: deque[Connection] = deque()
        self.muted: dict[PartitionQueue, None] = {}
        self.to_send_again = 0
        self.is_open = True
        self.is_over = False

    # --- times --------------------------------------------------------------

    def schedule(self, timed: Timed, producer: Producer, at_s: float) -> None:
        """Schedule a queue, a transaction or a producer for this time."""
        if timed.scheduled_s != at_s:
            timed.scheduled_s = at_s
            heapq.heappush(self.timers, (at_s, next(self._ties), timed, producer))

    def schedule_again(self, producer: Producer, now: float) -> None:
        """Schedule the producer, which is first in the heap, for its new `scheduled_s`."""
        if producer.scheduled_s >= self.account.window.load_end_s:
            heapq.heappop(self.timers)
            return
        if producer.scheduled_s < now:  # moved behind everything that waits already
            producer.scheduled_s = now
        again = (producer.scheduled_s, next(self._ties), producer, producer)
        heapq.heapreplace(self.timers, again)

    def await_open_batch(self, producer: Producer, now: float) -> None:
        """Schedule the producer for the time at which its open batch is ready."""
        is_due = producer.ready_s < self.account.window.load_end_s
        if self.is_open and is_due and not producer.blocked:
            producer.scheduled_s = NEVER
            self.schedule(producer, producer, max(producer.ready_s, now))

    def unblock(self, producer: Producer, now: float) -> None:
        """Unblock a blocked producer if its buffer has room again."""
        if producer.blocked and producer.buffered_bytes < self._memory:
            producer.blocked = False
            self.await_open_batch(producer, now)

    # --- queues -------------------------------------------------------------

    def queue_of(self, producer: Producer, partition: int, now: float) -> PartitionQueue:
        """The queue of a partition. A queue whose batches must not be sent yet is muted."""
        connection = producer.connections[self.leaders[partition]]
        queue = producer.queues.get(partition)
        if queue is None:
            queue = producer.queues[partition] = PartitionQueue(producer, partition, connection)
        if not queue.is_muted:
            transactions = producer.transactions
            is_admitted = transactions is None or partition in transactions.partitions
            if connection.is_open and is_admitted:
                connection.queues.setdefault(partition, queue)
            else:
                self.mute(queue, now)
        return queue

    def mute(self, queue: PartitionQueue, now: float) -> PartitionQueue:
        """Mute a queue, until its leader can take its batches."""
        queue.connection.queues.pop(queue.partition, None)
        if not queue.is_muted:
            queue.is_muted = True
            self.muted[queue] = None
            self.schedule(queue, queue.producer, now)
        return queue

    def unmute(self, queue: PartitionQueue) -> None:
        """Unmute a queue, so that it takes turns with other queues of its connection."""
        queue.is_muted, queue.scheduled_s = False, NEVER
        self.muted.pop(queue, None)
        queue.connection.queues[queue.partition] = queue
        self.filling.append(queue.connection)

    def drop(self, queue: PartitionQueue) -> None:
        """Remove an empty queue."""
        queue.scheduled_s = NEVER
        self.muted.pop(queue, None)
        queue.connection.queues.pop(queue.partition, None)
        del queue.producer.queues[queue.partition]

    def retry_soon(self, queue: PartitionQueue, now: float) -> None:
        """Schedule a muted queue for the end of its back-off."""
        queue.turns = 0
        self.schedule(queue, queue.producer, max(now, queue.not_before_s))

    def take(self, queue: PartitionQueue, batches: Sequence[Batch]) -> None:
        """Update the counts for batches that have left the queue."""
        for batch in batches:
            queue.producer.buffered_bytes -= batch.size
            self.to_send_again -= 1 if batch.trouble else 0

    def take_before(self, queue: PartitionQueue, before_s: float = NEVER) -> list[Batch]:
        """From this queue, take the batches that were due before this time; by default, take all
        batches.
        """
        taken = [batch for batch in queue.batches if batch.due_s < before_s]
        if taken:
            queue.batches = deque(batch for batch in queue.batches if batch.due_s >= before_s)
            self.take(queue, taken)
        return taken

    def put_back(self, queue: PartitionQueue, batch: Batch, not_before_s: float) -> None:
        """Put a failed batch back into its queue, to be sent again at `not_before_s` or later."""
        if queue.under_way is batch:
            queue.under_way = None
        insort(queue.batches, batch, key=lambda each: each.first)
        queue.producer.buffered_bytes += batch.size
        self.to_send_again += 1
        queue.not_before_s = not_before_s
        self.schedule(queue, queue.producer, not_before_s)

    def end_retry(self, producer: Producer, batch: Batch, now: float) -> None:
        """Schedule the queue of this batch now, if the queue waits for the answer to a retry of
        this batch.
        """
        queue = producer.queues.get(batch.partition)
        if queue is not None and queue.under_way is batch:
            queue.under_way = None
            queue.not_before_s = now
            self.schedule(queue, producer, now)

    def restart_sequence(self, producer: Producer, partition: int) -> None:
        """Begin a new sequence in this partition, because the current sequence is broken."""
        state, queue = producer.id_state, producer.queues.get(partition)
        if state is None:
            return
        state.start_again(partition)
        for batch in queue.again if queue is not None else ():
            state.renew(batch)

    def close(self, producer: Producer, now: float) -> int:
        """Drop the batches that were never sent; return their number."""
        dropped, producer.waits, producer.scheduled_s = 0, False, NEVER
        for queue in list(producer.queues.values()):
            again = queue.again
            dropped += len(queue.batches) - len(again)
            queue.batches = deque(again)
            if queue.is_muted:
                self.schedule(queue, producer, max(now, queue.not_before_s))
            else:
                self.drop(queue)
        return dropped

    def count_failed(self, producer: Producer, batch: Batch, error: str, now: float) -> None:
        """Count the records of a failed batch."""
        partition = batch.partition
        self.account.count_failed(
            producer.index, partition, error, batch.records, now, self.leaders[partition]
        )
