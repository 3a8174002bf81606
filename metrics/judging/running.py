"""The state of a running load. The state decides whether the load ends early and whether the load
may grow.

A slice is the time between two successive samples of a broker. The value of an indicator in a slice
is the value that a window of the same length would have (`search.early_stop`). This module also
judges the growth of the followers' lag, for slices and for whole windows.
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
"""Pairs (time since the start of the window [s], number of records that were acknowledged in this
time), oldest pair first."""


@dataclass(frozen=True)
class Slices:
    """The samples and counts of a running trial so far.

    Attributes:
        samples: samples of all brokers in any order, including samples from before the window.
        broker_ids: the ids of the brokers.
        window: planned start and end of the measured window [s since the epoch].
        interval_s: intended time between samples [s].
        acked: records acknowledged so far.
        offered_per_s: records that all producers together offer [1/s].
        cluster: facts about the cluster.
        groups: number of consumer groups that read during the load.
        replica_ends: end offsets of the replicas so far, or an empty sequence if brokers do not
            report end offsets.
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
    def _by_broker(self) -> dict[int, list[Span]]:
        start_s, end_s = self.window
        good, found = good_samples(self.samples), {}
        for broker_id in sorted(self.broker_ids):
            own = good.get(broker_id, [])
            inside = [sample for sample in own if start_s <= sample.at_s <= end_s]
            found[broker_id] = list(map(Span, pairwise(inside)))
        return found

    def of(self, broker_id: int) -> Sequence[Span]:
        """The slices of one broker so far."""
        return self._by_broker[broker_id]

    def means(self, name: str, read: Callable[[Span], float | None]) -> dict[str, list[float]]:
        """`name/broker id` → the known values that `read` returns for the broker's slices."""
        return {
            f"{name}/{broker_id}": [each for each in map(read, spans) if each is not None]
            for broker_id, spans in self._by_broker.items()
        }


@dataclass(frozen=True)
class EarlyEvidence:
    """The values of an indicator in a running trial. See `search.early_stop.Progress`."""

    means: Mapping[str, Sequence[float]] = field(default_factory=dict)
    shares: Mapping[str, tuple[Sequence[bool], float]] = field(default_factory=dict)
    stocks: Mapping[str, Sequence[float]] = field(default_factory=dict)


FOLLOWER_LAG = "follower_lag"

EDGE_S = 0.5
"""Lag that readings show at a window's edges although no follower falls behind, because followers
copy in steps [s]."""
ONE_FOLLOWER = 0.5
"""A broker counts as lagging if it fails to copy more than this share of the records that it has to
copy [ratio]. In a large cluster, this share of the records of one broker is a smaller number of
records than the share `follower_lag_growth_max` of the records of all brokers.
"""
SHARE_LEAST = 0.01
"""Smallest growth of the lag, as a share of the load, that exceeds the variation of the readings
[ratio].
"""


def share_max(limits: Indicators, brokers: int) -> float:
    """The highest allowed growth of the followers' lag, as a share of the load [ratio].

    In a large cluster, the limit is lower than `follower_lag_growth_max`, so that the lag of a
    single broker can exceed the limit.
    """
    most = limits.follower_lag_growth_max
    assert most is not None, "the indicator is on"
    return min(most, max(SHARE_LEAST, ONE_FOLLOWER / max(1, brokers)))


def growth_max_s(limits: Indicators, brokers: int, window_s: float) -> float:
    """The highest allowed growth of the followers' lag in a window.

    The growth is stated as a time [s]: the number of records by which the lag grows, divided by the
    number of records that the load sends per second.
    """
    return max(EDGE_S, share_max(limits, brokers) * window_s)


def followers_behind(evidence: Evidence, limits: Indicators) -> FollowerLag | None:
    """The followers' lag if its growth exceeds the limit; otherwise None. The result is also None
    if the lag is unknown, or if the goal has no limit for the lag.
    """
    lag = evidence.follower_lag
    if limits.follower_lag_growth_max is None or lag is None:
        return None
    return lag if lag.behind_s > growth_max_s(limits, lag.followers, lag.duration_s) else None


def followers_reason(evidence: Evidence, limits: Indicators, lag: FollowerLag) -> Reason:
    """The reason for a lag beyond the limit, with the broker whose replicas lag most."""
    most = share_max(limits, lag.followers)
    text = (
        f"followers copied {lag.copied_records_per_s:,.0f} of the "
        f"{lag.wanted_records_per_s:,.0f} records/s that they have to copy: their lag grew by "
        f"{lag.share:.1%} of the load, above {most:.1%}{_watermark(evidence)} "
        f"(broker {lag.broker_id} lags most)"
    )
    return Reason(FOLLOWER_LAG, text, lag.share, most, lag.broker_id, Resource.REPLICATION)


def followers_unknown(limits: Indicators) -> Reason:
    """A note that the followers' lag is not known and does not count in the verdict."""
    text = (
        "not all brokers reported the end offsets of their replicas, so the followers' lag is "
        "not known; in this trial, only a change of the ISR shows that a follower falls behind"
    )
    assert limits.follower_lag_growth_max is not None, "the indicator is on"
    return Reason(
        FOLLOWER_LAG, text, 0.0, limits.follower_lag_growth_max, None, Resource.REPLICATION
    )


def _watermark(evidence: Evidence) -> str:
    """A phrase with the number of acknowledged records that were above the high watermark after the
    load.
    """
    records = evidence.unreplicated_records
    if not records:
        return ""
    return f"; after the load, the high watermark was {records:,} acknowledged records behind"


def followers_lag_so_far(slices: Slices, limits: Indicators) -> list[float]:
    """The growth of the followers' lag at the end of each slice, divided by the highest allowed
    growth of the window.

    A trial may end early as SUSTAINED if the growth is below half of the allowed growth. Readings
    may show a growth of `EDGE_S` although no follower falls behind. So the allowed growth is at
    least 2 × `EDGE_S`. The lag is assumed to grow evenly between two
    readings.
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
"""A growing load stops growing if it uses this share of the handler time that other clients leave
free [ratio]. The value is low, because one more step of the load may start before the reading of
the last step is known. The load stays below the limit even if one more step starts.
"""
OVERLOAD = 1.0
"""Utilization of the handlers at the goal's idle threshold [ratio]."""
SETTLE_S, LOOK_LEAST_S = 0.4, 0.9
"""`SETTLE_S` is the time from the start of a step to the start of the step's reading [s].
`LOOK_LEAST_S` is the shortest length of a reading [s]."""
LATE_S, LATE_COLD_S = 0.75, 2.0
"""Longest allowed wait of records for their acknowledgement, beyond the producers' linger: on warm
brokers, and on cold brokers [s]. If records wait longer than this value, the brokers do not keep up
with the load."""


class Climbing(Enum):
    """The next action of a growing load."""

    GO_ON = "grow further"
    STAY = "keep the number of producers"
    END = "end at once"


@dataclass(frozen=True)
class StepReading:
    """The reading of one step of a growing load.

    Attributes:
        idle: lowest idle fraction of any broker's request handlers [ratio], or None if the idle
            fraction is not known.
        waiting_s: number of records that should be acknowledged by now but are not, divided by the
            records that the step sends per second [s].
        late_s: highest allowed value of `waiting_s` [s].
        idle_at_rest: lowest idle fraction before the run, under the load of other clients [ratio].
    """

    idle: float | None
    waiting_s: float
    late_s: float = LATE_S
    idle_at_rest: float = 1.0

    def has_room(self, idle_min: float) -> bool:
        """Whether the handlers' idle time shows that the limit is far away.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        return self.idle is not None and self._used(idle_min) < ENOUGH

    def _used(self, idle_min: float) -> float:
        """Share of the handlers' free time that this load uses [ratio].

        The free time is the busy time that the goal's idle threshold allows, minus the time that
        other clients use. So the share is 1 at the goal's idle threshold. The share is 0 if the
        idle time is not known.
        """
        if self.idle is None:
            return 0.0
        used, at_rest = ((1.0 - each) / (1.0 - idle_min) for each in (self.idle, self.idle_at_rest))
        return own_utilization(used, at_rest)

    @property
    def is_short(self) -> bool:
        """Whether the brokers acknowledge fewer records than the load offers."""
        return self.waiting_s > self.late_s

    def next(self, idle_min: float) -> Climbing:
        """The next action of the load.

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
    """The lowest idle fraction of any broker's handlers [ratio].

    Args:
        from_s, to_s: start and end of the reading [s since the epoch].

    Returns:
        The lowest idle fraction, or None if the samples of a broker cover too short a time.
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
