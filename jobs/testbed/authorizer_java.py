"""The Java authorizer that makes a broker's request handlers wait in each produce request.

A broker asks its authorizer once for each produce request, on the handler's thread, whether the
client may write to the topics. This authorizer allows every operation; in a produce request it
waits for a stated time first. It implements only Kafka's public interface, which exists from
Kafka 2.4 on.

The wait parks the thread and costs no CPU. The kernel wakes the thread slightly late; this delay
is part of a request's own time. Janino compiles the source, hence its plain style.
"""

from __future__ import annotations

NAME = "RedlineTimedAuthorizer"

HANDLER_TIME_PROPERTY = "redline.produce.handler.ns"
"""The broker property with the stated time [ns]; Kafka passes it to the authorizer."""

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

    /** Whether these are the topics of a produce request, and not its transactional id. */
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
        throw new UnsupportedOperationException("these brokers allow every operation");
    }

    public List deleteAcls(AuthorizableRequestContext context, List filters) {
        throw new UnsupportedOperationException("these brokers allow every operation");
    }

    public void close() {
    }
}
""".replace("@PROPERTY@", HANDLER_TIME_PROPERTY)
