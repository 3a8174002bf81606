"""Full batches that wait for room on a connection."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from jobs.engine.producing.batch import Batch


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

    def take_partition(self, partition: int) -> deque[Batch]:
        """Take all batches of a partition."""
        return self.queues.pop(partition, deque())

    def clear(self) -> None:
        """Drop all batches."""
        self.queues.clear()

    def take_overdue(self, due_before_s: float) -> list[Batch]:
        """Take the batches whose first record was due before this time."""
        overdue = []
        for partition, queue in list(self.queues.items()):
            while queue and queue[0].due_s < due_before_s:
                overdue.append(queue.popleft())
            if not queue:
                del self.queues[partition]
        return overdue
