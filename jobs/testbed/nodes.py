"""All nodes of one testbed: writes their files, and starts and stops the nodes.

The module also probes whether the nodes are ready: each broker's Metadata response must list all
brokers.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import javaproperties
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from jobs.testbed.cleanup import end_processes, inheriting_processes
from jobs.testbed.cpu_groups import cpu_groups, group_name, remove_groups
from jobs.testbed.delay_line import line_command, round_trip_s
from jobs.testbed.handler_time import handler_time_properties
from jobs.testbed.jvm import MARKER, format_command, server_command, writes_archive
from jobs.testbed.listeners import listener_properties, make_security
from jobs.testbed.model import (
    CONTROLLER_ID,
    HOST,
    LINE_ID,
    RACK_PROPERTY,
    Layout,
    LineNode,
    Member,
    Node,
    NodeRole,
    ProcessRecord,
    SparkNode,
    Spec,
    available_cores,
    cores_of,
)
from jobs.testbed.places import (
    NodeFiles,
    PortAllocator,
    disk_bytes,
    line_counts,
    log_dirs,
    written_dirs,
)
from jobs.testbed.planted_devices import (
    LinkDevices,
    lift_rates,
    make_disk,
    plant_rate,
    remove_disks,
    require_rate,
)
from jobs.testbed.processes import NodeProcess, jvm_environment
from jobs.testbed.spark import (
    spark_command,
    spark_environment,
    spark_nodes,
    spark_ports,
    workers_problem,
    write_submit_properties,
)
from metrics.reporting.files import write_private

# A version that all supported releases have and that needs no flexible encoding.
_VERSION = 7
_CLIENT_ID = "redline-testbed"


def registered_brokers(port: int, timeout_s: float, host: str = HOST) -> frozenset[int]:
    """The ids of the brokers in the Metadata response of the broker at this port.

    In KRaft these are the brokers that are registered and not fenced.

    Raises:
        OSError: the broker accepts no connection, or does not answer in time.
    """
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, version=_VERSION)
    request.with_header(correlation_id=1, client_id=_CLIENT_ID)
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(request.encode(header=True, framed=True))
        with connection.makefile("rb") as stream:
            size = int.from_bytes(_exactly(stream.read(4), 4), "big")
            answer = _exactly(stream.read(size), size)
    response = MetadataResponse.decode(answer, version=_VERSION, header=True)
    return frozenset(broker.node_id for broker in response.brokers)


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError(f"the broker closed the connection after {len(data)} of {size} B")
    return data


_REPLICAS_MAX = 3


ZOOKEEPER_TICK_MS = 500
ZOOKEEPER_SESSION_MS = 6_000
"""Time after which a killed broker's registration ends [ms]; Kafka's default of 18 s would delay a
restart.
"""


def node_properties(
    spec: Spec, node: Node, nodes: Sequence[Node], data_dirs: str
) -> dict[str, str]:
    """All properties of one node. If the launcher sets a property, the value of the launcher
    replaces any other value.

    Args:
        spec: the testbed.
        node: the node.
        nodes: all Kafka nodes of the testbed, and ZooKeeper.
        data_dirs: log directories of the node, separated by commas.
    """
    if node.role is NodeRole.ZOOKEEPER:
        return {
            "dataDir": data_dirs,
            "clientPort": str(node.port),
            "clientPortAddress": node.host,
            "tickTime": str(ZOOKEEPER_TICK_MS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
    replicas = str(min(_REPLICAS_MAX, spec.brokers))
    properties = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        **spec.broker_properties,
    }
    if node.role is NodeRole.CONTROLLER or node.controller_port is not None:
        properties.update(spec.controller_properties)
    if node.role is NodeRole.CONTROLLER:
        properties["listeners"] = f"CONTROLLER://{node.address}"
    else:
        properties.update(listener_properties(node))
        properties.update(handler_time_properties(spec, node.node_id))
        if rack := spec.rack_of(node.node_id):
            properties[RACK_PROPERTY] = rack
    if spec.metadata == "zookeeper":
        properties.update(_of_zookeeper_mode(spec, node, nodes))
    else:
        properties.update(_of_kraft(node, nodes))
    return {**properties, "log.dirs": data_dirs}


def _of_kraft(node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    # Every release supports static voters.
    voters = (
        f"{each.node_id}@{each.host}:{each.controller_port or each.port}"
        for each in nodes
        if each.role is NodeRole.CONTROLLER or each.controller_port is not None
    )
    is_combined = node.controller_port is not None
    return {
        "process.roles": "broker,controller" if is_combined else node.role.value,
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
    }


def _of_zookeeper_mode(spec: Spec, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    zookeeper = next(each for each in nodes if each.role is NodeRole.ZOOKEEPER)
    properties = {
        "broker.id": str(node.node_id),
        "zookeeper.connect": zookeeper.address,
        "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_MS),
    }
    if len(spec.releases) > 1:  # as in a rolling upgrade before its last step
        oldest = ".".join(spec.releases[0].split(".")[:2])
        properties["inter.broker.protocol.version"] = oldest
    return properties


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file, in alphabetical order of the keys."""
    return javaproperties.dumps(properties, timestamp=None, sort_keys=True)


# The exit code of a JVM that ended by SIGTERM and ran its shutdown hooks.
_EXIT_BY_SIGTERM = 143
_PROBE_TIMEOUT_S = 1.0
_ARCHIVE_DRAFT = "classes.jsa"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""The file in a controller's log directory with the first metadata records of a new cluster."""

Accepts = Callable[[int, float, str], bool]
"""(Port, timeout [s], host) → whether a process accepts connections at this port of the host."""


class Nodes(Layout):
    """Starts, probes and ends the nodes for the supervisor. A start does not wait until the node is
    ready.

    Attributes:
        processes: node id → process of the node, once it is started.
    """

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.nodes, self.spark, self.line = (), (), None
        self._devices: LinkDevices | None = None
        self.processes: dict[int, NodeProcess] = {}
        self._spec = spec
        self._folder = folder

    @property
    def start_phases(self) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
        """Two groups of nodes: the nodes that start first, and Spark's workers, which start next.

        A worker that finds no Spark master retries only after 5 to 15 s.
        """
        first = [self.line] if self.line else []
        return (*first, *self.nodes, *self.spark[:1]), self.spark[1:]

    @property
    def host(self) -> str:
        """The address on which Kafka's nodes listen."""
        return self.line.addresses.brokers if self.line else HOST

    def records(self) -> tuple[ProcessRecord, ...]:
        """The `ProcessRecord` of each running process."""
        running = (each for each in self.processes.values() if each.exit_code() is None)
        return tuple(each.record for each in running)

    def make_link(self) -> None:
        """Create the namespaces and devices of the link, if the spec has a link.

        Raises:
            DeviceError: this machine does not permit the link.
        """
        if self._spec.link is not None:
            self._devices = LinkDevices(self._spec.link, self._spec.id)
            folder = self._folder / NodeRole.DELAY_LINE.value
            folder.mkdir()
            self.line = LineNode(str(folder), self._devices.addresses)

    def close_link(self) -> None:
        """Remove the link; all processes must have ended before."""
        if self._devices is not None:
            self._devices.close()

    def plant_disks(self) -> None:
        """Set and probe the write rate of all planted disks, if the spec has any.

        Raises:
            DeviceError: the kernel refused the rate, or the machine's disk is slower than the rate.
        """
        if self._spec.disk is not None:
            for node in self.brokers:
                files = NodeFiles(node)
                plant_rate(self._spec.disk, files.folder)
                require_rate(self._spec.disk, files.data)

    def make_security(self) -> None:
        """Create the keys and users of secured listeners and JMX, if the spec has any."""
        if self._spec.security or self._spec.jmx_secured:
            make_security(self._folder, self.host)

    def lay_out(self, allocate: PortAllocator) -> None:
        """Choose ports, and write the files of all nodes; earlier files are replaced."""
        is_combined = self._spec.metadata == "combined"
        brokers = range(1, self._spec.brokers + 1)
        ids = [*brokers] if is_combined else [CONTROLLER_ID, *brokers]
        secured = self._spec.brokers * len(self._spec.security)
        own = (3 if is_combined else 2) * len(ids)
        ports = iter(allocate(own + secured + spark_ports(self._spec)))
        for each in self.members:
            if each is not self.line:  # the delay line keeps running
                shutil.rmtree(each.directory)
        self.nodes = tuple(self._node(node_id, ports) for node_id in ids)
        self.cluster_id = random_id()
        for node in self.nodes:
            files = NodeFiles(node)
            is_broker = node.role is NodeRole.BROKER
            files.data.mkdir(parents=True)
            if is_broker and self._spec.disk is not None:
                make_disk(self._spec.disk, files.folder, files.data)
            folders = log_dirs(files.data, self._spec.log_dirs if is_broker else 1)
            for folder in folders:
                folder.mkdir(exist_ok=True)
                if is_broker and self._spec.metadata != "zookeeper" and node is not self.formatted:
                    # The file that `kafka.tools.StorageTool format` would write. Writing it here
                    # saves one JVM for each broker; only a controller needs bootstrap.checkpoint.
                    meta = {
                        "version": "1",
                        "cluster.id": self.cluster_id,
                        "node.id": str(node.node_id),
                        "directory.id": random_id(),
                    }
                    (folder / "meta.properties").write_text(render(meta))
            properties = node_properties(self._spec, node, self.nodes, ",".join(map(str, folders)))
            write_private(files.properties, render(properties))
        self.spark = spark_nodes(self._spec, self._folder, ports)
        for folder in written_dirs(self.spark):
            folder.mkdir(parents=True)
        if self.spark:
            write_submit_properties(self._folder)

    @property
    def formatted(self) -> Node | None:
        """The node whose log directory Kafka's tool formats: the first KRaft controller."""
        return None if self._spec.metadata == "zookeeper" else self.nodes[0]

    def start_format(self) -> NodeProcess | None:
        """Start to format the first controller's log directory; exit code 0 is success.

        The result is None with ZooKeeper, because brokers then format their log directories at
        their start.
        """
        if self.formatted is None:
            return None
        command = format_command(self._spec, self.formatted, self.cluster_id)
        return NodeProcess(self.formatted, command, NodeFiles(self.formatted).console)

    def share_bootstrap_metadata(self) -> None:
        """Copy the first metadata records from the formatted controller to the other
        controllers.
        """
        if self._spec.metadata != "combined":
            return
        first, *others = (
            log_dirs(NodeFiles(node).data, self._spec.log_dirs)[0] for node in self.nodes
        )
        for folder in others:
            shutil.copyfile(first / BOOTSTRAP_CHECKPOINT, folder / BOOTSTRAP_CHECKPOINT)

    def start(self, node: Member) -> NodeProcess:
        """Start the process of a node; do not wait until it is ready."""
        spec, devices, options = self._spec, self._devices, dict[str, Any]()
        if isinstance(node, SparkNode):
            command = spark_command(spec, node, self.spark[0])
            options["environment"] = spark_environment(spec, node, jvm_environment(os.environ))
        elif isinstance(node, LineNode):
            assert devices is not None and spec.link is not None, "LineNode needs a link"
            counts, marker = line_counts(node), f"{MARKER}{spec.id}"
            command = line_command(spec.link, devices.tuns, counts, marker)
            options |= {"namespace": devices.generator, "inherited": devices.tuns}
        else:
            draft = Path(node.directory) / _ARCHIVE_DRAFT if writes_archive(spec, node) else None
            command = server_command(spec, node, write_archive_to=draft)
            cpus = spec.cpus if node.role is NodeRole.BROKER else None
            groups = cpu_groups() if cpus is not None else None
            if cpus is not None and groups is not None:
                options["group"] = groups.make(group_name(spec.id, node.node_id), cpus)
            else:
                options["cores"] = cores_of(node.node_id, cpus, available_cores())
            options["namespace"] = devices.brokers if devices else None
        process = NodeProcess(node, command, NodeFiles(node).console, **options)
        self.processes[node.node_id] = process
        return process

    def unexpected_end(self) -> NodeProcess | None:
        """A process that has ended unexpectedly; None if there is none."""
        for process in self.processes.values():
            if not process.is_down_on_purpose and process.exit_code() is not None:
                return process
        return None

    def readiness_problem(self, accepts: Accepts) -> str | None:
        """The reason why a node is not ready, for messages; None if all nodes are ready.

        Every listener and JMX port must accept connections. Every broker must report exactly the
        running brokers as registered and unfenced. The Spark master must accept connections, and
        must have registered all started workers. A client must be able to reach a broker over the
        emulated link, if there is one.
        """
        up = [node for node in self.nodes if not self.processes[node.node_id].is_down_on_purpose]
        for node in up:
            listeners = [
                (port, "its listener") for port in (node.port, *node.secured_ports.values())
            ]
            if node.controller_port is not None:
                listeners.append((node.controller_port, "its controller listener"))
            for port, what in ((node.jmx_port, "JMX"), *listeners):
                if not accepts(port, _PROBE_TIMEOUT_S, node.host):
                    return f"{node.title} does not accept connections to {what} at port {port}"
        brokers = [node for node in up if node.role is NodeRole.BROKER]
        wanted = {node.node_id for node in brokers}
        for node in brokers:
            try:
                known = registered_brokers(node.port, _PROBE_TIMEOUT_S, node.host)
            except OSError as error:
                return f"{node.title} does not answer Metadata ({error!r})"
            if known != wanted:
                return (
                    f"{node.title} reports brokers {sorted(known)} as registered and unfenced; "
                    f"expected {sorted(wanted)}"
                )
        return self._link_problem(brokers) or self._spark_problem(accepts)

    def _link_problem(self, brokers: Sequence[Node]) -> str | None:
        line = self.processes.get(LINE_ID)
        if line is None or not brokers:
            return None
        try:
            round_trip_s(f"/proc/{line.record.pid}/ns/net", brokers[0].host, brokers[0].port)
        except OSError as error:
            return f"the link passes no connection to {brokers[0].title} ({error})"
        return None

    def _spark_problem(self, accepts: Accepts) -> str | None:
        started = [node for node in self.spark if node.node_id in self.processes]
        for node in started:
            if not accepts(node.port, _PROBE_TIMEOUT_S, HOST):
                return f"{node.title} does not accept connections at port {node.port}"
        return workers_problem(started, _PROBE_TIMEOUT_S) if started else None

    def kill_all(self) -> None:
        """Kill and reap every process, and remove the simulated disks of the brokers."""
        lift_rates(self._folder)
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
        remove_groups(self._spec.id)
        remove_disks(self._folder)
        if self.spark:
            # Executors and their Python workers outlive their Spark worker for a while; meanwhile
            # they would write to folders that are deleted next.
            end_processes(inheriting_processes(self._spec.id))

    def used_bytes(self) -> int:
        """The size of all nodes' data on the disk, without their console and server logs [B]."""
        return disk_bytes(written_dirs(self.members))

    def keep_class_archive(self) -> None:
        """Copy the controller's class archive to the path from which later starts read it."""
        if not self.nodes or self._spec.class_archive is None:
            return
        controller = self.processes.get(CONTROLLER_ID)
        draft = Path(self.nodes[0].directory) / _ARCHIVE_DRAFT
        # After any other end of the process the archive may be truncated.
        if controller is None or controller.exit_code() != _EXIT_BY_SIGTERM or not draft.exists():
            return
        target = Path(self._spec.class_archive)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The target may be on another file system: copy the file next to it, then rename it.
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(draft, beside)
        beside.replace(target)

    def _node(self, node_id: int, ports: Iterator[int]) -> Node:
        role = NodeRole.BROKER
        if node_id == CONTROLLER_ID:
            is_zookeeper = self._spec.metadata == "zookeeper"
            role = NodeRole.ZOOKEEPER if is_zookeeper else NodeRole.CONTROLLER
        directory = self._folder / f"{role.value}-{node_id}"
        port, jmx_port = next(ports), next(ports)
        protocols = self._spec.security if role is NodeRole.BROKER else ()
        secured = {protocol: next(ports) for protocol in protocols}
        own = next(ports) if self._spec.metadata == "combined" else None
        return Node(node_id, role, port, jmx_port, str(directory), secured, self.host, own)


def random_id() -> str:
    """A random Kafka id: a UUID in URL-safe base64 without a leading dash."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
