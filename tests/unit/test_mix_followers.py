"""Followers that fall behind in a mix whose parts have different replication factors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.loading import load
from jobs.runs.context_factory import _followers, _followers_of
from metrics.judging import followers
from metrics.judging.indicators import FollowersBehind
from metrics.planning.planted_rates import log_bytes_per_s
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import ClusterFacts
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.evidence import broker, client, evidence, goal, judged

MIX = str(Path(__file__).parents[1] / "data" / "mixes" / "three-parts.yaml")
DIFFERENT = ClusterFacts(followers=1.5, followers_of={"orders": 2, "clicks": 1, "logs": 0})


def part(acked: int, log_bytes: int | None, total: int | None = None) -> ClientWindow:
    """The account of a part, with what brokers acknowledged in the window and in all."""
    partitions = {0: acked if total is None else total}
    all_of_it = dict.fromkeys(("offered_records", "sent_records", "acked_records"), acked)
    own = client(**all_of_it, acked_by_partition=partitions, log_bytes=log_bytes)
    return replace(own, is_part=True)


PARTS = {
    "orders": part(1_000, 60_000_000),
    "clicks": part(5_000, 20_000_000),
    "logs": part(9, 20_000_000),
}
"""Of 100 MB, 60 need two followers and 20 one, so there are 1.4 in the mean."""


def seen(copied: float, parts: Any = None, **changes: Any) -> dict[str, Any]:
    """Two brokers that take 5 MB/s each, and copy so much of it as followers [B/s]."""
    windows = [
        broker(number, bytes_in_per_s=5e6, replication_bytes_in_per_s=copied / 2)
        for number in (1, 2)
    ]
    own = replace(client(), parts=PARTS if parts is None else parts)
    return {"seen": own, "brokers": windows, "cluster": DIFFERENT} | changes


def test_each_byte_needs_the_followers_of_its_part() -> None:
    found = evidence(**seen(14e6))
    assert found.followers == pytest.approx(1.4)
    lag = found.follower_lag
    assert lag is not None
    assert lag.wanted_bytes_per_s == pytest.approx(14e6)
    assert lag.copied_bytes_per_s == 14e6
    assert evidence(**seen(7e6)).follower_lag_growth_share == pytest.approx(0.5)


def test_only_the_bytes_of_the_window_count() -> None:
    """The orders stood still in half of the trial, not in its window."""
    parts = PARTS | {"orders": part(1_000, 120_000_000, total=2_000)}
    assert evidence(**seen(14e6, parts)).followers == pytest.approx(1.4)


@pytest.mark.parametrize(
    "parts",
    [
        PARTS | {"clicks": part(5_000, None)},
        {name: PARTS[name] for name in ("orders", "clicks")},
        {name: part(0, 0) for name in PARTS},
    ],
    ids=["library", "missing", "nothing"],
)
def test_without_the_bytes_of_each_part_the_lag_is_not_known(parts: Any) -> None:
    found = evidence(**seen(0.0, parts))
    assert found.followers == 0.0
    assert found.follower_lag is None


def test_a_lag_of_one_part_is_an_overload(snapshot: SnapshotAssertion) -> None:
    """The followers of the clicks stand still: 2 of 14 MB/s are not copied."""
    judgement = judged(**seen(12e6), unreplicated_records=5_000)
    (reason,) = judgement.reasons
    assert (judgement.verdict, reason.indicator) == (Verdict.OVERLOADED, followers.NAME)
    assert judgement.limited_by is Resource.REPLICATION
    assert "12.0 of the 14.0 MB/s" in reason.text
    assert reason.text == snapshot
    assert judged(**seen(14e6), unreplicated_records=5_000).verdict is Verdict.SUSTAINED


def test_without_differences_the_factor_counts_as_it_is() -> None:
    same = ClusterFacts(followers=1)
    assert evidence(**seen(10e6, cluster=same)).followers == 1
    assert evidence(**seen(10e6, cluster=same)).follower_lag_growth_share == 0.0


# --- the facts of a run -------------------------------------------------------------------


def test_the_mean_of_the_plan_is_over_the_bytes_that_it_writes() -> None:
    config = load("testbed", MIX, "default")
    assert _followers_of(config) == {"orders": 1, "clicks": 1, "images": 0}
    orders, clicks, images = config.workload.pattern(1).parts
    once = 40 * log_bytes_per_s(orders) + 5 * log_bytes_per_s(clicks)
    assert _followers(config) == pytest.approx(once / (once + 2 * log_bytes_per_s(images)))
    assert 0.9 < _followers(config) < 0.95
    equal = load("testbed", MIX, "default", ["workload.mix.images.topic.replication_factor=2"])
    assert (_followers_of(equal), _followers(equal)) == ({}, 1)
    plain = load("testbed", "demo", "default")
    assert (_followers_of(plain), _followers(plain)) == (
        {}, plain.workload.topic.replication_factor - 1,
    )  # fmt: skip


def test_the_lag_is_judged_where_any_part_has_followers() -> None:
    limits = goal().indicators
    assert FollowersBehind().is_on(limits, DIFFERENT)
    assert not FollowersBehind().is_on(limits, ClusterFacts(followers=0.0))
