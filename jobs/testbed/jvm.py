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
"""The argument that marks a process of a testbed; the testbed's id follows."""

SERVER_CLASS = "kafka.Kafka"
ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
FORMAT_CLASS = "kafka.tools.StorageTool"

# KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh, for the same garbage collection and compilation
# as in production.
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
        write_archive_to: file to which the JVM writes its loaded classes at its exit; only the
            controller writes this file, never a measured broker.
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
    """The command that formats the log directory of a controller.

    The JVM runs for only half a second, so it uses the fast compiler and the serial collector.
    """
    paths = NodeFiles(node)
    arguments = ["-t", cluster_id, "-c", str(paths.properties)]
    if len(spec.releases) > 1:  # as in a rolling upgrade before its last step
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
    """The main class and its arguments, in an argument file if an argument contains a password."""
    scram = scram_arguments(spec, SecurityFiles(paths.folder.parent)) if spec.security else []
    if not scram:
        return [FORMAT_CLASS, *arguments]
    quoted = (json.dumps(each) for each in (FORMAT_CLASS, *arguments, *scram))
    write_private(paths.format_arguments, "\n".join(quoted))
    return [f"@{paths.format_arguments}"]


def jmx_options(node: Node, security: SecurityFiles | None = None) -> list[str]:
    """The JVM options that bind JMX to the node's address, with login and TLS if `security` is
    given.

    The JVM also opens the port of its attach API (`jconsole PID`) on all addresses, and refuses
    connections from other machines.
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
        # Without hashes, because each JVM would rewrite the file, and several JVMs read it.
        f"{prefix}.password.toHashes=false",
        f"{prefix}.access.file={security.jmx_access}",
        f"{prefix}.ssl=true",
        f"{prefix}.registry.ssl=true",
        f"{prefix}.ssl.config.file={security.jmx_tls}",
    ]


def writes_archive(spec: Spec, node: Node) -> bool:
    """Whether this node writes the shared class archive for later testbeds."""
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
    # The archive is valid only for Kafka's classes on one class path.
    is_usable = node.role is not NodeRole.ZOOKEEPER and node.node_id not in spec.broker_jars
    if spec.class_archive is None or not is_usable:
        return []
    return read_options(Path(spec.class_archive))
