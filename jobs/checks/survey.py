"""A survey of all executors: one barrier stage with a task in each slot collects their facts."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.checks import executor_facts
from jobs.config import Cluster, Workload
from jobs.engine.batches.pool import CODECS
from jobs.engine.clients.registry import client_named
from jobs.engine.task import clock_comparison
from jobs.engine.task.control_channel import ControlAddress
from jobs.spark.session import cause_of, run_interruptibly
from metrics.common.errors import ConfigError
from metrics.trial.sockets import KernelBuffers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3.0
"""Deadline of a connection [s], ten times a round trip around the world."""
DEADLINE_S = 120.0
"""Deadline of the whole survey [s], in which executors start Python workers."""
CODE = ("jobs.engine", "jobs.engine.clients", "jobs.engine.consuming", "metrics", "search")
"""The packages of kafka-redline that executors run."""
_ENGINE = ("jobs.engine.stage",)
_NEEDED = {
    "kafka-python": "kafka",
    "crc32c": "crc32c",
    "hdrhistogram": "hdrh.histogram",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
}
_CODEC_MODULES = {"python-snappy": "snappy", "lz4": "lz4.frame", "zstandard": "zstandard"}


@dataclass(frozen=True)
class Needs:
    """The packages and files that every executor needs for a workload.

    Attributes:
        packages: package → one of its modules.
        files: paths that must be readable on executors.
    """

    packages: Mapping[str, str]
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster) -> Needs:
        """The needs of a trial of this workload on an executor."""
        packages = dict(_NEEDED)
        for part in workload.parts:
            codec = CODECS[part.producer.compression].package
            if codec:
                packages[codec] = _CODEC_MODULES[codec]
            for name in (part.producer.client, part.consumers.client):
                packages |= client_named(name).packages
        security = cluster.security
        if security.sasl_mechanism == "GSSAPI":
            packages["gssapi"] = "gssapi"
        files = (*(part.payload.messages_file for part in workload.parts), *security.shared_files)
        return cls(packages, tuple(path for path in files if path))


@dataclass(frozen=True)
class ExecutorFacts:
    """The facts that one task of the survey found on its executor.

    Attributes:
        host: name of the executor's host.
        executor: host:port by which Spark's log and pages name the executor.
        packages: package → version, or None where its import fails.
        package_errors: package → error of its import.
        code: digest of kafka-redline's code there; None where it is not installed.
        trouble: why kafka-redline's code does not run there, or empty.
        offset_s, offset_error_s: by how much its clock is ahead of the driver's, and the
            uncertainty [s]; None where the driver was not reached.
        channel_trouble: why the driver was not reached, or empty.
        unreachable: broker id → why the connection failed.
        round_trip_ms: broker id → round trip of a new connection, where the system reports it.
        kernel_buffers: the kernel's limits of socket buffers on its host.
        unreadable: paths of `Needs.files` that cannot be read.
    """

    host: str
    executor: str
    packages: Mapping[str, str | None]
    package_errors: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    trouble: str = ""
    offset_s: float | None = None
    offset_error_s: float | None = None
    channel_trouble: str = ""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    round_trip_ms: Mapping[str, float] = field(default_factory=dict)
    kernel_buffers: KernelBuffers | None = None
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ExecutorFacts:
        """Facts from the JSON that `jobs.checks.executor_facts` yields."""
        found = json.loads(text)
        limits: Mapping[str, list[int]] = found.pop("kernel_buffers", {})
        if limits:
            caps = [next(iter(limits.get(name, ())), None) for name in ("rmem_max", "wmem_max")]
            rmem, wmem = (tuple(limits.get(name, ())) for name in ("tcp_rmem", "tcp_wmem"))
            found["kernel_buffers"] = KernelBuffers(found["host"], rmem, wmem, *caps)
        return cls(**{**found, "unreadable": tuple(found["unreadable"])})


def driver_facts(needs: Needs) -> ExecutorFacts:
    """The facts of the driver, with which those of executors are compared."""
    return ExecutorFacts(
        host=platform.node(),
        executor="driver",
        packages={name: _version_of(name) for name in needs.packages},
        code=executor_facts.digest(CODE),
        offset_s=0.0,
        offset_error_s=0.0,
    )


def probe_order(
    needs: Needs,
    brokers: Mapping[int, tuple[str, int]],
    channel: ControlAddress,
    network_namespace: str = "",
) -> dict[str, Any]:
    """The order for a task of the survey, as plain values, as executors may lack our classes."""
    return {
        "packages": dict(needs.packages),
        "files": list(needs.files),
        "code": CODE,
        "engine": _ENGINE,
        "brokers": {str(broker): list(place) for broker, place in brokers.items()},
        "network_namespace": network_namespace,
        "clock": asdict(channel),
        "timeout_s": TIMEOUT_S,
    }


def survey(spark: SparkSession, slots: int, order: Mapping[str, Any]) -> list[ExecutorFacts]:
    """Collect the facts of each slot's executor, all at the same time.

    Raises:
        ConfigError: the stage failed, for example as executors run another version of Python.
    """
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    task = functools.partial(executor_facts.probe_task, json.dumps(order))

    def collect() -> Sequence[str]:
        stage = context.parallelize(range(slots), slots).barrier().mapPartitions(task)
        return [str(text) for text in stage.collect()]

    group, late = "redline-probe", threading.Event()
    try:
        with shipped_as_source(), _cancelled_after(spark, group, late):
            return [ExecutorFacts.parse(text) for text in run_interruptibly(spark, group, collect)]
    except Py4JJavaError as error:
        why = f"did not answer within {DEADLINE_S:.0f} s" if late.is_set() else cause_of(error)
        python = ".".join(platform.python_version_tuple()[:2])
        raise ConfigError(
            f"the survey of Spark's executors failed ({why}); expected the driver's Python "
            f"{python} with pyspark on every executor; set PYSPARK_PYTHON (spark.pyspark.python) "
            "to it, and see the executors' logs"
        ) from error


@contextmanager
def shipped_as_source() -> Iterator[None]:
    """Pickle the functions of the survey as code, so that they run without our wheel."""
    from pyspark import cloudpickle

    shipped: Any = cloudpickle  # the package has no types
    modules = (executor_facts, clock_comparison)
    for module in modules:
        shipped.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            shipped.unregister_pickle_by_value(module)


@contextmanager
def _cancelled_after(spark: SparkSession, group: str, late: threading.Event) -> Iterator[None]:
    """Cancel the jobs of the group at the deadline, and set `late`."""

    def cancel() -> None:
        late.set()
        spark.sparkContext.cancelJobGroup(group)

    timer = threading.Timer(DEADLINE_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
