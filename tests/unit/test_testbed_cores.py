"""Brokers that may use some cores only, and several log dirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.testbed.commands import resource_lines
from jobs.testbed.cpu_groups import CpuGroups, cpu_groups, remove_groups
from jobs.testbed.model import available_cores, cores_of, require_cores
from jobs.testbed.profile import adapt, load_profile
from metrics.common.errors import ConfigError
from tests.support.testbed_spec import SPEC


def test_brokers_are_spread_over_the_cores() -> None:
    cores = (0, 1, 4, 5)
    assert [cores_of(broker, 1, cores) for broker in (1, 2, 5)] == [(0,), (1,), (0,)]
    assert [cores_of(broker, 2, cores) for broker in (1, 2, 3)] == [(0, 1), (4, 5), (0, 1)]
    assert cores_of(2, 3, cores) == (0, 1, 5)
    assert cores_of(1, None, cores) == ()
    made = adapt(load_profile("disk-bound"), overrides={"log_dirs": "4", "cpus": 1})
    assert (made.log_dirs, made.cpus) == (4, 1)
    assert adapt(made, overrides={"cpus": "0.5"}).cpus == 0.5


def test_more_cores_than_there_are_are_refused() -> None:
    require_cores(None, (), False)
    require_cores(2, (0, 1), False)
    require_cores(0.5, (0, 1), True)
    with pytest.raises(ConfigError, match=r"cpus is 3, .* 2 cores; expected 1 to 2 .*lower cpus"):
        require_cores(3, (0, 1), True)
    with pytest.raises(ConfigError, match=r"cpus is 1, .*remove cpus"):
        require_cores(1, (), False)
    with pytest.raises(ConfigError, match=r"cpus is 0\.5, .*expected a whole number of cores"):
        require_cores(0.5, (0, 1), False)


@pytest.mark.parametrize("has_quota", [False, True])
def test_the_limits_of_brokers_are_printed(
    has_quota: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resource_lines(SPEC) == []
    groups = CpuGroups(Path("groups"), 2) if has_quota else None
    monkeypatch.setattr("jobs.testbed.commands.cpu_groups", lambda: groups)
    first = available_cores()[0]
    lines = resource_lines(replace(SPEC, brokers=1, cpus=1, log_dirs=4))
    if has_quota:
        assert lines[0] == "  cores              1 a broker, by the CPU quota of a control group"
        return
    assert lines == [
        f"  cores, broker 1    {first} (by CPU affinity)",
        "  log directories    4 a broker, on one disk",
    ]


@pytest.mark.parametrize(
    ("groups", "made", "version"),
    [
        ("4:cpu,cpuacct:/user\n0::/\n", "cpu,cpuacct/user/cpu.cfs_quota_us", 1),
        ("1:cpu:/\n", "cpu/anything", 1),  # a group of the root has no quota of its own
        ("0::/mine\n", "mine/cgroup.subtree_control", 2),
        ("0::/mine\n", "mine/anything", None),  # the controller is not delegated
        ("7:memory:/\n", "memory/anything", None),
        ("1:cpu:/user\n", "cpu/user/anything", None),
    ],
)
def test_quotas_are_set_where_groups_can_be_made(
    tmp_path: Path, groups: str, made: str, version: int | None
) -> None:
    own, root = tmp_path / "own", tmp_path / "cgroup"
    assert cpu_groups(tmp_path, own) is None, "a system without control groups"
    own.write_text(groups)
    (root / made).parent.mkdir(parents=True)
    (root / made).write_text("cpuset cpu io")
    (root / "mine").mkdir(exist_ok=True)
    (root / "mine" / "cpu.max").write_text("max 100000")
    found = cpu_groups(root, own)
    assert (None if found is None else found.version) == version
    if found is None:
        return
    group = found.make("redline-t-1", 0.5)
    quota = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    assert (group / quota).read_text().split()[0] == "50000"
    assert group.parent == (root / made).parent


def test_groups_of_a_testbed_are_removed_at_any_place(tmp_path: Path) -> None:
    removed = [tmp_path / "cpu" / "service" / "redline-t-1", tmp_path / "unified" / "redline-t-12"]
    others = [tmp_path / "cpu" / "redline-other-1", tmp_path / "cpu" / "service" / "redline-tt-1"]
    for group in (*removed, *others):
        group.mkdir(parents=True)
    remove_groups("t", tmp_path)
    assert [each.exists() for each in (*removed, *others)] == [False, False, True, True]
