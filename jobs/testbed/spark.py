"""The Spark cluster of a testbed: one standalone master and its workers, on the loopback interface.

They run from the jars of the installed pyspark, so executors are of the version that drivers
are. What executors find installed is what this Python finds, apart from this project: that
they get with the job (`spark-submit --py-files`).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jobs.setup.jars import SCALA
from jobs.testbed.jvm import MARKER
from jobs.testbed.model import HOST, SPARK_MASTER_ID, NodeRole, SparkNode, Spec
from jobs.testbed.places import node_files

SPARK_WORKERS_MAX = 4
WORKER_SLOTS = 2
"""Tasks that a worker runs at once. They may exceed the cores of the machine: a barrier stage
must have them all at the same time, whatever they are given of a core."""

WORKER_MEMORY_MB = 1_024
"""What a worker has for executors: one of Spark's default size [MiB]."""

TESTBED_VARIABLE = "REDLINE_TESTBED"
"""Holds the testbed's id in the environment of Spark's processes. Executors and their Python
workers, whose command lines are Spark's affair, inherit it."""

_HEAP_MB = 256
_CLEANUP_INTERVAL_S = 60
_CLEANUP_AGE_S = 600
_DEPLOY = "org.apache.spark.deploy"

# Variables that would make Spark another one than the command line says, or that would let
# executors import what was not sent to them.
_FOREIGN = ("SPARK_", "PYSPARK_", "PYTHON")


def spark_home() -> str:
    """The folder of the installed pyspark, which holds Spark's jars and scripts."""
    import pyspark

    return str(Path(pyspark.__file__).resolve().parent)


def spark_nodes(spec: Spec, folder: Path, ports: Iterator[int]) -> tuple[SparkNode, ...]:
    """The master and the workers that were ordered, the master first; none without workers.

    Args:
        ports: `spark_ports` of them.
    """
    if not spec.spark_workers:
        return ()
    roles = [NodeRole.SPARK_MASTER, *[NodeRole.SPARK_WORKER] * spec.spark_workers]
    return tuple(
        SparkNode(node_id, role, next(ports), next(ports), str(folder / f"{role.value}-{node_id}"))
        for node_id, role in enumerate(roles, SPARK_MASTER_ID)
    )


def spark_ports(spec: Spec) -> int:
    """How many ports the Spark cluster takes."""
    return 2 * (1 + spec.spark_workers) if spec.spark_workers else 0


def spark_command(spec: Spec, node: SparkNode, master: SparkNode) -> list[str]:
    """The command of the master or of a worker."""
    # Another port than the one asked for would be one that nobody knows.
    settings = {"spark.port.maxRetries": "0", "spark.master.rest.enabled": "false"}
    address = ["--host", HOST, "--port", str(node.port), "--webui-port", str(node.web_port)]
    if node.role is NodeRole.SPARK_MASTER:
        arguments = [f"{_DEPLOY}.master.Master", *address]
    else:
        settings |= {
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.interval": str(_CLEANUP_INTERVAL_S),
            "spark.worker.cleanup.appDataTtl": str(_CLEANUP_AGE_S),
        }
        size = ["--cores", str(WORKER_SLOTS), "--memory", f"{WORKER_MEMORY_MB}m"]
        work = ["--work-dir", str(node_files(node).work)]
        arguments = [f"{_DEPLOY}.worker.Worker", *address, *size, *work, master.url]
    return [
        spec.java,
        f"-Xmx{_HEAP_MB}m",
        f"{MARKER}{spec.id}",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        *(f"-D{key}={value}" for key, value in settings.items()),
        "-cp",
        str(Path(spec.spark_home) / "jars" / "*"),
        *arguments,
    ]


def spark_environment(spec: Spec, node: SparkNode, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a Spark process, which its executors inherit.

    Args:
        environ: ours, without what changes a JVM.
    """
    kept = {key: value for key, value in environ.items() if not key.startswith(_FOREIGN)}
    return {
        **kept,
        "SPARK_HOME": spec.spark_home,
        "SPARK_SCALA_VERSION": SCALA,  # else a worker looks for a build tree to learn it
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(node_files(node).data),
        TESTBED_VARIABLE: spec.id,
    }


def missing_workers(nodes: Sequence[SparkNode], timeout_s: float) -> str | None:
    """What the Spark cluster lacks to be ready, in words; None when nothing.

    Ready: the master knows every worker as alive.
    """
    master, *workers = nodes
    try:
        alive = _alive_workers(master.web_port, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{master.title} does not answer ({error!r})"
    absent = [node.title for node in workers if node.port not in alive]
    return f"{', '.join(absent)} not registered at {master.title}" if absent else None


def _alive_workers(web_port: int, timeout_s: float) -> set[int]:
    """Ports of the workers that the master at this port of `HOST` knows as alive."""
    connection = http.client.HTTPConnection(HOST, web_port, timeout=timeout_s)
    try:
        connection.request("GET", "/json/")
        told = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return {int(each["port"]) for each in told["workers"] if each["state"] == "ALIVE"}
