"""Connections to brokers, opened by kafka-python and then driven by our own event loop.

kafka-python's network layer resolves, connects, negotiates API versions and
authenticates. After that the socket is taken over, because its transport copies every
payload and the engine must not.
"""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.net.connection import KafkaConnection
from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.producer import ProduceRequest

from jobs.engine.protocol import PRODUCE_VERSION
from jobs.engine.transport import PlainTransport, Transport
from search.errors import ConfigError, RedlineError

_AT_ONCE = 64
_SPARE_DESCRIPTORS = 256
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]

Address = tuple[str, int]


class BrokerConnectError(RedlineError):
    """A producer could not connect to a broker."""


def ensure_descriptors(sockets: int) -> None:
    """Raise the limit of open files if this many sockets need it.

    Raises:
        ConfigError: the hard limit is too low.
    """
    wanted = sockets + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ConfigError(
                f"{sockets} connections need {wanted} open files and this host allows {hard}: "
                "raise its limit (ulimit -n) or use more tasks on more hosts"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_connections(
    wanted: Sequence[tuple[str, int]],
    brokers: Mapping[int, Address],
    options: Mapping[str, object],
    timeout_s: float,
) -> dict[tuple[str, int], Transport]:
    """Open one authenticated transport per (client id, broker id).

    Raises:
        BrokerConnectError: a broker refused, or did not answer within `timeout_s`.
        ConfigError: a broker does not speak the produce version that the engine uses.
    """
    ensure_descriptors(len(wanted))
    net = NetworkSelector(slow_task_threshold_secs=0)
    deadline = time.monotonic() + timeout_s
    opened: dict[tuple[str, int], Transport] = {}
    try:
        for first in range(0, len(wanted), _AT_ONCE):
            chunk = wanted[first : first + _AT_ONCE]
            net.run(_open_chunk, net, chunk, brokers, options, deadline, opened)
    except BaseException:
        for transport in opened.values():
            transport.close()
        raise
    finally:
        net.close()
    return opened


async def _open_chunk(
    net: Any,
    chunk: Sequence[tuple[str, int]],
    brokers: Mapping[int, Address],
    options: Mapping[str, object],
    deadline: float,
    opened: dict[tuple[str, int], Transport],
) -> None:
    futures = [
        (key, net.call_soon_with_future(_open_one, net, key, brokers[key[1]], options, deadline))
        for key in chunk
    ]
    failure: RedlineError | None = None
    for key, future in futures:
        try:
            opened[key] = await future
        except RedlineError as error:  # every future is awaited before the first is reported
            failure = failure or error
    if failure is not None:
        raise failure


async def _open_one(
    net: Any,
    key: tuple[str, int],
    address: Address,
    options: Mapping[str, object],
    deadline: float,
) -> Transport:
    client_id, broker_id = key
    host, port = address
    where = f"broker {broker_id} at {host}:{port}"
    try:
        sock = await create_connection(net, host, port, _SOCKET_OPTIONS, timeout_at=deadline)
        transport = KafkaTCPTransport(net, sock, host=host)
        await transport.handshake()
        connection = KafkaConnection(net, node_id=broker_id, client_id=client_id, **options)
        connection.connection_made(transport)
        await connection.initialize(timeout_at=deadline)
        await connection
    except Exception as error:
        raise BrokerConnectError(f"{where}: {type(error).__name__}: {error}") from error
    newest = connection.broker_version_data.api_version(ProduceRequest)
    if newest < PRODUCE_VERSION:
        sock.close()
        raise ConfigError(
            f"{where} speaks produce requests up to version {newest}; "
            f"version {PRODUCE_VERSION} is needed, which Kafka has since 2.1"
        )
    return PlainTransport(_take_over(net, transport))


def _take_over(net: Any, transport: Any) -> socket.socket:
    """Detach the socket from kafka-python's event loop.

    Reads the transport's private fields; the exact kafka-python version is pinned, and
    a test against a real broker fails when they change.
    """
    transport.pause_reading()
    net.cancel(transport._read_task)
    sock: socket.socket = transport._sock
    transport._sock = None
    return sock
