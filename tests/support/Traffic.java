import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java producers of several kinds in one JVM, each at an even rate, until standard input
 * ends. A line "pause" on it stops them, and "resume" continues. Arguments: the addresses of brokers,
 * a word that each message holds, and for each kind "topic producers rate bytes keys
 * property=value,...", where keys is the number of different keys and 0 stands for none. Every second
 * it prints a line for each topic: the records sent so far, and the mean size of batches.
 */
public class Traffic {
    private static final int VALUES = 64;

    private static final class Sender {
        final KafkaProducer<byte[], byte[]> producer;
        final String topic;
        final long intervalNs;
        final byte[][] values;
        final int keys;
        final Random random;
        long dueNs;

        Sender(String servers, String word, String[] kind, int number) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", servers);
            for (String each : kind.length > 5 ? kind[5].split(",") : new String[0]) {
                properties.put(each.split("=")[0], each.split("=")[1]);
            }
            producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer());
            topic = kind[0];
            intervalNs = (long) (1e9 / Double.parseDouble(kind[2]));
            random = new Random(number);
            values = new byte[VALUES][Integer.parseInt(kind[3])];
            for (byte[] value : values) {
                random.nextBytes(value);
                // The second half is one character, so that a codec halves the size.
                java.util.Arrays.fill(value, value.length / 2, value.length, (byte) 'x');
                System.arraycopy(word.getBytes(), 0, value, 0, word.length());
            }
            keys = Integer.parseInt(kind[4]);
            dueNs = System.nanoTime() + (long) (random.nextDouble() * intervalNs);
        }

        void send() {
            byte[] key = keys == 0 ? null : String.format("k%05d", random.nextInt(keys)).getBytes();
            producer.send(new ProducerRecord<>(topic, key, values[random.nextInt(VALUES)]));
            dueNs += intervalNs;
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Sender> senders = new ArrayList<>();
        for (int index = 2; index < arguments.length; index++) {
            String[] kind = arguments[index].split(" ");
            for (int number = 0; number < Integer.parseInt(kind[1]); number++) {
                senders.add(new Sender(arguments[0], arguments[1], kind, senders.size()));
            }
        }
        PriorityQueue<Sender> due =
            new PriorityQueue<>((first, other) -> Long.compare(first.dueNs, other.dueNs));
        long nowNs = System.nanoTime();
        for (Sender each : senders) {
            each.dueNs = Math.max(each.dueNs, nowNs);
            due.add(each);
        }
        System.out.println("sending");
        long printNs = nowNs + 1_000_000_000L;
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(commands));
        reader.setDaemon(true);
        reader.start();
        while (true) {
            String command = commands.poll();
            if ("pause".equals(command)) {
                long pausedNs = System.nanoTime();
                command = commands.take();
                long restedNs = System.nanoTime() - pausedNs;
                for (Sender each : senders) {
                    each.dueNs += restedNs;
                }
                printNs += restedNs;
            }
            if ("end".equals(command)) {
                break;
            }
            Sender next = due.poll();
            long restNs = next.dueNs - System.nanoTime();
            if (restNs > 0) {
                LockSupport.parkNanos(restNs);
            }
            next.send();
            due.add(next);
            if (System.nanoTime() > printNs) {
                print(senders);
                printNs += 1_000_000_000L;
            }
        }
        for (Sender each : senders) {
            each.producer.close();
        }
    }

    private static void read(BlockingQueue<String> commands) {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            lines.lines().forEach(commands::add);
        } catch (IOException error) {
            System.err.println(error);
        }
        commands.add("end");
    }

    private static void print(List<Sender> senders) {
        Map<String, double[]> sums = new HashMap<>();
        for (Sender each : senders) {
            double[] sum = sums.computeIfAbsent(each.topic, topic -> new double[3]);
            for (Map.Entry<MetricName, ? extends Metric> metric : each.producer.metrics().entrySet()) {
                if (!metric.getKey().group().equals("producer-metrics")) {
                    continue;
                }
                Object value = metric.getValue().metricValue();
                if (metric.getKey().name().equals("record-send-total")) {
                    sum[0] += (Double) value;
                } else if (metric.getKey().name().equals("batch-size-avg")) {
                    sum[1] += (Double) value;
                    sum[2]++;
                }
            }
        }
        for (Map.Entry<String, double[]> each : sums.entrySet()) {
            double[] sum = each.getValue();
            System.out.println(each.getKey() + " " + (long) sum[0] + " " + sum[1] / sum[2]);
        }
    }
}
