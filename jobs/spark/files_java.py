"""The Java class by which a local Spark session makes and renames files without a process for each.

Hadoop leaves modes and links to its native library, which PySpark does not bring, and else to the
commands `chmod` and `readlink`. It started them some 90 times for each trial that was appended,
which took a third of the append's CPU-time. Compiled by Janino, hence the plain style.
"""

from __future__ import annotations

NAME = "LocalFiles"
SETTINGS = {
    "spark.hadoop.fs.file.impl": NAME,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{NAME}$Checked",
}
"""Of a session that has the class."""
COMPILED_WITH = ("hadoop-client-api", "slf4j-api")
"""Jars of Spark."""
SOURCE = r"""
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, with checksums, as `fs.file.impl`. */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    /** The same as `fs.AbstractFileSystem.file.impl`, which renames are done by. */
    public static class Checked extends ChecksumFs {
        public Checked(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new Plain(uri, conf));
        }
    }

    public static class Plain extends DelegateToFileSystem {
        public Plain(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new Raw(), conf, "file", false);
        }

        public int getUriDefaultPort() {
            return -1;
        }

        public boolean isValidName(String name) {
            return true;
        }
    }

    /** What Java says and does itself, without a process; the rest is left to Hadoop. */
    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                Files.setPosixFilePermissions(
                    pathToFile(path).toPath(),
                    PosixFilePermissions.fromString(permission.toString()));
            }
        }

        public FileStatus getFileLinkStatus(Path path) throws IOException {
            if (Files.isSymbolicLink(pathToFile(path).toPath())) {
                return super.getFileLinkStatus(path);
            }
            return getFileStatus(path);
        }
    }
}
"""
