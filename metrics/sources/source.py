"""The protocol of a metrics source, where it looks, and what it found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Endpoint:
    """Where one broker or controller shows its metrics."""

    node_id: int
    host: str
    port: int

    @classmethod
    def parse(cls, node_id: int, address: str) -> Self:
        """From `host:port`; an IPv6 host stands in brackets.

        Raises:
            ConfigError: when the address is not of that form.
        """
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"metrics address {address!r} of broker {node_id} is not understood; "
                f"expected host:port, for example broker-1.example.com:9999"
            )
        return cls(node_id, host, int(port))

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"


class JmxEndpoint(Endpoint):
    """JMX of one node, RMI registry included."""

    @property
    def url(self) -> str:
        """The JMX service URL."""
        return f"service:jmx:rmi:///jndi/rmi://{self.address}/jmxrmi"


@dataclass(frozen=True)
class NodeInfo:
    """What one process says about itself.

    Attributes:
        node_id: Kafka's node id.
        version: Kafka's version, or as much of it as is known.
        roles: KRaft's.
        facts: what else is worth comparing two runs by, such as `jvm.version`.
        lacks: readings of its roles that the source cannot read of it.
        poll_s: how long it was busy to answer one poll, where that is worth knowing [s].
    """

    node_id: int
    version: str
    roles: frozenset[Role]
    facts: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    poll_s: float = 0.0


class MetricsSource(Protocol):
    """Reads all brokers at once. Not for use by two threads at the same time."""

    @property
    def name(self) -> str:
        """Short name for reports, for example `driver-jvm`."""
        ...

    @property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """What was found by `open`, by node id."""
        ...

    def open(self) -> None:
        """Connect, learn versions and roles, choose the beans.

        Raises:
            ConfigError: when a node cannot be reached or cannot be judged.
        """
        ...

    def sample_all(self) -> list[BrokerSample]:
        """One sample per node, within the deadline; a failed one carries its error."""
        ...

    def close(self) -> None:
        """Give the connections back; further calls are harmless."""
        ...


def brokers_of(source: MetricsSource) -> frozenset[int]:
    """Ids of the nodes of an open source that are brokers."""
    return frozenset(i for i, node in source.nodes.items() if Role.BROKER in node.roles)


def controllers_of(source: MetricsSource) -> frozenset[int]:
    """Ids of the nodes of an open source that are controllers."""
    return frozenset(i for i, node in source.nodes.items() if Role.CONTROLLER in node.roles)
