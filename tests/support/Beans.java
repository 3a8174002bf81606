import java.lang.management.ManagementFactory;
import javax.management.*;

public class Beans {
    public interface InfoMBean { String getVersion(); }
    public static class Info implements InfoMBean {
        public String getVersion() { return "3.9.2"; }
    }
    public interface LeadersMBean { Object getValue(); }
    public static class Leaders implements LeadersMBean {
        private final Object value;
        public Leaders(Object value) { this.value = value; }
        public Object getValue() { return value; }
    }
    public interface MeterMBean { long getCount(); }
    public static class Meter implements MeterMBean {
        public long getCount() { return System.nanoTime(); }
    }
    public static void add(String meter) throws Exception {
        ManagementFactory.getPlatformMBeanServer().registerMBean(
            new StandardMBean(new Meter(), MeterMBean.class), new ObjectName(meter));
    }
    public static void register(int nodeId, Object leaders) throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        server.registerMBean(
            new StandardMBean(new Info(), InfoMBean.class),
            new ObjectName("kafka.server:type=app-info,id=" + nodeId));
        server.registerMBean(
            new StandardMBean(new Leaders(leaders), LeadersMBean.class),
            new ObjectName("kafka.server:type=ReplicaManager,name=LeaderCount"));
        add("kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent");
    }
}
