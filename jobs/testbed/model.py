"""The specification and the state of a testbed, as plain data for JSON files.

The launcher, the supervisor and `redline testbed` are three processes that share these data.

The errors of a testbed, each with the exit code of its base class.

The share of the machine's CPU that a broker may use.

A control group with a CPU quota limits it where this process may create one
(`jobs.testbed.cpu_groups`); a quota can be a part of a core. Elsewhere CPU affinity limits it,
which needs no privileges but whole cores.
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
"""Node id of the controller; the brokers have 1 to 5."""

SPARK_MASTER_ID = 200
"""Node id of the Spark master; its workers have the next ids."""

LINE_ID = 300
"""Node id of the delay line of a link."""

RACK_PROPERTY = "broker.rack"


class NodeRole(str, Enum):
    """The role of a process; a Kafka node has only one, as combined roles would mix the metrics."""

    BROKER = "broker"
    CONTROLLER = "controller"
    ZOOKEEPER = "zookeeper"
    SPARK_MASTER = "spark-master"
    SPARK_WORKER = "spark-worker"
    DELAY_LINE = "delay-line"


class Status(str, Enum):
    """The status of a testbed; a stopped one has no files and no status."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True)
class ProcessRecord:
    """The identity of a process, which distinguishes it from a later one with the same id.

    Attributes:
        pid: process id.
        created_s: creation time, since the boot on Linux, since the epoch elsewhere [s].
        node_id: id of its node; None for a process that is not a node.
    """

    pid: int
    created_s: float
    node_id: int | None = None


@dataclass(frozen=True)
class Spec:
    """The complete specification of a testbed, of which the supervisor only decides the ports.

    Attributes:
        id: name and a random part; each process has it on its command line.
        name: name for people.
        profile: name of the profile.
        description: the profile's description, for people.
        kafka_version: release of Kafka.
        brokers: number of brokers.
        heap_mb: Java heap of each process [MiB].
        jvm_options: options of every node's JVM, after Kafka's own.
        disk_limit_bytes: maximum size of all log dirs together [B].
        broker_properties, controller_properties: Kafka properties by name.
        java: the Java launcher.
        jars: the class path.
        class_archive: file of the shared class archive, made if missing; None without one.
        ready_deadline_s: time that the start may take [s].
        owned: whether the testbed ends with the process that started it.
        node_jvm_options: node id → additional options of its JVM, such as a -javaagent.
        security: protocols of the listeners for clients, the default first; empty for plain.
        jmx_secured: whether JMX needs a password and speaks TLS.
        log_dirs: number of log dirs of each broker.
        cpus: cores that each broker may use, or a part of a core; None for all.
        produce_handler_ms: broker id → time that a handler waits in each produce request [ms];
            empty without stated times.
        spark_workers: number of Spark workers; 0 without Spark.
        spark_home: folder of the installed Spark; empty without Spark.
        link: link between the brokers and their clients; None for the loopback interface.
        metadata: where the brokers keep the cluster's metadata.
        kafka_versions: broker id → its release, where it differs from kafka_version.
        broker_jars: broker id → its class path, where its release differs.
        racks: number of racks over which the brokers are spread in turns; 0 without racks.
        disk: disk of each broker with a stated write rate; None for the machine's own.
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
        """All releases that run, oldest first."""
        found = {self.kafka_version, *self.kafka_versions.values()}
        return tuple(sorted(found, key=lambda each: tuple(map(int, each.split(".")))))

    @property
    def title(self) -> str:
        """The title for people: `testbed default (3 brokers, Kafka 4.1.2)`."""
        parts = [format_counted(self.brokers, "broker"), f"Kafka {' and '.join(self.releases)}"]
        if self.metadata == "zookeeper":
            parts.append("ZooKeeper")
        elif self.metadata == "combined":
            parts.append("brokers are controllers, too")
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
        port: port of its plain listener.
        jmx_port: port of its JMX registry and of its JMX objects.
        directory: folder of its properties, data and logs.
        secured_ports: protocol → port of its secured listeners for clients.
        host: address of all its listeners and of its JMX.
        controller_port: port of its controller's listener, where it is broker and controller.
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
        """The title for people: `broker 2`, `the controller` or `ZooKeeper`."""
        titles = {NodeRole.CONTROLLER: "the controller", NodeRole.ZOOKEEPER: "ZooKeeper"}
        return titles.get(self.role, f"broker {self.node_id}")


@dataclass(frozen=True)
class SparkNode:
    """The master or a worker of the testbed's Spark cluster, on `HOST`.

    Attributes:
        node_id: `SPARK_MASTER_ID` for the master, the next ids for the workers.
        role: master or worker.
        port: port of its RPC endpoint.
        web_port: port of its web page.
        directory: folder of its work folder, scratch files and logs.
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
        """The title for people: `the Spark master` or `Spark worker 2`."""
        if self.role is NodeRole.SPARK_MASTER:
            return "the Spark master"
        return f"Spark worker {self.node_id - SPARK_MASTER_ID}"


@dataclass(frozen=True)
class LineNode:
    """The process that delays a link's packets; it runs in the generator's namespace.

    Attributes:
        directory: folder of its log and its packet counts.
        addresses: addresses of the link's ends.
    """

    directory: str
    addresses: LinkAddresses
    node_id: int = LINE_ID
    role: NodeRole = NodeRole.DELAY_LINE

    @property
    def title(self) -> str:
        """The title for people."""
        return "the delay line of the link"


Member = Node | SparkNode | LineNode
"""A process of a testbed, of any role."""


@dataclass(frozen=True)
class State:
    """The present state of a testbed; the supervisor rewrites its file at every change.

    Attributes:
        spec: the specification.
        status: the status.
        created_s: time of its creation [s since the epoch].
        reason: cause of its failure; empty without one.
        owner: the process that started it; None once it is detached.
        supervisor: its supervisor; None before the supervisor runs.
        nodes: its Kafka nodes, once ports are known.
        processes: processes that have been started and not yet reaped.
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
    def members(self) -> tuple[Member, ...]:
        """All nodes of the testbed: Kafka's, Spark's, and the link's."""
        return (*self.nodes, *self.spark, *([self.line] if self.line else []))

    @property
    def network_namespace(self) -> str:
        """The file of the namespace from which clients reach the brokers over the link.

        Empty without a link, or while no delay line runs.
        """
        pids = (each.pid for each in self.processes if each.node_id == LINE_ID)
        return next((f"/proc/{pid}/ns/net" for pid in pids), "")

    @property
    def spark_master(self) -> str | None:
        """The URL of the Spark master, for `spark-submit --master`; None without Spark."""
        return self.spark[0].url if self.spark else None

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that are brokers."""
        return tuple(node for node in self.nodes if node.role is NodeRole.BROKER)

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The addresses of all brokers, for clients."""
        return tuple(node.client_address for node in self.brokers)


class TestbedStartError(ConfigError):
    """The brokers did not become ready: a bad property, too slow a machine, no free port."""

    __test__ = False


class TestbedLostError(RedlineError):
    """A process of a running testbed ended unexpectedly."""

    __test__ = False


class TestbedDiskError(GuardStopError):
    """The testbed was stopped before it filled the disk."""

    __test__ = False


class TestbedStateError(ConfigError):
    """The testbed does not support this action in its present state."""

    __test__ = False


_BY_KIND: dict[str, type[RedlineError]] = {
    "start": TestbedStartError,
    "lost": TestbedLostError,
    "disk": TestbedDiskError,
}


def error_of_kind(kind: str, message: str) -> RedlineError:
    """The error for the kind of failure that the supervisor reported."""
    return _BY_KIND.get(kind, RedlineError)(message)


def available_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use; empty where they are unknown."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def require_cores(cpus: float | None, available: Sequence[int], has_quota: bool) -> None:
    """Refuse a number of cores to which brokers cannot be limited on this machine.

    Args:
        has_quota: whether a control group can limit a broker to a part of a core.

    Raises:
        ConfigError: the machine has too few cores, or does not support CPU affinity.
    """
    if cpus is not None and cpus % 1 and not has_quota:
        raise ConfigError(
            f"cpus is {cpus:g}, and CPU-quota cgroups cannot be created here; expected a whole "
            "number of cores, to which CPU affinity limits a broker; round it, or run with the "
            "privileges to create cgroups"
        )
    if cpus is not None and not 0 < cpus <= len(available):
        if not available:
            raise ConfigError(
                f"cpus is {cpus:g}, and this system does not support CPU affinity; expected no "
                "cpus; leave the key out"
            )
        raise ConfigError(
            f"cpus is {cpus:g}, and this process may use {len(available)} cores; expected 1 to "
            f"{len(available)} for each broker; lower it"
        )


def cores_of(broker_id: int, cpus: float | None, available: Sequence[int]) -> tuple[int, ...]:
    """The cores of a broker, spread so that few brokers share a core; empty for all cores.

    Args:
        broker_id: from 1.
        cpus: number of cores for each broker, a whole number; None for all.
    """
    if cpus is None:
        return ()
    first = (broker_id - 1) * int(cpus)
    return tuple(sorted(available[(first + n) % len(available)] for n in range(int(cpus))))
