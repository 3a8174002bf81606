"""The specification and the state of a testbed, as data for JSON files. The module also has the
errors of a testbed.

The processes of the launcher, of the supervisor and of `redline testbed` share these data.

The module also decides on which cores a broker may run. If this process may create control groups,
a CPU quota limits each broker; the quota can be a part of a core (`jobs.testbed.cpu_groups`).
Without control groups, CPU affinity limits a broker to whole cores; affinity requires no
privileges.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from jobs.config.link import Link, PlantedDisk
from jobs.setup.releases import Metadata
from jobs.testbed.planted_devices import LinkAddresses
from metrics.common.errors import ConfigError, GuardStopError, RedlineError
from metrics.units import format_counted

HOST = "127.0.0.1"
"""Address on which all processes listen, except brokers behind a link."""

CONTROLLER_ID = 100
"""Node id of the controller; the brokers have the ids 1 to 5."""

SPARK_MASTER_ID = 200
"""Node id of the Spark master; its workers have the next ids."""

LINE_ID = 300
"""Node id of the delay line of a link."""

RACK_PROPERTY = "broker.rack"


class NodeRole(str, Enum):
    """The role of a process in a testbed."""

    BROKER = "broker"
    CONTROLLER = "controller"
    ZOOKEEPER = "zookeeper"
    SPARK_MASTER = "spark-master"
    SPARK_WORKER = "spark-worker"
    DELAY_LINE = "delay-line"


class Status(str, Enum):
    """The status of a testbed; a stopped testbed has no files, and therefore no status."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True)
class ProcessRecord:
    """The identity of a process: its process id and its creation time. A later process with the
    same process id has another creation time.

    Attributes:
        pid: process id.
        created_s: creation time [s], on Linux since the boot, on other systems since the epoch.
        node_id: id of the process's node; None for a process that is not a node.
    """

    pid: int
    created_s: float
    node_id: int | None = None


@dataclass(frozen=True)
class Spec:
    """The specification of a testbed. Only the ports are missing, because the supervisor chooses
    them.

    Attributes:
        id: name with a random suffix; each process has this id on its command line.
        name: name of the testbed in commands and messages.
        heap_mb: Java heap of each process [MiB].
        jvm_options: options of every node's JVM, in addition to Kafka's default options.
        disk_limit_bytes: maximum total size of all log directories [B].
        broker_properties, controller_properties: name of a Kafka property → value.
        jars: class path of the nodes.
        class_archive: path of the shared class archive, which is written if missing; None for no
            archive.
        ready_deadline_s: deadline of the start [s].
        owned: whether the testbed ends with the process that started it.
        node_jvm_options: node id → additional options of the node's JVM, such as a -javaagent.
        security: protocols of the secured listeners for clients, the default first; empty for plain
            listeners.
        jmx_secured: whether JMX requires a password and TLS.
        log_dirs: number of log directories of each broker.
        cpus: number of cores that each broker may use, such as 0.5 or 2; None for all cores.
        produce_handler_ms: broker id → time [ms] that a request handler waits when it processes a
            produce request; empty if no times are configured.
        spark_workers: number of Spark workers; 0 without Spark.
        spark_home: folder of the installed pyspark; empty without Spark.
        link: emulated link between brokers and clients; None for the loopback interface.
        metadata: the store of the cluster's metadata, see `TestbedOptions`.
        kafka_versions: broker id → release of the broker, if it differs from kafka_version.
        broker_jars: broker id → class path of the broker, if the release of the broker differs from
            kafka_version.
        racks: number of racks; the brokers are assigned to them in turn; 0 for no racks.
        disk: planted disk of each broker; None for the machine's disk.
    """

    id: str
    name: str
    profile: str
    description: str
    kafka_version: str
    brokers: int
    heap_mb: int
    disk_limit_bytes: int
    broker_properties: Mapping[str, str]
    controller_properties: Mapping[str, str]
    java: str
    jars: tuple[str, ...]
    class_archive: str | None
    ready_deadline_s: float
    owned: bool
    node_jvm_options: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    jvm_options: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    jmx_secured: bool = False
    log_dirs: int = 1
    cpus: float | None = None
    produce_handler_ms: Mapping[int, float] = field(default_factory=dict)
    spark_workers: int = 0
    spark_home: str = ""
    link: Link | None = None
    metadata: Metadata = "kraft"
    kafka_versions: Mapping[int, str] = field(default_factory=dict)
    broker_jars: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    racks: int = 0
    disk: PlantedDisk | None = None

    def rack_of(self, broker_id: int) -> str | None:
        """The rack of a broker; None without racks."""
        return f"rack-{(broker_id - 1) % self.racks + 1}" if self.racks else None

    @property
    def releases(self) -> tuple[str, ...]:
        """All releases of the brokers, the oldest first."""
        found = {self.kafka_version, *self.kafka_versions.values()}
        return tuple(sorted(found, key=lambda each: tuple(map(int, each.split(".")))))

    @property
    def title(self) -> str:
        """The title in messages, such as `testbed default (3 brokers, Kafka 4.1.2)`."""
        parts = [format_counted(self.brokers, "broker"), f"Kafka {' and '.join(self.releases)}"]
        if self.metadata == "zookeeper":
            parts.append("ZooKeeper")
        elif self.metadata == "combined":
            parts.append("each broker also a controller")
        if self.racks:
            parts.append(format_counted(self.racks, "rack"))
        if self.spark_workers:
            parts.append(format_counted(self.spark_workers, "Spark worker"))
        if self.link is not None:
            parts.append(f"a link of {self.link.words()}")
        if self.disk is not None:
            parts.append(f"disks of {self.disk.write_rate}")
        return f"testbed {self.name} ({', '.join(parts)})"


@dataclass(frozen=True)
class Node:
    """One Kafka process of the testbed.

    Attributes:
        node_id: Kafka's node id.
        role: broker or controller.
        port: port of the plain listener.
        jmx_port: port of the JMX registry and of the JMX objects.
        directory: folder of the node's properties, data and logs.
        secured_ports: protocol → port of the secured listener for clients.
        host: address of all listeners and of JMX.
        controller_port: port of the controller listener, if the node is both a broker and a
            controller.
    """

    node_id: int
    role: NodeRole
    port: int
    jmx_port: int
    directory: str
    secured_ports: Mapping[str, int] = field(default_factory=dict)
    host: str = HOST
    controller_port: int | None = None

    @property
    def address(self) -> str:
        """The address of the plain listener as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def client_address(self) -> str:
        """The address of the listener for clients as host:port."""
        return f"{self.host}:{next(iter(self.secured_ports.values()), self.port)}"

    @property
    def jmx_endpoint(self) -> str:
        """The address of JMX as host:port."""
        return f"{self.host}:{self.jmx_port}"

    @property
    def title(self) -> str:
        """The title in messages: `broker 2`, `the controller` or `ZooKeeper`."""
        titles = {NodeRole.CONTROLLER: "the controller", NodeRole.ZOOKEEPER: "ZooKeeper"}
        return titles.get(self.role, f"broker {self.node_id}")


@dataclass(frozen=True)
class SparkNode:
    """The master or a worker of the testbed's Spark cluster, on `HOST`.

    Attributes:
        node_id: `SPARK_MASTER_ID` for the master; the next ids for the workers.
        role: master or worker.
        port: port of the RPC endpoint.
        web_port: port of the web page.
        directory: folder with the work folder, scratch files and logs.
    """

    node_id: int
    role: NodeRole
    port: int
    web_port: int
    directory: str

    @property
    def url(self) -> str:
        """The URL of the master, for drivers and workers."""
        return f"spark://{HOST}:{self.port}"

    @property
    def title(self) -> str:
        """The title in messages: `the Spark master` or `Spark worker 2`."""
        if self.role is NodeRole.SPARK_MASTER:
            return "the Spark master"
        return f"Spark worker {self.node_id - SPARK_MASTER_ID}"


@dataclass(frozen=True)
class LineNode:
    """The process that delays a link's packets, in the generator's network namespace.

    Attributes:
        directory: folder of the log and the packet counts.
        addresses: addresses of the link's ends.
    """

    directory: str
    addresses: LinkAddresses
    node_id: int = LINE_ID
    role: NodeRole = NodeRole.DELAY_LINE

    @property
    def title(self) -> str:
        """The title in messages."""
        return "the delay line of the link"


Member = Node | SparkNode | LineNode
"""A process of a testbed, of any role."""


class Layout:
    """The nodes of a testbed, by kind.

    Attributes:
        nodes: the Kafka nodes, the controller first.
        spark: the Spark nodes, the master first.
        line: the delay line of the link; None without a link.
    """

    nodes: tuple[Node, ...]
    spark: tuple[SparkNode, ...]
    line: LineNode | None

    @property
    def members(self) -> tuple[Member, ...]:
        """All nodes of the testbed: Kafka nodes, Spark nodes, and the delay line of a link."""
        return (*self.nodes, *self.spark, *([self.line] if self.line else []))

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that are brokers."""
        return tuple(node for node in self.nodes if node.role is NodeRole.BROKER)


@dataclass(frozen=True)
class State(Layout):
    """The current state of a testbed; the supervisor writes every change to the state file.

    Attributes:
        spec: the specification.
        status: the status.
        created_s: creation time [s since the epoch].
        reason: cause of the testbed's failure; empty without a failure.
        owner: the process that started the testbed; None once the testbed is detached.
        supervisor: the supervisor's process; None before the supervisor runs.
        nodes: the Kafka nodes, once ports are known.
        processes: processes that were started and have not been reaped.
        spark: the Spark master and its workers, once ports are known.
        line: the delay line, once the link exists; None without a link.
    """

    spec: Spec
    status: Status
    created_s: float
    reason: str = ""
    owner: ProcessRecord | None = None
    supervisor: ProcessRecord | None = None
    nodes: tuple[Node, ...] = ()
    processes: tuple[ProcessRecord, ...] = field(default=())
    spark: tuple[SparkNode, ...] = ()
    line: LineNode | None = None

    @property
    def network_namespace(self) -> str:
        """The file of the namespace from which clients reach the brokers over the link.

        The path is empty if the testbed has no emulated link, or if the process that delays the
        link's packets does not run.
        """
        pids = (each.pid for each in self.processes if each.node_id == LINE_ID)
        return next((f"/proc/{pid}/ns/net" for pid in pids), "")

    @property
    def spark_master(self) -> str | None:
        """The URL of the Spark master, for `spark-submit --master`; None without Spark."""
        return self.spark[0].url if self.spark else None

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The brokers' addresses for clients, as host:port."""
        return tuple(node.client_address for node in self.brokers)


class TestbedStartError(ConfigError):
    """The brokers did not become ready, for example because of a wrong property or no free port."""

    __test__ = False


class TestbedLostError(RedlineError):
    """A process of a running testbed ended unexpectedly."""

    __test__ = False


class TestbedDiskError(GuardStopError):
    """The testbed was stopped, because it reached its disk limit or the disk is almost full."""

    __test__ = False


class TestbedStateError(ConfigError):
    """The testbed's current state does not allow this action."""

    __test__ = False


_BY_KIND: dict[str, type[RedlineError]] = {
    "start": TestbedStartError,
    "lost": TestbedLostError,
    "disk": TestbedDiskError,
}


def error_of_kind(kind: str, message: str) -> RedlineError:
    """The error of the type that the supervisor reported."""
    return _BY_KIND.get(kind, RedlineError)(message)


def available_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use; empty if they are unknown."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def require_cores(cpus: float | None, available: Sequence[int], has_quota: bool) -> None:
    """Refuse a number of cores if this machine cannot limit brokers to it.

    Args:
        has_quota: whether a control group can limit a broker to a part of a core.

    Raises:
        ConfigError: the machine has too few cores, or does not support CPU affinity.
    """
    if cpus is not None and cpus % 1 and not has_quota:
        raise ConfigError(
            f"cpus is {cpus:g}, and CPU-quota cgroups cannot be created here; expected a whole "
            "number of cores, because CPU affinity limits brokers to whole cores; round cpus, or "
            "run with the privileges to create cgroups"
        )
    if cpus is not None and not 0 < cpus <= len(available):
        if not available:
            raise ConfigError(
                f"cpus is {cpus:g}, and this system does not support CPU affinity; expected no "
                "cpus; remove cpus"
            )
        raise ConfigError(
            f"cpus is {cpus:g}, and this process may use {len(available)} cores; expected 1 to "
            f"{len(available)} for each broker; lower cpus"
        )


def cores_of(broker_id: int, cpus: float | None, available: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the cores for a broker, chosen so that few brokers share a core; empty for all
    cores.

    Args:
        broker_id: id of the broker; the first id is 1.
        cpus: number of cores for each broker, a whole number; None for all cores.
    """
    if cpus is None:
        return ()
    first = (broker_id - 1) * int(cpus)
    return tuple(sorted(available[(first + n) % len(available)] for n in range(int(cpus))))
