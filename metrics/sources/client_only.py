"""For clusters that show no metrics: only what the Admin API says of the replicas.

What the clients saw and whether the ISR was whole then judge a trial. No reading stands for
the request handlers, so nothing says how near a broker is to its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metrics.common.errors import RedlineError
from metrics.sources.beans import Role, beans_for, readings_of
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo

SHOWN = ("under_replicated_partitions", "leader_partitions", "offline_replicas")
_LACKS = tuple(
    reading.name
    for reading in readings_of(beans_for(0, "4.2", (Role.BROKER,)))
    if reading.name not in SHOWN
)


@dataclass(frozen=True)
class Replicas:
    """What a broker leads and holds.

    Attributes:
        led: partitions that it leads.
        under_replicated: of these, those whose ISR is not whole.
        offline: replicas of it that do not serve.
    """

    led: int
    under_replicated: int
    offline: int


class ClientOnlySource:
    """Samples the replicas through the Admin API.

    Args:
        broker_ids: the brokers to judge.
        look: broker id → its replicas, of one answer of the cluster; may raise RedlineError.
        version: Kafka's version as far as the protocol tells, such as `4.1`.
        close: gives back what `look` uses.
        clock: wall clock [s since the epoch].
    """

    name = "client-only"

    def __init__(
        self,
        broker_ids: tuple[int, ...],
        look: Callable[[], Mapping[int, Replicas]],
        version: str,
        close: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker_ids = broker_ids
        self._look = look
        self._version = version
        self._close = close
        self._clock = clock
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self._look()
        roles = frozenset({Role.BROKER})
        self.nodes = {
            broker: NodeInfo(broker, self._version, roles, lacks=_LACKS)
            for broker in self._broker_ids
        }

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        began_s = self._clock()
        try:
            seen = self._look()
        except RedlineError as error:
            now_s = self._clock()
            return [BrokerSample(broker, now_s, error=str(error)) for broker in self._broker_ids]
        at_s = (began_s + self._clock()) / 2
        nothing = Replicas(0, 0, 0)
        return [
            BrokerSample(broker, at_s, _values(seen.get(broker, nothing)))
            for broker in self._broker_ids
        ]

    def close(self) -> None:
        """See `MetricsSource.close`."""
        self._close()


def _values(replicas: Replicas) -> dict[str, float]:
    return {
        "under_replicated_partitions": float(replicas.under_replicated),
        "leader_partitions": float(replicas.led),
        "offline_replicas": float(replicas.offline),
    }
