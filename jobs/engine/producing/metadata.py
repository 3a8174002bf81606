"""Leaders of the topics' partitions as one task knows them, and times of metadata requests."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from metrics.traffic.producer import ProducerOptions


class Metadata:
    """The leaders that all producers of a task share.

    Each producer would learn the same, and a cluster that has lost a broker should not have to
    answer all of them at once.

    Attributes:
        leaders: broker id that leads partition 0, 1, 2, …
    """

    def __init__(
        self, leaders: Sequence[int], brokers: Collection[int], options: ProducerOptions
    ) -> None:
        self.leaders = list(leaders)
        self._brokers = frozenset(brokers)
        self._interval_s = options.retry_backoff_ms / 1000.0
        self._next_request_s = 0.0

    def may_request(self, now: float) -> bool:
        """False while a request is in flight, and for `retry_backoff_ms` after its answer."""
        return now >= self._next_request_s

    def mark_requested(self) -> None:
        """Mark that a request is in flight, until its answer comes or its connection is lost."""
        self._next_request_s = math.inf

    def forget_request(self) -> None:
        """Forget a request whose connection is lost, so that the next one may be sent."""
        self._next_request_s = 0.0

    def update(self, leaders: Mapping[int, int], now: float) -> frozenset[int]:
        """Update the leaders, partition → leader; returns the partitions whose leader moved."""
        self._next_request_s = now + self._interval_s
        moved = set()
        for partition, leader in leaders.items():
            if leader in self._brokers and self.leaders[partition] != leader:
                self.leaders[partition] = leader
                moved.add(partition)
        return frozenset(moved)
