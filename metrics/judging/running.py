"""A running load: its slices, for the rules that may end it early, and whether it may grow.

A slice lies between two samples of a broker. The value of an indicator in a slice is the value
that a whole window of that length would have (`search.early_stop`). The growth of the followers'
lag is judged here for slices and whole windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise

from metrics.judging.thresholds import Indicators
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import (
    ClusterFacts,
    Evidence,
    FollowerLag,
    Reason,
    ReplicaEnds,
    follower_lags,
)
from metrics.windows.broker import Span, broker_window, good_samples
from metrics.windows.use import Resource
from search.signals import own_utilization

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


FOLLOWER_LAG = "follower_lag"

EDGE_S = 0.5
"""Lag that a window's edges can feign, as followers copy in steps [s]."""
ONE_FOLLOWER = 0.5
"""Share of one broker's part of all copies that may be missing; in a large cluster it is below the
limit of the whole [ratio]."""
SHARE_LEAST = 0.01
"""Smallest growth over the load that shows beyond the scatter of the readings [ratio]."""


def share_max(limits: Indicators, brokers: int) -> float:
    """The highest growth of the lag over the load [ratio]; so low that one broker is seen."""
    most = limits.follower_lag_growth_max
    assert most is not None, "the indicator is on"
    return min(most, max(SHARE_LEAST, ONE_FOLLOWER / max(1, brokers)))


def growth_max_s(limits: Indicators, brokers: int, window_s: float) -> float:
    """The highest growth of the lag in a window, as the time that the load takes for it [s]."""
    return max(EDGE_S, share_max(limits, brokers) * window_s)


def followers_behind(evidence: Evidence, limits: Indicators) -> FollowerLag | None:
    """The followers' lag where it grew beyond the limit; None elsewhere, and where it is not
    known.
    """
    lag = evidence.follower_lag
    if limits.follower_lag_growth_max is None or lag is None:
        return None
    return lag if lag.behind_s > growth_max_s(limits, lag.followers, lag.duration_s) else None


def followers_reason(evidence: Evidence, limits: Indicators, lag: FollowerLag) -> Reason:
    """The lag and its growth in words, with the broker that copied least."""
    most = share_max(limits, lag.followers)
    text = (
        f"followers copied {lag.copied_records_per_s:,.0f} of the "
        f"{lag.wanted_records_per_s:,.0f} records/s that they have to copy: their lag grew by "
        f"{lag.share:.1%} of the load, above {most:.1%}{_watermark(evidence)} "
        f"(broker {lag.broker_id} lacks most)"
    )
    return Reason(FOLLOWER_LAG, text, lag.share, most, lag.broker_id, Resource.REPLICATION)


def followers_unknown(limits: Indicators) -> Reason:
    """The caveat of a load whose followers' lag is not known, and so is no part of the verdict."""
    text = (
        "the followers' lag is not known, as not all brokers reported the end offsets of their "
        "replicas: only an ISR change shows a follower that falls behind"
    )
    assert limits.follower_lag_growth_max is not None, "the indicator is on"
    return Reason(
        FOLLOWER_LAG, text, 0.0, limits.follower_lag_growth_max, None, Resource.REPLICATION
    )


def _watermark(evidence: Evidence) -> str:
    """The records that the high watermark did not cover after the load."""
    records = evidence.unreplicated_records
    if not records:
        return ""
    return f"; after the load, the high watermark was {records:,} acknowledged records behind"


def followers_lag_so_far(slices: Slices, limits: Indicators) -> list[float]:
    """The growth of the lag at the end of each slice, over the highest of the whole window.

    A trial ends early as SUSTAINED below half of it, which is at least what edges can feign.
    Between two readings the lag grows evenly.
    """
    levels = [0.0]
    for each in follower_lags(slices.replica_ends, *slices.window):
        most_s = max(2 * EDGE_S, growth_max_s(limits, each.followers, slices.window_s))
        missing = round(each.duration_s / slices.interval_s) + 1 - len(levels)
        step = (each.behind_s / most_s - levels[-1]) / max(1, missing)
        for _ in range(missing):
            levels.append(levels[-1] + step)
    return levels[1:]


ENOUGH = 0.35
"""Utilization of what others leave, at which a reading shows where the limit lies [ratio]; one more
step may begin before the reading is known, and still lies below the limit."""
OVERLOAD = 1.0
"""Utilization of the handlers at the threshold of the goal [ratio]."""
SETTLE_S, LOOK_LEAST_S = 0.4, 0.9
"""The start of a step that a reading leaves out, and the shortest reading [s]."""
LATE_S, LATE_COLD_S = 0.75, 2.0
"""Records may wait for so long in addition to the producers' linger, on warm and on cold brokers;
beyond it, a step is too large [s]."""


class Climbing(Enum):
    """What a growing load does next."""

    GO_ON = "grow further"
    STAY = "stay at the producers that have begun"
    END = "end at once"


@dataclass(frozen=True)
class StepReading:
    """What a step shows so far.

    Attributes:
        idle: lowest idle fraction of the request handlers of any broker [ratio]; None where it is
            not known, or not yet.
        waiting_s: records that are due and not acknowledged, as seconds of the load of the step.
        late_s: how long records may wait [s].
        idle_at_rest: lowest idle fraction before the run, with the load of others alone [ratio].
    """

    idle: float | None
    waiting_s: float
    late_s: float = LATE_S
    idle_at_rest: float = 1.0

    def has_room(self, idle_min: float) -> bool:
        """Whether the handlers are used so little that the limit is far, as far as they show.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        return self.idle is not None and self._used(idle_min) < ENOUGH

    def _used(self, idle_min: float) -> float:
        """Share that the load takes of what others leave of the handlers, 1 at the threshold
        [ratio]; 0 where it is not known.
        """
        if self.idle is None:
            return 0.0
        used, at_rest = ((1.0 - each) / (1.0 - idle_min) for each in (self.idle, self.idle_at_rest))
        return own_utilization(used, at_rest)

    @property
    def is_short(self) -> bool:
        """Whether brokers take less than they are offered."""
        return self.waiting_s > self.late_s

    def next(self, idle_min: float) -> Climbing:
        """What the load does next.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        used = self._used(idle_min)
        if self.is_short or used >= OVERLOAD:
            return Climbing.END
        return Climbing.STAY if used >= ENOUGH else Climbing.GO_ON


def lowest_idle(
    samples: Sequence[BrokerSample], brokers: Iterable[int], from_s: float, to_s: float
) -> float | None:
    """The lowest idle fraction of any broker's handlers; None while a broker shows too little [s].

    Args:
        from_s, to_s: the time that counts [s since the epoch].
    """
    good, found = good_samples(samples), []
    for broker_id in brokers:
        inside = [each for each in good.get(broker_id, ()) if from_s <= each.at_s <= to_s]
        span_s = inside[-1].at_s - inside[0].at_s if inside else 0.0
        if span_s < LOOK_LEAST_S:
            return None
        first, last = inside[0], inside[-1]
        idle = broker_window((first, last), broker_id, first.at_s, last.at_s, span_s).handler_idle
        if idle is None:
            return None
        found.append(idle)
    return min(found, default=None)
