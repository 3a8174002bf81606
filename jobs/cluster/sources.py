"""Opens the configured metrics sources of an open cluster.

The module also reads a cluster's replicas and the brokers' changed properties.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from jobs.cluster.admin import NO_LEADER, AdminError, DescribedTopic, KafkaAdmin, Property
from jobs.cluster.connect import connect
from jobs.cluster.opening import OpenCluster
from jobs.config import Cluster
from jobs.config.metrics_registry import SourceTarget
from jobs.engine.network.namespaces import inside
from jobs.engine.network.options import join_address
from jobs.testbed import facade
from metrics.common.errors import ConfigError
from metrics.sources.client_only import Replicas
from metrics.sources.hosts.host_sample import HostSource, NoHosts
from metrics.sources.hosts.proc import LocalHost, LocalHosts
from metrics.sources.hosts.queues import Queues, open_netlink
from metrics.sources.source import MetricsSource

BROKER_SPECIFIC = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "metadata.log.dir",
        "node.id",
    }
)
"""Properties that identify a broker and do not affect its behavior."""
LOG_DIRS = "log.dirs"


def replicas_by_broker(admin: KafkaAdmin) -> dict[int, Replicas]:
    """Broker id → counts of the broker's replicas, over all topics that this user may describe.

    Raises:
        AdminError: the cluster did not answer.
    """
    return count_replicas(admin.describe_topics("look at the replicas"))


def count_replicas(topics: Iterable[DescribedTopic]) -> dict[int, Replicas]:
    """Broker id → counts of the broker's replicas, according to the metadata of topics."""
    led, short, offline = Counter[int](), Counter[int](), Counter[int]()
    holders: set[int] = set()
    for topic in topics:
        for each in topic.partitions.values():
            holders.update(each.replicas)
            led[each.leader] += 1
            is_led = each.leader != NO_LEADER
            # A partition without a leader counts for each broker with a replica.
            for broker in (each.leader,) if is_led else each.replicas:
                short[broker] += bool({*each.replicas} - {*each.isr}) or not is_led
            offline.update(each.offline)
    return {
        broker: Replicas(led[broker], short[broker], offline[broker]) for broker in sorted(holders)
    }


def changed_properties(admin: KafkaAdmin, broker_id: int) -> dict[str, str]:
    """A broker's properties that differ from Kafka's defaults, without secrets.

    `log.dirs.count`, the number of log directories, replaces the directories' paths.

    Raises:
        AdminError: this user may not read the properties, or the broker did not answer.
    """
    return configured_properties(admin.broker_properties(broker_id))


def configured_properties(properties: Mapping[str, Property]) -> dict[str, str]:
    """Name → value of the configured properties, without secrets.

    Properties with an unknown source are left out, because most of them have default values.
    """
    found = {
        name: str(each.value)
        for name, each in sorted(properties.items())
        if each.is_default is False
        and not each.is_sensitive
        and each.value is not None
        and name not in BROKER_SPECIFIC
    }
    if LOG_DIRS in found:
        found[f"{LOG_DIRS}.count"] = str(len(found.pop(LOG_DIRS).split(",")))
    return found


QUERY_DEADLINE_S = 5.0
"""Deadline of the Admin API's answer about the state of the replicas [s]."""


def require_sources(cluster: Cluster, opened: OpenCluster) -> None:
    """Check the configured metrics sources; open no connection.

    Raises:
        ConfigError: a broker has no address, or a secret is missing.
    """
    for section in cluster.sources:
        section.require_usable(opened.info.hosts)


def open_metrics(cluster: Cluster, opened: OpenCluster, jvm: Any | None) -> MetricsSource:
    """Open and return the source of the brokers' metrics.

    Args:
        cluster: the cluster as configured.
        opened: the open cluster that `cluster` configures.
        jvm: the driver's JVM (`spark._jvm`); None without Spark.

    Raises:
        ConfigError: a node cannot be reached, a node lacks metrics, the rule set is wrong, or a
            secret is missing.
    """
    return cluster.broker_source.open(_target(opened, jvm))


def open_hosts(cluster: Cluster, opened: OpenCluster) -> HostSource:
    """Open and return the source of the hosts' metrics; `NoHosts` if no source is available.

    Raises:
        ConfigError: a host in the cluster's file does not answer, or a secret is missing.
    """
    return cluster.host_source.open(_target(opened))


def _target(opened: OpenCluster, jvm: Any | None = None) -> SourceTarget:
    return SourceTarget(
        hosts=opened.info.hosts,
        version=".".join(map(str, opened.info.api_version)),
        open_replicas=partial(_open_replicas, opened),
        local_hosts=partial(local_hosts, opened),
        started_jmx=opened.started_jmx,
        jvm=jvm,
    )


def _open_replicas(
    opened: OpenCluster,
) -> tuple[Callable[[], Mapping[int, Replicas]], Callable[[], None]]:
    """Two functions: one queries the replicas over a separate connection, and the other closes this
    connection.

    The connection is separate, because the sampler and the run use different threads.
    """
    servers = [join_address(*each) for each in opened.info.addresses.values()]
    admin = connect(servers, opened.client_kwargs(), request_timeout_s=QUERY_DEADLINE_S)
    return partial(replicas_by_broker, admin), admin.close


_log = logging.getLogger(__name__)


def local_hosts(opened: OpenCluster) -> HostSource:
    """A source that reads this machine's metrics, if all brokers run here; otherwise `NoHosts`."""
    hosts, ids = opened.info.hosts, opened.info.broker_ids
    pids = facade.pids_behind(opened.network_namespace)
    if (control := opened.broker_control) is not None:
        pids = partial(getattr, control, "pids")
    if pids is not None:
        host = _host_of(opened, pids).with_log_dirs(_log_dirs(opened))
        return LocalHosts(host, ids, pids)
    if hosts and all(map(_is_here, set(hosts.values()))):
        return LocalHosts(LocalHost(queues=Queues()).with_log_dirs(_log_dirs(opened)), ids)
    return NoHosts()


def _host_of(opened: OpenCluster, processes: Callable[[], Mapping[int, int]]) -> LocalHost:
    """This machine as a host. If the testbed has a simulated network link, the brokers' network
    namespace counts as a second host.
    """
    if not opened.network_namespace:
        return LocalHost(queues=Queues())

    def a_broker() -> int | None:
        pids = processes()
        return next((pids[each] for each in opened.info.broker_ids if each in pids), None)

    name = f"{socket.gethostname()}/brokers"
    queues = Queues(lambda: _netlink_of(a_broker()))
    return LocalHost(name, network_of=a_broker, speeds=opened.interface_speeds, queues=queues)


def _log_dirs(opened: OpenCluster) -> list[Path]:
    """The brokers' log directories. Brokers that do not report their directories to this user are
    left out.
    """
    found: set[str] = set()
    for broker in opened.info.broker_ids:
        try:
            answers = opened.admin.log_dirs_of(broker, {})
        except AdminError as error:
            _log.warning("log directories of broker %d are unknown: %s", broker, error)
            continue
        found.update(str(each["log_dir"]) for each in answers if each.get("log_dir"))
    return [Path(each) for each in sorted(found)]


def _netlink_of(pid: int | None) -> socket.socket:
    """A netlink socket in the network namespace of a process.

    Raises:
        OSError: the process has ended, or this user may not enter the process's namespace.
    """
    if pid is None:
        raise OSError("no broker runs")
    try:
        with inside(f"/proc/{pid}/ns/net"):
            return open_netlink()
    except ConfigError as error:
        raise OSError(str(error)) from error


def _is_here(host: str) -> bool:
    """Whether all addresses of a host belong to this machine."""
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    own = {each.address for listed in psutil.net_if_addrs().values() for each in listed}
    return all(ipaddress.ip_address(each).is_loopback or each in own for each in map(str, found))
