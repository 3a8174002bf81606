"""The kinds of metrics sources, and the `metrics` section of a cluster's file that they make up.

A new kind is a subclass of `BrokerSection` or `HostSection` in a module of its own, and an entry
in `BROKER_SOURCES` or `HOST_SOURCES`. From there its key joins the section and its schema, the
messages about sources, doctor's checks of secrets, and the opening of a cluster's sources.

No metrics of the brokers: the Admin API reports their replicas, and clients judge the rest.

Sources of the hosts' metrics: node_exporter, a Prometheus server, and /proc of this machine.

JMX as a source of the brokers' metrics: configured, or of brokers that the run started.

A source of an installed package, as a source of the brokers' metrics.

Reading rule sets of conf/prometheus, which map the series of an exporter to readings.

Prometheus exporters in the brokers, or a server that scrapes them, as a source of metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, create_model, model_validator

from jobs.config.base import ConfigModel
from jobs.config.files import read_conf
from jobs.config.metrics_section import (
    BrokerSection,
    HostSection,
    SecuredSection,
    ServedSection,
    SourceSection,
    SourceTarget,
)
from jobs.config.problems import may_be_secret
from jobs.config.security import REFERENCE, as_reference, is_reference, read_secret
from jobs.config.source import parse_map
from metrics.common.bounds import Text, UnexpectedError
from metrics.common.errors import ConfigError
from metrics.common.extensions import SOURCES, ExtensibleName, load_extension
from metrics.sources.access import JmxAccess
from metrics.sources.client_only import ClientOnlySource
from metrics.sources.extension import SourceRequest, extension_source
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.hosts.prometheus_server import ServedHosts
from metrics.sources.hosts.source import HostSource
from metrics.sources.jmx import open_jmx
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.series_choice import AUTO
from metrics.sources.server.source import PrometheusServerSource
from metrics.sources.source import Endpoint, MetricsSource


class ClientOnly(BrokerSection):
    """A cluster that shows no metrics; its key has the value true."""

    key: ClassVar[str] = "metrics.client_only"
    meaning: ClassVar[str] = "the brokers show no metrics, and only what clients see judges."
    example: ClassVar[str] = "client_only: true"
    remedy: ClassVar[str] = "set metrics.client_only: true"
    suits_testbed: ClassVar[bool] = True

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        """See `SourceSection.field`."""
        return bool, False

    @classmethod
    def configured(cls, value: Any) -> ClientOnly | None:
        """See `SourceSection.configured`."""
        return cls() if value else None

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
    """node_exporter on each broker's host, or the Prometheus server that scrapes it.

    Brokers that share a host may share an endpoint, and a value of the server's label.

    Attributes:
        log_disks: names of the disks that have the brokers' log dirs, as the hosts show them.
    """

    key: ClassVar[str] = "metrics.host.prometheus"
    meaning: ClassVar[str] = "node_exporter on each of them."
    example: ClassVar[str] = "prometheus"
    what: ClassVar[str] = "the brokers' hosts"
    shares_values: ClassVar[bool] = True

    log_disks: tuple[Annotated[str, _DISK], ...] = ()

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        served = self.served(target.hosts, HOSTS_DEADLINE_S)
        if served is not None:
            return ServedHosts(*served, log_disks=self.log_disks).open()
        access, addresses = self.access(), self.addresses(target.hosts)
        return NodeExporters(
            addresses, HOSTS_DEADLINE_S, access=access, log_disks=self.log_disks
        ).open()


class LocalProc(HostSection):
    """/proc of this machine, for brokers that run on it; needs no configuration."""

    @classmethod
    def configured(cls, value: Any) -> LocalProc:
        """See `SourceSection.configured`."""
        return cls()

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        return target.local_hosts()


class Jmx(SecuredSection, BrokerSection):
    """The brokers' JMX; TLS applies to its registry, too."""

    key: ClassVar[str] = "jmx"
    example: ClassVar[str] = "jmx: {port: 9999}"
    remedy: ClassVar[str] = (
        "start the brokers with JMX_PORT and add `jmx: {port: 9999}` with that port"
    )
    tls_remedy: ClassVar[str] = (
        "start the brokers with com.sun.management.jmxremote.ssl and .registry.ssl"
    )

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        self.access()

    def access(self) -> JmxAccess | None:
        """The login and the certificates of JMX, secrets resolved; None where it is open.

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
    """JMX of brokers that the run started, which needs no configuration."""

    @classmethod
    def configured(cls, value: Any) -> JmxOfStartedBrokers:
        """See `SourceSection.configured`."""
        return cls()

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        jmx = target.started_jmx
        if jmx is None:
            return open_jmx({}, target.jvm)
        return open_jmx(jmx.addresses, target.jvm, access=jmx.access)


_LOGIN_IN_URL = re.compile(r"://[^\s/@]*:[^\s/@]*@")


def _as_texts(value: Any) -> Any:
    """Options as texts; YAML has numbers and booleans, too."""
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
        source: its name in the group `redline.sources`.
        options: its own options; secrets are references, such as `env:NAME`.
    """

    key: ClassVar[str] = "metrics.extension"
    meaning: ClassVar[str] = "a source of an installed package, see docs/extending.md."
    example: ClassVar[str] = "extension"
    remedy: ClassVar[str] = "name the source of an installed package in metrics.extension"

    source: Annotated[str, ExtensibleName((), SOURCES)]
    options: Annotated[Mapping[str, str], BeforeValidator(_as_texts)] = Field(default_factory=dict)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """Check that the package can be imported, and that secrets exist."""
        load_extension(SOURCES, self.source)
        for name, value in self.options.items():
            if is_reference(value):
                self._secret(name)

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`; only the package knows others."""
        return list(advertised)

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
                f"{key} is {'missing' if reference is None else 'no reference'}; expected the "
                "place of a secret, such as env:NAME or file:PATH; correct it"
            )
        return read_secret(reference, key)


def load_rules(name_or_path: str) -> RuleSet:
    """Read a rule set: a file of conf/prometheus by its name without .yaml, or a path.

    Raises:
        ConfigError: the file cannot be read, or is wrong; the message has the place and the remedy.
    """
    file = read_conf("prometheus", name_or_path, "metrics.prometheus.rules")
    data = parse_map(file.text, file.label).data
    readings = data.get("readings")
    if set(data) != {"readings"} or not isinstance(readings, dict):
        raise ConfigError(
            f"{file.label} has {', '.join(map(str, data)) or 'nothing'} at its top; expected the "
            "one key readings with a map of readings to series; see the files of conf/prometheus"
        )
    return rule_set(file.label, readings)


DEADLINE_S = 10.0
"""Deadline of a scrape; an exporter without rules reads every bean of a broker [s]."""


class Prometheus(ServedSection, BrokerSection):
    """The brokers' Prometheus JMX exporters, or the Prometheus server that scrapes them.

    Attributes:
        rules: which series are which readings: auto, to find them on each page; or a file of
            conf/prometheus, by its name without .yaml, or a path.
    """

    key: ClassVar[str] = "metrics.prometheus"
    meaning: ClassVar[str] = "exporters that are scraped."
    example: ClassVar[str] = "prometheus"
    remedy: ClassVar[str] = "name their exporters in metrics.prometheus"

    rules: Annotated[str, Text(r"\S.*", "auto, or the name of a rule set, such as strimzi")] = AUTO

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        rules = None if self.rules == AUTO else load_rules(self.rules)
        served = self.served(target.hosts, DEADLINE_S)
        if served is not None:
            of_server = PrometheusServerSource(*served, rules, target.version)
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


Section = TypeVar("Section", bound=SourceSection)

BROKER_SOURCES: tuple[type[BrokerSection], ...] = (
    Jmx,
    Prometheus,
    ClientOnly,
    ExtensionSection,
    JmxOfStartedBrokers,
)
"""Sources of the brokers' metrics; the last needs no configuration and is the default."""
HOST_SOURCES: tuple[type[HostSection], ...] = (NodeExporter, LocalProc)
"""Sources of the hosts' metrics; the last needs no configuration and is the default."""

_METRICS = "metrics"
_HOST = "metrics.host"


def _kinds_in(kinds: Sequence[type[Section]], parent: str) -> dict[str, type[Section]]:
    """Key → kind, of the kinds whose key stands directly in the section `parent`."""
    places = {kind: kind.key.rpartition(".") for kind in kinds if kind.key}
    return {key: kind for kind, (above, _, key) in places.items() if above == parent}


def _keys_of(kinds: Mapping[str, type[SourceSection]]) -> dict[str, Any]:
    """Fields of a model with a key for each kind."""
    fields = {key: (kind, *kind.field()) for key, kind in kinds.items()}
    return {
        key: (annotation, Field(default, description=kind.meaning))
        for key, (kind, annotation, default) in fields.items()
    }


def _configured_in(section: ConfigModel, kinds: Mapping[str, type[SourceSection]]) -> list[str]:
    """Keys of the kinds that a section configures."""
    return [key for key, kind in kinds.items() if kind.configured(getattr(section, key))]


def _examples(kinds: Mapping[str, type[SourceSection]], joint: str) -> str:
    return joint.join(kind.example for kind in kinds.values())


_IN_HOST = _kinds_in(HOST_SOURCES, _HOST)
_IN_METRICS = _kinds_in(BROKER_SOURCES, _METRICS)


class _HostMetrics(ConfigModel):
    """The source of the metrics of the brokers' hosts."""

    @model_validator(mode="after")
    def _require_one_source(self) -> _HostMetrics:
        if len(_configured_in(self, _IN_HOST)) != 1:
            raise ValueError(
                f"expected one of {_examples(_IN_HOST, ' and ')}; set one and leave any other "
                f"out, or remove {_HOST}"
            )
        return self


class _Metrics(ConfigModel):
    """The source of the brokers' metrics where it is not JMX, and that of their hosts' metrics."""

    if TYPE_CHECKING:
        host: _HostMetrics | None

    @model_validator(mode="after")
    def _require_one_source(self) -> _Metrics:
        configured = _configured_in(self, _IN_METRICS)
        if len(configured) > 1:
            raise ValueError(
                f"expected one of {_examples(_IN_METRICS, ' and ')}; set one and leave the other "
                "out"
            )
        if not configured and self.host is None:
            raise ValueError(
                f"expected {_examples(_IN_METRICS, ', ')} or host; set one, or remove metrics"
            )
        return self


if TYPE_CHECKING:
    HostMetrics = _HostMetrics
    Metrics = _Metrics
else:
    HostMetrics = create_model(
        "HostMetrics", __base__=_HostMetrics, __doc__=_HostMetrics.__doc__, **_keys_of(_IN_HOST)
    )
    Metrics = create_model(
        "Metrics",
        __base__=_Metrics,
        __doc__=_Metrics.__doc__,
        **_keys_of(_IN_METRICS),
        host=(
            HostMetrics | None,
            Field(None, description="metrics of their hosts, beside any source of the brokers'"),
        ),
    )


def configured_sources(cluster: ConfigModel) -> Iterator[SourceSection]:
    """The sections of all sources that a cluster's file configures."""
    for kind in (*BROKER_SOURCES, *HOST_SOURCES):
        section = _section_of(kind, cluster)
        if kind.key and section is not None:
            yield section


def broker_source(cluster: ConfigModel) -> BrokerSection:
    """The section that opens the source of the brokers' metrics."""
    return _first_of(BROKER_SOURCES, cluster)


def host_source(cluster: ConfigModel) -> HostSection:
    """The section that opens the source of the hosts' metrics."""
    return _first_of(HOST_SOURCES, cluster)


def require_one_broker_source(cluster: ConfigModel) -> None:
    """Check that the file of a cluster that runs already configures one source of its brokers.

    Raises:
        ValueError: it configures none, or several.
    """
    kinds = [kind for kind in BROKER_SOURCES if kind.key]
    given = [kind.key for kind in kinds if _section_of(kind, cluster) is not None]
    if len(given) == 1:
        return
    names = [key.partition(".")[0] for key in given]
    what = f"{' and '.join(names)} are both given" if given else f"{kinds[0].key} is missing"
    raise ValueError(
        f"{what}; the brokers' metrics decide what they sustain; "
        f"{', or '.join(kind.remedy for kind in kinds)}; expected one of them"
    )


def _first_of(kinds: Iterable[type[Section]], cluster: ConfigModel) -> Section:
    found = (_section_of(kind, cluster) for kind in kinds)
    return next(section for section in found if section is not None)


def _section_of(kind: type[Section], cluster: ConfigModel) -> Section | None:
    """The section of a kind in a cluster's file; None where it is not configured."""
    value: Any = cluster
    for key in filter(None, kind.key.split(".")):
        value = getattr(value, key, None)
    return kind.configured(value)
