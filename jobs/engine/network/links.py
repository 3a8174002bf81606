"""Host names, TCP connections and TLS contexts for connections to brokers.

One look-up of a host, within a deadline, serves all connections to the host. The system's resolver
can block without a limit, so each look-up runs on a thread of its own. At the deadline this thread
is abandoned. If a host has several addresses, a connection goes to the first address that answers.

The module also has kafka-python's transports, with one fault corrected.
"""

from __future__ import annotations

import itertools
import math
import os
import queue
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, cast

from kafka.errors import KafkaTimeoutError
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from jobs.engine.network.options import client_id_of
from jobs.engine.network.refusals import NoAnswerError, NotReachedError, UnknownHostError
from metrics.common.errors import ConfigError

Address = tuple[str, int]
"""(host, port), as a broker advertises them."""


@dataclass(frozen=True)
class Resolved:
    """Result of a look-up of a host.

    Attributes:
        found: addresses, as `socket.getaddrinfo` returns them; empty after a failure.
        why: reason of the failure; empty after a success.
    """

    found: tuple[Any, ...] = ()
    why: str = ""


_LOOK_S = 0.002
"""Interval between two checks for the resolver's answer [s]."""


async def look_up(net: Any, address: Address, deadline_s: float) -> Resolved:
    """Look up a host.

    Args:
        net: kafka-python's event loop.
        deadline_s: time on the monotonic clock at which to give up [s].
    """
    began_s = time.monotonic()
    answers: queue.SimpleQueue[Resolved] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(*address, socket.AF_UNSPEC, socket.SOCK_STREAM)
            answers.put(Resolved(tuple(found)))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label over 63 characters
            answers.put(Resolved(why=str(error)))

    threading.Thread(target=ask, name=f"redline-look-up-{address[0]}", daemon=True).start()
    while answers.empty():
        if time.monotonic() >= deadline_s:
            waited_s = time.monotonic() - began_s
            return Resolved(why=f"no answer from the name service within {waited_s:.1f} s")
        await net.sleep(_LOOK_S)
    return answers.get()


class _KeepsLastBytes:
    """A transport that keeps the last bytes, which arrive together with the end of the stream.

    The last bytes can contain the reason for a failed login, but kafka-python drops them.
    """

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        data, error = super()._sock_recv()  # type: ignore[misc]
        return (data, None) if data else (data, error)


class TcpLink(_KeepsLastBytes, KafkaTCPTransport):  # type: ignore[misc]
    """TCP transport of kafka-python that keeps the last bytes of the stream."""


class TlsLink(_KeepsLastBytes, KafkaSSLTransport):  # type: ignore[misc]
    """TLS transport of kafka-python that keeps the last bytes of the stream."""


ATTEMPT_DELAY_S = 0.25
"""Delay between the starts of two attempts to connect to a host (RFC 8305, section 8) [s]."""


async def dial(
    net: Any, resolved: Resolved, options: Sequence[tuple[int, int, int]], deadline_s: float
) -> socket.socket:
    """Connect to that address of a host which answers first, according to RFC 8305.

    The attempts start one after the other, with a delay of `ATTEMPT_DELAY_S`. If an attempt fails,
    the next attempt starts at once. Started attempts run in parallel until one of them connects.

    Args:
        net: kafka-python's event loop.
        resolved: addresses of the host.
        options: arguments of `setsockopt`, which are set before connecting.
        deadline_s: time on the monotonic clock at which to give up [s].

    Raises:
        UnknownHostError: the host has no address.
        NotReachedError: all addresses refuse connections. The text of the error names the addresses
            and the reasons.
        NoAnswerError: no address accepts a connection, and some did not answer by the deadline.
    """
    if not resolved.found:
        raise UnknownHostError(resolved.why)
    untried, next_s = alternate_families(resolved.found), -math.inf
    reasons: dict[str, list[str]] = {}
    with selectors.DefaultSelector() as attempts:
        try:
            while (untried or attempts.get_map()) and (now_s := time.monotonic()) < deadline_s:
                try:
                    if untried and now_s >= next_s:
                        found, next_s = untried.popleft(), now_s + ATTEMPT_DELAY_S
                        host = found[4][0]
                        attempts.register(_begin(found, options), selectors.EVENT_WRITE, host)
                    else:
                        until_s = min(next_s, deadline_s) if untried else deadline_s
                        await net.wait_read(attempts, timeout_at=until_s)
                        for key, _ in attempts.select(0)[:1]:
                            attempts.unregister(key.fileobj)
                            host = key.data
                            return _connected(cast("socket.socket", key.fileobj))
                except KafkaTimeoutError:
                    continue
                except OSError as error:
                    reasons.setdefault(error.strerror or str(error), []).append(host)
                    next_s = now_s
            silent = [key.data for key in attempts.get_map().values()]
            silent += [found[4][0] for found in untried]
        finally:
            for key in attempts.get_map().values():
                cast("socket.socket", key.fileobj).close()
    kind = NoAnswerError if silent else NotReachedError
    if silent:
        reasons["no answer in time"] = silent
    texts = (f"{reason} at {', '.join(hosts)}" for reason, hosts in reasons.items())
    raise kind(shorten("; ".join(texts), 200, placeholder=" ..."))


def alternate_families(found: Iterable[Any]) -> deque[Any]:
    """The addresses of `socket.getaddrinfo`, with the address families alternating."""
    families: dict[int, list[Any]] = {}
    for each in found:
        families.setdefault(each[0], []).append(each)
    turns = itertools.zip_longest(*families.values())
    return deque(each for turn in turns for each in turn if each is not None)


def _begin(found: Any, options: Iterable[tuple[int, int, int]]) -> socket.socket:
    """A socket that has begun to connect to an address of `socket.getaddrinfo`.

    Raises:
        OSError: the system does not support the address family, or has no route to the address.
    """
    sock = socket.socket(*found[:3])
    try:
        sock.setblocking(False)
        for option in options:
            sock.setsockopt(*option)
        with suppress(BlockingIOError):
            sock.connect(found[4])
    except OSError:
        sock.close()
        raise
    return sock


def _connected(sock: socket.socket) -> socket.socket:
    """Return the socket if its attempt to connect has succeeded.

    Raises:
        OSError: the attempt failed.
    """
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        sock.close()
        raise OSError(number, os.strerror(number))
    return sock


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The TLS context that all connections share; None if the protocol does not use TLS.

    Raises:
        ConfigError: a file of the options has no usable certificate or key.
    """
    if not str(options.get("security_protocol", "")).endswith("SSL"):
        return None
    config = {key: options.get(key, value) for key, value in _TLS_DEFAULTS.items()}
    files = [str(config[key]) for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
             if config[key]]  # fmt: skip
    if any(options.get(name) for name in PEM_OPTIONS):
        files.append("certificates and keys in the PEM and store options of security")
    try:
        return _context(config, options)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"the files of cluster security ({', '.join(files)}) cannot be used: "
            f"{getattr(error, 'reason', None) or error}; expected PEM files: authorities in "
            "security.cafile, a certificate in security.certfile, and its key in security.keyfile; "
            "correct the files, or add security.key_password_from if the key is encrypted"
        ) from error


def _context(config: Mapping[str, Any], options: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS context that kafka-python would build, except that PEM texts can replace files."""
    authorities, certificate, key = (options.get(name) for name in PEM_OPTIONS)
    if not (authorities or certificate):
        context: ssl.SSLContext = KafkaSSLTransport._build_ssl_context(config)
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config["ssl_check_hostname"]
    if authorities:
        context.load_verify_locations(cadata=authorities)
        # Java trusts each certificate of a trust store, even if another one has signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    elif config["ssl_cafile"]:
        context.load_verify_locations(config["ssl_cafile"])
    else:
        context.load_default_certs()
    if certificate:
        _load_from_memory(context, f"{certificate}{key or ''}", config["ssl_password"])
    elif config["ssl_certfile"]:
        context.load_cert_chain(
            config["ssl_certfile"], config["ssl_keyfile"], config["ssl_password"]
        )
    return context


def _load_from_memory(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Load a certificate and its key through a file in memory, because Python loads only files. The
    file in memory has no name on any disk, and is deleted when it is closed.
    """
    if not hasattr(os, "memfd_create"):
        raise ValueError("this system has no memory files (memfd_create), so stores need Linux")
    with os.fdopen(os.memfd_create("redline", os.MFD_CLOEXEC), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(pem)
        file.flush()
        # Without a password, OpenSSL would ask for the password of an encrypted key on the
        # terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=password or "")


def library_options(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Connection options for kafka-python, with a TLS context instead of PEM texts.

    Args:
        name: name of the connection; see `client_id_of`.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    own = {"client_id": client_id_of(name, options)}
    if not any(options.get(each) for each in PEM_OPTIONS):
        return {**options, **own}
    files = (*PEM_OPTIONS, "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
    kept = {each: value for each, value in options.items() if each not in files}
    return {**kept, **own, "ssl_context": tls_context(options)}


PEM_OPTIONS = ("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem")
"""Options of `Security.client_kwargs` that kafka-python does not support."""

_TLS_DEFAULTS: Mapping[str, Any] = KafkaSSLTransport.DEFAULT_CONFIG
