"""Opening the cluster under load: a testbed that the run starts, or running brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from jobs.cluster.admin import AdminError, ClusterInfo, KafkaAdmin, query_all_brokers
from jobs.cluster.broker_outage import AnnouncedOutage, BrokerOutage, ControlledOutage
from jobs.cluster.connect import connect
from jobs.config import Cluster, Goal, Workload
from jobs.config.metrics_registry import StartedJmx
from jobs.config.security import Security
from jobs.console.events import PhaseStarted, Reporter, note
from jobs.engine.network.options import NAME_PREFIX, ClientIds, ClientOptions
from jobs.testbed import facade
from metrics.common.errors import ConfigError
from metrics.judging.disk_proof import DELETE_DELAY_S
from metrics.trial.others import ClientTraffic

QUOTA_WINDOW = {"quota.window.num": 11.0, "quota.window.size.seconds": 1.0}
"""Broker property → Kafka's default. The product of `quota.window.num` and
`quota.window.size.seconds` is the time over which brokers average a load for quotas [s]."""

DELETE_DELAY = "log.segment.delete.delay.ms"

LAG_PROPERTY = "replica.lag.time.max.ms"
LAG_CHECKS = 1.5
"""Longest time until brokers remove a lagging follower from the ISR, as a multiple of
replica.lag.time.max.ms. Brokers check followers at intervals of half of replica.lag.time.max.ms.
"""


@dataclass
class LastLoad:
    """Facts about all loads that the runs of this process have offered to one cluster.

    Attributes:
        ended_s: end of the process's last load [s since the epoch]; None before the first load.
        looks: readings of other clients' traffic, taken while the process offered no load; each
            reading is (end of the reading [s since the epoch], traffic).
        written: all topics that runs of this process have used as `cluster.topics`.
    """

    ended_s: float | None = None
    looks: list[tuple[float, ClientTraffic]] = field(default_factory=list)
    written: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class OpenCluster:
    """A cluster that answers requests.

    Attributes:
        check: function that raises an error if a broker process has ended. The function checks only
            processes that this run started. For brokers that were running before the run, `check`
            does nothing; a check of the topics before each trial detects offline brokers.
        security: security settings of the clients' connections.
        started_jmx: JMX of brokers that this run started; None if another user started the brokers.
        environment: facts about the brokers for the run's record, such as `link.delay`.
        broker_control: control over the processes of brokers that this run started; None if another
            user started the brokers.
        network_namespace: file of the network namespace from which executors open connections to
            the brokers; empty for the executors' default namespace.
        link: key → value of the link between executors and brokers; empty if the link is unknown.
        name_prefix: `cluster.name_prefix`.
        client_ids: the client ids of all connections.
        last_load: facts about all loads that the runs of this process have offered to the cluster,
            such as the time at which the last load ended.
    """

    admin: KafkaAdmin
    info: ClusterInfo
    check: Callable[[], object] = lambda: None
    security: Security = field(default_factory=Security)
    started_jmx: StartedJmx | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    broker_control: facade.StartedBrokers | None = None
    network_namespace: str = ""
    link: Mapping[str, str] = field(default_factory=dict)
    last_load: LastLoad = field(default_factory=LastLoad)
    name_prefix: str = NAME_PREFIX
    client_ids: ClientIds = field(default_factory=ClientIds)

    def client_kwargs(self) -> ClientOptions:
        """Connection options of kafka-python, with resolved secrets (see
        `Cluster.client_kwargs`).
        """
        return ClientOptions(self.security.client_kwargs(), client_id=self.client_ids)

    def may_have_client_id(self, client_id: str) -> bool:
        """Whether a connection of a run may have this client id."""
        return self.client_ids.may_be(client_id, self.name_prefix)

    @property
    def interface_speeds(self) -> dict[str, float]:
        """Network interface at an end of the link → speed of the interface [B/s]."""
        return facade.interface_speeds(self.link)

    def outage(self, reporter: Reporter) -> BrokerOutage:
        """The planned outage: this process stops brokers that it started, and the operator stops
        others.
        """
        if self.broker_control is not None:
            return ControlledOutage(self.broker_control, self.admin)
        return AnnouncedOutage(self.admin, self.info.broker_ids, reporter)

    def without(self, offline: Set[int]) -> OpenCluster:
        """The same cluster without the brokers that are stopped."""
        info = self.info
        rest = tuple(each for each in info.brokers if each.id not in offline)
        jmx = None if self.started_jmx is None else self.started_jmx.without(offline)
        return replace(self, info=replace(info, brokers=rest), started_jmx=jmx)


def require_startable(cluster: Cluster) -> None:
    """Check the settings of the brokers that the run would start; start nothing.

    Raises:
        ConfigError: see `jobs.testbed.facade.require_startable`.
    """
    if cluster.testbed is not None:
        facade.require_startable(cluster.testbed)


def open_cluster(
    cluster: Cluster,
    reporter: Reporter,
    stack: ExitStack,
    meanwhile: Callable[[], object] = lambda: None,
) -> OpenCluster:
    """Start the testbed's brokers if there is a testbed, and connect to the cluster. `stack` closes
    the connection and stops the started brokers.

    Args:
        meanwhile: function that is called while the testbed's brokers start. If the brokers are
            running already, the function is not called.

    Raises:
        ConfigError: the brokers do not start, or refuse the connection.
        TryLaterError: no broker answers.
    """
    if cluster.testbed is None:
        return _running(cluster, reporter, stack)
    testbed = cluster.testbed
    count = "1 broker" if testbed.brokers == 1 else f"{testbed.brokers} brokers"
    reporter.report(PhaseStarted(f"starting {count} of Kafka {testbed.kafka_version}"))
    started = stack.enter_context(facade.start_brokers(testbed, meanwhile))
    security = started.client_security()
    options = ClientOptions(security.client_kwargs(), client_id=cluster.client_ids)
    admin = stack.enter_context(connect(started.bootstrap_servers, options))
    return OpenCluster(
        admin,
        admin.describe_cluster(),
        started.check,
        security,
        StartedJmx(started.all_jmx_endpoints, started.jmx_access),
        started.environment,
        started,
        started.network_namespace,
        started.link_facts,
        name_prefix=cluster.name_prefix,
        client_ids=cluster.client_ids,
    )


def _running(cluster: Cluster, reporter: Reporter, stack: ExitStack) -> OpenCluster:
    if cluster.bootstrap_servers is None:
        raise ConfigError(f"cluster {cluster.name} names no brokers; set bootstrap_servers")
    reporter.report(PhaseStarted(f"connecting to {', '.join(cluster.bootstrap_servers)}"))
    options = cluster.client_kwargs()
    admin = stack.enter_context(
        connect(cluster.bootstrap_servers, options, cluster.name, cluster_id=cluster.cluster_id)
    )
    admin.on_wait = partial(note, reporter)
    info = admin.describe_cluster()
    return OpenCluster(
        admin,
        info,
        security=cluster.security,
        environment=cluster.environment(info.broker_ids),
        network_namespace=cluster.network_namespace or "",
        link=cluster.link,
        name_prefix=cluster.name_prefix,
        client_ids=cluster.client_ids,
    )


def window_needed_s(opened: OpenCluster, workload: Workload) -> float | None:
    """The shortest window that is long enough to detect each lagging follower [s].

    The window is `LAG_CHECKS` times the brokers' largest `replica.lag.time.max.ms`. The result is
    None if the topics have no followers, or if no broker reports `replica.lag.time.max.ms`.
    """
    if all(part.topic.replication_factor < 2 for part in workload.parts):
        return None
    lags_ms = _property_of_brokers(opened, LAG_PROPERTY).values()
    known_ms = [float(each) for each in lags_ms if each is not None]
    return LAG_CHECKS * max(known_ms) / 1000.0 if known_ms else None


def _property_of_brokers(opened: OpenCluster, name: str) -> dict[int, str | None]:
    """Broker id → value of one property of the broker."""
    brokers = opened.info.broker_ids
    answers = query_all_brokers(lambda each: opened.admin.broker_config(each, (name,)), brokers)
    return {broker: each.get(name) for broker, each in zip(brokers, answers, strict=True)}


def require_fitting(opened: OpenCluster, workload: Workload, goal: Goal) -> None:
    """Check that the trials of a workload suit the properties of the brokers.

    Raises:
        ConfigError: trials are too short for this cluster's metrics to show an overload.
    """
    needed_s = window_needed_s(opened, workload)
    if needed_s is not None and workload.trial.measure_s < needed_s:
        raise ConfigError(
            f"workload.trial.measure_s is {workload.trial.measure_s:g}; expected at least "
            f"{needed_s:g} s, because goal {goal.name} judges by lagging followers, which brokers "
            f"report after up to {needed_s:g} s; add --set "
            f"workload.trial.measure_s={needed_s:g}, or lower the brokers' replica.lag.time.max.ms"
        )
    burst_s = quota_window_s(opened, goal)
    if burst_s is not None and workload.trial.measure_s < burst_s:
        raise ConfigError(
            f"workload.trial.measure_s is {workload.trial.measure_s:g}; expected at least "
            f"{burst_s:g} s, because goal {goal.name} judges by throttling, and quotas throttle "
            f"only after a burst of up to {burst_s:g} s (quota.window.num times "
            f"quota.window.size.seconds); add --set workload.trial.measure_s={burst_s:g}"
        )


def quota_window_s(opened: OpenCluster, goal: Goal) -> float | None:
    """The time over which brokers average a load for their quotas [s].

    Brokers throttle a load once its mean over this time exceeds the quota. If no broker reports a
    property, Kafka's default for the property applies. The result is None if the goal does not
    judge by throttling.
    """
    if not goal.indicators.throttled_is_overload:
        return None
    return prod(
        max(_reported(opened, name), default=0.0) or usual for name, usual in QUOTA_WINDOW.items()
    )


def delete_delay_s(opened: OpenCluster) -> float:
    """The shortest time between the check of retention and the deletion of a file [s].

    The result is Kafka's default if no broker reports the property.
    """
    return min(_reported(opened, DELETE_DELAY), default=DELETE_DELAY_S * 1e3) / 1e3


def _reported(opened: OpenCluster, name: str) -> list[float]:
    """The values that brokers report for a property; empty if this user may not read it."""
    try:
        found = _property_of_brokers(opened, name).values()
    except AdminError:
        return []
    return [float(each) for each in found if each is not None]


def queue_limits(opened: OpenCluster, goal: Goal) -> dict[int, float]:
    """Broker id → the broker's `queued.max.requests`; empty if the goal does not use the property.

    Raises:
        ConfigError: a broker does not report `queued.max.requests`.
    """
    if goal.indicators.request_queue_share_max is None:
        return {}
    found = {}
    for broker, value in _property_of_brokers(opened, "queued.max.requests").items():
        if value is None:
            raise ConfigError(
                f"broker {broker} does not report queued.max.requests, and goal {goal.name} "
                "judges by indicators.request_queue_share_max; expected a number; set "
                "request_queue_max instead"
            )
        found[broker] = float(value)
    return found
