"""The indicator of followers that fall behind, which an ISR change shows only much later."""

from __future__ import annotations

from metrics.judging.slices import Slices
from metrics.judging.thresholds import Indicators
from metrics.trial.evidence import Evidence
from metrics.trial.follower_lag import FollowerLag, follower_lags
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource

NAME = "follower_lag"

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


def behind(evidence: Evidence, limits: Indicators) -> FollowerLag | None:
    """The followers' lag where it grew beyond the limit; None elsewhere, and where it is not
    known.
    """
    lag = evidence.follower_lag
    if limits.follower_lag_growth_max is None or lag is None:
        return None
    return lag if lag.behind_s > growth_max_s(limits, lag.followers, lag.duration_s) else None


def reason(evidence: Evidence, limits: Indicators, lag: FollowerLag) -> Reason:
    """The lag and its growth in words, with the broker that copied least."""
    most = share_max(limits, lag.followers)
    text = (
        f"followers copied {lag.copied_records_per_s:,.0f} of the "
        f"{lag.wanted_records_per_s:,.0f} records/s that they have to copy: their lag grew by "
        f"{lag.share:.1%} of the load, above {most:.1%}{_watermark(evidence)} "
        f"(broker {lag.broker_id} lacks most)"
    )
    return Reason(NAME, text, lag.share, most, lag.broker_id, Resource.REPLICATION)


def unknown(limits: Indicators) -> Reason:
    """The caveat of a load whose followers' lag is not known, and so is no part of the verdict."""
    text = (
        "the followers' lag is not known, as not all brokers reported the end offsets of their "
        "replicas: only an ISR change shows a follower that falls behind"
    )
    assert limits.follower_lag_growth_max is not None, "the indicator is on"
    return Reason(NAME, text, 0.0, limits.follower_lag_growth_max, None, Resource.REPLICATION)


def _watermark(evidence: Evidence) -> str:
    """The records that the high watermark did not cover after the load."""
    records = evidence.unreplicated_records
    if not records:
        return ""
    return f"; after the load, the high watermark was {records:,} acknowledged records behind"


def lag_so_far(slices: Slices, limits: Indicators) -> list[float]:
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
