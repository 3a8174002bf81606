"""JMX of many brokers in one JVM, each with a port, a registry and an MBean server.

The beans are those that the product reads from a broker of Kafka 4.2, with Kafka's keys. Counters
grow with the time since the JVM's start, and gauges are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from metrics.sources.beans import PARTITIONS, PROBE, Kind, Role, beans_for
from metrics.sources.source import JmxEndpoint
from tests.support.bare_jvm import bare_jvm
from tests.support.relay import Relay

VERSION = "4.2.0"
PROCESSORS = 3
"""Network threads of a broker, as many as `num.network.threads` is by default."""
_FIRST_PORT = 20_000
_BEHIND_RELAY = "127.0.0.2"
_JAVA = Path(__file__).with_name("SimulatedBrokers.java").read_text(encoding="utf-8")
PER_S = {
    "handler_idle_ns": 6e8,
    "network_wait_ns": 7e8,
    "process_cpu_ns": 1.5e9,
    "uptime_ms": 1e3,
    "gc_ms": 4.0,
}
"""Growth of some counters per second; the others grow by 1,000."""
NOW = {"processors": 16.0, "machine_cpu_share": 0.2, "produce_delayed": 3.0}
"""Gauges that are not 0."""
_STANDS_FOR = {
    "listener=*,networkProcessor=*": [
        f"listener=PLAINTEXT,networkProcessor={each}" for each in range(PROCESSORS)
    ],
    "name=*": ["name=G1 Young Generation", "name=G1 Old Generation", "name=G1 Concurrent GC"],
    "id=*": ["id=NODE_ID"],
    "error=*": ["error=NONE"],
}


def beans_of_a_broker(partitions: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Object name, attribute, `grows` or `is`, and value."""
    for bean in beans_for(VERSION, (Role.BROKER,)):
        for name in _names(bean.object_name):
            if bean.kind is Kind.HISTOGRAM:
                yield name, "Count", "grows", "1000"
                yield name, "Mean", "is", "2.5"
            elif bean.attribute == "HeapMemoryUsage":
                yield name, bean.attribute, "is", "heap 1 2000000000 6000000000 6000000000"
            elif bean.kind is Kind.COUNTER or bean.name in PER_S:
                yield name, bean.attribute, "grows", str(PER_S.get(bean.name, 1000.0))
            else:
                yield name, bean.attribute, "is", str(NOW.get(bean.name, 0.0))
    for reading in (*PROBE, PARTITIONS) if partitions else PROBE:
        if reading.name != "controller":
            value = f"text {VERSION}" if reading.attribute == "Version" else "30.0"
            value = str(partitions) if reading is PARTITIONS else value
            for name in _names(reading.object_name):
                yield name, reading.attribute, "is", value


def _names(pattern: str) -> list[str]:
    for star, stands in _STANDS_FOR.items():
        if pattern.endswith(star):
            return [pattern.removesuffix(star) + each for each in stands]
    return [pattern]


@dataclass(frozen=True)
class SimulatedJmx:
    """The simulated brokers.

    Attributes:
        endpoints: JMX endpoints of the brokers, with ids from 1 on.
        calls: returns the number of calls for attributes of Kafka's beans.
    """

    endpoints: Sequence[JmxEndpoint]
    pid: int
    calls: Callable[[], int]


@contextmanager
def delayed_jmx(count: int, round_trip_s: float) -> Iterator[SimulatedJmx]:
    """The same brokers, whose JMX answers each request after this time [s].

    The JVM listens on another address than the one that its answers name, where a relay listens.
    Connections are made without a delay.
    """
    host = f"-Dredline.simulated.host={_BEHIND_RELAY}"
    with simulated_jmx(count, (host,)) as brokers, ExitStack() as stack:
        for each in brokers.endpoints:
            places = (each.host, each.port), (_BEHIND_RELAY, each.port)
            relay = Relay(*places, round_trip_s=round_trip_s)
            stack.callback(relay.close)
            relay.start()
        yield brokers


@contextmanager
def simulated_jmx(
    count: int, options: tuple[str, ...] = (), others: int = 0
) -> Iterator[SimulatedJmx]:
    """A JVM with this number of brokers.

    Args:
        others: partitions of others on each broker, with beans of their own.
    """
    beans = "\n".join("\t".join(each) for each in beans_of_a_broker(others))
    options = ("-Xmx1g", "-Xss256k", "-Djava.rmi.server.hostname=127.0.0.1", *options)
    with bare_jvm(*options) as (jvm, pid):
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_JAVA)
        brokers = compiler.getClassLoader().loadClass("SimulatedBrokers").newInstance()
        ports = brokers.start(count, _FIRST_PORT, beans, others).split()
        endpoints = [JmxEndpoint(i, "127.0.0.1", int(port)) for i, port in enumerate(ports, 1)]
        yield SimulatedJmx(endpoints, pid, brokers.calls)
        del compiler, brokers
