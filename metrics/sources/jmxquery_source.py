"""Broker metrics through the `jmxquery` package, where the driver has no JVM.

Each poll of a broker starts a JVM (about 0.35 s, 0.4 core-seconds), so one call reads everything
of a broker, and the interval between samples is some seconds.
"""

from __future__ import annotations

import logging
import math
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jmxquery

from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.beans import FACTS, NODE, PROBE, Reading
from metrics.sources.driver_jvm import OPEN_DEADLINE_S
from metrics.sources.jmxquery_program import ask
from metrics.sources.probe import brief, node_info, readings_for, unreachable, with_lacks
from metrics.sources.sample import BrokerSample
from metrics.sources.shared_handlers import with_own_idle
from metrics.sources.source import JmxEndpoint, NodeInfo

# Its errors are in exceptions and samples; its log would repeat them on the console.
logging.getLogger("jmxquery").setLevel(logging.CRITICAL)


class PollError(Exception):
    """One poll of one broker failed, for the reason in the text."""


def parse_object_name(text: str) -> tuple[str, dict[str, str]]:
    """Domain and key properties of a JMX object name without quoted values."""
    domain, _, properties = text.partition(":")
    return domain, dict(pair.split("=", 1) for pair in properties.split(","))


def _matches(reading: Reading, bean: str) -> str | None:
    """The reading's full name when `bean` is one of its beans, else None.

    JMXQuery returns names with their keys in another order than in the query.
    """
    domain, asked = parse_object_name(reading.object_name)
    bean_domain, given = parse_object_name(bean)
    if domain != bean_domain or asked.keys() != given.keys():
        return None
    if any(value not in ("*", given[key]) for key, value in asked.items()):
        return None
    wild = [given[key] for key, value in asked.items() if value == "*"]
    return f"{reading.name}:{'/'.join(wild)}" if wild else reading.name


def match_values(readings: Iterable[Reading], results: Iterable[Any]) -> dict[str, Any]:
    """Reading → its value in JMXQuery's results.

    The results have the names of beans and attributes, and all items of a composite attribute.
    """
    readings = tuple(readings)
    by_attribute: dict[tuple[str, str | None], list[Reading]] = {}
    for reading in readings:
        by_attribute.setdefault((reading.attribute, reading.key), []).append(reading)
    given = {}
    for result in results:
        for reading in by_attribute.get((result.attribute, result.attributeKey), ()):
            name = _matches(reading, result.mBeanName)
            if name is not None and result.value is not None:
                given[reading, name] = result.value
    # Of two names of an attribute the last in the plan is preferred.
    rank = {reading: place for place, reading in enumerate(readings)}
    return {name: given[reading, name] for reading, name in sorted(given, key=lambda k: rank[k[0]])}


class JmxQuerySource:
    """JMX through one new JVM for each broker and sample.

    Args:
        endpoints: the nodes to read, controllers included where known.
        deadline_s: time after which a node's sample counts as missed [s].
        java: path or name of the `java` command.
        clock: wall clock [s since the epoch].
        access: the login for JMX; None when it is open.

    Raises:
        ConfigError: JMX speaks TLS, which the package's program does not support.
    """

    name = "jmxquery"

    def __init__(
        self,
        endpoints: Sequence[JmxEndpoint],
        deadline_s: float,
        java: str = "java",
        clock: Callable[[], float] = time.time,
        access: JmxAccess | None = None,
    ) -> None:
        if access is not None and access.is_tls:
            raise ConfigError(
                "JMX with TLS is read through the driver's own JVM, and this Spark session has "
                "none (Spark Connect or serverless); expected jmx.tls: false, "
                "metrics.prometheus, or a session with a JVM"
            )
        self._access = access
        self._endpoints = endpoints
        self._deadline_s = deadline_s
        self._java = java
        self._clock = clock
        self._readings: dict[int, tuple[Reading, ...]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self._threads = ThreadPoolExecutor(len(self._endpoints), "redline-jmxquery")
        try:
            self.nodes = dict(self._threads.map(self._probe, self._endpoints))
            self._readings = {node.node_id: readings_for(node) for node in self.nodes.values()}
            self.nodes = dict(self._threads.map(self._with_lacks, self._endpoints))
        except BaseException:
            self.close()
            raise

    def _probe(self, endpoint: JmxEndpoint) -> tuple[int, NodeInfo]:
        try:
            values = self._query(endpoint, (*PROBE, *FACTS), OPEN_DEADLINE_S)
        except PollError as error:
            raise unreachable(endpoint, str(error)) from error
        return endpoint.node_id, node_info(endpoint, {k: str(v) for k, v in values.items()})

    def _with_lacks(self, endpoint: JmxEndpoint) -> tuple[int, NodeInfo]:
        sample = self._sample(endpoint, OPEN_DEADLINE_S)
        if sample.error is not None:
            raise unreachable(endpoint, sample.error)
        return endpoint.node_id, with_lacks(self.nodes[endpoint.node_id], sample.values)

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        if self._threads is None:
            raise RuntimeError("the source is not open")
        deadlines = [self._deadline_s] * len(self._endpoints)
        return list(self._threads.map(self._sample, self._endpoints, deadlines))

    def _sample(self, endpoint: JmxEndpoint, deadline_s: float) -> BrokerSample:
        try:
            readings = (NODE, *self._readings[endpoint.node_id])
            values = self._query(endpoint, readings, deadline_s)
        except PollError as error:
            return BrokerSample(endpoint.node_id, self._clock(), error=brief(str(error)))
        # Each poll has a connection of its own, which may lead to another node.
        ids = [name.partition(":")[2] for name in values if name.startswith(f"{NODE.name}:")]
        if ids and str(endpoint.node_id) not in ids:
            other = f"node {', '.join(ids)} answers at {endpoint.address}"
            return BrokerSample(endpoint.node_id, self._clock(), error=other)
        values = {name: value for name, value in values.items() if not name.startswith(NODE.name)}
        # The call is mostly the start of the JVM, which reads the values in its last milliseconds.
        at_s = self._clock()
        parsed = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in parsed.items() if math.isfinite(value)}
        return BrokerSample(endpoint.node_id, at_s, with_own_idle(finite, at_s))

    def _query(
        self, endpoint: JmxEndpoint, readings: Sequence[Reading], timeout_s: float
    ) -> dict[str, Any]:
        # A key in the query makes JMXQuery send it twice and return all items each time.
        attributes = dict.fromkeys((r.object_name, r.attribute) for r in readings)
        queries = [jmxquery.JMXQuery(bean, attribute) for bean, attribute in attributes]
        connection = jmxquery.JMXConnection(endpoint.url, java_path=self._java)
        try:
            results = ask(connection, queries, self._access, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise PollError(f"no answer within {timeout_s:g} s") from error
        except subprocess.CalledProcessError as error:
            output = error.stdout or error.stderr or b""
            raise PollError(output.decode(errors="replace").strip()) from error
        except FileNotFoundError as error:
            raise PollError(f"{self._java!r} is not on the PATH; install Java 17") from error
        except ValueError as error:  # JSON that is cut off
            raise PollError(f"no answer within {timeout_s:g} s") from error
        if not results:
            raise PollError(f"no answer within {timeout_s:g} s")
        return match_values(readings, results)

    def close(self) -> None:
        """See `MetricsSource.close`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
