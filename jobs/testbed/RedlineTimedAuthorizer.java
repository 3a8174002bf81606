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

    /** Whether an action writes to a topic; false for the check of a transactional id. */
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
