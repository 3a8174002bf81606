"""Opening the sources of an open cluster's metrics, as its configuration names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jobs.cluster.connect import connect
from jobs.cluster.hosts import local_hosts
from jobs.cluster.opening import OpenCluster
from jobs.cluster.queries import replicas_by_broker
from jobs.config import Cluster
from jobs.config.metrics_registry import broker_source, configured_sources, host_source
from jobs.config.metrics_section import SourceTarget
from metrics.sources.client_only import Replicas
from metrics.sources.hosts.source import HostSource
from metrics.sources.source import MetricsSource

QUERY_DEADLINE_S = 5.0
"""Deadline of the Admin API for the state of the replicas [s]."""


def require_sources(cluster: Cluster, opened: OpenCluster) -> None:
    """Check what can be checked of the configured sources without a connection to them.

    Raises:
        ConfigError: a broker has no address, or a secret is missing.
    """
    for section in configured_sources(cluster):
        section.require_usable(opened.info.hosts)


def open_metrics(cluster: Cluster, opened: OpenCluster, jvm: Any | None) -> MetricsSource:
    """An open source of the brokers' metrics.

    Args:
        cluster: the cluster as configured.
        opened: the same cluster, connected.
        jvm: the driver's JVM (`spark._jvm`), or None where there is none.

    Raises:
        ConfigError: a node cannot be reached or judged, the rule set is wrong, or a secret is
            missing.
    """
    return broker_source(cluster).open(_target(opened, jvm))


def open_hosts(
    cluster: Cluster, opened: OpenCluster, broker_folders: Path | None = None
) -> HostSource:
    """An open source of the metrics of the brokers' hosts; `NoHosts` where none is available.

    Args:
        broker_folders: folder with the files of brokers that another command started on this
            machine; a folder of the cache by default.

    Raises:
        ConfigError: a host that the cluster's file names does not answer, or a secret is missing.
    """
    return host_source(cluster).open(_target(opened, broker_folders=broker_folders))


def _target(
    opened: OpenCluster, jvm: Any | None = None, broker_folders: Path | None = None
) -> SourceTarget:
    return SourceTarget(
        hosts=opened.info.hosts,
        version=".".join(map(str, opened.info.api_version)),
        open_replicas=partial(_open_replicas, opened),
        local_hosts=partial(local_hosts, opened, broker_folders),
        started_jmx=opened.started_jmx,
        jvm=jvm,
    )


def _open_replicas(
    opened: OpenCluster,
) -> tuple[Callable[[], Mapping[int, Replicas]], Callable[[], None]]:
    """A query of the replicas over a connection of its own, and a function that closes it.

    The sampler queries from another thread than the run.
    """
    servers = [f"{host}:{port}" for host, port in opened.info.addresses.values()]
    options = opened.security.client_kwargs()
    admin = connect(servers, options, request_timeout_s=QUERY_DEADLINE_S)
    return partial(replicas_by_broker, admin), admin.close
