"""Pages that hosts of brokers still have to write: the wait for them, and their windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials.gates import FRESH_S
from jobs.trials.recovery import DEADLINE_S, SPARE_BYTES, WriteBack, why_not_written
from metrics.sources.hosts.host_sample import HostSample
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
from tests.support.gated_cluster import TOPIC, Cluster, gates_of
from tests.support.scripted_source import ScriptedSource

MEMORY = {"memory_available_bytes": 20e9}


def host(dirty: float, writeback: float, **more: float) -> HostSample:
    return HostSample(
        "b", 0.0, {"dirty_bytes": dirty, "writeback_bytes": writeback, **MEMORY, **more}
    )


@pytest.mark.parametrize(
    ("now", "before", "reason"),
    [
        (host(1.9e9, SPARE_BYTES), None, None),  # young pages disturb no trial
        (host(0.0, SPARE_BYTES + 1e6), None, "host b: 17 MB are being written to its disks"),
        (host(0.0, 90e6), host(0.0, 40e6), None),
        (host(0.0, 100e6), host(0.0, 40e6), "host b: 100 MB are being written"),
        (host(2.1e9, 0.0), None, "host b: 2.1 GB of written pages wait for its disks"),
        (host(2.1e9, 0.0), host(1.1e9, 0.0), None),  # others keep as many
        (host(0.4e9, 0.0, dirty_background_bytes=0.3e9), None, "host b: 400 MB of written pages"),
        (HostSample("b", 0.0, {}), None, None),
        (HostSample("b", 0.0, {"dirty_bytes": 9e9}), None, None),  # a limit is not known
    ],
)
def test_a_host_is_at_rest_once_it_writes_no_more_than_before_the_run(
    now: HostSample, before: HostSample | None, reason: str | None
) -> None:
    found = why_not_written(now, before)
    if reason is None:
        assert found is None
    else:
        assert found is not None and found.text.startswith(reason)
        assert not found.invalidates


class SlowDisk:
    """The host of the brokers, whose disk writes so many bytes per second of the script's time."""

    brokers: Mapping[str, tuple[int, ...]] = {"b": (1, 2)}
    machines = frozenset({"b"})

    def __init__(self, cluster: ScriptedSource, bytes_per_s: float) -> None:
        self._cluster = cluster
        self._bytes_per_s = bytes_per_s
        self._full = (0.0, cluster.now_s)

    def absorb(self, bytes_: float) -> None:
        self._full = (bytes_, self._cluster.now_s)

    def sample_all(self) -> Sequence[HostSample]:
        held, since_s = self._full
        left = max(0.0, held - self._bytes_per_s * (self._cluster.now_s - since_s))
        return [host(0.0, left), HostSample("executor", 0.0, {"writeback_bytes": 9e9})]

    def close(self) -> None: ...


def test_a_trial_begins_once_the_last_load_is_written_or_after_a_minute() -> None:
    for bytes_per_s, left, waits_s, reason in (
        (10e6, 300e6, pytest.approx(29.0, abs=1.5), ""),  # until 16 MB are left
        (1e6, 900e6, pytest.approx(DEADLINE_S, abs=2.0), "host b: 839 MB are being written to"),
    ):
        cluster, reporter = Cluster(), RecordingReporter()
        disk = SlowDisk(cluster, bytes_per_s)
        gates = gates_of(cluster, reporter=reporter)
        gates.write_back = WriteBack(disk)
        gates.take_baseline()
        cluster.pause(FRESH_S)
        disk.absorb(left)
        before_s = cluster.now_s
        assert gates.pass_all(TOPIC) == ()
        assert cluster.now_s - before_s == waits_s
        begun = [each.text for each in reporter.events if isinstance(each, PhaseStarted)]
        assert begun[0] == "waiting until the brokers are at rest"
        assert (len(begun) == 2 and f"although {reason}" in begun[1]) if reason else not begun[1:]


@pytest.mark.parametrize(
    ("written", "log_disk", "is_at_rest"),
    [(900_000.0, True, True), (1_100_000.0, True, False), (0.0, False, False)],
)
def test_pages_of_other_disks_than_those_of_log_dirs_delay_nothing(
    written: float, log_disk: bool, is_at_rest: bool
) -> None:
    more = {"log_disk:sdb": 1.0} if log_disk else {}
    looks = [
        replace(host(0.0, 900e6, **{"disk_written_bytes:sdb": 5.0 + bytes_, **more}), at_s=at_s)
        for at_s, bytes_ in ((0.0, 0.0), (1.0, written))
    ]

    class Hosts:
        brokers: Mapping[str, tuple[int, ...]] = {"b": (1, 2)}
        machines = frozenset({"b"})

        def sample_all(self) -> Sequence[HostSample]:
            return [looks.pop(0)]

        def close(self) -> None: ...

    waiting = WriteBack(Hosts())
    assert waiting.reasons() != (), "one look shows no rate"
    assert (waiting.reasons() == ()) is is_at_rest


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


@pytest.mark.parametrize("speed", [0.2, 0.5, 0.9, 0.94])
def test_no_span_shows_more_than_the_speed_of_the_disk(speed: float) -> None:
    found = window_of(50e6, lambda at_s, _: speed * 50e6 * (at_s > 31), 200)
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
