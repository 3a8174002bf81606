"""Disks with a stated write rate: their options, their devices, and the limit that follows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.finding import problems_of
from jobs.cluster.opening import require_startable
from jobs.config import load_cluster, load_workload
from jobs.config.cluster import stated_environment
from jobs.config.link import PlantedDisk
from jobs.features.doctor.examination import machine_findings
from jobs.testbed import planted_devices as devices
from jobs.testbed.commands import disk_lines
from jobs.testbed.launcher import cluster_text
from jobs.testbed.model import State, Status
from jobs.testbed.planted_devices import (
    IMAGE,
    DeviceError,
    devices_below,
    lift_rates,
    make_disk,
    plant_rate,
    planted_disk_problem,
    remove_disks,
    require_devices,
    require_rate,
)
from jobs.testbed.profile import Profile, adapt, load_profile
from jobs.trials.calibration import planted_rates
from metrics.columns import restored
from metrics.common.errors import ConfigError
from metrics.planning.planted import PlantedRates, log_bytes_per_s
from tests.support.testbed_spec import SPEC

DISK = PlantedDisk("20MB/s", size_bytes=200_000_000)
LACKING = planted_disk_problem(DISK)
CHECK = "planted disks"
can_make = pytest.mark.skipif(LACKING is not None, reason=LACKING or "")


def with_disk(**keys: object) -> Profile:
    overrides = {f"disk.{key}": value for key, value in keys.items()}
    return adapt(load_profile("disk-bound"), overrides=overrides)


# --- options ----------------------------------------------------------------


def test_a_disk_is_read_from_options_of_several_forms() -> None:
    wanted = PlantedDisk("10MB/s", dirty_bytes=0)
    assert with_disk(write_rate="10MB/s", dirty_bytes="0").disk == wanted
    text = adapt(load_profile("disk-bound"), overrides={"disk": "write_rate=10MB/s,dirty_bytes=0"})
    assert text.disk == wanted
    assert adapt(text, overrides={"disk": "none"}).disk is None
    slower = adapt(text, overrides={"disk.write_rate": "5MB/s"}).disk
    assert slower == replace(wanted, write_rate="5MB/s")


def test_what_waits_in_memory_is_bounded_unless_it_is_left_to_the_kernel() -> None:
    assert PlantedDisk("10MB/s").dirty_limit_bytes == 4_000_000
    assert PlantedDisk("1MB/s").dirty_limit_bytes == 1_000_000
    assert PlantedDisk("10MB/s", dirty_bytes=3_000_000).dirty_limit_bytes == 3_000_000
    assert PlantedDisk("10MB/s", dirty_bytes=0).dirty_limit_bytes is None


def test_a_testbed_states_its_disks(snapshot: SnapshotAssertion) -> None:
    spec = replace(SPEC, disk=PlantedDisk("10MB/s"))
    state = State(spec, Status.READY, 1.0)
    assert restored(State, json.loads(json.dumps(asdict(state)))) == state
    assert disk_lines(SPEC) == []
    assert "\n".join(disk_lines(spec)) == snapshot
    assert "disk:\n  write_rate: 10MB/s" in cluster_text(Path("/x"), state)
    assert "disks of 10MB/s" in spec.title


def test_a_machine_that_does_not_permit_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for user, file, missing in ((0, "/nowhere", "no /nowhere of control"), (1000, "/", "no root")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        monkeypatch.setattr(devices, "RATE_FILE", Path(file))
        with pytest.raises(ConfigError, match=missing):
            require_devices(None, DISK)


def test_doctor_and_the_start_of_a_run_look_for_what_a_disk_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = load_cluster("planted-disk")
    monkeypatch.setattr(devices, "planted_disk_problem", lambda _disk: None)
    (found,) = [each for each in machine_findings(tmp_path, planted) if each.check == CHECK]
    assert "10MB/s a broker" in found.found
    monkeypatch.setattr(devices, "planted_disk_problem", lambda _disk: "here there is no root")
    problems = problems_of(machine_findings(tmp_path, planted))
    assert ["no root" in each.found for each in problems if each.check == CHECK] == [True]
    with pytest.raises(ConfigError, match="no root"):
        require_startable(planted)
    assert CHECK not in [each.check for each in machine_findings(tmp_path, load_cluster("testbed"))]


# --- devices ----------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """The folder of a node with a planted disk, without its rate."""
    (tmp_path / "data").mkdir()
    make_disk(DISK, tmp_path, tmp_path / "data")
    yield tmp_path
    remove_disks(tmp_path)


@can_make
def test_a_disk_writes_at_its_rate_until_it_is_lifted_and_leaves_nothing(node: Path) -> None:
    data, (slow, fast) = node / "data", devices_below(node)
    assert data.stat().st_dev != node.stat().st_dev and list(data.iterdir()) == []
    plant_rate(DISK, node)
    require_rate(DISK, data)
    began_s = time.monotonic()
    (data / "log").write_bytes(bytes(40_000_000))
    # What waits in memory is bounded: without a flush, all but 8 MB are on the disk by now.
    assert time.monotonic() - began_s > 1.2
    lift_rates(node)
    with pytest.raises(DeviceError, match="a probe of the planted disk wrote"):
        require_rate(DISK, data)
    remove_disks(node)
    assert devices_below(node) == []
    assert not data.is_mount() and (node / IMAGE).exists()
    assert f"{slow.number} " not in devices.RATE_FILE.read_text()
    for device in (slow, fast):
        assert Path(f"/sys/class/bdi/{device.number}/strict_limit").read_text() == "0\n"


@can_make
def test_memory_of_a_disk_without_a_bound_takes_what_the_disk_does_not_write(node: Path) -> None:
    unbound = replace(DISK, dirty_bytes=0, write_rate="1MB/s")
    plant_rate(unbound, node)
    began_s = time.monotonic()
    (node / "data" / "log").write_bytes(bytes(20_000_000))
    assert time.monotonic() - began_s < 10.0, "the disk would take 20 s"


# --- the limit that follows -------------------------------------------------


def test_the_limit_of_disks_counts_headers_and_replicas() -> None:
    pattern = load_workload("planted").pattern(1000)
    # A record of 1,000 B takes 1,009 or 1,010 B, and 32 of them share a header of 61 B.
    assert log_bytes_per_s(pattern) == pytest.approx(100_000 * 1.01169, rel=0.0001)
    rates = PlantedRates(disk_bytes_per_s=10e6)
    assert rates.scale(pattern, 2) == pytest.approx(20e6 / log_bytes_per_s(pattern))
    three = replace(pattern, topic=replace(pattern.topic, replication_factor=2))
    assert rates.scale(three, 2) == pytest.approx(10e6 / log_bytes_per_s(pattern))


def test_the_limit_of_a_link_counts_the_headers_of_requests_and_packets() -> None:
    pattern = load_workload("planted").pattern(1000)
    rates = PlantedRates(link_bytes_per_s=20e6, mtu_bytes=9_000)
    found = rates.scale(pattern, 2)
    assert found is not None
    # 104 B of the request, and 52 B of each of 3.6 packets, for 32 records.
    assert found == pytest.approx(20e6 / (log_bytes_per_s(pattern) + 100.0 * 293 / 32), rel=0.001)
    assert rates.scale(pattern, 4) == found, "all brokers are behind one link"
    both = replace(rates, disk_bytes_per_s=1e6)
    assert both.scale(pattern, 2) == replace(both, link_bytes_per_s=None).scale(pattern, 2)
    assert PlantedRates().scale(pattern, 2) is None


def test_a_run_knows_the_stated_rates_from_its_environment() -> None:
    facts = stated_environment({}, {"rate": "20MB/s", "mtu": "1500"}, [1], {"write_rate": "5MB/s"})
    assert planted_rates(facts) == PlantedRates(5e6, 20e6, 1500)
    assert planted_rates({}) == PlantedRates()
    cluster = load_cluster("example").model_copy(update={"disk": {"write_rate": "5MB/s"}})
    assert planted_rates(cluster.environment([1])).disk_bytes_per_s == 5e6
