"""The likely cause of a difference, from the limiting resource and the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.comparing.cause import (
    GOVERNORS,
    SideEvidence,
    broker_differences,
    can_slow,
    governor_of,
    likely_cause,
    resource_use,
    short_name,
)
from metrics.tables.rows import Difference
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.windows.host import HostWindow, InterfaceWindow
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import broker
from tests.support.rows import trial

R = Resource
Side = dict[str, Any]
ALIKE = {"broker.version": "4.1.2", "broker.config.num.io.threads": "1", "redline.commit": "a"}
HANDLERS, FLUSH = "broker.config.num.io.threads", "broker.config.log.flush.interval.messages"
FETCHERS, LAG = "broker.config.num.replica.fetchers", "broker.config.replica.lag.time.max.ms"
CORES = {"broker.cores": "4", HANDLERS: "4"}


def made(bound: Resource | None, **window: Any) -> Trial:
    verdict = Verdict.SUSTAINED if bound is None else Verdict.OVERLOADED
    judged = Judgement(verdict, (), {}, bound, f"{bound.value}: as made up" if bound else "")
    return trial(judgements={"default": judged}, brokers=(broker(1, **window), broker(2)))


def side(
    label: str,
    environment: Mapping[str, str],
    bound: Resource,
    full: Mapping[str, Any] | None = None,
    steady: Mapping[str, Any] | None = None,
) -> SideEvidence:
    return SideEvidence(
        label,
        [made(bound, **(full or {"handler_idle": 0.0}))] * 3,
        [made(None, **(steady or {"handler_idle": 0.4}))] * 3,
        {**ALIKE, **environment},
    )


def env(steady: Mapping[str, Any] | None = None, **release: str) -> Side:
    return {"environment": {f"broker.{k}": v for k, v in release.items()}, "steady": steady}


def has(name: str, value: str, **changes: Any) -> Side:
    return {"environment": {name: value}, **changes}


FULL = {"handler_idle": 0.1, "cpu_machine_share": 0.99, "network_idle": 0.1}
ZOOKEEPER = {"broker.config.zookeeper.connect": "127.0.0.1:2181",
             "broker.config.zookeeper.session.timeout.ms": "6000"}  # fmt: skip
KRAFT = {"broker.config.process.roles": "broker", "cluster.metadata.version": "27"}

CASES: dict[str, tuple[Side, Side, Resource, Resource, tuple[str, ...]]] = {
    # name: A, B, what binds both, resource and names of the cause
    "fewer request handlers that wait for the disk": (
        has(HANDLERS, "2", steady={"handler_idle": 0.69}),
        has(HANDLERS, "1", steady={"handler_idle": 0.38}), R.DISK, R.REQUEST_HANDLERS,
        ("num.io.threads",)),
    "a change for the better": (
        has(HANDLERS, "1"), has(HANDLERS, "2"), R.DISK, R.DISK, ()),
    "a property that governs another resource": (
        has(FETCHERS, "4"), has(FETCHERS, "1"), R.DISK, R.DISK, ()),
    "a named resource before others that were used up": (
        {"environment": {FLUSH: "1000", HANDLERS: "2"}},
        {"environment": {FLUSH: "1", HANDLERS: "1"}}, R.DISK, R.DISK,
        ("log.flush.interval.messages",)),
    "handlers before other resources that were used up": (
        {"environment": CORES, "full": FULL},
        {"environment": dict.fromkeys(CORES, "2"), "full": FULL}, R.DISK, R.REQUEST_HANDLERS,
        ("num.io.threads",)),
    "a version when no property is": (
        env({"cpu_machine_share": 0.4}, version="3.9.2"),
        env({"cpu_machine_share": 0.6}, version="4.3.1"), R.DISK, R.DISK, ("version",)),
    "a property that only one release reports": (
        env(version="3.9.2"), {"environment": {"broker.version": "4.3.1", LAG: "30000"}},
        R.REPLICATION, R.REPLICATION, ("version",)),
    "a property that only one side of a release reports": (
        env(), has(LAG, "30000"), R.REPLICATION, R.REPLICATION, ("replica.lag.time.max.ms",)),
    "a release with its place of metadata": (
        {"environment": ZOOKEEPER | {"broker.version": "3.6.2"}}, {"environment": KRAFT}, R.DISK,
        R.DISK, ("version", "metadata")),
    "the place of metadata alone": (
        {"environment": ZOOKEEPER | {"broker.version": "3.9.2"}},
        {"environment": KRAFT | {"broker.version": "3.9.2"}}, R.REPLICATION, R.REPLICATION,
        ("version", "metadata")),
    "sides that are alike": (
        env(), has("redline.commit", "b"), R.DISK, R.DISK, ()),
    "the load alone": (
        has("workload.payload.headers", "0"), has("workload.payload.headers", "1"), R.NETWORK,
        R.NETWORK, ("workload.payload.headers",)),
    "a longer way where the connections bind": (
        has("link.delay", "0ms"), has("link.delay", "25ms"), R.CONNECTION, R.CONNECTION,
        ("link.delay",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_likely_cause_of_a_difference(case: str, snapshot: SnapshotAssertion) -> None:
    first, second, bound, resource, names = CASES[case]
    a, b = side("A", bound=bound, **first), side("B", bound=bound, **second)
    cause = likely_cause(b, a)
    assert (cause.resource, cause.names) == (resource, names)
    assert cause.text == snapshot(name="text")
    assert cause.evidence == snapshot(name="evidence")
    if names:
        assert cause.slower == "B"


def test_a_cause_without_limiting_resource_or_differences(snapshot: SnapshotAssertion) -> None:
    setting = "workload.payload.headers"
    a, b = side("A", {setting: "0"}, R.NETWORK), side("B", {setting: "1"}, R.NETWORK)
    assert likely_cause(replace(b, saturated=[]), a).text == snapshot
    cause = likely_cause(SideEvidence("B", [], [], {}), SideEvidence("A", [], [], {}))
    assert (cause.resource, cause.names) == (R.UNKNOWN, ())


def test_a_resource_is_used_as_much_as_by_the_broker_or_host_that_used_it_most() -> None:
    def carried(rate: float, *brokers: int) -> HostWindow:
        link = InterfaceWindow("eth0", received_bytes_per_s=rate, speed_bytes_per_s=10e6)
        links = (link, InterfaceWindow("lo", 9e9, 9e9))
        return HostWindow("h", brokers, not brokers, bool(brokers), interfaces=links)

    hosts = (carried(9e6, 1), carried(4e6, 2), carried(1e7))
    full = trial(brokers=(broker(1), broker(2)), hosts=hosts)
    assert resource_use([full])[R.NETWORK] == pytest.approx(0.9), "with no speed, no share"
    assert R.NETWORK not in resource_use([trial(brokers=(broker(1),))])
    idle = [made(R.DISK, handler_idle=idle) for idle in (0.1, 0.2, 0.7)]
    assert resource_use(idle)[R.REQUEST_HANDLERS] == pytest.approx(0.8)


def test_each_property_governs_its_resource() -> None:
    for name, resource in {
        "link.rate": R.NETWORK,
        "link.brokers_tcp_rmem_max": R.CONNECTION,
        "broker.2.config.num.network.threads": R.NETWORK_THREADS,
        "broker.config.listener.name.external.num.network.threads": R.NETWORK_THREADS,
        "broker.config.socket.receive.buffer.bytes": R.NETWORK,
        "topic.config.flush.messages": R.DISK,
        "broker.config.log.dirs.count": R.DISK,
        "broker.config.compression.type": R.CPU,
        "topic.config.compression.zstd.level": R.CPU,
        "broker.cores": R.CPU,
        "broker.jvm.heap_max_bytes": R.HEAP,
        "broker.config.quota.window.num": R.QUOTA,
    }.items():
        governor = governor_of(name)
        assert governor is not None and resource in governor.resources, name
    governed = {resource for governor in GOVERNORS for resource in governor.resources}
    assert governed == set(Resource) - {R.UNKNOWN}
    assert governor_of("broker.config.group.initial.rebalance.delay.ms") is None
    assert governor_of("broker.config.min.insync.replicas") is None, "it refuses writes"
    assert short_name("broker.3.config.num.io.threads") == "num.io.threads"
    # A difference of the driver is no difference between brokers.
    found = broker_differences(
        {"driver.cores": "2", "broker.1.config.num.io.threads": "1"}, {"driver.cores": "4"}
    )
    assert [each.name for each in found] == ["broker.1.config.num.io.threads"]


def test_the_direction_of_a_change() -> None:
    for name, before, after, slows in (
        ("num.io.threads", "2", "1", True),
        ("num.io.threads", "1", "2", False),
        ("num.io.threads", "–", "2", True),
        ("socket.send.buffer.bytes", "-1", "102400", True),
    ):
        governor = governor_of(name)
        assert governor is not None
        assert can_slow(governor, Difference(name, before, after)) is slows
