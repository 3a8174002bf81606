"""The protocol of a source of broker metrics, its endpoints, and the nodes that it found.

Sources that keep the readings of the past.

What answers about many partitions cost a broker or the driver, and how much a run may take.

The figures are measured; docs/evidence/scale.md states how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from typing_extensions import Self

from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.units import format_some

OPEN_DEADLINE_S = 15.0
"""Deadline of the first answer of a node on a busy machine, the connection included [s]."""
_NAMED_MAX = 5
"""Brokers that a sentence names one by one."""


@dataclass(frozen=True)
class Endpoint:
    """Address of the metrics of one broker or controller."""

    node_id: int
    host: str
    port: int

    @classmethod
    def parse(cls, node_id: int, address: str) -> Self:
        """An endpoint from `host:port`, with an IPv6 host in brackets.

        Raises:
            ConfigError: the address has another form.
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
        """The address as `host:port`."""
        return f"{self.host}:{self.port}"


class JmxEndpoint(Endpoint):
    """Address of the JMX of one node, its RMI registry included."""

    @property
    def url(self) -> str:
        """The JMX service URL."""
        return f"service:jmx:rmi:///jndi/rmi://{self.address}/jmxrmi"


@dataclass(frozen=True)
class NodeInfo:
    """One Kafka process, as the source found it.

    Attributes:
        node_id: Kafka's node id.
        version: Kafka's version, as far as it is known.
        roles: roles of the process.
        has_quorum: whether it keeps its metadata in KRaft's quorum; False with ZooKeeper.
        facts: further facts by which two runs are compared, such as `jvm.version`.
        lacks: readings of its roles that the source cannot read.
        poll_s: time for which the process was busy with one poll [s]; 0 where it is negligible.
        controller_share: largest share of its time for which a controller's handlers were busy
            since the start, where they share the broker's meter; None elsewhere [ratio].
        series: reading → its series on the page of an exporter, where the source found them.
        choices: a clause for each choice between several series.
        refused: a clause for each reason why readings are not read although the page shows series
            of them.
        rates: readings whose counts follow from one-minute rates.
        interval_s: time between two samples, where another program takes them, such as a
            Prometheus server; 0 where each poll is a sample [s].
        spared_s: least time between two samples for the sake of a broker with many partitions; 0
            for any [s].
    """

    node_id: int
    version: str
    roles: frozenset[Role]
    facts: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    poll_s: float = 0.0
    has_quorum: bool = True
    controller_share: float | None = None
    series: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    interval_s: float = 0.0
    spared_s: float = 0.0


class MetricsSource(Protocol):
    """Reads all brokers at once; only one thread at a time may use it."""

    @property
    def name(self) -> str:
        """Short name for reports, for example `driver-jvm`."""
        ...

    @property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """Node id → the node that `open` found."""
        ...

    def open(self) -> None:
        """Connect, read versions and roles, and choose the beans.

        Raises:
            ConfigError: a node cannot be reached, or its metrics cannot judge a load.
        """
        ...

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node within the deadline; a failed one has its error."""
        ...

    def close(self) -> None:
        """Close the connections; further calls are harmless."""
        ...


def named_brokers(ids: Sequence[int]) -> str:
    """Brokers in words; of many, the first ones and the number of the rest."""
    return f"{'broker' if len(ids) == 1 else 'brokers'} {format_some(ids, _NAMED_MAX)}"


def brokers_of(source: MetricsSource) -> frozenset[int]:
    """Ids of the nodes of an open source that are brokers."""
    return frozenset(i for i, node in source.nodes.items() if Role.BROKER in node.roles)


def controllers_of(source: MetricsSource) -> frozenset[int]:
    """Ids of the nodes of an open source that are controllers."""
    return frozenset(i for i, node in source.nodes.items() if Role.CONTROLLER in node.roles)


def sample_interval_of(source: MetricsSource, asked_s: float) -> float:
    """The time between two samples of an open source [s].

    Args:
        asked_s: configured time between two polls [s].
    """
    return max((asked_s, *(node.interval_s for node in source.nodes.values())))


def poll_interval_of(source: MetricsSource, asked_s: float) -> float:
    """The time between two polls of an open source [s].

    A source whose samples another program takes waits for the next one in each poll, so that it is
    polled again at once.
    """
    own = [node.interval_s for node in source.nodes.values() if node.interval_s]
    return min(asked_s, min(own) / 8) if own else asked_s


History = Sequence[tuple[float, float]]
"""(time [s since the epoch], value) of a reading, oldest first."""


@runtime_checkable
class KeepsHistory(Protocol):
    """A source that keeps the readings of the past."""

    def history(
        self, reading: str, from_s: float, to_s: float, step_s: float
    ) -> Mapping[int, History]:
        """Broker id → a reading in the past; see `PrometheusServerSource.history`."""
        ...


PARTITION_S = 3e-6
"""CPU time of a broker for one partition in an answer about all topics [s]."""

LOG_S = 0.5e-6
"""CPU time of a broker for each replica that it has, in an answer about its log directories, also
where no replica is requested [s]."""

TOPICS_SHARE_MAX = 0.01
"""Largest share of a broker's core for answers about all topics while a load runs [ratio]."""

LOG_DIRS_SHARE_MAX = 0.005
"""Largest share of a broker's core for answers about log directories while a load runs [ratio]."""

SAMPLE_PARTITION_S = 0.3e-6
"""CPU time of a broker for each partition that it has, in a sample by JMX: four gauges count
them. An estimate [s]."""

SAMPLES_SHARE_MAX = 0.0075
"""Largest share of a broker's core for what partitions add to the samples [ratio]."""

END_S = 8e-6
"""CPU time of the driver for the end offset of each replica: its request, and its answer [s]."""

ENDS_SHARE_MAX = 0.02
"""Largest share of a core of the driver for the end offsets of replicas [ratio]."""

ENDS_LEAST = 4
"""Fewest readings of these end offsets in a window."""

ORDINARY_LINES = 10_000
"""Lines of an exporter's page up to which a scrape counts as that of a broker with few
partitions."""


def topics_interval_s(partitions: int) -> float:
    """Least time between two requests for all topics, which have so many partitions [s]."""
    return partitions * PARTITION_S / TOPICS_SHARE_MAX


def log_dirs_interval_s(replicas: int) -> float:
    """Least time between two requests to a broker for its log directories [s].

    Args:
        replicas: number of replicas that the broker has.
    """
    return replicas * LOG_S / LOG_DIRS_SHARE_MAX


def jmx_interval_s(partitions: int) -> float:
    """Least time between two samples of a broker by JMX [s].

    Args:
        partitions: number of partitions that the broker has, led or followed.
    """
    return partitions * SAMPLE_PARTITION_S / SAMPLES_SHARE_MAX


def scrape_interval_s(took_s: float, lines: int) -> float:
    """Least time between two scrapes of an exporter in a broker [s].

    An exporter reads all beans of its broker, most of which are those of single partitions, also
    where it is asked for few series.

    Args:
        took_s: length of a scrape, in which the broker computes [s].
        lines: number of lines of the whole page.
    """
    grown = max(0.0, 1.0 - ORDINARY_LINES / max(1, lines))
    return took_s * grown / SAMPLES_SHARE_MAX


def ends_interval_s(replicas: int, interval_s: float, window_s: float) -> float:
    """Time between two readings of the end offsets of a trial's replicas [s].

    Args:
        replicas: number of replicas on all brokers.
        interval_s: intended time between samples [s].
        window_s: length of the window [s].
    """
    return max(interval_s, min(replicas * END_S / ENDS_SHARE_MAX, window_s / ENDS_LEAST))
