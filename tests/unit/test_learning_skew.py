"""Partitions as skewed as seen: what `redline learn` writes of them, and what its copy offers.

Headers of batches, read without their records.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.loading import load_workload
from jobs.engine.batches.sections import Section
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.schedule import EvenSchedule
from jobs.features.learn.learning import workload_text
from jobs.features.learn.reading import matching_topics
from jobs.features.learn.survey import Bounds, Surveyor
from metrics.features.learn.curve import Curve
from metrics.features.learn.document import Learned, lost_by
from metrics.features.learn.keys import learned_part, skew_of
from metrics.features.learn.parts import MEAN, Part, TopicPart, parts_of
from metrics.features.learn.tally import BatchTally, TopicFacts, TopicSeen, quantile_of
from metrics.traffic.batch_headers import batches_in
from metrics.traffic.clients import largest_over_mean, zipf_weights
from tests.support.scripted_admin import FakeTime
from tests.support.simulated_traffic import END_S, Kind, ServedCluster, encoded, marker, written

PARTITIONS = 6


def tally(records: int = 100_000, size: int = 1_000) -> BatchTally:
    """Batches of ten records."""
    found = BatchTally(records // 10, records, records, records * size)
    found.codecs["none"] = found.batches
    found.batch_records[10] = found.batches
    found.batch_sizes[10 * size] = found.batches
    found.open_ms, found.followers = records, records - found.batches
    found.spans[9] = found.batches
    return found


def seen(shares: Sequence[float], name: str = "orders", records: float = 1e7) -> TopicSeen:
    """A topic whose partitions have these shares of the records of a day."""
    whole = sum(shares)
    facts = TopicFacts(name, {n: n % 3 for n in range(len(shares))}, 2)
    hours = range(25)
    curve = Curve(tuple(3_600.0 * n for n in hours), tuple(records * n / 24 for n in hours))
    by_partition = {n: share / whole for n, share in enumerate(shares)}
    return TopicSeen(facts, tally(), curve, records / 86_400, 60.0, partition_shares=by_partition)


def parts(*topics: TopicSeen, most: int = 6) -> tuple[Part, ...]:
    return parts_of([TopicPart.of(each, MEAN) for each in topics], most)


def skewed(exponent: float, count: int = PARTITIONS) -> list[float]:
    """Shares by Zipf's law, the busiest partition in the middle."""
    weights = zipf_weights(count, exponent)
    return [*weights[count // 2 :], *weights[: count // 2]]


def test_the_exponent_gives_the_busiest_partition_the_share_that_was_seen() -> None:
    for exponent in (0.5, 1.0, 2.0, 4.0):
        (part,) = parts(seen(skewed(exponent)))
        figure = skew_of(part, PARTITIONS)
        assert figure is not None
        assert figure.value == pytest.approx(exponent, abs=0.001)
        assert (figure.source, figure.low, figure.high) == ("fitted", figure.value, figure.value)
        assert learned_part(part, 3).value("producer.partition_skew") == figure.value
    # Four partitions on three brokers become one on each, and the share stays.
    (part,) = parts(seen([7, 1, 1, 1]))
    assert learned_part(part, 3).value("topic.partitions_per_broker") == 1
    exponent = float(str(learned_part(part, 3).value("producer.partition_skew")))
    assert largest_over_mean(3, exponent) / 3 == pytest.approx(0.7, abs=0.001)


@pytest.mark.parametrize(
    ("shares", "records"),
    [
        ([1.0] * 6, 1e7),
        ([1.4, 1, 1, 1, 1, 1], 1e7),
        ([3.0, 1, 1, 1, 1, 1], 300.0),
        ([1.0], 1e7),
        ([], 1e7),
    ],
    ids=["even", "almost", "few records", "one partition", "unknown"],
)
def test_other_topics_spread_evenly(shares: list[float], records: float) -> None:
    topic = seen(shares or [1.0], records=records)
    if not shares:
        topic = replace(topic, partition_shares={})
    (part,) = parts(topic)
    assert skew_of(part, PARTITIONS) is None
    assert "producer.partition_skew" not in learned_part(part, 3).keys


def test_an_even_spread_of_few_batches_is_no_skew() -> None:
    """Batches of 16 kB, each to a partition at random, in 100 topics with fixed seeds."""
    for batches, partitions in product((10, 40, 160, 640), (6, 60)):
        found = 0
        for seed in range(100):
            rng = random.Random(f"{seed}/{batches}")
            counts = Counter(rng.randrange(partitions) for _ in range(batches * partitions // 6))
            shares = [float(counts[each]) for each in range(partitions)]
            found += seen(shares, records=16_384 * sum(shares) / 1_000).is_skewed
        assert found <= 2, (batches, partitions)


def test_what_is_lost_by_a_skew_is_stated(snapshot: SnapshotAssertion) -> None:
    assert lost_by(parts(seen(skewed(1.0)))) == snapshot(name="place")
    assert lost_by(parts(seen([3.0, 1, 1, 1, 1, 1], records=300.0))) == snapshot(name="chance")
    assert lost_by(parts(seen([1.0] * 6))) == []


def test_topics_that_differ_in_their_skew_are_parts_of_their_own() -> None:
    even, uneven = seen([1.0] * 6, "even"), seen(skewed(2.0), "uneven", records=1.5e7)
    assert [each.name for each in parts(even, uneven)] == ["uneven", "even"]
    assert len(parts(seen(skewed(1.0), "a"), seen(skewed(1.2), "b"))) == 1, "about the same"
    (both,) = parts(even, uneven, most=1)
    figure = skew_of(both, PARTITIONS)
    assert figure is not None
    assert (figure.low, figure.high) == (0.0, 2.0)
    assert figure.value == pytest.approx(2.0 * 150 / 250, abs=0.001)
    assert "busiest partition of uneven" in figure.evidence


# --- the file -----------------------------------------------------------------------------


@pytest.mark.computes
def test_a_copy_of_skewed_traffic_loads_and_offers_the_skew(tmp_path: Path) -> None:
    """Simulated producers of one topic prefer partition 3; its copy prefers partition 0 as much."""
    uneven = Kind(4, 200, 0.005, 1_000, weights=tuple(skewed(1.0)))
    even = Kind(2, 25, 0.2, 4_000, codec="lz4")
    logs = {"uneven": written(uneven, PARTITIONS, 25.0), "even": written(even, 3, 25.0)}
    served, clock = ServedCluster(logs), FakeTime()
    survey = Surveyor(
        served, matching_topics(served, [".*"]), Bounds(),
        clock=clock, now=lambda: END_S, pause=clock.pause,
    ).make()  # fmt: skip
    found = {each.facts.name: each for each in survey.topics}
    share = max(found["uneven"].partition_shares.values())
    assert found["uneven"].busiest == 3
    assert share == pytest.approx(max(skewed(1.0)) / sum(skewed(1.0)), rel=0.1)
    made = tuple(learned_part(each, 3) for each in parts(*survey.topics))
    file = tmp_path / "copy.yaml"
    file.write_text(workload_text(Learned("prod", END_S, MEAN, made, {}), "x"), encoding="utf-8")
    assert "# fitted: the busiest partition of uneven has 2.4" in file.read_text(encoding="utf-8")
    patterns = {each.part: each for each in load_workload(str(file)).pattern(1, 3).parts}
    assert patterns["even"].producer.options.partition_skew == 0.0
    producer = patterns["uneven"].producer
    section = Section(b"", [0, 1_000], [0, 1_000])
    chosen: Counter[int] = Counter()
    for index in range(patterns["uneven"].producers):
        schedule = EvenSchedule(producer.rate_records_per_s, 0.0)
        one = Producer(index, producer, section, range(PARTITIONS), schedule)
        chosen.update(one.seal(1, 0.0).partition for _ in range(20_000))
    assert chosen.most_common(1)[0][0] == 0
    assert chosen[0] / chosen.total() == pytest.approx(share, rel=0.05)


VALUE = (None, b"v" * 100, ())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_header_has_what_the_producer_sent(codec: str) -> None:
    made = encoded(40, [1_000, 1_004, 1_009], [VALUE] * 3, codec, 7, True)
    found = batches_in(made.data)
    ((header, body),) = found.batches
    assert (header.base_offset, header.records, header.offsets) == (40, 3, 3)
    assert (header.first_ms, header.max_ms, header.codec) == (1_000, 1_009, codec)
    assert (header.producer_id, header.is_transactional, header.is_control) == (7, True, False)
    assert header.size_bytes == len(made.data) == len(body)
    assert found.next_offset == header.next_offset == 43


def test_a_batch_that_is_cut_off_is_read_by_a_later_answer() -> None:
    first, second = encoded(0, [1], [VALUE]), encoded(1, [2], [VALUE])
    for cut in (1, 20, 61, len(second.data) - 1):
        found = batches_in(first.data + second.data[:cut])
        assert (len(found.batches), found.next_offset) == (1, 1)
    assert batches_in(first.data[:30]).next_offset is batches_in(b"").next_offset is None


def test_older_formats_are_counted_and_empty_batches_of_a_compacted_log_are_none() -> None:
    old = (5).to_bytes(8, "big") + (14 + 3).to_bytes(4, "big") + b"\0" * 4 + b"\1" + b"\0" * 12
    found = batches_in(old + encoded(6, [1], [VALUE]).data)
    assert found.older == 1
    assert [header.base_offset for header, _ in found.batches] == [6]
    data = bytearray(encoded(0, [1], [VALUE]).data[:61])
    data[8:12] = (49).to_bytes(4, "big")
    data[57:61] = (0).to_bytes(4, "big")
    tally = BatchTally()
    ((header, _),) = batches_in(bytes(data)).batches
    tally.add(0, header)
    assert (tally.batches, tally.size_bytes) == (0, 0)


def test_markers_count_apart_and_end_each_transaction_once() -> None:
    tally = BatchTally()
    batch = encoded(0, [1_000], [VALUE], producer_id=9, is_transactional=True)
    for partition in (0, 1):
        for header, _ in batches_in(batch.data + marker(1, 1_100 + partition, 9).data).batches:
            tally.add(partition, header)
    for header, _ in batches_in(marker(2, 1_200, 9).data).batches:
        tally.add(0, header)
    assert (tally.batches, tally.records, tally.markers, tally.transactional) == (2, 2, 3, 2)
    assert tally.writers.keys() == {9}
    assert tally.producers[9].transactions == [1_100, 1_200]


def test_quantiles_of_counts() -> None:
    sizes = Counter({10: 98, 20: 1, 30: 1})
    assert [quantile_of(sizes, each) for each in (0.5, 0.98, 0.99, 1.0)] == [10, 10, 20, 30]
    assert quantile_of(Counter(), 0.5) == 0
