import java.io.ObjectInputFilter;

/** A filter of classes for the whole JVM. It asks the class loader of the thread. */
public class RedlineJmxFilter implements ObjectInputFilter {
    public ObjectInputFilter.Status checkInput(ObjectInputFilter.FilterInfo info) {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        if (loader instanceof ObjectInputFilter) {
            return ((ObjectInputFilter) loader).checkInput(info);
        }
        return ObjectInputFilter.Status.UNDECIDED;
    }

    /** Makes this filter the JVM's filter, unless the JVM already has one. */
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
