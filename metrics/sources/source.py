"""The protocol of a source of broker metrics, with its endpoints, its nodes and its costs.

An answer about many partitions costs CPU time of a broker or of the driver. The constants and
functions at the end of this module limit the CPU time for answers about many partitions.
docs/evidence/scale.md describes how this CPU time was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, runtime_checkable

from typing_extensions import Self

from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.units import format_some

OPEN_DEADLINE_S = 15.0
"""Deadline of a node's first answer, including the connection [s]. The deadline is long, because a
busy machine answers late."""
_NAMED_MAX = 5
"""Highest number of brokers that a sentence names one by one."""


@dataclass(frozen=True)
class Endpoint:
    """The address at which one broker or controller shows its metrics."""

    node_id: int
    host: str
    port: int

    @classmethod
    def parse(cls, node_id: int, address: str) -> Self:
        """An endpoint from a text `host:port`. An IPv6 host is in brackets.

        Raises:
            ConfigError: the text has another form.
        """
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"the metrics address of broker {node_id} is {address!r}; expected host:port, "
                f"for example broker-1.example.com:9999; correct it in the cluster's file"
            )
        return cls(node_id, host, int(port))

    @property
    def address(self) -> str:
        """The address as `host:port`."""
        return f"{self.host}:{self.port}"


class JmxEndpoint(Endpoint):
    """The address of one node's JMX. The node's RMI registry has the same address."""

    @property
    def url(self) -> str:
        """The JMX service URL."""
        return f"service:jmx:rmi:///jndi/rmi://{self.address}/jmxrmi"


@dataclass(frozen=True)
class NodeInfo:
    """A Kafka process that a source found.

    Attributes:
        version: Kafka's version, or a part of it.
        has_quorum: True if the metadata are in KRaft's quorum, and False with ZooKeeper.
        facts: further facts for the comparison of two runs, such as `jvm.version`.
        lacks: readings that the process has according to its roles, but that the source cannot
            read.
        poll_s: time for which one poll keeps the process busy [s], or 0 if it is negligible.
        controller_share: largest possible busy share of a controller's handlers since the start of
            the process [ratio], or None if the broker's handlers have their own metric.
        series: reading → series on the page of an exporter, if the source chose them.
        choices: one clause for each reading that has several series on an exporter's page. The
            clause contains the series that the source chose.
        refused: one clause for each reason why readings are missing although the page shows series
            for these readings.
        rates: readings whose counts are computed from one-minute rates.
        interval_s: time between two samples if a Prometheus server takes them [s], or 0 if the
            source takes a sample at each poll.
        spared_s: minimum time between two samples of a broker with many partitions [s], or 0 if
            there is no minimum.
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
    """Reads the metrics of all brokers. Only one thread may use a source at a time."""

    @property
    def name(self) -> str:
        """Short name for reports, for example `driver-jvm`."""
        ...

    @property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """Node id → the node, for the nodes that `open` found."""
        ...

    def open(self) -> None:
        """Connect to the nodes, read their versions and roles, and choose their readings.

        Raises:
            ConfigError: a node cannot be reached, or its metrics do not suffice to judge a load.
        """
        ...

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node within the deadline. A failed sample has an error."""
        ...

    def close(self) -> None:
        """Close the connections. Further calls have no effect."""
        ...


def named_brokers(ids: Sequence[int]) -> str:
    """A text such as `brokers 1, 2`. If there are many ids, the text lists some ids and the number
    of the other ids.
    """
    return f"{'broker' if len(ids) == 1 else 'brokers'} {format_some(ids, _NAMED_MAX)}"


def brokers_of(source: MetricsSource) -> frozenset[int]:
    """The ids of the brokers of an open source."""
    return frozenset(i for i, node in source.nodes.items() if Role.BROKER in node.roles)


def controllers_of(source: MetricsSource) -> frozenset[int]:
    """The ids of the controllers of an open source."""
    return frozenset(i for i, node in source.nodes.items() if Role.CONTROLLER in node.roles)


def sample_interval_of(source: MetricsSource, asked_s: float) -> float:
    """The time between two samples of an open source [s].

    Args:
        source: the open source.
        asked_s: configured time between two polls [s].
    """
    return max((asked_s, *(node.interval_s for node in source.nodes.values())))


def poll_interval_of(source: MetricsSource, asked_s: float) -> float:
    """The time between two polls of an open source [s]. If another program takes the samples, this
    source is polled several times per sample, so that each new sample is read soon.

    Args:
        source: the open source.
        asked_s: configured time between two polls [s].
    """
    own = [node.interval_s for node in source.nodes.values() if node.interval_s]
    return min(asked_s, min(own) / 8) if own else asked_s


History = Sequence[tuple[float, float]]
"""Pairs of a time [s since the epoch] and a reading's value, oldest first."""


def steps_of(values: History, step_s: float) -> Iterator[tuple[float, float, float]]:
    """(start, end, increase of the counter) of each step between two successive values. Steps with
    a gap or with a restart are omitted.

    Args:
        values: the past values of a counter.
        step_s: planned time between two successive values [s]. There is a gap between two values if
            at least 1.5 times `step_s` passed between them.
    """
    for (start_s, before), (end_s, after) in pairwise(values):
        if after >= before and end_s - start_s < 1.5 * step_s:
            yield start_s, end_s, after - before


@runtime_checkable
class KeepsHistory(Protocol):
    """A source that can also read past values of the readings."""

    def history(
        self, reading: str, from_s: float, to_s: float, step_s: float
    ) -> Mapping[int, History]:
        """Broker id → past values of a reading. See `PrometheusServerSource.history`."""
        ...


PARTITION_S = 3e-6
"""CPU time of a broker for each partition in an answer about all topics [s]."""

LOG_S = 0.5e-6
"""CPU time of a broker for each of its replicas in an answer about its log directories [s]. A
request for no replicas costs as much CPU time as a request for all replicas."""

TOPICS_SHARE_MAX = 0.01
"""Largest share of one core [ratio] that a broker may use during a load to answer requests for all
topics."""

LOG_DIRS_SHARE_MAX = 0.005
"""Largest share of one core [ratio] that a broker may use during a load to answer requests for the
broker's log directories."""

SAMPLE_PARTITION_S = 0.3e-6
"""Estimated CPU time [s] that a sample by JMX costs the broker for each of the broker's partitions.
The reason is that four gauges count the broker's partitions when the gauges are read."""

SAMPLES_SHARE_MAX = 0.0075
"""Largest share of one core [ratio] that a broker with many partitions may spend on the readings of
its partitions."""

END_S = 8e-6
"""CPU time of the driver to request and to read the end offset of one replica [s]."""

ENDS_SHARE_MAX = 0.02
"""Largest share of one core [ratio] that the driver may use to read the end offsets of replicas."""

ENDS_LEAST = 4
"""Minimum number of readings of the end offsets in a window."""

ORDINARY_LINES = 10_000
"""An exporter's page with up to this number of lines counts as the page of a broker with few
partitions."""


def topics_interval_s(partitions: int) -> float:
    """Minimum time between two requests for all topics [s].

    Args:
        partitions: number of partitions of all topics.
    """
    return partitions * PARTITION_S / TOPICS_SHARE_MAX


def log_dirs_interval_s(replicas: int) -> float:
    """Minimum time between two requests to a broker for its log directories [s].

    Args:
        replicas: number of replicas on the broker.
    """
    return replicas * LOG_S / LOG_DIRS_SHARE_MAX


def jmx_interval_s(partitions: int) -> float:
    """Minimum time between two JMX samples of one broker [s].

    Args:
        partitions: number of partitions that the broker leads or follows.
    """
    return partitions * SAMPLE_PARTITION_S / SAMPLES_SHARE_MAX


def scrape_interval_s(took_s: float, lines: int) -> float:
    """Minimum time between two scrapes of an exporter in a broker [s]. A scrape of a broker with
    many partitions takes long, because the exporter reads all beans of the broker, even if a
    request asks for few series.

    Args:
        took_s: duration of a scrape, during which the broker uses CPU [s].
        lines: number of lines of the whole page.
    """
    grown = max(0.0, 1.0 - ORDINARY_LINES / max(1, lines))
    return took_s * grown / SAMPLES_SHARE_MAX


def ends_interval_s(replicas: int, interval_s: float, window_s: float) -> float:
    """Time after which the end offsets of a trial's replicas are read again [s].

    Args:
        replicas: number of replicas on all brokers.
        interval_s: intended time between samples [s].
        window_s: length of the window [s].
    """
    return max(interval_s, min(replicas * END_S / ENDS_SHARE_MAX, window_s / ENDS_LEAST))
