"""Finding out within seconds whether a cluster can be reached, and if not, why."""

from __future__ import annotations

import contextlib
import logging
import re
import selectors
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from jobs.brokers.admin import AdminError, KafkaAdmin
from search.errors import ConfigError

PROBE_SHARE = 0.3
"""Share of the time limit that the look at the bare addresses may take."""

RECONNECT_BACKOFF_MAX_MS = 1_000
"""A broker that comes back is noticed within about this time [ms]."""

CLIENT_ID = "kafka-redline-admin"


def connect(
    bootstrap_servers: Sequence[str],
    client_kwargs: Mapping[str, Any] | None = None,
    timeout_s: float = 10.0,
    request_timeout_s: float = 30.0,
) -> KafkaAdmin:
    """Connect to a cluster's administration and check that every broker can be reached.

    Args:
        bootstrap_servers: host:port each; one that answers is enough.
        client_kwargs: connection options of kafka-python, as of `Security.client_kwargs`.
        timeout_s: for finding the cluster [s].
        request_timeout_s: for each later request [s].

    Raises:
        ConfigError: when no address answers, none is a Kafka broker with these options, the
            credentials are refused, or a broker advertises an address that does not answer.
    """
    _keep_kafka_python_quiet()
    troubles = probe(bootstrap_servers, timeout_s * PROBE_SHARE)
    answering = [server for server in bootstrap_servers if server not in troubles]
    if not answering:
        told = "; ".join(f"{server} {trouble}" for server, trouble in troubles.items())
        raise ConfigError(
            f"no broker of cluster bootstrap_servers can be reached: {told}; expected a Kafka "
            "broker there; start it, or correct the addresses"
        )
    options = dict(client_kwargs or {})
    client = _bootstrap(answering, options, timeout_s, request_timeout_s)
    admin = KafkaAdmin(client, request_timeout_s)
    try:
        _require_reachable_brokers(admin, timeout_s * PROBE_SHARE)
    except BaseException:
        admin.close()
        raise
    return admin


def probe(addresses: Sequence[str], timeout_s: float) -> dict[str, str]:
    """The addresses, host:port each, that take no TCP connection within `timeout_s`, and why."""
    with ThreadPoolExecutor(max_workers=min(32, max(1, len(addresses)))) as pool:
        troubles = pool.map(lambda address: _trouble(address, timeout_s), addresses)
    return {
        address: trouble
        for address, trouble in zip(addresses, troubles, strict=True)
        if trouble is not None
    }


def _trouble(address: str, timeout_s: float) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except socket.gaierror:
        return "has a host name that does not resolve"
    except TimeoutError:
        return f"does not answer within {timeout_s:.3g} s"
    except OSError as error:
        return f"takes no connection ({(error.strerror or str(error)).lower()})"
    return None


def _bootstrap(
    servers: list[str], options: dict[str, Any], timeout_s: float, request_timeout_s: float
) -> KafkaAdminClient:
    """kafka-python's client; of a failed one, nothing is left running."""
    made: list[KafkaNetClient] = []

    def remember(**config: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**config))
        return made[-1]

    trouble = _LastWarning()
    trouble.listen()
    handshakes = _HandshakeLimit(timeout_s)
    handshakes.start()
    try:
        return KafkaAdminClient(
            bootstrap_servers=servers,
            client_id=CLIENT_ID,
            bootstrap_timeout_ms=int(timeout_s * (1 - PROBE_SHARE) * 1000),
            request_timeout_ms=int(request_timeout_s * 1000),
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
            kafka_client=remember,
            selector=lambda: handshakes.selector,
            **options,
        )
    except kafka_errors.KafkaError as error:
        for client in made:
            client.close()
            client._manager._net.stop()
        raise _refused(servers, options, trouble.text) from error
    finally:
        handshakes.end()
        trouble.stop()


def _refused(servers: list[str], options: Mapping[str, Any], seen: str) -> ConfigError:
    """Why there is something at the addresses and yet no cluster for us.

    A refused password looks like any closed connection: kafka-python does not tell it apart.
    """
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    what, check = "a broker's listener", "the port and cluster security.protocol"
    if protocol.startswith("SASL_"):
        what += f" and a user who may log in by {options.get('sasl_mechanism')}"
        check += ", sasl_mechanism, username_from and password_from"
    if protocol.endswith("SSL"):
        what += " with a certificate that we trust"
        check += ", and the files of cluster security"
    return ConfigError(
        f"{', '.join(servers)} takes connections, but no Kafka broker that speaks {protocol} "
        f"lets us in{f' ({seen})' if seen else ''}; expected {what}; check {check}"
    )


def _require_reachable_brokers(admin: KafkaAdmin, timeout_s: float) -> None:
    """Clients use the advertised addresses, whatever the bootstrap addresses were."""
    try:
        brokers = admin.describe_cluster().brokers
    except AdminError as error:
        raise ConfigError(str(error)) from error
    advertised = {f"{each.host}:{each.port}": each.id for each in brokers}
    for address, trouble in probe(list(advertised), timeout_s).items():
        raise ConfigError(
            f"broker {advertised[address]} advertises {address}, which {trouble}; expected an "
            "address that this machine can reach; correct advertised.listeners of the broker, or "
            "name resolution here"
        )


class _HandshakeLimit(threading.Thread):
    """Ends TLS handshakes that last; kafka-python waits for their answer without a limit.

    Attributes:
        selector: for the client to wait with; it tells which sockets the client waits for.
    """

    def __init__(self, after_s: float) -> None:
        super().__init__(name="redline-handshake-limit", daemon=True)
        self.selector = selectors.DefaultSelector()
        self._after_s = after_s
        self._ended = threading.Event()
        self._cut: set[ssl.SSLSocket] = set()

    def run(self) -> None:
        """Wait, then shut sockets down as long as there are any."""
        wait_s = self._after_s
        while not self._ended.wait(wait_s):
            wait_s = 0.2
            # The client's thread uses the map and the sockets; what fails is tried again.
            with contextlib.suppress(OSError, RuntimeError):
                for key in list((self.selector.get_map() or {}).values()):
                    if isinstance(key.fileobj, ssl.SSLSocket):
                        self._cut.add(key.fileobj)
                        socket.socket.shutdown(key.fileobj, socket.SHUT_RDWR)

    def end(self) -> None:
        """Cut no more, and close what was cut, which the client forgets to."""
        self._ended.set()
        self.join()
        for each in self._cut:
            each.close()


class _LastWarning(logging.Handler):
    """Keeps the reason that kafka-python logs, and does not raise, when a bootstrap fails."""

    _reason = re.compile(r"Bootstrap (?:connection|attempt) to \S+ failed: (.+) \(backoff .*\)")
    _logger = logging.getLogger("kafka.net.manager")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason, if the line has one."""
        found = self._reason.fullmatch(record.getMessage())
        if found:
            self.text = found.group(1)[:200]

    def listen(self) -> None:
        """Begin to take lines."""
        self._logger.addHandler(self)

    def stop(self) -> None:
        """Take no more lines."""
        self._logger.removeHandler(self)


def _keep_kafka_python_quiet() -> None:
    """Without a handler of its own, Python prints a library's warnings on stderr."""
    logger = logging.getLogger("kafka")
    if not any(isinstance(each, logging.NullHandler) for each in logger.handlers):
        logger.addHandler(logging.NullHandler())
