"""The Java class by which a broker's request handlers spend a stated time in produce requests.

A broker asks its authorizer once for each produce request, on the handler's thread, whether
the topics in it may be written. This one always says yes, to every question, and lets the
handler wait before it does so when the request is a produce request. It implements Kafka's
public interface, which all releases from 2.4 on have, and no class of a release.

The wait parks the thread, so it costs no CPU; the kernel wakes it a little late, which
belongs to a request's own time. Compiled by Janino, hence the plain style.
"""

from __future__ import annotations

NAME = "RedlineTimedAuthorizer"

HANDLER_TIME_PROPERTY = "redline.produce.handler.ns"
"""The broker property that holds the stated time [ns]; Kafka hands it on."""

SOURCE = r"""
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

public class RedlineTimedAuthorizer implements Authorizer {
    private long statedNs;

    public void configure(Map properties) {
        statedNs = Long.parseLong((String) properties.get("@PROPERTY@"));
    }

    public Map start(AuthorizerServerInfo server) {
        Map ready = new HashMap();
        for (Iterator i = server.endpoints().iterator(); i.hasNext();) {
            ready.put(i.next(), CompletableFuture.completedFuture(null));
        }
        return ready;
    }

    public List authorize(AuthorizableRequestContext context, List actions) {
        if (context.requestType() == ApiKeys.PRODUCE.id && writesToTopic(actions)) {
            waitUntil(System.nanoTime() + statedNs);
        }
        return Collections.nCopies(actions.size(), AuthorizationResult.ALLOWED);
    }

    public AuthorizationResult authorizeByResourceType(
            AuthorizableRequestContext context, AclOperation operation, ResourceType type) {
        return AuthorizationResult.ALLOWED;
    }

    /** Whether this asks for the topics of a produce request, and not for its transaction. */
    private static boolean writesToTopic(List actions) {
        for (Iterator i = actions.iterator(); i.hasNext();) {
            Action action = (Action) i.next();
            if (action.operation() == AclOperation.WRITE
                    && action.resourcePattern().resourceType() == ResourceType.TOPIC) {
                return true;
            }
        }
        return false;
    }

    private static void waitUntil(long deadlineNs) {
        long leftNs = deadlineNs - System.nanoTime();
        while (leftNs > 0L) {
            LockSupport.parkNanos(leftNs);
            leftNs = deadlineNs - System.nanoTime();
        }
    }

    public Iterable acls(AclBindingFilter filter) {
        return Collections.emptyList();
    }

    public List createAcls(AuthorizableRequestContext context, List bindings) {
        throw new UnsupportedOperationException("these brokers let everybody do everything");
    }

    public List deleteAcls(AuthorizableRequestContext context, List filters) {
        throw new UnsupportedOperationException("these brokers let everybody do everything");
    }

    public void close() {
    }
}
""".replace("@PROPERTY@", HANDLER_TIME_PROPERTY)
