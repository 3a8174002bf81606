"""The indicator of followers that fall behind, which an ISR change shows only much later."""

from __future__ import annotations

from metrics.judging.slices import Edges, Slices
from metrics.judging.thresholds import Indicators
from metrics.trial.evidence import Evidence
from metrics.trial.follower_lag import FollowerLag
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource
from metrics.windows.spans import Span

NAME = "follower_lag"

EDGE_S = 0.5
"""Lag that a window's edges can feign: followers copy in steps, and brokers are sampled one after
the other [s]."""
ONE_FOLLOWER = 0.5
"""Share of one broker's part of all copies that may be missing; in a large cluster it is below the
limit of the whole [ratio]."""
SHARE_LEAST = 0.01
"""Smallest growth over the load that shows beyond the scatter of the counters [ratio]."""


def share_max(limits: Indicators, brokers: int) -> float:
    """The highest growth of the lag over the load [ratio]; so low that one broker is seen."""
    most = limits.follower_lag_growth_max
    assert most is not None, "the indicator is on"
    return min(most, max(SHARE_LEAST, ONE_FOLLOWER / max(1, brokers)))


def growth_max_s(limits: Indicators, brokers: int, window_s: float) -> float:
    """The highest growth of the lag in a window, as the time that the load takes for it [s]."""
    return max(EDGE_S, share_max(limits, brokers) * window_s)


def behind(evidence: Evidence, limits: Indicators) -> FollowerLag | None:
    """The followers' lag where it grew beyond the limit; None elsewhere.

    Brokers that compress batches again take fewer bytes as followers than as leaders. So the lag
    has to show in the high watermark after the load, or in the ISR, too.
    """
    lag = evidence.follower_lag
    if limits.follower_lag_growth_max is None or lag is None:
        return None
    if lag.behind_s <= growth_max_s(limits, len(evidence.brokers), lag.duration_s):
        return None
    shown = evidence.unreplicated_records or evidence.isr_changed_share
    return lag if shown else None


def reason(evidence: Evidence, limits: Indicators, lag: FollowerLag) -> Reason:
    """The lag and its growth in words, with the broker that copied least."""
    most = share_max(limits, len(evidence.brokers))
    text = (
        f"followers copied {lag.copied_bytes_per_s / 1e6:.1f} of the "
        f"{lag.wanted_bytes_per_s / 1e6:.1f} MB/s that they have to copy: their lag grew by "
        f"{lag.share:.1%} of the load, above {most:.1%}{_watermark(evidence)} "
        f"(broker {lag.broker_id} lacks most)"
    )
    return Reason(NAME, text, lag.share, most, lag.broker_id, Resource.REPLICATION)


def _watermark(evidence: Evidence) -> str:
    """The records that the high watermark did not cover after the load."""
    records = evidence.unreplicated_records
    if not records:
        return ""
    return f"; after the load, the high watermark was {records:,} acknowledged records behind"


def lag_so_far(slices: Slices, limits: Indicators) -> list[float]:
    """The growth of the lag at the end of each slice, over the highest of the whole window.

    A trial ends early as SUSTAINED below half of it, which is at least what edges can feign.
    """
    steps = [slices.of(broker_id) for broker_id in slices.broker_ids]
    followers = slices.cluster.followers
    found: list[float] = []
    for number in range(min(map(len, steps), default=0)):
        rates = [_rates((each[0][0], each[number][1])) for each in steps]
        written = followers * sum(wrote for wrote, _ in rates)
        copied = sum(took for _, took in rates)
        passed_s = Span((steps[0][0][0], steps[0][number][1])).duration_s
        most_s = max(2 * EDGE_S, growth_max_s(limits, len(steps), slices.window_s))
        share = 0.0 if written <= 0 else max(0.0, 1.0 - copied / written)
        found.append(share * passed_s / most_s)
    return found


def _rates(edges: Edges) -> tuple[float, float]:
    """What a broker took from producers and as a follower between two samples [B/s]."""
    span = Span(edges)
    return span.per_s("bytes_in") or 0.0, span.per_s("replication_bytes_in") or 0.0
