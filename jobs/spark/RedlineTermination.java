public class RedlineTermination implements sun.misc.SignalHandler {
    private String pid;

    public void passOnTo(String driver) {
        pid = driver;
        sun.misc.Signal.handle(new sun.misc.Signal("TERM"), this);
    }

    public void handle(sun.misc.Signal signal) {
        try {
            String[] command = new String[] {"/bin/sh", "-c", "kill -TERM " + pid};
            if (new ProcessBuilder(command).start().waitFor() == 0) {
                return;
            }
        } catch (Exception gone) {
            // The driver has already ended.
        }
        System.exit(143);
    }
}
