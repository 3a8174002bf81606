"""The survey of topics: what it reads, its bounds, and the figures of planted traffic."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from jobs.features.learn import reading
from jobs.features.learn.learning import rates_of
from jobs.features.learn.reading import (
    ANSWER_BYTES,
    LITTLE_BYTES_PER_S,
    REQUESTS_PER_S,
    BatchReader,
    OffsetLookup,
    OffsetRange,
    ReadingPace,
    matching_topics,
    pattern_of,
)
from jobs.features.learn.survey import Bounds, Survey, Surveyor
from metrics.common.errors import ConfigError
from metrics.features.learn.curve import Curve
from metrics.features.learn.keys import learned_part
from metrics.features.learn.parts import (
    MEAN,
    NOW,
    PEAK,
    Part,
    TopicPart,
    batches_per_request,
    parts_of,
)
from metrics.features.learn.tally import BatchTally, TopicSeen
from metrics.traffic.batch_headers import BatchHeader
from tests.support.scripted_admin import FakeTime
from tests.support.simulated_traffic import (
    BROKERS,
    END_S,
    Batch,
    Kind,
    PartitionOfLog,
    ServedCluster,
    encoded,
    marker,
    sent_batches,
    written,
)

pytestmark = pytest.mark.computes

KINDS = {
    "hot": Kind(4, 250, 0.02, 200),
    "random": Kind(4, 125, 0.04, 200, is_random=True),
    "large": Kind(2, 20, 0.2, 5_000, codec="lz4"),
    "full": Kind(3, 100, 5.0, 1_000, batch_records=15),
    "keyed": Kind(3, 50, 0.1, 500, is_keyed=True, has_ids=True, keys=50, headers=2),
    "slow": Kind(40, 1, 0.0, 1_000, has_ids=True),
}
SECONDS = 20.0
VALUE = (None, b"v" * 100, ())
Logs = Mapping[str, dict[int, PartitionOfLog]]
Learnt = Mapping[str, TopicSeen]


def surveyed(
    admin: ServedCluster,
    bounds: Bounds | None = None,
    time: FakeTime | None = None,
    now_s: float = END_S,
) -> Survey:
    clock = time or FakeTime()
    return Surveyor(
        admin, matching_topics(admin, [".*"]), bounds or Bounds(),
        clock=clock, now=lambda: now_s, pause=clock.pause,
    ).make()  # fmt: skip


@pytest.fixture(scope="module")
def logs() -> Logs:
    return {name: written(kind, 6, SECONDS) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def learnt(logs: Logs) -> dict[str, TopicSeen]:
    return {
        each.facts.name: each for each in surveyed(ServedCluster(logs), Bounds(decodes=True)).topics
    }


def alone(seen: TopicSeen, moment: str = MEAN) -> Part:
    (part,) = parts_of([TopicPart.of(seen, moment)], 1)
    return part


@pytest.mark.parametrize("name", KINDS)
def test_rates_batches_and_sizes_are_those_that_were_planted(
    name: str, learnt: Learnt, logs: Logs
) -> None:
    kind, seen = KINDS[name], learnt[name]
    batches = [each for log in logs[name].values() for each in log.batches]
    records = sum(each.records for each in batches)
    rate = records / SECONDS
    assert seen.now_per_s == pytest.approx(rate, rel=0.01)
    assert seen.curve.mean == pytest.approx(rate, rel=0.01)
    assert seen.batches.records_per_batch == pytest.approx(records / len(batches), rel=0.01)
    assert seen.batches.codec == kind.codec
    keys = learned_part(alone(seen), 3)
    assert int(keys.producers.value) == kind.producers
    own_rate = float(str(keys.value("producer.rate_records_per_s")))
    assert own_rate == pytest.approx(rate / kind.producers, rel=0.01)
    key_bytes = 10 if kind.keys else 0
    assert keys.value("message_bytes") == [kind.value_bytes + key_bytes]
    assert (keys.value("producer.acks") == "all") == kind.has_ids
    assert sum(seen.partition_shares.values()) == pytest.approx(1.0)


def test_linger_and_batch_size_give_batches_as_large_as_those_that_were_read(
    learnt: Learnt,
) -> None:
    for name, seen in learnt.items():
        part, keys = alone(seen), learned_part(alone(seen), 3)
        rate = float(str(keys.value("producer.rate_records_per_s")))
        linger_ms = float(str(keys.value("producer.linger_ms")))
        due = rate * linger_ms / 1e3
        is_random = "producer.arrivals" in keys.keys
        lingered = 1 + due if is_random else int(due) + 1
        if part.first.fit.is_full:
            assert lingered > part.records_per_batch, name
        else:
            assert lingered == pytest.approx(part.records_per_request, rel=0.02), name
        assert is_random == (name in ("random", "keyed")), name
    size = int(str(learned_part(alone(learnt["full"]), 3).value("producer.batch_size")))
    assert 15 * 1_009 < size < 16 * 1_010 + 61


def test_requests_of_producers_with_keys_hold_several_batches(learnt: Learnt) -> None:
    kind = KINDS["keyed"]
    sent = sent_batches(kind, 6, SECONDS, random.Random(1))
    requests = len({(at_ms, producer, n % BROKERS) for at_ms, n, _, producer in sent})
    part = alone(learnt["keyed"])
    assert part.first.fit.request_batches == pytest.approx(len(sent) / requests, rel=0.03)
    assert part.first.fit.request_batches > 1.2
    assert part.records_per_s / part.records_per_request == pytest.approx(
        requests / SECONDS, rel=0.03
    )
    assert learned_part(part, 3).value("producer.sticky_partition") == "keys"
    for name, seen in learnt.items():
        if name != "keyed":
            own = alone(seen)
            assert own.records_per_request == own.records_per_batch, name
            paths = learned_part(own, 3).keys
            assert "producer.sticky_partition" not in paths, name


def test_requests_are_counted_while_all_partitions_of_a_broker_are_read() -> None:
    """Of one partition more was read than of the other, at both ends."""
    tally, of_one = BatchTally(), BatchTally()
    for request in range(100):
        of_one.add(0, BatchHeader(request, 1, 1, 100, "none", request, request, 7))
        for partition in (0, 3):
            is_read = 20 <= request < 80 if partition else True
            if is_read:
                at_ms = 1_000 * request + partition
                tally.add(partition, BatchHeader(request, 1, 1, 100, "none", at_ms, at_ms, 7))
    leaders = dict.fromkeys(range(6), 1)
    assert batches_per_request(tally, leaders, 50.0) == pytest.approx(2.0, rel=0.02)
    assert batches_per_request(tally, leaders, 2.0) == pytest.approx(1.0, rel=0.02)
    assert batches_per_request(BatchTally(), leaders, 50.0) is None
    assert batches_per_request(of_one, {0: 1}, 50.0) == 1.0, "two for a partition are two requests"


def test_decoded_records_show_keys_headers_and_compression(learnt: Learnt) -> None:
    records = learnt["keyed"].records
    assert records is not None
    assert (records.keys.mean, records.values.mean, records.headers_each) == (10, 500, 2)
    assert records.key_range == (50, 50)
    assert not [each for each in records.by_key if each.startswith(b"key-")], "hashes only"
    assert 0.02 <= records.top_key_share < 0.04
    large = learnt["large"].records
    assert large is not None and large.ratio == pytest.approx(2.0, rel=0.05)
    keys = learned_part(alone(learnt["large"]), 3)
    assert keys.value("payload.wanted_ratio") == pytest.approx(large.ratio, abs=0.001)
    assert learned_part(alone(learnt["keyed"]), 3).value("payload.key_count") == 50


def test_without_ids_the_number_of_producers_has_a_range(learnt: Learnt) -> None:
    figure = alone(learnt["hot"]).producers
    assert figure.source == "fitted"
    assert figure.low == 1 and figure.high in (5, 6)
    slow = alone(learnt["slow"]).producers
    assert (slow.source, slow.low, slow.high) == ("seen", 40, 40)


def test_reading_keeps_to_its_rate_and_its_time(logs: Logs) -> None:
    admin, time = ServedCluster(logs), FakeTime()
    bounds = Bounds(200_000.0, 10.0)
    survey = surveyed(admin, bounds, time=time)
    assert admin.fetched_bytes <= bounds.bytes_max + 2**20
    assert survey.took_s >= (admin.fetched_bytes - 2**20) / bounds.bytes_per_s
    whole = surveyed(ServedCluster(logs))
    assert {each.facts.name for each in survey.topics} == set(KINDS), "each gets its share"
    for part, all_of in zip(survey.topics, whole.topics, strict=True):
        assert part.now_per_s == pytest.approx(all_of.now_per_s), "rates come from offsets"
        assert part.read_share <= all_of.read_share == pytest.approx(1.0)
    assert min(each.read_share for each in survey.topics) < 0.5


def test_requests_and_data_are_spread_over_the_time_of_reading(logs: Logs) -> None:
    """No second has more than the stated requests, and no ten seconds much more than their part."""
    admin, time = ServedCluster(logs), FakeTime()
    seen: list[tuple[float, str, int]] = []
    admin.before_request = lambda name: seen.append((time(), name, admin.fetched_bytes))
    bounds = Bounds(5e6, 60.0)
    survey = surveyed(admin, bounds, time=time)
    assert [each.read_share for each in survey.topics] == [1.0] * len(KINDS)
    lookups = [at_s for at_s, name, _ in seen if name != "FetchRequest"]
    fetches = [at_s for at_s, name, _ in seen if name == "FetchRequest"]
    for times in (lookups, fetches):
        at_once = max(sum(at_s <= each < at_s + 2.0 for each in times) for at_s in times)
        assert at_once <= 2 * REQUESTS_PER_S + 2
    reading_s = fetches[-1] - fetches[0]
    assert 0.5 * bounds.duration_s < reading_s <= bounds.duration_s
    whole = admin.fetched_bytes
    assert len(fetches) < 4 * whole / ANSWER_BYTES + 20, "few and large answers"
    for at_s in fetches:
        within = [size for time_s, _, size in seen if at_s <= time_s < at_s + 10.0]
        assert within[-1] - within[0] < whole * 10.0 / reading_s + ANSWER_BYTES


def test_little_data_is_read_in_seconds(logs: Logs) -> None:
    admin = ServedCluster({"slow": logs["slow"]})
    survey = surveyed(admin, Bounds(5e6, 60.0))
    assert survey.topics[0].read_share == 1.0
    assert survey.took_s < 15.0 + admin.fetched_bytes / LITTLE_BYTES_PER_S


def test_look_ups_of_many_topics_are_few_requests(logs: Logs) -> None:
    admin = ServedCluster({f"{name}-{n}": own for n in range(20) for name, own in logs.items()})
    surveyed(admin)
    times = {at_s for each in surveyed(ServedCluster(logs)).topics for at_s in each.curve.times_s}
    # Ends, begins, first records, the last hour, what is read, and the begin of the last day.
    assert admin.requests.count("ListOffsetsRequest") <= BROKERS * (6 + len(times))


def test_properties_of_many_topics_are_one_request_and_some_may_be_refused(logs: Logs) -> None:
    admin = ServedCluster({f"slow-{n}": logs["slow"] for n in range(120)})
    admin.configs = {"slow-7": {"min.insync.replicas": "2", "flush.ms": "1"}}
    admin.hidden_configs = {"slow-8", "slow-9"}
    survey = surveyed(admin)
    assert admin.requests.count("DescribeConfigsRequest") == 2
    known = {each.facts.name: each.facts for each in survey.topics}
    assert known["slow-7"].config == {"min.insync.replicas": "2"}, "of those that are stated"
    assert known["slow-8"].config == {}
    assert known["slow-119"].config["cleanup.policy"] == "delete"
    (text,) = [each for each in survey.notes if "properties of topics" in each]
    assert "slow-8: TopicAuthorizationFailedError" in text and "DescribeConfigs" in text


def test_large_batches_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {}
    for name in ("first", "second"):
        logs[name] = {0: PartitionOfLog()}
        for number in range(4):
            message = (None, bytes(1_400_000), ())
            logs[name][0].add(lambda base, n=number, m=message: encoded(base, [n], [m]))  # type: ignore[misc]
    admin, time = ServedCluster(logs), FakeTime()
    monkeypatch.setattr(reading, "REQUESTS_PER_S", 1.0)
    reader = BatchReader(admin, ReadingPace(1e9, time, time.pause))
    ranges = [OffsetRange(name, 0, 0, 0, 4, 1e9) for name in logs]
    reader.read(ranges, time() + 1.5)
    assert [each.at for each in ranges] == [1, 1], "an early end leaves a part of each"
    reader.read(ranges, time() + 60.0, bytes_max=4_000_000)
    assert sum(each.at for each in ranges) == 3, "the first answer beyond it is the last"
    reader.read(ranges, time() + 60.0)
    assert [each.at for each in ranges] == [each.end for each in ranges]


def test_it_waits_as_long_as_brokers_ask(logs: Logs) -> None:
    admin = ServedCluster({"hot": logs["hot"]})
    admin.throttle_ms = 500
    survey = surveyed(admin, Bounds(1e9, 60.0))
    fetches = admin.requests.count("FetchRequest")
    assert survey.throttled_s == pytest.approx(0.5 * fetches)
    assert survey.took_s >= 0.5 * (fetches - 1)


def test_it_joins_no_group_and_commits_nothing(logs: Logs) -> None:
    admin = ServedCluster(logs)
    admin.committed = {"billing": {"hot": (3, 40)}, "audit": {"hot": (0, 7), "slow": (0, 1)}}
    admin.committed["never"] = {"hot": (1, 10**9)}  # it has no committed offset
    admin.committed["secret"] = {"hot": (1, 0)}
    admin.refused_groups = {"secret"}
    survey = surveyed(admin)
    assert set(admin.requests) == {
        "DescribeConfigsRequest", "ListOffsetsRequest", "FetchRequest", "OffsetFetchRequest",
    }  # fmt: skip
    hot = next(each.facts for each in survey.topics if each.facts.name == "hot")
    assert {(each.name, each.members, each.lag) for each in hot.groups} == {
        ("billing", 3, 240), ("audit", 0, 42),
    }  # fmt: skip
    assert [each.name for each in hot.readers] == ["billing"]
    (note,) = [text for text in survey.notes if "of 1 consumer groups" in text]
    assert "GroupAuthorizationFailedError" in note


def curve_of_days(admin: ServedCluster) -> Curve:
    """The curve of a topic with six partitions and a record in each hour of 50."""
    time = FakeTime()
    pace = ReadingPace(1e9, time, time.pause)
    lookup = OffsetLookup(admin, matching_topics(admin, [".*"]), pace)
    found = lookup.logs([("days", number) for number in range(6)])
    logs = {number: found["days", number] for number in range(6)}
    return lookup.curves({"days": logs}, END_S)["days"]


def hourly() -> ServedCluster:
    return ServedCluster({"days": written(Kind(6, 1 / 3_600, 0.0, 10), 6, 50 * 3_600.0)})


def test_curves_keep_to_a_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = hourly()
    whole = curve_of_days(admin)
    assert whole.step_s == 3_600
    assert admin.requests.count("ListOffsetsRequest") <= 9 + 50 * 3, "one for each leader and time"
    admin = hourly()
    monkeypatch.setattr(reading, "REQUESTS_MAX", 60)
    coarse = curve_of_days(admin)
    assert coarse.step_s == 4 * 3_600
    assert admin.requests.count("ListOffsetsRequest") <= 9 + 60
    assert coarse.mean == pytest.approx(whole.mean, rel=0.1)


def test_a_curve_begins_where_a_leader_answers() -> None:
    admin = hourly()
    low_s, high_s = END_S - 22.5 * 3_600, END_S - 20.5 * 3_600
    admin.moved_ms = (int(low_s * 1e3), int(high_s * 1e3))
    curve = curve_of_days(admin)
    assert curve.span_s == 20 * 3_600
    assert curve.mean > 0


def test_producers_that_have_ended_keep_their_rate(logs: Logs) -> None:
    (seen,) = surveyed(ServedCluster({"hot": logs["hot"]}), now_s=END_S + 30.0).topics
    assert seen.now_per_s == pytest.approx(1_000, rel=0.01)
    assert alone(seen, NOW).producers.value == 4


def test_transactions_have_the_time_between_their_ends() -> None:
    logs = {number: PartitionOfLog() for number in range(2)}
    records: dict[str, Any] = {"producer_id": 5, "is_transactional": True}
    for second, (number, log) in product(range(40), logs.items()):
        at_ms = int((END_S - 40 + second) * 1e3) + number
        log.add(lambda base, at=at_ms: encoded(base, [at] * 3, [VALUE] * 3, **records))  # type: ignore[misc]
        if second % 2:
            log.add(lambda base, at=at_ms + 10: marker(base, at, 5))  # type: ignore[misc]
    (seen,) = surveyed(ServedCluster({"paid": logs})).topics
    assert seen.batches.markers == 40
    assert seen.now_per_s == pytest.approx(6.0, rel=0.03), "markers have offsets, no records"
    keys = learned_part(alone(seen), 3)
    assert (keys.producers.value, keys.value("producer.acks")) == (1, "all")
    assert keys.value("producer.transaction_duration_ms") == pytest.approx(2_000)


def test_what_is_odd_about_topics_is_named(logs: Logs) -> None:
    body = (14 + 3).to_bytes(4, "big") + b"\0" * 4 + b"\1" + b"\0" * 12
    old, ahead = PartitionOfLog(), PartitionOfLog()
    at_ms = int((END_S - 30) * 1e3)
    old.add(lambda base: Batch(base, 1, at_ms, at_ms, base.to_bytes(8, "big") + body))
    old.add(lambda base: encoded(base, [at_ms + 9], [VALUE]))
    for number in range(20):
        late_ms = int((END_S + 60 + number) * 1e3)
        ahead.add(lambda base, at=late_ms: encoded(base, [at], [VALUE]))  # type: ignore[misc]
    admin = ServedCluster(
        {"hot": logs["hot"], "slow": logs["slow"], "old": {0: old}, "ahead": {0: ahead},
         "empty": {0: PartitionOfLog()}}
    )  # fmt: skip
    admin.refused = {"slow"}
    survey = surveyed(admin)
    assert (survey.refused, survey.idle) == (["slow"], ["empty"])
    found = {each.facts.name: each for each in survey.topics}
    assert found.keys() == {"hot", "old", "ahead"}
    assert found["ahead"].now_per_s <= 20
    assert [text for text in survey.notes if "60 s ahead of this machine's clock" in text]
    assert [
        text
        for text in survey.notes
        if text.startswith("old: messages with a format older than v2")
    ]


def test_an_interrupt_keeps_what_was_read(logs: Logs) -> None:
    admin = ServedCluster(logs)

    def interrupt() -> None:
        if admin.requests.count("FetchRequest") == 8:
            raise KeyboardInterrupt

    admin.before_fetch = interrupt
    survey = surveyed(admin)
    assert survey.was_interrupted
    assert survey.topics
    assert all(TopicPart.of(each, PEAK).records_per_s > 0 for each in survey.topics)


def test_the_busiest_hour_of_a_day_is_the_peak() -> None:
    rates = [10.0] * 30 + [40.0] + [20.0] * 17
    counts = [0.0]
    for each in rates:
        counts.append(counts[-1] + 3_600 * each)
    curve = Curve(tuple(3_600.0 * n for n in range(len(counts))), tuple(counts))
    assert curve.today.span_s == 86_400
    assert curve.today.peak == 40.0
    assert curve.today.peak_at_s == 30 * 3_600
    assert curve.today.mean == pytest.approx((6 * 10 + 40 + 17 * 20) / 24)


def test_at_a_peak_batches_that_linger_hold_more(learnt: Learnt) -> None:
    for name, rate, records in (("hot", 2 * learnt["hot"].now_per_s, 9.0), ("full", 600.0, 15.0)):
        busy = TopicPart(learnt[name], TopicPart.of(learnt[name], NOW).fit, rate)
        assert busy.records_per_batch == pytest.approx(records, rel=0.01)


def test_an_expression_that_matches_nothing_is_refused() -> None:
    assert pattern_of(["orders", "clicks-.*"]).fullmatch("clicks-eu")
    assert not pattern_of(["orders"]).fullmatch("orders-eu")
    names = ("orders-eu", "__consumer_offsets")
    admin = ServedCluster({name: {0: PartitionOfLog()} for name in names})
    for text in ("orders(", "nothing.*"):
        with pytest.raises(ConfigError, match="--topics") as error:
            matching_topics(admin, [text])
        assert text in str(error.value)
        assert "__consumer_offsets" not in str(error.value)


def test_steps_of_a_server_that_miss_a_broker_are_left_out() -> None:
    hours = [3_600.0 * n for n in range(5)]
    whole = [(at_s, 10.0 * at_s) for at_s in hours]
    gap = [(at_s, 5.0 * at_s) for at_s in hours if at_s != 7_200.0]
    restarted = [(at_s, at_s if at_s < 14_400 else 0.0) for at_s in hours]
    assert rates_of({1: whole, 2: gap, 3: restarted}) == [(0.0, 16.0)]
