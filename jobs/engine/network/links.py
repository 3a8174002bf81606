"""kafka-python's transports without a fault of theirs, and the TLS context of connections."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from jobs.engine.network.names import Resolved
from jobs.engine.network.refusals import NotReachedError, UnknownHostError
from metrics.common.errors import ConfigError


class _KeepsLastBytes:
    """A transport that keeps the bytes that arrive with the end of the stream.

    kafka-python drops them, and with them the reason why a login failed.
    """

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        data, error = super()._sock_recv()  # type: ignore[misc]
        return (data, None) if data else (data, error)


class TcpLink(_KeepsLastBytes, KafkaTCPTransport):  # type: ignore[misc]
    """kafka-python's TCP transport without that fault."""


class TlsLink(_KeepsLastBytes, KafkaSSLTransport):  # type: ignore[misc]
    """kafka-python's TLS transport without that fault."""


async def dial(
    net: Any, resolved: Resolved, options: Sequence[tuple[int, int, int]], deadline_s: float
) -> socket.socket:
    """Connect as kafka-python does, and close the socket when that fails, which it does not.

    Args:
        resolved: addresses of the host; the first one that takes the connection is used.
        options: arguments of `setsockopt`, set before the connection is made.
        deadline_s: time on the monotonic clock at which to give up [s].

    Raises:
        UnknownHostError: the host has no address.
        NotReachedError: no address of the host could be connected to.
    """
    if not resolved.found:
        raise UnknownHostError(resolved.why)
    dialler, failure = KafkaNetSocket(), NotReachedError("no address")
    for family, kind, protocol, _name, address in resolved.found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            for option in options:
                sock.setsockopt(*option)
            await dialler.sock_connect(net, sock, address, timeout_at=deadline_s)
        except (OSError, KafkaConnectionError) as error:
            failure = NotReachedError(str(error))
        except KafkaTimeoutError:
            failure = NotReachedError("no answer in time")
        else:
            return sock
        sock.close()
    raise failure


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The TLS context that all connections share; None when the protocol has no TLS.

    Raises:
        ConfigError: a file of the options holds no usable certificate or key.
    """
    if not str(options.get("security_protocol", "")).endswith("SSL"):
        return None
    config = {key: options.get(key, value) for key, value in _TLS_DEFAULTS.items()}
    try:
        context: ssl.SSLContext = KafkaSSLTransport._build_ssl_context(config)
    except (ssl.SSLError, OSError) as error:
        names = [str(config[key]) for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
                 if config[key]]  # fmt: skip
        raise ConfigError(
            f"the files of cluster security ({', '.join(names)}) cannot be used: "
            f"{getattr(error, 'reason', None) or error}; expected PEM files: certificates in "
            "security.cafile, and the key in security.keyfile that belongs to the certificate in "
            "security.certfile, with security.key_password_from when it is encrypted"
        ) from error
    return context


_TLS_DEFAULTS: Mapping[str, Any] = KafkaSSLTransport.DEFAULT_CONFIG
