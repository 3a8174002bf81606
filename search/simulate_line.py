"""A simulated cluster with a boundary line: a capacity for every message size."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from search.boundary_model import ProducerRate
from search.line import FinishedPoint, Line
from search.lines import run_line
from search.model import Searcher
from search.simulate import Clock, ClusterSpec, SimulatedCluster, SimulatedEnd, run_on


@dataclass(frozen=True)
class LineSpec:
    """A cluster whose brokers spend time on batches and on bytes.

    Attributes:
        brokers: number of brokers that share the load evenly.
        rate: rate of one producer.
        per_batch_s: cost of a batch [s of one broker].
        per_byte_s: cost of a byte [s of one broker].
        misfit: scatter of the sizes around the line of these costs [σ, ratio].
        behavior: noise and the other properties; its capacity is replaced.
    """

    brokers: int
    rate: ProducerRate
    per_batch_s: float
    per_byte_s: float
    misfit: float
    behavior: ClusterSpec

    def capacity(self, message_bytes: int) -> float:
        """The limit at a message size without misfit [producers]."""
        rate = self.rate
        cost_s = self.per_batch_s * rate.batches(message_bytes) + self.per_byte_s * rate.bytes(
            message_bytes
        )
        return self.brokers / cost_s


class SimulatedLine:
    """One simulated cluster at any message size, on one clock.

    Args:
        spec: behavior of the cluster.
        seed: seed of all random numbers; each size always has the same cluster.
    """

    def __init__(self, spec: LineSpec, seed: int) -> None:
        self.spec = spec
        self.seed = seed
        self.clock = Clock()
        self._phase = random.Random(seed).uniform(0.0, 2 * math.pi)
        self._clusters: dict[int, SimulatedCluster] = {}

    def cluster(self, message_bytes: int) -> SimulatedCluster:
        """The cluster at a message size [B]."""
        if message_bytes not in self._clusters:
            own = random.Random(self.seed * 1_000_003 + message_bytes)
            away = math.exp(self.spec.misfit * own.gauss(0.0, 1.0))
            behavior = replace(
                self.spec.behavior, capacity=self.spec.capacity(message_bytes) * away
            )
            self._clusters[message_bytes] = SimulatedCluster(
                behavior, own.getrandbits(32), self.clock, self._phase
            )
        return self._clusters[message_bytes]


def run_line_on(line: Line, simulated: SimulatedLine) -> list[tuple[FinishedPoint, SimulatedEnd]]:
    """Measure a line on a simulated cluster."""
    spent_s: dict[int, float] = {}
    begun: list[tuple[int, float]] = []

    def end() -> None:
        if begun:
            message_bytes, begin_s = begun.pop()
            own_s = simulated.clock.now_s - begin_s
            spent_s[message_bytes] = spent_s.get(message_bytes, 0.0) + own_s

    def measurer_for(message_bytes: int) -> SimulatedCluster:
        end()
        begun.append((message_bytes, simulated.clock.now_s))
        return simulated.cluster(message_bytes)

    points = run_line(line, measurer_for)
    end()
    return [
        (
            point,
            SimulatedEnd(
                point.result,
                len(point.history),
                spent_s[point.message_bytes],
                simulated.cluster(point.message_bytes).true_limit,
                simulated.cluster(point.message_bytes).limit_now,
            ),
        )
        for point in points
    ]


def run_sizes_on(
    make_searcher: Callable[[], Searcher], sizes: Sequence[int], simulated: SimulatedLine
) -> list[SimulatedEnd]:
    """Measure every size on its own, with a new searcher without neighbors."""
    outcomes = []
    for message_bytes in sizes:
        cluster = simulated.cluster(message_bytes)
        outcomes.append(run_on(make_searcher(), cluster, check_for_change=False))
        simulated.cluster(message_bytes).recover()
    return outcomes
