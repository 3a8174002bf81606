"""Connects to a cluster; if the connection fails, the error states the reason within seconds."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.engine.network.connections import refusals_of
from jobs.engine.network.links import library_options
from jobs.engine.network.refusals import explain_refusal
from metrics.common.errors import ConfigError, TryLaterError

OPEN_EACH_S = 0.05
"""Minimum time for each connection if many brokers share one deadline [s]."""
PROBE_SHARE = 0.3
"""Part of the deadline that the TCP probe of all addresses may take [ratio]."""

RECONNECT_BACKOFF_MAX_MS = 1_000
"""Longest pause before the client tries to reach a broker again [ms]."""

UNRESOLVED = "has a host name that does not resolve"

CLIENT_ID = "kafka-redline-admin"

# Without a handler Python prints the warnings of kafka-python on stderr.
logging.getLogger("kafka").addHandler(logging.NullHandler())


def connect(
    bootstrap_servers: Sequence[str],
    client_kwargs: Mapping[str, Any] | None = None,
    cluster: str = "",
    timeout_s: float = 10.0,
    request_timeout_s: float = 30.0,
    cluster_id: str | None = None,
) -> KafkaAdmin:
    """Connect an admin client to a cluster and check that every broker can be reached.

    If `cluster_id` is given, the function logs in to one address and compares the cluster's id
    before it connects to other brokers. The function must log in before it can read the id, because
    a listener with authentication answers no request before the login.

    Args:
        bootstrap_servers: addresses as host:port; at least one address must answer.
        client_kwargs: connection options of kafka-python, from `Security.client_kwargs`.
        cluster: name of the cluster, for messages.
        timeout_s: deadline for finding the cluster [s].
        request_timeout_s: deadline of each later request [s].
        cluster_id: the expected id of the cluster; None for any id.

    Raises:
        TryLaterError: no address answers; the cluster may be down.
        ConfigError: no name resolves, no address is a Kafka broker with these options, the
            credentials are refused, the cluster has another id, or a broker advertises an address
            that does not answer.
    """
    troubles = probe(bootstrap_servers, timeout_s * PROBE_SHARE)
    answering = [server for server in bootstrap_servers if server not in troubles]
    if not answering:
        reasons = "; ".join(f"{server} {trouble}" for server, trouble in troubles.items())
        are_named = any(trouble != UNRESOLVED for trouble in troubles.values())
        raise (TryLaterError if are_named else ConfigError)(
            f"{f'cluster {cluster}: ' if cluster else ''}none of its bootstrap_servers can be "
            f"reached: {reasons}; expected a Kafka broker at an address; start a broker, or "
            "correct the addresses"
        )
    options = dict(client_kwargs or {})
    servers = _servers_with_login(answering, options, timeout_s, only_one=bool(cluster_id))
    client = admin_client(servers, options, timeout_s, request_timeout_s)
    admin = KafkaAdmin(client, request_timeout_s)
    try:
        # The metadata of the first connection include the id, so that no request is sent here.
        found = client._manager.cluster.cluster_id
        if cluster_id not in (None, found):
            raise ConfigError(
                f"the cluster at {servers[0]} {f'has the id {found}' if found else 'states no id'}"
                f", and cluster {cluster} has cluster_id: {cluster_id}; expected the same cluster; "
                "correct cluster.bootstrap_servers, or cluster.cluster_id"
            )
        _require_reachable_brokers(admin, options, timeout_s)
    except BaseException:
        admin.close()
        raise
    return admin


def probe(addresses: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Address (host:port) → why the address accepts no TCP connection within `timeout_s` [s]."""
    with ThreadPoolExecutor(max_workers=min(32, max(1, len(addresses)))) as pool:
        troubles = pool.map(lambda address: _trouble(address, timeout_s), addresses)
    return {
        address: trouble
        for address, trouble in zip(addresses, troubles, strict=True)
        if trouble is not None
    }


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _trouble(address: str, timeout_s: float) -> str | None:
    try:
        socket.create_connection(split_address(address), timeout_s).close()
    except socket.gaierror:
        return UNRESOLVED
    except TimeoutError:
        return f"does not answer within {timeout_s:.3g} s"
    except OSError as error:
        return f"accepts no connection ({(error.strerror or str(error)).lower()})"
    return None


def _servers_with_login(
    servers: Sequence[str], options: Mapping[str, Any], timeout_s: float, *, only_one: bool
) -> Sequence[str]:
    """The addresses to which the producers' client can log in.

    The check uses the producers' client, because kafka-python does not report why a login failed.

    Args:
        only_one: whether to stop at the first address that accepts the login.
    """
    refusals: dict[int, str] = {}
    for some in [[each] for each in servers] if only_one else [servers]:
        places = {-1 - len(refusals) - n: split_address(each) for n, each in enumerate(some)}
        found = refusals_of(places, options, timeout_s * (1 - PROBE_SHARE))
        if len(found) < len(some):
            return some
        refusals |= found
    raise ConfigError("; ".join(refusals.values()))


def admin_client(
    servers: Sequence[str],
    options: Mapping[str, Any],
    timeout_s: float = 10.0,
    request_timeout_s: float = 30.0,
    name: str = CLIENT_ID,
) -> KafkaAdminClient:
    """kafka-python's admin client, connected to the cluster.

    If the connection fails, the client and its threads are stopped.

    Args:
        servers, options, timeout_s, request_timeout_s: see `connect`.
        name: the client id if `options` do not state one.

    Raises:
        ConfigError: no connection to the cluster.
    """
    made: list[KafkaNetClient] = []

    def remember(**config: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**config))
        return made[-1]

    try:
        return KafkaAdminClient(
            bootstrap_servers=list(servers),
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(request_timeout_s * 1000),
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
            kafka_client=remember,
            **library_options(options, name),
        )
    except kafka_errors.KafkaError as error:
        for client in made:
            client.close()
            client._manager._net.stop()
        raise ConfigError(f"{', '.join(servers)}: {explain_refusal(error, options)}") from error


def _require_reachable_brokers(
    admin: KafkaAdmin, options: Mapping[str, Any], timeout_s: float
) -> None:
    """Check that each broker can be reached at the address that it advertises to clients."""
    try:
        brokers = admin.describe_cluster().brokers
    except AdminError as error:
        raise ConfigError(str(error)) from error
    advertised = {f"{each.host}:{each.port}": each.id for each in brokers}
    for address, trouble in probe(list(advertised), timeout_s * PROBE_SHARE).items():
        raise ConfigError(
            f"broker {advertised[address]} advertises {address}, which {trouble}; expected an "
            "address that this machine can reach; correct advertised.listeners of the broker, or "
            "the name resolution of this machine"
        )
    places = {each.id: (each.host, each.port) for each in brokers}
    deadline_s = max(timeout_s, OPEN_EACH_S * len(places))
    for refusal in refusals_of(places, options, deadline_s).values():
        raise ConfigError(refusal)
