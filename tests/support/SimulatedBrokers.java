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
