"""A follower whose disk is too slow is an overload before it leaves the ISR, beside others too."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jobs.config.planted_disk import PlantedDisk
from jobs.testbed.disk.devices import RATE_FILE, devices_below, planted_disk_problem
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.judging.followers import EDGE_S, behind
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.bench.sampling import bare_jvm
from tests.support.loaded_brokers import THRESHOLDS, LoadedBrokers, TrialOutcome, loaded
from tests.support.neighbors import Neighbor, steady
from tests.support.patterns import producer_pattern

log = logging.getLogger(__name__)
LACKING = planted_disk_problem(PlantedDisk("40MB/s"))
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]

LED_BY_ONE = {0: [1, 2], 1: [1, 2]}
PATTERN = producer_pattern(1_000, 500.0, linger_ms=100.0, batch_size=65_536)
PRODUCERS = 12
SLOW_BYTES_PER_S = 1_000_000
BESIDE = {"alone": 0, "others at RF 1": 1, "others at RF 3": 3}
"""Case → the replication factor of others that write as much as we do; 0 without others."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """Three brokers whose followers stay in the ISR for 30 s, as by default."""
    overrides: dict[str, object] = {
        "disk.write_rate": "40MB/s",
        "replica.lag.time.max.ms": 30_000,
    }
    with start("planted-disk", brokers=3, overrides=overrides, name="lagging") as running:
        yield running


@pytest.fixture(scope="module")
def brokers(testbed: Testbed) -> Iterator[LoadedBrokers]:
    with bare_jvm() as (jvm, _), loaded(testbed, jvm) as under_load:
        yield under_load


def outcome(
    brokers: LoadedBrokers, measure_s: float, properties: dict[str, str] | None = None
) -> TrialOutcome:
    with brokers.topic(LED_BY_ONE, properties or {}) as topic:
        found = brokers.trial(topic, LED_BY_ONE, PATTERN, PRODUCERS, measure_s, warmup_s=2.0)
    evidence = found.evidence
    log.warning(
        "%g s: %s, grew by %.3f of the load; others %s, %s records above the high watermark, ISR "
        "%s, MaxLag %s: %s %s",
        measure_s,
        evidence.follower_lag,
        evidence.follower_lag_growth_share or 0.0,
        evidence.others and evidence.others.bytes_per_s,
        evidence.unreplicated_records,
        [each.isr_changed_share for each in evidence.brokers],
        [each.replica_lag_max_records for each in evidence.brokers],
        found.judgement.verdict.value,
        [each.text for each in found.judgement.reasons],
    )
    return found


def test_a_slow_follower_is_an_overload_in_any_window_beside_any_others(
    brokers: LoadedBrokers, testbed: Testbed
) -> None:
    ours_per_s = 1_000 * 500.0 * PRODUCERS / 1_000 / 16.0  # requests of 16 kB
    for replicas in BESIDE.values():
        with ExitStack() as stack:
            if replicas:
                stack.enter_context(Neighbor(testbed, steady(ours_per_s), replicas))
            keeping_up = outcome(brokers, 5.0)
        lag = keeping_up.evidence.follower_lag
        assert lag is not None and lag.behind_s < EDGE_S
        assert behind(keeping_up.evidence, THRESHOLDS.indicators) is None
    again = outcome(brokers, 5.0, {"compression.type": "gzip"}).evidence.follower_lag
    assert again is not None and again.behind_s < EDGE_S
    slow, *_ = devices_below(testbed.folder / "broker-2")
    with Neighbor(testbed, steady(ours_per_s), replicas=3) as others:
        deadline_s = time.monotonic() + 30.0
        while others.sent < ours_per_s:
            assert time.monotonic() < deadline_s, "others do not write"
            time.sleep(0.1)
        RATE_FILE.write_text(f"{slow.number} {SLOW_BYTES_PER_S}", encoding="ascii")
        beside = outcome(brokers, 10.0)
    named = behind(beside.evidence, THRESHOLDS.indicators)
    assert named is not None and named.broker_id == 2
    assert beside.evidence.others is not None and beside.evidence.others.is_notable
    for measure_s in (5.0, 55.0):
        found = outcome(brokers, measure_s)
        assert found.judgement.verdict is Verdict.OVERLOADED, found.judgement.reasons
        (reason,) = [r for r in found.judgement.reasons if r.indicator == "follower_lag"]
        assert reason.broker_id == 2
        assert found.judgement.limited_by in (Resource.REPLICATION, Resource.DISK)
        assert (found.evidence.unreplicated_records or 0) > 0 or measure_s > 30.0
