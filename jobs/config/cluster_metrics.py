"""The way to a real cluster's metrics: JMX, Prometheus exporters, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, model_validator

from jobs.config.base import ConfigModel, HostPort
from jobs.config.security import SecretReference, read_secret
from metrics.sources.access import JmxAccess
from search.bounds import Text, UnexpectedError, Whole
from search.errors import ConfigError

Place = TypeVar("Place", bound="Places")


def _as_endpoints(value: Any) -> Any:
    """`--set` hands broker ids over as text; the file has numbers."""
    if not isinstance(value, Mapping) or not value:
        raise UnexpectedError("a map of broker ids to addresses, such as {1: broker-1:9999}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: address
        for key, address in value.items()
    }


class Places(ConfigModel):
    """Where each broker shows its metrics; exactly one of the two.

    Attributes:
        port: the same port on each broker's advertised host.
        endpoints: broker id → host:port.
    """

    key: ClassVar[str]

    port: Annotated[int, Whole(1, 65_535)] | None = None
    endpoints: (
        Annotated[
            Mapping[Annotated[int, Whole(0, 2**31 - 1)], HostPort], BeforeValidator(_as_endpoints)
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _one_way(self: Place) -> Place:
        if (self.port is None) == (self.endpoints is None):
            raise ValueError(
                "expected exactly one of port (the same on every broker) and endpoints "
                "(an address for each broker id); set one and leave the other out"
            )
        return self

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """Address of each broker's metrics as host:port.

        Args:
            hosts: broker id → advertised host, of all brokers.

        Raises:
            ConfigError: when a broker has no endpoint.
        """
        if self.endpoints is None:
            return {
                broker: f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
                for broker, host in hosts.items()
            }
        missing = sorted(set(hosts) - set(self.endpoints))
        if missing:
            raise ConfigError(
                f"cluster {self.key}.endpoints has no address for broker {missing[0]}; the "
                f"cluster's brokers are {', '.join(map(str, sorted(hosts)))}; add one for each"
            )
        return {broker: self.endpoints[broker] for broker in hosts}


class Jmx(Places):
    """The brokers' JMX.

    Attributes:
        username_from, password_from: where its user and password are.
        tls: whether the registry and the objects speak TLS.
        cafile: PEM file of the certificates to trust; those that Java trusts when left out.
        check_hostname: whether a broker's certificate must name its host.
    """

    key: ClassVar[str] = "jmx"

    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _complete(self) -> Jmx:
        if (self.username_from is None) != (self.password_from is None):
            raise ValueError("username_from and password_from belong together; add the other one")
        if self.cafile is not None and not self.tls:
            raise ValueError("cafile has no effect without tls; add tls: true or remove cafile")
        return self

    def access(self) -> JmxAccess | None:
        """What opens it, secrets resolved; None where it is open.

        Raises:
            ConfigError: a secret is not there.
        """
        tls = (self.tls, self.cafile, self.check_hostname)
        if self.username_from is None or self.password_from is None:
            return JmxAccess(None, None, *tls) if self.tls else None
        return JmxAccess(
            read_secret(self.username_from, "jmx.username_from"),
            read_secret(self.password_from, "jmx.password_from"),
            *tls,
        )


class Prometheus(Places):
    """The brokers' Prometheus JMX exporters.

    Attributes:
        rules: a file of conf/prometheus, by its name without .yaml, or a path: which series
            are which readings.
    """

    key: ClassVar[str] = "metrics.prometheus"

    rules: Annotated[str, Text(r"\S.*", "the name of a rule set, such as strimzi")]


class NodeExporter(Places):
    """node_exporter on each broker's host; brokers that share a host may share an endpoint."""

    key: ClassVar[str] = "metrics.host.prometheus"


class HostMetrics(ConfigModel):
    """The way to what the brokers' hosts show.

    Attributes:
        prometheus: node_exporter on each of them.
    """

    prometheus: NodeExporter


class Metrics(ConfigModel):
    """The way to the brokers' metrics where it is not their JMX, and to their hosts'.

    Attributes:
        prometheus: exporters that are scraped.
        client_only: there is no way, and only what clients see judges.
        host: their hosts' own metrics, beside whichever way to the brokers'.
    """

    prometheus: Prometheus | None = None
    client_only: bool = False
    host: HostMetrics | None = None

    @property
    def names_a_way(self) -> bool:
        """True where it says how to get to the brokers' metrics, or that there is no way."""
        return self.prometheus is not None or self.client_only

    @model_validator(mode="after")
    def _one_way(self) -> Metrics:
        if self.prometheus is not None and self.client_only:
            raise ValueError(
                "expected one of prometheus and client_only: true; set one and leave the other out"
            )
        if not self.names_a_way and self.host is None:
            raise ValueError(
                "expected prometheus, client_only: true or host; set one, or remove metrics"
            )
        return self
