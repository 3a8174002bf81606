import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import javax.management.*;
import javax.management.openmbean.CompositeData;
import javax.management.remote.*;

/** Samples the JMX beans of all brokers in parallel. */
public class RedlineJmxPoller {
    static final int POLLS_IN_PARALLEL = 64;
    static final int CALLS_IN_PARALLEL = 16;
    static final int HELPERS_IN_ALL = 256;
    static final long READ_NS = 150000000L;
    static final int CALLS_TO_MEASURE = 3;
    static final long FAR_NS = 10000000L;
    private final Map brokers = new LinkedHashMap();
    private final Map environment = new ConcurrentHashMap();
    private final ExecutorService threads = Executors.newCachedThreadPool(new Daemons());
    private final Pulse pulse = new Pulse();
    private final Beats beats = new Beats(threads, pulse);
    private final Semaphore helpers = new Semaphore(HELPERS_IN_ALL);

    public RedlineJmxPoller() {
        // The heartbeats check the connections, so no connection needs a thread for its check.
        environment.put("jmx.remote.x.client.connection.check.period", Long.valueOf(0L));
    }

    /** Sets the login of the connections. */
    public void logIn(String user, String password) {
        environment.put(JMXConnector.CREDENTIALS, new String[] {user, password});
    }

    /** Uses TLS for the connections to RMI registries. */
    public void useTls() {
        environment.put("com.sun.jndi.rmi.factory.socket",
            new javax.rmi.ssl.SslRMIClientSocketFactory());
    }

    /** Adds a broker. Its first sample opens the connection. */
    public void add(int nodeId, String url) {
        brokers.put(Integer.valueOf(nodeId),
            new Broker(nodeId, url, environment, beats, helpers));
    }

    /** Sets the readings of all later samples of a broker. */
    public void plan(int nodeId, String plan) {
        ((Broker) brokers.get(Integer.valueOf(nodeId))).setPlan(plan);
    }

    /** Samples all brokers, and returns within deadlineMs. */
    public String sample(long deadlineMs) throws InterruptedException {
        long deadline = System.nanoTime() + deadlineMs * 1000000L;
        long step = deadlineMs * 500000L / Math.max(1, brokers.size());
        Semaphore free = new Semaphore(POLLS_IN_PARALLEL);
        for (Iterator i = brokers.values().iterator(); i.hasNext();) {
            // A broker that does not answer delays the others by one step at most.
            free.tryAcquire(step, TimeUnit.NANOSECONDS);
            ((Broker) i.next()).begin(threads, free);
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
        // Other threads close the connections, because a broker may not answer.
        ExecutorService closers = Executors.newFixedThreadPool(POLLS_IN_PARALLEL, new Daemons());
        for (Iterator i = brokers.values().iterator(); i.hasNext();) {
            closers.execute(((Broker) i.next()).closing());
        }
        closers.shutdown();
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
            // RMI's own threads inherit this class loader, and cannot find it in another way.
            thread.setContextClassLoader(getClass().getClassLoader());
            return thread;
        }
    }

    /** Measures the total time for which this JVM was paused. */
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

    /** Probes one connection after the other, each on a thread of a pool. */
    static class Beats extends Thread {
        static final long ROUND_NS = 200000000L;
        static final long LEAST_NS = 1000000L;
        final ExecutorService threads;
        final Pulse pulse;
        private final List beats = new CopyOnWriteArrayList();

        Beats(ExecutorService threads, Pulse pulse) {
            super("redline-jmx-beats");
            this.threads = threads;
            this.pulse = pulse;
            setDaemon(true);
            start();
        }

        Beat of(MBeanServerConnection server) {
            Beat beat = new Beat(server, pulse);
            beats.add(beat);
            return beat;
        }

        void end(Beat beat) {
            beats.remove(beat);
        }

        public void run() {
            while (!pulse.isOver) {
                Object[] now = beats.toArray();
                long step = Math.max(LEAST_NS, ROUND_NS / Math.max(1, now.length));
                for (int i = 0; i < Math.max(1, now.length) && !pulse.isOver; i++) {
                    if (i < now.length && ((Beat) now[i]).begins()) {
                        try {
                            threads.execute((Beat) now[i]);
                        } catch (RejectedExecutionException over) {
                            return;
                        }
                    }
                    java.util.concurrent.locks.LockSupport.parkNanos(step);
                }
            }
        }
    }

    /** Probes one connection, unless its last probe has no answer yet. */
    static class Beat implements Runnable {
        final MBeanServerConnection server;
        final Pulse pulse;
        private boolean isUnderWay = false;
        private long asked = 0;
        private long lostBefore = 0;
        private long longest = 0;

        Beat(MBeanServerConnection server, Pulse pulse) {
            this.server = server;
            this.pulse = pulse;
        }

        synchronized boolean begins() {
            boolean begins = !isUnderWay;
            isUnderWay = true;
            return begins;
        }

        public void run() {
            try {
                ask();
                server.getAttribute(new ObjectName("java.lang:type=Runtime"), "Uptime");
                answered();
            } catch (Exception e) {
                // The connection broke, and the samples show this. A new connection has a new beat.
                asked = 0;
            }
        }

        private synchronized void ask() {
            lostBefore = pulse.lostUntilNow();
            asked = System.nanoTime();
        }

        private synchronized void answered() {
            longest = Math.max(longest, waiting());
            asked = 0;
            isUnderWay = false;
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
        final Set known = new HashSet();
        List labels = new ArrayList();
        List attributes = new ArrayList();
        List keys = new ArrayList();
        String[] distinct = null;

        String[] distinctAttributes() {
            if (distinct == null) {
                distinct = (String[]) new LinkedHashSet(attributes).toArray(new String[0]);
            }
            return distinct;
        }

        /** Returns a group with the same readings, for one bean that matches the pattern. */
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

    /** Makes one call for each group, on several threads if the broker is far away. */
    abstract static class Calls implements Callable {
        final List groups;
        final Object[] answers;
        final AtomicInteger next = new AtomicInteger();
        private long fastest = Long.MAX_VALUE;

        Calls(List groups) {
            this.groups = groups;
            this.answers = new Object[groups.size()];
        }

        abstract Object ask(Group group) throws Exception;

        /** Makes one call; returns false when none is left. */
        boolean makeOne() throws Exception {
            int index = next.getAndIncrement();
            if (index >= answers.length) {
                return false;
            }
            long asked = System.nanoTime();
            answers[index] = ask((Group) groups.get(index));
            answered(System.nanoTime() - asked);
            return true;
        }

        private synchronized void answered(long took) {
            fastest = Math.min(fastest, took);
        }

        /** Returns the time of the fastest call. */
        synchronized long fastest() {
            return fastest;
        }

        /** Makes calls until no call is left or one call has failed. */
        public Object call() throws Exception {
            boolean isOver = false;
            while (!isOver) {
                try {
                    isOver = !makeOne();
                } catch (Exception e) {
                    next.set(answers.length);
                    return e;
                }
            }
            return null;
        }

        /**
         * Makes all calls, and returns when the calls of all threads have ended.
         *
         * roundTrip is the shortest round trip so far, or 0 if the first calls must measure it.
         */
        void makeAll(long roundTrip, ExecutorService threads, Semaphore helpers)
                throws Exception {
            for (int i = 0; roundTrip == 0 && i < CALLS_TO_MEASURE; i++) {
                makeOne();
            }
            // The first calls of a busy JVM may be slow although the round trip is short.
            long each = roundTrip > 0 ? roundTrip : fastest() < FAR_NS ? 0L : fastest();
            int left = answers.length - Math.min(answers.length, next.get());
            List running = new ArrayList();
            long most = left == 0 ? 0L : Math.min(CALLS_IN_PARALLEL, each * left / READ_NS + 1);
            for (long i = 1; i < Math.min(most, left) && helpers.tryAcquire(); i++) {
                running.add(threads.submit((Callable) this));
            }
            Object failure = call();
            for (Iterator i = running.iterator(); i.hasNext();) {
                try {
                    Object failed = ((Future) i.next()).get();
                    failure = failure == null ? failed : failure;
                } finally {
                    helpers.release();
                }
            }
            if (failure != null) {
                throw (Exception) failure;
            }
        }
    }

    static class Broker implements Callable {
        static final String STUB = "javax.management.remote.rmi.RMIServerImpl_Stub";
        static final String NODES = "kafka.server:type=app-info,id=*";
        final int nodeId;
        final String url;
        final Map environment;
        final Beats beats;
        final Semaphore helpers;
        ExecutorService threads = null;
        Beat beat = null;
        Set node = new HashSet();
        boolean isNodeKnown = false;
        long roundTrip = 0;
        List plan = new ArrayList();
        List resolved = null;
        List absent = null;
        int most = 0;
        JMXConnector connector = null;
        Future running = null;
        long begun = 0;
        Semaphore free = null;

        Broker(int nodeId, String url, Map environment, Beats beats, Semaphore helpers) {
            this.beats = beats;
            this.helpers = helpers;
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

        /** Begins a poll, unless a poll is still running. Releases `ended` at its end. */
        void begin(ExecutorService threads, Semaphore ended) {
            if (running == null || running.isDone()) {
                begun = nowMicros();
                free = ended;
                this.threads = threads;
                running = threads.submit((Callable) this);
            } else {
                ended.release();
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
                answer.append(failure(inWords(e.getCause())));
            }
        }

        /** Returns the text of an error, and the texts of causes that it does not contain. */
        String inWords(Throwable error) {
            String text = error.toString();
            for (Throwable i = error.getCause(); i != null; i = i.getCause()) {
                if (!text.contains(String.valueOf(i.getMessage()))) {
                    text += "; nested exception is: " + i;
                }
            }
            return text;
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
            } finally {
                free.release();
            }
        }

        String read() throws Exception {
            if (connector == null) {
                connector = JMXConnectorFactory.connect(new JMXServiceURL(url), environment);
                if (!((Predicate) getClass().getClassLoader()).test(STUB)) {
                    throw new SecurityException("this JVM resolves the classes of JMX's answers "
                        + "past the loader that guards them (java.rmi.server.RMIClassLoaderSpi "
                        + "is set)");
                }
                resolved = null;
                isNodeKnown = false;
                roundTrip = 0;
                beat = beats.of(connector.getMBeanServerConnection());
            }
            MBeanServerConnection server = connector.getMBeanServerConnection();
            if (!isNodeKnown) {
                isNodeKnown = knowNode(server);
            }
            if (resolved == null) {
                absent = plan;
                for (Iterator i = plan.iterator(); i.hasNext();) {
                    ((Group) i.next()).known.clear();
                }
                resolved = new ArrayList();
            }
            // Kafka registers some beans at their first use, such as the bean of log flushes.
            resolved.addAll(resolve(server));
            StringBuilder values = new StringBuilder();
            long start = nowMicros();
            Object[] read = answers(reads(server, resolved));
            long end = nowMicros();
            boolean gone = false;
            for (int i = 0; i < read.length; i++) {
                gone |= read[i] == null;
                values.append(read[i] == null ? "" : (String) read[i]);
            }
            most = Math.max(most, resolved.size());
            if (gone || resolved.size() < most) {
                // A restarted broker answers before all of its beans are registered.
                resolved = null;
            }
            values.append("silent_ms\t").append(beat.takeLongestMs()).append("\n");
            values.append("poll_ms\t").append((end - start) / 1000.0).append("\n");
            return "#\t" + nodeId + "\t" + start + "\t" + end + "\t\n" + values;
        }

        /**
         * Returns whether the connection's node is known. A broker that starts does not show it.
         */
        boolean knowNode(MBeanServerConnection server) throws Exception {
            Set found = server.queryNames(new ObjectName(NODES), null);
            ObjectName own = new ObjectName(NODES.replace("*", String.valueOf(nodeId)));
            boolean isOwn = node.contains(own)
                ? found.contains(own)
                : !Collections.disjoint(node, found);
            if (!node.isEmpty() && !found.isEmpty() && !isOwn) {
                throw new java.io.IOException("a new connection to " + url + " leads to node "
                    + ids(found) + ", and the first one led to node " + ids(node)
                    + ": several processes answer at this address");
            }
            node = found.isEmpty() ? node : found;
            return !found.isEmpty();
        }

        static String ids(Set beans) {
            StringBuilder text = new StringBuilder();
            for (Iterator i = beans.iterator(); i.hasNext();) {
                text.append(text.length() == 0 ? "" : ", ");
                text.append(((ObjectName) i.next()).getKeyProperty("id"));
            }
            return text.toString();
        }

        Object[] answers(Calls calls) throws Exception {
            calls.makeAll(roundTrip, threads, helpers);
            if (calls.answers.length > 0) {
                roundTrip = Math.min(roundTrip > 0 ? roundTrip : Long.MAX_VALUE, calls.fastest());
            }
            return calls.answers;
        }

        static Calls queries(final MBeanServerConnection server, List groups) {
            return new Calls(groups) {
                Object ask(Group group) throws Exception {
                    return server.queryNames(group.name, null);
                }
            };
        }

        static Calls reads(final MBeanServerConnection server, List groups) {
            return new Calls(groups) {
                Object ask(Group group) throws Exception {
                    return readGroup(server, group);
                }
            };
        }

        /** Returns the groups of the beans that were registered since the last call. */
        List resolve(MBeanServerConnection server) throws Exception {
            List groups = new ArrayList();
            List still = new ArrayList();
            Object[] found = answers(queries(server, absent));
            for (int i = 0; i < found.length; i++) {
                Group group = (Group) absent.get(i);
                Set beans = (Set) found[i];
                if (beans.isEmpty() || "*".equals(group.name.getKeyProperty("error"))) {
                    still.add(group);  // Kafka registers a bean at the first error of each kind
                }
                for (Iterator j = beans.iterator(); j.hasNext();) {
                    ObjectName bean = (ObjectName) j.next();
                    if (group.known.add(bean)) {
                        groups.add(group.name.isPattern() ? group.of(bean) : group);
                    }
                }
            }
            absent = still;
            return groups;
        }

        /** Returns the lines of a group's readings. Returns null if the bean no longer exists. */
        static String readGroup(MBeanServerConnection server, Group group) throws Exception {
            StringBuilder out = new StringBuilder();
            AttributeList list;
            try {
                list = server.getAttributes(group.name, group.distinctAttributes());
            } catch (InstanceNotFoundException e) {
                return null;
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
            return out.toString();
        }

        void disconnect() {
            JMXConnector old = connector;
            connector = null;
            if (beat != null) {
                beats.end(beat);
            }
            if (old != null) {
                try {
                    old.close();
                } catch (java.io.IOException e) {
                    // The connection has failed already, so close may also fail.
                    old = null;
                }
            }
        }

        Runnable closing() {
            return new Runnable() {
                public void run() {
                    synchronized (Broker.this) {
                        disconnect();
                    }
                }
            };
        }
    }
}
