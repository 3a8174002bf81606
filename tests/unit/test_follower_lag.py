"""Followers that fall behind are an overload long before they leave the ISR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.judging import followers
from metrics.judging.slices import Slices
from metrics.judging.thresholds import Indicators
from metrics.judging.verdict import progress_of
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.trial.follower_lag import FollowerLag, follower_lag
from metrics.trial.judgement import Judgement
from metrics.trial.others import OtherLoad
from metrics.windows.resource import Resource
from search.early_stop import StopRule
from search.model import Verdict
from tests.support.evidence import broker, client, evidence, goal, judged

FOLLOWED = ClusterFacts(followers=1)


def brokers(*rates: tuple[float, float]) -> list[Any]:
    """Windows of brokers by (bytes from producers, bytes copied as followers) [B/s]."""
    return [
        broker(number, bytes_in_per_s=wrote, replication_bytes_in_per_s=copied)
        for number, (wrote, copied) in enumerate(rates, 1)
    ]


HEALTHY = brokers((10e6, 10e6), (10e6, 10e6))
STALLED = brokers((20e6, 0.0), (0.0, 0.0))
"""Broker 1 leads all partitions, and broker 2 copies nothing."""


def judged_lag(windows: Sequence[Any], records: int | None = 5_000, **changes: Any) -> Judgement:
    return judged(
        brokers=windows, **{"cluster": FOLLOWED, "unreplicated_records": records} | changes
    )


def rules(judgement: Judgement) -> set[str]:
    return {each.indicator for each in judgement.reasons}


# --- the readings -----------------------------------------------------------


def test_the_lag_of_all_followers_is_what_leaders_took_and_they_did_not_copy() -> None:
    lag = follower_lag(brokers((10e6, 8e6), (10e6, 10e6)), 1, 10.0, 0.0)
    assert lag == FollowerLag(20e6, 18e6, 10.0, 1)
    assert lag.share == pytest.approx(0.1) and lag.behind_s == pytest.approx(1.0)
    two = follower_lag(brokers((10e6, 20e6), (10e6, 20e6)), 2, 10.0, 0.0)
    assert two is not None and two.share == 0.0


def test_what_others_write_needs_no_followers() -> None:
    lag = follower_lag(brokers((15e6, 10e6), (15e6, 10e6)), 1, 10.0, 10e6)
    assert lag is not None and lag.share == 0.0
    others = OtherLoad(1.0, 10e6, 1.0, 10e6, 2.0, 30e6)
    seen = evidence(brokers=brokers((15e6, 10e6), (15e6, 10e6)), cluster=FOLLOWED, others=others)
    assert seen.follower_lag_growth_share == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": ClusterFacts()},
        {"cluster": replace(FOLLOWED, offline=1)},
        {"cluster": replace(FOLLOWED, killed=2)},
        {"brokers": [broker(1, replication_bytes_in_per_s=None)]},
        {"brokers": []},
        {"brokers": brokers((0.0, 0.0), (0.0, 0.0))},
    ],
)
def test_there_is_no_lag_without_followers_or_their_readings(changes: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"brokers": STALLED, "cluster": FOLLOWED} | changes
    seen: Evidence = evidence(**parts)
    assert seen.follower_lag is None and seen.follower_lag_growth_share is None


# --- the verdict ------------------------------------------------------------


@pytest.mark.parametrize("duration_s", [5.0, 55.0])
def test_a_stalled_follower_is_an_overload_in_short_and_long_windows(
    duration_s: float, snapshot: SnapshotAssertion
) -> None:
    seen = client(end_s=client().start_s + duration_s)
    judgement = judged(
        seen,
        STALLED,
        cluster=replace(FOLLOWED, isr_window_s=45.0),
        unreplicated_records=9_000,
        any_isr_changed_share=0.0 if duration_s < 30 else 0.45,
        growth={0: 1_000},
    )
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = judgement.reasons
    assert (reason.indicator, reason.broker_id) == ("follower_lag", 2)
    assert judgement.limited_by is Resource.REPLICATION
    assert "9,000 acknowledged records behind" in reason.text
    assert reason.text == snapshot


def test_followers_that_keep_up_are_sustained() -> None:
    assert judged_lag(HEALTHY).verdict is Verdict.SUSTAINED
    assert judged_lag(brokers((10e6, 12e6), (10e6, 12e6))).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("share", "duration_s", "is_over"),
    [
        (0.049, 20.0, False),
        (0.051, 20.0, True),
        (0.09, 5.0, False),  # half a second of the load
        (0.11, 5.0, True),
    ],
)
def test_the_limit_is_a_share_of_the_load_and_more_than_the_edges_of_a_window(
    share: float, duration_s: float, is_over: bool
) -> None:
    copied = 10e6 * (1 - share)
    seen = client(end_s=client().start_s + duration_s)
    judgement = judged(
        seen,
        brokers((10e6, copied), (10e6, copied)),
        cluster=FOLLOWED,
        unreplicated_records=10,
    )
    assert ("follower_lag" in rules(judgement)) is is_over


def test_one_stalled_follower_of_a_large_cluster_is_beyond_the_limit() -> None:
    many = [(10e6, 10e6)] * 29 + [(10e6, 0.0)]
    seen = client(end_s=client().start_s + 40.0)
    judgement = judged(seen, brokers(*many), cluster=FOLLOWED, unreplicated_records=50)
    (reason,) = judgement.reasons
    assert (reason.indicator, reason.broker_id) == ("follower_lag", 30)
    assert reason.threshold == pytest.approx(0.5 / 30)
    assert followers.share_max(Indicators(), 1_000) == followers.SHARE_LEAST


def test_brokers_that_compress_again_are_no_lag() -> None:
    """They copy fewer bytes than producers wrote, and no record waits."""
    windows = brokers((10e6, 4e6), (10e6, 4e6))
    assert judged_lag(windows, records=0).verdict is Verdict.SUSTAINED
    assert judged_lag(windows, records=None).verdict is Verdict.SUSTAINED
    assert rules(judged_lag(windows, 0, any_isr_changed_share=0.1)) == {"follower_lag"}


def test_the_rule_can_be_switched_off() -> None:
    off = goal(follower_lag_growth_max=None)
    assert judged_lag(STALLED, thresholds=off).verdict is Verdict.SUSTAINED


# --- the high watermark -----------------------------------------------------


def test_a_high_watermark_that_waits_is_not_called_a_loss() -> None:
    waiting = judged_lag(STALLED, growth={0: 9_000}, thresholds=goal())
    assert waiting.verdict is Verdict.OVERLOADED and rules(waiting) == {"follower_lag"}


def test_records_that_are_missing_may_wait_for_followers(snapshot: SnapshotAssertion) -> None:
    judgement = judged_lag(HEALTHY, growth={0: 9_000})
    (reason,) = judgement.reasons
    assert judgement.verdict is Verdict.INVALID
    assert reason.indicator == "accounting_mismatch" and "high watermark" in reason.text
    assert reason.text == snapshot
    (alone,) = judged_lag(HEALTHY, growth={0: 9_000}, cluster=ClusterFacts()).reasons
    assert "high watermark" not in alone.text


# --- a running trial --------------------------------------------------------


def running(copied_share: float, seconds: int = 12, window_s: float = 24.0) -> Slices:
    """Slices of a window whose followers copy this share of the load."""
    samples = []
    for second in range(-1, seconds + 1):
        for broker_id in (1, 2):
            written = 10e6 * (second + 1)
            values = {
                "bytes_in": written,
                "replication_bytes_in": copied_share * written,
                HANDLER_IDLE_NS: 0.9e9 * (second + 1),
            }
            samples.append(BrokerSample(broker_id, 100.0 + second, values))
    acked = [(float(second), 1_000 * second) for second in range(1, seconds + 1)]
    return Slices(samples, (1, 2), (100.0, 100.0 + window_s), 1.0, acked, 1_000.0, FOLLOWED)


def test_a_running_trial_ends_early_where_followers_stall() -> None:
    stalled, healthy = running(0.3), running(1.0)
    levels = progress_of(stalled, goal()).stocks["follower_lag"]
    # 0.7 of the load for 12 s, of 5 % of 24 s.
    assert levels[-1] == pytest.approx(0.7 * 12 / (0.05 * 24))
    assert progress_of(healthy, goal()).stocks["follower_lag"] == [0.0] * 12
    assert StopRule().verdict(progress_of(stalled, goal())) is Verdict.OVERLOADED
    assert (
        "follower_lag" not in progress_of(replace(healthy, cluster=ClusterFacts()), goal()).stocks
    )


def test_what_the_edges_of_a_short_window_feign_does_not_keep_it_running() -> None:
    """A lag of 0.4 s of the load is below the 0.5 s that never count."""
    levels = progress_of(running(0.95, 8, 10.0), goal()).stocks["follower_lag"]
    assert levels[-1] == pytest.approx(0.05 * 8 / 1.0) and levels[-1] <= 0.5
