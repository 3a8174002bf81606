"""The Java class that lets the driver's JVM trust the certificates of brokers' JMX.

JMX's client side takes the JVM's default TLS context, and keeps what it took for good. So
the default is replaced once by one whose trusted certificates can grow: those of the JVM,
and those that sources add. Compiled by Janino, hence the plain style.
"""

from __future__ import annotations

NAME = "RedlineTrust"

SOURCE = r"""
import java.io.ByteArrayInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.*;
import java.util.Iterator;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.*;

public class RedlineTrust extends X509ExtendedTrustManager {
    private static final String KNOWN = "redline.jmx.trust";
    private final AtomicReference current;

    public RedlineTrust(AtomicReference current) {
        this.current = current;
    }

    public RedlineTrust() {
        this(null);
    }

    /** Trusts the certificates of a PEM text, if any, besides those trusted already. */
    public void add(String pem) throws Exception {
        AtomicReference known = (AtomicReference) System.getProperties().get(KNOWN);
        X509ExtendedTrustManager before = known == null
            ? managerOf(null) : (X509ExtendedTrustManager) known.get();
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        int number = 0;
        X509Certificate[] trusted = before.getAcceptedIssuers();
        for (int i = 0; i < trusted.length; i++) {
            store.setCertificateEntry("trusted-" + number++, trusted[i]);
        }
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        ByteArrayInputStream text = new ByteArrayInputStream(pem.getBytes("US-ASCII"));
        for (Iterator i = factory.generateCertificates(text).iterator(); i.hasNext();) {
            store.setCertificateEntry("trusted-" + number++, (Certificate) i.next());
        }
        X509ExtendedTrustManager manager = managerOf(store);
        if (known != null) {
            known.set(manager);
            return;
        }
        known = new AtomicReference(manager);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(ownKeys(), new TrustManager[] {new RedlineTrust(known)}, null);
        SSLContext.setDefault(context);
        System.getProperties().put(KNOWN, known);
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

    private static X509ExtendedTrustManager managerOf(KeyStore store) throws Exception {
        TrustManagerFactory factory =
            TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return (X509ExtendedTrustManager) factory.getTrustManagers()[0];
    }

    private X509ExtendedTrustManager now() {
        return (X509ExtendedTrustManager) current.get();
    }

    public void checkClientTrusted(X509Certificate[] chain, String type)
            throws CertificateException {
        now().checkClientTrusted(chain, type);
    }

    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
            throws CertificateException {
        now().checkClientTrusted(chain, type, socket);
    }

    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
            throws CertificateException {
        now().checkClientTrusted(chain, type, engine);
    }

    public void checkServerTrusted(X509Certificate[] chain, String type)
            throws CertificateException {
        now().checkServerTrusted(chain, type);
    }

    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
            throws CertificateException {
        now().checkServerTrusted(chain, type, socket);
    }

    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
            throws CertificateException {
        now().checkServerTrusted(chain, type, engine);
    }

    public X509Certificate[] getAcceptedIssuers() {
        return now().getAcceptedIssuers();
    }
}
"""
