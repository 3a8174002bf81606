"""A follower whose disk is too slow is an overload before it leaves the ISR."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from jobs.config.planted_disk import PlantedDisk
from jobs.testbed.disk.devices import RATE_FILE, devices_below, planted_disk_problem
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.judging.followers import EDGE_S
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.bench.sampling import bare_jvm
from tests.support.loaded_brokers import LoadedBrokers, TrialOutcome, loaded
from tests.support.patterns import producer_pattern

log = logging.getLogger(__name__)
LACKING = planted_disk_problem(PlantedDisk("40MB/s"))
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]

LED_BY_ONE = {0: [1, 2], 1: [1, 2]}
PATTERN = producer_pattern(1_000, 500.0, linger_ms=100.0, batch_size=65_536)
PRODUCERS = 12
SLOW_BYTES_PER_S = 1_000_000


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """Two brokers whose followers stay in the ISR for 30 s, as by default."""
    overrides: dict[str, object] = {
        "disk.write_rate": "40MB/s",
        "replica.lag.time.max.ms": 30_000,
    }
    with start("planted-disk", brokers=2, overrides=overrides, name="lagging") as running:
        yield running


@pytest.fixture(scope="module")
def brokers(testbed: Testbed) -> Iterator[LoadedBrokers]:
    with bare_jvm() as (jvm, _), loaded(testbed, jvm) as under_load:
        yield under_load


def outcome(brokers: LoadedBrokers, measure_s: float) -> TrialOutcome:
    with brokers.topic(LED_BY_ONE, {}) as topic:
        found = brokers.trial(topic, LED_BY_ONE, PATTERN, PRODUCERS, measure_s, warmup_s=2.0)
    evidence = found.evidence
    log.warning(
        "%g s: lag grew by %.3f of the load, %s records above the high watermark, ISR %s, MaxLag %s"
        ": %s %s",
        measure_s,
        evidence.follower_lag_growth_share or 0.0,
        evidence.unreplicated_records,
        [each.isr_changed_share for each in evidence.brokers],
        [each.replica_lag_max_records for each in evidence.brokers],
        found.judgement.verdict.value,
        [each.text for each in found.judgement.reasons],
    )
    return found


def test_a_slow_follower_is_an_overload_in_any_window(
    brokers: LoadedBrokers, testbed: Testbed
) -> None:
    keeping_up = outcome(brokers, 5.0)
    lag = keeping_up.evidence.follower_lag
    assert lag is not None and lag.behind_s < EDGE_S
    assert keeping_up.judgement.verdict is Verdict.SUSTAINED, keeping_up.judgement.reasons
    slow, _ = devices_below(testbed.folder / "broker-2")
    RATE_FILE.write_text(f"{slow.number} {SLOW_BYTES_PER_S}", encoding="ascii")
    for measure_s in (5.0, 55.0):
        found = outcome(brokers, measure_s)
        assert found.judgement.verdict is Verdict.OVERLOADED, found.judgement.reasons
        (reason,) = [r for r in found.judgement.reasons if r.indicator == "follower_lag"]
        assert reason.broker_id == 2
        assert found.judgement.limited_by in (Resource.REPLICATION, Resource.DISK)
        assert (found.evidence.unreplicated_records or 0) > 0 or measure_s > 30.0
