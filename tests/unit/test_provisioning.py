"""The number of brokers: the published case, and the effect of each input.

The times at which a cluster may be loaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError
from metrics.planning.load_hours import LoadHours, LoadTimes, next_time
from metrics.planning.provisioning import BETWEEN_RUNS, Demand, MeasuredLimit, limit_at, provision

DROPBOX = MeasuredLimit(1_000, 60.0, "disk", replication_factor=3)
DEMAND = Demand(mb_per_s=600.0, message_bytes=1_000)


def test_60_mb_per_s_a_broker_with_a_fifth_offline_is_about_50() -> None:
    # Dropbox 2019: 60 MB/s a broker measured, about 50 to plan with. Of 13 brokers 3 are a fifth.
    found = provision([DROPBOX], replace(DEMAND, offline=0.2))
    assert (found.brokers, found.offline) == (13, 3)
    assert found.plan_mb_per_s_per_broker == pytest.approx(60 * 10 / 13)
    assert found.headroom_offline == pytest.approx(0.0)
    assert found.binds_first == "disk"
    plain = provision([DROPBOX], DEMAND)
    assert (plain.brokers, plain.assumptions) == (10, ())
    assert plain.headroom == pytest.approx(0.0)
    # One broker of four cannot be a fifth that is offline.
    found = provision([replace(DROPBOX, mb_per_s=100.0)], Demand(310.0, 1_000, offline=0.2))
    assert (found.brokers, found.offline) == (5, 1)
    assert found.headroom_offline == pytest.approx(1 - 310 / 400)
    for zones in (0, 2):  # as many as replicas, which are never all offline
        assert provision([DROPBOX], replace(DEMAND, mb_per_s=1.0, zones=zones)).brokers == 3


def test_the_lower_end_decides_and_both_figures_are_stated(snapshot: SnapshotAssertion) -> None:
    found = provision([replace(DROPBOX, mb_per_s_low=50.0)], replace(DEMAND, offline=0.2))
    assert (found.brokers, found.brokers_for_limit) == (15, 13)  # 12 of 50 MB/s and 3 offline
    assert (found.limit_mb_per_s_per_broker, found.low_mb_per_s_per_broker) == (60.0, 50.0)
    assert found.plan_mb_per_s_per_broker == pytest.approx(40.0)
    assert found.headroom == pytest.approx(1 - 600 / 15 / 50)
    (sentence,) = found.assumptions
    assert sentence == snapshot
    above = provision([replace(DROPBOX, mb_per_s_low=61.0)], DEMAND)
    assert (above.brokers, above.low_mb_per_s_per_broker) == (10, None)
    doubtful = provision([replace(DROPBOX, mb_per_s_low=20.0, doubt="it is wide")], DEMAND)
    assert doubtful.assumptions[0] == "the limit is doubtful: it is wide; measure it again"


def test_runs_of_other_days_differ(snapshot: SnapshotAssertion) -> None:
    runs = replace(DROPBOX, between_runs=BETWEEN_RUNS)
    low = 60.0 * math.exp(-1.645 * 0.06)
    assert runs.conservative_mb_per_s == pytest.approx(low, rel=1e-4)  # about 9 % less
    both = replace(runs, mb_per_s_low=55.0)
    below = math.hypot(math.log(60 / 55), 1.645 * 0.06)
    assert both.conservative_mb_per_s == pytest.approx(60 * math.exp(-below), rel=1e-4)
    found = provision([runs], DEMAND)
    assert (found.brokers, found.brokers_for_limit) == (12, 10)
    assert found.assumptions[0] == snapshot


def test_a_slow_link_binds_first_and_is_named() -> None:
    demand = replace(DEMAND, consumer_groups=4, link_mbit_per_s=1_000.0)
    found = provision([DROPBOX], demand)
    assert found.binds_first == "network link"
    payload_only = 125 / 6  # two followers and four groups
    assert found.plan_mb_per_s_per_broker == pytest.approx(payload_only / 1.10, rel=0.02)
    assert any("headers of records, batches" in each for each in found.assumptions)
    assert any("consumer groups" in each for each in found.assumptions)
    low = provision([replace(DROPBOX, mb_per_s_low=50.0)], demand)
    assert found.brokers == low.brokers == low.brokers_for_limit == 32, "29 for the payload alone"


def test_more_replicas_than_measured_are_an_assumption() -> None:
    found = provision([replace(DROPBOX, replication_factor=2)], DEMAND)
    assert found.limit_mb_per_s_per_broker == pytest.approx(40.0)
    two = replace(DROPBOX, replication_factor=2, mb_per_s_low=48.0)
    assert provision([two], DEMAND).low_mb_per_s_per_broker == pytest.approx(32.0)
    assert "measured with replication factor 2 and planned with 3" in found.assumptions[0]


def test_between_two_sizes_the_time_per_message_is_linear() -> None:
    # 1 µs a record and 0.01 µs a byte, so 100 B take 2 µs and 10 kB take 101 µs.
    limits = [MeasuredLimit(100, 50.0, "CPU"), MeasuredLimit(10_000, 10_000 / 101, "disk")]
    found, assumptions = limit_at(limits, 1_000)
    assert found.mb_per_s == pytest.approx(1_000 / 11)
    assert "not measured" in assumptions[0]
    assert found.mb_per_s_low is None
    limits[0] = replace(limits[0], mb_per_s_low=25.0, doubt="it is wide")
    found, _ = limit_at(limits, 1_000)
    # 4 µs at 100 B and 101 µs at 10 kB.
    assert found.mb_per_s_low == pytest.approx(1_000 / (4 + 97 * 900 / 9_900))
    assert found.doubt == "at 100 B it is wide"
    varying = [replace(each, between_runs=BETWEEN_RUNS) for each in limits]
    assert limit_at(varying, 1_000)[0].mb_per_s_low == found.mb_per_s_low, "it counts once"


def test_impossible_demands_and_limits_are_refused() -> None:
    limits = [MeasuredLimit(100, 50.0), MeasuredLimit(10_000, 90.0)]
    from_0 = [replace(limits[0], mb_per_s_low=0.0), limits[1]]
    for message_bytes in (99, 10_001):
        with pytest.raises(ConfigError, match="outside of the measured"):
            limit_at(limits, message_bytes)
    for message_bytes in (100, 1_000):
        with pytest.raises(ConfigError, match="limit at 100 B begins at 0 MB/s"):
            provision(from_0, Demand(10.0, message_bytes))
    with pytest.raises(ConfigError, match="find-limit first"):
        provision([replace(DROPBOX, mb_per_s=0.0)], DEMAND)
    for name, value in (("offline", 1.0), ("growth", -0.1), ("headroom", 1.5), ("mb_per_s", 0.0)):
        with pytest.raises(ConfigError, match="expected"):
            replace(DEMAND, **{name: value})  # type: ignore[arg-type]


@given(
    mb_per_s=st.floats(1.0, 1e5),
    offline=st.floats(0.0, 0.9),
    growth=st.floats(0.0, 5.0),
    headroom=st.floats(0.0, 0.9),
)
def test_the_remaining_brokers_are_sufficient_and_one_broker_fewer_is_not(
    mb_per_s: float, offline: float, growth: float, headroom: float
) -> None:
    demand = Demand(mb_per_s, 1_000, offline=offline, growth=growth, headroom=headroom)
    found = provision([DROPBOX], demand)
    usable, needed = 60.0 * (1 - headroom), mb_per_s * (1 + growth)

    def carried(brokers: int) -> float:
        return (brokers - math.ceil(brokers * offline - 1e-9)) * usable

    assert carried(found.brokers) >= needed * (1 - 1e-6)
    assert found.brokers == 3 or carried(found.brokers - 1) < needed * (1 + 1e-6)
    assert found.headroom_offline >= headroom - 1e-6


def test_storage_is_retention_times_rate_times_replicas_over_the_disks() -> None:
    found = provision(
        [DROPBOX],
        replace(DEMAND, retention_hours=72.0, disk_gb=4_000.0, compression_ratio=2.0, offline=0.2),
    )
    storage = next(each for each in found.needs if each.resource == "storage")
    # 600 MB/s for 72 h in three replicas, compressed to half; no broker is spared for an outage.
    assert storage.brokers == math.ceil(600 * 72 * 3.6 * 3 / 2 / 4_000) == 59
    assert (found.binds_first, found.brokers) == ("storage", 59)
    assert [each.brokers for each in found.needs] == [13, 59]
    with pytest.raises(ConfigError, match="expected both or none"):
        replace(DEMAND, disk_gb=4_000.0)


def test_a_whole_zone_may_be_lost() -> None:
    found = provision([DROPBOX], replace(DEMAND, zones=3, consumer_groups=2))
    assert (found.brokers, found.offline) == (15, 5)
    # Producers and two groups are in another zone for two thirds of the bytes, and so are both
    # followers for all of them.
    gb = 600 * (3 * 2 / 3 + 2) * 730 * 3.6
    assert f"about {gb:,.0f} GB a month cross the borders of 3 zones" in found.assumptions[-1]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver's time zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    """A moment of UTC [s since the epoch]."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        ("22:00-06:00", "2026-11-26T23:30", "2026-11-27T06:00"),
        ("22:00-06:00", "2026-11-26T05:59", "2026-11-26T06:00"),
        ("22:00-06:00", "2026-11-26T06:00", None),
        ("22:00-06:00", "2026-11-26T21:59", None),
        ("22:00-00:00", "2026-11-26T23:59", "2026-11-27T00:00"),
        ("09:30-11:00", "2026-11-26T09:30", "2026-11-26T11:00"),
        ("09:30-11:00", "2026-11-26T11:00", None),
        ("22:00-06:00 America/New_York", "2026-11-26T10:30", "2026-11-26T11:00"),
        ("22:00-06:00 America/New_York", "2026-11-26T23:30", None),
    ],
)
def test_hours_end_on_the_day_on_which_they_end(hours: str, now: str, end: str | None) -> None:
    found = LoadHours.parse(hours)
    assert found.end_after(at(now)) == (None if end is None else at(end))
    assert str(found) == hours


def test_other_texts_are_no_hours() -> None:
    for text, problem in (
        ("", "expected two times"),
        ("22-06", "expected two times"),
        ("22:00", "expected two times"),
        ("24:00-06:00", "hour must be"),
        ("22:00-22:00", "an end that differs"),
        ("22:00-06:00 Mars/Olympus", "not Mars/Olympus"),
    ):
        with pytest.raises(ValueError, match=problem):
            LoadHours.parse(text)


def test_a_load_must_end_in_time() -> None:
    times = LoadTimes(LoadHours.parse("22:00-06:00"), at("2026-11-27T05:30"))
    assert times.refusal(at("2026-11-27T05:29"), 60.0) is None
    assert times.refusal(at("2026-11-27T05:29"), 61.0) == (
        "the next load would end at 05:30:01, and no load may last beyond 05:30:00 (--until)"
    )
    assert times.refusal(at("2026-11-27T12:00"), 0.0) == (
        "it is 12:00, and the cluster's load_hours are 22:00-06:00"
    )
    only_hours = LoadTimes(LoadHours.parse("22:00-06:00"))
    assert only_hours.refusal(at("2026-11-27T05:59"), 90.0) == (
        "the next load would end at 06:00:30, and no load may last beyond 06:00:00 "
        "(the cluster's load_hours)"
    )
    assert LoadTimes().refusal(at("2026-11-27T05:59"), 1e9) is None


def test_a_time_of_day_is_the_next_one() -> None:
    for text, now, expected in (
        ("06:00", "2026-11-26T23:30", "2026-11-27T06:00"),
        ("06:00", "2026-11-26T05:30", "2026-11-26T06:00"),
        ("06:00", "2026-11-26T06:00", "2026-11-27T06:00"),
        ("2026-11-28T06:00", "2026-11-26T06:00", "2026-11-28T06:00"),
        ("2026-11-28T06:00+02:00", "2026-11-26T06:00", "2026-11-28T04:00"),
    ):
        assert next_time(text, at(now)) == at(expected)
    for text, problem in (
        ("6", "isoformat"),
        ("25:00", "hour must be"),
        ("soon", "isoformat"),
        ("2026-11-25T06:00", "this time has passed"),
    ):
        with pytest.raises(ValueError, match=problem):
            next_time(text, at("2026-11-26T06:00"))
