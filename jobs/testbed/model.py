"""What a testbed is asked to be, and what it is: plain data that goes through JSON files.

The launcher, the supervisor and `redline testbed` are three processes; these are the
facts that they share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from jobs.config.link import Link
from jobs.testbed.link.devices import LinkAddresses

HOST = "127.0.0.1"
"""Where everything listens but brokers behind a link."""

CONTROLLER_ID = 100
"""Node id of the controller, apart from the brokers' 1 to 5."""

SPARK_MASTER_ID = 200
"""Node id of the Spark master; its workers have the ids that follow."""

LINE_ID = 300
"""Node id of the delay line of a link."""


class NodeRole(str, Enum):
    """What a process does. Kafka's roles are never combined: that would confuse the metrics."""

    BROKER = "broker"
    CONTROLLER = "controller"
    SPARK_MASTER = "spark-master"
    SPARK_WORKER = "spark-worker"
    DELAY_LINE = "delay-line"


class Status(str, Enum):
    """Where a testbed is in its life. A stopped one leaves nothing, hence no status."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True)
class ProcessRecord:
    """A process by what tells it from a later one with the same id.

    Attributes:
        pid: process id.
        created_s: when it was created; since the boot on Linux, as the kernel counts, since the
            epoch elsewhere [s].
        node_id: the node that it is, or None.
    """

    pid: int
    created_s: float
    node_id: int | None = None


@dataclass(frozen=True)
class Spec:
    """A testbed as ordered; complete, so that the supervisor decides nothing but ports.

    Attributes:
        id: name and a random part; each process carries it on its command line.
        name: what people call it.
        profile: name of the profile.
        description: the profile's, for people.
        kafka_version: the release.
        brokers: number of brokers.
        heap_mb: Java heap of each process [MiB].
        jvm_options: options of every node's JVM, after Kafka's own.
        disk_limit_bytes: bound of all log dirs together [B].
        broker_properties, controller_properties: Kafka properties by name.
        java: the Java launcher.
        jars: the class path.
        class_archive: file of the shared class archive; made if missing, None for none.
        ready_deadline_s: how long the start may take [s].
        owned: True when the testbed ends with the process that started it.
        node_jvm_options: node id → options of its JVM besides ours, such as a -javaagent.
        security: protocols of the listeners for clients, the usual one first; none is plain.
        jmx_secured: whether JMX needs a password and speaks TLS.
        log_dirs: of each broker.
        cpus: cores that each broker may use, or a part of one; None for all.
        produce_handler_ms: broker id → time that a handler waits in each produce request; empty
            for none [ms].
        spark_workers: workers of its Spark cluster; 0 for no Spark.
        spark_home: folder of the Spark that the cluster runs; empty for no Spark.
        link: between the brokers and what loads them; None for the loopback interface.
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
    node_jvm_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jvm_options: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    jmx_secured: bool = False
    log_dirs: int = 1
    cpus: float | None = None
    produce_handler_ms: Mapping[str, float] = field(default_factory=dict)
    spark_workers: int = 0
    spark_home: str = ""
    link: Link | None = None

    @property
    def title(self) -> str:
        """For people: `testbed default (3 brokers, Kafka 4.1.2)`."""
        parts = [_counted(self.brokers, "broker"), f"Kafka {self.kafka_version}"]
        if self.spark_workers:
            parts.append(_counted(self.spark_workers, "Spark worker"))
        if self.link is not None:
            parts.append(f"a link of {self.link.words()}")
        return f"testbed {self.name} ({', '.join(parts)})"


@dataclass(frozen=True)
class Node:
    """One Kafka process of the testbed.

    Attributes:
        node_id: Kafka's node id.
        role: broker or controller.
        port: port of its plain listener, or the only one.
        jmx_port: port of its JMX registry and of its JMX objects.
        directory: its properties, data and logs.
        secured_ports: protocol → port of the listeners for clients, if they are secured.
        host: address of all its listeners and of its JMX.
    """

    node_id: int
    role: NodeRole
    port: int
    jmx_port: int
    directory: str
    secured_ports: Mapping[str, int] = field(default_factory=dict)
    host: str = HOST

    @property
    def address(self) -> str:
        """The plain listener as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def client_address(self) -> str:
        """The listener for clients as host:port."""
        return f"{self.host}:{next(iter(self.secured_ports.values()), self.port)}"

    @property
    def jmx_endpoint(self) -> str:
        """JMX as host:port."""
        return f"{self.host}:{self.jmx_port}"

    @property
    def title(self) -> str:
        """For people: `broker 2` or `the controller`."""
        return "the controller" if self.role is NodeRole.CONTROLLER else f"broker {self.node_id}"


@dataclass(frozen=True)
class SparkNode:
    """The master or a worker of the testbed's Spark cluster, on `HOST`.

    Attributes:
        node_id: `SPARK_MASTER_ID`, or that of a worker, which counts on from it.
        role: master or worker.
        port: where it takes messages.
        web_port: of its web page.
        directory: its work folder, scratch files and logs.
    """

    node_id: int
    role: NodeRole
    port: int
    web_port: int
    directory: str

    @property
    def url(self) -> str:
        """What drivers and workers call, if it is the master."""
        return f"spark://{HOST}:{self.port}"

    @property
    def title(self) -> str:
        """For people: `the Spark master` or `Spark worker 2`."""
        if self.role is NodeRole.SPARK_MASTER:
            return "the Spark master"
        return f"Spark worker {self.node_id - SPARK_MASTER_ID}"


@dataclass(frozen=True)
class LineNode:
    """The process of a link that holds packets back; it is in the generator's namespace.

    Attributes:
        directory: of its log and its counts.
        addresses: of the link's ends.
    """

    directory: str
    addresses: LinkAddresses
    node_id: int = LINE_ID
    role: NodeRole = NodeRole.DELAY_LINE

    @property
    def title(self) -> str:
        """For people."""
        return "the delay line of the link"


Member = Node | SparkNode | LineNode
"""Any process that a testbed keeps."""


@dataclass(frozen=True)
class State:
    """A testbed as it is; the supervisor rewrites its file at every change.

    Attributes:
        spec: what was ordered.
        status: where it is in its life.
        created_s: when it was ordered [s since the epoch].
        reason: why it failed, or empty.
        owner: the process that ordered it; None once it stands on its own.
        supervisor: the process that keeps it; None before it runs.
        nodes: the Kafka processes that belong to it, once ports are known.
        processes: those that have been started and not yet reaped.
        spark: the Spark master and its workers, once ports are known.
        line: the delay line, once the link is there; None without a link.
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
        """All processes that belong to it: Kafka's, Spark's, and the link's."""
        return (*self.nodes, *self.spark, *([self.line] if self.line else []))

    @property
    def network_namespace(self) -> str:
        """File of the namespace from which clients reach the brokers over the link.

        Empty without a link, or while nobody keeps it.
        """
        pids = (each.pid for each in self.processes if each.node_id == LINE_ID)
        return next((f"/proc/{pid}/ns/net" for pid in pids), "")

    @property
    def spark_master(self) -> str | None:
        """URL of the Spark master, for `spark-submit --master`; None without Spark."""
        return self.spark[0].url if self.spark else None

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that are brokers."""
        return tuple(node for node in self.nodes if node.role is NodeRole.BROKER)

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """Addresses of all brokers, for clients."""
        return tuple(node.client_address for node in self.brokers)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> State:
        """The reverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: when the data is none of ours.
        """
        spec = dict(data["spec"])
        spec["jars"] = tuple(spec["jars"])
        for key in ("security", "jvm_options"):
            spec[key] = tuple(spec.get(key, ()))
        options = spec.get("node_jvm_options", {})
        spec["node_jvm_options"] = {node: tuple(given) for node, given in options.items()}
        link, line = spec.get("link"), data.get("line")
        spec["link"] = None if link is None else Link(**link)
        return cls(
            spec=Spec(**spec),
            status=Status(data["status"]),
            created_s=float(data["created_s"]),
            reason=str(data["reason"]),
            owner=_record(data["owner"]),
            supervisor=_record(data["supervisor"]),
            nodes=tuple(Node(**{**node, "role": NodeRole(node["role"])}) for node in data["nodes"]),
            processes=tuple(ProcessRecord(**record) for record in data["processes"]),
            spark=tuple(
                SparkNode(**{**node, "role": NodeRole(node["role"])})
                for node in data.get("spark", ())
            ),
            line=None
            if line is None
            else LineNode(line["directory"], LinkAddresses(**line["addresses"])),
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _record(data: Mapping[str, Any] | None) -> ProcessRecord | None:
    return None if data is None else ProcessRecord(**data)
