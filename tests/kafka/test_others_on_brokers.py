"""Other clients during a trial: their writes are distinguished to the message and the byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka import KafkaProducer

from jobs.testbed.handle import Testbed
from search.model import Verdict
from tests.support.loaded_brokers import LoadedBrokers
from tests.support.patterns import producer_pattern

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
PATTERN = producer_pattern(1_000, 200.0, linger_ms=10.0)
LARGE_BYTES = 100_000
PAUSE_S = 0.1


@contextmanager
def stranger(testbed: Testbed, topic: str) -> Iterator[None]:
    """A client that writes ten messages of 100 kB per second within this context."""
    producer = KafkaProducer(bootstrap_servers=list(testbed.bootstrap_servers))
    over = threading.Event()

    def write() -> None:
        while not over.wait(PAUSE_S):
            producer.send(topic, bytes(LARGE_BYTES)).get(timeout=30)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join()
        producer.close()


def test_writes_of_others_are_distinguished(brokers: LoadedBrokers, kafka_testbed: Testbed) -> None:
    with brokers.topic(REPLICAS, {}) as topic, brokers.topic(REPLICAS, {}) as others_topic:
        alone = brokers.trial(topic, REPLICAS, PATTERN, producers=6, measure_s=3.0, warmup_s=1.0)
        with stranger(kafka_testbed, others_topic):
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
    assert "find the other clients of this cluster" in reason.text
