"""Sources that read JMX beans of nodes, over JMX, Jolokia or another protocol.

The base class chooses the beans of a sample, and checks that a node shows the required beans. A
subclass reads either the beans of all nodes at once, or the beans of each node by one request.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.sources.beans import (
    ARGUMENTS,
    AT_START,
    FACTS,
    FROM_FIRST_USE,
    HANDLER_IDLE_NS,
    NODE,
    PARTITIONS,
    QUORUM,
    Reading,
    Role,
    beans_for,
    controller_share,
    readings_of,
    with_own_idle,
)
from metrics.sources.exposition import numbers
from metrics.sources.sample import BrokerSample, parts_of
from metrics.sources.source import OPEN_DEADLINE_S, Endpoint, NodeInfo, jmx_interval_s

Address = TypeVar("Address", bound=Endpoint)


_HARMLESS = re.compile(r"-X(?:m[nsx]|ss)\d+[kmgtKMGT]?|-XX:[+-]\w+|-XX:\w+=[\d.]+[kmgtKMGT%]?")
OPEN_EACH_S = 0.05
"""The deadline of the first answers leaves at least this much time for each node [s]."""


def brief(error: str) -> str:
    """The innermost cause in the text of a Java exception, on one line.

    RMI nests up to four exceptions in one message. The last exception contains the cause.
    """
    last = " ".join(error.split()).rsplit("nested exception is:", 1)[-1].strip(" ]\"'}")
    return last.removeprefix("java.net.").removeprefix("java.io.")


def node_info(endpoint: Endpoint, values: Mapping[str, str]) -> NodeInfo:
    """The node at an endpoint.

    Args:
        endpoint: the endpoint, with the expected node id.
        values: name of a reading in `metrics.sources.beans.AT_START` → the node's answer.

    Raises:
        ConfigError: the process is not a Kafka node, or has another node id than expected.
    """
    versions = {
        name.partition(":")[2]: text for name, text in values.items() if name.startswith("version:")
    }
    if not versions:
        raise ConfigError(
            f"the JVM at {endpoint.address} is not a running Kafka broker, because it has no "
            f"kafka.server:type=app-info bean; expected broker {endpoint.node_id}; "
            f"correct jmx.endpoints of the cluster's file in conf/clusters"
        )
    if str(endpoint.node_id) not in versions:
        found = ", ".join(sorted(versions))
        raise ConfigError(
            f"JMX at {endpoint.address} answers as node {found}, expected node "
            f"{endpoint.node_id}; correct jmx.endpoints of the cluster's file in conf/clusters"
        )
    roles = frozenset(role for role in Role if role.value in values)
    facts = {fact.name: values[fact.name] for fact in FACTS if fact.name in values}
    if ARGUMENTS in facts:
        facts[ARGUMENTS] = harmless_arguments(facts[ARGUMENTS])
    version = versions[str(endpoint.node_id)]
    return NodeInfo(
        endpoint.node_id,
        version,
        roles,
        facts,
        has_quorum=QUORUM in values,
        spared_s=jmx_interval_s(int(numbers(values).get(PARTITIONS.name, 0))),
    )


def readings_for(node: NodeInfo) -> tuple[Reading, ...]:
    """The readings that exist for a node's release and roles."""
    return readings_of(beans_for(node.version, node.roles, has_quorum=node.has_quorum))


def with_lacks(node: NodeInfo, values: Mapping[str, float]) -> NodeInfo:
    """The node, with `lacks` and `controller_share` set according to the node's first sample.

    Args:
        node: the node.
        values: readings of the first sample, computed readings included.

    Raises:
        ConfigError: a broker does not show the idle time of its request handlers.
    """
    if Role.BROKER in node.roles and HANDLER_IDLE_NS not in values:
        raise ConfigError(
            f"broker {node.node_id}, Kafka {node.version}, does not show the idle time of its "
            f"request handlers over JMX (Count of RequestHandlerAvgIdlePercent), which is required "
            f"to recognize an overload; check the broker's log, or set metrics.client_only: true"
        )
    have = {*FROM_FIRST_USE, *(name.partition(":")[0] for name in values)}
    lacks = tuple(dict.fromkeys(r.name for r in readings_for(node) if r.name not in have))
    return replace(node, lacks=lacks, controller_share=controller_share(values))


def harmless_arguments(text: str) -> str:
    """The JVM's arguments for memory, garbage collection and compilation, sorted.

    The result omits system properties and the options of agents, because they may contain secrets.
    The result also omits commands and paths, because they do not affect the speed of a broker.
    """
    given = (word.strip("[], ") for word in text.split(", "))
    return " ".join(sorted({word for word in given if _HARMLESS.fullmatch(word)}))


class PollError(Exception):
    """One poll of one broker failed. The text has the reason."""


@dataclass(frozen=True)
class BeanValue:
    """The value of a bean's attribute in the answer of a node.

    Attributes:
        bean: object name, with its keys in any order.
        attribute: name of the attribute.
        value: a number or a text, or None if the value is not known.
        key: item of a composite attribute, or None for a simple attribute.
    """

    bean: str
    attribute: str
    value: Any
    key: str | None = None


def parse_object_name(text: str) -> tuple[str, dict[str, str]]:
    """The domain and the key properties of a JMX object name. Quoted values are not supported."""
    domain, _, properties = text.partition(":")
    return domain, dict(pair.split("=", 1) for pair in properties.split(","))


def _matches(reading: Reading, bean: str) -> str | None:
    """The reading's full name, or None if `bean` is not a bean of the reading."""
    domain, asked = parse_object_name(reading.object_name)
    bean_domain, given = parse_object_name(bean)
    if domain != bean_domain or asked.keys() != given.keys():
        return None
    if any(value not in ("*", given[key]) for key, value in asked.items()):
        return None
    wild = [given[key] for key, value in asked.items() if value == "*"]
    return f"{reading.name}:{'/'.join(wild)}" if wild else reading.name


def match_values(readings: Iterable[Reading], values: Iterable[BeanValue]) -> dict[str, Any]:
    """Name of a reading → its value, from all attributes and items in a node's answer."""
    by_attribute = grouped(((each.attribute, each.key), each) for each in values)
    found = {}
    for reading in readings:  # if an attribute has two names, the last reading is preferred
        for each in by_attribute.get((reading.attribute, reading.key), ()):
            name = _matches(reading, each.bean)
            if name is not None and each.value is not None:
                found[name] = each.value
    return found


@dataclass(frozen=True)
class BeanAnswer:
    """The answer of one node.

    Attributes:
        node_id: node id.
        at_s: time of the answer [s since the epoch].
        error: reason why there are no values, or None.
        values: name of a reading → its value.
    """

    node_id: int
    at_s: float
    error: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def readings(self) -> dict[str, float]:
        """The numeric readings of a sample, computed readings included."""
        return with_own_idle(numbers(self.values), self.at_s)


class BeanSource(ABC, Generic[Address]):
    """A `MetricsSource` that reads JMX beans. The release and the roles of a node decide which
    beans are read.

    Args:
        endpoints: the nodes to read, and the controllers if they are known.
        deadline_s: time after which a node's sample counts as missing [s].

    Attributes:
        name: short name for reports.
    """

    name: str

    def __init__(self, endpoints: Sequence[Address], deadline_s: float) -> None:
        self._endpoints = endpoints
        self._deadline_s = deadline_s
        self.nodes: Mapping[int, NodeInfo] = {}

    @abstractmethod
    def unreachable(self, endpoint: Address, error: str) -> ConfigError:
        """The error for a node that does not answer `open`, with a remedy."""

    @abstractmethod
    def _connect(self) -> None:
        """Prepare polls of all nodes."""

    @abstractmethod
    def _plan(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        """Set the readings that each node must return in all later answers."""

    @abstractmethod
    def _answers(self, deadline_s: float) -> Sequence[BeanAnswer]:
        """The answer of each node, in the order of the endpoints."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""

    def open(self) -> None:
        """Connect to the nodes, as `MetricsSource.open` describes."""
        try:
            self._connect()
            self._plan({each.node_id: AT_START for each in self._endpoints})
            self.nodes = {
                endpoint.node_id: node_info(endpoint, {k: str(v) for k, v in answer.values.items()})
                for endpoint, answer in self._first_answers()
            }
            self._plan({node_id: readings_for(node) for node_id, node in self.nodes.items()})
            self.nodes = {
                endpoint.node_id: with_lacks(self.nodes[endpoint.node_id], answer.readings)
                for endpoint, answer in self._first_answers()
            }
        except BaseException:
            self.close()
            raise

    def _first_answers(self) -> Iterator[tuple[Address, BeanAnswer]]:
        """The answer of each node within the deadline of `open`. If a node does not answer, a
        ConfigError is raised.
        """
        deadline_s = max(OPEN_DEADLINE_S, OPEN_EACH_S * len(self._endpoints))
        for endpoint, answer in zip(self._endpoints, self._answers(deadline_s), strict=True):
            if answer.error is not None:
                raise self.unreachable(endpoint, answer.error)
            yield endpoint, answer

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node, as `MetricsSource.sample_all` describes."""
        return [
            BrokerSample(each.node_id, each.at_s, each.readings, each.error)
            for each in self._answers(self._deadline_s)
        ]


class BeanPoller(BeanSource[Address]):
    """A `MetricsSource` that reads all beans of a node in one request.

    Args:
        endpoints, deadline_s: see `BeanSource`.
        clock: wall clock [s since the epoch].
    """

    def __init__(
        self,
        endpoints: Sequence[Address],
        deadline_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(endpoints, deadline_s)
        self._clock = clock
        self._readings: Mapping[int, Sequence[Reading]] = {}
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def poll(
        self, endpoint: Address, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterable[BeanValue]:
        """Read beans of one node. Each node has a separate thread.

        Args:
            endpoint: the node.
            beans: object name → attributes to read. A key with the value `*` matches any value.
            timeout_s: time after which the answer is too late [s].

        Returns:
            The values of the attributes. A composite attribute has one value for each of its items.
            The result has no values for missing beans and attributes.

        Raises:
            PollError: the node did not answer.
        """

    def _connect(self) -> None:
        self._threads = ThreadPoolExecutor(len(self._endpoints), f"redline-{self.name}")

    def _plan(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        self._readings = readings

    def _answers(self, deadline_s: float) -> list[BeanAnswer]:
        if self._threads is None:
            raise RuntimeError("the source is not open")
        deadlines = [deadline_s] * len(self._endpoints)
        return list(self._threads.map(self._answer, self._endpoints, deadlines))

    def _answer(self, endpoint: Address, deadline_s: float) -> BeanAnswer:
        node_id, is_sample = endpoint.node_id, bool(self.nodes)
        readings = self._readings[node_id]
        try:
            values = self._read(endpoint, (NODE, *readings) if is_sample else readings, deadline_s)
        except PollError as error:
            text = brief(str(error)) if is_sample else str(error)
            return BeanAnswer(node_id, self._clock(), text)
        if is_sample:
            # Each poll has a separate connection, which may lead to another node.
            ids = parts_of(values, NODE.name)
            if ids and str(node_id) not in ids:
                other = f"node {', '.join(ids)} answers at {endpoint.address}"
                return BeanAnswer(node_id, self._clock(), other)
            values = {name: each for name, each in values.items() if not name.startswith(NODE.name)}
        return BeanAnswer(node_id, self._clock(), values=values)

    def _read(
        self, endpoint: Address, readings: Sequence[Reading], timeout_s: float
    ) -> dict[str, Any]:
        beans = grouped(dict.fromkeys((r.object_name, r.attribute) for r in readings))
        return match_values(readings, self.poll(endpoint, beans, timeout_s))

    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
