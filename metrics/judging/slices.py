"""A running trial as slices, for the rule that may end it early (`search.early_stop`).

A slice lies between two samples of a broker. The value of an indicator in a slice is the value
that a whole window of that length would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts
from metrics.trial.follower_lag import ReplicaEnds
from metrics.windows.spans import Span, good_samples

Acked = Sequence[tuple[float, int]]
"""(seconds into the window, records acknowledged in it so far), oldest first."""

Edges = tuple[BrokerSample, BrokerSample]


@dataclass(frozen=True)
class Slices:
    """The state of a running trial, as far as sampled.

    Attributes:
        samples: samples of all brokers, in any order, also from before the window.
        broker_ids: the ids of the brokers.
        window: planned start and end of the measured window [s since the epoch].
        interval_s: intended time between samples [s].
        acked: records acknowledged so far.
        offered_per_s: records that all producers together offer [1/s].
        cluster: facts about the cluster.
        groups: number of consumer groups that read while the producers write.
        replica_ends: end offsets of the replicas so far; empty where brokers do not report them.
    """

    samples: Sequence[BrokerSample]
    broker_ids: Sequence[int]
    window: tuple[float, float]
    interval_s: float
    acked: Acked
    offered_per_s: float
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    groups: int = 0
    replica_ends: Sequence[ReplicaEnds] = ()

    @property
    def window_s(self) -> float:
        """Length of the planned window [s]."""
        return self.window[1] - self.window[0]

    @property
    def planned(self) -> int:
        """Number of slices of the whole window."""
        return int(self.window_s / self.interval_s + 1e-9)

    @cached_property
    def _by_broker(self) -> dict[int, list[Edges]]:
        start_s, end_s = self.window
        good, found = good_samples(self.samples), {}
        for broker_id in sorted(self.broker_ids):
            own = good.get(broker_id, [])
            inside = [sample for sample in own if start_s <= sample.at_s <= end_s]
            found[broker_id] = list(pairwise(inside))
        return found

    def of(self, broker_id: int) -> Sequence[Edges]:
        """One broker's slices so far, each by its first and its last sample."""
        return self._by_broker[broker_id]

    def means(self, name: str, read: Callable[[Span], float | None]) -> dict[str, list[float]]:
        """The value that `read` gives for each slice, by `name/broker`; None is left out."""
        return {
            f"{name}/{broker_id}": [
                value for edges in slices if (value := read(Span(edges))) is not None
            ]
            for broker_id, slices in self._by_broker.items()
        }


@dataclass(frozen=True)
class EarlyEvidence:
    """The values of an indicator in a running trial; see `search.early_stop.Progress`."""

    means: Mapping[str, Sequence[float]] = field(default_factory=dict)
    shares: Mapping[str, tuple[Sequence[bool], float]] = field(default_factory=dict)
    stocks: Mapping[str, Sequence[float]] = field(default_factory=dict)
