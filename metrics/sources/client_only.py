"""A source for clusters without metrics. The source reads the state of the replicas with the Admin
API.

On a cluster without metrics, the clients' figures and the ISR decide the verdict of a trial. The
source does not read the request handlers, so it is unknown how close a broker is to its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from metrics.common.errors import RedlineError
from metrics.sources.beans import Role, beans_for, readings_of
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo, topics_interval_s


@dataclass(frozen=True)
class Replicas:
    """The counts of a broker's replicas. The fields have the names of the readings.

    Attributes:
        leader_partitions: partitions that the broker leads.
        under_replicated_partitions: partitions that the broker leads and that have a replica out of
            sync.
        offline_replicas: replicas of the broker that are offline.
    """

    leader_partitions: int = 0
    under_replicated_partitions: int = 0
    offline_replicas: int = 0


_LACKS = tuple(
    reading.name
    for reading in readings_of(beans_for("4.2", (Role.BROKER,)))
    if not hasattr(Replicas, reading.name)
)


class ClientOnlySource:
    """Takes samples of the brokers' replicas with the Admin API.

    Args:
        broker_ids: ids of the brokers to judge.
        query_replicas: returns broker id → counts of its replicas, or raises a RedlineError.
        version: the part of Kafka's version that the protocol shows, such as `4.1`.
        close: closes the connection of `query_replicas`.
    """

    name = "client-only"

    def __init__(
        self,
        broker_ids: tuple[int, ...],
        query_replicas: Callable[[], Mapping[int, Replicas]],
        version: str,
        close: Callable[[], None],
    ) -> None:
        self._broker_ids = broker_ids
        self._query_replicas = query_replicas
        self._version = version
        self._close = close
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """Connect to the nodes, as `MetricsSource.open` describes."""
        partitions = sum(each.leader_partitions for each in self._query_replicas().values())
        roles, spared_s = frozenset({Role.BROKER}), topics_interval_s(partitions)
        self.nodes = {
            broker: NodeInfo(broker, self._version, roles, lacks=_LACKS, spared_s=spared_s)
            for broker in self._broker_ids
        }

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node, as `MetricsSource.sample_all` describes."""
        began_s = time.time()
        try:
            found = self._query_replicas()
        except RedlineError as error:
            now_s = time.time()
            return [BrokerSample(broker, now_s, error=str(error)) for broker in self._broker_ids]
        at_s = (began_s + time.time()) / 2
        return [
            BrokerSample(broker, at_s, asdict(found.get(broker, Replicas())))
            for broker in self._broker_ids
        ]

    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""
        self._close()
