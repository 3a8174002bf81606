"""The command lines of a testbed's JVMs."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from jobs.setup.places import read_options, write_options
from jobs.testbed.listeners import SecurityFiles, scram_arguments
from jobs.testbed.model import Node, NodeRole, Spec
from jobs.testbed.places import NodeFiles
from metrics.reporting.files import write_private

MARKER = "-Dredline.testbed="
"""The argument that marks a process as the testbed's, with the testbed's id behind it."""

SERVER_CLASS = "kafka.Kafka"
ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
FORMAT_CLASS = "kafka.tools.StorageTool"

# KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh, so that garbage collection and compilation
# are those of production.
PERFORMANCE_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
)


def server_command(spec: Spec, node: Node, *, write_archive_to: Path | None = None) -> list[str]:
    """The command of a broker or controller.

    Args:
        spec: the testbed.
        node: the node.
        write_archive_to: file for the classes that the JVM has loaded at its exit; only the
            controller writes it, never a broker under measurement.
    """
    paths = NodeFiles(node)
    return [
        spec.java,
        f"-Xms{spec.heap_mb}m",
        f"-Xmx{spec.heap_mb}m",
        *PERFORMANCE_OPTIONS,
        *spec.jvm_options,
        "-XX:+ExitOnOutOfMemoryError",
        *_class_archive_options(spec, node, write_archive_to),
        f"{MARKER}{spec.id}",
        *_common(paths.log),
        *jmx_options(node, SecurityFiles(paths.folder.parent) if spec.jmx_secured else None),
        *spec.node_jvm_options.get(node.node_id, ()),
        "-cp",
        ":".join(spec.broker_jars.get(node.node_id, spec.jars)),
        ZOOKEEPER_CLASS if node.role is NodeRole.ZOOKEEPER else SERVER_CLASS,
        str(paths.properties),
    ]


def format_command(spec: Spec, node: Node, cluster_id: str) -> list[str]:
    """The command that prepares the log dir of a controller.

    The JVM runs for half a second, so it uses the quick compiler and one collector thread.
    """
    paths = NodeFiles(node)
    arguments = ["-t", cluster_id, "-c", str(paths.properties)]
    if len(spec.releases) > 1:  # as in a rolling upgrade, until all nodes have the new release
        arguments += ["--release-version", ".".join(spec.releases[0].split(".")[:2])]
    return [
        spec.java,
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *_class_archive_options(spec, node, None),
        f"{MARKER}{spec.id}",
        *_common(paths.format_log),
        "-cp",
        ":".join(spec.jars),
        *_format_arguments(spec, paths, ["format", *arguments]),
    ]


def _format_arguments(spec: Spec, paths: NodeFiles, arguments: list[str]) -> list[str]:
    """The class and its arguments; in an argument file when they contain a password."""
    scram = scram_arguments(spec, SecurityFiles(paths.folder.parent)) if spec.security else []
    if not scram:
        return [FORMAT_CLASS, *arguments]
    quoted = (json.dumps(each) for each in (FORMAT_CLASS, *arguments, *scram))
    write_private(paths.format_arguments, "\n".join(quoted))
    return [f"@{paths.format_arguments}"]


def jmx_options(node: Node, security: SecurityFiles | None = None) -> list[str]:
    """Options that bind JMX to the node's address, with a password and TLS where it has files.

    The JVM also opens the port of its attach API (`jconsole PID`) on all addresses, but it
    refuses every peer of another machine.
    """
    prefix = "-Dcom.sun.management.jmxremote"
    options = [
        f"{prefix}.port={node.jmx_port}",
        f"{prefix}.rmi.port={node.jmx_port}",
        f"{prefix}.host={node.host}",
        f"-Djava.rmi.server.hostname={node.host}",
    ]
    if security is None:
        return [*options, f"{prefix}.authenticate=false", f"{prefix}.ssl=false"]
    return [
        *options,
        f"{prefix}.authenticate=true",
        f"{prefix}.password.file={security.jmx_password}",
        # Several JVMs read the file; hashing would make each of them rewrite it.
        f"{prefix}.password.toHashes=false",
        f"{prefix}.access.file={security.jmx_access}",
        f"{prefix}.ssl=true",
        f"{prefix}.registry.ssl=true",
        f"{prefix}.ssl.config.file={security.jmx_tls}",
    ]


def writes_archive(spec: Spec, node: Node) -> bool:
    """Whether this node writes the class archive for later testbeds."""
    if node.role is not NodeRole.CONTROLLER or spec.class_archive is None:
        return False
    return not Path(spec.class_archive).exists()


def _common(log: Path) -> list[str]:
    return [
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j2.configurationFile={files('conf') / 'testbed' / 'log4j2.properties'}",
        f"-Dredline.log={log}",
    ]


def _class_archive_options(spec: Spec, node: Node, write_to: Path | None) -> list[str]:
    if write_to is not None:
        return write_options(write_to)
    # The archive is that of Kafka's classes on one class path.
    is_usable = node.role is not NodeRole.ZOOKEEPER and node.node_id not in spec.broker_jars
    if spec.class_archive is None or not is_usable:
        return []
    return read_options(Path(spec.class_archive))
