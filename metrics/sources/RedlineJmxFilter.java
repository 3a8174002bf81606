import java.io.ObjectInputFilter;

/** The JVM's filter, which delegates to the thread's class loader. */
public class RedlineJmxFilter implements ObjectInputFilter {
    public ObjectInputFilter.Status checkInput(ObjectInputFilter.FilterInfo info) {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        if (loader instanceof ObjectInputFilter) {
            return ((ObjectInputFilter) loader).checkInput(info);
        }
        return ObjectInputFilter.Status.UNDECIDED;
    }

    /** Makes this the JVM's filter, unless it has one. */
    public boolean install() {
        synchronized (ObjectInputFilter.Config.class) {
            if (ObjectInputFilter.Config.getSerialFilter() != null) {
                return false;
            }
            ObjectInputFilter.Config.setSerialFilter(this);
            return true;
        }
    }
}
