"""The Spark cluster of a testbed: one standalone master and its workers, on the loopback interface.

Master and workers use the jars of the installed pyspark, so that executors and drivers have the
same version. Executors import the installed packages of this Python, and receive this project with
a job (`spark-submit --py-files`).
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path

from jobs.setup.releases import installed_spark
from jobs.testbed.jvm import MARKER
from jobs.testbed.model import HOST, SPARK_MASTER_ID, NodeRole, SparkNode, Spec
from jobs.testbed.places import NodeFiles
from metrics.reporting.files import write_private

SPARK_WORKERS_MAX = 8
WORKER_SLOTS = 2
"""Number of tasks that a worker runs at the same time. The workers may have more slots than the
machine has cores, because a barrier stage requires all of its tasks at the same time."""

WORKER_MEMORY_MB = 1_024
"""Memory of a worker for executors, enough for one executor of Spark's default size [MiB]."""

TESTBED_VARIABLE = "REDLINE_TESTBED"
"""Environment variable with the testbed's id. Executors and Python workers inherit this variable.
The command lines of executors and Python workers cannot contain the id, because Spark determines
these command lines.
"""

_HEAP_MB = 256
_CLEANUP_INTERVAL_S = 60
_CLEANUP_AGE_S = 600
_DEPLOY = "org.apache.spark.deploy"

# Environment variables that would change Spark's settings, or let executors import packages that
# the job did not send.
_FOREIGN = ("SPARK_", "PYSPARK_", "PYTHON")


def spark_home() -> str:
    """The folder of the installed pyspark, with Spark's jars and scripts."""
    import pyspark

    return str(Path(pyspark.__file__).resolve().parent)


def submit_properties(folder: Path) -> Path:
    """The path of the file with the settings of a testbed's Spark master, workers and jobs."""
    return folder / "submit.properties"


def write_submit_properties(folder: Path) -> None:
    """Write Spark's settings and a new secret to a file that only the testbed's owner can read."""
    settings = (files("conf") / "spark" / "submit.properties").read_text(encoding="utf-8")
    secret = f"spark.authenticate.secret  {secrets.token_hex(32)}\n"
    write_private(submit_properties(folder), settings + secret)


def spark_nodes(spec: Spec, folder: Path, ports: Iterator[int]) -> tuple[SparkNode, ...]:
    """The Spark master followed by its workers; empty without workers.

    Args:
        ports: free ports; `spark_ports` returns their number.
    """
    if not spec.spark_workers:
        return ()
    roles = [NodeRole.SPARK_MASTER, *[NodeRole.SPARK_WORKER] * spec.spark_workers]
    return tuple(
        SparkNode(node_id, role, next(ports), next(ports), str(folder / f"{role.value}-{node_id}"))
        for node_id, role in enumerate(roles, SPARK_MASTER_ID)
    )


def spark_ports(spec: Spec) -> int:
    """The number of ports that the Spark cluster requires."""
    return 2 * (1 + spec.spark_workers) if spec.spark_workers else 0


def spark_command(spec: Spec, node: SparkNode, master: SparkNode) -> list[str]:
    """The command line of the master or of a worker."""
    # Without retries, Spark uses exactly the port in the state file.
    settings = {
        "spark.port.maxRetries": "0",
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",  # its web page has no login
    }
    address = ["--host", HOST, "--port", str(node.port), "--webui-port", str(node.web_port)]
    secured = ["--properties-file", str(submit_properties(NodeFiles(node).folder.parent))]
    if node.role is NodeRole.SPARK_MASTER:
        arguments = [f"{_DEPLOY}.master.Master", *address, *secured]
    else:
        settings |= {
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.interval": str(_CLEANUP_INTERVAL_S),
            "spark.worker.cleanup.appDataTtl": str(_CLEANUP_AGE_S),
        }
        size = ["--cores", str(WORKER_SLOTS), "--memory", f"{WORKER_MEMORY_MB}m"]
        work = ["--work-dir", str(NodeFiles(node).work)]
        arguments = [f"{_DEPLOY}.worker.Worker", *address, *secured, *size, *work, master.url]
    return [
        spec.java,
        f"-Xmx{_HEAP_MB}m",
        # Master and workers have little work; the fast compiler halves the CPU time of their start.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"{MARKER}{spec.id}",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        *(f"-D{key}={value}" for key, value in settings.items()),
        "-cp",
        str(Path(spec.spark_home) / "jars" / "*"),
        *arguments,
    ]


def spark_environment(spec: Spec, node: SparkNode, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a Spark master or worker, which a worker's executors inherit.

    Args:
        environ: environment of this process, without JVM options.
    """
    kept = {key: value for key, value in environ.items() if not key.startswith(_FOREIGN)}
    return {
        **kept,
        "SPARK_HOME": spec.spark_home,
        # Without this variable a worker searches a build tree for the version.
        "SPARK_SCALA_VERSION": installed_spark().scala,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(NodeFiles(node).data),
        TESTBED_VARIABLE: spec.id,
    }


def workers_problem(nodes: Sequence[SparkNode], timeout_s: float) -> str | None:
    """The reason why Spark is not ready, for messages; None if Spark is ready.

    Spark is ready when the master reports every worker as alive.
    """
    master, *workers = nodes
    try:
        alive = _alive_workers(master.web_port, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{master.title} does not answer ({error!r})"
    absent = [node.title for node in workers if node.port not in alive]
    return f"{', '.join(absent)} did not register at {master.title}" if absent else None


def _alive_workers(web_port: int, timeout_s: float) -> set[int]:
    """The ports of the workers that the master reports as alive."""
    with closing(http.client.HTTPConnection(HOST, web_port, timeout=timeout_s)) as connection:
        connection.request("GET", "/json/")
        status = json.loads(connection.getresponse().read())
    return {int(each["port"]) for each in status["workers"] if each["state"] == "ALIVE"}
