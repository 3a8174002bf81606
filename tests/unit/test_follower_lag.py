"""Followers that fall behind are an overload long before they leave the ISR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.judging.attribution import attribute
from metrics.judging.running import SHARE_LEAST, Slices, followers_behind, share_max
from metrics.judging.thresholds import Indicators
from metrics.judging.verdict import progress_of
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.sample import BrokerSample
from metrics.sources.source import ends_interval_s
from metrics.trial.evidence import ClusterFacts, FollowerLag, Judgement, ReplicaEnds, follower_lags
from metrics.windows.use import Resource
from search.early_stop import StopRule
from search.model import Verdict
from tests.support.evidence import broker, client, evidence, goal, judged, rules

FOLLOWED = ClusterFacts(followers=1)
WRITTEN_PER_S = 1_000
"""Records that leaders receive for each of two followers [1/s]."""


def readings(
    copied_share: float = 1.0,
    seconds: int = 20,
    took_s: float = 0.0,
    brokers: int = 2,
    behind: int = 0,
) -> list[ReplicaEnds]:
    """A reading a second of brokers, the last of which copies this share of what it has to.

    Args:
        behind: records that the last broker lacks before the load.
    """
    found = []
    for second in range(seconds + 1):
        written = dict.fromkeys(range(1, brokers + 1), WRITTEN_PER_S * second + 7)
        copied = written | {brokers: int(WRITTEN_PER_S * second * copied_share) + 7 - behind}
        found.append(ReplicaEnds(100.0 + second, took_s, written, copied))
    return found


def lag_of(*args: Any, **kwargs: Any) -> FollowerLag | None:
    found = follower_lags(readings(*args, **kwargs), 100.0, 1_000.0)
    return found[-1] if found else None


def judged_lag(lag: FollowerLag | None, **changes: Any) -> Judgement:
    seen = client(end_s=client().start_s + (lag.duration_s if lag else 20.0))
    return judged(seen, **{"cluster": FOLLOWED, "follower_lag": lag} | changes)


# --- the readings -----------------------------------------------------------


def test_the_lag_is_a_growth_between_readings() -> None:
    assert lag_of(0.8, 10) == FollowerLag(2_000.0, 1_800.0, 10.0, 0.0, 2, 2)
    for changes, behind_s in (
        ({"copied_share": 1.0, "behind": 500}, 0.0),  # from before the load
        ({"copied_share": 0.8, "seconds": 10, "took_s": 0.3}, 1.0 - 0.6),  # time of the answers
        ({"copied_share": 0.0, "seconds": 0}, None),  # one reading
        ({"copied_share": 0.0, "seconds": -1}, None),
    ):
        lag = lag_of(**changes)
        assert (lag.behind_s if lag else None) == pytest.approx(behind_s)
    still = [replace(each, written={2: 5}, copied={2: 5}) for each in readings()]
    assert not follower_lags(still, 100.0, 200.0)


# --- the verdict ------------------------------------------------------------


@pytest.mark.parametrize("duration_s", [5, 55])
def test_a_stalled_follower_is_an_overload_in_short_and_long_windows(
    duration_s: int, snapshot: SnapshotAssertion
) -> None:
    judgement = judged_lag(
        lag_of(0.0, duration_s),
        cluster=replace(FOLLOWED, isr_window_s=45.0),
        unreplicated_records=9_000,
        any_isr_changed_share=0.0 if duration_s < 30 else 0.45,
        growth={0: 1_000},
    )
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = judgement.reasons
    assert (reason.indicator, reason.broker_id) == ("follower_lag", 2)
    assert judgement.limited_by is Resource.REPLICATION
    assert reason.text == snapshot


def test_an_unknown_lag_is_a_caveat_and_no_overload(snapshot: SnapshotAssertion) -> None:
    judgement = judged_lag(None)
    assert judgement.verdict is Verdict.SUSTAINED
    (caveat,) = [each for each in judgement.reasons if each.indicator == "follower_lag"]
    assert caveat.text == snapshot
    assert "follower_lag" not in rules(judged_lag(None, cluster=ClusterFacts()))
    # A broker may report partitions that are under-replicated, and no ISR changes.
    lacking = broker(1, under_replicated_max=3.0, isr_changed_share=None)
    seen = evidence(brokers=[lacking], any_isr_changed_share=None, cluster=FOLLOWED)
    assert attribute(seen, goal()).resource is not Resource.REPLICATION


def test_the_limit_is_a_share_of_the_load_and_more_than_the_edges_of_a_window() -> None:
    for share, duration_s, is_over in (
        (0.049, 20, False),
        (0.051, 20, True),
        (0.09, 5, False),  # half a second of the load
        (0.11, 5, True),
    ):
        judgement = judged_lag(lag_of(1 - 2 * share, duration_s))
        assert ("follower_lag" in rules(judgement)) is is_over
    (reason,) = judged_lag(lag_of(0.0, 40, brokers=30)).reasons  # one of a large cluster
    assert (reason.indicator, reason.broker_id) == ("follower_lag", 30)
    assert reason.threshold == pytest.approx(0.5 / 30)
    assert share_max(Indicators(), 1_000) == SHARE_LEAST


def test_where_a_lag_counts() -> None:
    sustained, overloaded, stalled = Verdict.SUSTAINED, Verdict.OVERLOADED, lag_of(0.0)
    cases: list[tuple[FollowerLag | None, dict[str, Any], Verdict]] = [
        (lag_of(1.0), {}, sustained),  # followers keep up
        (stalled, {"cluster": replace(FOLLOWED, is_blind=True)}, overloaded),
        (stalled, {"thresholds": goal(follower_lag_growth_max=None)}, sustained),
        # An outage on purpose is not judged.
        (None, {"cluster": replace(FOLLOWED, offline=1)}, sustained),
        (None, {"cluster": replace(FOLLOWED, killed=2)}, sustained),
        # A high watermark that waits is not called a loss.
        (stalled, {"growth": {0: 9_000}}, overloaded),
    ]
    for lag, changes, verdict in cases:
        judgement = judged_lag(lag, **changes)
        assert judgement.verdict is verdict
        assert ("follower_lag" in rules(judgement)) is (verdict is overloaded)
        assert verdict is sustained or rules(judgement) == {"follower_lag"}


# --- the high watermark -----------------------------------------------------


def test_records_that_are_missing_may_wait_for_followers(snapshot: SnapshotAssertion) -> None:
    judgement = judged_lag(lag_of(1.0), growth={0: 9_000})
    (reason,) = judgement.reasons
    assert judgement.verdict is Verdict.INVALID
    assert reason.indicator == "accounting_mismatch"
    assert reason.text == snapshot
    (alone,) = judged_lag(lag_of(1.0), growth={0: 9_000}, cluster=ClusterFacts()).reasons
    assert "high watermark" not in alone.text


# --- a running trial --------------------------------------------------------


def running(
    copied_share: float, seconds: int = 12, window_s: float = 24.0, took_s: float = 0.0
) -> Slices:
    """Slices of a window whose second follower copies this share of the load."""
    samples = [
        BrokerSample(broker_id, 100.0 + second, {HANDLER_IDLE_NS: 0.9e9 * (second + 1)})
        for second in range(-1, seconds + 1)
        for broker_id in (1, 2)
    ]
    acked = [(float(second), 1_000 * second) for second in range(1, seconds + 1)]
    found = Slices(samples, (1, 2), (100.0, 100.0 + window_s), 1.0, acked, 1_000.0, FOLLOWED)
    return replace(found, replica_ends=readings(copied_share, seconds, took_s))


def test_a_running_trial_ends_early_where_followers_stall() -> None:
    def levels(of: Slices) -> Any:
        return progress_of(of, goal()).stocks.get("follower_lag")

    stalled, healthy = running(0.0), running(1.0)
    # Half of the load for 12 s, of 5 % of 24 s.
    assert levels(stalled)[-1] == pytest.approx(0.5 * 12 / (0.05 * 24))
    for every in (1, 3):  # between two readings the lag grows evenly
        slow, fast = (
            replace(of, replica_ends=of.replica_ends[::every]) for of in (stalled, healthy)
        )
        assert levels(fast) == [0.0] * 12
        assert StopRule().verdict(progress_of(slow, goal())) is Verdict.OVERLOADED
    assert levels(replace(stalled, replica_ends=())) is None
    assert levels(replace(healthy, cluster=ClusterFacts())) is None


def test_end_offsets_of_many_replicas_are_read_less_often() -> None:
    for replicas, every_s in ((90, 1.0), (3_000, 1.2), (90_000, 15.0)):
        assert ends_interval_s(replicas, 1.0, 60.0) == pytest.approx(every_s)


@given(
    share=st.floats(0.0, 1.0),
    seconds=st.integers(4, 60),
    window_s=st.integers(8, 60),
    took_s=st.floats(0.0, 0.4),
)
@settings(max_examples=200, deadline=None)
def test_an_early_end_and_the_window_that_it_leaves_agree(
    share: float, seconds: int, window_s: int, took_s: float
) -> None:
    """The verdict of a window that ends now is the one for which it may end."""
    seconds = min(seconds, window_s)
    progress = progress_of(running(share, seconds, window_s, took_s), goal())
    early = StopRule(first=4, every=1).verdict(progress)
    lag = lag_of(share, seconds, took_s)
    assert lag is not None
    is_over = followers_behind(evidence(follower_lag=lag), Indicators()) is not None
    if early is not None:
        assert is_over is (early is Verdict.OVERLOADED)
    if share == 1.0:
        assert not is_over
    if 0.5 * (1 - share) * seconds - 2 * took_s > max(0.51, 0.051 * seconds):
        assert is_over
