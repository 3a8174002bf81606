"""The likely cause of a difference, from the limiting resource and the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.comparing.cause import SideEvidence, broker_differences, likely_cause, resource_use
from metrics.comparing.governors import GOVERNORS, can_slow, governor_of, short_name
from metrics.tables.environment import Difference
from metrics.trial.judgement import Judgement
from metrics.trial.trial import Trial
from metrics.windows.host import HostWindow, InterfaceWindow
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.evidence import broker
from tests.support.rows import trial

ALIKE = {"broker.version": "4.1.2", "broker.config.num.io.threads": "1", "redline.commit": "a"}


def made(bound: Resource | None, **window: Any) -> Trial:
    verdict = Verdict.SUSTAINED if bound is None else Verdict.OVERLOADED
    judged = Judgement(verdict, (), {}, bound, f"{bound.value}: as made up" if bound else "")
    return trial(judgements={"default": judged}, brokers=(broker(1, **window), broker(2)))


def side(
    label: str,
    environment: Mapping[str, str],
    bound: Resource = Resource.DISK,
    full: Mapping[str, Any] | None = None,
    steady: Mapping[str, Any] | None = None,
) -> SideEvidence:
    return SideEvidence(
        label,
        [made(bound, **(full or {"handler_idle": 0.0}))] * 3,
        [made(None, **(steady or {"handler_idle": 0.4}))] * 3,
        {**ALIKE, **environment},
    )


def test_fewer_request_handlers_that_wait_for_the_disk(snapshot: SnapshotAssertion) -> None:
    a = side("A", {"broker.config.num.io.threads": "2"}, steady={"handler_idle": 0.69})
    b = side("B", {"broker.config.num.io.threads": "1"}, steady={"handler_idle": 0.38})
    cause = likely_cause(b, a)
    assert cause.resource is Resource.REQUEST_HANDLERS
    assert cause.names == ("num.io.threads",)
    assert cause.slower == "B"
    for part in ("1 on B and 2 on A", "request handlers", "same load 0.62 on B and 0.31 on A"):
        assert part in cause.text
    assert cause.text == snapshot(name="text")
    assert cause.evidence == snapshot(name="evidence")


def test_a_change_for_the_better_is_no_cause(snapshot: SnapshotAssertion) -> None:
    a = side("A", {"broker.config.num.io.threads": "1"})
    b = side("B", {"broker.config.num.io.threads": "2"})
    cause = likely_cause(b, a)
    assert cause.names == ()
    assert "num.io.threads" in cause.text
    assert cause.text == snapshot


def test_a_property_that_governs_another_resource_is_no_cause() -> None:
    a = side("A", {"broker.config.num.replica.fetchers": "4"})
    b = side("B", {"broker.config.num.replica.fetchers": "1"})
    assert likely_cause(b, a).names == ()


def test_a_named_resource_comes_before_others_that_were_used_up() -> None:
    flush, handlers = "broker.config.log.flush.interval.messages", "broker.config.num.io.threads"
    a = side("A", {flush: "1000", handlers: "2"})
    b = side("B", {flush: "1", handlers: "1"})
    cause = likely_cause(b, a)
    assert cause.resource is Resource.DISK
    assert cause.names == ("log.flush.interval.messages",)


def test_handlers_come_before_other_resources_that_were_used_up() -> None:
    names = ("broker.cores", "broker.config.num.io.threads")
    full = {"handler_idle": 0.1, "cpu_machine_share": 0.99, "network_idle": 0.1}
    a = side("A", dict.fromkeys(names, "4"), full=full)
    b = side("B", dict.fromkeys(names, "2"), full=full)
    cause = likely_cause(b, a)
    assert cause.resource is Resource.REQUEST_HANDLERS
    assert cause.names == ("num.io.threads",)


def test_a_version_is_the_cause_when_no_property_is(snapshot: SnapshotAssertion) -> None:
    a = side("A", {"broker.version": "3.9.2"}, steady={"cpu_machine_share": 0.4})
    b = side("B", {"broker.version": "4.3.1"}, steady={"cpu_machine_share": 0.6})
    cause = likely_cause(b, a)
    assert cause.names == ("version",)
    assert "Kafka 4.3.1 in place of Kafka 3.9.2" in cause.text
    assert "CPU ×1.50" in cause.text
    assert cause.text == snapshot


def test_properties_that_only_one_release_reports_do_not_hide_the_release() -> None:
    a = side("A", {"broker.version": "3.9.2"}, Resource.REPLICATION)
    newer = {"broker.version": "4.3.1", "broker.config.min.insync.replicas": "1"}
    assert likely_cause(side("B", newer, Resource.REPLICATION), a).names == ("version",)
    alike = {"broker.config.min.insync.replicas": "2"}
    cause = likely_cause(side("B", alike, Resource.REPLICATION), side("A", {}))
    assert cause.names == ("min.insync.replicas",)


def test_a_release_with_its_place_of_metadata_is_the_cause(snapshot: SnapshotAssertion) -> None:
    with_zookeeper = {
        "broker.version": "3.6.2",
        "broker.config.zookeeper.connect": "127.0.0.1:2181",
        "broker.config.zookeeper.session.timeout.ms": "6000",
    }
    with_kraft = {
        "broker.version": "4.1.2",
        "broker.config.process.roles": "broker",
        "cluster.metadata.version": "27",
    }
    cause = likely_cause(side("B", with_kraft), side("A", with_zookeeper))
    assert cause.names == ("version", "metadata")
    assert "Kafka 4.1.2 with KRaft in place of Kafka 3.6.2 with ZooKeeper" in cause.text
    assert cause.text == snapshot
    same = {"broker.version": "3.9.2"}
    moved = likely_cause(
        side("B", {**with_kraft, **same}, Resource.REPLICATION),
        side("A", {**with_zookeeper, **same}, Resource.REPLICATION),
    )
    assert "Kafka 3.9.2 with KRaft in place of Kafka 3.9.2 with ZooKeeper" in moved.text


def test_sides_that_are_alike_show_no_cause(snapshot: SnapshotAssertion) -> None:
    cause = likely_cause(side("B", {"redline.commit": "b"}), side("A", {}))
    assert cause.names == ()
    assert "all 3 properties" in cause.text
    assert cause.text == snapshot


def test_without_differences_no_cause_is_named() -> None:
    empty = SideEvidence("B", [], [], {})
    cause = likely_cause(empty, SideEvidence("A", [], [], {}))
    assert cause.resource is Resource.UNKNOWN
    assert cause.names == ()


def test_a_difference_of_the_driver_is_no_difference_between_brokers() -> None:
    found = broker_differences(
        {"driver.cores": "2", "broker.1.config.num.io.threads": "1"}, {"driver.cores": "4"}
    )
    assert [each.name for each in found] == ["broker.1.config.num.io.threads"]


def test_the_use_of_a_resource_is_that_of_the_broker_that_used_it_most() -> None:
    idle = [made(Resource.DISK, handler_idle=idle) for idle in (0.1, 0.2, 0.7)]
    assert resource_use(idle)[Resource.REQUEST_HANDLERS] == pytest.approx(0.8)


def test_an_interface_is_used_as_much_as_the_busiest_of_the_brokers_hosts() -> None:
    def carried(rate: float, *brokers: int) -> HostWindow:
        link = InterfaceWindow("eth0", received_bytes_per_s=rate, speed_bytes_per_s=10e6)
        links = (link, InterfaceWindow("lo", 9e9, 9e9))
        return HostWindow("h", brokers, not brokers, bool(brokers), interfaces=links)

    hosts = (carried(9e6, 1), carried(4e6, 2), carried(1e7))
    full = trial(brokers=(broker(1), broker(2)), hosts=hosts)
    assert resource_use([full])[Resource.NETWORK] == pytest.approx(0.9), "with no speed, no share"
    assert Resource.NETWORK not in resource_use([trial(brokers=(broker(1),))])


def test_a_difference_of_the_load_alone_is_the_cause(snapshot: SnapshotAssertion) -> None:
    setting = "workload.payload.headers"
    a, b = side("A", {setting: "0"}, Resource.NETWORK), side("B", {setting: "1"}, Resource.NETWORK)
    cause = likely_cause(b, a)
    assert (cause.resource, cause.names) == (Resource.NETWORK, (setting,))
    assert cause.text.endswith("B is bound by network")
    assert cause.text == snapshot(name="with a limiting resource")
    unknown = likely_cause(replace(b, saturated=[]), a)
    assert unknown.text == snapshot(name="without a limiting resource")


def test_a_longer_way_is_the_cause_where_the_connections_bind() -> None:
    here, there = {"link.delay": "0ms"}, {"link.delay": "25ms"}
    cause = likely_cause(side("B", there, Resource.CONNECTION), side("A", here))
    assert (cause.resource, cause.names) == (Resource.CONNECTION, ("link.delay",))
    assert "link.delay is 25ms on B and 0ms on A (it is the delay" in cause.text


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("link.rate", Resource.NETWORK),
        ("link.brokers_tcp_rmem_max", Resource.CONNECTION),
        ("broker.config.num.io.threads", Resource.REQUEST_HANDLERS),
        ("broker.2.config.num.network.threads", Resource.NETWORK_THREADS),
        ("broker.config.listener.name.external.num.network.threads", Resource.NETWORK_THREADS),
        ("broker.config.socket.receive.buffer.bytes", Resource.NETWORK),
        ("broker.config.log.flush.interval.messages", Resource.DISK),
        ("topic.config.flush.messages", Resource.DISK),
        ("broker.config.log.dirs.count", Resource.DISK),
        ("broker.config.compression.type", Resource.CPU),
        ("topic.config.compression.zstd.level", Resource.CPU),
        ("broker.cores", Resource.CPU),
        ("broker.jvm.heap_max_bytes", Resource.HEAP),
        ("broker.config.num.replica.fetchers", Resource.REPLICATION),
        ("topic.config.min.insync.replicas", Resource.REPLICATION),
        ("broker.config.quota.window.num", Resource.QUOTA),
    ],
)
def test_each_property_governs_its_resource(name: str, resource: Resource) -> None:
    governor = governor_of(name)
    assert governor is not None
    assert resource in governor.resources


def test_an_unknown_property_governs_nothing() -> None:
    assert governor_of("broker.config.group.initial.rebalance.delay.ms") is None
    assert short_name("broker.3.config.num.io.threads") == "num.io.threads"
    assert short_name("broker.version") == "version"


def test_every_resource_that_can_bind_is_governed() -> None:
    governed = {resource for governor in GOVERNORS for resource in governor.resources}
    assert governed == set(Resource) - {Resource.UNKNOWN}


@pytest.mark.parametrize(
    ("name", "before", "after", "slows"),
    [
        ("num.io.threads", "2", "1", True),
        ("num.io.threads", "1", "2", False),
        ("num.io.threads", "–", "2", True),
        ("min.insync.replicas", "1", "2", True),
        ("min.insync.replicas", "2", "1", False),
        ("socket.send.buffer.bytes", "-1", "102400", True),
    ],
)
def test_the_direction_of_a_change(name: str, before: str, after: str, slows: bool) -> None:
    governor = governor_of(name)
    assert governor is not None
    assert can_slow(governor, Difference(name, before, after)) is slows
