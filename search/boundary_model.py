"""The costs of a batch and a byte for a broker, and the limit that they predict at a message size.

Brokers handle batches, not records: each takes a request, an append and perhaps a flush. Brokers
that spend `per_batch` of their time on a batch and `per_byte` on each byte sustain

    producers = brokers / (per_batch · batches/s + per_byte · bytes/s) of one producer,

a line that bends where both costs are equal, at per_batch / per_byte bytes per batch. The number
of batches that a producer sends per second at a message size follows from its rate, `linger.ms`
and `batch.size`. The bend is on a grid from 10 B to 1 MB, with equal steps and equal prior weights
in its logarithm, and weighted by the fit of the points. So one point already predicts the others,
with the spread that remains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from search.estimate import Prior

_BENDS = tuple(10.0 ** (1.0 + 5.0 * step / 40) for step in range(41))


@dataclass(frozen=True)
class ProducerRate:
    """The fixed rate of one producer, in exactly one unit [records/s] or [B/s].

    Attributes:
        linger_s: time that an unfilled batch waits for more records; 0 where every record is a
            batch of its own [s].
        batch_bytes: size of a full batch [B].
    """

    records_per_s: float | None = None
    bytes_per_s: float | None = None
    linger_s: float = 0.0
    batch_bytes: float = math.inf

    def __post_init__(self) -> None:
        if (self.records_per_s is None) == (self.bytes_per_s is None):
            raise ValueError(
                f"a producer's rate is records_per_s {self.records_per_s} and bytes_per_s "
                f"{self.bytes_per_s}; expected exactly one of them; leave out the other"
            )

    def records(self, message_bytes: int) -> float:
        """Records of `message_bytes` bytes that one producer sends [1/s]."""
        if self.records_per_s is not None:
            return self.records_per_s
        return (self.bytes_per_s or 0.0) / message_bytes

    def bytes(self, message_bytes: int) -> float:
        """Payload that one producer sends in records of `message_bytes` bytes [B/s]."""
        return self.records(message_bytes) * message_bytes

    def batches(self, message_bytes: int) -> float:
        """Batches that one producer sends while the brokers keep up [1/s]."""
        records = self.records(message_bytes)
        return records / max(
            1.0, min(int(records * self.linger_s) + 1, self.batch_bytes / message_bytes)
        )


@dataclass(frozen=True)
class Point:
    """A measured limit: `limit` producers at `bpm` bytes, known to `spread` [ratio]."""

    message_bytes: int
    limit: float
    spread: float


@dataclass(frozen=True)
class BoundaryModel:
    """The posterior of the bend, with the cost that belongs to each value.

    Attributes:
        rate: rate of one producer.
        brokers: number of brokers that share the load evenly.
        bends: (weight, bend [B per batch], broker-seconds per byte) of each bend on the grid;
            weights sum to 1.
        misfit: scatter of real points around such a line [σ, ratio].
    """

    rate: ProducerRate
    brokers: int
    bends: tuple[tuple[float, float, float], ...]
    misfit: float

    @property
    def per_byte_s(self) -> float:
        """Expected cost of a byte [s of one broker]."""
        return sum(weight * per_byte for weight, _, per_byte in self.bends)

    @property
    def per_batch_s(self) -> float:
        """Expected cost of a batch without its bytes [s of one broker]."""
        return sum(weight * per_byte * bend for weight, bend, per_byte in self.bends)

    def predict(self, message_bytes: int) -> tuple[float, float]:
        """The expected limit [producers] at a message size, and its spread [ratio]."""
        mean = square = 0.0
        for weight, bend, per_byte in self.bends:
            log_producers = math.log(
                self.brokers / (per_byte * _load_of_one(self.rate, message_bytes, bend))
            )
            mean += weight * log_producers
            square += weight * log_producers**2
        return math.exp(mean), math.sqrt(max(0.0, square - mean * mean) + self.misfit**2)

    def prior(self, message_bytes: int, points: int) -> Prior:
        """The prediction as a prior; `points` is the number of sizes that it is based on."""
        limit, spread = self.predict(message_bytes)
        sizes = "1 size" if points == 1 else f"{points} sizes"
        return Prior(max(1.0, limit), spread, f"costs fitted to {sizes}")


def fit(
    points: Sequence[Point], rate: ProducerRate, brokers: int, misfit: float = 0.05
) -> BoundaryModel | None:
    """Fit the two costs to measured limits, or None without any.

    Args:
        points: at least one; limits above zero.
        rate: rate of one producer.
        brokers: number of brokers that share the load evenly.
        misfit: expected scatter of real points around the line [σ, ratio].
    """
    if not points:
        return None
    scored = []
    for bend in _BENDS:
        weights = [1.0 / (point.spread**2 + misfit**2) for point in points]
        # ln per_byte that fits each point, given the bend.
        fitted = [
            math.log(brokers / (point.limit * _load_of_one(rate, point.message_bytes, bend)))
            for point in points
        ]
        total = sum(weights)
        center = sum(w * x for w, x in zip(weights, fitted, strict=True)) / total
        misses = sum(w * (x - center) ** 2 for w, x in zip(weights, fitted, strict=True))
        scored.append((-0.5 * misses, bend, math.exp(center)))
    best = max(score for score, _, _ in scored)
    total = sum(math.exp(score - best) for score, _, _ in scored)
    bends = tuple((math.exp(score - best) / total, bend, cost) for score, bend, cost in scored)
    return BoundaryModel(rate, brokers, bends, misfit)


def _load_of_one(rate: ProducerRate, message_bytes: int, bend: float) -> float:
    """Broker time that one producer takes, in units of the cost of a byte [B/s]."""
    return rate.batches(message_bytes) * bend + rate.bytes(message_bytes)
