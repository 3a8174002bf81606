"""Connections to brokers, opened by kafka-python and then driven by the engine's event loop.

kafka-python's network layer resolves, connects, negotiates API versions and authenticates. After
that the socket is taken over, because kafka-python's transport copies every payload and the engine
must not.
"""

from __future__ import annotations

import functools
import resource
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from jobs.engine.network.frames import PRODUCE_VERSION
from jobs.engine.network.links import TcpLink, TlsLink, dial, tls_context
from jobs.engine.network.names import Address, Resolved, look_up
from jobs.engine.network.refusals import LoginRequiredError, explain_refusal
from jobs.engine.network.transport import PlainTransport, TlsTransport, Transport
from metrics.common.errors import ConfigError, RedlineError

_AT_ONCE = 64
_SPARE_DESCRIPTORS = 256
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


@dataclass(frozen=True)
class SocketBuffers:
    """Sizes of a socket's buffers; -1 leaves a size to the kernel's tuning [B].

    They are set before the connection is made, as the TCP window depends on them.
    """

    send_bytes: int = -1
    receive_bytes: int = -1

    @property
    def options(self) -> list[tuple[int, int, int]]:
        """The arguments of `setsockopt`."""
        sizes = ((socket.SO_SNDBUF, self.send_bytes), (socket.SO_RCVBUF, self.receive_bytes))
        return [(socket.SOL_SOCKET, option, size) for option, size in sizes if size >= 0]


KERNEL_TUNED = SocketBuffers()


class BrokerConnectError(RedlineError):
    """A connection that could not be opened; the text names the broker and the cause."""


def ensure_descriptors(sockets: int) -> None:
    """Raise the limit of open files if so many sockets need it.

    Raises:
        ConfigError: the hard limit is too low.
    """
    wanted = sockets + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ConfigError(
                f"{sockets} connections need {wanted} open files, and this host allows {hard}; "
                "raise its limit (ulimit -n), or use more tasks on more hosts"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_connections(
    wanted: Sequence[tuple[str, int]],
    brokers: Mapping[int, Address],
    options: Mapping[str, Any],
    timeout_s: float,
    buffers: SocketBuffers = KERNEL_TUNED,
) -> dict[tuple[str, int], Transport]:
    """Open one authenticated transport per (client id, broker id).

    Args:
        wanted: the connections to open.
        brokers: broker id → (host, port).
        options: connection options of kafka-python, as `Security.client_kwargs` gives them.
        timeout_s: time limit for all of them together [s].
        buffers: sizes of the sockets' buffers.

    Raises:
        BrokerConnectError: a broker refused, or did not answer within `timeout_s`.
        ConfigError: a broker does not support the produce version that the engine uses, or a file
            of the security options cannot be used.
    """
    kind = functools.partial(_Opener, buffers=buffers)
    opened, refused = _open_all(wanted, brokers, options, timeout_s, kind)
    if refused:
        for transport in opened.values():
            transport.close()
        raise next(iter(refused.values()))
    return opened


def refusals_of(
    brokers: Mapping[int, Address], options: Mapping[str, Any], timeout_s: float
) -> dict[int, str]:
    """Brokers to which no connection can be opened, each with an explanation.

    Args:
        brokers: broker id → (host, port); a negative id where it is not known yet.
        options: connection options of kafka-python.
        timeout_s: time limit for all of them together [s].

    Raises:
        ConfigError: a file of the security options cannot be used.
    """
    wanted = [("redline-check", broker) for broker in brokers]
    opened, refused = _open_all(wanted, brokers, options, timeout_s, _ProbingOpener)
    for transport in opened.values():
        transport.close()
    return {broker: str(error) for (_, broker), error in refused.items()}


_Opened = dict[tuple[str, int], Transport]
_Refused = dict[tuple[str, int], RedlineError]


def _open_all(
    wanted: Sequence[tuple[str, int]],
    brokers: Mapping[int, Address],
    options: Mapping[str, Any],
    timeout_s: float,
    kind: Callable[[Any, Mapping[Address, Resolved], Mapping[str, Any], float], _Opener],
) -> tuple[_Opened, _Refused]:
    """Open connections in chunks, and stop after a chunk with a refusal."""
    ensure_descriptors(len(wanted))
    net = NetworkSelector(slow_task_threshold_secs=0)
    opened: _Opened = {}
    refused: _Refused = {}
    try:
        deadline_s = time.monotonic() + timeout_s
        # One look-up for each host, whose answer serves all connections to it.
        resolved = look_up({brokers[broker] for _, broker in wanted}, deadline_s)
        opener = kind(net, resolved, options, deadline_s)
        for first in range(0, len(wanted), _AT_ONCE):
            chunk = wanted[first : first + _AT_ONCE]
            net.run(_open_chunk, net, opener, chunk, brokers, opened, refused)
            if refused:
                break
    except BaseException:
        for transport in opened.values():
            transport.close()
        raise
    finally:
        net.close()
    return opened, refused


async def _open_chunk(
    net: Any,
    opener: _Opener,
    chunk: Sequence[tuple[str, int]],
    brokers: Mapping[int, Address],
    opened: _Opened,
    refused: _Refused,
) -> None:
    futures = [
        (key, net.call_soon_with_future(opener.open, *key, brokers[key[1]])) for key in chunk
    ]
    for key, future in futures:
        try:
            opened[key] = await future
        except RedlineError as error:  # every future is awaited before the first is reported
            refused[key] = error


class _Opener:
    """An opener of connections with the same options, until a time on the monotonic clock [s]."""

    def __init__(
        self,
        net: Any,
        resolved: Mapping[Address, Resolved],
        options: Mapping[str, Any],
        deadline_s: float,
        buffers: SocketBuffers = KERNEL_TUNED,
    ) -> None:
        self._net = net
        self._resolved = resolved
        self._socket_options = [*_SOCKET_OPTIONS, *buffers.options]
        self._options = options
        self._deadline_s = deadline_s
        # One context for all, as reading the system's certificates takes long.
        self._tls = tls_context(options)

    async def open(self, client_id: str, broker_id: int, address: Address) -> Transport:
        host, port = address
        where = f"broker {broker_id} at {host}:{port}" if broker_id >= 0 else f"{host}:{port}"
        sock: socket.socket | None = None
        try:
            sock = await dial(
                self._net, self._resolved[address], self._socket_options, self._deadline_s
            )
            transport = self._transport(sock, host)
            sock = transport._sock
            if isinstance(sock, ssl.SSLSocket):
                await self._shake_hands(sock)
            connection = KafkaConnection(
                self._net, node_id=broker_id, client_id=client_id, **self._options
            )
            connection.connection_made(transport)
            await connection.initialize(timeout_at=self._deadline_s)
            await connection
            await self._probe(connection)
        except Exception as error:
            if sock is not None:
                sock.close()
            raise BrokerConnectError(f"{where}: {explain_refusal(error, self._options)}") from error
        newest = connection.broker_version_data.api_version(ProduceRequest)
        if newest < PRODUCE_VERSION:
            sock.close()
            raise ConfigError(
                f"{where} supports produce requests up to version {newest}; expected version "
                f"{PRODUCE_VERSION}, which Kafka has supported since 2.1; use a newer broker"
            )
        return _take_over(self._net, connection, transport)

    def _transport(self, sock: socket.socket, host: str) -> Any:
        if self._tls is None:
            return TcpLink(self._net, sock, host=host)
        return TlsLink(self._net, sock, host=host, ssl_context=self._tls)

    async def _probe(self, connection: Any) -> None:
        """Do nothing, as a producer's schedule decides when its first request is sent."""

    async def _shake_hands(self, sock: ssl.SSLSocket) -> None:
        """Do the TLS handshake as kafka-python does, but with a deadline for a silent peer."""
        while True:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(sock, timeout_at=self._deadline_s)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(sock, timeout_at=self._deadline_s)
            else:
                return
            if time.monotonic() >= self._deadline_s:
                raise kafka_errors.KafkaTimeoutError("no end of the TLS handshake")


class _ProbingOpener(_Opener):
    """An opener that also sends a request, to check that the listener serves it."""

    async def _probe(self, connection: Any) -> None:
        if connection.sasl_enabled:
            return
        # A listener that requires a login answers ApiVersions without one, and then disconnects.
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            await connection.send_request(request)
        except kafka_errors.KafkaConnectionError as error:
            raise LoginRequiredError from error


def _take_over(net: Any, connection: Any, transport: Any) -> Transport:
    """Detach the socket from kafka-python's event loop.

    This uses private fields; the exact kafka-python version is pinned, and a test against a real
    broker fails when they change.
    """
    connection._reauth.cancel()
    transport.pause_reading()
    net.cancel(transport._read_task)
    sock = transport._sock
    transport._sock = None
    return TlsTransport(sock) if isinstance(sock, ssl.SSLSocket) else PlainTransport(sock)
