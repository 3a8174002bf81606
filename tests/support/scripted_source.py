"""A metrics source of scripted brokers, with a clock that advances only in pauses and polls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo


class ScriptedSource:
    """Brokers of Kafka 4.1.2; a subclass in the test adds their samples."""

    name = "scripted"

    def __init__(self, broker_ids: Sequence[int] = (1,), now_s: float = 1_000.0) -> None:
        roles = frozenset({Role.BROKER})
        self.nodes: Mapping[int, NodeInfo] = {i: NodeInfo(i, "4.1.2", roles) for i in broker_ids}
        self.now_s = now_s

    def open(self) -> None: ...

    def close(self) -> None: ...

    def sample_all(self) -> list[BrokerSample]:
        raise NotImplementedError

    def clock(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.now_s += duration_s
