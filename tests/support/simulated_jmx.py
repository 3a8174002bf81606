"""JMX of many brokers in one JVM, each with a port, a registry and an MBean server.

The beans are those that the product reads from a broker of Kafka 4.2, with Kafka's keys. Counters
grow with the time since the JVM's start, and gauges are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from metrics.sources.beans import PARTITIONS, PROBE, Kind, Role, beans_for
from metrics.sources.source import JmxEndpoint
from tests.bench.sampling import bare_jvm
from tests.support.relay import Relay

VERSION = "4.2.0"
PROCESSORS = 3
"""Network threads of a broker, as many as `num.network.threads` is by default."""
_FIRST_PORT = 20_000
_BEHIND_RELAY = "127.0.0.2"
_JAVA = r"""
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.rmi.registry.LocateRegistry;
import java.rmi.server.RMIServerSocketFactory;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.*;
import javax.management.openmbean.*;
import javax.management.remote.*;

public class SimulatedBrokers {
    static final long BEGAN_NS = System.nanoTime();
    static final String LOOPBACK = System.getProperty("redline.simulated.host", "127.0.0.1");
    static final AtomicLong CALLS = new AtomicLong();

    /** Number of calls for attributes of Kafka's beans; beans of Java are read all the time. */
    public static long calls() {
        return CALLS.get();
    }

    public static class OnLoopback implements RMIServerSocketFactory {
        public ServerSocket createServerSocket(int port) throws IOException {
            return new ServerSocket(port, 128, InetAddress.getByName(LOOPBACK));
        }
    }

    /** Attributes that are constant, or grow at a constant rate. */
    public static class Simulated implements DynamicMBean {
        private final Map perSecond = new HashMap();
        private final Map constants = new HashMap();
        private final boolean isKafkas;

        Simulated(String name) {
            isKafkas = name.startsWith("kafka.");
        }

        public Object getAttribute(String name) throws AttributeNotFoundException {
            count();
            return valueOf(name);
        }

        private void count() {
            if (isKafkas) {
                CALLS.incrementAndGet();
            }
        }

        private Object valueOf(String name) throws AttributeNotFoundException {
            if (constants.containsKey(name)) {
                return constants.get(name);
            }
            if (!perSecond.containsKey(name)) {
                throw new AttributeNotFoundException(name);
            }
            double seconds = (System.nanoTime() - BEGAN_NS) / 1e9 + 3600.0;
            double rate = ((Double) perSecond.get(name)).doubleValue();
            return Long.valueOf((long) (rate * seconds));
        }

        public AttributeList getAttributes(String[] names) {
            count();
            AttributeList found = new AttributeList();
            for (int i = 0; i < names.length; i++) {
                try {
                    found.add(new Attribute(names[i], valueOf(names[i])));
                } catch (AttributeNotFoundException e) {
                    // JMX leaves out what it does not have.
                }
            }
            return found;
        }

        public void setAttribute(Attribute attribute) {
            throw new UnsupportedOperationException();
        }

        public AttributeList setAttributes(AttributeList attributes) {
            throw new UnsupportedOperationException();
        }

        public Object invoke(String name, Object[] given, String[] types) {
            throw new UnsupportedOperationException();
        }

        public MBeanInfo getMBeanInfo() {
            return new MBeanInfo("Simulated", "", null, null, null, null);
        }
    }

    static Object constant(String text) throws Exception {
        if (text.startsWith("text ")) {
            return text.substring(5);
        }
        if (text.startsWith("heap ")) {
            String[] keys = new String[] {"init", "used", "committed", "max"};
            OpenType[] types = new OpenType[4];
            Object[] values = new Object[4];
            String[] part = text.substring(5).split(" ");
            for (int i = 0; i < 4; i++) {
                types[i] = SimpleType.LONG;
                values[i] = Long.valueOf(part[i]);
            }
            return new CompositeDataSupport(
                new CompositeType("MemoryUsage", "heap", keys, keys, types), keys, values);
        }
        return Double.valueOf(text);
    }

    /** Registers beans: lines of object name, attribute, `grows` or `is`, and value. */
    static void fill(MBeanServer server, String beans, int nodeId) throws Exception {
        Map made = new LinkedHashMap();
        String[] lines = beans.replace("NODE_ID", String.valueOf(nodeId)).split("\n");
        for (int i = 0; i < lines.length; i++) {
            String[] part = lines[i].split("\t");
            Simulated bean = (Simulated) made.get(part[0]);
            if (bean == null) {
                bean = new Simulated(part[0]);
                made.put(part[0], bean);
                server.registerMBean(bean, new ObjectName(part[0]));
            }
            if (part[2].equals("grows")) {
                bean.perSecond.put(part[1], Double.valueOf(part[3]));
            } else {
                bean.constants.put(part[1], constant(part[3]));
            }
        }
    }

    /** Registers beans of partitions, which no sample reads. */
    static void crowd(MBeanServer server, int partitions) throws Exception {
        String[] names = new String[] {"kafka.cluster:type=Partition,name=UnderReplicated",
            "kafka.log:type=Log,name=Size", "kafka.log:type=Log,name=LogEndOffset"};
        Simulated bean = new Simulated("kafka.cluster:type=Partition");
        bean.constants.put("Value", Double.valueOf(7.0));
        for (int i = 0; i < partitions; i++) {
            for (int j = 0; j < names.length; j++) {
                String place = ",topic=others-" + i / 50 + ",partition=" + i % 50;
                server.registerMBean(bean, new ObjectName(names[j] + place));
            }
        }
    }

    /**
     * Starts brokers with ids from 1 on, and returns the port of each.
     *
     * Each has beans of so many partitions of others.
     */
    public static String start(int count, int firstPort, String beans, int partitions)
            throws Exception {
        StringBuilder ports = new StringBuilder();
        OnLoopback factory = new OnLoopback();
        Map environment = new HashMap();
        environment.put("jmx.remote.rmi.server.socket.factory", factory);
        int port = firstPort;
        for (int id = 1; id <= count; port++) {
            try {
                LocateRegistry.createRegistry(port, null, factory);
            } catch (java.rmi.server.ExportException taken) {
                continue;
            }
            MBeanServer server = MBeanServerFactory.newMBeanServer();
            fill(server, beans, id);
            crowd(server, partitions);
            JMXServiceURL url = new JMXServiceURL("service:jmx:rmi://" + LOOPBACK + ":" + port
                + "/jndi/rmi://" + LOOPBACK + ":" + port + "/jmxrmi");
            JMXConnectorServerFactory.newJMXConnectorServer(url, environment, server).start();
            ports.append(port).append(" ");
            id++;
        }
        return ports.toString();
    }
}
"""
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
        pid: process id of the JVM.
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
