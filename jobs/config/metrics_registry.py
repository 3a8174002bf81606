"""The sections of a cluster's file that configure metrics sources; each section opens its source.

Each type of source is a subclass of `BrokerSection` or `HostSection`, and a key of `Metrics`. The
brokers' metrics come from JMX, from Prometheus exporters, from a Prometheus server that scrapes
exporters, or from an installed package. Without metrics (`client_only`), the Admin API reports the
replicas, and the clients' measurements judge the trials. The hosts' metrics come from
node_exporter, from a Prometheus server, or from /proc of this machine.

The module also reads the rule sets of conf/prometheus, which map an exporter's series to readings.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from jobs.config.base import ConfigModel, HostPort
from jobs.config.files import read_conf
from jobs.config.problems import may_be_secret
from jobs.config.security import REFERENCE, SecretReference, as_reference, is_reference, read_secret
from jobs.config.yaml_file import parse_map
from jobs.engine.network.options import join_address
from metrics.common.bounds import Text, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.common.extensions import SOURCES, ExtensibleName, load_extension
from metrics.sources.client_only import ClientOnlySource, Replicas
from metrics.sources.extension import SourceRequest, extension_source
from metrics.sources.hosts.host_sample import HostSource
from metrics.sources.hosts.node_exporter import NodeExporters, ServedHosts
from metrics.sources.http_access import HttpAccess, basic, bearer
from metrics.sources.jmx import JmxAccess, open_jmx
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.series_choice import AUTO
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import FeedSpec, ServerFeed
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.source import Endpoint, MetricsSource, named_brokers


@dataclass(frozen=True)
class StartedJmx:
    """JMX of brokers that the run started.

    Attributes:
        addresses: node id → host:port of JMX, for the brokers and the controller.
        access: password and certificates of JMX; None if JMX has no authentication.
    """

    addresses: Mapping[int, str]
    access: JmxAccess | None

    def without(self, nodes: Set[int]) -> StartedJmx:
        """A copy without the JMX addresses of `nodes`."""
        rest = {node: each for node, each in self.addresses.items() if node not in nodes}
        return replace(self, addresses=rest)


@dataclass(frozen=True)
class SourceTarget:
    """Facts about an open cluster. A section needs these facts to open its source.

    Attributes:
        hosts: broker id → advertised host.
        version: Kafka's release according to the protocol, without the patch release, such as
            `4.1`.
        open_replicas: function that opens a new connection to the Admin API. It returns two
            functions: one queries the replicas of each broker, and the other closes the connection.
        local_hosts: function that opens the host source for brokers that run on this machine.
        started_jmx: JMX of brokers that the run started; None for running brokers.
        jvm: the driver's JVM (`spark._jvm`); None without Spark.
    """

    hosts: Mapping[int, str]
    version: str
    open_replicas: Callable[[], tuple[Callable[[], Mapping[int, Replicas]], Callable[[], None]]]
    local_hosts: Callable[[], HostSource]
    started_jmx: StartedJmx | None = None
    jvm: Any | None = None


class SourceSection(ConfigModel):
    """The configuration of one type of metrics source; it also opens the source.

    Attributes:
        key: path of the section in a cluster's file; empty for a type without configuration.
        tls_remedy: how to enable TLS in the cluster, as a verb phrase for messages.
        suits_testbed: whether a cluster's file with the key `testbed` may configure this source.
    """

    key: ClassVar[str] = ""
    tls_remedy: ClassVar[str] = ""
    suits_testbed: ClassVar[bool] = False

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """Check the section; open no connection.

        Args:
            hosts: broker id → advertised host.

        Raises:
            ConfigError: a broker has no address, or a secret is missing.
        """

    def unencrypted_secret(self) -> str | None:
        """The type of a secret that the source sends without TLS, such as `password`; None if it
        sends no secret.
        """
        return None

    def tls_hint(self) -> tuple[str, str]:
        """Two texts for messages: the TLS setting in a cluster's file, and `tls_remedy`."""
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
            ConfigError: a node cannot be reached or lacks metrics, or a secret or file is missing.
        """


class HostSection(SourceSection):
    """The configuration of a source of the hosts' metrics."""

    @abstractmethod
    def open(self, target: SourceTarget) -> HostSource:
        """Open the source.

        Raises:
            ConfigError: a host cannot be reached, or a secret or file is missing.
        """


BrokerId = Annotated[int, Whole(0, 2**31 - 1)]


def _by_broker(value: Any, values: str) -> Any:
    """A map with broker ids as numbers; the option `--set` passes the ids as text."""
    if not isinstance(value, Mapping) or not value:
        raise UnexpectedError(f"a map of broker ids to {values}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: each
        for key, each in value.items()
    }


_ENDPOINTS = BeforeValidator(partial(_by_broker, values="addresses, such as {1: broker-1:9999}"))
_VALUES = BeforeValidator(partial(_by_broker, values="values of the label, such as {1: kafka-1}"))


class AddressedSection(SourceSection):
    """A source with an address for each broker: one port for all brokers, or one endpoint for each.

    Attributes:
        port: the port of the metrics on each broker's advertised host. Exactly one of `port`,
            `endpoints` and, for Prometheus, `server` is required.
        endpoints: broker id → host:port of the broker's metrics. Needed instead of `port` if the
            brokers' ports differ, or if the metrics are on other hosts than the advertised hosts.
    """

    port: Annotated[int, Whole(1, 65_535)] | None = None
    endpoints: Annotated[Mapping[BrokerId, HostPort], _ENDPOINTS] | None = None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        self._require_one_address()

    def _require_one_address(self) -> None:
        if (self.port is None) == (self.endpoints is None):
            raise ValueError(
                "expected exactly one of port (the same on every broker) and endpoints "
                "(an address for each broker id); set one, and remove the other"
            )

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """Broker id → host:port of the broker's metrics.

        Args:
            hosts: broker id → advertised host; contains all brokers.

        Raises:
            ConfigError: a broker has no endpoint, or several brokers share an address that must
                differ.
        """
        if self.endpoints is None:
            given = {broker: join_address(hosts[broker], self.port or 0) for broker in hosts}
        else:
            given = {broker: self.endpoints[broker] for broker in hosts if broker in self.endpoints}
            if missing := sorted(set(hosts) - set(given)):
                raise ConfigError(
                    f"cluster {self.key}.endpoints has no address for broker {missing[0]}; "
                    "expected an address for each of the brokers "
                    f"{', '.join(map(str, sorted(hosts)))}; add the missing addresses"
                )
        is_host = isinstance(self, HostSection)
        for address in given.values():
            ids = sorted(broker for broker, each in given.items() if each == address)
            if len(ids) == 1 or (is_host and self.endpoints is not None):
                continue
            what = f"{self.key}.endpoints names {address} for"
            if self.endpoints is None:
                what = f"{self.key}.port {self.port} leads to {address} for the advertised host of"
            raise ConfigError(
                f"cluster {what} {named_brokers(ids)}, so that one process answers for all of "
                f"them; expected an address for each broker; list the addresses in "
                f"{self.key}.endpoints"
                f"{', with one address for brokers on one machine' if is_host else ''}"
            )
        return given

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
        username_from: reference to the user name, if a password is required.
        password_from: reference to the password.
        tls: whether connections use TLS.
        cafile: PEM file of trusted certificates; the system's authorities if not given.
        check_hostname: whether a server's certificate must name the server's host.
    """

    tls_keys: ClassVar[tuple[str, ...]] = ("cafile",)

    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        super().require_consistent()
        self._require_pair("username_from", "password_from")
        for key in self.tls_keys:
            if getattr(self, key) is not None and not self.tls:
                raise ValueError(f"{key} has no effect without tls; add tls: true, or remove {key}")

    def unencrypted_secret(self) -> str | None:
        """See `SourceSection.unencrypted_secret`."""
        return "password" if self.password_from is not None and not self.tls else None

    def user_and_password(self) -> tuple[str, str] | None:
        """The user and the password, read from their references; None if no password is configured.

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
        token_from: reference to a bearer token, instead of user name and password; the token is
            read again for every scrape.
        certfile: PEM file of the client's certificate, for mutual TLS.
        keyfile: PEM file of the certificate's private key, without a password.
    """

    tls_keys: ClassVar[tuple[str, ...]] = ("cafile", "certfile", "keyfile")
    tls_remedy: ClassVar[str] = (
        "enable HTTPS in the exporters (httpServer.ssl of the JMX exporter, tls_server_config of "
        "node_exporter)"
    )

    token_from: SecretReference | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        super().require_consistent()
        if self.token_from is not None and self.password_from is not None:
            raise ValueError(
                "expected either token_from, or username_from with password_from; remove the keys "
                "of one login"
            )
        self._require_pair("certfile", "keyfile")

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
            ConfigError: a secret is missing, or has characters that HTTP forbids.
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


_MATCHER = r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*'
_URL = Text(
    r"https?://[^\s/?#@]+(?:/[^\s?#]*)?",
    "the URL of a Prometheus server, such as https://prometheus.example.com",
)
_SELECTOR = Text(rf"\{{?{_MATCHER}(?:,{_MATCHER})*,?\s*\}}?", 'matchers such as job="kafka"')
_LABEL = Text(r"[a-zA-Z_]\w*", "the name of a label, such as instance or pod")
_PATTERN = Text(r".*\(.*\).*", r"a regular expression with one group, such as -(\d+)$")
_OF_SERVER = ("selector", "broker_label", "broker_pattern", "broker_values")


class ServedSection(HttpSection):
    """A source that reads exporters directly, or from a Prometheus server that scrapes the
    exporters.

    Attributes:
        server: URL of the Prometheus server that scrapes these exporters, including a path prefix.
            The key `server` replaces `port` and `endpoints`. `https://` sets `tls`
            (docs/metrics.md#a-prometheus-server).
        selector: label matchers that select the exporters of this cluster and no others; required
            with `server`.
        broker_label: name of the label that distinguishes the brokers. Without `broker_pattern` and
            `broker_values`, the label's value must be a broker's id, or must refer to a broker's
            advertised host.
        broker_pattern: regular expression that finds the broker id in the label's value.
        broker_values: broker id → value of the label, if no pattern finds the id. In
            `metrics.host`, brokers on one host share a value.
    """

    what: ClassVar[str] = "the brokers"
    shares_values: ClassVar[bool] = False

    server: Annotated[str, _URL] | None = None
    selector: Annotated[str, _SELECTOR] | None = None
    broker_label: Annotated[str, _LABEL] = "instance"
    broker_pattern: Annotated[str, _PATTERN] | None = None
    broker_values: Annotated[Mapping[BrokerId, str], _VALUES] | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_tls_of_url(cls, value: Any) -> Any:
        """The section, with `tls` set according to the server's URL."""
        if not isinstance(value, Mapping) or not isinstance(value.get("server"), str):
            return value
        is_https = value["server"].startswith("https://")
        if value.get("tls") is (not is_https):
            given, expected = ("false", "http:// or no tls") if is_https else ("true", "https://")
            raise ValueError(
                f"tls is {given} and server is {value['server']}; expected {expected}; correct the "
                "URL or remove tls"
            )
        return {**value, "tls": True} if is_https else value

    def _require_one_address(self) -> None:
        given = [key for key in ("port", "endpoints", "server") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                "expected exactly one of port (the same on every broker), endpoints (an address "
                "for each broker id) and server (a Prometheus server); set one, and remove the "
                "others"
            )

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        super().require_consistent()
        given = [key for key in _OF_SERVER if key in self.model_fields_set]
        if self.server is None and given:
            raise ValueError(
                f"{given[0]} has no effect without server; add server, or remove {given[0]}"
            )
        if self.server is not None and self.selector is None:
            raise ValueError(
                'server requires selector; add the matchers of this cluster, such as job="kafka"'
            )
        if self.broker_pattern is not None and self.broker_values is not None:
            raise ValueError("expected one of broker_pattern and broker_values; remove one of them")
        if self.broker_pattern is not None and _groups(self.broker_pattern) != 1:
            raise ValueError(
                f"broker_pattern is {self.broker_pattern!r}; expected {_PATTERN.expected()}; "
                "correct it"
            )

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """See `AddressedSection.addresses`; empty with a Prometheus server."""
        return {} if self.server is not None else super().addresses(hosts)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        missing = sorted(set(hosts) - set(self.broker_values or hosts))
        if missing:
            raise ConfigError(
                f"cluster {self.key}.broker_values has no value for broker {missing[0]}; expected "
                f"a value for each of the brokers {', '.join(map(str, sorted(hosts)))}; add the "
                "missing values"
            )

    def tls_hint(self) -> tuple[str, str]:
        """See `SourceSection.tls_hint`."""
        if self.server is None:
            return super().tls_hint()
        return f"https:// in {self.key}.server", "enable HTTPS in the server or in a proxy"

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`."""
        if self.server is None:
            return super().contacted_hosts(advertised)
        return [urlsplit(self.server).hostname or ""]

    def served(self, hosts: Mapping[int, str], deadline_s: float) -> ServerFeed | None:
        """The Prometheus server, and the targets whose series are read from it. None if no server
        is configured.

        Args:
            hosts: broker id → advertised host.
            deadline_s: longest time that the server may take to answer [s].

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
        return ServerFeed(api, FeedSpec(selector, label, hosts, self.what))


def _groups(pattern: str) -> int:
    """The number of groups of a regular expression; 0 if the expression is malformed."""
    try:
        return re.compile(pattern).groups
    except re.error:
        return 0


class ClientOnly(BrokerSection):
    """A cluster without metrics; configured by `client_only: true`."""

    key: ClassVar[str] = "metrics.client_only"
    suits_testbed: ClassVar[bool] = True

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        look, close = target.open_replicas()
        source = ClientOnlySource(tuple(target.hosts), look, target.version, close)
        try:
            source.open()
        except BaseException:
            source.close()
            raise
        return source


_DISK = Text(r"[A-Za-z0-9][A-Za-z0-9_.!-]*", "the name of a disk, such as nvme1n1")
HOSTS_DEADLINE_S = 5.0
"""Deadline of a scrape of one host [s]."""


class NodeExporter(ServedSection, HostSection):
    """node_exporter on each broker's host, or the Prometheus server that scrapes node_exporter.

    Brokers on the same host may have the same endpoint. With a Prometheus server, brokers on the
    same host may have the same value of `broker_label`.

    Attributes:
        log_disks: names of the disks with the brokers' log directories, as in `lsblk`. If not
            given, the source includes all disks of a host, because node_exporter does not show on
            which disk a directory is.
    """

    key: ClassVar[str] = "metrics.host.prometheus"
    what: ClassVar[str] = "the brokers' hosts"
    shares_values: ClassVar[bool] = True

    log_disks: tuple[Annotated[str, _DISK], ...] = ()

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        served = self.served(target.hosts, HOSTS_DEADLINE_S)
        if served is not None:
            return ServedHosts(served, self.log_disks).open()
        access, addresses = self.access(), self.addresses(target.hosts)
        return NodeExporters(
            addresses, HOSTS_DEADLINE_S, access=access, log_disks=self.log_disks
        ).open()


class LocalProc(HostSection):
    """/proc of this machine, for brokers on this machine; requires no configuration."""

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        return target.local_hosts()


class Jmx(SecuredSection, BrokerSection):
    """The brokers' JMX; TLS applies also to the RMI registry."""

    key: ClassVar[str] = "jmx"
    tls_remedy: ClassVar[str] = (
        "start the brokers with com.sun.management.jmxremote.ssl and .registry.ssl"
    )

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        self.access()

    def access(self) -> JmxAccess | None:
        """The login and the certificates of JMX; None if JMX has neither login nor TLS.

        Raises:
            ConfigError: a secret is missing.
        """
        login = self.user_and_password()
        if login is None and not self.tls:
            return None
        username, password = login or (None, None)
        return JmxAccess(username, password, self.tls, self.cafile, self.check_hostname)

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        return open_jmx(self.addresses(target.hosts), target.jvm, access=self.access())


class JmxOfStartedBrokers(BrokerSection):
    """JMX of brokers that the run started; needs no configuration."""

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        jmx = target.started_jmx
        if jmx is None:
            return open_jmx({}, target.jvm)
        return open_jmx(jmx.addresses, target.jvm, access=jmx.access)


_LOGIN_IN_URL = re.compile(r"://[^\s/@]*:[^\s/@]*@")


def _as_texts(value: Any) -> Any:
    """The options as texts, because YAML also has numbers and booleans."""
    is_map = isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(each, (str, int, float)) for key, each in value.items()
    )
    if not is_map:
        raise UnexpectedError("a map of names to texts, numbers and booleans, such as {port: 8778}")
    return {key: _as_text(key, each) for key, each in value.items()}


def _as_text(name: str, value: Any) -> str:
    if is_reference(value):
        return str(as_reference(value))
    if may_be_secret((name,)) or _LOGIN_IN_URL.search(str(value)):
        raise UnexpectedError(f"for {name} {REFERENCE}")
    return str(value).lower() if isinstance(value, bool) else str(value)


class ExtensionSection(BrokerSection):
    """A source of the brokers' metrics that an installed package adds.

    Attributes:
        source: name of the source in the entry point group `redline.sources` (docs/extending.md).
        options: options of the source, which the package describes; secrets are references, such as
            `password_from: env:NAME`.
    """

    key: ClassVar[str] = "metrics.extension"

    source: Annotated[str, ExtensibleName((), SOURCES)]
    options: Annotated[Mapping[str, str], BeforeValidator(_as_texts)] = Field(default_factory=dict)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """Check that the package can be imported, and that all secrets exist."""
        load_extension(SOURCES, self.source)
        for name, value in self.options.items():
            if is_reference(value):
                self._secret(name)

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        request = SourceRequest(target.hosts, target.version, self.options, self._secret)
        source = extension_source(self.source, request)
        source.open()  # closes itself when it fails
        return source

    def _secret(self, option: str) -> str:
        reference, key = self.options.get(option), f"{self.key}.options.{option}"
        if reference is None or not is_reference(reference):
            raise ConfigError(
                f"{key} is {'missing' if reference is None else 'not a reference'}; expected a "
                "reference to a secret, such as env:NAME or file:PATH; correct it"
            )
        return read_secret(reference, key)


def load_rules(name_or_path: str) -> RuleSet:
    """Read a rule set: a file of conf/prometheus by its name without .yaml, or a path.

    Raises:
        ConfigError: the file cannot be read, or has an error.
    """
    file = read_conf("prometheus", name_or_path, "metrics.prometheus.rules")
    data = parse_map(file.text, file.label).data
    readings = data.get("readings")
    if set(data) != {"readings"} or not isinstance(readings, dict):
        raise ConfigError(
            f"{file.label} has {', '.join(map(str, data)) or 'no keys'} at the top level; expected "
            "only the key readings, a map of readings to series; see the files of conf/prometheus"
        )
    return rule_set(file.label, readings)


DEADLINE_S = 10.0
"""Deadline of a scrape [s]; it is long, because an exporter without rules reads all MBeans."""


class Prometheus(ServedSection, BrokerSection):
    """The brokers' Prometheus JMX exporters, or the Prometheus server that scrapes the exporters.

    Attributes:
        rules: the rule set that assigns the exporters' series to readings. Values: `auto`, which
            reads each exporter's page and chooses the rule set that fits the page; the name of a
            file of conf/prometheus (kafka-kraft, strimzi, msk); or a path
            (docs/metrics.md#prometheus-exporters).
    """

    key: ClassVar[str] = "metrics.prometheus"

    rules: Annotated[str, Text(r"\S.*", "auto, or the name of a rule set, such as strimzi")] = AUTO

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        rules = None if self.rules == AUTO else load_rules(self.rules)
        served = self.served(target.hosts, DEADLINE_S)
        if served is not None:
            of_server = PrometheusServerSource(served, rules, target.version)
            of_server.open()  # closes itself when it fails
            return of_server
        endpoints = [
            Endpoint.parse(broker, address)
            for broker, address in sorted(self.addresses(target.hosts).items())
        ]
        access = self.access()
        source = PrometheusSource(endpoints, rules, DEADLINE_S, target.version, access=access)
        source.open()  # closes itself when it fails
        return source


class HostMetrics(ConfigModel):
    """The source that provides the metrics of the brokers' hosts.

    Attributes:
        prometheus: node_exporter on each host.
    """

    prometheus: NodeExporter | None = None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if self.prometheus is None:
            raise ValueError(
                "prometheus is missing; expected a source of the hosts' metrics; add "
                "metrics.host.prometheus, or remove metrics.host"
            )


class Metrics(ConfigModel):
    """The source of the hosts' metrics, and the source of the brokers' metrics. If the brokers'
    metrics come from JMX, the cluster's key `jmx` configures their source instead.

    Attributes:
        prometheus: Prometheus exporters of the brokers, or a Prometheus server.
        client_only: whether only the clients' measurements judge the trials, because the cluster
            has no metrics.
        extension: a source of an installed package (docs/extending.md).
        host: the source of the hosts' metrics; may be added to any source of brokers' metrics.
    """

    prometheus: Prometheus | None = None
    client_only: bool = False
    extension: ExtensionSection | None = None
    host: HostMetrics | None = None

    @property
    def broker_sources(self) -> list[BrokerSection]:
        """The configured sources of the brokers' metrics."""
        found = (self.prometheus, ClientOnly() if self.client_only else None, self.extension)
        return [each for each in found if each is not None]

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if len(self.broker_sources) > 1:
            raise ValueError(
                "expected one of prometheus, client_only: true and extension; set one, and remove "
                "the others"
            )
        if not self.broker_sources and self.host is None:
            raise ValueError(
                "expected prometheus, client_only: true, extension or host; set one, or remove "
                "metrics"
            )
