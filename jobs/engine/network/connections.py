"""Connections to brokers, which kafka-python opens and the engine's event loop then drives.

The library kafka-python resolves host names, connects, negotiates API versions and authenticates.
After the login, the engine takes over the socket, because kafka-python's transport would copy every
payload.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import random
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from jobs.engine.network.apis import PRODUCE, Api, negotiated
from jobs.engine.network.links import (
    Address,
    Resolved,
    TcpLink,
    TlsLink,
    dial,
    look_up,
    tls_context,
)
from jobs.engine.network.options import client_id_of
from jobs.engine.network.pacing import PATIENCE, Attempt, ConnectPacer, Key
from jobs.engine.network.refusals import (
    LoginRequiredError,
    Refused,
    explain_refusal,
    is_closed_early,
    is_timeout,
)
from jobs.engine.network.transport import PlainTransport, TlsTransport, Transport
from metrics.common.errors import ConfigError, RedlineError

TABLES = (Path("/proc/thread-self/net/tcp"), Path("/proc/thread-self/net/tcp6"))
"""The kernel's tables of TCP sockets, for the network namespace of this thread."""

_ESTABLISHED = "01"


def count_open_to(
    addresses: Collection[tuple[str, int]], tables: Iterable[Path] = TABLES
) -> int | None:
    """Count the open connections from all processes of this host to these IPs and ports.

    Returns:
        The number of connections; None if the system does not show them.
    """
    wanted = {(_plain(ip), port) for ip, port in addresses}
    found: int | None = None
    for table in tables:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        rows = [line.split() for line in lines]
        ends = [_address(row[2]) for row in rows if len(row) > 3 and row[3] == _ESTABLISHED]
        found = (found or 0) + sum(end in wanted for end in ends)
    return found


def _address(text: str) -> tuple[str, int]:
    """IP and port of an entry such as 0100007F:2384, whose IP has the byte order of the host."""
    words, _, port = text.partition(":")
    data = bytes.fromhex(words)
    if sys.byteorder == "little":
        data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
    return _plain(data), int(port, 16)


def _plain(ip: str | bytes) -> str:
    """An IP address in canonical form. An IPv4 address inside IPv6 becomes an IPv4 address."""
    found = ipaddress.ip_address(ip.partition("%")[0] if isinstance(ip, str) else ip)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


_AT_ONCE = 64
"""Maximum number of connections that are opened at the same time, for all brokers together."""
_POLL_S = 0.05
_SPARE_DESCRIPTORS = 256
_RETIRE_SHARES = (0.6, 0.8)
"""When this share of a session's lifetime has passed, a successor of the connection is opened. Each
connection uses a random share from this range, so that the connections of a load do not log in at
the same moment."""
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


class BrokerConnectError(RedlineError):
    """A connection could not be opened. The text of the error names the broker and the cause."""


def broker_words(broker_id: int, address: Address) -> str:
    """The name of a broker in messages. A negative id stands for an unknown id."""
    host, port = address
    return f"broker {broker_id} at {host}:{port}" if broker_id >= 0 else f"{host}:{port}"


def ensure_descriptors(sockets: int) -> None:
    """Raise this process's limit of open files if it is too low for `sockets` sockets.

    Raises:
        ConfigError: the hard limit of open files is too low.
    """
    wanted = sockets + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ConfigError(
                f"this host allows {hard} open files; expected at least {wanted} for {sockets} "
                "connections; raise the limit (ulimit -n), or use more tasks on more hosts"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def refusals_of(
    brokers: Mapping[int, Address], options: Mapping[str, Any], timeout_s: float
) -> dict[int, str]:
    """Brokers that accept no connection: broker id → explanation.

    Args:
        brokers: broker id → (host, port); a negative id stands for an unknown id.
        options: connection options of kafka-python.
        timeout_s: time limit for all brokers together [s].

    Raises:
        ConfigError: a file of the security options cannot be used.
    """
    wanted = [("redline-check", broker) for broker in brokers]
    connector = Connector(brokers, options, timeout_s, apis=(PRODUCE,))
    with Opening(connector, Aim.PROBES) as opening:
        opening.open_all(wanted)
    return {broker: str(error) for (_, broker), error in opening.refused.items()}


@dataclass(frozen=True)
class Connector:
    """The settings that all connections of a client share.

    Attributes:
        brokers: broker id → (host, port).
        options: connection options of kafka-python, as `Security.client_kwargs` returns them.
        timeout_s: opening fails if a broker has accepted no further connection for this time [s].
        buffers: sizes of the sockets' send and receive buffers [B]; -1 leaves a size to the kernel.
        apis: the kinds of requests that the connections will carry.
    """

    brokers: Mapping[int, Address]
    options: Mapping[str, Any]
    timeout_s: float
    buffers: tuple[int, int] = (-1, -1)
    apis: Collection[Api] = ()

    def open(self, wanted: Sequence[Key]) -> dict[Key, Transport]:
        """Open one authenticated transport for each pair of a client's name and a broker id.

        If a broker closes a new connection at once, the connection is opened again. The pace of the
        attempts suits brokers that limit new connections.

        Raises:
            BrokerConnectError: a broker refused, did not answer within `timeout_s`, or limits its
                connections.
            ConfigError: the broker and the engine have no version in common for a kind of request
                in `apis`, or a file of the security options cannot be used.
        """
        with Opening(self, Aim.ALL) as opening:
            opening.open_all(wanted)
            refused = opening.refused
            if refused:
                raise refused.pop(next(iter(refused)))  # popped: the traceback makes no cycle
            return opening.take()


class Aim(Enum):
    """The purpose for which connections are opened.

    `ALL`: all connections are needed, so one refusal ends the opening. The time limit for all
    connections is `PATIENCE` times `timeout_s`, so that a broker can accept the connections slowly.
    `PROBES`: the connections are only checked, within one time limit for all of them. Each probe
    sends a request, to check that the listener serves requests. `LOST`: the connections were lost,
    and are opened again without a time limit.
    """

    ALL = 1
    PROBES = 2
    LOST = 3


class Opening:
    """The opening of many connections. A `ConnectPacer` for each broker sets the pace.

    The end of the block closes the connections that were not taken.

    Attributes:
        refused: (name of the client, broker id) → error that explains the refusal; the name is
            empty if a `ConnectPacer` gave up the broker.
    """

    def __init__(self, connector: Connector, aim: Aim) -> None:
        # One context for all connections, because reading the system's certificates takes long.
        self._tls = tls_context(connector.options)
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._connector, self._aim, self._rng = connector, aim, random.Random()
        # Buffer sizes are set before connecting, because the TCP window depends on them.
        sizes = zip((socket.SO_SNDBUF, socket.SO_RCVBUF), connector.buffers, strict=True)
        sized = [(socket.SOL_SOCKET, option, size) for option, size in sizes if size >= 0]
        self._socket_options = [*_SOCKET_OPTIONS, *sized]
        self._look_ups: dict[Address, Any] = {}
        self._resolved: dict[Address, Resolved] = {}
        self._began_s = time.monotonic()
        patience = {Aim.ALL: PATIENCE, Aim.PROBES: 1, Aim.LOST: math.inf}[aim]
        self._end_s = self._began_s + connector.timeout_s * patience
        self._pacers: dict[int, ConnectPacer] = {}
        self._running: dict[Any, Attempt] = {}
        self._ended: list[Any] = []
        self._opened: dict[Key, Transport] = {}
        self.refused: dict[Key, RedlineError] = {}

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, *_: object) -> None:
        for transport in self._opened.values():
            transport.close()
        self._net.close()

    def open_all(self, wanted: Sequence[Key]) -> None:
        """Open connections, until all of them are open or refused. The pauses have a random jitter,
        whose seed depends on `wanted`, so a second call with equal `wanted` has equal pauses.
        """
        ensure_descriptors(len(wanted))
        self._rng.seed(repr(wanted[:1]))
        self.add(wanted)
        while self.is_running:
            self.step()

    def take(self) -> dict[Key, Transport]:
        """Take the connections that were opened since the last call."""
        taken, self._opened = self._opened, {}
        return taken

    def add(self, wanted: Iterable[Key]) -> None:
        """Add connections to open."""
        for key in wanted:
            pacer = self._pacers.setdefault(
                key[1], ConnectPacer(self._rng, is_endless=self._aim is Aim.LOST)
            )
            pacer.add([key])

    @property
    def is_running(self) -> bool:
        """Whether some connections must still be opened."""
        return bool(self._running or self._active())

    def step(self) -> None:
        """Start the due attempts, wait for a moment, and handle the attempts that have ended."""
        left_s = min(self._start_due() - time.monotonic(), _POLL_S)
        self._net.poll(timeout_ms=max(0.0, 1000.0 * left_s))
        self._settle()

    def _active(self) -> list[tuple[int, ConnectPacer]]:
        """Brokers with connections that must still be opened, and the pacers of these brokers."""
        if self.refused and self._aim is Aim.ALL:
            return []
        over = {broker for _, broker in self.refused}
        return [(b, pacer) for b, pacer in self._pacers.items() if pacer.left and b not in over]

    def _start_due(self) -> float:
        """Start the due attempts; return the time of the next attempt [s]."""
        now_s, next_s = time.monotonic(), math.inf
        for broker, pacer in self._active():
            running = {attempt.key[1] for attempt in self._running.values()}
            if now_s >= self._end_s and broker not in running:
                place = broker_words(broker, self._connector.brokers[broker])
                passed_s = now_s - self._began_s
                text = f"{place} opened no connection within {passed_s:.0f} s"
                self._give_up(broker, pacer, BrokerConnectError(text))
                continue
            for attempt in pacer.due(now_s, _AT_ONCE - len(self._running)):
                self._start(attempt, now_s)
            next_s = min(next_s, pacer.next_s())
        return next_s

    def _start(self, attempt: Attempt, now_s: float) -> None:
        deadline_s = min(now_s + self._connector.timeout_s, self._end_s)
        future = self._net.call_soon_with_future(self._open, *attempt.key, deadline_s)
        self._running[future] = attempt
        future.add_both(lambda _: self._ended.append(future))

    def _settle(self) -> None:
        ended, self._ended = self._ended, []
        now_s = time.monotonic()
        for future in ended:
            attempt = self._running.pop(future)
            pacer = self._pacers[attempt.key[1]]
            error = future.exception
            if error is None:
                self._opened[attempt.key] = future.value
                pacer.opened(attempt, now_s)
            elif not isinstance(error, RedlineError | OSError):
                raise error
            else:
                # A cycle: the traceback's frames refer to the future, which refers to the error.
                self._take_refusal(attempt, pacer, error.with_traceback(None), now_s)

    def _take_refusal(
        self, attempt: Attempt, pacer: ConnectPacer, error: Exception, now_s: float
    ) -> None:
        if self._aim is Aim.LOST:
            pacer.refused(attempt, now_s)  # not reported: the waiting batches show the effect
            return
        if not isinstance(error, RedlineError):
            raise error
        cause = error.__cause__
        waited = is_timeout(cause) and pacer.progress_s > attempt.began_s
        if waited or is_closed_early(cause):
            pacer.refused(attempt, now_s)
            if pacer.has_given_up:
                self._give_up(attempt.key[1], pacer, error)
        elif is_timeout(cause):
            pacer.refused(attempt, now_s)
            self._give_up(attempt.key[1], pacer, error)
        else:
            self.refused[attempt.key] = error

    def _give_up(self, broker: int, pacer: ConnectPacer, error: RedlineError) -> None:
        """Give up one broker: store a refusal with an explanation from all attempts so far."""
        if any(refused == broker for _, refused in self.refused):
            return
        address = self._connector.brokers[broker]
        resolved = self._resolved.get(address, Resolved())
        found = Refused(
            took=pacer.took,
            left=pacer.left,
            open_from_here=count_open_to({each[4][:2] for each in resolved.found}),
            passed_s=time.monotonic() - self._began_s,
        )
        text = found.explain(error.__cause__ or error)
        self.refused["", broker] = BrokerConnectError(
            f"{error}{found.hint}" if text is None else f"{broker_words(broker, address)} {text}"
        )

    async def _look_up(self, address: Address, deadline_s: float) -> Resolved:
        """The addresses of a host. All connections share one look-up until a connection fails."""
        asked = self._look_ups.get(address)
        if asked is None:
            asked = self._net.call_soon_with_future(look_up, self._net, address, deadline_s)
            self._look_ups[address] = asked
        found: Resolved = await asked
        self._resolved[address] = found
        return found

    async def _open(self, name: str, broker_id: int, deadline_s: float) -> Transport:
        """Open a connection before the time `deadline_s` [s of the monotonic clock]."""
        address = self._connector.brokers[broker_id]
        where = broker_words(broker_id, address)
        own = {**self._connector.options, "client_id": client_id_of(name, self._connector.options)}
        connection = KafkaConnection(self._net, node_id=broker_id, **own)
        with ExitStack() as ending, ExitStack() as closing:
            # The connection and its parts refer to each other. Loads run without Python's collector
            # of such cycles, and reopen lost connections, so the cycle is broken here.
            ending.callback(vars(connection).clear)
            try:
                resolved = await self._look_up(address, deadline_s)
                sock = await dial(self._net, resolved, self._socket_options, deadline_s)
                closing.callback(sock.close)
                kind: Callable[..., TcpLink | TlsLink] = TcpLink
                if self._tls is not None:
                    kind = functools.partial(TlsLink, ssl_context=self._tls)
                transport = kind(self._net, sock, host=address[0])
                closing.callback(transport.abort)
                if isinstance(transport._sock, ssl.SSLSocket):
                    await self._shake_hands(transport._sock, deadline_s)
                connection.connection_made(transport)
                await connection.initialize(timeout_at=deadline_s)
                await connection
                if self._aim is Aim.PROBES and not connection.sasl_enabled:
                    await _probe(connection)
            except Exception as error:
                self._look_ups.pop(address, None)
                text = f"{where}: {explain_refusal(error, self._connector.options)}"
                for each in (error, *error.args):  # kafka-python's errors wrap socket errors
                    if isinstance(each, BaseException):
                        each.__traceback__ = None  # its frames refer to the error: a cycle
                raise BrokerConnectError(text) from error
            try:
                versions = negotiated(
                    self._connector.apis, connection.broker_version_data.api_versions
                )
            except ConfigError as error:
                raise ConfigError(f"{where} {error}") from None
            closing.pop_all()
            retire_share = self._rng.uniform(*_RETIRE_SHARES)
            return _take_over(self._net, connection, transport, retire_share, versions)

    async def _shake_hands(self, sock: ssl.SSLSocket, deadline_s: float) -> None:
        """Do the TLS handshake as kafka-python does, but with a deadline for a silent broker."""
        while True:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(sock, timeout_at=deadline_s)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(sock, timeout_at=deadline_s)
            else:
                return
            if time.monotonic() >= deadline_s:
                raise kafka_errors.KafkaTimeoutError("the TLS handshake did not end in time")


async def _probe(connection: Any) -> None:
    """Send a request on a connection without a login.

    A listener that requires a login answers only ApiVersions, and closes the connection at the next
    request.
    """
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        await connection.send_request(request)
    except kafka_errors.KafkaConnectionError as error:
        raise LoginRequiredError from error


def _take_over(
    net: Any, connection: Any, transport: Any, retire_share: float, versions: Mapping[Api, int]
) -> Transport:
    """Detach the socket from kafka-python's event loop.

    A broker can limit how long a login is valid (KIP-368). The broker then closes the connection at
    the first request after `session_lifetime_ms`. `session_lifetime_ms` is 0 for a session without
    a limit.

    The function uses private fields. The exact version of kafka-python is pinned, and a test
    against a real broker fails if kafka-python's private fields change.
    """
    session = connection._reauth
    session.cancel()
    lifetime_s = session.session_lifetime_ms / 1000.0
    retire_s = session.authenticated_at + retire_share * lifetime_s if lifetime_s else math.inf
    transport.pause_reading()
    net.cancel(transport._read_task)
    sock = transport._sock
    transport._sock = None
    kind = TlsTransport if isinstance(sock, ssl.SSLSocket) else PlainTransport
    return kind(sock, retire_s, {api.key: version for api, version in versions.items()})
