"""Executors that lose their packets to one broker: the trial names it, and is not an overload."""

from __future__ import annotations

import math
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import pytest

from metrics.judging import validity
from metrics.trial.client import TaskReport
from search.model import Verdict
from tests.support.loaded_brokers import Load, LoadedBrokers, Route, TrialOutcome, loaded_testbed
from tests.support.patterns import producer_pattern
from tests.support.processes import after
from tests.support.relay import relay_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.together

PARTITIONS = {0: [1], 1: [2], 2: [3]}
ON_TWO = {0: [1], 1: [2]}
WITH_FOLLOWER = {0: [1, 2], 1: [3, 1]}
PRODUCERS = 6
# 40 requests/s of 10 kB, so each broker's part is 0.4 MB/s.
LOAD = producer_pattern(1_000, 200.0, linger_ms=50.0)
BROKER_BYTES_PER_S = PRODUCERS * 200.0 * 1_000 / len(PARTITIONS)
WARMUP_S, MEASURE_S = 1.0, 6.0


def trial(brokers: LoadedBrokers, *by_relay: int, **relay: Any) -> TrialOutcome:
    """A trial in which clients reach these brokers through such a relay."""
    with ExitStack() as stack:
        ways = {each: relay_to(brokers.addresses[each], **relay) for each in by_relay}
        found = {each: stack.enter_context(way) for each, way in ways.items()}
        route = Route({**brokers.addresses, **found})
        topic = stack.enter_context(brokers.topic(PARTITIONS, {}))
        return brokers.trial(
            topic, PARTITIONS, LOAD, PRODUCERS, MEASURE_S, WARMUP_S, route, drain_timeout_s=2.0
        )


def healthy_s(seconds: float) -> float:
    """Bytes that one broker gets in this time of load [B]."""
    return seconds * BROKER_BYTES_PER_S


@pytest.mark.parametrize(
    ("loss", "healthy"),
    [
        ("swallow", healthy_s(WARMUP_S + MEASURE_S / 2)),
        pytest.param("swallow", healthy_s(WARMUP_S / 2), marks=pytest.mark.long),
        pytest.param("swallow", healthy_s(WARMUP_S + MEASURE_S - 1.8), marks=pytest.mark.long),
        pytest.param("refuse", healthy_s(WARMUP_S + MEASURE_S / 2), marks=pytest.mark.long),
        pytest.param("refuse", healthy_s(WARMUP_S / 2), marks=pytest.mark.long),
    ],
)
def test_a_broker_that_executors_do_not_reach_is_named(
    brokers: LoadedBrokers, loss: Literal["swallow", "refuse"], healthy: float
) -> None:
    seen = trial(brokers, 2, healthy_bytes=healthy, loss=loss)
    reasons = {(each.indicator, each.broker_id): each for each in seen.judgement.reasons}
    assert seen.judgement.verdict is Verdict.INVALID, seen.judgement.reasons
    assert ("unreachable", 2) in reasons, seen.judgement.reasons
    assert "executors do not reach broker 2" in reasons["unreachable", 2].text
    assert {broker for rule, broker in reasons if rule == "unreachable"} == {2}
    counts = seen.evidence.client.counts
    accounts = counts.by_broker
    others = accounts[1].missing_records + accounts[3].missing_records
    # It exceeds the shortfall by records due before the window and acknowledged inside.
    assert accounts[2].missing_records + others > 0.9 * seen.evidence.client.shortfall_records
    lost = loss == "swallow" and healthy > healthy_s(WARMUP_S)
    ended = [w.produce.per_s or 0.0 for w in seen.evidence.brokers if w.broker_id == 2]
    assert not lost or ended[0] * MEASURE_S < accounts[2].requests


@pytest.mark.long
def test_a_relay_without_losses_does_not_change_the_verdict(brokers: LoadedBrokers) -> None:
    seen = trial(brokers, 2)
    assert seen.judgement.verdict is Verdict.SUSTAINED, seen.judgement.reasons
    assert max(each.silent_s for each in seen.evidence.client.counts.by_broker.values()) < 1.0


@pytest.mark.long
def test_a_shortfall_that_all_brokers_share_stays_an_overload(brokers: LoadedBrokers) -> None:
    seen = trial(brokers, 1, 2, 3, answers_bytes_per_s=math.inf, healthy_bytes=healthy_s(3.0))
    assert seen.judgement.verdict is Verdict.OVERLOADED, seen.judgement.reasons


@pytest.mark.long
def test_a_broker_that_is_silent_because_it_is_busy_is_an_overload(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: dict[str, object] = {"produce_handler_ms": {1: 1.0, 2: 1_000.0}}
    monkeypatch.setattr(validity, "SILENT_S", 0.5)
    with (
        loaded_testbed(
            "calibrated", spark._jvm, brokers=2, overrides=times, name="slow"
        ) as under_load,
        under_load.topic(ON_TWO, {}) as topic,
    ):
        seen = under_load.trial(
            topic, ON_TWO, LOAD, PRODUCERS, MEASURE_S, WARMUP_S, drain_timeout_s=2.0
        )
    assert seen.judgement.verdict is Verdict.OVERLOADED, seen.judgement.reasons
    account = seen.evidence.client.counts.by_broker[2]
    assert account.silent_s > 0.5 and account.missing_records > 0, "the broker was silent"


@pytest.mark.long
def test_a_leader_that_waits_for_its_follower_is_not_unreachable(spark: SparkSession) -> None:
    all_replicas = producer_pattern(1_000, 200.0, linger_ms=50.0, acks="all")
    with (
        loaded_testbed("default", spark._jvm, brokers=3, name="waiting") as under_load,
        under_load.topic(WITH_FOLLOWER, {}) as topic,
    ):

        def pausing(work: Load) -> list[TaskReport]:
            with (
                after(5.0, lambda: under_load.testbed.kill_broker(2, signal.SIGSTOP)),
                after(11.0, lambda: under_load.testbed.kill_broker(2, signal.SIGCONT)),
            ):
                return work()

        route = Route(under_load.addresses, pausing)
        seen = under_load.trial(
            topic, WITH_FOLLOWER, all_replicas, PRODUCERS, MEASURE_S, 2.0, route
        )
    account = seen.evidence.client.counts.by_broker[1]
    assert account.silent_s > 1.0 and account.missing_records > 0, "the broker was silent"
    assert "unreachable" not in {each.indicator for each in seen.judgement.reasons}
