"""The planted limit of disks and of a link: the limit that follows from their stated rates.

A run compares its answer with it. Each record takes its part of a batch on the leader's disk and
on each follower's, and its part of a produce request on the link:

    producers = brokers x disk rate / (replicas x bytes in the log of one producer per second)
    producers = link rate / bytes of one producer's requests per second, packets' headers included

The formulas hold while every request carries one full batch and all brokers get the same share.
The log's indexes and pages that are written more than once are left out; they take about 1 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metrics.planning.wire_model import Assumptions, Framing, batch_bytes, wire_bytes
from metrics.traffic.pattern import TrafficPattern


@dataclass(frozen=True)
class PlantedRates:
    """The stated rates of the disks and the link of some brokers.

    Attributes:
        disk_bytes_per_s: write rate of each broker's disk [B/s]; None without planted disks.
        link_bytes_per_s: rate of the link in each direction, packets' headers included [B/s];
            None where the link has none.
        mtu_bytes: largest packet of the link [B].
    """

    disk_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    mtu_bytes: int = 9_000

    def producers(self, pattern: TrafficPattern, brokers: int) -> float | None:
        """The number of producers at which a disk or the link is full; None without a rate.

        Args:
            pattern: traffic whose producers offer a stated rate.
            brokers: number of brokers; each leads the same number of partitions.
        """
        limits = [self._of_disks(pattern, brokers), self._of_link(pattern)]
        return min((each for each in limits if each is not None), default=None)

    def scale(self, mix: TrafficPattern, brokers: int) -> float | None:
        """How many times a mix fills a disk or the link; None without a rate.

        Args:
            mix: the mix at scale 1.
            brokers: number of brokers; each leads the same number of partitions of each part.
        """
        limits = [
            [self._of_disks(each, brokers) for each in mix.loads],
            [self._of_link(each) for each in mix.loads],
        ]
        used = [
            sum(each.producers / most for each, most in zip(mix.loads, own, strict=True) if most)
            for own in limits
        ]
        return 1.0 / max(used) if max(used) else None

    def _of_disks(self, pattern: TrafficPattern, brokers: int) -> float | None:
        if self.disk_bytes_per_s is None:
            return None
        written = log_bytes_per_s(pattern) * pattern.topic.replication_factor
        return self.disk_bytes_per_s * brokers / written

    def _of_link(self, pattern: TrafficPattern) -> float | None:
        if self.link_bytes_per_s is None:
            return None
        framing = Framing(self.mtu_bytes, link_bytes=0)
        per_message = wire_bytes(pattern, framing, Assumptions()).produce_requests
        return self.link_bytes_per_s / (per_message * pattern.producer.rate_records_per_s)


def log_bytes_per_s(pattern: TrafficPattern) -> float:
    """Bytes that one producer adds to the logs of the leaders [B/s]; inf in a closed loop."""
    producer = pattern.producer
    if math.isinf(producer.rate_records_per_s):
        return math.inf
    return batch_bytes(producer) / producer.records_per_batch * producer.rate_records_per_s
