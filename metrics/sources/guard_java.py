"""The Java classes that protect the driver's JVM from the answers of the brokers' JMX.

JMX's client side creates objects of any class that an answer names. It uses the JVM's default TLS
context, and does not check the host's name. Neither can be configured for one connection.

RMI resolves classes by the class loader of its caller, or by that of its thread. So the poller is
defined by a class loader of this module, which its threads use, too. This loader knows Java's own
classes and none of Spark's. It replaces Java's `SslRMIClientSocketFactory` by one that trusts the
source's certificates and checks the host's name.

The JVM gets a filter (JEP 290) that asks the thread's class loader where that is a filter itself,
and decides nothing elsewhere. So each source has its own filter, and the rest of the JVM is not
affected. A filter that the JVM was started with takes precedence over this one.

Janino compiles the classes, hence the plain style.
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

    /** Accepts only answers whose classes match a pattern of jdk.serialFilter. */
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

    /** Adds classes that this loader defines itself: name to bytecode. */
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

    /** Whether this loader was asked for a class. */
    public boolean test(Object name) {
        return seen.contains(name);
    }

    /**
     * Trusts only the certificates of a PEM text; the JVM's default authorities when it is empty.
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

    /** Returns a socket to a host and port, which are given as an array. */
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

    /** Returns the keys that the JVM was started with, which its default context has, too. */
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

/** Replaces Java's class of this name, which brokers name in their answers, by guarded sockets. */
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
"""
