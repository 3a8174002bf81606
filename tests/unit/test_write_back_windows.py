"""Windows of write-back: what brokers took in, what disks wrote, and what memory holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.host import host_use_table
from metrics.windows.use import Resource
from metrics.windows.write_back import (
    POINTS_MAX,
    WriteBackWindow,
    dirty_background_bytes,
    dirty_limit_bytes,
    settled_span,
    write_back_windows,
)

HOSTS = {"b": (1, 2)}
AVAILABLE = 20e9


def taken(rate: float, until_s: int, brokers: tuple[int, ...] = (1, 2)) -> list[BrokerSample]:
    """Two brokers that take in `rate` together, half of it as replicas [B/s]."""
    each = rate / len(brokers) / 2
    return [
        BrokerSample(broker, at + 0.5, {"bytes_in": each * at, "replication_bytes_in": each * at})
        for broker in brokers
        for at in range(-2, until_s + 2)
    ]


def written(
    rate: float, disk: Callable[[float, float], float], until_s: int, **more: float
) -> list[HostSample]:
    """A host whose disk writes `disk(time, pages in memory)` in each second [B]."""
    samples, total, wrote = [], 0.0, 0.0
    for at in range(until_s + 1):
        values = {
            "dirty_bytes": total - wrote,
            "writeback_bytes": 0.0,
            "memory_available_bytes": AVAILABLE,
            "disk_written_bytes:vdb": wrote,
            **more,
        }
        samples.append(HostSample("b", float(at), values))
        total += rate
        wrote += min(disk(at + 1.0, total - wrote), total - wrote)
    return samples


def healthy(at_s: float, unwritten: float) -> float:
    """Linux's write-back of a fast disk: all that is there, each half minute."""
    return unwritten if at_s % 32 == 0 else 0.0


def window_of(rate: float, disk: Callable[[float, float], float], until_s: int) -> WriteBackWindow:
    (found,) = write_back_windows(
        taken(rate, until_s), written(rate, disk, until_s), HOSTS, 0.0, until_s
    )
    return found


def test_a_slow_disk_writes_its_share_and_memory_takes_the_rest() -> None:
    found = window_of(64e6, lambda *_: 10e6, 90)
    assert (found.host, found.brokers, found.duration_s) == ("b", (1, 2), 90.0)
    assert found.taken_bytes == pytest.approx(90 * 64e6)
    assert found.written_bytes == pytest.approx(90 * 10e6)
    assert found.absorbed_bytes == pytest.approx(90 * 54e6)
    assert found.room_bytes == pytest.approx(0.15 * AVAILABLE), "Linux's defaults"
    assert found.settled_share == pytest.approx(10 / 64)
    assert found.settled_s >= 60.0
    assert (found.disks, found.disks_known) == (("vdb",), False)
    (row,) = host_use_table((), [window_of(64e6, lambda *_: 10e6, 30)])
    assert (row.host, row.resource, row.device) == ("b", Resource.MEMORY, "pages to write")
    assert row.utilization == pytest.approx(30 * 54e6 / (0.15 * AVAILABLE))
    assert (row.saturation, row.saturation_unit) == (0.0, "bytes being written")


def test_the_surges_of_a_healthy_disk_are_settled_after_two_of_them() -> None:
    short = window_of(64e6, healthy, 30)
    assert short.written_bytes == 0.0, "nothing yet, as on every healthy broker"
    assert (short.settled_s, short.settled_share) == (0.0, None)
    long = window_of(64e6, healthy, 66)
    assert long.settled_s == pytest.approx(66.0), "the longest span, not the best surge"
    assert long.settled_share == pytest.approx(64 / 66)


def test_no_span_shows_more_than_the_speed_of_the_disk() -> None:
    for speed in (0.2, 0.5, 0.9, 0.94):
        found = window_of(50e6, lambda at_s, _, to=speed: to * 50e6 * (at_s > 31), 200)
        assert found.settled_share is not None and found.settled_share <= speed + 1e-9
    points = [(float(at), 2.0 * at, 1.0 * at) for at in range(86_400)]
    span = settled_span(points, 60.0)
    assert span is not None and span[1][0] - span[0][0] >= 86_400 / POINTS_MAX / 2, "few points"


def test_only_disks_with_log_dirs_count_where_they_are_known() -> None:
    def found_in(hosts: list[HostSample]) -> WriteBackWindow:
        (found,) = write_back_windows(taken(1e6, 9), hosts, HOSTS, 0, 10)
        return found

    own = written(
        1e6, lambda *_: 1e6, 9,
        **{"log_disk:loop0": 1.0, "disk_written_bytes:loop0": 5.0, "disk_written_bytes:dm-0": 9.0},
    )  # fmt: skip
    found = found_in(own)
    assert (found.disks, found.disks_known, found.written_bytes) == (("loop0",), True, 0.0)
    others = {"disk_written_bytes:dm-0": 9.0, "disk_written_bytes:md127": 9.0}
    found = found_in(written(1e6, lambda *_: 1e6, 9, **others))
    assert found.disks == ("vdb",), "a device that is made of disks counts their bytes again"
    # Samples of tasks on the machine of a broker know no log dirs, and do not count.
    tasks = [replace(each, at_s=each.at_s + 0.1) for each in written(1e6, lambda *_: 9e9, 9)]
    found = found_in([tasks[0], *own, *tasks])
    assert (found.disks, found.disks_known, found.duration_s) == (("loop0",), True, 9.0)
    assert (found_in(tasks).disks, found_in(tasks).disks_known) == (("vdb",), False)


def test_what_is_missing_is_not_known() -> None:
    hosts = written(1e6, lambda *_: 1e6, 9)
    (alone,) = write_back_windows(taken(1e6, 9, (1,)), hosts, HOSTS, 0, 9)
    assert (alone.taken_bytes, alone.written_bytes, alone.absorbed_bytes) == (None, None, None)
    assert alone.dirty_bytes is not None
    restarted = [*taken(1e6, 9, (1,)), BrokerSample(2, -1.0, {"bytes_in": 9e9})]
    restarted.append(BrokerSample(2, 11.0, {"bytes_in": 1.0}))
    (found,) = write_back_windows(restarted, hosts, HOSTS, 0, 9)
    assert found.taken_bytes is None
    blind = [replace(each, values={"cores": 2.0}) for each in hosts]
    assert write_back_windows(taken(1e6, 9), blind, HOSTS, 0, 9) == ()
    assert write_back_windows(taken(1e6, 9), hosts[:1], HOSTS, 0, 9) == ()
    assert write_back_windows(taken(1e6, 9), hosts, {"other": (1,)}, 0, 9) == ()
    no_memory = [
        replace(s, values={n: v for n, v in s.values.items() if n != "memory_available_bytes"})
        for s in hosts
    ]
    (found,) = write_back_windows(taken(1e6, 9), no_memory, HOSTS, 0, 9)
    assert (found.dirty_limit_bytes, found.room_bytes, found.unwritten_share) == (None, None, None)
    first, *_ = pairwise(taken(1e6, 9))
    assert first[0].at_s < 0.0, "the counters are known at the first sample of the host"


def test_the_limits_of_dirty_pages_are_those_of_the_host_in_bytes_or_as_a_ratio() -> None:
    values = {"memory_available_bytes": 1_000.0, "dirty_ratio": 0.4}
    assert dirty_limit_bytes(HostSample("h", 0.0, values)) == 250.0, "halfway to the limit"
    assert dirty_background_bytes(HostSample("h", 0.0, values)) == 100.0, "Linux's default"
    in_bytes = {**values, "dirty_limit_bytes": 70.0, "dirty_background_bytes": 30.0}
    assert dirty_limit_bytes(HostSample("h", 0.0, in_bytes)) == 50.0
    assert dirty_background_bytes(HostSample("h", 0.0, in_bytes)) == 30.0
    swapped = {**in_bytes, "dirty_background_bytes": 90.0}
    assert dirty_limit_bytes(HostSample("h", 0.0, swapped)) == 52.5, "as the kernel halves it"
    assert dirty_limit_bytes(HostSample("h", 0.0, {"dirty_bytes": 1.0})) is None
