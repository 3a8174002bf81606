"""A follower whose disk is too slow is an overload before it leaves the ISR, beside others too."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

from jobs.config.link import PlantedDisk
from jobs.testbed.handle import Testbed
from jobs.testbed.planted_devices import RATE_FILE, devices_below, planted_disk_problem
from metrics.judging.running import EDGE_S, followers_behind
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.loaded_brokers import THRESHOLDS, LoadedBrokers, TrialOutcome, loaded_testbed
from tests.support.neighbors import Neighbor, steady
from tests.support.patterns import producer_pattern

log = logging.getLogger(__name__)
RATE, USUAL_BYTES_PER_S, SLOW_BYTES_PER_S = "40MB/s", 40_000_000, 1_000_000
LACKING = planted_disk_problem(PlantedDisk(RATE))
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]

LED_BY_ONE = {0: [1, 2], 1: [1, 2]}
PATTERN = producer_pattern(1_000, 500.0, linger_ms=100.0, batch_size=65_536)
PRODUCERS = 12
OTHERS_BYTES = 64_000
OURS_PER_S = 1_000 * 500.0 * PRODUCERS / OTHERS_BYTES
"""Records of others that carry as much as we write [1/s]."""
BESIDE = {"alone": 0, "others at RF 1": 1, "others at RF 3": 3}
"""Case → the replication factor of others that write as much as we do; 0 without others."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[LoadedBrokers]:
    """Three brokers whose followers stay in the ISR for 30 s, as by default."""
    overrides = {"disk.write_rate": RATE, "replica.lag.time.max.ms": 30_000}
    options: dict[str, Any] = {"overrides": overrides, "name": "lagging"}
    with loaded_testbed("planted-disk", brokers=3, **options) as under_load:
        yield under_load


@contextmanager
def slow_disk(testbed: Testbed) -> Iterator[None]:
    """A disk of broker 2 that is slow within this context, and has its usual rate afterwards."""
    device, *_ = devices_below(testbed.folder / "broker-2")
    RATE_FILE.write_text(f"{device.number} {SLOW_BYTES_PER_S}", encoding="ascii")
    try:
        yield
    finally:
        RATE_FILE.write_text(f"{device.number} {USUAL_BYTES_PER_S}", encoding="ascii")


def outcome(
    brokers: LoadedBrokers,
    measure_s: float,
    properties: dict[str, str] | None = None,
    disk: AbstractContextManager[None] | None = None,
) -> TrialOutcome:
    with brokers.topic(LED_BY_ONE, properties or {}) as topic, disk or nullcontext():
        found = brokers.trial(topic, LED_BY_ONE, PATTERN, PRODUCERS, measure_s, warmup_s=2.0)
    evidence = found.evidence
    log.warning(
        "%g s: %s, others %s, MaxLag %s: %s %s",
        *(measure_s, evidence.follower_lag, evidence.others and evidence.others.bytes_per_s),
        *([each.replica_lag_max_records for each in evidence.brokers], found.judgement.verdict),
        [each.text for each in found.judgement.reasons],
    )
    return found


@contextmanager
def beside(testbed: Testbed, replicas: int) -> Iterator[None]:
    """Others that write as much as we do within this context; none without replicas."""
    with ExitStack() as stack:
        if replicas:
            others = stack.enter_context(
                Neighbor(testbed, steady(OURS_PER_S), replicas, record_bytes=OTHERS_BYTES)
            )
            deadline_s = time.monotonic() + 30.0
            while others.sent < OURS_PER_S:
                assert time.monotonic() < deadline_s, "others do not write"
                time.sleep(0.1)
        yield


@pytest.mark.parametrize("case", BESIDE)
def test_followers_that_keep_up_are_no_overload_beside_any_others(
    case: str, brokers: LoadedBrokers
) -> None:
    properties = {} if BESIDE[case] else {"compression.type": "gzip"}
    with beside(brokers.testbed, BESIDE[case]):
        found = outcome(brokers, 5.0, properties)
    lag = found.evidence.follower_lag
    assert lag is not None and lag.behind_s < EDGE_S
    assert followers_behind(found.evidence, THRESHOLDS.indicators) is None
    assert not [each for each in found.judgement.reasons if each.indicator == "follower_lag"]


@pytest.mark.parametrize(
    ("case", "measure_s"), [*((case, 8.0) for case in BESIDE), ("alone", 55.0)]
)
def test_a_slow_follower_is_named_in_any_window_beside_any_others(
    case: str, measure_s: float, brokers: LoadedBrokers
) -> None:
    with beside(brokers.testbed, BESIDE[case]):
        found = outcome(brokers, measure_s, disk=slow_disk(brokers.testbed))
    named = followers_behind(found.evidence, THRESHOLDS.indicators)
    assert named is not None and named.broker_id == 2
    if BESIDE[case]:  # they did not write before, which makes the trial INVALID
        assert found.evidence.others is not None and found.evidence.others.is_notable
        return
    assert found.judgement.verdict is Verdict.OVERLOADED, found.judgement.reasons
    (reason,) = [r for r in found.judgement.reasons if r.indicator == "follower_lag"]
    assert reason.broker_id == 2
    assert found.judgement.limited_by in (Resource.REPLICATION, Resource.DISK)
    assert (found.evidence.unreplicated_records or 0) > 0 or measure_s > 30.0
