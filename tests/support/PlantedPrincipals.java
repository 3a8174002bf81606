import java.io.File;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;

public class PlantedPrincipals extends DefaultKafkaPrincipalBuilder implements Configurable {
    private File planted;

    public PlantedPrincipals() {
        super(null, null);
    }

    public void configure(Map properties) {
        String folder = String.valueOf(properties.get("planted.folder"));
        planted = new File(folder, String.valueOf(properties.get("node.id")));
    }

    public KafkaPrincipal build(AuthenticationContext context) {
        LockSupport.parkNanos(planted.length() * 1000000L);
        return super.build(context);
    }
}
