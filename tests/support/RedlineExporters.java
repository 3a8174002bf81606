import java.io.File;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.List;
import java.util.jar.JarFile;

/** Starts exporters, each in a class loader of its own, so that their static fields are apart. */
public class RedlineExporters implements Runnable {
    private final String[] exporter;
    private final Instrumentation tools;

    RedlineExporters(String[] exporter, Instrumentation tools) {
        this.exporter = exporter;
        this.tools = tools;
    }

    public static void premain(String list, Instrumentation tools) throws Exception {
        List lines = Files.readAllLines(Paths.get(list));
        for (Iterator i = lines.iterator(); i.hasNext();) {
            new RedlineExporters(((String) i.next()).split("\t"), tools).run();
        }
    }

    public static void main(String[] given) throws Exception {
        List lines = Files.readAllLines(Paths.get(given[0]));
        for (Iterator i = lines.iterator(); i.hasNext();) {
            Thread one = new Thread(
                new RedlineExporters(((String) i.next()).split("\t"), null));
            one.setDaemon(true);
            one.start();
        }
        while (System.in.read() >= 0) { }
    }

    public void run() {
        String jar = exporter[0], address = exporter[1], rules = exporter[2];
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try {
            URL[] urls = new URL[] { new File(jar).toURI().toURL() };
            ClassLoader own = new URLClassLoader(urls, ClassLoader.getPlatformClassLoader());
            thread.setContextClassLoader(own);
            if (tools == null) {
                String name = new JarFile(jar).getManifest().getMainAttributes()
                    .getValue("Main-Class");
                Class[] types = new Class[] { String[].class };
                Object[] values = new Object[] { new String[] { address, rules } };
                own.loadClass(name).getMethod("main", types).invoke(null, values);
            } else {
                Class[] types = new Class[] { String.class, Instrumentation.class };
                Object[] values = new Object[] { address + ":" + rules, tools };
                own.loadClass("io.prometheus.jmx.JavaAgent").getMethod("premain", types)
                    .invoke(null, values);
            }
        } catch (Exception error) {
            throw new RuntimeException(address, error);
        } finally {
            thread.setContextClassLoader(before);
        }
    }
}
