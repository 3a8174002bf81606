"""What the sections of all metrics sources share: addresses, logins, TLS, and how one is opened.

Exporters that a run scrapes itself, or reads from a Prometheus server that scrapes them.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, model_validator
from typing_extensions import Self

from jobs.config.base import ConfigModel, HostPort
from jobs.config.security import SecretReference, read_secret
from metrics.common.bounds import Text, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.client_only import Replicas
from metrics.sources.hosts.source import HostSource
from metrics.sources.http_access import HttpAccess, basic, bearer
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import FeedSpec
from metrics.sources.source import MetricsSource, named_brokers

Addressed = TypeVar("Addressed", bound="AddressedSection")
Secured = TypeVar("Secured", bound="SecuredSection")
Http = TypeVar("Http", bound="HttpSection")

_HTTPS = (
    "let the exporters speak HTTPS (httpServer.ssl of the JMX exporter, tls_server_config of "
    "node_exporter)"
)


@dataclass(frozen=True)
class StartedJmx:
    """JMX of brokers that the run started.

    Attributes:
        addresses: node id → host:port, of the brokers and the controller.
        access: its password and certificates; None when it is open.
    """

    addresses: Mapping[int, str]
    access: JmxAccess | None

    def without(self, nodes: Set[int]) -> StartedJmx:
        """JMX of the other nodes."""
        rest = {node: each for node, each in self.addresses.items() if node not in nodes}
        return replace(self, addresses=rest)


@dataclass(frozen=True)
class SourceTarget:
    """An open cluster, as a section needs it to open its source.

    Attributes:
        hosts: broker id → advertised host.
        version: Kafka's release as far as the protocol shows it, such as `4.1`.
        open_replicas: opens a connection of its own to the Admin API; returns a function that
            queries the replicas of each broker, and one that closes the connection.
        local_hosts: opens the host source for brokers that run on this machine.
        started_jmx: JMX of brokers that the run started; None for brokers that run already.
        jvm: the driver's JVM (`spark._jvm`), or None where there is none.
    """

    hosts: Mapping[int, str]
    version: str
    open_replicas: Callable[[], tuple[Callable[[], Mapping[int, Replicas]], Callable[[], None]]]
    local_hosts: Callable[[], HostSource]
    started_jmx: StartedJmx | None = None
    jvm: Any | None = None


class SourceSection(ConfigModel):
    """The configuration of one kind of metrics source: its keys, its secrets, and its opening.

    A kind is a subclass of `BrokerSection` or `HostSection`, in a file of its own, and an entry of
    `jobs.config.metrics_registry`.

    Attributes:
        key: path of the section in a cluster's file; empty for a kind that needs no configuration.
        meaning: what the key configures, for the schema of the file.
        example: the key with a value, for messages.
        remedy: how to configure the kind, for messages; a verb phrase.
        tls_remedy: how to enable TLS on the side of the cluster, for messages; a verb phrase.
        suits_testbed: whether the file of a testbed, which brings its own JMX, may configure it.
    """

    key: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    example: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    tls_remedy: ClassVar[str] = ""
    suits_testbed: ClassVar[bool] = False

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        """The type and the default of the key's value."""
        return cls | None, None

    @classmethod
    def configured(cls, value: Any) -> Self | None:
        """The section of a cluster whose key has this value; None where it is not configured."""
        return value if isinstance(value, cls) else None

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """Check what can be checked without a connection.

        Args:
            hosts: broker id → advertised host.

        Raises:
            ConfigError: a broker has no address, or a secret is missing.
        """

    def unencrypted_secret(self) -> str | None:
        """The kind of secret, such as `password`, that the source sends without TLS, if any."""
        return None

    def tls_hint(self) -> tuple[str, str]:
        """What enables TLS in the cluster's file, and on the other side, for messages."""
        return f"{self.key}.tls: true", self.tls_remedy

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """The hosts to which the source connects.

        Args:
            advertised: the brokers' advertised hosts.
        """
        return list(advertised)


class BrokerSection(SourceSection):
    """The configuration of a source of the brokers' metrics."""

    @abstractmethod
    def open(self, target: SourceTarget) -> MetricsSource:
        """Open the source.

        Raises:
            ConfigError: a node cannot be reached or judged, or a secret or file is missing.
        """


class HostSection(SourceSection):
    """The configuration of a source of the hosts' metrics."""

    @abstractmethod
    def open(self, target: SourceTarget) -> HostSource:
        """Open the source.

        Raises:
            ConfigError: a host cannot be reached, or a secret or file is missing.
        """


def _as_endpoints(value: Any) -> Any:
    """Broker ids as numbers: `--set` passes them as text."""
    if not isinstance(value, Mapping) or not value:
        raise UnexpectedError("a map of broker ids to addresses, such as {1: broker-1:9999}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: address
        for key, address in value.items()
    }


class AddressedSection(SourceSection):
    """A source with an address for each broker: one port for all, or an endpoint for each.

    Attributes:
        port: the same port on each broker's advertised host.
        endpoints: broker id → host:port.
    """

    port: Annotated[int, Whole(1, 65_535)] | None = None
    endpoints: (
        Annotated[
            Mapping[Annotated[int, Whole(0, 2**31 - 1)], HostPort], BeforeValidator(_as_endpoints)
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _require_port_or_endpoints(self: Addressed) -> Addressed:
        if (self.port is None) == (self.endpoints is None):
            raise ValueError(
                "expected exactly one of port (the same on every broker) and endpoints "
                "(an address for each broker id); set one and leave the other out"
            )
        return self

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """Broker id → host:port of its metrics.

        Args:
            hosts: broker id → advertised host, of all brokers.

        Raises:
            ConfigError: a broker has no endpoint, or several brokers have the same address where
                each needs its own.
        """
        if self.endpoints is None:
            return self._distinct(
                {
                    broker: f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
                    for broker, host in hosts.items()
                }
            )
        missing = sorted(set(hosts) - set(self.endpoints))
        if missing:
            raise ConfigError(
                f"cluster {self.key}.endpoints has no address for broker {missing[0]}; the "
                f"cluster's brokers are {', '.join(map(str, sorted(hosts)))}; add one for each"
            )
        own = {broker: self.endpoints[broker] for broker in hosts}
        return self._distinct(own) if isinstance(self, BrokerSection) else own

    def _distinct(self, addresses: dict[int, str]) -> dict[int, str]:
        """Return the addresses, one for each broker.

        Raises:
            ConfigError: several brokers have the same one.
        """
        brokers: dict[str, list[int]] = {}
        for broker, address in sorted(addresses.items()):
            brokers.setdefault(address, []).append(broker)
        for address, ids in brokers.items():
            if len(ids) == 1:
                continue
            given = f"{self.key}.endpoints names {address} for"
            if self.endpoints is None:
                given = f"{self.key}.port {self.port} leads to {address} for the advertised host of"
            is_host = isinstance(self, HostSection)
            raise ConfigError(
                f"cluster {given} {named_brokers(ids)}, where one process answers; expected the "
                f"address of each; list them in {self.key}.endpoints"
                f"{', the same one for brokers on the same machine' if is_host else ''}"
            )
        return addresses

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        self.addresses(hosts)

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`."""
        if self.endpoints is None:
            return list(advertised)
        return [each.rpartition(":")[0].strip("[]") for each in self.endpoints.values()]


class SecuredSection(AddressedSection):
    """A source that may require a password or speak TLS.

    Attributes:
        username_from, password_from: where its user and password are.
        tls: whether it speaks TLS.
        cafile: PEM file of the certificates to trust, in place of the default authorities.
        check_hostname: whether a broker's certificate must name its host.
    """

    tls_keys: ClassVar[tuple[str, ...]] = ("cafile",)

    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _require_complete_login(self: Secured) -> Secured:
        if (self.username_from is None) != (self.password_from is None):
            raise ValueError("username_from and password_from belong together; add the other one")
        for key in self.tls_keys:
            if getattr(self, key) is not None and not self.tls:
                raise ValueError(f"{key} has no effect without tls; add tls: true or remove {key}")
        return self

    def unencrypted_secret(self) -> str | None:
        """See `SourceSection.unencrypted_secret`."""
        return "password" if self.password_from is not None and not self.tls else None

    def user_and_password(self) -> tuple[str, str] | None:
        """The user and the password, secrets resolved; None where there is none.

        Raises:
            ConfigError: a secret is missing.
        """
        if self.username_from is None or self.password_from is None:
            return None
        return (
            read_secret(self.username_from, f"{self.key}.username_from"),
            read_secret(self.password_from, f"{self.key}.password_from"),
        )


class HttpSection(SecuredSection):
    """A source that is read over HTTP.

    Attributes:
        token_from: where a bearer token is; read anew for every scrape.
        certfile, keyfile: PEM files of the client's own certificate and key, for mutual TLS.
    """

    tls_keys: ClassVar[tuple[str, ...]] = ("cafile", "certfile", "keyfile")
    tls_remedy: ClassVar[str] = _HTTPS

    token_from: SecretReference | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @model_validator(mode="after")
    def _require_one_login(self: Http) -> Http:
        if self.token_from is not None and self.password_from is not None:
            raise ValueError(
                "expected one of token_from and username_from with password_from; set one and "
                "leave the other out"
            )
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile belong together; add the other one")
        return self

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        self.access()

    def unencrypted_secret(self) -> str | None:
        """See `SourceSection.unencrypted_secret`."""
        if self.token_from is not None and not self.tls:
            return "token"
        return super().unencrypted_secret()

    def access(self) -> HttpAccess:
        """The login and the certificates for HTTP.

        Raises:
            ConfigError: a secret is missing, or cannot be sent.
        """
        has_login = self.token_from is not None or self.password_from is not None
        if has_login:
            self._login()  # reports a missing secret before any connection
        return HttpAccess(
            self.key,
            self.tls,
            self.cafile,
            self.certfile,
            self.keyfile,
            self.check_hostname,
            self._login if has_login else None,
        )

    def _login(self) -> str:
        if self.token_from is not None:
            return bearer(read_secret(self.token_from, f"{self.key}.token_from"), self.key)
        return basic(*(self.user_and_password() or ("", "")), self.key)


Served = TypeVar("Served", bound="ServedSection")

_MATCHER = r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*'
_URL = Text(
    r"https?://[^\s/?#@]+(?:/[^\s?#]*)?",
    "the URL of a Prometheus server, such as https://prometheus.example.com",
)
_SELECTOR = Text(rf"\{{?{_MATCHER}(?:,{_MATCHER})*,?\s*\}}?", 'matchers such as job="kafka"')
_LABEL = Text(r"[a-zA-Z_]\w*", "the name of a label, such as instance or pod")
_PATTERN = Text(r".*\(.*\).*", r"a regular expression with one group, such as -(\d+)$")
_OF_SERVER = ("selector", "broker_label", "broker_pattern", "broker_values")


def _as_values(value: Any) -> Any:
    """Broker ids as numbers: `--set` passes them as text."""
    if not isinstance(value, Mapping) or not value:
        raise UnexpectedError("a map of broker ids to values of the label, such as {1: kafka-1}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: each
        for key, each in value.items()
    }


class ServedSection(HttpSection):
    """Exporters with an address each, or a Prometheus server that scrapes them.

    Attributes:
        server: base URL of the server.
        selector: matchers that select the exporters of this cluster, and no others.
        broker_label: label whose value tells brokers apart.
        broker_pattern: regular expression whose group is the broker id in that value.
        broker_values: broker id → that value.
    """

    what: ClassVar[str] = "the brokers"
    shares_values: ClassVar[bool] = False

    server: Annotated[str, _URL] | None = None
    selector: Annotated[str, _SELECTOR] | None = None
    broker_label: Annotated[str, _LABEL] = "instance"
    broker_pattern: Annotated[str, _PATTERN] | None = None
    broker_values: (
        Annotated[Mapping[Annotated[int, Whole(0, 2**31 - 1)], str], BeforeValidator(_as_values)]
        | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _take_tls_of_url(cls, value: Any) -> Any:
        """The section with `tls` as the URL of the server says."""
        if not isinstance(value, Mapping) or not isinstance(value.get("server"), str):
            return value
        is_https = value["server"].startswith("https://")
        if value.get("tls") is True and not is_https:
            raise ValueError(
                f"tls is true and server {value['server']}; expected https://; correct the URL or "
                "remove tls"
            )
        if value.get("tls") is False and is_https:
            raise ValueError(
                f"tls is false and server {value['server']}; expected http:// or no tls; correct "
                "the URL or remove tls"
            )
        return {**value, "tls": True} if is_https else value

    @model_validator(mode="after")
    def _require_port_or_endpoints(self: Served) -> Served:
        given = [key for key in ("port", "endpoints", "server") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                "expected exactly one of port (the same on every broker), endpoints (an address "
                "for each broker id) and server (a Prometheus server); set one and leave the "
                "others out"
            )
        return self

    @model_validator(mode="after")
    def _require_server_of_its_keys(self: Served) -> Served:
        given = [key for key in _OF_SERVER if key in self.model_fields_set]
        if self.server is None and given:
            raise ValueError(f"{given[0]} has no effect without server; add server or remove it")
        if self.server is not None and self.selector is None:
            raise ValueError(
                'server requires selector; add the matchers of this cluster, such as job="kafka"'
            )
        if self.broker_pattern is not None and self.broker_values is not None:
            raise ValueError(
                "expected one of broker_pattern and broker_values; set one and leave the other out"
            )
        if self.broker_pattern is not None and _groups(self.broker_pattern) != 1:
            raise ValueError(
                f"broker_pattern is {self.broker_pattern!r}; expected {_PATTERN.expected()}; "
                "correct it"
            )
        return self

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """See `AddressedSection.addresses`; no addresses with a server."""
        return {} if self.server is not None else super().addresses(hosts)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        missing = sorted(set(hosts) - set(self.broker_values or hosts))
        if missing:
            raise ConfigError(
                f"cluster {self.key}.broker_values has no value for broker {missing[0]}; the "
                f"cluster's brokers are {', '.join(map(str, sorted(hosts)))}; add one for each"
            )

    def tls_hint(self) -> tuple[str, str]:
        """See `SourceSection.tls_hint`."""
        if self.server is None:
            return super().tls_hint()
        return f"https:// in {self.key}.server", "let the server, or a proxy before it, speak HTTPS"

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`."""
        if self.server is None:
            return super().contacted_hosts(advertised)
        return [urlsplit(self.server).hostname or ""]

    def served(
        self, hosts: Mapping[int, str], deadline_s: float
    ) -> tuple[ServerApi, FeedSpec] | None:
        """The server and what to read there; None where exporters are scraped.

        Args:
            hosts: broker id → advertised host.
            deadline_s: longest silence of the server [s].

        Raises:
            ConfigError: a secret or a file is missing.
        """
        if self.server is None or self.selector is None:
            return None
        label = BrokerLabel(
            self.key,
            self.broker_label,
            self.broker_pattern,
            self.broker_values,
            is_shared=self.shares_values,
        )
        selector = self.selector.strip().removeprefix("{").removesuffix("}").strip().strip(",")
        api = ServerApi(self.server, self.access(), deadline_s)
        return api, FeedSpec(selector, label, hosts, self.what)


def _groups(pattern: str) -> int:
    """The number of groups of a regular expression; 0 for a malformed one."""
    try:
        return re.compile(pattern).groups
    except re.error:
        return 0
