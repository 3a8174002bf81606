"""The Java class that polls all brokers at once inside the driver's JVM.

Through py4j each call costs a round trip and some 80 calls would be needed per broker and
sample. So this class is compiled at the start by Janino, the compiler that Spark brings
for its own generated code, and then one call samples all brokers, each on its own thread.
Janino knows Java without lambdas and without type inference, hence the plain style.

Protocol, all text. A plan has a line `name TAB object name TAB attribute TAB key` per
reading, lines of one object name together. `sample` answers, per broker, a line
`# TAB node id TAB begin [µs since the epoch] TAB end TAB error` and then lines
`name TAB value`, the name of a bean with `*` followed by a colon and what the * stood for.

Between the samples a thread for each connection asks for one cheap attribute, five times a
second. `silent_ms` is the longest that it waited for an answer since the sample before, less
what this JVM stood still itself meanwhile: a broker that was paused, or whose machine was.
"""

from __future__ import annotations

NAME = "RedlineJmxPoller"

SOURCE = r"""
import java.util.*;
import java.util.concurrent.*;
import javax.management.*;
import javax.management.openmbean.CompositeData;
import javax.management.remote.*;

public class RedlineJmxPoller {
    private final Map brokers = new LinkedHashMap();
    private final Map environment = new ConcurrentHashMap();
    private final ExecutorService threads = Executors.newCachedThreadPool(new Daemons());
    private final Pulse pulse = new Pulse();

    /** Opens the connections with a user's password. */
    public void logIn(String user, String password) {
        environment.put(JMXConnector.CREDENTIALS, new String[] {user, password});
    }

    /** Looks brokers up in registries that speak TLS. */
    public void useTls() {
        environment.put("com.sun.jndi.rmi.factory.socket",
            new javax.rmi.ssl.SslRMIClientSocketFactory());
    }

    /** Names a broker to sample; the connection is made by the first sample. */
    public void add(int nodeId, String url) {
        brokers.put(Integer.valueOf(nodeId), new Broker(nodeId, url, environment, pulse));
    }

    /** Sets what to read of a broker from its next sample on. */
    public void plan(int nodeId, String plan) {
        ((Broker) brokers.get(Integer.valueOf(nodeId))).setPlan(plan);
    }

    /** Samples all brokers in parallel and answers after deadlineMs at the latest. */
    public String sample(long deadlineMs) throws InterruptedException {
        long deadline = System.nanoTime() + deadlineMs * 1000000L;
        for (Iterator i = brokers.values().iterator(); i.hasNext();) {
            ((Broker) i.next()).begin(threads);
        }
        StringBuilder answer = new StringBuilder();
        for (Iterator i = brokers.values().iterator(); i.hasNext();) {
            ((Broker) i.next()).finish(deadline, deadlineMs, answer);
        }
        return answer.toString();
    }

    public void close() {
        threads.shutdown();
        pulse.isOver = true;
        for (Iterator i = brokers.values().iterator(); i.hasNext();) {
            ((Broker) i.next()).disconnectLater();
        }
    }

    static long nowMicros() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1000000L + now.getNano() / 1000;
    }

    static String oneLine(String text) {
        return text.replace('\n', ' ').replace('\t', ' ').replace('\r', ' ');
    }

    static class Daemons implements ThreadFactory {
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(work, "redline-jmx");
            thread.setDaemon(true);
            return thread;
        }
    }

    /** For how long this JVM stood still itself, all in all. */
    static class Pulse extends Thread {
        static final long STEP = 20000000L;
        volatile boolean isOver = false;
        private long woke = System.nanoTime();
        private long lost = 0;

        Pulse() {
            super("redline-jmx-pulse");
            setDaemon(true);
            start();
        }

        public void run() {
            while (!isOver) {
                try {
                    Thread.sleep(STEP / 1000000L);
                } catch (InterruptedException e) {
                    return;
                }
                synchronized (this) {
                    lost = lostUntilNow();
                    woke = System.nanoTime();
                }
            }
        }

        synchronized long lostUntilNow() {
            return lost + Math.max(0L, System.nanoTime() - woke - STEP);
        }
    }

    /** Asks one connection again and again whether somebody is there. */
    static class Beat extends Thread {
        static final long PAUSE_MS = 200L;
        final MBeanServerConnection server;
        final Pulse pulse;
        volatile boolean isOver = false;
        private long asked = 0;
        private long lostBefore = 0;
        private long longest = 0;

        Beat(MBeanServerConnection server, Pulse pulse) {
            super("redline-jmx-beat");
            this.server = server;
            this.pulse = pulse;
            setDaemon(true);
            start();
        }

        public void run() {
            try {
                ObjectName runtime = new ObjectName("java.lang:type=Runtime");
                while (!isOver && !pulse.isOver) {
                    begin();
                    server.getAttribute(runtime, "Uptime");
                    end();
                    Thread.sleep(PAUSE_MS);
                }
            } catch (Exception e) {
                // The connection broke, which the samples tell; a new one has a beat of its own.
                isOver = true;
            }
        }

        private synchronized void begin() {
            lostBefore = pulse.lostUntilNow();
            asked = System.nanoTime();
        }

        private synchronized void end() {
            longest = Math.max(longest, waiting());
            asked = 0;
        }

        private long waiting() {
            long waited = asked == 0 ? 0L : System.nanoTime() - asked;
            return Math.max(0L, waited - (pulse.lostUntilNow() - lostBefore));
        }

        synchronized long takeLongestMs() {
            long found = Math.max(longest, waiting()) / 1000000L;
            longest = 0;
            return found;
        }
    }

    /** The readings of one object name. */
    static class Group {
        ObjectName name;
        String suffix = "";
        List labels = new ArrayList();
        List attributes = new ArrayList();
        List keys = new ArrayList();

        String[] distinctAttributes() {
            return (String[]) new LinkedHashSet(attributes).toArray(new String[0]);
        }

        /** The same readings of one bean that the pattern stands for. */
        Group of(ObjectName bean) {
            Group group = new Group();
            group.name = bean;
            group.labels = labels;
            group.attributes = attributes;
            group.keys = keys;
            StringBuilder text = new StringBuilder();
            String[] pairs = name.getKeyPropertyListString().split(",");
            for (int i = 0; i < pairs.length; i++) {
                String key = pairs[i].substring(0, Math.max(0, pairs[i].indexOf('=')));
                if (key.length() > 0 && name.isPropertyValuePattern(key)) {
                    text.append(text.length() == 0 ? ":" : "/").append(bean.getKeyProperty(key));
                }
            }
            group.suffix = text.toString();
            return group;
        }
    }

    static class Broker implements Callable {
        final int nodeId;
        final String url;
        final Map environment;
        final Pulse pulse;
        Beat beat = null;
        List plan = new ArrayList();
        List resolved = null;
        int most = 0;
        JMXConnector connector = null;
        Future running = null;
        long begun = 0;

        Broker(int nodeId, String url, Map environment, Pulse pulse) {
            this.pulse = pulse;
            this.nodeId = nodeId;
            this.url = url;
            this.environment = environment;
        }

        synchronized void setPlan(String text) {
            try {
                List groups = new ArrayList();
                Group last = null;
                String[] lines = text.split("\n");
                for (int i = 0; i < lines.length; i++) {
                    String[] part = lines[i].split("\t", -1);
                    if (last == null || !last.name.equals(new ObjectName(part[1]))) {
                        last = new Group();
                        last.name = new ObjectName(part[1]);
                        groups.add(last);
                    }
                    last.labels.add(part[0]);
                    last.attributes.add(part[2]);
                    last.keys.add(part[3]);
                }
                plan = groups;
                resolved = null;
                most = 0;
            } catch (MalformedObjectNameException e) {
                throw new IllegalArgumentException(e.toString());
            }
        }

        void begin(ExecutorService threads) {
            if (running == null || running.isDone()) {
                begun = nowMicros();
                running = threads.submit((Callable) this);
            }
        }

        void finish(long deadline, long deadlineMs, StringBuilder answer)
                throws InterruptedException {
            long left = Math.max(1L, deadline - System.nanoTime());
            try {
                answer.append((String) running.get(left, TimeUnit.NANOSECONDS));
            } catch (TimeoutException e) {
                long waited = (nowMicros() - begun) / 1000L;
                answer.append(failure("no answer from " + url + " for " + waited + " ms"));
            } catch (ExecutionException e) {
                Throwable cause = e.getCause();
                answer.append(failure(cause.getClass().getName() + ": " + cause.getMessage()));
            }
        }

        String failure(String error) {
            long now = nowMicros();
            return "#\t" + nodeId + "\t" + now + "\t" + now + "\t" + oneLine(error) + "\n";
        }

        public synchronized Object call() throws Exception {
            try {
                return read();
            } catch (Exception e) {
                disconnect();
                throw e;
            }
        }

        String read() throws Exception {
            if (connector == null) {
                connector = JMXConnectorFactory.connect(new JMXServiceURL(url), environment);
                resolved = null;
                beat = new Beat(connector.getMBeanServerConnection(), pulse);
            }
            MBeanServerConnection server = connector.getMBeanServerConnection();
            if (resolved == null) {
                resolved = resolve(server);
            }
            StringBuilder values = new StringBuilder();
            long start = nowMicros();
            boolean gone = false;
            for (Iterator i = resolved.iterator(); i.hasNext();) {
                gone |= !readGroup(server, (Group) i.next(), values);
            }
            long end = nowMicros();
            most = Math.max(most, resolved.size());
            if (gone || resolved.size() < most) {
                // Of a broker that starts again JMX answers before all of its beans are there.
                resolved = null;
            }
            values.append("silent_ms\t").append(beat.takeLongestMs()).append("\n");
            return "#\t" + nodeId + "\t" + start + "\t" + end + "\t\n" + values;
        }

        List resolve(MBeanServerConnection server) throws Exception {
            List groups = new ArrayList();
            for (Iterator i = plan.iterator(); i.hasNext();) {
                Group group = (Group) i.next();
                Set beans = server.queryNames(group.name, null);
                for (Iterator j = beans.iterator(); j.hasNext();) {
                    ObjectName bean = (ObjectName) j.next();
                    groups.add(group.name.isPattern() ? group.of(bean) : group);
                }
            }
            return groups;
        }

        boolean readGroup(MBeanServerConnection server, Group group, StringBuilder out)
                throws Exception {
            AttributeList list;
            try {
                list = server.getAttributes(group.name, group.distinctAttributes());
            } catch (InstanceNotFoundException e) {
                return false;
            }
            Map values = new HashMap();
            for (Iterator i = list.iterator(); i.hasNext();) {
                Attribute attribute = (Attribute) i.next();
                values.put(attribute.getName(), attribute.getValue());
            }
            for (int i = 0; i < group.labels.size(); i++) {
                Object value = values.get(group.attributes.get(i));
                String key = (String) group.keys.get(i);
                if (value instanceof CompositeData && key.length() > 0) {
                    value = ((CompositeData) value).get(key);
                }
                if (value instanceof Object[]) {
                    value = Arrays.asList((Object[]) value);
                }
                if (value != null) {
                    out.append((String) group.labels.get(i)).append(group.suffix).append("\t");
                    out.append(oneLine(String.valueOf(value))).append("\n");
                }
            }
            return true;
        }

        void disconnect() {
            JMXConnector old = connector;
            connector = null;
            if (beat != null) {
                beat.isOver = true;
            }
            if (old != null) {
                try {
                    old.close();
                } catch (java.io.IOException e) {
                    // The connection is given up because it failed; closing it may fail too.
                    old = null;
                }
            }
        }

        /** Closes on a thread of its own: closing waits for a broker that may hang. */
        void disconnectLater() {
            Thread closer = new Thread(new Runnable() {
                public void run() {
                    synchronized (Broker.this) {
                        disconnect();
                    }
                }
            }, "redline-jmx-close");
            closer.setDaemon(true);
            closer.start();
        }
    }
}
"""
