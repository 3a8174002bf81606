"""Sources that read the beans of nodes, over JMX, Jolokia or the like.

The base class knows which beans make up a sample, and what a node must show; a subclass states how
beans are read: all nodes at once, or each node by a request.

The first answer of a process: its version, node id and roles, or the reason why not.
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
"""Least time in that deadline for the connection to each node [s]."""


def brief(error: str) -> str:
    """The innermost cause of a Java exception's text, on one line.

    RMI nests up to four exceptions in one message; the last names the cause.
    """
    last = " ".join(error.split()).rsplit("nested exception is:", 1)[-1].strip(" ]\"'}")
    return last.removeprefix("java.net.").removeprefix("java.io.")


def node_info(endpoint: Endpoint, values: Mapping[str, str]) -> NodeInfo:
    """The node behind an endpoint, from the answers to `metrics.sources.beans.AT_START`.

    Raises:
        ConfigError: the process is not a Kafka node, or has another node id than expected.
    """
    versions = {
        name.partition(":")[2]: text for name, text in values.items() if name.startswith("version:")
    }
    if not versions:
        raise ConfigError(
            f"the JVM at {endpoint.address} is not a running Kafka broker: it has no "
            f"kafka.server:type=app-info bean. Expected broker {endpoint.node_id} there; "
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
    """The numbers to read from a node."""
    return readings_of(beans_for(node.version, node.roles, has_quorum=node.has_quorum))


def with_lacks(node: NodeInfo, values: Mapping[str, float]) -> NodeInfo:
    """The node with the readings that its release lacks, from its first sample.

    Args:
        values: the readings of that sample, with the derived ones.

    Raises:
        ConfigError: a broker does not show the idle time of its request handlers.
    """
    if Role.BROKER in node.roles and HANDLER_IDLE_NS not in values:
        raise ConfigError(
            f"broker {node.node_id}, Kafka {node.version}, does not show the idle time of its "
            f"request handlers over JMX (Count of RequestHandlerAvgIdlePercent), which is required "
            f"to recognize an overload; check its log, or set metrics.client_only: true"
        )
    have = {*FROM_FIRST_USE, *(name.partition(":")[0] for name in values)}
    lacks = tuple(dict.fromkeys(r.name for r in readings_for(node) if r.name not in have))
    return replace(node, lacks=lacks, controller_share=controller_share(values))


def harmless_arguments(text: str) -> str:
    """The JVM's arguments about memory, garbage collection and compilation, sorted.

    All others are left out: a system property or an agent's options may contain a secret, and a
    command or a path does not affect the speed.
    """
    given = (word.strip("[], ") for word in text.split(", "))
    return " ".join(sorted({word for word in given if _HARMLESS.fullmatch(word)}))


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


@dataclass(frozen=True)
class BeanAnswer:
    """The values that a node answered, or the reason why there are none."""

    node_id: int
    at_s: float
    error: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def readings(self) -> dict[str, float]:
        """The readings of a sample, derived ones included."""
        return with_own_idle(numbers(self.values), self.at_s)


class BeanSource(ABC, Generic[Address]):
    """A `MetricsSource` that reads the beans of each node by its release and roles.

    Args:
        endpoints: the nodes to read, controllers included where known.
        deadline_s: time after which a node's sample counts as missed [s].

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
        """The error for a node that does not answer when the source is opened, with its remedy."""

    @abstractmethod
    def _connect(self) -> None:
        """Prepare polls of all nodes."""

    @abstractmethod
    def _plan(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        """Read these readings of each node from now on."""

    @abstractmethod
    def _answers(self, deadline_s: float) -> Sequence[BeanAnswer]:
        """The answer of each node, in the order of the endpoints."""

    @abstractmethod
    def close(self) -> None:
        """See `MetricsSource.close`."""

    def open(self) -> None:
        """See `MetricsSource.open`."""
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
        """The answer of each node to its plan, within the deadline of the opening."""
        deadline_s = max(OPEN_DEADLINE_S, OPEN_EACH_S * len(self._endpoints))
        for endpoint, answer in zip(self._endpoints, self._answers(deadline_s), strict=True):
            if answer.error is not None:
                raise self.unreachable(endpoint, answer.error)
            yield endpoint, answer

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        return [
            BrokerSample(each.node_id, each.at_s, each.readings, each.error)
            for each in self._answers(self._deadline_s)
        ]


class BeanPoller(BeanSource[Address]):
    """A `MetricsSource` that reads all beans of a node in one request.

    Args:
        endpoints, deadline_s: as in `BeanSource`.
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
        """Read beans of one node; called from a thread for each node.

        Args:
            beans: object name, with `*` for any value of a key → its attributes. A composite
                attribute is answered with all of its items; beans and attributes that the node
                does not have are left out.
            timeout_s: time after which the answer is too late [s].

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
            # Each poll has a connection of its own, which may lead to another node.
            ids = parts_of(values, NODE.name)
            if ids and str(node_id) not in ids:
                other = f"node {', '.join(ids)} answers at {endpoint.address}"
                return BeanAnswer(node_id, self._clock(), other)
            values = {name: each for name, each in values.items() if not name.startswith(NODE.name)}
        return BeanAnswer(node_id, self._clock(), values=values)

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
