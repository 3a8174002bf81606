import java.io.ByteArrayInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.ObjectInputFilter;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.*;
import java.util.function.Function;
import java.util.function.Predicate;
import javax.net.ssl.*;

/** The class loader of the JMX poller. It filters the classes in answers, and makes TLS sockets. */
public class RedlineJmxGuard extends ClassLoader
        implements Function, Predicate, ObjectInputFilter {
    private final Map own = new HashMap();
    private final Set seen = Collections.synchronizedSet(new HashSet());
    private volatile ObjectInputFilter filter = null;
    private volatile SSLSocketFactory sockets = null;
    private volatile boolean isNameChecked = true;

    public RedlineJmxGuard() {
        super(ClassLoader.getPlatformClassLoader());
    }

    /** Sets the pattern of jdk.serialFilter that all classes in answers must match. */
    public void allow(String pattern) {
        filter = ObjectInputFilter.Config.createFilter(pattern);
    }

    public ObjectInputFilter.Status checkInput(ObjectInputFilter.FilterInfo info) {
        ObjectInputFilter.Status status = filter.checkInput(info);
        if (status == ObjectInputFilter.Status.REJECTED) {
            Class of = info.serialClass();
            throw new SecurityException("refused " + (of == null ? "its size" : of.getName()));
        }
        return status;
    }

    /** Adds classes that this loader defines itself. The map leads from name to bytecode. */
    public void own(Map codes) {
        own.putAll(codes);
    }

    protected Class loadClass(String name, boolean isResolved) throws ClassNotFoundException {
        synchronized (getClassLoadingLock(name)) {
            Class found = findLoadedClass(name);
            if (found != null) {
                return found;
            }
            byte[] code = (byte[]) own.get(name);
            if (code != null) {
                return defineClass(name, code, 0, code.length);
            }
        }
        seen.add(name);
        return super.loadClass(name, isResolved);
    }

    /** Returns whether this loader was asked for a class. */
    public boolean test(Object name) {
        return seen.contains(name);
    }

    /**
     * Trusts only the certificates of a PEM text. If the text is empty, trusts the JVM's defaults.
     */
    public void trust(String pem, boolean isNameChecked) throws Exception {
        this.isNameChecked = isNameChecked;
        if (pem.length() == 0) {
            sockets = SSLContext.getDefault().getSocketFactory();
            return;
        }
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        ByteArrayInputStream text = new ByteArrayInputStream(pem.getBytes("US-ASCII"));
        int number = 0;
        for (Iterator i = factory.generateCertificates(text).iterator(); i.hasNext();) {
            store.setCertificateEntry("trusted-" + number++, (Certificate) i.next());
        }
        TrustManagerFactory managers =
            TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(ownKeys(), managers.getTrustManagers(), null);
        sockets = context.getSocketFactory();
    }

    /** Returns a TLS socket. The argument is an array of host and port. */
    public Object apply(Object place) {
        Object[] hostAndPort = (Object[]) place;
        try {
            SSLSocket socket = (SSLSocket) sockets.createSocket(
                (String) hostAndPort[0], ((Integer) hostAndPort[1]).intValue());
            if (isNameChecked) {
                SSLParameters parameters = socket.getSSLParameters();
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
                socket.setSSLParameters(parameters);
            }
            return socket;
        } catch (java.io.IOException e) {
            return e;
        }
    }

    /** Returns the keys that the JVM was started with. Its default TLS context uses them, too. */
    private static KeyManager[] ownKeys() throws Exception {
        String path = System.getProperty("javax.net.ssl.keyStore", "");
        if (path.length() == 0 || path.equals("NONE")) {
            return null;
        }
        char[] password = System.getProperty("javax.net.ssl.keyStorePassword", "").toCharArray();
        KeyStore store = KeyStore.getInstance(
            System.getProperty("javax.net.ssl.keyStoreType", KeyStore.getDefaultType()));
        InputStream stream = new FileInputStream(path);
        try {
            store.load(stream, password);
        } finally {
            stream.close();
        }
        KeyManagerFactory factory =
            KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, password);
        return factory.getKeyManagers();
    }
}
