"""The Java classes that stand between the driver's JVM and what brokers' JMX sends it.

JMX's client side makes an object of whatever class an answer names, and takes the JVM's
default TLS context without a look at the host's name. Neither can be set for a connection.
But RMI resolves classes by the class loader of the code that called it, or by that of its
thread. So the poller is defined by a loader of ours and its threads have it as theirs. It
knows Java's own classes only, none of Spark's, and has another `SslRMIClientSocketFactory`
in place of Java's: with the certificates that this source trusts, and with the check of the
name. And the JVM gets a filter (JEP 290) that asks a thread's loader where that is a filter
itself, and has no opinion elsewhere. So each source has its own, and the rest of the JVM
stays as it was. A filter that the JVM was started with stays, too, in place of ours.

Compiled by Janino, hence the plain style.
"""

from __future__ import annotations

NAME = "RedlineJmxGuard"

SOURCE = r"""
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

    /** Takes answers only of the classes of a pattern, as of jdk.serialFilter. */
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

    /** Takes classes as its own, by their names. */
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

    /** Whether a class was asked for here. */
    public boolean test(Object name) {
        return seen.contains(name);
    }

    /**
     * Trusts the certificates of a PEM text and no others; those of the JVM when it is empty.
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

    /** The socket to a host and port, given as an array. */
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

    /** The keys that the JVM was started with, which its default context has too. */
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
"""

SOCKETS_SOURCE = r"""
package javax.rmi.ssl;

import java.io.IOException;
import java.io.Serializable;
import java.net.Socket;
import java.rmi.server.RMIClientSocketFactory;
import java.util.function.Function;

/** In place of Java's, which brokers name in their answers: sockets as the guard makes them. */
public class SslRMIClientSocketFactory implements RMIClientSocketFactory, Serializable {
    private static final long serialVersionUID = -8310631444933958385L;

    public Socket createSocket(String host, int port) throws IOException {
        Function guard = (Function) getClass().getClassLoader();
        Object made = guard.apply(new Object[] {host, Integer.valueOf(port)});
        if (made instanceof IOException) {
            throw (IOException) made;
        }
        return (Socket) made;
    }

    public boolean equals(Object other) {
        return other != null && other.getClass() == getClass();
    }

    public int hashCode() {
        return getClass().hashCode();
    }
}
"""

FILTER_NAME = "RedlineJmxFilter"

FILTER_SOURCE = r"""
import java.io.ObjectInputFilter;

/** The JVM's filter, which leaves the answer to a thread's class loader. */
public class RedlineJmxFilter implements ObjectInputFilter {
    public ObjectInputFilter.Status checkInput(ObjectInputFilter.FilterInfo info) {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        if (loader instanceof ObjectInputFilter) {
            return ((ObjectInputFilter) loader).checkInput(info);
        }
        return ObjectInputFilter.Status.UNDECIDED;
    }

    /** Makes it the JVM's, unless that has one. */
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
"""
