"""Reading hosts from /proc and node_exporter, and their windows: the same values from both."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.hosts.proc import LocalHost, LocalHosts
from metrics.trial.client import QuotaWindow, quota_window
from metrics.windows.host import HostWindow, InterfaceWindow, host_use_of, host_window, host_windows
from tests.support.processes import PATIENCE_S
from tests.support.served_exporter import Exporter, serving

DATA = Path(__file__).parents[1] / "data" / "host"
"""Files of a kernel, and pages of the same machine and its windows."""
EXPORTED = (DATA / "node_exporter.txt").read_text(encoding="utf-8")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return shutil.copytree(DATA / "proc", tmp_path / "proc")


def local(proc: Path, **options: object) -> LocalHost:
    return LocalHost("me", clock=lambda: 50.0, proc=proc, sys=proc / "sys", **options)  # type: ignore[arg-type]


def test_the_kernels_counters_are_read_by_the_projects_names_and_units(
    proc: Path, snapshot: SnapshotAssertion
) -> None:
    sample = local(proc).sample({1: 4242, 2: 999})
    assert (sample.host, sample.at_s) == ("me", 50.0)
    assert sample.values == snapshot


def test_the_disk_of_a_log_dir_counts_even_where_such_devices_do_not(
    proc: Path, tmp_path: Path
) -> None:
    sys, number = proc / "sys", tmp_path.stat().st_dev
    (sys / "devices/vda/vda1").mkdir(parents=True)
    (sys / "devices/vda/vda1/partition").write_text("1\n", encoding="ascii")
    (sys / "devices/loop0").mkdir()
    (sys / "dev/block").mkdir(parents=True)
    link = sys / f"dev/block/{os.major(number)}:{os.minor(number)}"
    link.symlink_to("../../devices/loop0")
    values = local(proc).with_log_dirs([tmp_path, tmp_path / "none"]).sample().values
    assert (values["log_disk:loop0"], values["disk_written_bytes:loop0"]) == (1.0, 512)
    assert "log_disk:vda" not in values
    link.unlink()
    link.symlink_to("../../devices/vda/vda1")
    assert local(proc).with_log_dirs([tmp_path]).sample().values["log_disk:vda"] == 1.0, "its disk"
    assert "disk_written_bytes:loop0" not in local(proc).sample().values


def test_network_counters_are_those_of_the_namespace_of_a_process(proc: Path) -> None:
    values = local(proc, network_of=lambda: 77, speeds={"tun0": 5e6}).sample().values
    assert values["net_received_bytes:tun0"] == 7
    assert values["net_speed_bytes_per_s:tun0"] == 5e6
    assert "net_received_bytes:eth0" not in values
    assert "tcp_sent_segments" not in values


def test_only_a_physical_interface_has_a_speed(proc: Path) -> None:
    card = proc / "sys/class/net/eth0"
    card.mkdir(parents=True)
    (card / "speed").write_text("1000\n", encoding="ascii")
    assert "net_speed_bytes_per_s:eth0" not in local(proc).sample().values
    (card / "device").mkdir()
    assert local(proc).sample().values["net_speed_bytes_per_s:eth0"] == 125e6
    (card / "speed").write_text("-1\n", encoding="ascii")
    assert "net_speed_bytes_per_s:eth0" not in local(proc).sample().values


QUOTA_V2 = "usage_usec 9\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
QUOTA_V1 = "nr_periods 80\nnr_throttled 20\nthrottled_time 500000000\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def quota_of(proc: Path) -> list[float]:
    values = local(proc, generates=True).sample().values
    return [values[name] for name in ("quota_periods", "throttled_periods", "throttled_s")]


def test_the_quota_of_the_generators_own_group_and_of_its_parents_is_read(proc: Path) -> None:
    write(proc / "self/cgroup", "0::/pod.slice/executor\n")
    groups = proc / "sys/fs/cgroup"
    assert "quota_periods" not in local(proc, generates=True).sample().values, "no such group"
    write(groups / "cpu.stat", "usage_usec 99\n")  # the root has no quota
    write(groups / "pod.slice/cpu.stat", QUOTA_V2.format(100, 10, 250_000))
    write(groups / "pod.slice/executor/cpu.stat", QUOTA_V2.format(90, 5, 500_000))
    write(groups / "other/cpu.stat", QUOTA_V2.format(900, 900, 9_000_000))
    assert quota_of(proc) == pytest.approx([100.0, 15.0, 0.75])
    assert "quota_periods" not in local(proc).sample().values, "a broker's host"


@pytest.mark.parametrize("folder", ["cpu,cpuacct/task", "cpu/task", "cpu"])
def test_groups_of_version_1_are_read_in_a_container_and_outside_of_one(
    proc: Path, folder: str
) -> None:
    write(proc / "self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/task\n0::/\nnonsense\n")
    write(proc / "sys/fs/cgroup" / folder / "cpu.stat", QUOTA_V1)
    assert quota_of(proc) == pytest.approx([80.0, 20.0, 0.5])


def test_the_quota_of_each_brokers_own_group_is_read_and_of_no_other(proc: Path) -> None:
    write(proc / "71/cgroup", "0::/broker-1\n")
    write(proc / "72/cgroup", "0::/broker-2\n")
    write(proc / "sys/fs/cgroup/broker-1/cpu.stat", QUOTA_V2.format(100, 93, 250_000))
    write(proc / "sys/fs/cgroup/broker-2/cpu.stat", "usage_usec 99\n")
    host = local(proc)
    quotas = {n: v for n, v in host.sample({1: 71, 2: 72, 3: 73}).values.items() if "quota" in n}
    assert quotas == {"broker_quota_periods:1": 100.0}
    write(proc / "sys/fs/cgroup/broker-1/cpu.stat", QUOTA_V2.format(200, 186, 250_000))
    assert host.sample({1: 71}).values["broker_throttled_periods:1"] == 186.0


def test_a_window_has_the_share_of_the_periods_that_a_quota_stopped() -> None:
    names = ("quota_periods", "throttled_periods", "throttled_s")
    counters = [(0, 0, 0.0), (100, 25, 1.0), None, (200, 50, 2.0), None]
    samples = [
        HostSample("g", float(at_s), {"cores": 2.0, **dict(zip(names, each or (), strict=False))})
        for at_s, each in enumerate(counters)
    ]
    samples.append(HostSample("idle", 1.0, dict.fromkeys(names, 0.0)))
    samples.append(HostSample("idle", 3.0, {**dict.fromkeys(names, 0.0), names[0]: 9.0}))
    assert quota_window(samples, 0.0, 9.0) == QuotaWindow("g", 0.25, 40.0)
    assert quota_window(samples, 2.0, 9.0) == QuotaWindow(), "one sample has no growth"
    assert quota_window(samples[5:], 0.0, 9.0) == QuotaWindow("idle", 0.0, None)


def test_a_system_without_proc_has_no_readings_and_no_error(tmp_path: Path) -> None:
    source = LocalHosts(LocalHost("me", proc=tmp_path / "none"), [1])
    (sample,) = source.sample_all()
    assert (sample.values, sample.error) == ({}, None)
    (window,) = host_windows([sample], 0.0, 2e9, source.brokers)
    assert (window.host, window.brokers, window.cpu_busy) == ("me", (1,), None)
    assert host_use_of(window) == ()


def test_node_exporter_has_the_same_readings_under_the_same_names(proc: Path) -> None:
    with serving(Exporter(EXPORTED)) as exporter:
        address = f"127.0.0.1:{exporter.port}"
        source = NodeExporters({2: address, 1: address}, PATIENCE_S, clock=lambda: 50.0)
        with closing(source):
            (sample,) = source.open().sample_all()
    assert source.brokers == {"127.0.0.1": (1, 2)}
    own = {**local(proc).sample().values, "net_speed_bytes_per_s:eth0": 1.25e8}
    assert sample.values == {name: own[name] for name in sample.values}
    assert {"cores", "cpu_s:user", "disk_queued_s:vda", "pressure_s:cpu"} <= sample.values.keys()


def test_the_disks_of_the_log_dirs_are_those_that_the_clusters_file_names(
    snapshot: SnapshotAssertion,
) -> None:
    page = f'{EXPORTED}node_disk_written_bytes_total{{device="loop3"}} 7e+06\n'
    with serving(Exporter(page)) as exporter:
        addresses = {1: f"127.0.0.1:{exporter.port}"}

        def values(*log_disks: str) -> Mapping[str, float]:
            with closing(NodeExporters(addresses, PATIENCE_S, log_disks=log_disks)) as source:
                return source.open().sample_all()[0].values

        named = values("loop3", "sdb")
        assert (named["log_disk:loop3"], named["disk_written_bytes:loop3"]) == (1.0, 7e6)
        assert "log_disk:sdb" not in named, "a disk of another host"
        assert not any("loop3" in name or "log_disk" in name for name in values())
        with pytest.raises(ConfigError) as raised:
            values("sdb")
    assert str(raised.value).replace(str(exporter.port), "1") == snapshot


def test_a_failed_exporter_is_reported() -> None:
    with serving(Exporter("go_goroutines 9\n")) as exporter:
        source = NodeExporters({7: f"127.0.0.1:{exporter.port}"}, PATIENCE_S)
        with pytest.raises(ConfigError, match=r"host of broker 7 .*without any series of node_exp"):
            source.open()
        exporter.text = EXPORTED
        with closing(source):
            source.open()
            exporter.status = 500
            (sample,) = source.sample_all()
    assert sample.values == {}
    assert sample.error is not None and "HTTP 500" in sample.error


def machine(name: str, booted_s: float = 1e9, user_s: float = 0.5) -> str:
    """A page of node_exporter on a machine."""
    uname = (
        f'node_uname_info{{domainname="(none)",machine="x86_64",nodename="{name}",'
        'release="6.1.0/a",sysname="Linux",version="#1 SMP"} 1'
    )
    busy = f'node_cpu_seconds_total{{cpu="0",mode="user"}} {user_s}'
    return f"{uname}\nnode_boot_time_seconds {booted_s!r}\n{busy}\n"


def test_machines_behind_one_name_are_told_apart_by_their_ports() -> None:
    with (
        serving(Exporter(machine("a", user_s=1.0))) as first,
        serving(Exporter(machine("b", user_s=2.0))) as second,
    ):
        a, b = (f"127.0.0.1:{each.port}" for each in (first, second))
        with closing(NodeExporters({1: a, 2: b, 3: b}, PATIENCE_S)) as source:
            samples = source.open().sample_all()
    assert source.brokers == {a: (1,), b: (2, 3)}
    assert source.machines == {"127.0.0.1"}
    values = {each.host: each.values for each in samples}
    assert values == {host: {"cpu_s:user": n, "cores": 1.0} for host, n in ((a, 1.0), (b, 2.0))}


def refusal(*exporters: Exporter) -> str:
    """Why addresses of hosts are refused, with the numbers of brokers for ports."""
    ports = {each.port: f"{number}" for number, each in enumerate(exporters, 1)}
    source = NodeExporters({int(n): f"127.0.0.1:{port}" for port, n in ports.items()}, PATIENCE_S)
    with pytest.raises(ConfigError) as raised:
        source.open()
    return re.sub(r"(?<=127.0.0.1:)\d+", lambda port: ports[int(port[0])], str(raised.value))


def test_two_addresses_of_one_machine_are_refused(snapshot: SnapshotAssertion) -> None:
    with (
        serving(Exporter(machine("a", 1e9))) as first,
        serving(Exporter(machine("a", 1e9 + 1))) as second,
    ):
        assert refusal(first, second) == snapshot
        second.text = machine("a", 1e9 + 60)  # of the same name, as clones are
        addresses = {1: f"127.0.0.1:{first.port}", 2: f"127.0.0.1:{second.port}"}
        with closing(NodeExporters(addresses, PATIENCE_S)) as source:
            assert len(source.open().sample_all()) == 2


class Balanced(Exporter):
    """An address that leads to another machine at each connection."""

    def answer(self, path: str) -> str:
        return machine("ab"[(len(self.connections) - 1) % 2])


def test_an_address_of_several_machines_is_refused(snapshot: SnapshotAssertion) -> None:
    with serving(Balanced()) as exporter:
        assert refusal(exporter) == snapshot


def test_another_machine_during_a_run_is_no_sample() -> None:
    with serving(Exporter(machine("a"))) as exporter:
        address = f"127.0.0.1:{exporter.port}"
        with closing(NodeExporters({1: address}, PATIENCE_S)) as source:
            source.open()
            errors = []
            for page in (machine("b"), machine("a", 2e9), machine("a", 1e9)):
                exporter.text = page
                errors.append(str(source.sample_all()[0].error))
    assert f"machine b, booted 2001-09-09 01:46:40 UTC answers at {address}" in errors[0]
    assert errors[1] == "None", "it was booted again"
    assert "but before it was machine a, booted 2033" in errors[2]


# --- windows ------------------------------------------------------------------


READINGS = YAML(typ="safe").load((DATA / "window.yaml").read_text(encoding="utf-8"))
"""Reading → its value at the first sample, and its growth until the second one."""
FIRST = {name: first for name, (first, _) in READINGS.items()}


def two_samples() -> list[HostSample]:
    later = {name: first + growth for name, (first, growth) in READINGS.items()}
    return [
        HostSample("b1", 100.0, FIRST),
        HostSample("b1", 110.0, later),
        HostSample("b1", 90.0, dict.fromkeys(FIRST, 0.0)),  # before the window
        HostSample("b1", 105.0, error="no answer"),
        HostSample("other", 105.0, FIRST),
    ]


def with_values(sample: HostSample, at_s: float | None = None, **values: float) -> HostSample:
    """A sample with more readings, `disk_busy_s__vda` for `disk_busy_s:vda`."""
    more = {name.replace("__", ":"): value for name, value in values.items()}
    return replace(sample, at_s=at_s or sample.at_s, values={**sample.values, **more})


def window(
    looks: Sequence[HostSample] | None = None, start_s: float = 99.0, end_s: float = 111.0
) -> HostWindow:
    """The window of a host with two brokers."""
    named = HostWindow("b1", (1, 2), generates=False, shares_machine=True)
    own = [each for each in looks or two_samples() if each.host == "b1"]
    return host_window(named, own, start_s, end_s)


def without(part: str, sample: HostSample) -> HostSample:
    values = {name: value for name, value in sample.values.items() if part not in name}
    return replace(sample, values=values)


def test_a_cpu_is_busy_without_a_reading_of_waits_for_disks() -> None:
    found = window([without("iowait", each) for each in two_samples()])
    assert found.cpu_busy == pytest.approx(15 / 19)
    assert found.cpu_iowait is None


def test_a_window_has_the_growth_of_counters_and_use_of_each_resource(
    snapshot: SnapshotAssertion,
) -> None:
    found = window()
    assert window(start_s=100.0, end_s=110.0) == found, "samples on the edges are inside"
    assert {"window": asdict(found), "use": list(map(asdict, host_use_of(found)))} == snapshot
    assert found.interfaces[0].dropped_share == pytest.approx(10 / 1000)
    one = window(two_samples()[:1], 0.0, 200.0)
    assert (one.brokers, one.samples, one.cpu_busy) == ((1, 2), 0, None)
    assert InterfaceWindow("eth0", packets=9.0, speed_bytes_per_s=1e6).used_share is None
    assert replace(found, interfaces=()).busiest_interface is None


def test_the_memory_of_each_broker_is_known_by_the_samples_that_show_it() -> None:
    first, last, *_ = two_samples()
    late = with_values(last, 111.0, resident_bytes__2=700.0)
    assert window([first, last, late]).resident_bytes == {1: 600.0, 2: 700.0}
    of_a_task = replace(without("resident", last), at_s=111.0)
    assert window([first, last, of_a_task]).resident_bytes == {1: 600.0}


def test_a_broker_has_the_share_of_its_quotas_periods_that_stopped_it() -> None:
    first, last, *_ = two_samples()
    own = [
        with_values(first, broker_quota_periods__1=50.0, broker_throttled_periods__1=10.0,
                    broker_quota_periods__2=7.0),
        with_values(last, broker_quota_periods__1=150.0, broker_throttled_periods__1=90.0,
                    broker_quota_periods__2=7.0, broker_throttled_periods__2=0.0),
    ]  # fmt: skip
    of_a_task = [replace(first, at_s=99.5), replace(last, at_s=110.5)]
    assert window([*own, *of_a_task]).throttled_shares == {1: 0.8}, "broker 2 has no quota"
    assert window([own[0], *of_a_task]).throttled_shares == {}
    restarted = [own[1], replace(own[0], at_s=110.8)]
    assert window(restarted).throttled_shares == {}, "counters of another group"


def test_disks_of_log_dirs_are_known_beside_samples_of_tasks_that_lack_them() -> None:
    first, last, *_ = two_samples()
    with_logs = [
        with_values(first, log_disk__loop1=1.0, disk_busy_s__loop1=0.0, disk_queued_s__loop1=0.0),
        with_values(last, log_disk__loop1=1.0, disk_busy_s__loop1=9.0, disk_queued_s__loop1=150.0),
    ]
    of_tasks = [replace(first, at_s=99.5), replace(last, at_s=110.5)]
    found = {each.device: each for each in window([*with_logs, *of_tasks]).disks}
    assert set(found) == {"vda", "loop1"}
    assert (found["loop1"].busy_share, found["loop1"].queue) == (0.9, 15.0)
    one = window([with_logs[0], *of_tasks])
    assert [each.device for each in one.disks] == ["vda"], "one sample has no growth"


def test_each_host_has_its_brokers_and_its_roles() -> None:
    looks = [*two_samples(), HostSample("gen", 100.0, FIRST), HostSample("gen", 110.0, FIRST)]
    brokers = {"b1": (1, 2), "b1/link": (1, 2)}
    found = host_windows(looks, 99.0, 111.0, brokers, {"gen", "b1"}, {"gen"})
    assert [(each.host, each.brokers, each.generates, each.shares_machine) for each in found] == [
        ("b1", (1, 2), True, True),
        ("b1/link", (1, 2), False, True),
        ("gen", (), True, True),
    ]
