"""The link of a testbed: its options and its delay line, without root."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.checks.executor_facts import facts
from jobs.checks.finding import problems_of
from jobs.cluster.opening import OpenCluster, require_startable
from jobs.cluster.sources import open_hosts
from jobs.config import Cluster, load_cluster
from jobs.config.link import LOSS, RATE, Link
from jobs.engine.network import namespaces
from jobs.engine.network.namespaces import inside
from jobs.features.doctor.examination import machine_findings
from jobs.setup.places import CACHE_VARIABLE
from jobs.testbed import commands, facade
from jobs.testbed import planted_devices as devices
from jobs.testbed.delay_line import (
    DelayLine,
    DelayLineOptions,
    Direction,
    PacketCounts,
    VaryingDelay,
    line_command,
    read_counts,
)
from jobs.testbed.launcher import cluster_text
from jobs.testbed.model import HOST, LINE_ID, LineNode, ProcessRecord, State, Status
from jobs.testbed.nodes import Nodes
from jobs.testbed.places import NodeFiles, default_root, write_state
from jobs.testbed.planted_devices import NETWORK, LinkAddresses, link_problem, require_devices
from jobs.testbed.profile import Profile, adapt, load_profile, profile_of
from metrics.columns import restored
from metrics.common.errors import ConfigError
from tests.support import patterns
from tests.support.scripted_admin import ScriptedAdmin
from tests.support.testbed_spec import SPEC
from tests.support.threads_barrier import run_stage

ADDRESSES = LinkAddresses("198.18.0.5", "198.18.0.6", "198.18.0.7")
LINKED = replace(SPEC, link=Link(delay="25ms", rate="100MB/s"))


def with_link(**keys: Any) -> Profile:
    overrides = {f"link.{key}": value for key, value in keys.items()}
    return adapt(load_profile("disk-bound"), overrides=overrides)


def test_a_link_is_read_from_an_option() -> None:
    text = "delay=25ms, jitter=500us,rate=1Gbit/s,loss=0.1%,mtu=1500,brokers_tcp_rmem_max=67108864"
    link = adapt(load_profile("disk-bound"), overrides={"link": text}).link
    asked = Link("25ms", "500us", "1Gbit/s", "0.1%", mtu=1500, brokers_tcp_rmem_max=67_108_864)
    assert link == asked
    assert (link.delay_s, link.jitter_s, link.rate_bytes_per_s) == (0.025, 0.0005, 125e6)
    assert link.loss_share == pytest.approx(0.001)
    assert link.words() == "25ms one way, jitter 500us, 1Gbit/s each way, loss 0.1%"
    facts = "delay=25ms jitter=500us rate=1Gbit/s loss=0.1% mtu=1500 brokers_tcp_rmem_max=67108864"
    assert [f"{name}={value}" for name, value in link.facts.items()] == facts.split()


def test_single_keys_replace_those_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text("brokers: 1\nlink: {delay: 25ms, loss: 0.00001, rate: 10MB/s}\n")
    profile = load_profile(str(path))
    assert profile.link == Link("25ms", loss="0.00001", rate="10MB/s")
    other = adapt(profile, overrides={"link.delay": "0", "link.rate": "none"})
    assert other.link == Link("0", loss="0.00001")
    assert other.link.delay_s == 0 and other.link.rate_bytes_per_s is None
    assert adapt(profile, overrides={"link": "none"}).link is None
    assert adapt(profile, brokers=2).link == profile.link
    assert load_profile("disk-bound").link is None
    assert with_link(seed="7").link == Link(seed=7)


def test_a_rate_has_its_queue_and_its_burst() -> None:
    link = Link(rate="100MB/s")
    assert (link.rate_queue_bytes, link.rate_burst_bytes) == (5_000_000, 100_000)
    slow = Link(rate="1MB/s", mtu=9_000)
    assert (slow.rate_queue_bytes, slow.rate_burst_bytes) == (64 * 9_000, 90_000)
    assert Link(rate="1MB/s", queue_bytes=30_000).rate_queue_bytes == 30_000
    assert (Link().rate_queue_bytes, Link().rate_burst_bytes) == (0, 0)
    assert RATE.of("8Mbit/s") == RATE.of("1000kB/s") == RATE.of("1MB/s") == 1e6
    assert LOSS.of("2.5%") == LOSS.of("0.025") == LOSS.of(0.025)


def direction(
    delay_s: float = 0.025, jitter_s: float = 0.0, loss: float = 0.0, bytes_max: int = 10**9
) -> Direction:
    delay = VaryingDelay(delay_s, jitter_s, random.Random(1))
    return Direction(delay, loss, random.Random(2), bytes_max)


def test_jitter_varies_the_delay_and_never_the_order() -> None:
    """This holds for packets from 10 us to a second apart."""
    rng, way = random.Random(3), direction(0.025, 0.010)
    now_s, sent, arrived = 100.0, [], []
    for number in range(20_000):
        now_s += rng.choice([1e-5, 1e-4, 1e-3]) if number % 1_000 else 1.0
        sent.append(now_s)
        way.take(number.to_bytes(4, "big"), now_s)
        arrived.append((way.next_s, way.due(1e9)))
    delays = [at_s - began_s for (at_s, _), began_s in zip(arrived, sent, strict=True) if at_s]
    assert [packet for _, packet in arrived] == [n.to_bytes(4, "big") for n in range(20_000)]
    times = [at_s for at_s, _ in arrived if at_s]
    assert times == sorted(times) and len(times) == 20_000
    assert min(delays) >= 0.015 - 1e-9 and max(delays) <= 0.035 + 1e-9
    assert min(delays) < 0.018 and max(delays) > 0.032
    assert sum(delays) / len(delays) == pytest.approx(0.025, abs=0.002)


def test_a_delay_changes_slower_than_time_passes() -> None:
    varying = VaryingDelay(0.025, 0.010, random.Random(4))
    times = [50.0 + step * 1e-4 for step in range(30_000)]
    delays = [varying.at(each) for each in times]
    steps = [abs(after - before) for before, after in itertools.pairwise(delays)]
    assert max(steps) <= 0.5 * 1e-4 + 1e-9
    assert max(delays) - min(delays) > 0.01


def test_loss_has_the_configured_share_and_is_repeatable() -> None:
    def kept() -> list[int]:
        way = direction(0.0, loss=0.1)
        for number in range(5_000):
            way.take(number.to_bytes(4, "big"), 1.0)
        left = iter(lambda: way.due(2.0), None)
        assert way.passed.lost == 5_000 - way.held_bytes // 4
        return [int.from_bytes(packet, "big") for packet in left]

    first = kept()
    assert first == kept()
    assert 4_400 < len(first) < 4_600 and first == sorted(first)

    def lost(name: str, seed: int) -> list[int]:
        way = DelayLineOptions(0, 0, Link(loss="50%", seed=seed), "").direction(name)
        seen = []
        for _ in range(100):
            way.take(b"x", 1.0)
            seen.append(way.passed.lost)
        return seen

    assert lost("to brokers", 1) == lost("to brokers", 1)
    assert lost("to brokers", 1) != lost("to generator", 1) != lost("to generator", 2)
    full = direction(bytes_max=1)
    full.take(b"0", 0.0)
    assert not full.has_room
    assert full.due(1.0) is not None and full.has_room


@pytest.fixture
def ends() -> Iterator[dict[str, socket.socket]]:
    """Both devices: the ends of the brokers and the generator, and the delay line's ends."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    flat = dict(zip(("brokers", "line_b", "generator", "line_g"), sum(pairs, ()), strict=True))
    for each in flat.values():
        each.setblocking(False)
    yield flat
    for each in flat.values():
        each.close()


def test_the_line_carries_both_ways_and_counts(
    ends: dict[str, socket.socket], tmp_path: Path
) -> None:
    counts, clock = tmp_path / "counts.json", [50.0]
    descriptors = ends["line_b"].fileno(), ends["line_g"].fileno()
    options = DelayLineOptions(*descriptors, Link("20ms"), str(counts))
    line = DelayLine(options, lambda: clock[0])
    ends["generator"].send(b"produce")
    ends["brokers"].send(b"answer")
    line.step(0.0)
    clock[0] += 0.019
    line.step(0.0)
    for end in ("brokers", "generator"):
        with pytest.raises(BlockingIOError):
            ends[end].recv(100)
    clock[0] += 0.002
    line.step(0.0)
    assert (ends["brokers"].recv(100), ends["generator"].recv(100)) == (b"produce", b"answer")
    assert read_counts(counts) == {}
    line.write_counts()
    assert read_counts(counts) == {
        "to_brokers": PacketCounts(1, 7),
        "to_generator": PacketCounts(1, 6),
    }


def test_the_command_of_the_line_has_its_options_and_its_marker(tmp_path: Path) -> None:
    link = Link("25ms", "1ms", loss="1%", mtu=1_500, held_bytes=99_999, seed=4)
    *_, order, marker = line_command(link, (7, 9), tmp_path / "c", "-Dredline.testbed=x")
    assert marker == "-Dredline.testbed=x"
    options = restored(DelayLineOptions, json.loads(order))
    assert options == DelayLineOptions(7, 9, link, f"{tmp_path}/c")


def test_root_without_this_capability_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(devices, "new_namespace", refused)
    monkeypatch.setattr(devices, "TUN", "/nowhere/tun")
    require_devices(None, None)
    problem = link_problem(Link()) or ""
    assert "no permission to create a network namespace (Operation not permitted)" in problem
    assert "no /nowhere/tun" in problem
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else "/sbin/ip")
    with pytest.raises(
        ConfigError, match="this machine has no root and no tc of iproute2; expected"
    ):
        require_devices(Link(rate="1MB/s"), None)


def test_addresses_do_not_overlap_and_a_maximum_keeps_smaller_values(tmp_path: Path) -> None:
    last = NETWORK.num_addresses // 4 - 1
    blocks = [LinkAddresses.block(number) for number in (0, 1, last)]
    flat = [address for block in blocks for address in asdict(block).values()]
    assert len(set(flat)) == 9 and blocks[0].brokers == "198.18.0.1"
    assert blocks[-1].generator == "198.19.255.255", "in the network"
    path = tmp_path / "tcp_rmem"
    for maximum, written in ((67_108_864, "4096 131072 67108864"), (65_536, "4096 65536 65536")):
        path.write_text("4096\t131072\t33554432\n")
        devices.set_maximum(path, maximum)
        assert path.read_text() == written


def test_brokers_listen_behind_the_link_and_runs_get_it_from_the_state(tmp_path: Path) -> None:
    linked = Nodes(LINKED, tmp_path)
    linked.line = LineNode(str(tmp_path / "delay-line"), ADDRESSES)
    linked.lay_out(lambda count: list(range(22_000, 22_000 + count)))
    early, late = linked.start_phases
    members = ["the delay line of the link", "the controller", "broker 1", "broker 2"]
    assert ([node.title for node in early], late) == (members, ())
    for node in linked.nodes:
        assert node.host == "198.18.0.5" and node.jmx_endpoint.startswith("198.18.0.5:")
        properties = NodeFiles(node).properties.read_text()
        assert "198.18.0.5" in properties and HOST not in properties
    state = State(LINKED, Status.READY, 0.0, nodes=linked.nodes, line=linked.line)
    assert state.network_namespace == ""
    state = replace(state, processes=(ProcessRecord(4_711, 1.0, LINE_ID),))
    assert restored(State, json.loads(json.dumps(asdict(state)))) == state
    assert state.spec.title.endswith(", Kafka 4.1.2, a link of 25ms one way, 100MB/s each way)")
    assert state.members[-1] is linked.line
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_text(path.parent, state))
    cluster = load_cluster(str(path))
    assert cluster.network_namespace == "/proc/4711/ns/net"
    assert cluster.link == {"delay": "25ms", "rate": "100MB/s"}
    assert cluster.bootstrap_servers == ("198.18.0.5:22002", "198.18.0.5:22004")


def test_the_brokers_end_of_a_testbed_that_stands_is_a_host_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with its cluster file alone sees the network of the brokers, not its own."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    processes = (ProcessRecord(4_711, 1.0, LINE_ID), ProcessRecord(os.getpid(), 1.0, 1))
    state = State(LINKED, Status.READY, 0.0, processes=processes)
    folder = default_root() / "linked"
    folder.mkdir(parents=True)
    write_state(folder, state)
    admin = ScriptedAdmin((1,))
    facts = {"network_namespace": state.network_namespace, "link": {"rate": "100MB/s"}}
    there = OpenCluster(admin, admin.describe_cluster(), **facts)  # type: ignore[arg-type]
    settings = {"name": "found", "bootstrap_servers": ["198.18.0.5:22002"], "jmx": {"port": 9999}}
    cluster = Cluster.model_validate(settings)
    hosts = open_hosts(cluster, there)
    name = f"{socket.gethostname()}/brokers"
    assert hosts.brokers == {name: (1,)}
    (sample,) = hosts.sample_all()
    assert sample.host == name
    assert sample.values["resident_bytes:1"] > 1e6
    elsewhere = replace(there, network_namespace="/proc/4712/ns/net")
    assert name not in open_hosts(cluster, elsewhere).brokers


@pytest.mark.parametrize("path", ["/nowhere/net", "/dev/null"])
def test_a_namespace_that_cannot_be_entered_is_refused(path: str) -> None:
    words = rf"cannot enter the network namespace {path} \("
    with pytest.raises(ConfigError, match=words), inside(path):
        raise AssertionError("entered")


def test_calls_at_home_return_to_the_namespace_even_when_they_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[int] = []
    monkeypatch.setattr(namespaces, "enter", entered.append)
    assert namespaces.at_home(7, 8, lambda: list(entered))() == [8]
    assert entered == [8, 7]

    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        namespaces.at_home(7, 8, fail)()
    assert entered == [8, 7, 8, 7]


def test_executors_and_tasks_that_cannot_enter_state_it() -> None:
    order = {
        "packages": {}, "code": ("search",), "engine": (), "files": [], "timeout_s": 1.0,
        "clock": {"host": "127.0.0.1", "port": 1, "token": ""},
        "brokers": {"1": ["127.0.0.1", 1], "2": ["127.0.0.1", 1]},
        "network_namespace": "/nowhere/net",
    }  # fmt: skip
    found = facts(order, 0, "here:1", is_first=True)["unreachable"]
    assert set(found) == {"1", "2"}
    words = "cannot enter the network namespace /nowhere/net"
    assert words in found["1"]
    place = {"brokers": {7: ("127.0.0.1", 1)}, "network_namespace": "/nowhere/net"}
    rows = run_stage(patterns.plan(tasks=2, producers=2, **place))
    assert all(row.is_refused and words in (row.error or "") for row in rows) and len(rows) == 2


def test_a_run_without_the_rights_is_refused_before_any_start_and_doctor_reports_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setattr(facade, "kafka_jars", lambda version: [tmp_path / "kafka.jar"])
    monkeypatch.setattr(facade, "require_known", lambda names, version: None)
    far = load_cluster("testbed", ["cluster.testbed.properties.link.delay=25ms"])
    assert far.testbed is not None and profile_of(far.testbed).link == Link("25ms")
    with pytest.raises(ConfigError, match="a link requires Linux, root and iproute2"):
        require_startable(far)
    found = machine_findings(tmp_path, far)
    (problem,) = [each for each in problems_of(found) if each.check == "link"]
    assert "this machine has no root" in problem.found
    near = machine_findings(tmp_path, load_cluster("testbed"))
    assert "link" not in [each.check for each in near]
    done = CliRunner().invoke(commands.testbed, ["up", "--link", "delay=25"])
    assert isinstance(done.exception, ConfigError) and done.exception.exit_code == 2
    assert "delay is 25; expected a time from 0 to 1s" in str(done.exception)
