"""Opening the source of a cluster's metrics that its configuration names."""

from __future__ import annotations

from functools import partial
from typing import Any

from jobs.cluster.connect import connect
from jobs.cluster.opening import OpenCluster
from jobs.cluster.queries import replicas_by_broker
from jobs.config import Cluster
from jobs.config.exporter_rules import load_rules
from metrics.sources.chooser import open_source
from metrics.sources.client_only import ClientOnlySource
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.source import Endpoint, MetricsSource

EXPORTER_DEADLINE_S = 10.0
"""A scrape of an exporter without rules reads every bean of a broker [s]."""
LOOK_DEADLINE_S = 5.0
"""How long the Admin API may take to tell the replicas' state [s]."""


def open_metrics(cluster: Cluster, opened: OpenCluster, jvm: Any | None) -> MetricsSource:
    """An open source for this cluster.

    Args:
        cluster: as configured.
        opened: the same, connected.
        jvm: the driver's JVM (`spark._jvm`), or None where there is none.

    Raises:
        ConfigError: a node cannot be reached or judged, the rule set is wrong, or a secret is not
            there.
    """
    way = cluster.metrics
    version = ".".join(map(str, opened.info.api_version))
    source: MetricsSource
    if way is not None and way.client_only:
        servers = [f"{host}:{port}" for host, port in opened.info.addresses.values()]
        # A connection of its own: the sampler asks from another thread than the run.
        admin = connect(servers, opened.security.client_kwargs(), request_timeout_s=LOOK_DEADLINE_S)
        look = partial(replicas_by_broker, admin)
        source = ClientOnlySource(opened.info.broker_ids, look, version, admin.close)
    elif way is not None and way.prometheus is not None:
        endpoints = [
            Endpoint.parse(broker, address)
            for broker, address in sorted(way.prometheus.addresses(opened.info.hosts).items())
        ]
        source = PrometheusSource(
            endpoints,
            load_rules(way.prometheus.rules),
            EXPORTER_DEADLINE_S,
            version,
            access=way.prometheus.access(),
        )
    else:
        return open_source(opened.jmx, jvm, access=opened.jmx_access)
    try:
        source.open()
    except BaseException:
        source.close()
        raise
    return source
