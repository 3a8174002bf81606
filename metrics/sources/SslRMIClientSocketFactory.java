package javax.rmi.ssl;

import java.io.IOException;
import java.io.Serializable;
import java.net.Socket;
import java.rmi.server.RMIClientSocketFactory;
import java.util.function.Function;

/** Replaces Java's class of this name, which brokers' answers name. Makes sockets by the guard. */
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
