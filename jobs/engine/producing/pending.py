"""Full batches that wait for room on a connection."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

from jobs.engine.producing.batch import Batch


class PendingBatches:
    """Full batches by partition, in the order of their records.

    A request holds at most one batch of each partition, and partitions take turns, as they do when
    Kafka's producer drains its accumulator. So two batches in a row for one partition, as the
    sticky partitioner makes them, do not keep requests half full.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: OrderedDict[int, deque[Batch]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def records(self) -> int:
        """Number of records in all waiting batches."""
        return sum(batch.records for queue in self._queues.values() for batch in queue)

    @property
    def partitions(self) -> Collection[int]:
        """Partitions with waiting batches; the next one in turn comes first."""
        return self._queues.keys()

    def append(self, batch: Batch) -> None:
        """Append a batch behind those of its partition."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = deque()
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
        queues, taken, size = self._queues, list[Batch](), 0
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
        return self._queues.pop(partition, deque())

    def clear(self) -> None:
        """Drop all batches."""
        self._queues.clear()

    def take_overdue(self, due_before_s: float) -> list[Batch]:
        """Take the batches whose first record was due before this time."""
        overdue = []
        for partition, queue in list(self._queues.items()):
            while queue and queue[0].due_s < due_before_s:
                overdue.append(queue.popleft())
            if not queue:
                del self._queues[partition]
        return overdue
