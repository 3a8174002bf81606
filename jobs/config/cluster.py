"""The cluster under load: a testbed to start, or real brokers with the way to their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from jobs.config.base import (
    ConfigModel,
    HostPort,
    Name,
    Number,
    Properties,
    Text,
    Whole,
    unexpected,
)
from jobs.config.security import Security
from search.errors import ConfigError


class Testbed(ConfigModel):
    """Brokers that the run starts on this machine and stops at its end.

    Attributes:
        profile: a file of conf/testbed/, by its name without .yaml, or a path.
        brokers: number of brokers; the controller is a process of its own.
        kafka_version: any release from 3.9.0 on.
        properties: broker properties by Kafka's names that replace the profile's.
        warm_up_max_s: load on the cold JVMs before the first trial, at most [s]; it ends
            earlier when more load makes them no faster.
    """

    __test__ = False  # not a test class, whatever pytest thinks of its name

    profile: Annotated[str, Text(r"\S.*", "the name of a testbed profile, such as disk-bound")]
    brokers: Annotated[int, Whole(1, 5, "brokers")] = 3
    kafka_version: Annotated[
        str,
        Text(
            r"(3\.(9|[1-9]\d)|[4-9]\.\d+|[1-9]\d\.\d+)\.\d+",
            'a Kafka version from 3.9.0 on, in quotes, such as "4.1.2"',
        ),
    ] = "4.1.2"
    properties: Properties = Field(default_factory=dict)
    warm_up_max_s: Annotated[float, Number(0, 600, "seconds")] = 60.0


def _as_endpoints(value: Any) -> Any:
    """`--set` hands broker ids over as text; the file has numbers."""
    if not isinstance(value, Mapping) or not value:
        raise unexpected("a map of broker ids to JMX addresses, such as {1: broker-1:9999}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: address
        for key, address in value.items()
    }


class Jmx(ConfigModel):
    """Where the brokers' JMX is; exactly one of the two.

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
    def _one_way(self) -> Jmx:
        if (self.port is None) == (self.endpoints is None):
            raise ValueError(
                "expected exactly one of port (the same on every broker) and endpoints "
                "(an address for each broker id); set one and leave the other out"
            )
        return self

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """JMX address of each broker as host:port.

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
                f"cluster jmx.endpoints has no address for broker {missing[0]}; the cluster's "
                f"brokers are {', '.join(map(str, sorted(hosts)))}; add one for each"
            )
        return {broker: self.endpoints[broker] for broker in hosts}


class Cluster(ConfigModel):
    """The brokers to load: either `testbed` or `bootstrap_servers`.

    Attributes:
        name: the file's name without .yaml unless the file says another.
        description: a sentence for people.
        testbed: brokers to start here.
        bootstrap_servers: addresses of some brokers of a real cluster.
        jmx: the way to a real cluster's metrics; a testbed brings its own.
        security: of the connections to a real cluster.
    """

    name: Name
    description: str = ""
    testbed: Testbed | None = None
    bootstrap_servers: Annotated[tuple[HostPort, ...], Field(strict=False, min_length=1)] | None = (
        None
    )
    jmx: Jmx | None = None
    security: Security = Security()

    @model_validator(mode="after")
    def _one_kind(self) -> Cluster:
        if (self.testbed is None) == (self.bootstrap_servers is None):
            raise ValueError(
                "expected exactly one of testbed (brokers to start on this machine) and "
                "bootstrap_servers (brokers that run already); set one and leave the other out"
            )
        return self

    @model_validator(mode="after")
    def _metrics_of_real_brokers(self) -> Cluster:
        if self.testbed is None:
            if self.jmx is None:
                raise ValueError(
                    "jmx is missing; the brokers' metrics decide what they sustain; start the "
                    "brokers with JMX_PORT and add `jmx: {port: 9999}` with that port, or "
                    "`jmx: {endpoints: {1: host:port, ...}}`"
                )
        elif self.jmx is not None or self.security != Security():
            raise ValueError(
                "a testbed brings its own jmx and security; expected neither next to testbed; "
                "remove them"
            )
        return self

    def client_kwargs(self) -> dict[str, Any]:
        """Connection options of kafka-python's clients, secrets resolved: never log them.

        Raises:
            ConfigError: when a secret or a file is not there.
        """
        return self.security.client_kwargs()
