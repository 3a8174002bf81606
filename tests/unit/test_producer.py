"""The schedule of a producer: due times and partitions of records."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.batches.sections import Section
from jobs.engine.clients.kafka_python import producer_options
from jobs.engine.consuming.group_member import group_options
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import EvenSchedule
from metrics.traffic.clients import (
    ConsumerOptions,
    ProducerOptions,
    exponent_of,
    largest_over_mean,
    zipf_weights,
)
from tests.support.patterns import plan, producer_pattern


def _producer(rate: float = 1_000.0, full: int = 16, index: int = 0, **options: Any) -> Producer:
    pattern = producer_pattern(1_000, rate, **options)
    ends = [1_000 * records for records in range(full + 1)]
    section, schedule = Section(b"", ends, ends), EvenSchedule(rate, 100.0)
    return Producer(index, pattern, section, range(30), schedule)


def test_a_full_batch_is_ready_when_the_next_record_is_due() -> None:
    for linger_ms, records in ((100.0, 16), (5.0, 6), (0.0, 1)):
        producer, begun_s = _producer(linger_ms=linger_ms), 100.0
        for _ in range(10):
            ready_s = begun_s + min(0.016, linger_ms / 1_000)
            assert producer.ready_s == pytest.approx(ready_s)
            assert producer.records_by(producer.ready_s) == records
            producer.seal(records, 0.0)
            begun_s += records / 1_000


@given(
    rate=st.floats(min_value=0.5, max_value=50_000),
    full=st.integers(min_value=1, max_value=500),
    linger_ms=st.floats(min_value=0, max_value=200),
)
def test_no_record_is_lost_or_sent_early(rate: float, full: int, linger_ms: float) -> None:
    producer = _producer(rate, full, linger_ms=linger_ms)
    for _ in range(200):
        ready_s = producer.ready_s
        records = producer.records_by(ready_s)
        batch = producer.seal(records, 0.0)
        assert batch.records == records <= full
        assert producer.opened == batch.first + records
        assert producer.due_s(batch.first + records - 1) <= ready_s + 1e-6 / rate + 1e-9


@given(
    rate=st.floats(min_value=0.1, max_value=10_000),
    cuts=st.lists(st.floats(min_value=100, max_value=200), min_size=2, max_size=6),
)
def test_windows_that_touch_add_up(rate: float, cuts: list[float]) -> None:
    producer, edges = _producer(rate), sorted(cuts)
    parts = sum(producer.records_due_between(a, b) for a, b in itertools.pairwise(edges))
    assert parts == producer.records_due_between(edges[0], edges[-1])
    assert parts == pytest.approx((edges[-1] - edges[0]) * rate, abs=1.001)


@pytest.mark.parametrize("index", [0, 7, 31])
def test_in_turn_every_partition_gets_the_same_number_of_batches(index: int) -> None:
    producer = _producer(index=index, batch_size=16_000, sticky_partition="round_robin")
    seen = [producer.seal(16, 0.0).partition for _ in range(90)]
    first = index % 30
    assert seen[:30] == [*range(first, 30), *range(first)]
    assert seen[30:60] == seen[60:] == seen[:30]


def test_the_partition_sticks_until_batch_size_and_then_all_get_their_share() -> None:
    producer = _producer()
    seen: Counter[int] = Counter()
    for _ in range(6_000):
        sealed = {producer.seal(6, 0.0).partition for _ in range(3)}
        assert len(sealed) == 1, "two of 6.2 kB do not fill 16 kB, and three do"
        seen.update(sealed)
    assert set(seen) == set(range(30))
    assert max(seen.values()) < 1.4 * min(seen.values())


@pytest.mark.parametrize("skew", [0.5, 1.0, 2.0])
def test_skewed_partitions_get_shares_by_zipfs_law(skew: float) -> None:
    producer = _producer(batch_size=16_000, partition_skew=skew)
    count = 6_000
    seen = Counter(producer.seal(16, 0.0).partition for _ in range(count))
    weights = zipf_weights(30, skew)
    for partition in (0, 1, 5, 20):
        expected = count * weights[partition] / sum(weights)
        deviation = math.sqrt(expected * (1 - expected / count))
        assert seen[partition] == pytest.approx(expected, abs=3 * deviation + 1)
    busiest = seen[0] / (count / 30)
    assert busiest == pytest.approx(largest_over_mean(30, skew), rel=0.1)


def test_a_skew_is_found_from_the_share_of_the_busiest_partition() -> None:
    for skew in (0.2, 1.0, 2.5):
        assert exponent_of(30, largest_over_mean(30, skew)) == pytest.approx(skew, abs=1e-6)
    assert exponent_of(30, 1.0) == exponent_of(1, 9.0) == 0.0


def test_a_skew_needs_a_choice_at_random() -> None:
    skewed = ProducerOptions(
        rate_bytes_per_s=1.0, partition_skew=1.0, sticky_partition="round_robin"
    )
    with pytest.raises(ValueError, match=r"partition_skew is 1 .* sticky_partition random"):
        skewed.require_consistent()


def test_libraries_get_addresses_of_ipv6_in_brackets_and_create_no_topics() -> None:
    brokers = {1: ("broker-1", 9092), 2: ("2001:db8::1", 9093)}
    own = plan(brokers=brokers, consumers=ConsumerOptions(groups=1))
    assert own.servers == ["broker-1:9092", "[2001:db8::1]:9093"]
    for options in (producer_options(own.pattern.producer), group_options(own, 0, 0)):
        assert options["allow_auto_create_topics"] is False


@given(
    producers=st.integers(min_value=1, max_value=500), tasks=st.integers(min_value=1, max_value=40)
)
def test_producers_spread_evenly_over_tasks(producers: int, tasks: int) -> None:
    trial = plan(producers=producers, tasks=tasks)
    shares = [len(trial.producers_of(task)) for task in range(tasks)]
    assert sum(shares) == producers
    assert max(shares) - min(shares) <= 1
    hosted = sorted(p for task in range(tasks) for p in trial.producers_of(task))
    assert hosted == list(range(producers))
