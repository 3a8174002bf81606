"""JMX of the brokers, through the driver's JVM where there is one, else through jmxquery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.driver_jvm import DriverJvmSource
from metrics.sources.jmxquery_source import JmxQuerySource
from metrics.sources.source import JmxEndpoint, MetricsSource

JMXQUERY_DEADLINE_S = 5.0
"""Least deadline of a sample through jmxquery [s]; its JVMs start in 2 s on a busy machine."""


def open_jmx(
    addresses: Mapping[int, str],
    jvm: Any | None,
    deadline_s: float = 2.0,
    access: JmxAccess | None = None,
) -> MetricsSource:
    """Open a source that reads these nodes over JMX.

    Args:
        addresses: node id → `host:port` of its JMX, for brokers, and controllers where known.
        jvm: the driver's JVM (`spark._jvm`), or None on Spark Connect and serverless.
        deadline_s: time after which a node's sample counts as missed [s]; at least 5 s
            through jmxquery, which starts a JVM for each.
        access: login and certificates for JMX; None when it is open.

    Raises:
        ConfigError: there is no address, or a node cannot be reached or judged.
    """
    if not addresses:
        raise ConfigError(
            "no broker has a known JMX address, which is required to judge a load; set jmx.port or "
            "jmx.endpoints in the cluster's file in conf/clusters"
        )
    endpoints = [JmxEndpoint.parse(node, address) for node, address in sorted(addresses.items())]
    source: MetricsSource
    if jvm is not None:
        source = DriverJvmSource(jvm, endpoints, deadline_s, access)
    else:
        source = JmxQuerySource(endpoints, max(deadline_s, JMXQUERY_DEADLINE_S), access=access)
    source.open()
    return source
