"""Samples by JMX of a broker with 50,000 partitions of others: the calls, and their CPU time."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from metrics.sources.driver_jvm import DriverJvmSource
from metrics.sources.first_polls import take_first_polls
from metrics.sources.source import SAMPLE_PARTITION_S, SAMPLES_SHARE_MAX
from tests.bench.cpu import cpu_s
from tests.support.bare_jvm import bare_jvm
from tests.support.simulated_jmx import simulated_jmx

log = logging.getLogger(__name__)

pytestmark = pytest.mark.long

OTHERS = 50_000
SAMPLES = 20


def calls_of(others: int) -> tuple[int, float]:
    """Calls for attributes in some samples, and the least time between two samples [s]."""
    with (
        simulated_jmx(1, others=others) as brokers,
        bare_jvm() as (jvm, _),
        closing(DriverJvmSource(jvm, brokers.endpoints, 10.0)) as source,
    ):
        source.open()
        polls = take_first_polls(source)
        before, used_s = brokers.calls(), cpu_s(brokers.pid)
        for _ in range(SAMPLES):
            (sample,) = source.sample_all()
            assert sample.error is None
        used_s = cpu_s(brokers.pid) - used_s
        log.warning("%d partitions: %.1f ms of CPU a sample", others, 1e3 * used_s / SAMPLES)
        return brokers.calls() - before, polls.spared_s


def test_calls_do_not_grow_with_the_partitions_of_others() -> None:
    few, often_s = calls_of(0)
    many, spared_s = calls_of(OTHERS)
    assert many == few > 0
    # Gauges that count partitions cost a real broker more, so they are read less often.
    assert often_s == 0.0
    assert OTHERS * SAMPLE_PARTITION_S / spared_s == pytest.approx(SAMPLES_SHARE_MAX, rel=0.01)
