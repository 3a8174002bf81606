"""The Java class that creates and renames a local Spark session's files without child processes.

Hadoop sets modes and reads links with its native library, which PySpark's package lacks, or else
with the commands `chmod` and `readlink`. It started about 90 of them for each appended trial, which
took a third of the append's CPU time. Janino compiles the source, hence its plain style.
"""

from __future__ import annotations

from metrics.sources.java_class import java_source

NAME = "LocalFiles"
SETTINGS = {
    "spark.hadoop.fs.file.impl": NAME,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{NAME}$Checked",
}
"""Spark settings that use the class."""
COMPILED_WITH = ("hadoop-client-api", "slf4j-api")
"""Jars of Spark that the source needs."""
SOURCE = java_source(__package__, NAME)
