"""Other clients beside a trial: what they write is told from ours, to the message and the byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from jobs.testbed.handle import Testbed
from search.model import Verdict
from tests.support.loaded_brokers import LoadedBrokers
from tests.support.patterns import producer_pattern

if TYPE_CHECKING:
    pass

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
OURS = producer_pattern(1_000, 200.0, linger_ms=10.0)
LARGE_BYTES = 100_000
PAUSE_S = 0.1


@contextmanager
def stranger(testbed: Testbed, topic: str) -> Iterator[None]:
    """A client that writes ten messages of 100 kB each second, while the block lasts."""
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


def test_what_others_write_is_told_from_ours(
    brokers: LoadedBrokers, kafka_testbed: Testbed
) -> None:
    with brokers.topic(REPLICAS, {}) as ours, brokers.topic(REPLICAS, {}) as theirs:
        alone = brokers.trial(ours, REPLICAS, OURS, producers=6, measure_s=4.0, warmup_s=1.0)
        with stranger(kafka_testbed, theirs):
            beside = brokers.trial(ours, REPLICAS, OURS, producers=6, measure_s=4.0, warmup_s=1.0)
    nobody, somebody = alone.evidence.others, beside.evidence.others
    assert nobody is not None and nobody.bytes_per_s is not None
    assert nobody.messages_per_s == 0.0
    assert nobody.bytes_per_s == pytest.approx(0.0, abs=1.0)
    assert "others_loaded" not in {each.indicator for each in alone.judgement.reasons}
    assert somebody is not None and somebody.bytes_per_s is not None
    assert somebody.bytes_per_s / somebody.messages_per_s == pytest.approx(LARGE_BYTES, rel=0.02)
    assert beside.judgement.verdict is Verdict.INVALID
    (reason,) = [r for r in beside.judgement.reasons if r.indicator == "others_loaded"]
    assert "find the other producers of this cluster" in reason.text
