"""The wait for pages that the brokers' hosts still have to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials.gates import FRESH_S, Gates
from jobs.trials.recovery import DEADLINE_S, SPARE_BYTES, WriteBack, why_not_written
from metrics.sources.hosts.source import HostSample
from tests.support.gated_cluster import TOPIC, Cluster
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
        gates = Gates(cluster, cluster.check, reporter, None, cluster.clock, cluster.pause)
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
