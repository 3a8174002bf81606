"""Causes of INVALID that need separate brokers, or a client that cannot keep up.

test_guards_on_brokers.py has quotas, moved leaders and missing metrics, and test_load_on_spark.py
has a lost task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.judging.verdict import judge
from metrics.trial.evidence import Judgement
from search.model import Verdict
from tests.support.kafka_fixtures import QUICK
from tests.support.loaded_brokers import THRESHOLDS, LoadedBrokers, TrialOutcome, loaded
from tests.support.patterns import producer_pattern
from tests.support.processes import beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

REPLICAS = {0: [1, 2], 1: [2, 1]}
ALONE = {0: [1]}
MESSAGES = producer_pattern(1_000, 200.0, linger_ms=10.0)
TOO_MUCH = producer_pattern(100, 500_000.0, linger_ms=10.0, client="kafka-python")


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    root = tmp_path_factory.mktemp("invalid")
    with start(brokers=2, root=root, name="invalid", overrides=QUICK) as running:
        yield running


@pytest.fixture
def brokers(spark: SparkSession, testbed: Testbed) -> Iterator[LoadedBrokers]:
    with loaded(testbed, spark._jvm) as under_load:
        yield under_load


def causes(seen: TrialOutcome) -> set[str]:
    assert seen.judgement.verdict is Verdict.INVALID, seen.judgement.reasons
    return {reason.indicator for reason in seen.judgement.reasons}


def test_a_client_that_cannot_keep_up_is_not_an_overload(brokers: LoadedBrokers) -> None:
    with brokers.topic(ALONE, {}) as topic:
        seen = brokers.trial(topic, ALONE, TOO_MUCH, producers=1, measure_s=5.0)
    assert "generator_limited" in causes(seen)
    assert seen.judgement.limited_by is None


def test_records_of_another_client_make_a_trial_invalid(
    brokers: LoadedBrokers, testbed: Testbed
) -> None:
    with brokers.topic(ALONE, {}) as topic:
        seen = brokers.trial(topic, ALONE, MESSAGES, producers=1, measure_s=4.0, warmup_s=1.0)
        assert _judged(seen, brokers, topic).verdict is not Verdict.INVALID
        stranger = KafkaProducer(bootstrap_servers=list(testbed.bootstrap_servers))
        stranger.send(topic, b"of another client").get(timeout=30)
        stranger.close()
        judged = _judged(seen, brokers, topic)
    assert judged.verdict is Verdict.INVALID
    assert [reason.indicator for reason in judged.reasons] == ["accounting_mismatch"]
    assert "1 more than" in judged.reasons[0].text


def _judged(seen: TrialOutcome, brokers: LoadedBrokers, topic: str) -> Judgement:
    """The judgement with the current end offsets."""
    offsets = {partition: (0, end) for partition, end in brokers.end_offsets(topic, ALONE).items()}
    return judge(replace(seen.evidence, end_offsets=offsets), THRESHOLDS)


def test_a_broker_that_dies_and_comes_back(
    brokers: LoadedBrokers, testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    """The last test, as restarted brokers differ from those of the other tests."""
    # A kept log record refers to the error, and the error to kafka-python's lost socket.
    caplog.set_level(logging.CRITICAL, logger="kafka")

    def accident() -> None:
        threading.Event().wait(4.0)
        testbed.kill_broker(2)
        threading.Event().wait(5.0)
        testbed.restart_broker(2)

    with brokers.topic(REPLICAS, {}) as topic:
        with beside(accident):
            seen = brokers.trial(
                topic, REPLICAS, MESSAGES, producers=2, measure_s=20.0, warmup_s=2.0
            )
        found = causes(seen)
    assert "broker_fenced" in found, seen.judgement.reasons
    assert found & {"metrics_incomplete", "metrics_contradictory"}, seen.judgement.reasons
