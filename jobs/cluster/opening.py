"""The cluster under load: a testbed to start, or brokers that run already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from jobs.cluster.admin import ClusterInfo, KafkaAdmin, told_by_each
from jobs.cluster.connect import connect
from jobs.cluster.outage import AnnouncedOutage, Outage, TestbedOutage
from jobs.config import Cluster, Goal, Workload
from jobs.config.link import RATE
from jobs.config.security import Security
from jobs.console.events import PhaseStarted, Reporter
from jobs.testbed.cores import available_cores, require_cores
from jobs.testbed.cpu_groups import cpu_groups
from jobs.testbed.handle import Testbed
from jobs.testbed.known_properties import require_known
from jobs.testbed.launcher import start
from jobs.testbed.link.devices import DEVICE, require_link
from jobs.testbed.profile import profile_of
from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess

LAG_CHECKS = 1.5
"""Brokers look for lagging followers every half of replica.lag.time.max.ms, so a change of
the ISR shows after at most so many times that time."""


def _never_ends() -> None:
    """Brokers that are not ours end without telling us; the next trial's check finds out."""


@dataclass
class LastLoad:
    """When brokers were loaded by us for the last time, whatever run it was.

    Attributes:
        ended_s: its end [s since the epoch]; None before the first.
    """

    ended_s: float | None = None


@dataclass(frozen=True)
class OpenCluster:
    """A cluster that answers.

    Attributes:
        jmx: node id → host:port of its JMX, controllers too where known.
        check: raises when the cluster has ended by itself, as a testbed can.
        security: how clients get in.
        jmx_access: what its JMX asks for; None when nothing.
        planted_handler_ms: broker id → the time that is planted in its request handlers; empty
            for brokers without [ms].
        testbed: where it is one.
        network_namespace: file of the one from which executors open connections to the brokers;
            empty for their own.
        link: what lies between the two, by the keys of a testbed's link; empty where unknown.
        last_load: shared by all runs on it, as what is warm stays so.
    """

    admin: KafkaAdmin
    info: ClusterInfo
    jmx: dict[int, str]
    check: Callable[[], None] = _never_ends
    security: Security = field(default_factory=Security)
    jmx_access: JmxAccess | None = None
    planted_handler_ms: Mapping[int, float] = field(default_factory=dict)
    testbed: Testbed | None = None
    network_namespace: str = ""
    link: Mapping[str, str] = field(default_factory=dict)
    last_load: LastLoad = field(default_factory=LastLoad)

    @property
    def interface_speeds(self) -> dict[str, float]:
        """Interface at the ends of the link → its speed, which no card tells [B/s]."""
        rate = self.link.get("rate")
        return {} if rate is None else {DEVICE: RATE.of(rate)}

    def outage(self, reporter: Reporter) -> Outage:
        """What takes brokers away on purpose."""
        if self.testbed is not None:
            return TestbedOutage(self.testbed, self.admin)
        return AnnouncedOutage(self.admin, self.info.broker_ids, reporter)

    def without(self, away: Set[int]) -> OpenCluster:
        """The same in the eyes of whoever knows nothing of some brokers."""
        info = self.info
        rest = tuple(each for each in info.brokers if each.id not in away)
        jmx = {node: each for node, each in self.jmx.items() if node not in away}
        return replace(self, info=replace(info, brokers=rest), jmx=jmx)


def require_startable(cluster: Cluster) -> None:
    """Check the settings of a testbed, and start nothing.

    The properties of its profile are checked when it starts, as Kafka has to be there for that.

    Raises:
        ConfigError: the profile or a value is wrong, this machine has too few cores or not what a
            link needs, or its Kafka does not know a property that the cluster's file or an option
            gives.
    """
    if cluster.testbed is not None:
        profile, given = profile_of(cluster.testbed), cluster.testbed.properties
        require_cores(profile.cpus, available_cores(), cpu_groups() is not None)
        require_link(profile.link)
        require_known([name for name in given if name in profile.broker], profile.kafka_version)


def open_cluster(
    cluster: Cluster,
    reporter: Reporter,
    stack: ExitStack,
    meanwhile: Callable[[], object] = lambda: None,
) -> OpenCluster:
    """Start the testbed if the cluster is one, and connect; `stack` undoes both.

    Args:
        meanwhile: is done while the brokers of a testbed start; not for brokers that run, as they
            tell at once what may keep a run from beginning.

    Raises:
        ConfigError: it does not start, or lets nobody in, or has no way to its metrics.
        TryLaterError: no broker answers.
    """
    if cluster.testbed is None:
        return _running(cluster, reporter, stack)
    wanted = cluster.testbed
    count = "1 broker" if wanted.brokers == 1 else f"{wanted.brokers} brokers"
    reporter.report(PhaseStarted(f"starting {count} of Kafka {wanted.kafka_version}"))
    testbed = stack.enter_context(
        start(
            wanted.profile,
            brokers=wanted.brokers,
            kafka_version=wanted.kafka_version,
            overrides=wanted.overrides,
            meanwhile=meanwhile,
        )
    )
    security = testbed.client_security()
    admin = stack.enter_context(connect(testbed.bootstrap_servers, security.client_kwargs()))
    controller = testbed.controller
    jmx = {**testbed.jmx_endpoints, controller.node_id: controller.jmx_endpoint}
    spec = testbed.state.spec
    planted = {int(i): each for i, each in spec.produce_handler_ms.items()}
    return OpenCluster(
        admin,
        admin.describe_cluster(),
        jmx,
        testbed.check,
        security,
        testbed.jmx_access,
        planted,
        testbed,
        testbed.state.network_namespace,
        spec.link.facts if spec.link else {},
    )


def _running(cluster: Cluster, reporter: Reporter, stack: ExitStack) -> OpenCluster:
    if cluster.bootstrap_servers is None:
        raise ConfigError(f"cluster {cluster.name} names neither a testbed nor running brokers")
    reporter.report(PhaseStarted(f"connecting to {', '.join(cluster.bootstrap_servers)}"))
    options = cluster.security.client_kwargs()
    admin = stack.enter_context(connect(cluster.bootstrap_servers, options, cluster.name))
    info = admin.describe_cluster()
    jmx = cluster.jmx
    return OpenCluster(
        admin,
        info,
        {} if jmx is None else jmx.addresses(info.hosts),
        security=cluster.security,
        jmx_access=None if jmx is None else jmx.access(),
        planted_handler_ms=cluster.planted_handler_ms,
        network_namespace=cluster.network_namespace or "",
        link=cluster.link,
    )


def window_needed_s(opened: OpenCluster, workload: Workload) -> float | None:
    """The shortest window in which a lagging follower must show [s]; None without followers.

    From the brokers' `replica.lag.time.max.ms`, the largest of them.
    """
    if workload.topic.replication_factor < 2:
        return None
    lags_ms = _told_by_brokers(opened, "replica.lag.time.max.ms").values()
    return LAG_CHECKS * max(float(each or 0) for each in lags_ms) / 1000.0


def _told_by_brokers(opened: OpenCluster, name: str) -> dict[int, str | None]:
    """Broker id → one of its properties."""
    brokers = opened.info.broker_ids
    told = told_by_each(lambda each: opened.admin.broker_config(each, (name,)), brokers)
    return {broker: each.get(name) for broker, each in zip(brokers, told, strict=True)}


def require_fitting(opened: OpenCluster, workload: Workload, goal: Goal) -> None:
    """Check before any load what only the cluster can tell.

    Raises:
        ConfigError: trials are too short for this cluster's metrics to show an overload.
    """
    needed_s = window_needed_s(opened, workload)
    if needed_s is not None and workload.trial.measure_s < needed_s:
        raise ConfigError(
            f"workload trial.measure_s is {workload.trial.measure_s:g}; with the brokers' "
            f"replica.lag.time.max.ms a follower that falls behind shows after up to "
            f"{needed_s:g} s, and goal {goal.name} judges by it; measure for {needed_s:g} s or "
            f"longer (--set workload.trial.measure_s={needed_s:g}), or lower that setting"
        )


def queues_of(opened: OpenCluster, goal: Goal) -> dict[int, float]:
    """Broker id → its `queued.max.requests`, where the goal judges by a share of it.

    Raises:
        ConfigError: a broker does not tell.
    """
    if goal.indicators.request_queue_share_max is None:
        return {}
    found = {}
    for broker, value in _told_by_brokers(opened, "queued.max.requests").items():
        if value is None:
            raise ConfigError(
                f"broker {broker} does not tell its queued.max.requests, and goal {goal.name} "
                "judges by indicators.request_queue_share_max; expected a number; give "
                "request_queue_max instead"
            )
        found[broker] = float(value)
    return found
