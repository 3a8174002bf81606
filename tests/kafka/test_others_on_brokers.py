"""Other clients during a trial: their writes are distinguished to the message and the byte."""

from __future__ import annotations

import pytest

from jobs.testbed.handle import Testbed
from search.model import Verdict
from tests.support.loaded_brokers import LoadedBrokers
from tests.support.neighbors import Neighbor, steady
from tests.support.patterns import producer_pattern

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
PATTERN = producer_pattern(1_000, 200.0, linger_ms=10.0)
LARGE_BYTES = 100_000


def test_writes_of_others_are_distinguished(brokers: LoadedBrokers, kafka_testbed: Testbed) -> None:
    with brokers.topic(REPLICAS, {}) as topic:
        alone = brokers.trial(topic, REPLICAS, PATTERN, producers=6, measure_s=3.0, warmup_s=1.0)
        with Neighbor(kafka_testbed, steady(10.0), record_bytes=LARGE_BYTES):
            beside = brokers.trial(
                topic, REPLICAS, PATTERN, producers=6, measure_s=3.0, warmup_s=1.0
            )
    without, others = alone.evidence.others, beside.evidence.others
    assert without is not None and without.bytes_per_s is not None
    assert without.messages_per_s == 0.0
    assert without.bytes_per_s == pytest.approx(0.0, abs=1.0)
    assert "others_loaded" not in {each.indicator for each in alone.judgement.reasons}
    assert others is not None and others.bytes_per_s is not None
    assert others.bytes_per_s / others.messages_per_s == pytest.approx(LARGE_BYTES, rel=0.02)
    assert beside.judgement.verdict is Verdict.INVALID
    (reason,) = [r for r in beside.judgement.reasons if r.indicator == "others_loaded"]
    assert "find and stop the clients that raised their load" in reason.text
