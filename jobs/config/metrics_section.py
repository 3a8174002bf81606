"""The way to a real cluster's metrics: JMX, Prometheus exporters, or none at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, model_validator

from jobs.config.base import ConfigModel, HostPort
from jobs.config.security import SecretReference, read_secret
from metrics.common.bounds import Text, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.http_access import HttpAccess, basic, bearer

Place = TypeVar("Place", bound="Places")
Closed = TypeVar("Closed", bound="ClosedPlaces")
Scraped = TypeVar("Scraped", bound="Exporters")


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

    def hosts(self, advertised: Iterable[str]) -> list[str]:
        """Those that are asked.

        Args:
            advertised: the brokers' hosts.
        """
        if self.endpoints is None:
            return list(advertised)
        return [each.rpartition(":")[0].strip("[]") for each in self.endpoints.values()]


class ClosedPlaces(Places):
    """The same where they may want a login, or speak TLS.

    Attributes:
        username_from, password_from: where its user and password are.
        tls: whether they speak TLS.
        cafile: PEM file of the certificates to trust, in place of those that are known anyway.
        check_hostname: whether a broker's certificate must name its host.
    """

    keys_of_tls: ClassVar[tuple[str, ...]] = ("cafile",)

    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _complete(self: Closed) -> Closed:
        if (self.username_from is None) != (self.password_from is None):
            raise ValueError("username_from and password_from belong together; add the other one")
        for key in self.keys_of_tls:
            if getattr(self, key) is not None and not self.tls:
                raise ValueError(f"{key} has no effect without tls; add tls: true or remove {key}")
        return self

    def user_and_password(self) -> tuple[str, str] | None:
        """The login, secrets resolved; None where there is none.

        Raises:
            ConfigError: a secret is not there.
        """
        if self.username_from is None or self.password_from is None:
            return None
        return (
            read_secret(self.username_from, f"{self.key}.username_from"),
            read_secret(self.password_from, f"{self.key}.password_from"),
        )


class Jmx(ClosedPlaces):
    """The brokers' JMX; TLS is that of its registry, too."""

    key: ClassVar[str] = "jmx"

    def access(self) -> JmxAccess | None:
        """What opens it, secrets resolved; None where it is open.

        Raises:
            ConfigError: a secret is not there.
        """
        login = self.user_and_password()
        if login is None and not self.tls:
            return None
        username, password = login or (None, None)
        return JmxAccess(username, password, self.tls, self.cafile, self.check_hostname)


class Exporters(ClosedPlaces):
    """Prometheus exporters.

    Attributes:
        token_from: where a bearer token is; read anew for every scrape.
        certfile, keyfile: PEM files of our own certificate and key, for mutual TLS.
    """

    keys_of_tls: ClassVar[tuple[str, ...]] = ("cafile", "certfile", "keyfile")

    token_from: SecretReference | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @model_validator(mode="after")
    def _one_login(self: Scraped) -> Scraped:
        if self.token_from is not None and self.password_from is not None:
            raise ValueError(
                "expected one of token_from and username_from with password_from; set one and "
                "leave the other out"
            )
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile belong together; add the other one")
        return self

    def access(self) -> HttpAccess:
        """What opens them.

        Raises:
            ConfigError: a secret is not there, or cannot be sent.
        """
        has_login = self.token_from is not None or self.password_from is not None
        if has_login:
            self._login()  # so that a missing one is told before any connection
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


class Prometheus(Exporters):
    """The brokers' Prometheus JMX exporters.

    Attributes:
        rules: a file of conf/prometheus, by its name without .yaml, or a path: which series
            are which readings.
    """

    key: ClassVar[str] = "metrics.prometheus"

    rules: Annotated[str, Text(r"\S.*", "the name of a rule set, such as strimzi")]


class NodeExporter(Exporters):
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
