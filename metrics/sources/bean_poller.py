"""A source that polls the beans of each node by requests, such as `jmxquery` or Jolokia.

A subclass states how the beans of one node are read; this class knows which beans make up a
sample, and what a node must show.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from metrics.common.errors import ConfigError
from metrics.sources.beans import AT_START, NODE, Reading, with_own_idle
from metrics.sources.driver_jvm import OPEN_DEADLINE_S, brief, node_info, readings_for, with_lacks
from metrics.sources.exposition import numbers
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint, NodeInfo

Address = TypeVar("Address", bound=Endpoint)


class PollError(Exception):
    """One poll of one broker failed, for the reason in the text."""


@dataclass(frozen=True)
class BeanValue:
    """The value of an attribute of a bean, as a node answered it.

    Attributes:
        bean: object name; its keys may be in any order.
        attribute: name of the attribute.
        value: a number or a text; None if it is not known.
        key: item of a composite attribute; None for a simple one.
    """

    bean: str
    attribute: str
    value: Any
    key: str | None = None


def parse_object_name(text: str) -> tuple[str, dict[str, str]]:
    """Domain and key properties of a JMX object name without quoted values."""
    domain, _, properties = text.partition(":")
    return domain, dict(pair.split("=", 1) for pair in properties.split(","))


def _matches(reading: Reading, bean: str) -> str | None:
    """The reading's full name when `bean` is one of its beans, else None."""
    domain, asked = parse_object_name(reading.object_name)
    bean_domain, given = parse_object_name(bean)
    if domain != bean_domain or asked.keys() != given.keys():
        return None
    if any(value not in ("*", given[key]) for key, value in asked.items()):
        return None
    wild = [given[key] for key, value in asked.items() if value == "*"]
    return f"{reading.name}:{'/'.join(wild)}" if wild else reading.name


def match_values(readings: Iterable[Reading], values: Iterable[BeanValue]) -> dict[str, Any]:
    """Reading → its value, from all attributes and items that a node answered."""
    readings = tuple(readings)
    by_attribute: dict[tuple[str, str | None], list[Reading]] = {}
    for reading in readings:
        by_attribute.setdefault((reading.attribute, reading.key), []).append(reading)
    given = {}
    for each in values:
        for reading in by_attribute.get((each.attribute, each.key), ()):
            name = _matches(reading, each.bean)
            if name is not None and each.value is not None:
                given[reading, name] = each.value
    # Of two names of an attribute the last in the plan is preferred.
    rank = {reading: place for place, reading in enumerate(readings)}
    return {name: given[reading, name] for reading, name in sorted(given, key=lambda k: rank[k[0]])}


class BeanPoller(ABC, Generic[Address]):
    """A `MetricsSource` that reads all beans of a node in one poll.

    Args:
        endpoints: the nodes to read, controllers included where known.
        deadline_s: time after which a node's sample counts as missed [s].
        clock: wall clock [s since the epoch].

    Attributes:
        name: short name for reports.
    """

    name: str

    def __init__(
        self,
        endpoints: Sequence[Address],
        deadline_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoints = endpoints
        self._deadline_s = deadline_s
        self._clock = clock
        self._readings: dict[int, tuple[Reading, ...]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.nodes: Mapping[int, NodeInfo] = {}

    @abstractmethod
    def poll(
        self, endpoint: Address, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterable[BeanValue]:
        """Read beans of one node; called from a thread for each node.

        Args:
            beans: object name, with `*` for any value of a key → its attributes. A composite
                attribute is answered with all of its items; beans and attributes that the node
                does not have are left out.
            timeout_s: time after which the answer is too late [s].

        Raises:
            PollError: the node did not answer.
        """

    @abstractmethod
    def unreachable(self, endpoint: Address, error: str) -> ConfigError:
        """The error for a node that does not answer when the source is opened, with its remedy."""

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self._threads = ThreadPoolExecutor(len(self._endpoints), f"redline-{self.name}")
        try:
            self.nodes = dict(self._threads.map(self._probe, self._endpoints))
            self._readings = {node.node_id: readings_for(node) for node in self.nodes.values()}
            self.nodes = dict(self._threads.map(self._with_lacks, self._endpoints))
        except BaseException:
            self.close()
            raise

    def _probe(self, endpoint: Address) -> tuple[int, NodeInfo]:
        try:
            values = self._read(endpoint, AT_START, OPEN_DEADLINE_S)
        except PollError as error:
            raise self.unreachable(endpoint, str(error)) from error
        return endpoint.node_id, node_info(endpoint, {k: str(v) for k, v in values.items()})

    def _with_lacks(self, endpoint: Address) -> tuple[int, NodeInfo]:
        sample = self._sample(endpoint, OPEN_DEADLINE_S)
        if sample.error is not None:
            raise self.unreachable(endpoint, sample.error)
        return endpoint.node_id, with_lacks(self.nodes[endpoint.node_id], sample.values)

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        if self._threads is None:
            raise RuntimeError("the source is not open")
        deadlines = [self._deadline_s] * len(self._endpoints)
        return list(self._threads.map(self._sample, self._endpoints, deadlines))

    def _sample(self, endpoint: Address, deadline_s: float) -> BrokerSample:
        try:
            readings = (NODE, *self._readings[endpoint.node_id])
            values = self._read(endpoint, readings, deadline_s)
        except PollError as error:
            return BrokerSample(endpoint.node_id, self._clock(), error=brief(str(error)))
        # Each poll has a connection of its own, which may lead to another node.
        ids = [name.partition(":")[2] for name in values if name.startswith(f"{NODE.name}:")]
        if ids and str(endpoint.node_id) not in ids:
            other = f"node {', '.join(ids)} answers at {endpoint.address}"
            return BrokerSample(endpoint.node_id, self._clock(), error=other)
        values = {name: value for name, value in values.items() if not name.startswith(NODE.name)}
        at_s = self._clock()
        return BrokerSample(endpoint.node_id, at_s, with_own_idle(numbers(values), at_s))

    def _read(
        self, endpoint: Address, readings: Sequence[Reading], timeout_s: float
    ) -> dict[str, Any]:
        beans: dict[str, list[str]] = {}
        for name, attribute in dict.fromkeys((r.object_name, r.attribute) for r in readings):
            beans.setdefault(name, []).append(attribute)
        return match_values(readings, self.poll(endpoint, beans, timeout_s))

    def close(self) -> None:
        """See `MetricsSource.close`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
