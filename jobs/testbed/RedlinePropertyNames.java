import java.lang.reflect.Method;
import java.util.Iterator;
import org.apache.kafka.common.config.ConfigDef;

public class RedlinePropertyNames {
    public static void main(String[] arguments) throws Exception {
        Class config = Class.forName("kafka.server.KafkaConfig");
        try {
            Method definition = config.getMethod("configDef", new Class[0]);
            ConfigDef known = (ConfigDef) definition.invoke(null, new Object[0]);
            for (Iterator i = known.names().iterator(); i.hasNext();) {
                System.out.println(i.next());
            }
        } catch (NoSuchMethodException beforeKafka3) {
            Object names = config.getMethod("configNames", new Class[0])
                .invoke(null, new Object[0]);
            System.out.println(names.getClass().getMethod("mkString", new Class[] {String.class})
                .invoke(names, new Object[] {"\n"}));
        }
    }
}
